"""Merge: what a branch changed since it last met another, applied to that other [MRG].

    base        the lowest common ancestor of both heads
    plan        per table, the rows that the source changed since the base, unless the target has them already
    conflicts   rows that both changed to different values, then every rule of the schema that the result would break
    commit      one graph commit with two parents: appended rows, replaced rows and removed rows as moves of each table

Entries that are equal are skipped without opening the table. A table that only the source changed is adopted: onto
main its rows are applied, onto a branch the source's entry on main can be pointed at instead. A pointer is taken only
when nothing else has to move: a sidecar cannot carry it, and recovery would finish the merge without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from reference.errors import BadRequest, Conflict, ExpectedVersionMismatch, MergeConflicts
from reference.failpoint import fire
from reference.format.manifest import GraphCommit, TableEntry
from reference.operations.branches import ensure_fork, refuse_internal
from reference.operations.changeset import ChangeSet, TableChange
from reference.operations.merge_rows import Delta, delta_between, differing, rows_by_id
from reference.operations.validate import ViolationKind, violations
from reference.protocol.commit import Intent, Move, TableWork, commit_graph, with_retries
from reference.protocol.lineage import Commits, ancestors, merge_base, parents
from reference.protocol.manifests import Held, Snapshot, branch_key
from reference.protocol.recovery import heal
from reference.protocol.schema_lock import refuse_during_schema_apply
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog
from reference.storage.tables import Staged

Outcome = Literal["already_up_to_date", "fast_forward", "merged"]
Stage = Callable[[LanceDataset], Staged]

_CONFLICT_KINDS: Mapping[ViolationKind, str] = {
    "value": "ValueConstraintViolation",
    "unique": "UniqueViolation",
    "orphan_edge": "OrphanEdge",
    "cardinality": "CardinalityViolation",
}
# After the appended, the replaced and the removed rows of a table.
_ADOPT_POINTS = ("branch_merge.adopt_after_append_pre_upsert", "branch_merge.adopt_after_upsert_pre_delete", None)
_REWRITE_POINTS = (None, "branch_merge.rewrite_after_merge_pre_delete", "branch_merge.rewrite_after_delete_pre_index")


@dataclass(frozen=True)
class MergeResult:
    """How a merge ended, and the commit it made, if it had to make one."""

    outcome: Outcome
    commit: GraphCommit | None = None

    def to_json(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "commit": None if self.commit is None else self.commit.to_json()}


def merge(store: GraphStore, catalog: Catalog, source: str, target: str, actor: str | None = None) -> MergeResult:
    """Merge one branch into another. A refused merge has changed nothing and never will [MRG-14]."""
    for name in (source, target):
        refuse_internal(name, "branch_merge")
    theirs, ours = branch_key(source.strip()), branch_key(target.strip())
    if theirs == ours:
        raise BadRequest(f"branch '{source}' cannot be merged into itself", code="same_branch")
    refuse_during_schema_apply(store.manifests, "branch_merge")
    heal(store)
    return with_retries(store, lambda: _merge_once(store, catalog, theirs, ours, actor), strict=True)


def _merge_once(
    store: GraphStore, catalog: Catalog, source: str | None, target: str | None, actor: str | None
) -> MergeResult:
    theirs, ours = store.manifests.fresh(source), store.manifests.fresh(target)
    # A held manifest may move on meanwhile. So the heads are captured before the snapshots, that never less is merged
    # than the commit says, and the base is read as of its own commit.
    source_head, target_head = _head(theirs), _head(ours)
    base = _base(store, {**theirs.state.commit_map(), **ours.state.commit_map()}, source_head, target_head)
    if base is None:
        raise BadRequest("the two branches have no commit in common", code="no_common_ancestor")
    if base.graph_commit_id == source_head:
        return MergeResult("already_up_to_date")
    ends = _Ends(
        base=store.manifests.at_version(base.manifest_branch, base.manifest_version),
        source=theirs.snapshot(),
        target=ours.snapshot(),
        published={key: max(versions) for key, versions in ours.state.versions.items()},
    )
    merged = _commit(store, catalog, ends, _plans(store, ends), source_head, actor)
    return MergeResult("fast_forward" if base.graph_commit_id == target_head else "merged", merged)


def _head(held: Held) -> str:
    head = held.state.head()
    if head is None:
        raise BadRequest("a branch without commits cannot be merged", code="no_common_ancestor")
    return head.graph_commit_id


def _base(store: GraphStore, commits: Commits, source: str, target: str) -> GraphCommit | None:
    """Where two histories last met, by the commits of both branches, and of all others if those do not tell.

    A manifest has the commits of its own branch and of those it was forked from. What was merged into it is named as
    a parent only, and the two histories may meet there: they merged the same third branch, say [LIN-13].
    """
    apart = ancestors(commits, source) ^ ancestors(commits, target)
    if any(parent not in commits for commit_id in apart for parent in parents(commits[commit_id])):
        for branch in store.manifests.all_branches():
            commits = {**store.manifests.fresh(branch).state.commit_map(), **commits}
    return merge_base(commits, source, target)


def merge_bases(store: GraphStore, every: Sequence[Held]) -> list[Snapshot]:
    """The base of every pair of branches: a later merge will read it, so cleanup keeps it [CLN-07]."""
    commits = {commit_id: commit for held in every for commit_id, commit in held.state.commit_map().items()}
    pairs = itertools.combinations({_head(held) for held in every}, 2)
    bases = {base for one, other in pairs if (base := merge_base(commits, one, other)) is not None}
    return [store.manifests.at_version(base.manifest_branch, base.manifest_version) for base in bases]


# -- planning: nothing is written -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ends:
    """The three snapshots of a merge, and the highest version of each table that the target's manifest has seen."""

    base: Snapshot
    source: Snapshot
    target: Snapshot
    published: Mapping[str, int]


@dataclass(frozen=True)
class _Plan:
    """What is done to one table: the rows of `source` that `delta` names go into `target`."""

    source: TableEntry
    target: TableEntry
    delta: Delta
    adopts: bool
    conflicts: tuple[dict[str, Any], ...] = ()


def _plans(store: GraphStore, ends: _Ends) -> list[_Plan]:
    """The tables that change, or the conflicts of all of them."""
    if ends.source.entries.keys() != ends.target.entries.keys():
        raise Conflict("the two branches do not have the same tables", code="schema_diverged")
    found = [
        _plan(store, ends.base.entries.get(key), entry, ends.target.entries[key])
        for key, entry in ends.source.entries.items()
    ]
    plans = [plan for plan in found if plan is not None]
    conflicts = [conflict for plan in plans for conflict in plan.conflicts]
    if conflicts:
        raise MergeConflicts(conflicts)
    return [plan for plan in plans if plan.delta]


def _plan(store: GraphStore, base: TableEntry | None, source: TableEntry, target: TableEntry) -> _Plan | None:
    if source.pin == target.pin or (base is not None and base.pin == source.pin):
        return None
    theirs = delta_between(store, base, source)
    if base is not None and base.pin == target.pin:
        return _Plan(source, target, theirs, adopts=True)
    ours = delta_between(store, base, target) if theirs else Delta()
    both = theirs.changed & ours.changed
    return _Plan(source, target, theirs.without(both), False, tuple(_conflicts(store, source, target, theirs, ours)))


def _conflicts(
    store: GraphStore, source: TableEntry, target: TableEntry, theirs: Delta, ours: Delta
) -> list[dict[str, Any]]:
    """The rows that both sides changed, and not to the same [MRG-02]."""
    one_removed = (theirs.deleted & ours.present) | (ours.deleted & theirs.present)
    unequal = differing(store, source, target, theirs.present & ours.present)
    conflicts = []
    for row_id in sorted(one_removed | unequal):
        if row_id in one_removed:
            kind, what = "DeleteVsUpdate", "was removed on one branch and changed on the other"
        elif row_id in theirs.inserted:
            kind, what = "DivergentInsert", "was added on both branches with different values"
        else:
            kind, what = "DivergentUpdate", "was changed on both branches to different values"
        message = f"'{row_id}' of {source.table_key} {what}"
        conflicts.append({"table_key": source.table_key, "row_id": row_id, "kind": kind, "message": message})
    return conflicts


# -- committing -------------------------------------------------------------------------------------------------------


def _commit(
    store: GraphStore, catalog: Catalog, ends: _Ends, plans: list[_Plan], source_head: str, actor: str | None
) -> GraphCommit:
    """Validate the whole result, stage it, and make the merge commit. Nothing to change is a commit all the same."""
    branch = ends.target.branch
    rows = {plan.target.table_key: rows_by_id(store, plan.source, plan.delta.present).writable() for plan in plans}
    tables = {key: TableChange(key, rows[key], plan.delta.deleted) for key, plan in zip(rows, plans, strict=True)}
    changes = ChangeSet(ends.target, tables)
    _refuse_violations(store, catalog, changes)
    by_pointer = all(_can_point(plan, ends) for plan in plans)
    reads = changes.reads(catalog)
    if by_pointer:
        reads |= {plan.target.table_key: plan.target.version for plan in plans}
    with store.queues.hold([(key, branch) for key in changes.tables]):
        return commit_graph(
            store,
            Intent(
                kind="BranchMerge",
                branch=branch,
                incarnation=ends.target.incarnation,
                actor=actor,
                works=() if by_pointer else tuple(_work(store, plan, branch, rows) for plan in plans),
                adopted=tuple(plan.source for plan in plans) if by_pointer else (),
                reads=reads,
                recheck=_unmoved(reads),
                watch=frozenset(reads),
                merged_parent=source_head,
                committed=lambda: fire("branch_merge.post_phase_b_pre_manifest_commit"),
            ),
        )


def _refuse_violations(store: GraphStore, catalog: Catalog, changes: ChangeSet) -> None:
    """Adopted rows too are held against the target: its other tables may not allow them [MRG-03, MRG-09]."""
    found = [
        {
            "table_key": violation.table_key,
            "row_id": violation.row_id,
            "kind": _CONFLICT_KINDS[violation.kind],
            "message": violation.message,
        }
        for violation in violations(store, changes.snapshot, catalog, changes.tables)
    ]
    if found:
        raise MergeConflicts(found)


def _can_point(plan: _Plan, ends: _Ends) -> bool:
    """Whether the target can simply read what main has [MRG-09, MRG-12].

    Its snapshot takes the highest version of a table, so a pointer below one that it has seen would stay hidden. And
    a branch that has storage of its own for the table goes on writing there.
    """
    branch = ends.target.branch
    if branch is None or not plan.adopts or plan.source.branch is not None or plan.target.branch == branch:
        return False
    return plan.source.version > ends.published[plan.target.table_key]


def _unmoved(reads: Mapping[str, int]) -> Callable[[Snapshot], None]:
    """A merge is not decided anew on tables that changed after it looked at them [MRG-07]."""

    def check(snapshot: Snapshot) -> None:
        for key, version in reads.items():
            entry = snapshot.entries.get(key)
            actual = entry.version if entry is not None else 0
            if actual != version:
                raise ExpectedVersionMismatch(key, version, actual)

    return check


@dataclass
class _Step:
    """One move of a table, with the failpoints that stand before and after it."""

    stage: Stage
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def _work(store: GraphStore, plan: _Plan, branch: str | None, rows: Mapping[str, pa.Table]) -> TableWork:
    """The moves of one table. The first is staged now; each later one on the version that the former has made."""
    entry, tables = plan.target, store.tables
    ensure_fork(store, branch, entry)
    steps = _steps(store, plan, rows[entry.table_key])
    first = steps[0].stage(tables.open(entry.path, branch, entry.version))

    def move(step: _Step) -> Move:
        def run(handle: LanceDataset, operation_id: str) -> LanceDataset:
            for name in step.before:
                fire(name)
            staged = first if step is steps[0] else step.stage(handle)
            landed = tables.commit(entry.path, branch, staged, operation_id)
            for name in step.after:
                fire(name)
            return landed

        return run

    return TableWork(entry, branch, tuple(move(step) for step in steps))


def _steps(store: GraphStore, plan: _Plan, rows: pa.Table) -> list[_Step]:
    """Append what is new, replace what changed, remove what is gone; a step that has nothing to do is left out."""
    is_new = pc.is_in(rows["id"], value_set=pa.array(sorted(plan.delta.inserted), pa.string()))
    added, replaced = rows.filter(is_new), rows.filter(pc.invert(is_new))
    removed = pa.array(sorted(plan.delta.deleted), pa.string())
    stages: list[Stage | None] = [
        (lambda handle: store.tables.stage_append(handle, added)) if added.num_rows else None,
        (lambda handle: store.tables.stage_merge(handle, replaced)) if replaced.num_rows else None,
        (lambda handle: store.tables.stage_delete(handle, removed)) if len(removed) else None,
    ]
    steps: list[_Step] = []
    points: list[str] = []
    for stage, point in zip(stages, _ADOPT_POINTS if plan.adopts else _REWRITE_POINTS, strict=True):
        if stage is not None:
            step = _Step(stage, before=[] if steps else points)
            steps.append(step)
            points = step.after
        if point is not None:
            points.append(point)
    return steps
