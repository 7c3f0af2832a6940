"""The recovery oracle: what must be true of a graph after a writer died, and after whoever opens it has recovered it.

    before = Before.of(handle, uri, env, model, step)      # while the writer lives
    …                                                      # it dies
    scene = look(before)                                   # what it left, from the bytes alone
    outcome = judge(engine, before, scene, ending)         # open, and everything below

    1. a read-write open works                                                  [REC-05, SCH-17, SCH-18]
    2. every branch is what it was, or what the step makes of it; what was published or acknowledged is there [PUB-01]
    3. no sidecar is left, and every pin is the HEAD of its table: the auditor finds no error       [REC-04, PUB-21]
    4. exactly one audit row says what became of each operation, and of the right kind              [REC-05, REC-14]
    5. a second open finds nothing to do and changes no byte                                        [REC-18, REC-20]
    6. a step that did not happen can be done again, and a further write works on every branch      [REC-23]

Nothing here knows how the writer died: by a cut at the storage, by a named failpoint, or by a signal.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.adapters import EngineError
from conformance.audit import GraphUnreadable, audit
from conformance.audit.names import LOCK_BRANCH, RECOVERY_ACTOR, RECOVERY_DIR
from conformance.judge import Engine, Handle, RequirementBroken
from conformance.judge.blame import operation_of
from conformance.model import Model
from failpoints.steps import MAIN, MAINTENANCE, Step, ask, branch_of
from failpoints.world import ACKNOWLEDGED, Ending, World, the_one, worlds_after
from failpoints.writers import PEOPLE, follow_up
from fixtures.forge import Forge, ForgeError

FORWARD: Final = "RolledForward"
BACK: Final = "RolledBack"
DISCARDED: Final = "OrphanedBranchDiscarded"
SCHEMA_REQUIREMENTS: Final = ("SCH-17", "SCH-18")


@dataclass(frozen=True)
class Before:
    """A graph at rest, and the step that somebody is about to die in.

    `heads` is how many commits each branch has that are no recovery's, and `commits` how many the step makes when
    nobody dies.
    """

    uri: str
    env: Mapping[str, str] = field(repr=False)
    model: Model = field(repr=False)
    step: Step
    heads: Mapping[str, int]
    recoveries: frozenset[str]
    commits: int = 1

    @classmethod
    def of(cls, handle: Handle, uri: str, env: Mapping[str, str], model: Model, step: Step) -> Before:
        heads = {
            branch: sum(commit.get("actor_id") != RECOVERY_ACTOR for commit in handle.commits(branch))
            for branch in model.branch_list()
        }
        known = frozenset(row["operation_id"] for row in rows_of(handle))
        return cls(uri, env, model, step, heads, known)

    @property
    def branch(self) -> str:
        return branch_of(self.step)

    @property
    def is_schema_apply(self) -> bool:
        return bool(self.step["do"] == "schema_apply")


@dataclass(frozen=True)
class Scene:
    """What a dead writer left: whether its publish is there, its sidecars, which of them had moved a HEAD, and which of
    them are of a branch that does not exist."""

    published: bool
    sidecars: Mapping[str, Mapping[str, Any]]
    moved: frozenset[str]
    locked: bool
    orphaned: frozenset[str] = frozenset()

    def __str__(self) -> str:
        parts = ["published" if self.published else "not published"]
        for operation, body in self.sidecars.items():
            state = "HEADs moved" if operation in self.moved else "no HEAD moved"
            parts.append(f"a {body.get('writer_kind')} sidecar, {state}")
        if self.locked:
            parts.append("the schema lock taken")
        return ", ".join(parts)


@dataclass(frozen=True)
class Outcome:
    """What became of it: the world that the graph is in now, and the kinds of the new audit rows."""

    world: World
    kinds: tuple[str, ...]
    scene: Scene


def rows_of(handle: Handle) -> list[dict[str, Any]]:
    """The audit rows, where an engine can list them."""
    return handle.recoveries() if handle.engine.supports("recoveries") else []


def look(before: Before) -> Scene:
    """Read what is there, without an engine."""
    forge = Forge(before.uri, dict(before.env))
    sidecars = {}
    for name, content in forge.sidecars().items():
        try:
            body = json.loads(content)
        except ValueError:
            body = {}
        sidecars[name.removeprefix(f"{RECOVERY_DIR}/").removesuffix(".json")] = body
    moved = frozenset(
        operation
        for operation, body in sidecars.items()
        if any(_has_moved(forge, pin) for pin in body.get("tables", ()))
    )
    branches = forge.branches()
    orphaned = frozenset(
        operation for operation, body in sidecars.items() if body.get("branch") not in (None, MAIN, *branches)
    )
    return Scene(_published(forge, before, branches), sidecars, moved, LOCK_BRANCH in branches, orphaned)


def _has_moved(forge: Forge, pin: Mapping[str, Any]) -> bool:
    try:
        head = int(forge.storage(pin["table_key"], pin.get("table_branch")).version)
    except (ForgeError, KeyError):
        return False
    return head > int(pin["expected_version"])


def _published(forge: Forge, before: Before, branches: Sequence[str]) -> bool:
    match before.step["do"]:
        case "branch_create":
            return before.step["name"] in branches
        case "branch_delete":
            return before.step["name"] not in branches
    if before.branch not in (MAIN, *branches):
        return False
    return before.commits > 0 and commits_since(forge, before) >= before.commits


def commits_since(forge: Forge, before: Before) -> int:
    """How many commits the branch of the step has got since, from the bytes.

    Those of a recovery do not count: one may be a roll-back, and does not say that the step is there.
    """
    manifest = forge.decoded(None if before.branch == MAIN else before.branch)
    commits = sum(commit.actor != RECOVERY_ACTOR for commit in manifest.commits.values())
    return commits - before.heads.get(before.branch, before.heads[MAIN])


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
    kinds = _judge_rows(handle, before, scene, world, what)
    judge_bytes(before.uri, before.env, f"after {what}", "REC-18")
    judge_second_open(engine, handle, before.uri, before.env, f"after {what}").close()
    _judge_follow_up(handle, before, _judge_retry(handle, before, scene, world, what), what)
    return Outcome(world, kinds, scene)


def judge_init(engine: Engine, uri: str, env: Mapping[str, str], schema: str, ending: Ending, what: str) -> World:
    """After an init that died: the graph is there and empty, or it can be made, by force if need be [SCH-16]."""
    model = Model.from_source(schema)
    name, refusal = "new", ""
    try:
        handle = engine.open(uri)
    except EngineError as error:
        if ending.kind == ACKNOWLEDGED:
            raise RequirementBroken(("SCH-16",), f"after {what} the graph cannot be opened: {error}") from error
        name, refusal = "old", str(error)
        handle = _made_again(engine, uri, schema, f"{what} and an open that was refused ({refusal})")
    first = handle.commits(MAIN)[0]
    model.identify(model.head(), first["graph_commit_id"], first["manifest_version"], first["created_at"])
    the_one(handle, [World(name, model)], what, ("SCH-16",))
    before = Before(uri, env, model, {"do": "open"}, {MAIN: 1}, frozenset())
    judge_bytes(before.uri, before.env, f"after {what}", "REC-18")
    handle = judge_second_open(engine, handle, before.uri, before.env, f"after {what}")
    answer = _done(handle, before, PEOPLE, f"{what}, a first load", ("SCH-16",), None)
    worlds = worlds_after(model, PEOPLE, Ending(ACKNOWLEDGED, answer))
    the_one(handle, worlds, f"{what}, and a first load", ("SCH-16",))
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


def _world(handle: Handle, before: Before, scene: Scene, ending: Ending, what: str, ids: tuple[str, ...]) -> World:
    worlds = worlds_after(before.model, before.step, ending)
    if scene.published and before.step["do"] not in MAINTENANCE:
        worlds = [world for world in worlds if world.name == "new"] or worlds
        ids = ("PUB-01", *ids)
    elif ending.kind == ACKNOWLEDGED:
        ids = ("PUB-14", *ids)
    return the_one(handle, worlds, what, ids)


def _judge_rows(handle: Handle, before: Before, scene: Scene, world: World, what: str) -> tuple[str, ...]:
    """One audit row for each operation that recovery decided on, of the kind that the graph shows."""
    left = list(Forge(before.uri, dict(before.env)).sidecars())
    if left:
        raise RequirementBroken(("REC-05",), f"after {what} and a read-write open there still is {left[0]}")
    if not handle.engine.supports("recoveries"):
        return ()
    new = [row for row in rows_of(handle) if row["operation_id"] not in before.recoveries]
    for operation, times in Counter(row["operation_id"] for row in new).items():
        if times > 1:
            raise RequirementBroken(("REC-14", "REC-18"), f"after {what} {times} audit rows tell of {operation}")
        if operation not in scene.sidecars:
            because = f"after {what} an audit row tells of {operation}, of which there was no sidecar"
            raise RequirementBroken(("REC-20",), because)
    told = {row["operation_id"]: row["recovery_kind"] for row in new}
    for operation in scene.sidecars:
        wanted = _kinds_allowed(before, scene, world, operation)
        if told.get(operation) not in wanted:
            words = " or ".join("no audit row" if each is None else each for each in wanted)
            because = f"after {what} ({scene}; the graph is in its {world.name} state) the audit says "
            raise RequirementBroken(("REC-05", "REC-14"), f"{because}{told.get(operation)!r}, and should: {words}")
    return tuple(told.values())


def _kinds_allowed(before: Before, scene: Scene, world: World, operation: str) -> tuple[str | None, ...]:
    if operation in scene.orphaned:
        return (DISCARDED,)
    if before.step["do"] in MAINTENANCE:
        if scene.published:
            return (FORWARD,)
        return (FORWARD, BACK) if operation in scene.moved else (FORWARD, BACK, None)
    if world.name == "new":
        return (FORWARD,)
    return (BACK,) if operation in scene.moved else (BACK, None)


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

    The graph is open again when this returns.
    """
    forge = Forge(uri, dict(env))
    handle.close()
    before = forge.listing()
    try:
        again = engine.open(uri)
    except EngineError as error:
        raise RequirementBroken(("REC-18",), f"{what} a second open is refused: {error}") from error
    if again.recovered:
        raise RequirementBroken(("REC-18",), f"{what} a second open recovers again: {list(again.recovered)}")
    now = forge.listing()
    if now != before:
        changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
        raise RequirementBroken(("REC-18", "REC-20"), f"{what} a second open changes {', '.join(changed[:5])}")
    return again


def _judge_retry(handle: Handle, before: Before, scene: Scene, world: World, what: str) -> World:
    """What did not happen is done again, and now it does."""
    handle = handle.engine.open(before.uri)
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
    )
    handle.close()
    return found


def _judge_follow_up(handle: Handle, before: Before, world: World, what: str) -> None:
    handle = handle.engine.open(before.uri)
    for number, branch in enumerate(world.model.branch_list()):
        step = follow_up(number, branch)
        answer = _done(handle, before, step, f"{what}, a write on '{branch}'", ("PUB-21",), None)
        worlds = worlds_after(world.model, step, Ending(ACKNOWLEDGED, answer))
        world = the_one(handle, worlds, f"{what}, and a write on '{branch}'", (operation_of(step["do"], step),))
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
