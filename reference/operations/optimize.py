"""Optimize: fewer fragments, complete indexes, the same content [OPT].

One table of main at a time, each with its own commit: strip what would make Lance delete versions by itself, complete
the indexes, then compact. Indexes come first because Lance only joins fragments that the same indexes cover. Whether
there is work is decided before anything moves, so a second run commits nothing. `__manifest` is compacted last; that
is no commit of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lance import LanceDataset
from lance.optimize import Compaction, CompactionOptions

from reference.errors import CommitConflict, Conflict, ExpectedVersionMismatch, InjectedFailure, Internal
from reference.failpoint import fire
from reference.format.manifest import TableEntry
from reference.format.names import MANIFEST_DIR
from reference.operations.indexes import PendingIndex, covered_columns, open_own, stage_indexes, wanted_indexes
from reference.operations.reading import is_blob
from reference.protocol.commit import Intent, Move, TableWork, commit_graph
from reference.protocol.recovery import pause
from reference.protocol.schema_lock import refuse_during_schema_apply
from reference.protocol.sidecars import busy
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog

RETRY_BUDGET = 5
COMPACTION: CompactionOptions = {"materialize_deletions_threshold": 0.0}
BLOBS = "blob_columns_unsupported_by_lance"
DRIFT = "drift_needs_repair"


@dataclass
class OptimizeStats:
    """What was done to one table; for a table that was skipped, why, and its pinned and physical versions."""

    table_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: str | None = None
    manifest_version: int | None = None
    lance_head_version: int | None = None
    pending_indexes: list[PendingIndex] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "pending_indexes": [index.to_json() for index in self.pending_indexes]}


def optimize(store: GraphStore, catalog: Catalog) -> list[OptimizeStats]:
    """Optimize every table of main, then `__manifest`."""
    refuse_during_schema_apply(store.manifests, "optimize")
    refuse_pending(store, "optimize", but_live=True)
    store.tables.stop_cleaning(store.tables.open_latest(MANIFEST_DIR, None))
    keys = [key for key in store.manifests.fresh(None).state.entries() if key in catalog.table_keys()]
    tables = [_retried(partial(_optimize_table, store, catalog, key)) for key in keys]
    return [*tables, _retried(partial(_optimize_manifest, store))]


def refuse_pending(store: GraphStore, operation: str, *, but_live: bool = False) -> None:
    """Maintenance does not touch a graph that recovery still has to deal with [REC-26]. Writers of this process that
    are under way need none, and whoever arms for each table waits for them there."""
    found = store.sidecars.pending()
    pending = [sidecar for sidecar in found if not (but_live and store.queues.is_alive(sidecar.operation_id))]
    if pending:
        raise Conflict(
            f"{operation} must wait: {len(pending)} write(s) of unknown outcome are pending",
            code="recovery_pending",
            details={"operation_ids": [sidecar.operation_id for sidecar in pending]},
            hint="open the graph read-write, so that recovery deals with them, and try again",
        )


def _retried(attempt: Callable[[], OptimizeStats]) -> OptimizeStats:
    """Others write meanwhile: whoever loses to them starts again from what they left [OPT-06]."""
    for _ in range(RETRY_BUDGET):
        try:
            return attempt()
        except Conflict:
            pause(0.02)
    return attempt()


def _optimize_table(store: GraphStore, catalog: Catalog, table_key: str) -> OptimizeStats:
    with store.queues.hold([(table_key, None)]):
        entry = store.manifests.fresh(None).snapshot().entry(table_key)
        head = store.tables.head_version(entry.path, None, near=entry.version)
        stats = OptimizeStats(table_key, manifest_version=entry.version, lance_head_version=head)
        if any(is_blob(column) for column in catalog.arrow_schema(table_key)):
            stats.skipped = BLOBS
        elif head != entry.version:
            _refuse_if_covered(store, table_key)
            stats.skipped = DRIFT
        else:
            moves = _moves(store, catalog, entry, stats)
            if moves:
                work = TableWork(entry, None, tuple(moves), one_version_each=False)
                committed = partial(fire, "optimize.post_phase_b_pre_manifest_commit")
                commit_graph(store, Intent("Optimize", None, works=(work,), committed=committed))
                version = store.manifests.fresh(None).state.visible_version(table_key)
                stats.committed, stats.manifest_version, stats.lance_head_version = True, version, version
        return stats


def _refuse_if_covered(store: GraphStore, table_key: str) -> None:
    """A HEAD that is ahead because another process is writing is no drift: wait for it."""
    for sidecar in store.sidecars.pending():
        if any(pin.table_key == table_key and pin.table_branch is None for pin in sidecar.tables):
            raise busy(sidecar, alive=store.sidecars.presumed_alive(sidecar))


def _moves(store: GraphStore, catalog: Catalog, entry: TableEntry, stats: OptimizeStats) -> list[Move]:
    handle = store.tables.open(entry.path, None, entry.version)
    indexes, stats.pending_indexes = stage_indexes(store, catalog, entry)
    fragmented = store.tables.run(entry.table_key, partial(Compaction.plan, handle, COMPACTION)).num_tasks() > 0
    moves: list[Move] = [*([partial(_strip, store, entry)] if store.tables.self_cleaning(handle) else []), *indexes]
    if fragmented or len(handle.get_fragments()) > 1 and indexes:
        moves += [partial(_compact, store, entry, stats), partial(_reindex, store, catalog, entry)]
    return moves


def _strip(store: GraphStore, entry: TableEntry, handle: LanceDataset, _: str) -> LanceDataset:
    own = open_own(store, entry, int(handle.version))
    store.tables.stop_cleaning(own)
    return own


def _compact(store: GraphStore, entry: TableEntry, stats: OptimizeStats, handle: LanceDataset, _: str) -> LanceDataset:
    fire("optimize.before_compact")
    own = open_own(store, entry, int(handle.version))
    try:
        metrics = store.tables.run(entry.table_key, partial(Compaction.execute, own, COMPACTION))
    except CommitConflict as error:
        # Its first commit may have landed before the second was refused: this is to be undone, not forgotten.
        raise ExpectedVersionMismatch(entry.table_key, int(handle.version), int(handle.version) + 1) from error
    if own.version not in (handle.version, handle.version + 2):  # Reserved fragment ids, then the rewrite.
        raise ExpectedVersionMismatch(entry.table_key, int(handle.version), int(own.version) - 2)
    stats.fragments_removed, stats.fragments_added = metrics.fragments_removed, metrics.fragments_added
    return own


def _reindex(store: GraphStore, catalog: Catalog, entry: TableEntry, handle: LanceDataset, _: str) -> LanceDataset:
    """Compaction keeps indexes complete; where it did not, fold in what they miss. Our own HEAD is no drift [B31]."""
    for left in reversed(range(RETRY_BUDGET + 1)):
        try:
            try:
                fire("optimize.inject_reindex_conflict")
            except InjectedFailure as failure:
                raise CommitConflict(entry.table_key, failure.message, retryable=True) from None
            own = open_own(store, entry, int(handle.version))
            covered = covered_columns(store, entry.table_key, own)
            wanted = wanted_indexes(catalog.type_of(entry.table_key))
            if any(not complete for column, (_, complete) in covered.items() if column in wanted):
                fold = partial(own.optimize.optimize_indices, num_indices_to_merge=len(covered) + 1)
                store.tables.run(entry.table_key, fold)
            return own
        except CommitConflict as error:
            if not (left and error.retryable):
                raise
    raise Internal("optimize left its loop without an answer")


def _optimize_manifest(store: GraphStore) -> OptimizeStats:
    """No sidecar, no lineage: the rows of `__manifest` stay what they are [OPT-07]."""
    handle = store.tables.open_latest(MANIFEST_DIR, None)
    stats = OptimizeStats(MANIFEST_DIR)
    if store.tables.run(MANIFEST_DIR, partial(Compaction.plan, handle, COMPACTION)).num_tasks():
        done = store.tables.run(MANIFEST_DIR, partial(Compaction.execute, handle, COMPACTION))
        stats.committed, stats.fragments_removed, stats.fragments_added = (
            True,
            done.fragments_removed,
            done.fragments_added,
        )
        store.manifests.fresh(None)  # The next write through this handle finds it as it is now.
    stats.manifest_version = stats.lance_head_version = int(handle.version)
    return stats
