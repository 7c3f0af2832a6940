"""Schema apply: one graph commit that changes what the graph is made of [SCH].

    plan       compare the accepted schema with the new one; refuse what cannot be done without guessing
    stage      write the files of every table that is rewritten, renamed or new; no HEAD has moved
    arm        the sidecar goes first: a crash that leaves the lock also leaves what releases it [SCH-17]
    lock       a branch of `__manifest` that every other writer looks for; then look again whether anything changed
    commit     overwrite the rewritten tables, create the new ones, write the staged schema files, the state file last
    publish    registrations, versions and tombstones, in one manifest version
    promote    put the staged schema files in place, unlock, disarm

What is on disk tells every cut apart: without a whole staged schema it is rolled back, with one it is finished
[SCH-12, SCH-18]. Changes of indexes, annotations and interfaces touch no table at all [SCH-09].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from lance import Transaction
from ulid import ULID

from reference.errors import Conflict, ExpectedVersionMismatch, InjectedFailure, NotFound, OmniError, OutcomePending
from reference.failpoint import fire
from reference.format.manifest import GraphCommit, ManifestState, TableEntry
from reference.format.names import table_path
from reference.format.schema_files import schema_file_texts
from reference.format.values import blob_column
from reference.operations.reading import is_blob, read_entry
from reference.protocol.commit import Intent, TableWork, commit_graph, committing, with_retries
from reference.protocol.manifests import Snapshot
from reference.protocol.queues import SCHEMA_APPLY_QUEUE
from reference.protocol.recovery import heal
from reference.protocol.schema_files import Accepted, InPlace
from reference.protocol.schema_lock import refuse_during_schema_apply, release_schema_lock, take_schema_lock
from reference.protocol.store import GraphStore
from reference.schema.compiler import compile_schema
from reference.schema.plan import MigrationPlan, Step, TableChanges, plan_migration, table_changes
from reference.schema.types import Catalog
from reference.storage.tables import Staged


@dataclass(frozen=True)
class ApplyResult:
    """What became of a schema apply. A schema that is the accepted one already is not applied [SCH-04]."""

    applied: bool
    steps: tuple[Step, ...]
    manifest_version: int
    commit: GraphCommit | None = None
    supported: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "supported": self.supported,
            "applied": self.applied,
            "steps": [step.to_json() for step in self.steps],
            "manifest_version": self.manifest_version,
            "commit": self.commit.to_json() if self.commit is not None else None,
        }


def schema_plan(store: GraphStore, source: str, *, allow_data_loss: bool = False) -> MigrationPlan:
    """What an apply of this schema would do. Nothing is written [SCH-03]."""
    return plan_migration(store.schema.current().catalog, compile_schema(source), allow_data_loss=allow_data_loss)


def schema_apply(store: GraphStore, source: str, *, allow_data_loss: bool = False) -> ApplyResult:
    """Make `source` the schema of the graph, and change the tables to fit. It has no actor [LIN-14]."""
    new = compile_schema(source)
    heal(store)
    return with_retries(store, lambda: _apply(store, source, new, allow_data_loss), strict=True)


def _apply(store: GraphStore, source: str, new: Catalog, allow_data_loss: bool) -> ApplyResult:
    refuse_during_schema_apply(store.manifests, "schema apply")
    _refuse_branches(store)
    tables = store.manifests.fresh(None).state.entries()
    with store.queues.hold([SCHEMA_APPLY_QUEUE, *((key, None) for key in tables)]):
        held = store.manifests.fresh(None)
        snapshot, accepted = held.snapshot(), store.schema.reload()
        plan = plan_migration(accepted.catalog, new, allow_data_loss=allow_data_loss)
        changes = table_changes(accepted.catalog, new, plan)
        if not plan.steps:
            return ApplyResult(False, (), snapshot.version)
        operation_id = str(ULID())
        staged = stage_tables(store, held.state, snapshot, new, changes)
        steps = _Steps(store, operation_id, source, new, snapshot, accepted, staged, _emptied(plan, changes))
        commit = commit_graph(store, steps.intent(), operation_id)
        store.schema.reload()
        return ApplyResult(True, plan.steps, commit.manifest_version, commit)


def _refuse_branches(store: GraphStore) -> None:
    branches = store.manifests.public_branches()
    if branches:
        raise Conflict(
            f"a schema apply needs a graph of one branch, and this one has {', '.join(branches)} beside main",
            code="schema_apply_has_branches",
            details={"branches": branches},
            hint="merge or delete the other branches first",
        )


def _emptied(plan: MigrationPlan, changes: TableChanges) -> list[str]:
    """The tables, under their old and new keys, whose old versions a hard drop is to remove [SCH-07]."""
    owners = {f"{step.type_kind}:{step.type_name}" for step in plan.steps if step.mode == "hard"}
    owners |= {old for old, new in changes.renamed.items() if new in owners}
    return sorted(key for key in owners if not key.startswith("interface:"))


# -- staging -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewTable:
    """A table that the apply registers: where it will land, and the version that its dataset has until then.

    The dataset may be there: an attempt that was rolled back left it, or a type of this name was dropped. It is
    overwritten, and lands above the tombstone, so that nothing of what it held is ever seen under the new type [E13].
    """

    entry: TableEntry
    head: int
    tombstone: int
    staged: Staged
    schema: pa.Schema

    def land(self, store: GraphStore, operation_id: str) -> None:
        path, staged = self.entry.path, self.staged
        for version in range(self.head, self.entry.version - 1):
            empty = stage_table(store, path, version, self.schema.empty_table())
            _commit_at(store, path, version, empty, operation_id)
        if self.head < self.entry.version - 1:
            handle = store.tables.open_latest(path, None)
            staged = Staged(handle, Transaction(handle.version, staged.transaction.operation))
        _commit_at(store, path, self.entry.version - 1, staged, operation_id)


@dataclass(frozen=True)
class StagedTables:
    """What an apply does to tables, with all files written and no HEAD moved."""

    works: tuple[TableWork, ...]
    new: tuple[NewTable, ...]
    tombstones: Mapping[str, int]


def stage_tables(
    store: GraphStore, state: ManifestState, snapshot: Snapshot, catalog: Catalog, changes: TableChanges
) -> StagedTables:
    """Write the files of every table that changes. All renames happen at once: each reads the old snapshot [SCH-19]."""
    origins = {new: old for old, new in changes.renamed.items()}
    works: list[TableWork] = []
    new: list[NewTable] = []
    for key in catalog.table_keys():
        origin = origins.get(key, None if key in changes.added else key)
        columns = changes.rewritten.get(key)
        if origin == key and columns is None:
            continue
        schema = catalog.arrow_schema(key)
        rows = schema.empty_table()
        if origin is not None:
            rows = _rebuilt(read_entry(store, snapshot.entry(origin)).writable(), schema, columns or {})
        entry = snapshot.entries.get(key)
        if entry is not None:
            staged = stage_table(store, entry.path, entry.version, rows)
            works.append(TableWork(entry, None, (committing(store, staged, entry.path, None),)))
        else:
            new.append(_stage_new(store, key, rows, state.tombstones.get(key, 0)))
    gone = (set(changes.dropped) | set(changes.renamed)) - set(catalog.table_keys())
    tombstones = {key: snapshot.entry(key).version + 1 for key in sorted(gone)}
    return StagedTables(tuple(works), tuple(new), tombstones)


def _stage_new(store: GraphStore, key: str, rows: pa.Table, tombstone: int) -> NewTable:
    path = table_path(key)
    try:
        head = int(store.tables.open_latest(path, None).version)
    except NotFound:
        head = 0
    entry = TableEntry(key, path, max(head, tombstone) + 1, None, rows.num_rows)
    return NewTable(entry, head, tombstone, stage_table(store, path, head, rows), rows.schema)


def stage_table(store: GraphStore, path: str, version: int, rows: pa.Table) -> Staged:
    """A whole new content, on top of a version; version 0 is a dataset that does not exist."""
    if version == 0:
        return store.tables.stage_new(path, rows.schema, rows)
    return store.tables.stage_overwrite(store.tables.open(path, None, version), rows)


def _commit_at(store: GraphStore, path: str, version: int, staged: Staged, operation_id: str) -> None:
    landed = (
        store.tables.commit_new(path, staged, operation_id)
        if version == 0
        else store.tables.commit(path, None, staged, operation_id)
    )
    if landed.version != version + 1:
        raise ExpectedVersionMismatch(path, version, int(landed.version) - 1)


def _rebuilt(rows: pa.Table, schema: pa.Schema, origins: Mapping[str, str | None]) -> pa.Table:
    """Rows in the columns of another schema: each from its origin, nulls where it has none [SCH-06, SCH-08]."""
    columns = []
    for field in schema:
        origin = origins.get(field.name, field.name)
        if origin is not None:
            column = rows.column(origin)
            columns.append(column if column.type == field.type else column.cast(field.type))
        elif is_blob(field):
            columns.append(blob_column([None] * rows.num_rows))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=schema)


# -- committing --------------------------------------------------------------------------------------------------------


@dataclass
class _Steps:
    """What an apply does in the gaps of the commit protocol."""

    store: GraphStore
    operation_id: str
    source: str
    catalog: Catalog
    planned: Snapshot
    accepted: Accepted
    staged: StagedTables
    emptied: list[str]
    maybe_locked: bool = False
    lock_token: str | None = None
    replaces: InPlace | None = None

    def intent(self) -> Intent:
        entries = self.planned.entries
        expected = {key: entry.version for key, entry in entries.items()}
        expected |= {new.entry.table_key: new.tombstone for new in self.staged.new}
        return Intent(
            kind="SchemaApply",
            branch=None,
            works=self.staged.works,
            registered=tuple(new.entry for new in self.staged.new),
            tombstones=self.staged.tombstones,
            expected=expected,
            recheck=self.keep_lease,
            watch=frozenset(entries),
            armed=self.lock,
            committed=self.create,
            published=self.promote,
            withdrawn=self.unlock,
        )

    def lock(self) -> None:
        """Keep everyone else out, and look whether anyone came in since the plan was made [SCH-02, SCH-10]."""
        self.maybe_locked = True
        try:
            self.lock_token = take_schema_lock(self.store.tables, self.store.manifests)
        except Conflict:
            self.maybe_locked = False  # It is another's.
            raise
        _refuse_branches(self.store)
        self.keep_lease(self.store.manifests.fresh(None).snapshot())
        self.replaces = self.store.schema.in_place()
        if self.store.schema.reload().source != self.accepted.source:
            raise _lost_lease("another schema was accepted")

    def keep_lease(self, now: Snapshot) -> None:
        if now.version != self.planned.version:
            raise _lost_lease(f"main went from version {self.planned.version} to {now.version}")

    def create(self) -> None:
        """The new tables and the staged schema: from here on the apply can be finished by anyone."""
        for new in self.staged.new:
            new.land(self.store, self.operation_id)
        self.keep_lease(self.store.manifests.fresh(None).snapshot())
        fire("schema_apply.before_staging_write")
        self.store.schema.write_staging(self.source, self.catalog)
        fire("schema_apply.after_staging_write")

    def promote(self) -> None:
        """The apply is visible. If finishing it fails, the sidecar stays, and the next open finishes it."""
        try:
            fire("schema_apply.after_manifest_commit")
            self.store.schema.promote_staging(schema_file_texts(self.source, self.catalog), self.replaces)
            self.remove_old_versions()
            self.unlock()
        except OmniError as error:
            raise OutcomePending(
                f"the new schema is published, and putting its files in place was cut: {error.message}",
                code=error.code if isinstance(error, InjectedFailure) else "outcome_pending",
                details={"operation_id": self.operation_id, **error.details},
                hint="the next read-write open finishes it",
            ) from error

    def remove_old_versions(self) -> None:
        for key in self.emptied:
            try:
                handle = self.store.tables.open_latest(table_path(key), None)
                self.store.tables.run(key, partial(handle.cleanup_old_versions, timedelta(0)))
            except OmniError:
                continue  # The drop is done; what is left of old versions is cleanup's to remove.

    def unlock(self) -> None:
        """Release the lock if it is still the one that was taken here: recovery may have been faster. One that was
        taken and never seen is ours as long as our sidecar stands, because that keeps every other apply out."""
        if self.lock_token is not None:
            ours = self.lock_token == self.store.manifests.schema_lock_token()
        else:
            ours = self.maybe_locked and self.store.sidecars.exists(self.operation_id)
        if ours:
            release_schema_lock(self.store.tables, self.store.manifests)


def _lost_lease(why: str) -> Conflict:
    return Conflict(
        f"the schema apply gave up its place, because {why} meanwhile", code="schema_apply_lost_lease", hint="retry"
    )
