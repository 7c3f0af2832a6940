"""The lineage of a pair: which commit of a chain is which call's, whether it says so, and who may have made the others.

Commits that change no row leave no trace in any state, so nothing but the chain shows them. A commit carries the actor
of its call, or recovery's, which may have finished it; a merge names the head that it merged, and nobody else names one
[LIN-09, LIN-14]. More commits than calls come from recovery, and from maintenance in nobody's name or one of the
engine's own: one more in the name of a writer is a write that was committed twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.audit.names import RECOVERY_ACTOR
from conformance.model import Model
from conformance.model.merge import Commit
from failpoints.pairs.orders import Done, Serial, was_acknowledged
from failpoints.steps import MAINTENANCE
from failpoints.world import Difference

# What these find to do is a recovery's work, and is committed in its name.
_RECOVERING: Final = ("open", "refresh")
Chain = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class _Branch:
    """The commits that a branch should have, those that it has, and the place of each of the first among the second."""

    meant: Sequence[Commit]
    shown: Chain
    places: Sequence[int]

    def ids_of(self, number: int) -> set[str]:
        """What the head may have been called when a commit was the last: of what follows and changes no row, too."""
        for nth, commit in enumerate(self.meant):
            if commit.number == number:
                end = self.places[nth + 1] if nth + 1 < len(self.places) else len(self.shown)
                return {each["graph_commit_id"] for each in self.shown[self.places[nth] : end]}
        return set()


def difference_of_lineage(
    known: Collection[str], actors: Collection[str], serial: Serial, model: Model, chains: Mapping[str, Chain]
) -> Difference | None:
    """Where the chains of a graph say something else than an order.

    `known` are the commits that it began with, and `actors` those in whose names the lanes write, done or refused.
    """
    branches: dict[str, _Branch] = {}
    for name, shown in chains.items():
        found = _aligned(name, known, actors, serial, model.commits(name), shown)
        if isinstance(found, Difference):
            return found
        branches[name] = found
    made = {done.commit.number: done for done in serial.done if done.commit is not None}
    for name, branch in branches.items():
        for commit, place in zip(branch.meant, branch.places, strict=True):
            done = made.get(commit.number)
            difference = done and _difference_of_commit(name, done, commit, branch.shown[place], branches)
            if difference:
                return difference
    return None


def _aligned(
    name: str,
    known: Collection[str],
    actors: Collection[str],
    serial: Serial,
    meant: Sequence[Commit],
    shown: Chain,
) -> _Branch | Difference:
    """Which commit is whose, and that nobody has made more of them than he may."""
    more = len(shown) - len(meant)
    if more < 0:
        return Difference(f"the branch '{name}' has {len(shown)} commits, and there should be {len(meant)}")
    made = {done.commit.number: done for done in serial.done if done.commit is not None}
    places = _places([made.get(commit.number) for commit in meant], shown, actors)
    if places is None:
        wanted = ", ".join(str(made[commit.number].call) for commit in meant if commit.number in made)
        return Difference(f"the commits on '{name}' do not name the actors of the {wanted}", ("LIN-14",))
    extra = [shown[place] for place in range(len(shown)) if place not in places]
    extra = [each for each in extra if each["graph_commit_id"] not in known]
    others = [each for each in extra if each.get("actor_id") != RECOVERY_ACTOR]
    for each in others:
        if each.get("actor_id") in actors:
            return Difference(f"the branch '{name}' has a commit by {each['actor_id']!r} more than were made")
    if more > len(extra) or len(others) > _maintained(serial):
        return Difference(f"the branch '{name}' has {more} commits more than were made")
    return _Branch(meant, shown, places)


def _maintained(serial: Serial) -> int:
    """Maintenance publishes each table by itself [OPT-01]: nothing of it makes more commits than there are tables."""
    assert serial.model is not None
    publishing = set(MAINTENANCE) - set(_RECOVERING)
    return sum(done.call.step["do"] in publishing for done in serial.done) * len(serial.model.schema.types)


def _places(made: Sequence[Done | None], shown: Chain, actors: Collection[str], start: int = 0) -> list[int] | None:
    """Where the commits of some calls, and those that were there before, stand in a chain, in their order."""
    if not made:
        return []
    for place in range(start, len(shown) - len(made) + 1):
        if _fits(made[0], shown[place], actors):
            rest = _places(made[1:], shown, actors, place + 1)
            if rest is not None:
                return [place, *rest]
        if made[0] is None:
            return None  # What was there before comes first, and nothing in between.
    return None


def _fits(done: Done | None, commit: Mapping[str, Any], actors: Collection[str]) -> bool:
    """Whether a commit can be that of a call: the one that it was answered, or one by its actor or by recovery."""
    if done is None:
        return True
    answer = done.call.ending.answer
    answered = answer.get("commit") if was_acknowledged(done.call) and isinstance(answer, Mapping) else None
    if answered is not None:
        return bool(commit["graph_commit_id"] == answered["graph_commit_id"])
    actor, named = done.call.step.get("actor"), commit.get("actor_id")
    return named not in actors if actor is None else named in (actor, RECOVERY_ACTOR)


def _difference_of_commit(
    name: str, done: Done, commit: Commit, shown: Mapping[str, Any], branches: Mapping[str, _Branch]
) -> Difference | None:
    actor, named = done.call.step.get("actor"), shown.get("actor_id")
    if actor is not None and named not in (actor, RECOVERY_ACTOR):
        return Difference(f"the commit of the {done.call} on '{name}' names the actor {named!r}", ("LIN-14",))
    merged = shown.get("merged_parent_commit_id")
    if len(commit.parents) < 2:
        words = f"the commit of the {done.call} on '{name}' is no merge, and names the merged parent {merged}"
        return None if merged is None else Difference(words, ("LIN-09",))
    source = branches.get(str(done.call.step.get("source")))
    heads = source.ids_of(commit.parents[1]) if source is not None else set()
    if merged is None or (heads and merged not in heads):
        words = f"the commit of the {done.call} on '{name}' names the merged parent {merged}, and not "
        return Difference(words + (" or ".join(sorted(heads)) or "any"), ("LIN-09",))
    return None
