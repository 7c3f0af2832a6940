"""The last step of a load: what was written becomes one graph commit, or nothing of it does.

All tables are staged, armed, committed and published as any other writer does it. Two things are special. Tasks have
written the files long before, so whoever cleans up may take them for orphans: the load looks for its note before
and after its tables are committed (`orphans`). And a branch may have been made anew since, with other files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reference.errors import CommitConflict, Conflict, ExpectedVersionMismatch, NotFound, OmniError, StorageError
from reference.format.manifest import GraphCommit, TableEntry
from reference.format.names import branch_location
from reference.operations.changeset import ChangeSet, TableChange
from reference.operations.load import LoadMode
from reference.pipeline.staging import data_files, refuse_if_forgotten, stage
from reference.protocol.commit import Intent, TableWork, commit_graph, committing
from reference.protocol.manifests import Snapshot
from reference.schema.types import Catalog

if TYPE_CHECKING:
    from reference.protocol.store import GraphStore


@dataclass(frozen=True)
class LoadCommit:
    """How the fragments of a load are committed. `note_path` is the table beside which the load has its note."""

    store: GraphStore
    catalog: Catalog
    branch: str | None
    mode: LoadMode
    actor: str | None
    job: str
    note_path: str

    def once(
        self, snapshot: Snapshot, by_table: Mapping[str, Sequence[str]], replaced: Mapping[str, pa.Array]
    ) -> GraphCommit:
        """Commit the fragments of each table, on top of a snapshot that must still be what it was."""
        if self.store.schema.current().catalog is not self.catalog:
            raise Conflict("another schema was accepted while records were read", code="schema_changed", hint="retry")
        try:
            works = tuple(
                self._work(snapshot.entry(key), fragments, replaced.get(key))
                for key, fragments in sorted(by_table.items())
            )
        except (NotFound, StorageError) as error:
            raise self.explained(snapshot, error) from None
        empty = {work.table_key: TableChange(work.table_key, pa.table({}), how=self.mode) for work in works}
        reads = ChangeSet(snapshot, empty).reads(self.catalog)
        look = partial(refuse_if_forgotten, self.store.objects, [self.note_path], self.job)
        intent = Intent(
            kind="Load",
            branch=self.branch,
            incarnation=snapshot.incarnation,
            actor=self.actor,
            works=works,
            reads=reads,
            recheck=lambda later: _refuse_moved_reads(later, reads),
            watch=frozenset(reads),
            armed=look,
            committed=look,
        )
        return commit_graph(self.store, intent)

    def explained(self, snapshot: Snapshot, error: OmniError) -> OmniError:
        """A version that cannot be read may have been removed by others, who moved on: then it is they who won."""
        now = self.store.manifests.fresh(self.branch).snapshot()
        if now.entries != snapshot.entries or now.incarnation != snapshot.incarnation:
            return CommitConflict("a table of this load", error.message, retryable=True)
        return error

    def _work(self, entry: TableEntry, fragments: Sequence[str], replaced: pa.Array | None) -> TableWork:
        self._refuse_lost_files(entry, fragments)
        schema = self.catalog.arrow_schema(entry.table_key)
        staged = stage(self.store, entry, self.branch, self.mode, schema, fragments, replaced)
        return TableWork(entry, self.branch, (committing(self.store, staged, entry.path, self.branch),))

    def _refuse_lost_files(self, entry: TableEntry, fragments: Sequence[str]) -> None:
        """A fork that is not placed yet may be removed by whoever finds it: Lance would commit what is gone."""
        if self.branch is None:
            return
        there = set(self.store.objects.list_dir(f"{branch_location(entry.path, self.branch)}/data"))
        if not there.issuperset(data_files(fragments)):
            raise CommitConflict(f"the fork of '{entry.table_key}'", "it was made anew", retryable=True)


def only_tables(snapshot: Snapshot, keys: Any) -> Snapshot:
    """The snapshot with only some of its tables: the others are not even opened."""
    return replace(snapshot, entries={key: snapshot.entries[key] for key in keys if key in snapshot.entries})


def _refuse_moved_reads(later: Snapshot, reads: Mapping[str, int]) -> None:
    """Tables that were only looked at must be what they were: whoever moved them may have removed an endpoint."""
    for key, version in reads.items():
        entry = later.entries.get(key)
        if entry is None or entry.version != version:
            raise ExpectedVersionMismatch(key, version, 0 if entry is None else entry.version)
