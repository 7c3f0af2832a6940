"""Load: a stream of records into the tables they name, as one graph commit [LOD].

    append      every row is new: a key or an id that is there already is refused
    merge       rows replace those of the same id, whole
    overwrite   the records are the whole content of the tables they name; other tables stay

Everything is parsed, typed and checked in memory before the first file is written, and a load that is refused leaves
nothing behind but the branch that it was asked to create.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import BadRequest, Conflict
from reference.failpoint import fire
from reference.format.manifest import GraphCommit
from reference.format.names import branch_label
from reference.format.records import RecordSet, TableRecords, read_records
from reference.format.values import detail, shown
from reference.operations.branches import create_branch, refuse_internal
from reference.operations.changeset import ChangeSet, TableChange, commit_changes
from reference.operations.reading import read_matching
from reference.operations.validate import Violation, all_distinct, endpoints_recheck, violations
from reference.protocol.commit import with_retries
from reference.protocol.manifests import Snapshot, branch_key
from reference.protocol.recovery import heal
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog

LoadMode = Literal["append", "merge", "overwrite"]


@dataclass(frozen=True)
class LoadResult:
    """What a load did."""

    branch: str
    base_branch: str | None
    branch_created: bool
    nodes_loaded: int
    edges_loaded: int
    commit: GraphCommit

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "commit": self.commit.to_json()}


def load(
    store: GraphStore,
    data: bytes | str,
    *,
    mode: LoadMode,
    branch: str | None = None,
    base: str | None = None,
    actor: str | None = None,
) -> LoadResult:
    """Load records into a branch. `base` names the branch from which a missing one is made first [LOD-12]."""
    if mode not in get_args(LoadMode):
        raise BadRequest(f"{shown(mode)} is not a mode: there are append, merge and overwrite", code="invalid_mode")
    target = branch_key(None if branch is None else branch.strip())
    refuse_internal(branch_label(target), "load")
    heal(store)
    created = base is not None and _create_missing(store, target, base)
    catalog = store.schema.current().catalog
    records = read_records(data, catalog)
    for key, table in records.tables.items():
        _refuse_duplicate_ids(key, table)

    def plan() -> ChangeSet:
        snapshot = store.manifests.fresh(target).snapshot()
        if store.schema.current().catalog is not catalog:
            raise Conflict("another schema was accepted while records were read", code="schema_changed", hint="retry")
        if mode == "append":
            for key, table in records.tables.items():
                _refuse_existing_ids(store, snapshot, key, table)
        tables = {key: TableChange(key, each.table, how=mode) for key, each in records.tables.items()}
        for violation in violations(store, snapshot, catalog, tables):
            raise _numbered(violation, records)
        return ChangeSet(snapshot, tables)

    if mode == "overwrite":
        # What is dropped was decided on one snapshot; on a later one it would drop rows nobody has seen [PUB-18].
        planned = plan()
        commit = with_retries(store, lambda: _commit(store, catalog, planned, actor), strict=True)
    else:
        commit = with_retries(store, lambda: _commit(store, catalog, plan(), actor), strict=False)
    nodes, edges = _count(records, "node:"), _count(records, "edge:")
    return LoadResult(branch_label(target), base, created, nodes, edges, commit)


def _commit(store: GraphStore, catalog: Catalog, changes: ChangeSet, actor: str | None) -> GraphCommit:
    return commit_changes(
        store,
        catalog,
        changes,
        kind="Load",
        actor=actor,
        recheck=endpoints_recheck(store, catalog, changes),
        committed=lambda: fire("mutation.post_finalize_pre_publisher"),
    )


def _count(records: RecordSet, prefix: str) -> int:
    return sum(each.table.num_rows for key, each in records.tables.items() if key.startswith(prefix))


def _create_missing(store: GraphStore, branch: str | None, base: str) -> bool:
    if branch is None or store.manifests.has_branch(branch):
        return False
    try:
        create_branch(store, branch, base)
    except Conflict as error:
        if error.code != "branch_exists":
            raise
        return False  # Another writer made it a moment ago.
    return True


# -- ids ----------------------------------------------------------------------------------------------------------


def _refuse_duplicate_ids(key: str, records: TableRecords) -> None:
    """An id names one row of its table, in every mode [LOD-06]. Ids that were made here are distinct already."""
    if not records.explicit.any() or all_distinct(records.table, ["id"]):
        return
    first_by_id: dict[str, int] = {}
    for index, row_id in enumerate(records.table["id"].to_pylist()):
        first = first_by_id.setdefault(row_id, index)
        if first != index:
            raise id_refusal(
                f"record {records.positions[index]}: {key} {shown(row_id)} is in record {records.positions[first]} too",
                "unique_violation",
                key,
                row_id,
                int(records.positions[index]),
            )


def _refuse_existing_ids(store: GraphStore, snapshot: Snapshot, key: str, records: TableRecords) -> None:
    """Appended rows are new; what is there already is neither doubled nor replaced [LOD-07]."""
    if not records.explicit.any():
        return
    ids = records.table.select(["id"]).filter(pa.array(records.explicit))
    found = read_matching(store, snapshot.entry(key), ids.schema, "id", ids["id"])
    if found.num_rows:
        row_id = found["id"][0].as_py()
        number = _number(records, row_id)
        raise id_refusal(f"record {number}: {key} {shown(row_id)} is there already", "row_exists", key, row_id, number)


def _number(records: TableRecords, row_id: str) -> int:
    return int(records.positions[pc.index(records.table["id"], pa.scalar(row_id)).as_py()])


def _numbered(violation: Violation, records: RecordSet) -> BadRequest:
    """A violation with the number of its record, where it is about one: a committed edge may be what is hurt."""
    error = violation.to_error()
    table = records.tables.get(violation.table_key)
    if table is not None and violation.row_id in table.table["id"].to_pylist():
        error.details["record"] = _number(table, violation.row_id)
        error.message = f"record {error.details['record']}: {error.message}"
    return error


def id_refusal(message: str, code: str, key: str, row_id: str, number: int) -> BadRequest:
    return BadRequest(message, code=code, details={"table_key": key, "row_id": detail(row_id), "record": number})
