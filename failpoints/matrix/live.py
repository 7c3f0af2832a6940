"""The judge of a process that has failed and lives: the handle that it has must be of use, or say why it is not.

1. it reads a state that the graph may be in                                                   [REC-06, PUB-01]
2. the next write works, and what was cut is forward with it or gone; or it is refused in a typed way, which it may
   be only while something is pending that a read-write open has to decide on                  [REC-06, REC-07]
3. in both cases a read-write open of the same process finds everything that the oracle asks for
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from conformance.adapters import AdapterFault, EngineError
from conformance.judge import Handle, RequirementBroken
from failpoints.oracle import BACK, FORWARD, Before, Outcome, Scene, judge, look
from failpoints.steps import MAIN, MAINTENANCE, Step, ask, branch_of, mean
from failpoints.world import ACKNOWLEDGED, Ending, World, the_one, worlds_after
from failpoints.writers import follow_up

IDS: Final = ("REC-06", "REC-07")
# Of the writes that follow, the oracle's own are numbered from 0.
_NUMBER: Final = 90


def judge_going_on(handle: Handle, before: Before, scene: Scene, ending: Ending, what: str) -> Outcome:
    """Go on with a handle whose step ended so, and left `scene`."""
    worlds = worlds_after(before.model, before.step, ending)
    found = the_one(handle, worlds, f"{what}, on the same handle", ("PUB-01", *IDS))
    branch = before.branch if before.branch in found.model.branch_list() else MAIN
    step = follow_up(_NUMBER, branch)
    try:
        answer = ask(handle, step)
    except EngineError as error:
        if not (scene.sidecars or scene.locked):
            because = f"after {what} nothing is pending, and a write on the same handle is refused: {error}"
            raise RequirementBroken(("REC-03", *IDS), because) from error
        return judge(handle.engine, before, joined(scene, look(before)), ending, f"{what}, and a refused write")
    except AdapterFault as fault:
        raise RequirementBroken(IDS, f"after {what} a write on the same handle ends the process: {fault}") from fault
    done = Ending(ACKNOWLEDGED, answer)
    # What was read is decided, but for what was not there yet: the write may have brought it forward.
    undecided = [] if found.name == "new" else [world for world in worlds if world.name != found.name]
    after = [each for world in (found, *undecided) for each in _on_top(handle, world, step, done)]
    now = the_one(handle, after, f"{what}, and a write on the same handle", ("PUB-14", *IDS))
    return _judge_reopened(handle, before, scene, now, what)


def _on_top(handle: Handle, world: World, step: Step, done: Ending) -> list[World]:
    """What the graph is when a further step was done after the one whose end is open."""
    model = world.model
    if world.step is not None:
        meaning, branch = mean(model, world.step), branch_of(world.step)
        model = meaning.model
        if meaning.commit is not None and branch in handle.branch_list():
            for commit in handle.commits(branch)[len(model.commits(branch)) - 1 :][:1]:
                named = (commit["graph_commit_id"], commit["manifest_version"], commit["created_at"])
                model.identify(meaning.commit, *named)
    if branch_of(step) not in model.branch_list():
        return []
    return [replace(each, name=world.name) for each in worlds_after(model, step, done)]


def _judge_reopened(handle: Handle, before: Before, scene: Scene, world: World, what: str) -> Outcome:
    """All that the oracle asks for, of a graph in which the cut step and a further one have their place."""
    rest = Before.of(handle, before.uri, before.env, world.model, {"do": "refresh"})
    rest = replace(rest, recoveries=before.recoveries, commits=0)
    seen = joined(scene, look(rest))
    outcome = judge(handle.engine, rest, seen, Ending(ACKNOWLEDGED), f"{what}, and a write on the same handle")
    is_decided = before.step["do"] not in MAINTENANCE
    wanted = FORWARD if world.name == "new" else BACK
    if is_decided and any(kind in (FORWARD, BACK) and kind != wanted for kind in outcome.kinds):
        because = f"after {what} the graph is in its {world.name} state, and the audit says {', '.join(outcome.kinds)}"
        raise RequirementBroken(("REC-05", "REC-14"), because)
    return Outcome(world, outcome.kinds, scene)


def joined(first: Scene, later: Scene) -> Scene:
    """What there was to be recovered at any time; whether it is published is what the first look says.

    What was pending at the first look is not settled by whoever came later: that was recovery, and is judged as such.
    """
    settled = {operation: row for operation, row in later.settled.items() if operation not in first.sidecars}
    return replace(
        first,
        sidecars={**first.sidecars, **later.sidecars},
        moved=first.moved | later.moved,
        orphaned=first.orphaned | later.orphaned,
        locked=first.locked or later.locked,
        settled={**first.settled, **settled},
    )
