"""The recovery oracle: what must be true of a graph after a writer died, and after whoever opens it has recovered it.

    before = Before.of(handle, uri, env, model, step)      # while the writer lives
    …                                                      # it dies
    scene = look(before)                                   # what it left, from the bytes alone
    judge_reader(reader, before, scene, ending, what)      # what somebody finds who only reads
    outcome = judge(engine, before, scene, ending, what)   # open, and everything below

    1. a read-write open works                                                  [REC-05, SCH-17, SCH-18]
    2. every branch is what it was, or what the step makes of it; what was published or acknowledged is there [PUB-01],
       and what the step began with can still be read at its commit                                       [SNP-07]
    3. no sidecar is left, and every pin is the HEAD of its table: the auditor finds no error       [REC-04, PUB-21]
    4. exactly one audit row says what became of each operation (`audit_rows`)                      [REC-05, REC-14]
    5. a second open finds nothing to do and changes no byte                                        [REC-18, REC-20]
    6. a step that did not happen can be done again, a branch that was deleted can be made again, and a further write
       works on every table of every branch                                               [REC-23, BRA-14, PUB-21]

Nothing here knows how the writer died: by a cut at the storage, by a named failpoint, or by a signal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.adapters import EngineError, Unsupported
from conformance.audit import GraphUnreadable, audit
from conformance.judge import Engine, Handle, RequirementBroken
from conformance.judge.blame import operation_of
from conformance.judge.compare import first_difference
from conformance.model import Model
from failpoints.audit_rows import BACK, DISCARDED, FORWARD, judge_rows
from failpoints.gate.roles import place_of
from failpoints.scene import Before, Scene, commits_since, look, rows_of
from failpoints.steps import MAIN, MAINTENANCE, Step, ask, branch_of
from failpoints.world import (
    ACKNOWLEDGED,
    COMMITTING,
    REFUSED,
    Ending,
    World,
    exports_of,
    the_one,
    worlds_after,
)
from failpoints.writers import PEOPLE, follow_up
from fixtures.forge import Forge, Stat

__all__ = [
    "BACK",
    "DISCARDED",
    "FORWARD",
    "Before",
    "Outcome",
    "Scene",
    "commits_since",
    "judge",
    "judge_bytes",
    "judge_init",
    "judge_reader",
    "judge_second_open",
    "look",
    "rows_of",
]

SCHEMA_REQUIREMENTS: Final = ("SCH-17", "SCH-18")
# What an open that has nothing to do leaves as it is, at once: new objects of these would be commits and recoveries.
_LASTING: Final = ("manifest", "table", "audit", "sidecar", "schema file")


@dataclass(frozen=True)
class Outcome:
    """What became of it: the world that the graph is in now, and the kinds of the audit rows of what was pending."""

    world: World
    kinds: tuple[str, ...]
    scene: Scene


def judge_reader(
    engine: Engine,
    before: Before,
    scene: Scene,
    ending: Ending,
    what: str,
    *,
    recovering: bool = False,
    may_be_locked: bool = False,
) -> bool:
    """Somebody who only reads finds one state or the other, whole, before anybody has recovered anything [SNP-09].

    Returns whether the step is in it: from then on it must stay. Of what has no commit nobody sees anything, unless a
    recovery was at it (`recovering`, or the writer's own). A reader may be refused while a schema is half applied or a
    branch half made, and then main is there nevertheless. What was acknowledged is not half done, and holds no lock;
    `may_be_locked` says that the store has refused to let go of it.
    """
    if ending.kind == ACKNOWLEDGED and scene.locked and not may_be_locked:
        raise RequirementBroken(
            ("SCH-17",), f"{what}, and what was acknowledged still holds the lock of a schema apply"
        )
    worlds = _worlds(before, scene, ending)
    if not (scene.commits or recovering or scene.settled) and before.step["do"] in COMMITTING:
        worlds = [world for world in worlds if world.name != "new"] or worlds
    ids = ("SCH-18",) if before.is_schema_apply else ("PUB-01", "SNP-09")
    try:
        reader = engine.open(before.uri, read_only=True)
        if reader.recovered:
            because = f"after {what} a read-only open recovers: {list(reader.recovered)}"
            raise RequirementBroken(("REC-21", "SNP-09"), because)
        found = the_one(
            reader,
            worlds,
            f"{what}, for somebody who only reads",
            ids,
            exports=exports_of(reader),
            recoveries_max=_recoveries_max(scene),
        )
    except Unsupported:
        return False  # It opens to write and not otherwise, and so there is nobody who only reads.
    except EngineError as error:
        _judge_refused_reader(engine, before, ending, what, error)
        return False
    return found.name == "new" and before.step["do"] not in MAINTENANCE


def _judge_refused_reader(engine: Engine, before: Before, ending: Ending, what: str, error: EngineError) -> None:
    step, ids = before.step, ("SNP-09", "PUB-01")
    if ending.kind == ACKNOWLEDGED:
        because = f"after {what} it is acknowledged, and somebody who only reads is refused: {error}"
        raise RequirementBroken(("SCH-18", *ids) if before.is_schema_apply else ids, because) from error
    if before.is_schema_apply:
        return
    makes_branch = step["do"] == "load" and branch_of(step) not in before.model.branch_list()
    if step["do"] not in ("branch_create", "branch_delete") and not makes_branch:
        raise RequirementBroken(ids, f"after {what} somebody who only reads is refused: {error}") from error
    try:
        main = engine.open(before.uri, read_only=True).export(MAIN)
    except EngineError as second:
        raise RequirementBroken(ids, f"after {what} nobody can read main: {second}") from second
    difference = first_difference(main, before.model.export(MAIN))
    if difference is not None:
        raise RequirementBroken(ids, f"after {what}, for somebody who only reads, main is another: {difference}")


def judge(
    engine: Engine,
    before: Before,
    scene: Scene,
    ending: Ending,
    what: str,
    *,
    opened: Callable[[], object] = lambda: None,
) -> Outcome:
    """Recover, and look at everything; `RequirementBroken` says what does not hold.

    `opened` is called when the open that recovers is done.
    """
    ids = SCHEMA_REQUIREMENTS if before.is_schema_apply else ("REC-18",)
    handle = _opened(engine, before, f"{what}, a read-write open", ids)
    opened()
    world = _world(handle, before, scene, ending, what, ids)
    _judge_past(handle, before, what)
    kinds = judge_rows(handle, before, scene, world, what)
    judge_bytes(before.uri, before.env, f"after {what}", "REC-18")
    handle = judge_second_open(engine, handle, before.uri, before.env, f"after {what}")
    done = _judge_retry(handle, before, scene, world, what)
    _judge_follow_up(engine.open(before.uri), before, done, what)
    return Outcome(world, kinds, scene)


def _judge_past(handle: Handle, before: Before, what: str) -> None:
    """What the step began with can still be read: neither a crash nor a recovery touches the past [SNP-07].

    A cleanup may have removed it, and so may a schema apply that loses data.
    """
    branch = before.branch if before.branch in before.model.branch_list() else MAIN
    then = before.model.head(branch).commit_id
    if before.step["do"] == "cleanup" or before.step.get("allow_data_loss"):
        return
    state = before.model.state(branch)
    key = max(state, key=lambda each: len(state[each]))
    try:
        found = handle.read(key, commit=then)
    except Unsupported:
        return  # Not every engine shows every table as it was.
    except EngineError as error:
        because = f"after {what} the commit {then} that it began with cannot be read any more: {error}"
        raise RequirementBroken(("SNP-07",), because) from error
    if sorted(found, key=str) != sorted(before.model.read(key, commit=then), key=str):
        because = f"after {what} the table '{key}' at the commit {then} that it began with has other rows: {found[:3]}"
        raise RequirementBroken(("SNP-07",), because)


def judge_init(engine: Engine, uri: str, env: Mapping[str, str], schema: str, ending: Ending, what: str) -> World:
    """After an init that died: the graph is there and empty, or it can be made, by force if need be [SCH-16].

    One that was refused for good has made none: whoever hears "there is one already" of their own graph would go away.
    """
    model = Model.from_source(schema)
    name, refusal = "new", ""
    try:
        handle = engine.open(uri)
        if ending.kind == REFUSED:
            because = f"after {what} there is a graph all the same, and it opens"
            raise RequirementBroken(("SCH-16", "PUB-23"), because)
    except EngineError as error:
        if ending.kind == ACKNOWLEDGED:
            raise RequirementBroken(("SCH-16",), f"after {what} the graph cannot be opened: {error}") from error
        name, refusal = "old", str(error)
        handle = _made_again(engine, uri, schema, f"{what} and an open that was refused ({refusal})")
    first = handle.commits(MAIN)[0]
    model.identify(model.head(), first["graph_commit_id"], first["manifest_version"], first["created_at"])
    the_one(handle, [World(name, model)], what, ("SCH-16",), recoveries_max=0)
    before = Before(uri, env, model, {"do": "open"}, {MAIN: 1}, frozenset())
    judge_bytes(before.uri, before.env, f"after {what}", "REC-18")
    handle = judge_second_open(engine, handle, before.uri, before.env, f"after {what}")
    answer = _done(handle, before, PEOPLE, f"{what}, a first load", ("SCH-16",), None)
    worlds = worlds_after(model, PEOPLE, Ending(ACKNOWLEDGED, answer))
    the_one(handle, worlds, f"{what}, and a first load", ("SCH-16",), recoveries_max=0)
    return World(name, model)


def _made_again(engine: Engine, uri: str, schema: str, what: str) -> Handle:
    for force in (None, True):
        try:
            engine.init(uri, schema, force=force)
            return engine.open(uri)
        except EngineError as error:
            refusal = error
    raise RequirementBroken(("SCH-16",), f"after {what} it cannot be made again, not even by force: {refusal}")


def _opened(engine: Engine, before: Before, what: str, ids: tuple[str, ...]) -> Handle:
    try:
        return engine.open(before.uri)
    except EngineError as error:
        raise RequirementBroken(ids, f"after {what} is refused: {error}") from error


def _worlds(before: Before, scene: Scene, ending: Ending) -> list[World]:
    """What the graph may be: what was published is there."""
    worlds = worlds_after(before.model, before.step, ending)
    if scene.published and before.step["do"] not in MAINTENANCE:
        return [world for world in worlds if world.name == "new"] or worlds
    return worlds


def _world(handle: Handle, before: Before, scene: Scene, ending: Ending, what: str, ids: tuple[str, ...]) -> World:
    if scene.published and before.step["do"] not in MAINTENANCE:
        ids = ("PUB-01", *ids)
    elif ending.kind == ACKNOWLEDGED:
        ids = ("PUB-14", *ids)
    return the_one(handle, _worlds(before, scene, ending), what, ids, recoveries_max=_recoveries_max(scene))


def _recoveries_max(scene: Scene) -> int:
    """One commit for each operation, and one more where its row could not be written after it [REC-14]."""
    return 2 * len(scene.sidecars.keys() | scene.settled.keys())


def judge_bytes(uri: str, env: Mapping[str, str], what: str, unreadable: str) -> None:
    """The auditor finds no error; `unreadable` is the requirement that a graph breaks that it cannot read at all."""
    try:
        errors = audit(uri, dict(env)).of("error")
    except GraphUnreadable as error:
        raise RequirementBroken((unreadable,), f"{what} the auditor can read no graph: {error}") from error
    if errors:
        ids = tuple(sorted({finding.requirement for finding in errors}))
        words = "; ".join(f"{finding.where}: {finding.message}" for finding in errors[:3])
        raise RequirementBroken(ids, f"{what} the auditor finds in the bytes: {words}")


def judge_second_open(engine: Engine, handle: Handle, uri: str, env: Mapping[str, str], what: str) -> Handle:
    """Once a graph was opened and closed, opening it finds nothing to do and changes no object [REC-18, REC-20].

    Compared is what is there before an open and after its close: what an engine keeps while a graph is open, such as
    a lease, is its own affair. What changes once and belongs to no commit, such as a removal that was still under way,
    is let pass; what changes at every open is not. The graph is open again when this returns.
    """
    forge = Forge(uri, dict(env))
    handle.close()
    before = forge.listing()
    for is_last in (False, True):
        _opened_again(engine, uri, what).close()
        now = forge.listing()
        changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
        if changed and (is_last or any(_is_lasting(name, now) for name in changed)):
            raise RequirementBroken(("REC-18", "REC-20"), f"{what} a second open changes {', '.join(changed[:5])}")
        if not changed:
            break
        before = now
    return _opened_again(engine, uri, what)


def _opened_again(engine: Engine, uri: str, what: str) -> Handle:
    try:
        again = engine.open(uri)
    except EngineError as error:
        raise RequirementBroken(("REC-18",), f"{what} a second open is refused: {error}") from error
    if again.recovered:
        raise RequirementBroken(("REC-18",), f"{what} a second open recovers again: {list(again.recovered)}")
    return again


def _is_lasting(name: str, now: Mapping[str, Stat]) -> bool:
    """Whether an object is there that only a write or a recovery makes."""
    return name in now and place_of(name).role.startswith(_LASTING)


def _judge_retry(handle: Handle, before: Before, scene: Scene, world: World, what: str) -> World:
    """What did not happen is done again, and now it does. The handle is closed then."""
    if world.name == "new" and before.step["do"] not in MAINTENANCE:
        handle.close()
        return world
    ids = SCHEMA_REQUIREMENTS if before.is_schema_apply else ("REC-23",)
    answer = _done(handle, before, before.step, f"{what}, the same step again", ids, scene)
    found = the_one(
        handle,
        worlds_after(world.model, before.step, Ending(ACKNOWLEDGED, answer)),
        f"{what}, and the same step again",
        ids,
        recoveries_max=0,
    )
    handle.close()
    return found


def _judge_follow_up(handle: Handle, before: Before, world: World, what: str) -> None:
    """Every table of every branch takes a further write, also of a branch that is made anew after it was deleted."""
    if before.step["do"] == "branch_delete":
        again: Step = {"do": "branch_create", "name": before.step["name"], "source": MAIN}
        then = f"{what}, the branch made again"
        answer = _done(handle, before, again, then, ("BRA-14",), None)
        worlds = worlds_after(world.model, again, Ending(ACKNOWLEDGED, answer))
        world = the_one(handle, worlds, then, ("BRA-14",), recoveries_max=0)
    ids = ("BRA-10", "BRA-14", "PUB-21") if before.step["do"] == "branch_delete" else ("PUB-21",)
    for number, branch in enumerate(world.model.branch_list()):
        step = follow_up(number, branch, world.model.schema)
        answer = _done(handle, before, step, f"{what}, a write on '{branch}'", ids, None)
        worlds = worlds_after(world.model, step, Ending(ACKNOWLEDGED, answer))
        then, blamed = f"{what}, and a write on '{branch}'", (operation_of(step["do"], step),)
        world = the_one(handle, worlds, then, blamed, recoveries_max=0)
    handle.close()


def _done(handle: Handle, before: Before, step: Step, what: str, ids: tuple[str, ...], scene: Scene | None) -> Any:
    """Do a step that must work. A lock that nobody holds may need an operator's `repair` first [SCH-17]."""
    try:
        return ask(handle, step)
    except EngineError as error:
        if scene is not None and scene.locked and handle.engine.supports("repair"):
            return _after_repair(handle, lambda: ask(handle, step), what, ids, error)
        raise RequirementBroken(ids, f"after {what} is refused: {error}") from error


def _after_repair(handle: Handle, again: Callable[[], Any], what: str, ids: tuple[str, ...], first: EngineError) -> Any:
    try:
        handle.repair(confirm=True)
        return again()
    except EngineError as error:
        because = f"after {what} is refused ({first}), and after a repair still: {error}"
        raise RequirementBroken(ids, because) from error
