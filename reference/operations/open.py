"""Open: refuse other generations first, recover if writing is meant, and only then read the schema."""

from __future__ import annotations

from reference.errors import Conflict, Internal, NotFound, OmniError
from reference.format.names import MANIFEST_DIR
from reference.format.stamp import refuse_other_generations
from reference.protocol.audit import AuditRow
from reference.protocol.manifests import stamp_of
from reference.protocol.recovery import has_been_published, sweep
from reference.protocol.store import GraphStore


def open_graph(store: GraphStore, *, read_only: bool) -> list[AuditRow]:
    """Check a graph and make it ready; returns what recovery did. A read-only open writes nothing [SNP-09]."""
    _refuse_by_stamp(store)
    recovered: list[AuditRow] = []
    if not read_only:
        recovered = sweep(store)
        _resolve_staging(store)
        _complete_contract(store)
    read_schema(store)
    return recovered


def _resolve_staging(store: GraphStore) -> None:
    """Staged schema files that no writer stands behind. The sidecars are listed after the files are seen: an apply puts
    its sidecar first, so one that is at it now is noticed and left alone."""
    if not store.schema.staging_exists():
        return
    if any(sidecar.writer_kind == "SchemaApply" for sidecar in store.sidecars.pending()):
        return
    store.schema.resolve_staging_without_sidecar(set(store.manifests.fresh(None).state.entries()))


def read_schema(store: GraphStore) -> None:
    """Read the schema that the published manifest belongs to, writing nothing.

    Between the publish of a schema apply and the last of its files, the files in place are the old schema. Whoever
    reads then, because the writer is still at it or died there, reads the staged schema instead [B20, C22].
    """
    if not store.schema.state_is_staged():
        store.schema.reload()
        return
    state = store.manifests.fresh(None).state
    for operation_id in store.sidecars.operation_ids():
        try:
            sidecar = store.sidecars.read(operation_id)
        except OmniError:
            continue  # Reading goes on beside a sidecar that nobody understands [REC-10, REC-11].
        if sidecar is not None and sidecar.writer_kind == "SchemaApply" and has_been_published(sidecar, state):
            store.schema.read_staged()
            return
    store.schema.reload()


def _refuse_by_stamp(store: GraphStore) -> None:
    """Only the stamp of main is read: no row, no branch, no sidecar [STM-05, STM-06]."""
    try:
        handle = store.tables.open_latest(MANIFEST_DIR, None)
    except NotFound as error:
        if store.objects.exists(MANIFEST_DIR) or store.schema.any_exists():
            raise Internal(
                f"the graph at {store.root.uri} is damaged: its __manifest cannot be opened",
                code="graph_damaged",
                hint="restore it from a copy; init --force would remove what is left of it",
            ) from error
        raise NotFound(
            f"there is no graph at {store.root.uri}: it has no __manifest",
            code="graph_not_found",
            hint="run init first",
        ) from error
    refuse_other_generations(stamp_of(handle))


def _complete_contract(store: GraphStore) -> None:
    """Write the compiled schema files again where both are lost, unless branches may hold another schema [SCH-13]."""
    if not store.schema.compiled_files_are_missing():
        return
    branches = store.manifests.public_branches()
    if branches:
        raise Conflict(
            "the compiled schema files are missing and the graph has branches",
            code="schema_contract_missing",
            details={"branches": branches},
            hint="restore _schema.ir.json and __schema_state.json from a backup",
        )
    store.schema.write_compiled_files()
