"""Repair: tables whose HEAD is ahead of the manifest, with no sidecar that says why [RPR-01].

A writer that does not take part in the protocol leaves such drift. If it only rewrote files, as compaction does, its
HEAD holds the same rows and can be published; anything else is for a person to decide. Nothing is rewritten here: the
manifest is made to pin what is there. A schema lock that no sidecar explains is named too, and released [SCH-17].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from lance import LanceDataset, LanceOperation

from reference.errors import BadRequest, OmniError
from reference.format.manifest import TableEntry
from reference.operations.optimize import refuse_pending
from reference.protocol.publish import Changes, Lineage
from reference.protocol.queues import SCHEMA_APPLY_QUEUE
from reference.protocol.schema_lock import release_schema_lock
from reference.protocol.store import GraphStore

Classification = Literal["no_drift", "verified_maintenance", "suspicious", "unverifiable"]
Action = Literal["no_op", "preview", "healed", "forced", "refused"]


@dataclass(frozen=True)
class TableRepair:
    """One table: how far its HEAD is from its pin, what that looks like, and what was done about it."""

    table_key: str
    manifest_version: int
    lance_head_version: int
    classification: Classification
    action: Action

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class RepairResult:
    """All tables, and the schema lock if one was held that no sidecar explains."""

    tables: tuple[TableRepair, ...]
    schema_lock: Literal["held", "released"] | None = None

    def to_json(self) -> dict[str, Any]:
        return {"tables": [table.to_json() for table in self.tables], "schema_lock": self.schema_lock}


def repair(store: GraphStore, branch: str | None = None, *, confirm: bool = False, force: bool = False) -> RepairResult:
    """Say what has drifted on a branch; with `confirm`, publish what is only maintenance, with `force`, all of it."""
    if force and not confirm:
        raise BadRequest("force publishes rows that nobody has checked, so it needs confirm", code="confirm_required")
    refuse_pending(store, "repair")
    lock = _schema_lock(store, confirm)
    owned = [entry for entry in store.manifests.fresh(branch).state.entries().values() if entry.branch == branch]
    with store.queues.hold([(entry.table_key, branch) for entry in owned]):
        refuse_pending(store, "repair")  # Again, now that no writer of this process is under way.
        entries = store.manifests.fresh(branch).state.entries()
        found = [_look(store, entries[entry.table_key], confirm, force) for entry in owned]
        updates = [
            _head_entry(store, entries[table.table_key], table.lance_head_version)
            for table in found
            if table.action in ("healed", "forced")
        ]
        if updates:
            expected = {entry.table_key: entries[entry.table_key].version for entry in updates}
            store.publisher.publish(branch, Changes(updates=tuple(updates)), expected, Lineage())
    return RepairResult(tuple(found), lock)


def _schema_lock(store: GraphStore, confirm: bool) -> Literal["held", "released"] | None:
    with store.queues.hold([SCHEMA_APPLY_QUEUE]):
        if not store.manifests.schema_lock_is_held():
            return None
        refuse_pending(store, "repair")  # A holder that lives, or that recovery can deal with, has a sidecar.
        if not confirm:
            return "held"
        release_schema_lock(store.tables, store.manifests)
        return "released"


def _look(store: GraphStore, entry: TableEntry, confirm: bool, force: bool) -> TableRepair:
    head = int(store.tables.open_latest(entry.path, entry.branch).version)
    classification = _classify(store, entry, head)
    action: Action = "preview"
    if classification == "no_drift":
        action = "no_op"
    elif confirm and classification == "verified_maintenance":
        action = "healed"
    elif confirm:
        action = "forced" if force and head > entry.version else "refused"
    return TableRepair(entry.table_key, entry.version, head, classification, action)


def _classify(store: GraphStore, entry: TableEntry, head: int) -> Classification:
    if head == entry.version:
        return "no_drift"
    if head < entry.version:
        return "unverifiable"
    try:
        steps = [_is_maintenance(store, entry, version) for version in range(entry.version + 1, head + 1)]
    except OmniError:
        return "unverifiable"
    return "verified_maintenance" if all(steps) else "suspicious"


def _is_maintenance(store: GraphStore, entry: TableEntry, version: int) -> bool:
    """Whether a version only rewrote files, or only reserved the ids of fragments for that."""
    after = store.tables.open(entry.path, entry.branch, version)
    try:
        transaction = store.tables.run(entry.table_key, lambda: after.read_transaction(version))
    except TypeError as error:
        # pylance cannot build the description of an index that a rewrite has moved; nothing else has one.
        return "RewrittenIndex" in str(error)
    if transaction is None:
        raise OmniError(f"version {version} of '{entry.table_key}' has no transaction")
    operation = transaction.operation
    if type(operation) is LanceOperation.BaseOperation:  # What pylance has no class for.
        return _reserves_only(store.tables.open(entry.path, entry.branch, version - 1), after)
    return isinstance(operation, LanceOperation.Rewrite)


def _reserves_only(before: LanceDataset, after: LanceDataset) -> bool:
    return all(
        look(before) == look(after)
        for look in (
            lambda handle: [fragment.metadata.to_json() for fragment in handle.get_fragments()],
            lambda handle: (handle.schema, handle.schema.metadata, handle.config()),
            lambda handle: [index.segments[0].uuid for index in handle.describe_indices()],
        )
    )


def _head_entry(store: GraphStore, entry: TableEntry, head: int) -> TableEntry:
    handle = store.tables.open(entry.path, entry.branch, head)
    return replace(entry, version=head, row_count=store.tables.run(entry.table_key, handle.count_rows))
