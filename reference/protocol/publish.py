"""Publish: the one write that makes a graph commit visible.

    load the branch's state, fresh         every attempt sees what others have published
    check the stamp                        never write into another generation of the format
    check expected versions                also of tables that are not written
    build the rows                         registrations, versions, tombstones, one commit, one head
    merge them into `__manifest`           one Lance commit; the head row is what publishes of a branch contend on
    verify where it landed                 the commit row says which version it is, so it must be that version

Contention is retried here, at most six attempts in all; a stale expectation is not retried at all [PUB].
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ulid import ULID

from reference.errors import (
    BadRequest,
    ExpectedVersionMismatch,
    InjectedFailure,
    Internal,
    OmniError,
    OutcomePending,
    RowLevelCasContention,
    StorageError,
)
from reference.failpoint import fire
from reference.format.manifest import (
    GraphCommit,
    ManifestState,
    Row,
    TableEntry,
    commit_row,
    head_object_id,
    head_row,
    table_row,
    table_version_row,
    tombstone_object_id,
    tombstone_row,
)
from reference.format.stamp import refuse_other_generations
from reference.protocol.manifests import Held, Manifests, Snapshot
from reference.storage.tables import manifest_file
from reference.storage.uris import GraphRoot

PUBLISH_RETRY_BUDGET = 5


@dataclass(frozen=True)
class Changes:
    """What a graph commit does to the catalog."""

    registrations: Mapping[str, str] = field(default_factory=dict)
    updates: tuple[TableEntry, ...] = ()
    tombstones: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.registrations or self.updates or self.tombstones)


@dataclass(frozen=True)
class Lineage:
    """Who commits, and what is merged. The commit's id is minted once and survives every retry [PUB-09]."""

    actor_id: str | None = None
    merged_parent_commit_id: str | None = None
    commit_id: str = field(default_factory=lambda: str(ULID()))
    created_at: int = field(default_factory=lambda: now_micros())


@dataclass(frozen=True)
class Checked:
    """A state that was loaded and looked at, and the version that it had then."""

    held: Held
    version: int


def now_micros() -> int:
    """Microseconds since the epoch, for lineage and sidecars [LIN-15]."""
    now = time.time_ns() // 1000
    if now < 0:
        raise BadRequest("the system clock is set before 1970", code="system_clock")
    return now


class Publisher:
    """Publishes to the manifests of one graph."""

    def __init__(self, root: GraphRoot, manifests: Manifests) -> None:
        self._root = root
        self._manifests = manifests

    def publish(
        self,
        branch: str | None,
        changes: Changes,
        expected: Mapping[str, int],
        lineage: Lineage | None,
        *,
        checked: Checked | None = None,
        recheck: Callable[[Snapshot], None] | None = None,
    ) -> GraphCommit | None:
        """Publish, and return the commit that was recorded; None if there was nothing to record [PUB-13].

        `checked` is a state that the caller loaded a moment ago: the first attempt builds on it instead of probing
        again. That is safe because the merge itself fails when the branch has moved since. `recheck` is asked about
        every later state: whether what was validated against an older one still holds.
        """
        for attempt in range(PUBLISH_RETRY_BUDGET + 1):
            started = time.monotonic()
            try:
                held = checked.held if checked is not None and attempt == 0 else self._load(branch)
                refuse_other_generations(held.stamp)
                base = held.version
                self._check_expected(held.state, expected)
                if recheck is not None and (checked is None or base != checked.version):
                    recheck(held.snapshot())
                if not changes and lineage is None:
                    return None
                return self._attempt(held, base, changes, lineage)
            except RowLevelCasContention:
                if attempt == PUBLISH_RETRY_BUDGET:
                    raise
            # Writers that lost together must not come back together; how long to spread depends on the store.
            threading.Event().wait(random.uniform(0, min(1.0, (time.monotonic() - started) * 2**attempt)))
        raise Internal("publish left its loop without an answer")

    def _load(self, branch: str | None) -> Held:
        try:
            fire("publish.load_state_retryable_contention")
        except InjectedFailure as failure:
            raise RowLevelCasContention(failure.message) from None
        return self._manifests.fresh(branch)

    @staticmethod
    def _check_expected(state: ManifestState, expected: Mapping[str, int]) -> None:
        for table_key, version in expected.items():
            actual = state.visible_version(table_key)
            if actual != version:
                raise ExpectedVersionMismatch(table_key, version, actual)

    def _attempt(self, held: Held, base: int, changes: Changes, lineage: Lineage | None) -> GraphCommit | None:
        with held.lock:
            rows = self._table_rows(held.state, changes)
            commit = self._next_commit(held, base, lineage) if lineage is not None else None
            if commit is not None:
                rows += [commit_row(commit), head_row(commit), *self._contended_rows(held)]
        fire("graph_publish.before_commit_append")
        landed = self._land(held, rows, base, commit)
        fire("graph_publish.after_manifest_commit")
        if commit is not None and landed != base + 1:
            commit = self._correct(held, commit, landed)
        self._manifests.shorten(held)
        return commit

    def _next_commit(self, held: Held, base: int, lineage: Lineage) -> GraphCommit:
        parent = held.state.head()
        return GraphCommit(
            graph_commit_id=lineage.commit_id,
            manifest_branch=held.branch,
            manifest_version=base + 1,
            parent_commit_id=parent.graph_commit_id if parent is not None else None,
            merged_parent_commit_id=lineage.merged_parent_commit_id,
            actor_id=lineage.actor_id,
            created_at=lineage.created_at,
        )

    @staticmethod
    def _contended_rows(held: Held) -> list[Row]:
        """On the first commit of a branch its head row is new, so the publish would only insert, and Lance would rebase
        it over a compaction of `__manifest` to another version than its commit row says. Rewriting one inherited
        head row, as it is, makes the two conflict instead [PUB-17]."""
        if head_object_id(held.branch) in held.state.heads or not held.state.heads:
            return []
        return [held.state.heads[min(held.state.heads)]]

    def _land(self, held: Held, rows: list[Row], base: int, commit: GraphCommit | None) -> int:
        try:
            return self._manifests.write(held, rows, base)
        except StorageError as error:
            # The store failed, and the rows may have landed all the same: only the manifest can say.
            self._manifests.forget(held.branch)
            try:
                found = self._manifests.fresh(held.branch)
            except OmniError:
                raise OutcomePending(f"the publish may or may not have landed: {error.message}") from error
            if commit is not None and commit.graph_commit_id in found.state.lineage:
                return commit.manifest_version
            raise

    def _correct(self, held: Held, commit: GraphCommit, landed: int) -> GraphCommit:
        """The commit landed on a later version than its row says: say the truth [PUB-17]."""
        corrected = replace(commit, manifest_version=landed)
        self._manifests.write(held, [commit_row(corrected)], landed)
        return corrected

    def _table_rows(self, state: ManifestState, changes: Changes) -> list[Row]:
        rows: list[Row] = []
        for table_key, path in changes.registrations.items():
            known = state.tables.get(table_key)
            if known is None:
                rows.append(table_row(table_key, path))
            elif known != path:
                raise _refused(f"table '{table_key}' is registered at another path, {known}", table_key)
        seen: set[str] = set()
        for entry in changes.updates:
            known = changes.registrations.get(entry.table_key) or state.tables.get(entry.table_key)
            if known is None:
                raise _refused(f"table '{entry.table_key}' is not registered", entry.table_key)
            published = state.versions.get(entry.table_key, {}).get(entry.version)
            handed_over = (
                published is not None and published.row_count == entry.row_count and published.branch != entry.branch
            )
            if entry.table_key in seen or (published is not None and not handed_over):
                raise _refused(f"version {entry.version} of '{entry.table_key}' is published already", entry.table_key)
            seen.add(entry.table_key)
            manifest_path = f"{self._root.prefix}/{manifest_file(known, entry.branch, entry.version)}".lstrip("/")
            rows.append(table_version_row(entry, manifest_path))
        for table_key, version in changes.tombstones.items():
            if table_key not in state.tables:
                raise _refused(f"table '{table_key}' is not registered", table_key)
            if tombstone_object_id(table_key, version) in state.tombstone_ids:
                raise _refused(f"'{table_key}' has a tombstone at version {version} already", table_key)
            rows.append(tombstone_row(table_key, version))
        return rows


def _refused(message: str, table_key: str) -> StorageError:
    return StorageError(message, code="publish_refused", details={"table_key": table_key})
