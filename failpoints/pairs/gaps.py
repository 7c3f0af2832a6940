"""What no engine can be blamed for: races that the format leaves open, known by what the processes did.

The catalog names some of them (section 24), decision 001 the others. Which request a lane was held in says little: it
is another one in every engine. So a gap is called by evidence, from the requests that passed the gate: somebody
removed the fork that a first write was making, or took a live or dead writer's move back, or touched its staged
files, or made a branch anew under a writer's hands. It excuses what became of that writer, and never of a bystander: a
call that was acknowledged is lost by a gap only if it was its own sidecar, table or file that somebody took. A schedule
that ends well is never called a gap, and neither is one in which a call came to no end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from failpoints.gate import WRITE_VERBS, Exchange
from failpoints.gate.roles import AUDIT, MANIFEST, place_of
from failpoints.pairs.pairs import SIDES, Pair, Side
from failpoints.steps import Step, branch_of

# Decision 001: a branch that is made anew lives at the same address, and nobody can tell whose files these are.
RECREATED: Final = "a writer is suspended inside a request while its branch is deleted and made anew"
# Section 24: fork reclaim against foreign processes.
RECLAIM: Final = "a process takes the fork that a first write of another one makes for an orphan"
# Section 24: cross-process recovery roll-back, and schema staging.
ROLL_BACK: Final = "a process rolls a writer back while another one deals with it, or is the writer"
STAGING: Final = "a process recovers the staged files of a schema apply while another one does, or applies it"

# What a fork that somebody has removed never costs: who made which commit, and that an answer is true.
_NO_COST_OF_A_FORK: Final = ("LIN-", "PUB-23")
# Who opens a graph to write rolls back what it finds. Writers and refreshes only go forward [REC-07]: one of them that
# takes something back has no excuse.
_RECOVERING: Final = "open"
# What says that an acknowledged call is lost, and how a writer ends that lives: that it covers what it moved.
_LOST: Final = "PUB-20"
_COVERED: Final = "PUB-21"
_NEVER: Final = float("inf")


@dataclass(frozen=True)
class Evidence:
    """The requests of a schedule, by lane, and the one in which the held lane stood (None if it never came)."""

    pair: Pair
    held: Side
    at: Exchange | None
    requests: Mapping[Side, Sequence[Exchange]]

    @property
    def other(self) -> Side:
        return "second" if self.held == "first" else "first"

    def steps(self, side: Side) -> Sequence[Step]:
        return self.pair.lane(side)

    def does(self, side: Side, *operations: str) -> bool:
        return any(step["do"] in operations for step in self.steps(side))


def gap_of(seen: Evidence, broken: Sequence[str]) -> str | None:
    """The race that a schedule has run into that broke these requirements, if the requests show one."""
    if seen.at is None:
        return None
    if _was_recreated(seen) and set(broken) <= {"PUB-21"}:
        return RECREATED
    is_reclaimed = _was_reclaimed(seen, seen.other, seen.held) or _was_reclaimed(seen, seen.held, seen.other)
    if is_reclaimed and not any(each.startswith(_NO_COST_OF_A_FORK) for each in broken):
        return RECLAIM
    if _excuses_staging(seen, broken):
        return STAGING
    return ROLL_BACK if _excuses_roll_back(seen, broken) else None


def _excuses_staging(seen: Evidence, broken: Sequence[str]) -> bool:
    """Files that two have been at may be of either; but a call is lost by that only if the files were its own."""
    if not _touched_staging(seen):
        return False
    return _LOST not in broken or any(_lost_its_files(seen, side) for side in SIDES)


def _excuses_roll_back(seen: Evidence, broken: Sequence[str]) -> bool:
    """What a roll-back may cost: anything of the writer that is rolled back, and the record of who did it.

    A writer that lives must leave what it moved covered, whatever others took it for: PUB-21 says so itself. Of a
    writer that died, only the recovery can go wrong by two that recover it: the rows of all others are none of theirs.
    """
    if not _was_rolled_back(seen):
        return False
    if any(_was_taken_back(seen, side) for side in SIDES):
        return bool(seen.pair.crash) or _COVERED not in broken
    return bool(seen.pair.crash) and all(each == _COVERED or each.startswith("REC-") for each in broken)


# -- forks ------------------------------------------------------------------------------------------------------------


def _was_reclaimed(seen: Evidence, by: Side, of: Side) -> bool:
    """Whether a lane removed a fork that the other one wrote to, and could not know from the manifest whose it was.

    It could not if the fork was published after it had last read the manifest. But whoever finds a fork in its way
    must read the manifest after that [BRA-09, BRA-11]: what it had read before is no excuse.
    """
    if seen.does(by, "branch_delete"):
        return False
    theirs = seen.requests[of]
    for request, table, fork in _removed_forks(seen.requests[by]):
        if not any(each.durable and (table, fork) in set(_forks_of(each)) for each in theirs):
            continue
        published = _published(seen, (each for each in theirs if each.branch == fork))
        if request.started < published:
            return True
        read = [each.started for each in seen.requests[by] if _is_look(each, request)]
        found = min(
            (each.started for each in seen.requests[by] if (table, fork) in set(_forks_of(each))), default=_NEVER
        )
        if read and read[-1] < published and (read[-1] > found or seen.does(by, "cleanup")):
            return True
    return False


def _removed_forks(requests: Sequence[Exchange]) -> Iterator[tuple[Exchange, str, str]]:
    for request in requests:
        if request.verb == "DELETE":
            for table, fork in sorted(set(_forks_of(request))):
                yield request, table, fork


def _forks_of(request: Exchange) -> Iterator[tuple[str, str]]:
    """The forks of tables whose files, or whose ref, a request names."""
    for name in request.keys or (request.key or request.prefix,):
        place = place_of(name)
        if place.table in ("", MANIFEST, AUDIT):
            continue
        if place.branch:
            yield place.table, place.branch
        elif place.role == "table ref":
            yield place.table, _ref_name(name)


def _ref_name(key: str) -> str:
    """The branch that a ref is of: `…/_refs/branches/<name>.json`. Slashes of a name may be escaped."""
    return key.rpartition("/_refs/branches/")[2].removesuffix(".json").replace("%2F", "/").replace("%2f", "/")


def _reads_manifest(request: Exchange) -> bool:
    return request.table == MANIFEST and not request.durable


def _publishes(request: Exchange) -> bool:
    return request.role == "manifest version" and request.verb in WRITE_VERBS and request.applied


def _published(seen: Evidence, requests: Iterable[Exchange]) -> float:
    """When the first publish among some requests took effect."""
    return min((_effect(seen, each) for each in requests if _publishes(each)), default=_NEVER)


def _effect(seen: Evidence, request: Exchange) -> float:
    """When a write took effect: with its answer, and before it was held if it was held after that."""
    if seen.at is not None and seen.at.number == request.number and seen.at.status is not None:
        return request.started
    return _NEVER if request.ended is None else request.ended


def _is_look(look: Exchange, before: Exchange) -> bool:
    return _reads_manifest(look) and look.number < before.number


# -- recoveries -------------------------------------------------------------------------------------------------------


def _was_rolled_back(seen: Evidence) -> bool:
    """Whether the other lane took back what a dead writer or the held one had moved, or the held one was about to."""
    return (
        _restores(seen, seen.other, seen.requests[seen.other])
        or _restores(seen, seen.held, _until_held(seen))
        or _discards(seen)
    )


def _until_held(seen: Evidence) -> list[Exchange]:
    """What the held lane had asked for when it was held, and what it was held in."""
    return [each for each in seen.requests[seen.held] if seen.at is not None and each.number <= seen.at.number]


def _restores(seen: Evidence, side: Side, requests: Sequence[Exchange]) -> bool:
    """A new version of a table by somebody who only recovers: recovery moves a table in no other way."""
    if not seen.does(side, _RECOVERING):
        return False
    return any(each.role == "table version" and each.verb in WRITE_VERBS for each in requests)


def _discards(seen: Evidence) -> bool:
    """A sidecar of somebody else removed before anybody had published: nothing of it was rolled forward."""
    if not seen.does(seen.other, _RECOVERING):
        return False
    others = seen.requests[seen.other]
    own = {each.key for each in others if each.role == "sidecar" and each.verb in WRITE_VERBS}
    published = min(_published(seen, lane) for lane in seen.requests.values())
    return any(
        each.role == "sidecar" and each.verb == "DELETE" and each.started < published
        and not set(each.keys or (each.key,)) <= own
        for each in others
    )  # fmt: skip


def _was_taken_back(seen: Evidence, side: Side) -> bool:
    """Whether somebody who recovers removed the sidecar of a lane that writes, or restored a table that it writes.

    And could not know better: a publish that was in the manifest when that was last read says that nobody is dead.
    """
    by: Side = "second" if side == "first" else "first"
    if not seen.does(by, _RECOVERING):
        return False
    own = [each for each in seen.requests[side] if each.verb in WRITE_VERBS]
    sidecars = {each.key for each in own if each.role == "sidecar"}
    tables = {(each.table, each.branch) for each in own if each.role.startswith("table ")}
    published = _published(seen, own)
    for each in seen.requests[by]:
        removed = each.role == "sidecar" and each.verb == "DELETE" and sidecars & set(each.keys or (each.key,))
        restored = each.role == "table version" and each.verb in WRITE_VERBS and (each.table, each.branch) in tables
        read = max((look.started for look in seen.requests[by] if _is_look(look, each)), default=each.started)
        if (removed or restored) and min(read, each.started) < published:
            return True
    return False


def _lost_its_files(seen: Evidence, side: Side) -> bool:
    """Whether somebody who recovers wrote or removed the schema files that a lane had put."""
    by: Side = "second" if side == "first" else "first"
    own = {each.key for each in seen.requests[side] if each.role == "schema file" and each.verb in WRITE_VERBS}
    touched = (each for each in seen.requests[by] if each.durable and each.role == "schema file")
    return seen.does(by, _RECOVERING) and any(own & set(each.keys or (each.key,)) for each in touched)


def _touched_staging(seen: Evidence) -> bool:
    """Whether somebody who only recovers wrote or removed schema files, while the other one was at them as well."""
    if not any(step["do"] == "schema_apply" for step in (*seen.pair.first, *seen.pair.second, *seen.pair.crash)):
        return False
    lanes: tuple[tuple[Side, Sequence[Exchange]], ...] = (
        (seen.other, seen.requests[seen.other]),
        (seen.held, _until_held(seen)),
    )
    return any(
        seen.does(side, _RECOVERING) and any(each.durable and each.role == "schema file" for each in requests)
        for side, requests in lanes
    )


# -- branches ---------------------------------------------------------------------------------------------------------


def _was_recreated(seen: Evidence) -> bool:
    """Whether a branch was made anew while the held lane was writing to it, with its sidecar put."""
    branches = {branch_of(step) for step in seen.steps(seen.held) if step["do"] in ("load", "mutate", "merge")}
    until_then = _until_held(seen)
    inside = any(each.role == "sidecar" and each.verb in WRITE_VERBS and each.applied for each in until_then)
    remade = {step["name"] for step in seen.steps(seen.other) if step["do"] == "branch_delete"} & {
        step["name"] for step in seen.steps(seen.other) if step["do"] == "branch_create"
    }
    refs = [each for each in seen.requests[seen.other] if each.role == "manifest ref"]
    did = {
        each.verb in WRITE_VERBS
        for each in refs
        for key in each.keys or (each.key,)
        if each.durable and _ref_name(key) in branches & remade
    }
    return inside and did == {True, False}
