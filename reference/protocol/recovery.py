"""Recovery: what becomes of a writer that died between its first table commit and its publish.

For each sidecar, oldest first, against a fresh snapshot of its own branch:

    classify      compare each table's HEAD with the manifest's pin and with what the writer intended
    decide        all tables moved as intended: forward. Anything else: back. A HEAD behind its pin: stop
    act           forward: publish the HEADs. Back: restore each drifted table to its pin and publish that
    audit         one row for the operation, whoever else tries
    remove        the sidecar, last: a crash anywhere above is met again by the next recovery

Back needs a read-write open (`sweep`); a writer or a refresh only goes forward (`heal`). Both may meet a writer of
another process that is not dead at all. So nothing here assumes that it is alone: after every lost publish it reads
again and goes on from the HEAD that it finds, and it never leaves a restore of its own unpublished [REC].
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, replace
from typing import Literal

from reference.errors import CommitConflict, ExpectedVersionMismatch, Internal, NotFound, RowLevelCasContention
from reference.failpoint import fire
from reference.format.manifest import ManifestState, TableEntry
from reference.format.names import table_path
from reference.format.sidecar import RECOVERY_ACTOR, SIDECAR_SCHEMA_VERSION, Pin, Sidecar
from reference.protocol.audit import AuditRow, Outcome, RecoveryKind, append_audit, read_audit
from reference.protocol.publish import Changes, Lineage, now_micros
from reference.protocol.queues import SCHEMA_APPLY_QUEUE, QueueKey
from reference.protocol.schema_lock import release_schema_lock
from reference.protocol.sidecars import LEASE_SECONDS
from reference.protocol.store import GraphStore

ROUNDS_MAX = 20
PATIENCE_SECONDS = 5 * LEASE_SECONDS

Class = Literal[
    "NoMovement",
    "RolledPastExpected",
    "UnexpectedAtP1",
    "UnexpectedMultistep",
    "IncompletePhaseB",
    "InvariantViolation",
]
Decision = Literal["Abort", "Settled", "RollForward", "RollBack"]
STRICT_KINDS = ("Mutation", "Load")

_commits_of_this_process: set[str] = set()


@dataclass(frozen=True)
class Observed:
    """One table of a sidecar as it is now."""

    pin: Pin
    head: int
    pinned: int
    entry: TableEntry | None
    verdict: Class

    @property
    def drifted(self) -> bool:
        return self.entry is not None and self.head > self.pinned


# -- entries -----------------------------------------------------------------------------------------------------------


def sweep(store: GraphStore) -> list[AuditRow]:
    """The full sweep of a read-write open: every sidecar is rolled forward or back."""
    done: list[AuditRow] = []
    for operation_id in store.sidecars.operation_ids():
        with store.queues.hold(_queues(store, operation_id)):
            _wait_while_alive(store, operation_id)
            done += recover(store, operation_id, full=True)
    return done


def heal(store: GraphStore) -> list[AuditRow]:
    """The sweep of a write entry or a refresh: only forward, and never a live writer's sidecar [REC-06, REC-07]."""
    done: list[AuditRow] = []
    for sidecar in store.sidecars.pending():
        if store.queues.is_alive(sidecar.operation_id) is None and store.sidecars.presumed_alive(sidecar):
            continue
        with store.queues.hold(_queues(store, sidecar.operation_id)):
            done += recover(store, sidecar.operation_id, full=False)
    return done


def undo(store: GraphStore, sidecar: Sidecar) -> None:
    """A live writer takes its own moves back: its publish was refused, so they must never become visible.

    First its sidecar is made one that nobody can roll forward, and is put back if another process removed it. From
    then on a crash leaves the move covered and on its way back [PUB-21, PUB-23].
    """
    if sidecar.writer_kind == "SchemaApply":
        store.schema.discard_staging()
    pins = tuple(replace(pin, post_commit_pin=pin.expected_version, confirmed_version=None) for pin in sidecar.tables)
    store.sidecars.put(replace(sidecar, tables=pins, schema_version=SIDECAR_SCHEMA_VERSION))
    recover(store, sidecar.operation_id, full=True, only_back=True)


def _queues(store: GraphStore, operation_id: str) -> list[QueueKey]:
    """What a live writer of this process holds as long as its sidecar stands; taking them waits for it [REC-24]."""
    sidecar = store.sidecars.read(operation_id)
    if sidecar is None:
        return []
    check_belongs(store, sidecar)
    keys: list[QueueKey] = [(pin.table_key, pin.table_branch) for pin in sidecar.tables]
    return [*keys, SCHEMA_APPLY_QUEUE] if sidecar.writer_kind == "SchemaApply" else keys


def _wait_while_alive(store: GraphStore, operation_id: str) -> None:
    """Give a writer of another process the rest of its lease to finish by itself."""
    while (sidecar := store.sidecars.read(operation_id)) is not None and store.sidecars.presumed_alive(sidecar):
        pause(0.02)


def pause(seconds: float) -> None:
    """Wait a random moment of about this length, so that rivals do not meet again."""
    threading.Event().wait(random.uniform(0.5, 1.5) * seconds)


def check_belongs(store: GraphStore, sidecar: Sidecar) -> None:
    """A sidecar that was copied here with the addresses of another graph must not be acted upon."""
    for pin in sidecar.tables:
        if pin.table_path.removeprefix("file://") != store.root.join(table_path(pin.table_key)):
            raise Internal(
                f"recovery sidecar '{sidecar.operation_id}' names a table of another graph: {pin.table_path}",
                code="sidecar_foreign",
                details={"operation_id": sidecar.operation_id, "table_path": pin.table_path},
                hint="move the graph back to where it was written, or open it read-only",
            )


# -- one sidecar -------------------------------------------------------------------------------------------------------


def recover(store: GraphStore, operation_id: str, *, full: bool, only_back: bool = False) -> list[AuditRow]:
    """Deal with one operation, whose queues are held. Returns the audit row of what was done, if anything was."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        sidecar = store.sidecars.read(operation_id)
        if sidecar is None:
            return []
        if not store.manifests.has_branch(sidecar.branch):
            return [_discard_orphan(store, sidecar)]
        state = store.manifests.fresh(sidecar.branch).state
        observed = [observe(store, sidecar, pin, state) for pin in sidecar.tables]
        audited = read_audit(store.tables, operation_id)
        if audited and not any(table.drifted for table in observed):
            # A crash came between the audit and the removal. Where a table has drifted, the writer was not dead when
            # it was dealt with and has moved since: that is dealt with too, under the same audit row.
            _finish_schema_apply(store, sidecar, audited[0].recovery_kind)
            store.sidecars.remove(operation_id)
            return []
        decision = decide(store, sidecar, state, observed)
        if decision == "Abort":
            if full:
                raise _violated(sidecar, observed)
            return []
        try:
            if decision == "Settled":
                if not _is_being_recovered(state):
                    return [_settle(store, sidecar, state, observed)]
            elif decision == "RollForward" and not only_back:
                return [_roll_forward(store, sidecar, observed)]
            elif not full:
                return []
            else:
                return [_roll_back(store, sidecar)]
        except (ExpectedVersionMismatch, RowLevelCasContention, CommitConflict):
            pass  # Another process moved something meanwhile: read again, and go on from what is there.
        pause(0.02)
    return []


def observe(store: GraphStore, sidecar: Sidecar, pin: Pin, state: ManifestState) -> Observed:
    """One table as it is now, and what that means for the writer's intent."""
    entry = state.latest(pin.table_key)
    pinned = entry.version if entry is not None else 0
    try:
        head = store.tables.open_latest(table_path(pin.table_key), pin.table_branch).version
    except NotFound:
        if pin.table_branch is None:
            raise
        head = pinned  # The writer died before it forked the table: nothing has moved.
    if entry is not None and entry.branch != pin.table_branch and head < pinned:
        head = pinned  # A fork that was never placed and began elsewhere says nothing about this writer.
    verdict = classify(sidecar, pin, head, pinned)
    if (
        verdict == "RolledPastExpected"
        and sidecar.writer_kind in STRICT_KINDS
        and _made_by_other(store, sidecar, pin, head)
    ):
        verdict = "UnexpectedAtP1"
    return Observed(pin, head, pinned, entry, verdict)


def classify(sidecar: Sidecar, pin: Pin, head: int, pinned: int) -> Class:
    """The table of section 11.2, row by row."""
    if head < pinned:
        return "InvariantViolation"
    if head == pinned:
        return "NoMovement"
    unexpected: Class = "UnexpectedAtP1" if head == pinned + 1 else "UnexpectedMultistep"
    if sidecar.writer_kind in STRICT_KINDS:
        intended = head == pinned + 1 and pin.expected_version == pinned and pin.post_commit_pin == head
    elif sidecar.writer_kind == "BranchMerge" and sidecar.schema_version >= SIDECAR_SCHEMA_VERSION:
        if pin.confirmed_version is None:
            return "IncompletePhaseB"
        unexpected = "UnexpectedMultistep"
        intended = pin.confirmed_version == head and pin.expected_version == pinned
    else:
        intended = pin.expected_version == pinned
    return "RolledPastExpected" if intended else unexpected


def decide(store: GraphStore, sidecar: Sidecar, state: ManifestState, observed: list[Observed]) -> Decision:
    """The table of section 11.3: all or nothing for the tables of one operation."""
    verdicts = {table.verdict for table in observed}
    if "InvariantViolation" in verdicts:
        return "Abort"
    if verdicts <= {"NoMovement"} and has_been_published(sidecar, state):
        return "Settled"
    if verdicts <= {"RolledPastExpected"} and _can_go_forward(store, sidecar):
        return "RollForward"
    return "RollBack"


def has_been_published(sidecar: Sidecar, state: ManifestState) -> bool:
    """Whether the manifest went past what the writer expected: its publish landed, or its rollback did."""
    if sidecar.tables:
        return any(state.visible_version(pin.table_key) > pin.expected_version for pin in sidecar.tables)
    if sidecar.additional_registrations or sidecar.tombstones:
        registered = all(state.latest(item.table_key) is not None for item in sidecar.additional_registrations)
        return registered and all(state.latest(item.table_key) is None for item in sidecar.tombstones)
    # A schema apply that touches no table leaves only its commit, and its lock kept everyone else's out.
    commits = (commit for commit in state.commits() if commit.actor_id != RECOVERY_ACTOR)
    return any(commit.created_at > sidecar.started_at for commit in commits)


def _can_go_forward(store: GraphStore, sidecar: Sidecar) -> bool:
    """A schema apply goes forward only with its new schema whole and its new tables there [SCH-12]."""
    if sidecar.writer_kind != "SchemaApply":
        return True
    tables_exist = all(store.tables.exists(table_path(item.table_key)) for item in sidecar.additional_registrations)
    return tables_exist and store.schema.staging_is_whole() and not store.sidecars.other_schema_apply(sidecar)


def _made_by_other(store: GraphStore, sidecar: Sidecar, pin: Pin, version: int) -> bool:
    """Whether a version carries the mark of another operation: then it is not this writer's, whatever its number."""
    maker = store.tables.maker_of(table_path(pin.table_key), pin.table_branch, version)
    return maker is not None and maker != sidecar.operation_id


def _is_being_recovered(state: ManifestState) -> bool:
    """Whether another process published a recovery on this branch a moment ago: its audit row is on the way."""
    head = state.head()
    if head is None or head.actor_id != RECOVERY_ACTOR or head.graph_commit_id in _commits_of_this_process:
        return False
    return 0 <= now_micros() - head.created_at < LEASE_SECONDS * 1e6


# -- acting ------------------------------------------------------------------------------------------------------------


def _roll_forward(store: GraphStore, sidecar: Sidecar, observed: list[Observed]) -> AuditRow:
    """Publish what the writer had committed, under the recovery's name, as if the writer had come to it."""
    fire("recovery.before_roll_forward_publish")
    updates = [_entry(store, table.pin.table_key, table.pin.table_branch, table.head) for table in observed]
    outcomes = [Outcome(table.pin.table_key, table.pin.expected_version, table.head) for table in observed]
    expected = {table.pin.table_key: table.pin.expected_version for table in observed}
    dropped = store.manifests.fresh(sidecar.branch).state.tombstones
    for item in sidecar.additional_registrations:
        head = store.tables.open_latest(table_path(item.table_key), item.table_branch).version
        updates.append(_entry(store, item.table_key, item.table_branch, head))
        outcomes.append(Outcome(item.table_key, 0, head))
        expected[item.table_key] = dropped.get(item.table_key, 0)
    expected |= {item.table_key: item.tombstone_version - 1 for item in sidecar.tombstones}
    changes = Changes(
        registrations={item.table_key: table_path(item.table_key) for item in sidecar.additional_registrations},
        updates=tuple(updates),
        tombstones={item.table_key: item.tombstone_version for item in sidecar.tombstones},
    )
    commit_id = _publish(store, sidecar, changes, expected, merged_parent=sidecar.merge_source_commit_id)
    return _conclude(store, sidecar, "RolledForward", commit_id, outcomes)


def _roll_back(store: GraphStore, sidecar: Sidecar) -> AuditRow:
    """Restore every table that moved to what the manifest pins, and publish that, until both agree.

    A writer that is not dead may publish between our look and our restore. Its rows are then in the manifest's pin
    and not in our restore, so the publish is refused, and the next round restores what is pinned now.
    """
    outcomes: dict[str, Outcome] = {}
    for _ in range(ROUNDS_MAX):
        state = store.manifests.fresh(sidecar.branch).state
        observed = [observe(store, sidecar, pin, state) for pin in sidecar.tables]
        drifted = [table for table in observed if table.drifted]
        if drifted:
            store.sidecars.put_back(sidecar)  # Covers the restores, should a live writer have removed it.
        updates = [entry for entry in (_restore(store, sidecar, table) for table in drifted) if entry is not None]
        if drifted:
            store.sidecars.put_back(sidecar)  # And again, should it have done so only now.
        for table in drifted:
            outcomes.setdefault(table.pin.table_key, Outcome(table.pin.table_key, table.head, table.pinned))
        expected = {table.pin.table_key: table.pinned for table in drifted}
        try:
            commit_id = _publish(store, sidecar, Changes(updates=tuple(updates)), expected, merged_parent=None)
        except (ExpectedVersionMismatch, RowLevelCasContention):
            pause(0.02)
            continue
        return _conclude(store, sidecar, "RolledBack", commit_id, list(outcomes.values()))
    raise Internal(f"recovery of '{sidecar.operation_id}' does not converge: other processes keep writing")


def _restore(store: GraphStore, sidecar: Sidecar, table: Observed) -> TableEntry | None:
    path, branch = table_path(table.pin.table_key), table.pin.table_branch
    try:
        restored = store.tables.restore(path, branch, table.pinned, sidecar.operation_id)
    except NotFound:
        return None  # A fork from an older version, which the manifest never placed: the next write reclaims it.
    return _entry(store, table.pin.table_key, branch, restored.version)


def _settle(store: GraphStore, sidecar: Sidecar, state: ManifestState, observed: list[Observed]) -> AuditRow:
    """HEADs and pins agree and are past the intent: say which way it went, and clean up."""
    loose = sidecar.writer_kind not in STRICT_KINDS + ("BranchMerge",)
    forward = all(
        loose if published is None else not _made_by_other(store, sidecar, table.pin, published.version)
        for table in observed
        for published in [_published_result(state, table.pin)]
    )
    outcomes = [Outcome(table.pin.table_key, table.pin.expected_version, table.pinned) for table in observed]
    outcomes += [
        Outcome(item.table_key, 0, state.visible_version(item.table_key)) for item in sidecar.additional_registrations
    ]
    commit_id = _publish(store, sidecar, Changes(), {}, merged_parent=None)
    return _conclude(
        store, sidecar, "RolledForward" if forward else "RolledBack", commit_id, outcomes if forward else []
    )


def _published_result(state: ManifestState, pin: Pin) -> TableEntry | None:
    """The first published version that can be what the writer was to reach; later than intended if it indexed too."""
    reached = [
        version
        for version in state.versions.get(pin.table_key, {})
        if version > pin.expected_version and version >= (pin.confirmed_version or pin.post_commit_pin)
    ]
    return state.versions[pin.table_key][min(reached)] if reached else None


def _discard_orphan(store: GraphStore, sidecar: Sidecar) -> AuditRow:
    """The branch is gone, and with it what the writer wanted: only the sidecar is left to remove [REC-17]."""
    commit_id = _publish(store, replace(sidecar, branch=None), Changes(), {}, merged_parent=None)
    fire("recovery.orphan_discard_audit_append")
    return _conclude(store, sidecar, "OrphanedBranchDiscarded", commit_id, [])


def _publish(
    store: GraphStore, sidecar: Sidecar, changes: Changes, expected: dict[str, int], *, merged_parent: str | None
) -> str:
    lineage = Lineage(actor_id=RECOVERY_ACTOR, merged_parent_commit_id=merged_parent)
    _commits_of_this_process.add(lineage.commit_id)
    store.publisher.publish(sidecar.branch, changes, expected, lineage)
    return lineage.commit_id


def _conclude(
    store: GraphStore, sidecar: Sidecar, kind: RecoveryKind, commit_id: str, outcomes: list[Outcome]
) -> AuditRow:
    """Put a schema apply's files in place, record the audit row, clear up, then remove the sidecar."""
    if sidecar.writer_kind == "SchemaApply" and kind == "RolledForward":
        store.schema.promote_staging(discard=False)  # Kept until the audit: it is what says which way this went.
    fire("recovery.record_audit")
    row = AuditRow(commit_id, kind, sidecar.actor_id, sidecar.operation_id, sidecar.writer_kind, tuple(outcomes))
    if not read_audit(store.tables, sidecar.operation_id):
        append_audit(store.tables, row)
    _finish_schema_apply(store, sidecar, kind)
    store.sidecars.remove(sidecar.operation_id)
    return row


def _finish_schema_apply(store: GraphStore, sidecar: Sidecar, kind: RecoveryKind) -> None:
    """Settle the schema files and release the lock, while the sidecar still says that there is something to do."""
    if sidecar.writer_kind != "SchemaApply":
        return
    if kind == "RolledForward":
        store.schema.promote_staging()
    if not store.sidecars.other_schema_apply(sidecar):
        store.schema.discard_staging()
        release_schema_lock(store.tables, store.manifests)


def _entry(store: GraphStore, table_key: str, branch: str | None, version: int) -> TableEntry:
    path = table_path(table_key)
    rows = store.tables.run(table_key, store.tables.open(path, branch, version).count_rows)
    return TableEntry(table_key, path, version, branch, rows)


def _violated(sidecar: Sidecar, observed: list[Observed]) -> Internal:
    behind = [table for table in observed if table.verdict == "InvariantViolation"]
    return Internal(
        f"recovery sidecar '{sidecar.operation_id}': table '{behind[0].pin.table_key}' is at version {behind[0].head}, "
        f"behind the version {behind[0].pinned} that the manifest pins; nothing was changed",
        code="recovery_invariant_violation",
        details={"operation_id": sidecar.operation_id, "tables": [table.pin.table_key for table in behind]},
        hint="restore the table's files from a backup, or review the graph by hand",
    )
