"""A change set: everything one write wants to change, before any of it is written.

Load, mutate and merge all end in a change set. It is validated as a whole (`validate`), staged table by table, and
committed by the protocol. Rows in it are complete rows in the column order of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from reference.errors import CommitConflict, Internal, NotFound, OmniError, StorageError
from reference.format.manifest import GraphCommit, TableEntry
from reference.format.sidecar import WriterKind
from reference.operations.branches import ensure_fork
from reference.protocol.commit import Intent, TableWork, commit_graph, committing
from reference.protocol.manifests import Snapshot
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog, EdgeType
from reference.storage.tables import Staged

# append: rows with ids that are new for certain. merge: rows that may replace others. overwrite: the whole content.
HowToStage = Literal["append", "merge", "overwrite"]


@dataclass(frozen=True)
class TableChange:
    """What changes in one table: rows that are there afterwards, and ids that are not."""

    table_key: str
    rows: pa.Table
    deleted: frozenset[str] = frozenset()
    how: HowToStage = "merge"


@dataclass(frozen=True)
class ChangeSet:
    """What changes in the graph, and the snapshot on which that was decided."""

    snapshot: Snapshot
    tables: Mapping[str, TableChange] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.tables)

    def reads(self, catalog: Catalog) -> dict[str, int]:
        """The tables that validation looked at and that are not written: their pins, as they were then."""
        related: set[str] = set()
        for key in self.tables:
            owner = catalog.type_of(key)
            if isinstance(owner, EdgeType):
                related |= {f"node:{owner.from_type}", f"node:{owner.to_type}"}
            elif self._removes_rows(key):
                related |= {
                    edge.table_key for edge in catalog.edges.values() if owner.name in (edge.from_type, edge.to_type)
                }
        unwritten = related & self.snapshot.entries.keys() - self.tables.keys()
        return {key: self.snapshot.entries[key].version for key in sorted(unwritten)}

    def _removes_rows(self, table_key: str) -> bool:
        change = self.tables[table_key]
        return bool(change.deleted) or change.how == "overwrite"


def commit_changes(
    store: GraphStore,
    catalog: Catalog,
    changes: ChangeSet,
    *,
    kind: WriterKind,
    actor: str | None,
    recheck: Callable[[Snapshot], None] | None = None,
    committed: Callable[[], None] | None = None,
) -> GraphCommit:
    """Stage every table of a validated change set and commit them as one graph commit, under the tables' queues."""
    branch = changes.snapshot.branch
    with store.queues.hold([(key, branch) for key in changes.tables]):
        try:
            works = tuple(_work(store, changes, change) for _, change in sorted(changes.tables.items()))
        except (NotFound, StorageError) as error:
            raise explained(store, changes, error) from None
        reads = changes.reads(catalog)
        intent = Intent(
            kind=kind,
            branch=branch,
            incarnation=changes.snapshot.incarnation,
            actor=actor,
            works=works,
            reads=reads,
            recheck=recheck,
            watch=frozenset(reads),
            committed=committed,
        )
        return commit_graph(store, intent)


def explained(store: GraphStore, changes: ChangeSet, error: OmniError) -> OmniError:
    """Why a version cannot be built on: others moved on and cleaned up, the branch was made anew, or it is damaged."""
    now, then = store.manifests.fresh(changes.snapshot.branch).snapshot(), changes.snapshot
    moved = any(now.entries.get(key) != then.entries.get(key) for key in changes.tables)
    if moved or now.incarnation != then.incarnation:
        return CommitConflict("a table of this write", error.message, retryable=True)
    if isinstance(error, StorageError):
        return error
    return Internal(
        f"the manifest pins a version that is not there: {error.message}",
        code="head_behind_manifest",
        details={"tables": sorted(changes.tables)},
        hint="restore the table's files from a copy of the graph",
    )


def _work(store: GraphStore, changes: ChangeSet, change: TableChange) -> TableWork:
    entry = changes.snapshot.entry(change.table_key)
    branch = changes.snapshot.branch
    ensure_fork(store, branch, entry)
    staged = stage_change(store, entry, branch, change)
    return TableWork(entry, branch, (committing(store, staged, entry.path, branch),))


def stage_change(store: GraphStore, entry: TableEntry, branch: str | None, change: TableChange) -> Staged:
    """Write the files of one table's change. HEAD stays where it is."""
    handle = store.tables.open(entry.path, branch, entry.version)
    if change.deleted:
        return store.tables.stage_delete(handle, pa.array(sorted(change.deleted), pa.string()))
    if change.how == "overwrite":
        return store.tables.stage_overwrite(handle, change.rows)
    if change.how == "append":
        return store.tables.stage_append(handle, change.rows)
    return store.tables.stage_merge(handle, change.rows)
