"""Cleanup: remove what nobody can read any more, and nothing else [CLN, BRA-15].

Two things are removed: forks of tables that no branch's manifest places, and old versions of main's tables within the
policy that the caller names. What any branch's snapshot reads, what a fork starts from, and what a pending sidecar may
still need are kept, whatever the policy says. One table's failure does not stop the others, and is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from lance import LanceDataset

from reference.errors import BadRequest, Conflict, OmniError
from reference.failpoint import fire
from reference.format.manifest import TableEntry
from reference.operations.branches import claimed_fork, drop_fork
from reference.operations.merge import merge_bases
from reference.operations.reading import is_blob
from reference.protocol.manifests import Snapshot
from reference.protocol.schema_lock import refuse_during_schema_apply
from reference.protocol.store import GraphStore


@dataclass(frozen=True)
class CleanupStats:
    """What was removed, or in a preview would be removed, of one table."""

    table_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Policy:
    """Which versions are old. With both limits a version goes only if it is beyond both [CLN-02]."""

    keep_versions: int | None = None
    older_than: timedelta | None = None

    def check(self) -> None:
        if self.keep_versions is None and self.older_than is None:
            raise BadRequest(
                "cleanup needs to know what is old",
                code="cleanup_policy_missing",
                hint="give a number of versions to keep, or an age, or both",
            )
        if (self.keep_versions is not None and self.keep_versions < 1) or (
            self.older_than is not None and self.older_than < timedelta(0)
        ):
            raise BadRequest("cleanup keeps at least one version, and an age is not negative", code="cleanup_policy")

    def old(self, versions: Iterable[dict[str, Any]]) -> set[int]:
        times = {int(each["version"]): each["timestamp"].astimezone(UTC) for each in versions}
        old = set(times)
        if self.keep_versions is not None:
            old -= set(sorted(times)[-self.keep_versions :])
        if self.older_than is not None:
            limit = datetime.now(UTC) - self.older_than
            old = {version for version in old if times[version] < limit}
        return old


def cleanup(
    store: GraphStore, *, keep_versions: int | None = None, older_than: timedelta | None = None, confirm: bool = False
) -> list[CleanupStats]:
    """Remove orphaned forks and old versions; without `confirm`, only say what would go."""
    policy = Policy(keep_versions, older_than)
    policy.check()
    refuse_during_schema_apply(store.manifests, "cleanup")
    tables = store.manifests.fresh(None).state.entries()
    try:
        in_use = _in_use(store)
    except OmniError as error:
        return [CleanupStats(key, error=error.message) for key in tables]
    failed = {key: _reconcile(store, entry, in_use) for key, entry in tables.items()} if confirm else {}
    return [_collect(store, entry, policy, confirm, failed.get(key), in_use) for key, entry in tables.items()]


def _in_use(store: GraphStore) -> list[Snapshot]:
    """Every branch as it is now, and what their next merges start from: each is read once for all tables.

    Without one of them nobody can say what is in use, so its failure is ours. It stays true for what is older than main
    was before: whoever starts to read a table after this moment reads what main, or a branch, has read since.
    """
    every = []
    for branch in store.manifests.all_branches():
        fire("cleanup.resolve_branch_snapshot")
        every.append(store.manifests.fresh(branch))
    return [*(held.snapshot() for held in every), *merge_bases(store, every)]


def _readers(in_use: list[Snapshot], path: str) -> list[TableEntry]:
    return [entry for each in in_use for entry in each.entries.values() if entry.path == path]


# -- forks -----------------------------------------------------------------------------------------------------------


def _reconcile(store: GraphStore, entry: TableEntry, in_use: list[Snapshot]) -> str | None:
    """Drop the forks of a table that no manifest places, the longest names first; returns what went wrong.

    One that was placed when cleanup began stays. Of any other the live manifests are asked.
    """
    failed, placed = None, {reader.branch for reader in _readers(in_use, entry.path)}
    try:
        for fork in sorted(set(store.tables.branches(entry.path)) - placed, key=len, reverse=True):
            try:
                with store.queues.hold([(entry.table_key, fork)]):
                    if _is_needed(store, entry, fork):
                        continue
                    with claimed_fork(store, entry, fork) as still_claimed:
                        fire("cleanup.reconcile_fork")
                        if not _is_needed(store, entry, fork):
                            still_claimed()
                            drop_fork(store, entry.path, fork)
            except OmniError as error:
                # A fork that another one starts from waits until that one is gone.
                failed = failed if isinstance(error, Conflict) and error.code == "branch_in_use" else error.message
    except OmniError as error:
        failed = error.message
    return failed


def _is_needed(store: GraphStore, entry: TableEntry, fork: str) -> bool:
    """Ask the live manifests and the sidecars, never the fork itself [BRA-09]."""
    fire("classify.fresh_read")
    return any(reader.branch == fork for reader in _readers(_in_use(store), entry.path)) or any(
        (pin.table_key, pin.table_branch) == (entry.table_key, fork)
        for sidecar in store.sidecars.pending()
        if not store.queues.is_alive(sidecar.operation_id)
        for pin in sidecar.tables
    )


# -- versions --------------------------------------------------------------------------------------------------------


def _collect(
    store: GraphStore, entry: TableEntry, policy: Policy, confirm: bool, failed: str | None, in_use: list[Snapshot]
) -> CleanupStats:
    """Remove the old versions of one table of main [CLN-02, CLN-07]."""
    try:
        with store.queues.hold([(entry.table_key, None)]):
            fire("cleanup.table_gc")
            handle = store.tables.open_latest(entry.path, None)
            old = policy.old(store.tables.run(entry.table_key, handle.versions)) - {int(handle.version)}
            kept, first_needed = _kept(store, entry, in_use)
            goes = sorted(version for version in old - kept if version < first_needed)
            if any(map(is_blob, handle.schema)) and not _all_ours(store, entry, handle):
                goes = []  # Who wrote a row decides what its empty blob means, and only its version knows.
            if not goes:
                return CleanupStats(entry.table_key, error=failed)
            run = handle.cleanup_old_versions if confirm else handle.explain_cleanup_old_versions
            answer = store.tables.run(entry.table_key, partial(run, versions=goes, error_if_tagged_old_versions=False))
            if confirm:
                store.tables.forget(None, entry.path)
            stats = answer if confirm else answer.stats
            return CleanupStats(entry.table_key, stats.bytes_removed, stats.old_versions, failed)
    except OmniError as error:
        return CleanupStats(entry.table_key, error=failed or error.message)


def _all_ours(store: GraphStore, entry: TableEntry, handle: LanceDataset) -> bool:
    versions = store.tables.run(entry.table_key, handle.versions)
    return all(store.tables.is_ours(entry.path, None, int(version["version"])) for version in versions)


def _kept(store: GraphStore, entry: TableEntry, in_use: list[Snapshot]) -> tuple[set[int], int]:
    """The versions of main's copy that something starts from, and the first of those that may still be needed whole:
    a HEAD ahead of its pin is for recovery or repair to look at, version by version [B35]."""
    forks = store.tables.branches(entry.path).values()
    kept = {int(fork["parent_version"]) for fork in forks if fork["parent_branch"] is None}
    kept |= {reader.version for reader in _readers(in_use, entry.path) if reader.branch is None}
    pins = [
        pin.expected_version
        for sidecar in store.sidecars.pending()
        for pin in sidecar.tables
        if (pin.table_key, pin.table_branch) == (entry.table_key, None)
    ]
    return kept, min([entry.version, *pins])
