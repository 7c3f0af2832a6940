"""Merge: where two histories last met, and what becomes of each row that one or both have changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.model.errors import Conflict, ConflictKind
from conformance.model.schema import Schema
from conformance.model.validate import Rows, State
from conformance.model.values import Row, same_row


@dataclass(frozen=True)
class Commit:
    """One state of the graph, and the commits it was made from: none, one, or two for a merge.

    The schema is the one that the commit was made under, so that a later change of it leaves old states as they were.
    The model numbers its commits; the id and the manifest version are an engine's, once they are known. Until then the
    version is counted, one for each commit of a branch. `lost` are the tables whose rows of then an engine may have
    removed since, by a hard drop [SCH-07].
    """

    number: int
    branch: str
    parents: tuple[int, ...]
    state: State = field(repr=False)
    schema: Schema = field(repr=False)
    commit_id: str
    manifest_version: int
    created_at: int = 0
    lost: frozenset[str] = frozenset()

    @property
    def order(self) -> tuple[int, int, str]:
        """The order of commits [LIN-05]."""
        return self.manifest_version, self.created_at, self.commit_id


def ancestors(commits: Mapping[int, Commit], start: int) -> set[int]:
    """A commit and all that it descends from, through both parents, as far as they are known."""
    found: set[int] = set()
    pending = [start]
    while pending:
        number = pending.pop()
        if number in commits and number not in found:
            found.add(number)
            pending += commits[number].parents
    return found


def merge_base(commits: Mapping[int, Commit], one: int, other: int) -> Commit | None:
    """A common ancestor from which no other common one descends; of several, the last in order [LIN-13]."""
    above = {number: ancestors(commits, number) for number in ancestors(commits, one) & ancestors(commits, other)}
    lowest = [number for number in above if not any(number in above[rest] for rest in above if rest != number)]
    return max((commits[number] for number in lowest), key=lambda commit: commit.order, default=None)


def fewest_steps(commits: Mapping[int, Commit], one: int, other: int) -> list[Commit]:
    """The common ancestors that the fewest steps lead to: an engine that counts them takes one for the base."""
    near, far = _steps(commits, one), _steps(commits, other)
    steps = {number: near[number] + far[number] for number in near.keys() & far.keys()}
    return [commits[number] for number in steps if steps[number] == min(steps.values())]


def _steps(commits: Mapping[int, Commit], start: int) -> dict[int, int]:
    """How many steps lead from a commit to each that it descends from, on the shortest way."""
    found, level, steps = {start: 0}, {start}, 0
    while level:
        steps += 1
        above = {parent for number in level for parent in commits[number].parents if parent in commits}
        level = above - found.keys()
        found |= dict.fromkeys(level, steps)
    return found


def merge_states(base: State, source: State, target: State) -> tuple[dict[str, Rows], list[Conflict]]:
    """The target with what the source has changed since the base, and the rows that both have changed [MRG-02]."""
    merged: dict[str, Rows] = {}
    conflicts: list[Conflict] = []
    for key, ours in target.items():
        rows = dict(ours)
        for row_id in base[key].keys() | source[key].keys() | ours.keys():
            was, new, old = (rows_of.get(row_id) for rows_of in (base[key], source[key], ours))
            if same_row(new, was) or same_row(new, old):
                continue
            if not same_row(old, was):
                conflicts.append(Conflict(key, row_id, _kind(was, new, old)))
            elif new is None:
                del rows[row_id]
            else:
                rows[row_id] = new
        merged[key] = rows
    return merged, conflicts


def _kind(was: Row | None, new: Row | None, old: Row | None) -> ConflictKind:
    if was is None:
        return "DivergentInsert"
    return "DeleteVsUpdate" if new is None or old is None else "DivergentUpdate"
