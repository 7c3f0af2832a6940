"""Worlds: what a graph may be after a step whose end nobody knows, and which of these it turns out to be.

A step that was acknowledged has happened. One that was refused for good has not. One that was cut off, or ended in an
error that leaves it open, has happened whole or not at all [PUB-01, PUB-23]. So there are at most two worlds, and the
engine's answers must be those of one of them.

Every publish is one commit [LIN-02], so nobody's commits are counted too: only maintenance makes those that change no
row, one for each table at most [OPT-01], and recovery makes its own only where there was something to recover [REC-20].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.audit.names import RECOVERY_ACTOR
from conformance.judge import Engine, Handle, RequirementBroken
from conformance.judge.blame import operation_of
from conformance.judge.compare import first_difference
from conformance.judge.graph import DEFINITE
from conformance.model import Model, Refusal
from conformance.model.merge import Commit
from failpoints.steps import MAIN, Meaning, Step, ask, branch_of, mean

ACKNOWLEDGED: Final = "acknowledged"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"
# Steps whose answer names their commit, if they make one.
COMMITTING: Final = ("load", "mutate", "merge", "schema_apply")
# Steps that publish without changing a row, each table by itself.
UPKEEP: Final = ("optimize", "ensure_indices", "repair")


# The commits of each branch, as an engine lists them.
Chains = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Ending:
    """How a step ended for whoever asked for it."""

    kind: str
    answer: Any = None
    error: str | None = None
    # Whether the engine gave no answer at all: it broke down, or was killed.
    broke: bool = False

    def __str__(self) -> str:
        return self.kind if self.error is None else f"{self.kind} ({self.error})"


@dataclass(frozen=True)
class Difference:
    """Why the engine does not show a world, and the requirement that this breaks, where it is one by itself."""

    words: str
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class World:
    """One thing that the graph may be: as it was, or with a step done to it. `commit_id` is the step's, if known.

    `asked` is the step that somebody has asked for, also where it has not happened.
    """

    name: str
    model: Model
    step: Step | None = None
    commit_id: str | None = None
    asked: Step | None = None

    def upkeep_max(self, branch: str) -> int:
        """How many commits in nobody's name, that change no row, the step may have made on a branch."""
        if self.asked is None or self.asked["do"] not in UPKEEP or branch != branch_of(self.asked):
            return 0
        return len(self.model.schema.types)


def attempt(handle: Handle, step: Step) -> Ending:
    """Ask for a step, and say how it ended."""
    return ending_of(lambda: ask(handle, step))


def attempt_init(engine: Engine, uri: str, schema: str) -> Ending:
    """Ask for a new graph, and say how that ended."""
    return ending_of(lambda: engine.init(uri, schema))


def ending_of(call: Callable[[], Any]) -> Ending:
    """How a call ended for whoever made it."""
    try:
        return Ending(ACKNOWLEDGED, call())
    except EngineError as error:
        return Ending(REFUSED if error.kind in DEFINITE else UNKNOWN, error=str(error))
    except AdapterFault as fault:
        if fault.reason == "gave_up":
            raise  # The engine may have died, or the driver in its place: this is neither.
        return Ending(UNKNOWN, error=fault.message, broke=True)


def worlds_after(model: Model, step: Step, ending: Ending) -> list[World]:
    """What a graph may be after a step that ended so; the old world first."""
    try:
        meaning = mean(model, step)
    except Refusal as refusal:
        if ending.kind == ACKNOWLEDGED:
            because = f"{step['do']} was done, and should be refused as {refusal.kind}: {refusal.message}"
            raise RequirementBroken((operation_of(step["do"], step),), because) from None
        return [World("old", model, asked=step)]
    match ending.kind:
        case "acknowledged":
            commit_id = _commit_id(ending.answer)
            if step["do"] in COMMITTING and (commit_id is None) != (meaning.commit is None):
                because = f"{step['do']} answered {'no' if commit_id is None else 'a'} commit, and it makes "
                raise RequirementBroken(("LIN-02", "LIN-03"), because + ("none" if meaning.commit is None else "one"))
            return [World("new", model, step, commit_id, asked=step)]
        case "refused":
            return [World("old", model, asked=step), *_half(model, step)]
    return [World("old", model, asked=step), World("new", model, step, asked=step), *_half(model, step)]


def _commit_id(answer: Any) -> str | None:
    commit = answer.get("commit") if isinstance(answer, dict) else None
    return None if commit is None else str(commit["graph_commit_id"])


def _half(model: Model, step: Step) -> list[World]:
    """A load that makes its branch is two operations, and the first may have happened alone [LOD-12]."""
    if step["do"] != "load" or step.get("base") is None or branch_of(step) in model.branch_list():
        return []
    return [World("half", model, {"do": "branch_create", "name": branch_of(step), "source": step["base"]})]


def the_one(
    handle: Handle,
    worlds: Sequence[World],
    what: str,
    ids: tuple[str, ...],
    *,
    exports: dict[str, str] | None = None,
    recoveries_max: int | None = None,
) -> World:
    """The world that the engine shows, with everything in it that only the engine could decide, and no step left.

    `exports` are those of its branches, where somebody has asked for them a moment ago. `recoveries_max` is how many
    commits recovery can have made; None where nobody has looked what there was to recover.
    """
    if exports is None:
        exports = exported(handle, what, ids)
    differences = []
    for world in worlds:
        found = _compared(handle, world, exports, recoveries_max)
        if isinstance(found, Model):
            return World(world.name, found)
        differences.append(f"it is not the {world.name} state: {found.words}")
        ids = tuple(dict.fromkeys((*found.ids, *ids)))
    raise RequirementBroken(ids, f"after {what}, {'; and '.join(differences)}")


def exported(handle: Handle, what: str, ids: tuple[str, ...]) -> dict[str, str]:
    """The export of every branch, which nothing may stand in the way of."""
    try:
        return exports_of(handle)
    except EngineError as error:
        raise RequirementBroken(ids, f"after {what} the graph cannot be read: {error}") from error


def exports_of(handle: Handle) -> dict[str, str]:
    """The export of every branch."""
    names = handle.branch_list() if handle.engine.supports("branch_list") else [MAIN]
    return {name: handle.export(name) for name in names}


def _compared(handle: Handle, world: World, exports: dict[str, str], recoveries_max: int | None) -> Model | Difference:
    """The model of the world as the engine has named everything in it, or where the engine shows something else."""
    meaning = Meaning(world.model) if world.step is None else mean(world.model, world.step)
    words = _difference_of_rows(world, meaning, exports)
    if words is not None:
        return Difference(words)
    found = {branch: handle.commits(branch) for branch in exports}
    return _too_many_recoveries(world, found, recoveries_max) or _named(handle, world, meaning, exports, found)


def difference_of_rows(world: World, exports: dict[str, str]) -> str | None:
    """Where branches and rows are not those of a world; None where they are. Nothing is asked of the engine."""
    meaning = Meaning(world.model) if world.step is None else mean(world.model, world.step)
    return _difference_of_rows(world, meaning, exports)


def _difference_of_rows(world: World, meaning: Meaning, exports: dict[str, str]) -> str | None:
    model = meaning.model
    if sorted(exports) != model.branch_list():
        return f"there are the branches {sorted(exports)}, and not {model.branch_list()}"
    if meaning.commit is not None and world.step is not None:
        model.learn_ids(branch_of(world.step), exports[branch_of(world.step)])
    for branch, text in exports.items():
        difference = first_difference(text, model.export(branch))
        if difference is not None:
            return f"on the branch '{branch}' {difference}"
    return None


def _too_many_recoveries(world: World, found: Chains, recoveries_max: int | None) -> Difference | None:
    """Where recovery has made more commits than there was to recover. Branches share the commits of their past."""
    known = {commit.commit_id for branch in world.model.branch_list() for commit in world.model.commits(branch)}
    made = {
        commit["graph_commit_id"]
        for commits in found.values()
        for commit in commits
        if commit.get("actor_id") == RECOVERY_ACTOR
    }
    if recoveries_max is None or len(made - known) <= recoveries_max:
        return None
    words = f"there are {len(made - known)} new commits by {RECOVERY_ACTOR!r}, and there was "
    return Difference(words + ("not so much" if recoveries_max else "nothing") + " to recover", ("LIN-02", "REC-20"))


def _named(
    handle: Handle, world: World, meaning: Meaning, exports: dict[str, str], found: Chains
) -> Model | Difference:
    """The same model, with the engine's names for the commits: the step's own, and those that change no row."""
    if meaning.commit is None or world.step is None:
        return _maintained(world, meaning.model, found)
    branch, source = branch_of(world.step), _source(world, world.step)
    new = found[branch][len(world.model.commits(source)) :]
    if not new:
        return Difference(f"the branch '{branch}' has {len(found[branch])} commits, and none of them is the step's")
    if world.commit_id is not None and world.commit_id not in [commit["graph_commit_id"] for commit in new]:
        return Difference(f"the commit {world.commit_id}, which was answered, is not on the branch '{branch}'")
    place = _place(handle, world, meaning, new)
    others = [*new[:place], *new[place + 1 :]]
    foreign = [commit for commit in others if commit.get("actor_id") != RECOVERY_ACTOR]
    if foreign:
        words = f"the branch '{branch}' also has a commit by {foreign[0].get('actor_id')!r} that nobody has asked for"
        return Difference(words, ("LIN-02",))
    actor, named = world.step.get("actor"), new[place].get("actor_id")
    if actor is not None and named not in (actor, RECOVERY_ACTOR):
        return Difference(f"the commit of {actor!r} on the branch '{branch}' names the actor {named!r}", ("LIN-14",))
    model = world.model.copy()
    if place and source != branch:
        model.branch_create(branch, source)
    for commit in new[:place]:
        difference = _identify(model, model.maintain(branch), commit)
        if difference is not None:
            return difference
    done = mean(model, world.step)
    assert done.commit is not None
    done.model.learn_ids(branch, exports[branch])
    return _identify(done.model, done.commit, new[place]) or _maintained(world, done.model, found)


def _source(world: World, step: Step) -> str:
    """The branch from which the step's branch goes on: itself, or the one that it is made from."""
    branch = branch_of(step)
    return branch if branch in world.model.branch_list() else str(step.get("base") or MAIN)


def _place(handle: Handle, world: World, meaning: Meaning, new: list[dict[str, Any]]) -> int:
    """Which of the new commits is the step's: the one that it answered, or the first that shows its rows.

    Where an engine shows no rows of the past it is the first in the name of the step's actor, or else the first.
    """
    ids = [commit["graph_commit_id"] for commit in new]
    if world.commit_id in ids:
        return ids.index(world.commit_id)
    if len(new) == 1:
        return 0
    step = world.step or {}
    before, after = world.model.state(_source(world, step)), meaning.model.state(branch_of(step))
    changed = [key for key in after if after[key] != before.get(key)]
    last = {key: _read(handle, key, ids[-1]) for key in changed}
    if None in last.values():
        return next((place for place, each in enumerate(new) if each.get("actor_id") == step.get("actor")), 0)
    for place, commit_id in enumerate(ids):
        if all(_read(handle, key, commit_id) == last[key] for key in changed):
            return place
    return len(ids) - 1


def _read(handle: Handle, table_key: str, commit_id: str) -> list[dict[str, Any]] | None:
    """The rows of a table at a commit; None where the engine cannot show them."""
    try:
        return handle.read(table_key, commit=commit_id)
    except Unsupported:
        return None
    except EngineError:
        return []  # The table is not there yet at that commit, or not any more.


def _maintained(world: World, model: Model, found: Chains) -> Model | Difference:
    """The model with the commits that change no row: maintenance makes those in nobody's name, recovery in its own."""
    model = model.copy()
    for branch, commits in found.items():
        new = commits[len(model.commits(branch)) :]
        foreign = [commit for commit in new if commit.get("actor_id") != RECOVERY_ACTOR]
        upkeep_max = world.upkeep_max(branch)
        named = [commit for commit in foreign if commit.get("actor_id") is not None]
        if named or len(foreign) > upkeep_max:
            actor = named[0]["actor_id"] if named else None
            words = f"the branch '{branch}' has a commit by {actor!r} that is not in its rows"
            more = f", and {len(foreign)} such where there may be {upkeep_max}" if upkeep_max and not named else ""
            return Difference(words + more, ("LIN-02",))
        for commit in new:
            difference = _identify(model, model.maintain(branch), commit)
            if difference is not None:
                return difference
    return model


def _identify(model: Model, commit: Commit, engines: dict[str, Any]) -> Difference | None:
    """Give a commit the engine's name, if its parents are those that it should have."""
    meant = [parent.commit_id for parent in model.parents(commit)]
    recorded = [engines.get(name) for name in ("parent_commit_id", "merged_parent_commit_id")]
    if [each for each in recorded if each is not None] != meant:
        words = f"the parents of commit {engines['graph_commit_id']} are {recorded}, and should be {meant}"
        return Difference(words, ("LIN-09",) if len(meant) > 1 else ("LIN-06",))
    model.identify(commit, engines["graph_commit_id"], engines["manifest_version"], engines["created_at"])
    return None
