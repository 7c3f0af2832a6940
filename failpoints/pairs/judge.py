"""The judge of a pair: whether what a graph shows is one of the serial orders that the endings allow.

`see` takes down everything that an engine shows; `decide` holds it against the model, and is pure. The order of two
commits of one branch is also the order of its chain, so a graph that looks right in the wrong order is not right.

    both acknowledged      the graph is what one of the two orders makes of it            [PUB-01, PUB-07]
    one refused            nothing of it is there [PUB-23], and if it was refused as anything but a conflict, the
                           other lane has made the state that says so
    both refused           nothing has changed: allowed, and counted apart
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.adapters import EngineError
from conformance.judge import Handle, RequirementBroken
from conformance.judge.blame import operation_of
from conformance.judge.compare import first_difference
from conformance.model import Model
from failpoints.pairs.lineage import difference_of_lineage
from failpoints.pairs.orders import Call, Serial, serial_orders, unknown, was_acknowledged, was_refused
from failpoints.steps import MAIN
from failpoints.world import Difference

Lanes = Sequence[Sequence[Call]]


@dataclass(frozen=True)
class Shown:
    """A branch as an engine shows it: its rows, its tables, and its commits, the oldest first."""

    export: str = field(repr=False)
    tables: frozenset[str]
    commits: tuple[Mapping[str, Any], ...] = field(repr=False)

    @property
    def ids(self) -> list[str]:
        return [commit["graph_commit_id"] for commit in self.commits]


Seen = Mapping[str, Shown]


@dataclass(frozen=True)
class Decision:
    """The order that was found, and the graph in that order, with everything in it that only the engine decides."""

    serial: Serial
    model: Model | None = field(repr=False)


def see(handle: Handle, what: str) -> dict[str, Shown]:
    """Everything that an engine shows of a graph, branch by branch."""
    try:
        names = handle.branch_list() if handle.engine.supports("branch_list") else [MAIN]
        return {name: _shown(handle, name) for name in names}
    except EngineError as error:
        raise RequirementBroken(("PUB-21",), f"{what} the graph cannot be read: {error}") from error


def _shown(handle: Handle, branch: str) -> Shown:
    tables = frozenset(table["table_key"] for table in handle.snapshot(branch)["tables"])
    return Shown(handle.export(branch), tables, tuple(handle.commits(branch)))


def decide(model: Model | None, lanes: Lanes, seen: Seen | None, what: str) -> Decision:
    """The serial order that the engine shows; `RequirementBroken` if there is none. `seen` is None without a graph."""
    if seen is not None:
        for branch, shown in seen.items():
            _judge_chain(branch, shown, what)
    found, differences = _found(model, lanes, seen)
    if found is None:
        raise _explained(model, lanes, seen, what, differences)
    return found


def _found(model: Model | None, lanes: Lanes, seen: Seen | None) -> tuple[Decision | None, list[Difference]]:
    differences = []
    actors = {str(call.step["actor"]) for lane in lanes for call in lane if call.step.get("actor") is not None}
    for serial in serial_orders(model, lanes):
        difference, told = _difference(model, serial, actors, seen)
        if difference is None:
            return Decision(serial, told), []
        differences.append(replace(difference, words=f"as {serial.order or 'neither'}, {difference.words}"))
    return None, list(dict.fromkeys(differences))


def _judge_chain(branch: str, shown: Shown, what: str) -> None:
    """One linear chain: each commit's parent is the one before it, and none is there twice [LIN-06, PUB-08]."""
    before: Mapping[str, Any] | None = None
    for commit in shown.commits:
        parent = commit.get("parent_commit_id")
        expected = None if before is None else before["graph_commit_id"]
        if parent != expected:
            because = f"on '{branch}' the parent of commit {commit['graph_commit_id']} is {parent}, not {expected}"
            raise RequirementBroken(("LIN-06", "PUB-08"), f"{what} {because}")
        before = commit
    if len(set(shown.ids)) < len(shown.ids):
        raise RequirementBroken(("PUB-09", "LIN-06"), f"{what} the branch '{branch}' has a commit twice")


# -- one order against what is there ---------------------------------------------------------------------------------


def _difference(
    before: Model | None, serial: Serial, actors: Collection[str], seen: Seen | None
) -> tuple[Difference | None, Model | None]:
    """Where an engine shows something else than an order, and the model with the ids that the engine gave."""
    if serial.model is None or seen is None:
        same = serial.model is None and seen is None
        return None if same else Difference(f"there is {'no' if seen is None else 'a'} graph"), None
    model = serial.model.copy()
    words = _difference_of_rows(model, seen) or _difference_of_answers(serial, seen)
    if words is not None:
        return Difference(words), None
    chains = {name: shown.commits for name, shown in seen.items()}
    difference = difference_of_lineage(_ids_of(before), actors, serial, model, chains)
    if difference is None:
        _learn(model, seen)
    return difference, model


def _difference_of_rows(model: Model, seen: Seen) -> str | None:
    """The branches, and the rows and tables of each; the model learns the ids of rows."""
    if sorted(seen) != model.branch_list():
        return f"there are the branches {sorted(seen)}, and not {model.branch_list()}"
    for branch, shown in seen.items():
        model.learn_ids(branch, shown.export)
        difference = first_difference(shown.export, model.export(branch))
        if difference is not None:
            return f"on the branch '{branch}' {difference}"
        if shown.tables != model.schema.types.keys():
            other = sorted(shown.tables ^ model.schema.types.keys())
            return f"the branch '{branch}' has other tables: {', '.join(other)}"
    return None


def _difference_of_answers(serial: Serial, seen: Seen) -> str | None:
    """An acknowledged call names its commit, which is in the chain, and commits are in the order of the calls."""
    places: dict[str, list[int]] = {}
    for number, done in enumerate(serial.done):
        if not was_acknowledged(done.call) or done.call.step["do"] not in ("load", "mutate", "merge", "schema_apply"):
            continue
        answer = done.call.ending.answer
        commit = answer.get("commit") if isinstance(answer, Mapping) else None
        if (commit is None) != (done.commit is None):
            words = "no commit, and it makes one" if commit is None else "a commit, and it makes none"
            return f"the {done.call} names {words}"
        later = serial.done[number + 1 :]
        if commit is None or any(ends_branch(each.call, done.branch) for each in later):
            continue
        if commit["graph_commit_id"] not in seen[done.branch].ids:
            return f"the commit of the {done.call} is not on '{done.branch}'"
        places.setdefault(done.branch, []).append(seen[done.branch].ids.index(commit["graph_commit_id"]))
    return next(
        (f"the commits on '{name}' stand the other way" for name, at in places.items() if at != sorted(at)), None
    )


def ends_branch(call: Call, branch: str) -> bool:
    return (call.step["do"], call.step.get("name")) == ("branch_delete", branch)


def _ids_of(model: Model | None) -> set[str]:
    if model is None:
        return set()
    return {commit.commit_id for name in model.branch_list() for commit in model.commits(name)}


def _learn(model: Model, seen: Seen) -> None:
    """Give the model every commit that there is, by the name that the engine has for it."""
    for branch, shown in seen.items():
        for _ in range(len(shown.commits) - len(model.commits(branch))):
            model.maintain(branch)
        for mine, commit in zip(model.commits(branch), shown.commits, strict=True):
            model.identify(mine, commit["graph_commit_id"], commit["manifest_version"], commit["created_at"])


# -- in words ----------------------------------------------------------------------------------------------------------


def _explained(
    model: Model | None, lanes: Lanes, seen: Seen | None, what: str, differences: Sequence[Difference]
) -> RequirementBroken:
    """What an engine has done instead, where that can be found out: which call is lost, or there although refused."""
    ends = "; ".join(f"the {call} was {call.ending}" for lane in lanes for call in lane)
    for suspect in (call for lane in lanes for call in lane if was_acknowledged(call) or was_refused(call)):
        forgiven = [[unknown(call) if call is suspect else call for call in lane] for lane in lanes]
        found, _ = _found(model, forgiven, seen)
        if found is None:
            continue
        is_there = unknown(suspect) in [done.call for done in found.serial.done]
        blamed = operation_of(suspect.step["do"], suspect.step)
        if was_refused(suspect) and is_there:
            # The graph is one that it may be, and only the answer is wrong.
            return RequirementBroken(("PUB-23",), f"{what} the {suspect} was refused, and is there. {ends}")
        if was_acknowledged(suspect) and not is_there:
            return RequirementBroken(("PUB-07", "PUB-20", blamed), f"{what} the {suspect} is lost. {ends}")
    by_itself = next((each for each in differences if each.ids), None)
    if by_itself is not None:
        # The rows are those of an order, and only what its commits say is wrong.
        return RequirementBroken(by_itself.ids, f"{what} {by_itself.words}. {ends}")
    orders = "; ".join(each.words for each in differences[:3]) or "no order of them is allowed by the model"
    return RequirementBroken(("PUB-01", "PUB-07"), f"{what} the graph is in no serial order: {orders}. {ends}")
