"""The commit protocol of every writer: arm, guard, commit, publish, disarm.

    stage      (before this module) files of every touched table are written; no HEAD has moved
    arm        put the sidecar, then list: withdraw if another writer is on the same tables
    guard      re-read the manifest and the HEADs: both must be what the work was staged on
    commit     move each table's HEAD, and check that it landed where the sidecar says
    confirm    (merges) write the versions that were reached into the sidecar
    publish    one write to `__manifest` makes all of it visible
    disarm     delete the sidecar

A failure before the first HEAD moves leaves nothing. A failure after it is one of three things: the work was
published after all, by a recovery that took this writer for dead; or it is undone here; or nobody knows, and the
sidecar stays for recovery to decide [MUT-02, REC-02, PUB-21…PUB-23].
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from lance import LanceDataset
from ulid import ULID

from reference.errors import (
    CommitConflict,
    Conflict,
    ExpectedVersionMismatch,
    InjectedFailure,
    Internal,
    NotFound,
    OmniError,
    OutcomePending,
    RowLevelCasContention,
)
from reference.format.manifest import GraphCommit, TableEntry
from reference.format.names import MANIFEST_DIR, branch_label
from reference.format.sidecar import RECOVERY_ACTOR, Pin, Registration, Sidecar, Tombstone, WriterKind
from reference.format.stamp import refuse_other_generations
from reference.protocol.audit import read_audit
from reference.protocol.manifests import Held, Snapshot
from reference.protocol.publish import Changes, Checked, Lineage
from reference.protocol.queues import QueueKey
from reference.protocol.recovery import heal, pause, undo
from reference.protocol.schema_lock import refuse_during_schema_apply
from reference.protocol.sidecars import LEASE_SECONDS
from reference.protocol.store import GraphStore
from reference.storage.tables import Staged, manifest_file

RETRY_SECONDS_MAX = 60.0
DRIFT_PATIENCE_SECONDS = 1.0
PUBLISH_ROUNDS_MAX = 5

# One step of a table: from the handle it finds to the handle it leaves, under the name of an operation.
Move = Callable[[LanceDataset, str], LanceDataset]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class TableWork:
    """What a writer does to one table: `moves` in order, starting from the pinned entry `base`."""

    base: TableEntry
    branch: str | None
    moves: tuple[Move, ...]
    one_version_each: bool = True

    @property
    def table_key(self) -> str:
        return self.base.table_key


@dataclass(frozen=True)
class Intent:
    """One graph commit, ready to be made."""

    kind: WriterKind
    branch: str | None
    incarnation: str | None = None
    actor: str | None = None
    works: tuple[TableWork, ...] = ()
    adopted: tuple[TableEntry, ...] = ()
    registered: tuple[TableEntry, ...] = ()
    tombstones: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    reads: Mapping[str, int] = field(default_factory=dict)
    recheck: Callable[[Snapshot], None] | None = None
    watch: frozenset[str] = frozenset()
    merged_parent: str | None = None
    # What else a writer does in the gaps: after it is armed, when its tables are committed, when its publish is
    # visible, or when it withdraws before anything of it has moved.
    armed: Callable[[], None] | None = None
    committed: Callable[[], None] | None = None
    published: Callable[[], None] | None = None
    withdrawn: Callable[[], None] | None = None

    @cached_property
    def lineage(self) -> Lineage:
        """Minted once: a commit has one id, however often its publish is tried [PUB-09]."""
        return Lineage(self.actor, self.merged_parent)

    def queues(self) -> list[QueueKey]:
        return [(work.table_key, work.branch) for work in self.works]


def committing(store: GraphStore, staged: Staged, path: str, branch: str | None) -> Move:
    """A move that was staged before the sidecar was written."""
    return lambda _, operation_id: store.tables.commit(path, branch, staged, operation_id)


def commit_graph(store: GraphStore, intent: Intent, operation_id: str | None = None) -> GraphCommit:
    """Make one graph commit. Returns it, or raises an error that says whether it can still happen."""
    operation_id = operation_id or str(ULID())
    with store.queues.in_flight(operation_id), store.queues.hold(intent.queues()):
        if not intent.works and intent.kind != "SchemaApply":
            return _publish(store, intent, _guard(store, intent), ())  # Nothing moves, so there is nothing to cover.
        return _commit_armed(store, intent, _sidecar(store, intent, operation_id))


def _sidecar(store: GraphStore, intent: Intent, operation_id: str) -> Sidecar:
    return Sidecar(
        operation_id=operation_id,
        started_at=0,
        branch=intent.branch,
        actor_id=intent.actor,
        writer_kind=intent.kind,
        tables=tuple(
            Pin(
                table_key=work.table_key,
                table_path=store.tables.uri(work.base.path),
                expected_version=work.base.version,
                post_commit_pin=work.base.version + 1,
                table_branch=work.branch,
            )
            for work in intent.works
        ),
        merge_source_commit_id=intent.merged_parent,
        additional_registrations=tuple(Registration(entry.table_key, entry.path) for entry in intent.registered),
        tombstones=tuple(Tombstone(key, version) for key, version in intent.tombstones.items()),
    )


def _commit_armed(store: GraphStore, intent: Intent, sidecar: Sidecar) -> GraphCommit:
    armed = store.sidecars.arm(sidecar, intent.watch)
    progress = _Progress()
    try:
        if intent.armed is not None:
            intent.armed()
        guarded = _guard(store, intent)
        for work in intent.works:
            armed = store.sidecars.renew(armed)
            progress.landed.append(_move(store, work, armed.operation_id, progress))
            armed = store.sidecars.renew(armed)  # A writer that was suspended may find its sidecar removed.
        if intent.kind == "BranchMerge":
            armed = store.sidecars.confirm(armed, {entry.table_key: entry.version for entry in progress.landed})
        if intent.committed is not None:
            progress.moved |= intent.kind == "SchemaApply"  # New tables and staged schema files are moves as well.
            intent.committed()
        while True:
            try:
                commit = _publish(store, intent, guarded, tuple(progress.landed))
                break
            except RowLevelCasContention:
                # Only other tables of the branch are being written: to wait costs less than to take it all back.
                progress.publishes += 1
                if progress.publishes == PUBLISH_ROUNDS_MAX:
                    raise
                armed = store.sidecars.renew(armed)
    except OmniError as error:
        return _settle_failure(store, intent, armed, progress, error)
    except BaseException:
        if not progress.moved:
            _withdraw(store, intent, armed)
        raise
    if intent.published is not None:
        intent.published()
    store.sidecars.disarm(armed.operation_id)
    return commit


def _withdraw(store: GraphStore, intent: Intent, armed: Sidecar) -> None:
    """Leave nothing behind: nothing has moved, or another process has published it all."""
    if intent.withdrawn is not None:
        intent.withdrawn()
    store.sidecars.disarm(armed.operation_id)


@dataclass
class _Progress:
    """How far a writer has come: whether a HEAD may have moved, and where each table landed."""

    moved: bool = False
    publishes: int = 0
    landed: list[TableEntry] = field(default_factory=list)


def _guard(store: GraphStore, intent: Intent) -> Checked:
    """The last look before anything moves: nothing may have changed since the work was staged [PUB-18, PUB-19]."""
    if intent.kind != "SchemaApply":
        refuse_during_schema_apply(store.manifests, "write")
    held = store.manifests.fresh(intent.branch)
    checked = Checked(held, held.version)
    refuse_other_generations(held.stamp)
    if held.incarnation != intent.incarnation:
        raise _other_incarnation(intent)
    for work in intent.works:
        actual = held.state.visible_version(work.table_key)
        if actual != work.base.version or held.state.latest(work.table_key) != work.base:
            raise ExpectedVersionMismatch(work.table_key, work.base.version, actual)
        refuse_moved(store, held, work.base, work.branch)
        head = _head_of(store, work)
        if head != work.base.version:
            raise _drifted(store, intent, work, head)
    if intent.recheck is not None and any(
        held.state.visible_version(key) != version for key, version in intent.reads.items()
    ):
        intent.recheck(held.snapshot())
    return checked


def _head_of(store: GraphStore, work: TableWork) -> int:
    path, pinned = work.base.path, work.base.version
    if work.base.branch == work.branch:
        # One look at one object, where a listing would do for all. Whoever committed more than once and removed the
        # next version since is found when Lance's own commit does not land right behind the pinned one (`_move`).
        if work.one_version_each and store.objects.probe(manifest_file(path, work.branch, pinned + 1)) is None:
            return pinned
        return store.tables.head_version(path, work.branch, near=pinned)
    try:
        return int(store.tables.open_latest(path, work.branch).version)
    except NotFound as error:
        # A fork that is not placed yet belongs to nobody; what was staged in it went with it.
        raise CommitConflict(f"the fork of '{work.table_key}'", error.message, retryable=True) from error


def refuse_moved(store: GraphStore, held: Held, entry: TableEntry, branch: str | None) -> None:
    """A branch of a graph that was moved or copied can be read and not written: Lance would go on reading, through
    the addresses in the branch's versions, at the old place."""
    if branch is None:
        return
    elsewhere = store.tables.is_moved(MANIFEST_DIR, held.handle)
    if elsewhere or store.tables.is_moved(entry.path, store.tables.open(entry.path, entry.branch, entry.version)):
        raise Conflict(
            f"branch '{branch}' was made where this graph was before it was moved, and cannot be written here",
            code="graph_moved",
            details={"branch": branch},
            hint="merge it into main where it was made, or export it and load it into a new branch",
        )


def _other_incarnation(intent: Intent) -> Conflict:
    return Conflict(
        f"branch '{branch_label(intent.branch)}' was deleted and made anew meanwhile",
        code="branch_replaced",
        details={"branch": branch_label(intent.branch)},
        hint="refresh and retry",
    )


def _drifted(store: GraphStore, intent: Intent, work: TableWork, head: int) -> OmniError:
    pinned = work.base.version
    what = f"table '{work.table_key}' is at version {head}"
    details: dict[str, Any] = {"table_key": work.table_key, "head": head, "pinned": pinned}
    actual = store.manifests.fresh(intent.branch).state.visible_version(work.table_key)
    if actual != pinned:
        return ExpectedVersionMismatch(work.table_key, pinned, actual)  # Another writer published between two looks.
    if head < pinned:
        return Internal(
            f"{what}, behind version {pinned} of the manifest", code="head_behind_manifest", details=details
        )
    try:
        covered = any(
            (pin.table_key, pin.table_branch) == (work.table_key, work.branch)
            for sidecar in store.sidecars.pending()
            if not store.queues.is_alive(sidecar.operation_id)
            for pin in sidecar.tables
        )
        hint = (
            "a pending sidecar covers it: open the graph read-write, or run 'recover'"
            if covered
            else "no sidecar explains it: look at it with 'repair' before writing"
        )
    except OmniError as error:
        hint = f"whether a sidecar covers it could not be found out ({error.message}); try again"
    message = f"{what}, ahead of version {pinned} of the manifest"
    return Conflict(message, code="head_ahead_of_manifest", details=details, hint=hint)


def _move(store: GraphStore, work: TableWork, operation_id: str, progress: _Progress) -> TableEntry:
    """Move one table's HEAD, step by step, and return what is to be published of it."""
    handle = store.tables.open(work.base.path, work.branch, work.base.version)
    for move in work.moves:
        before = int(handle.version)
        moved_already, progress.moved = progress.moved, True
        try:
            handle = move(handle, operation_id)
        except CommitConflict:
            progress.moved = moved_already  # Lance refused the commit, so this step moved nothing.
            raise
        if work.one_version_each and handle.version != before + 1:
            # Lance rebased the step over the commit of a writer that does not take part in this protocol.
            raise ExpectedVersionMismatch(work.table_key, before, int(handle.version) - 1)
    rows = store.tables.run(work.table_key, handle.count_rows)
    return TableEntry(work.table_key, work.base.path, int(handle.version), work.branch, rows)


def _publish(store: GraphStore, intent: Intent, guarded: Checked, landed: tuple[TableEntry, ...]) -> GraphCommit:
    expected = {work.table_key: work.base.version for work in intent.works}
    expected |= {entry.table_key: 0 for entry in intent.registered} | dict(intent.expected)
    changes = Changes(
        registrations={entry.table_key: entry.path for entry in intent.registered},
        updates=(*landed, *intent.adopted, *intent.registered),
        tombstones=intent.tombstones,
    )
    commit = store.publisher.publish(
        intent.branch, changes, expected, intent.lineage, checked=guarded, recheck=intent.recheck
    )
    if commit is None:
        raise Internal("a publish with lineage recorded no commit")
    return commit


def _settle_failure(
    store: GraphStore, intent: Intent, sidecar: Sidecar, progress: _Progress, error: OmniError
) -> GraphCommit:
    """Find out what a failed write has become, and leave nothing uncovered."""
    if not progress.moved:
        _withdraw(store, intent, sidecar)
        raise error
    pending = OutcomePending(
        f"the write was cut after it had moved a table: {error.message}",
        code=error.code if isinstance(error, InjectedFailure) else "outcome_pending",
        details={"operation_id": sidecar.operation_id, **error.details},
        hint="the next read-write open decides whether it happened",
    )
    try:
        # Whoever took this writer for dead may have removed the sidecar: what has moved stays covered.
        store.sidecars.put_back(sidecar)
        lost = isinstance(error, Conflict | NotFound)
        commit = _published_by_recovery(store, intent, sidecar, progress.landed) if lost else None
        if lost and commit is None:
            undo(store, sidecar)
            # A recovery may have rolled it forward before the sidecar said that nobody should.
            commit = _published_by_recovery(store, intent, sidecar, progress.landed)
        if commit is not None:
            # It has also done what comes after the publish, but for a lock: not every engine's recovery releases one.
            _withdraw(store, intent, sidecar)
    except OmniError as failure:
        raise pending from failure
    if not lost:
        raise pending from error
    if commit is None:
        raise error
    return commit


def _published_by_recovery(
    store: GraphStore, intent: Intent, sidecar: Sidecar, landed: list[TableEntry]
) -> GraphCommit | None:
    """The commit under which another process has published exactly what this writer committed [PUB-22]."""
    if not store.manifests.has_branch(intent.branch):
        return None
    state = store.manifests.fresh(intent.branch).state
    if len(landed) < len(intent.works):
        return None
    if any(state.versions.get(entry.table_key, {}).get(entry.version) != entry for entry in landed):
        return None
    if any(state.latest(entry.table_key) != entry for entry in intent.registered):
        return None
    if any(state.latest(key) is not None for key in intent.tombstones):
        return None
    rows = read_audit(store.tables, sidecar.operation_id)
    if any(row.recovery_kind != "RolledForward" for row in rows):
        return None
    if not rows and not (landed or intent.registered or intent.tombstones):
        return None  # Nothing that could be compared, and nobody who says that it was finished.
    audited = {row.graph_commit_id for row in rows}
    candidates = [
        commit
        for commit in state.commits()
        if commit.graph_commit_id in audited
        or (commit.actor_id == RECOVERY_ACTOR and commit.created_at >= sidecar.started_at)
    ]
    # Recoveries of others publish too, and an audit row may name a later commit than the one that has the rows.
    expected = [*landed, *intent.registered]
    for commit in candidates if expected else ():
        entries = store.manifests.at_version(intent.branch, commit.manifest_version).entries
        if all(entries.get(entry.table_key) == entry for entry in expected):
            return commit
    candidates.sort(key=lambda commit: commit.graph_commit_id not in audited)
    return candidates[0] if candidates else None


# -- trying again ----------------------------------------------------------------------------------------------

CONTENTION = ("expected_version_mismatch", "table_commit_conflict", "row_level_cas_contention", "branch_replaced")


def with_retries(store: GraphStore, attempt: Callable[[], Answer], *, strict: bool) -> Answer:
    """Run a whole write again when another writer was faster and nothing of this one is left behind.

    A strict write (update, delete, overwrite) was decided on the rows of one snapshot: it waits for a rival to get out
    of the way, but is not run again on rows that it has not seen [PUB-18].
    """
    started = time.monotonic()
    retryable = ("sidecar_busy",) if strict else ("sidecar_busy", *CONTENTION)
    while True:
        try:
            return attempt()
        except Conflict as error:
            if error.code == "recovery_pending" and _dealt_with(store, error.details["operation_id"]):
                continue
            waited = time.monotonic() - started
            passing = error.code == "head_ahead_of_manifest" and waited < DRIFT_PATIENCE_SECONDS
            if waited > RETRY_SECONDS_MAX or not (error.code in retryable or passing):
                raise
            _let_pass(store, error.details.get("operation_id"))
        heal(store)


def _dealt_with(store: GraphStore, rival: str) -> bool:
    """Whether a rival that has turned out to be dead could be rolled forward, or is gone by itself."""
    heal(store)
    return not store.sidecars.exists(rival)


def _let_pass(store: GraphStore, rival: str | None) -> None:
    """Wait until a rival is done, by a cheap look at its sidecar, and then a random moment more."""
    deadline = time.monotonic() + LEASE_SECONDS
    pause(0.02)
    while rival is not None and time.monotonic() < deadline and store.sidecars.exists(rival):
        pause(0.03)
