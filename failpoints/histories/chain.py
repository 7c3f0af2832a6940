"""The commit chains of a history: one line per branch, and for each commit the call that made it.

Nothing here knows what the rows are. A chain must be a line; a commit must be somebody's; whoever was told of a commit
must find it, once, under its own name; and whoever was refused must not find one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from conformance.audit.names import RECOVERY_ACTOR
from failpoints.histories.record import MAIN, Commit, Done, History
from failpoints.histories.steps import branch_of
from failpoints.histories.telling import Telling
from failpoints.steps import MAINTENANCE

Maker = Literal["genesis", "call", "recovery", "maintenance"]


@dataclass(frozen=True)
class Link:
    """A commit at its place on the branch that it was made on."""

    branch: str
    position: int
    commit: Commit
    maker: Maker
    done: Done | None = None

    @property
    def commit_id(self) -> str:
        return str(self.commit["graph_commit_id"])

    @property
    def merged(self) -> str | None:
        found: str | None = self.commit.get("merged_parent_commit_id")
        return found


@dataclass(frozen=True)
class Chains:
    """Every commit once, in an order in which each comes after its parents, and where each branch begins."""

    links: tuple[Link, ...]
    forks: Mapping[str, str]


def read_chains(history: History, telling: Telling) -> Chains:
    """Look at all chains as lines of commits of known calls; raises `Contradicted`."""
    for branch, commits in history.chains.items():
        _one_line(branch, commits, telling)
    forks = {branch: _fork(branch, history, telling) for branch in history.chains if branch != MAIN}
    links = _links(history, telling)
    _answers_hold(history, links, telling)
    return Chains(tuple(_parents_first(links, forks, telling)), forks)


def _id(commit: Commit) -> str:
    return str(commit["graph_commit_id"])


def branch_of_commit(commit: Commit) -> str:
    return str(commit.get("manifest_branch") or MAIN)


def _one_line(branch: str, commits: Sequence[Commit], telling: Telling) -> None:
    doubled = [commit_id for commit_id, times in Counter(map(_id, commits)).items() if times > 1]
    if doubled:
        raise telling.broke(("LIN-02",), f"the chain of '{branch}' has the commit {doubled[0]} more than once")
    if not commits or commits[0].get("parent_commit_id") is not None:
        raise telling.broke(("LIN-08",), f"the chain of '{branch}' does not begin with a commit without parent")
    for before, commit in zip(commits, commits[1:], strict=False):
        parent = commit.get("parent_commit_id")
        if parent == _id(before):
            continue
        siblings = [each for each in commits if each.get("parent_commit_id") == parent and each is not commit]
        this = telling.commit(commit)
        if siblings:
            because = (
                f"the chain of '{branch}' is forked: {telling.commit(siblings[0])} and {this} have the parent {parent}"
            )
        else:
            because = f"on '{branch}' {this} follows {telling.commit(before)}, and names {parent} as its parent"
        concerned = [each.get("actor_id") for each in (*(siblings or (before,)), commit)]
        raise telling.broke(("LIN-06", "PUB-08"), because, concerned)


def _fork(branch: str, history: History, telling: Telling) -> str:
    """The commit at which a branch begins: the last of those that it shares with its source [LIN-07]."""
    commits = history.chains[branch]
    shared = [commit for commit in commits if branch_of_commit(commit) != branch]
    if not shared or [_id(commit) for commit in commits[: len(shared)]] != [_id(commit) for commit in shared]:
        raise telling.broke(("LIN-07",), f"the chain of '{branch}' does not begin with the commits of its source")
    source = history.chains.get(branch_of_commit(shared[-1]), ())
    if [_id(commit) for commit in source[: len(shared)]] != [_id(commit) for commit in shared]:
        because = f"the first {len(shared)} commits of '{branch}' are not those of the branch that it was made from"
        raise telling.broke(("LIN-07",), because)
    return _id(shared[-1])


# -- whose is it -------------------------------------------------------------------------------------------------------


def _links(history: History, telling: Telling) -> list[Link]:
    calls = {done.actor: done for done in history.calls}
    maintained = any(_may_have_maintained(done) for done in history.calls)
    _refuse_more_maintenance(history, telling)
    found: list[Link] = []
    for branch, commits in history.chains.items():
        for position, commit in enumerate(commits):
            if branch_of_commit(commit) == branch:
                found.append(_link(branch, position, commit, calls, maintained, telling))
    made = Counter(link.done.actor for link in found if link.done is not None)
    for actor, times in made.items():
        if times > 1:
            because = f"the call {actor} was made once, and {times} commits carry its name"
            raise telling.broke(("LIN-02", "PUB-09"), because, [actor])
    return found


def _refuse_more_maintenance(history: History, telling: Telling) -> None:
    """Each call of maintenance makes at most one commit for each type of the schema."""
    calls = sum(_may_have_maintained(done) for done in history.calls)
    types = sum(line.startswith(("node ", "edge ")) for line in history.schema.splitlines())
    nobodys = {
        _id(commit) for commits in history.chains.values() for commit in commits[1:] if commit.get("actor_id") is None
    }
    if len(nobodys) > calls * types:
        because = f"{len(nobodys)} commits are of nobody, and {calls} calls of maintenance can make {calls * types}"
        raise telling.broke(("LIN-02", "LIN-14"), because)


def _may_have_maintained(done: Done) -> bool:
    """Maintenance publishes table by table [OPT-01]: one that met a conflict may have published those before it."""
    met_conflict = done.outcome.answer.get("kind") == "conflict"
    return done.step["do"] in MAINTENANCE and (done.outcome.verdict != "refused" or met_conflict)


def _link(
    branch: str, position: int, commit: Commit, calls: Mapping[str, Done], maintained: bool, telling: Telling
) -> Link:
    actor = commit.get("actor_id")
    if position == 0 and actor is None:
        return Link(branch, position, commit, "genesis")
    if actor == RECOVERY_ACTOR:
        return Link(branch, position, commit, "recovery")
    if actor is None and maintained:
        return Link(branch, position, commit, "maintenance")
    if actor is None or actor not in calls:
        who = f"'{actor}', and no call has that name" if actor else "nobody"
        raise telling.broke(("LIN-02", "LIN-14"), f"commit number {position} on '{branch}', {_id(commit)}, is of {who}")
    done = calls[actor]
    if done.outcome.verdict in ("refused", "passed over"):
        because = f"the call {actor} was refused, and its commit {_id(commit)} is on '{branch}'"
        raise telling.broke(("PUB-23",), because, [actor])
    if branch_of(done.step) != branch:
        because = f"the commit of {actor} is on '{branch}', and was asked for on '{branch_of(done.step)}'"
        raise telling.broke(("BRA-08",), because, [actor])
    if done.step["do"] != "merge" and commit.get("merged_parent_commit_id") is not None:
        raise telling.broke(("LIN-09",), f"the commit of {actor} has a merged parent, and is no merge", [actor])
    return Link(branch, position, commit, "call", done)


def _answers_hold(history: History, links: Sequence[Link], telling: Telling) -> None:
    """Whoever was told of a commit finds that very commit, under its name or, after a recovery, under recovery's."""
    by_id = {link.commit_id: link for link in links}
    by_actor = {link.done.actor: link for link in links if link.done is not None}
    told: dict[str, str] = {}
    for done in history.calls:
        commit, own = done.outcome.commit, by_actor.get(done.actor)
        if done.outcome.verdict != "ok" or branch_of(done.step) is None:
            continue
        if commit is None:
            if own is not None:
                because = f"the call {done.actor} was told that it changed nothing, and has the commit {own.commit_id}"
                raise telling.broke(("LIN-03",), because, [done.actor])
            continue
        link = by_id.get(_id(commit))
        if link is None and own is not None:
            because = f"the call {done.actor} was told of the commit {_id(commit)}, and its commit is {own.commit_id}"
            raise telling.broke(("PUB-09",), because, [done.actor])
        if link is None:
            because = f"the commit {_id(commit)} of {done.actor} was acknowledged, and is in no chain"
            raise telling.broke(("PUB-20", "LIN-02"), because, [done.actor, *_around(history, links, done)])
        _same_commit(done, link, telling)
        if _id(commit) in told:
            because = f"the calls {told[_id(commit)]} and {done.actor} were both told of the commit {_id(commit)}"
            raise telling.broke(("LIN-02", "PUB-22"), because, [told[_id(commit)], done.actor])
        told[_id(commit)] = done.actor


def _same_commit(done: Done, link: Link, telling: Telling) -> None:
    answered = done.outcome.commit or {}
    if link.maker != "recovery" and (link.done is None or link.done.actor != done.actor):
        because = f"the commit of {done.actor}, {link.commit_id}, carries the actor {link.commit.get('actor_id')!r}"
        raise telling.broke(("LIN-14",), because, [done.actor])
    if link.branch != branch_of(done.step):
        because = f"the commit of {done.actor} is on '{link.branch}', and was asked for on '{branch_of(done.step)}'"
        raise telling.broke(("BRA-08",), because, [done.actor])
    names = ("parent_commit_id", "merged_parent_commit_id", "manifest_version", "actor_id", "created_at")
    for name in names:
        if answered.get(name) != link.commit.get(name):
            because = (
                f"the answer to {done.actor} says {name} {answered.get(name)!r} of its commit {link.commit_id}, "
                f"and the chain says {link.commit.get(name)!r}"
            )
            raise telling.broke(("LIN-01", "PUB-14"), because, [done.actor])


def _around(history: History, links: Sequence[Link], lost: Done) -> Iterator[str]:
    """Who has the place in the chain that a lost commit claimed: those with the same parent or version."""
    claimed = lost.outcome.commit or {}
    for link in links:
        same_parent = link.commit.get("parent_commit_id") == claimed.get("parent_commit_id")
        same_version = link.commit.get("manifest_version") == claimed.get("manifest_version")
        if link.branch == branch_of(lost.step) and (same_parent or same_version) and link.done is not None:
            yield link.done.actor


# -- order -------------------------------------------------------------------------------------------------------------


def _parents_first(links: Sequence[Link], forks: Mapping[str, str], telling: Telling) -> Iterator[Link]:
    """All commits, each after its parents and after the commit at which its branch begins."""
    waiting = {branch: [link for link in links if link.branch == branch] for branch in {link.branch for link in links}}
    seen: set[str] = set()
    while any(waiting.values()):
        ready = [
            queue[0]
            for branch, queue in sorted(waiting.items())
            if queue and {queue[0].merged, forks.get(branch)} - {None} <= seen
        ]
        if not ready:
            stuck = next(queue[0] for queue in waiting.values() if queue)
            because = (
                f"the commit {telling.commit(stuck.commit)} has the merged parent {stuck.merged}, which is nowhere"
            )
            raise telling.broke(("LIN-09",), because, [stuck.commit.get("actor_id")])
        for link in ready:
            waiting[link.branch].pop(0)
            seen.add(link.commit_id)
            yield link
