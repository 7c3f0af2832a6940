"""One spot of the matrix, tried: arm the name, let the subject come to it, and judge what it left.

A trial has two halves, because they belong to different processes: `stop` has a driver of its own come to the name,
and `Stopped.judged` has another, which has never seen the graph, recover it and judge. Any time may pass between them,
and some should: an engine may take a fresh sidecar for that of a writer which is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.adapters import AdapterFault, EngineError
from conformance.judge import Engine, Handle, RequirementBroken
from conformance.judge.blame import operation_of
from conformance.judge.graph import DEFINITE
from failpoints.matrix.crew import Crew
from failpoints.matrix.live import joined, judge_going_on
from failpoints.matrix.meeting import meeting
from failpoints.matrix.spots import KILL, Spot, SpotResult, word_of
from failpoints.matrix.subjects import Ready, Subject
from failpoints.oracle import Scene, judge, judge_init, look
from failpoints.steps import ask
from failpoints.world import ACKNOWLEDGED, REFUSED, UNKNOWN, Ending, the_one, worlds_after
from failpoints.writers import SCHEMA

_DEATHS = ("exited_mid_request", "exited_between_requests")


@dataclass(frozen=True)
class Came:
    """How far a subject came: how it ended for whoever asked, and the handle that it has.

    `refusals` counts the errors on the way: an open that was refused is asked for once more.
    """

    ending: Ending
    handle: Handle | None = None
    died: bool = False
    refusals: int = 0


@dataclass(frozen=True)
class Stopped:
    """A subject that was stopped at a spot, and is to be judged by another process."""

    spot: Spot
    ready: Ready
    came: Came
    scene: Scene | None
    reached: bool

    def judged(self, engine: Engine) -> SpotResult:
        """What has become of it, by an engine that has never seen the graph."""
        return _result(self.spot, self.reached, self.came.ending, lambda: self._judge(engine))

    def _judge(self, engine: Engine) -> str:
        if self.spot.action == KILL and not self.came.died:
            _refuse_refusals(self.spot, self.ready, self.came)
            return ""  # Never reached, and acknowledged: that is for the suites to judge.
        return _judged(engine, self.ready, self.came.ending, self.scene, str(self.spot))


def stop(crew: Crew, subject: Subject, spot: Spot) -> Stopped | SpotResult:
    """Prepare the subject's graph, and let the subject come to the spot.

    Where a process has to live on, or to be looked at while it stands still, the judgement is part of it.
    """
    ready = subject.prepare(crew.builder, crew.fresh_root(), crew.env)
    match spot.action:
        case "kill":
            with crew.armed(f"{spot.name}=kill") as engine:
                came = _come(engine, ready)
            return _stopped(spot, ready, came, came.died)
        case "error":
            with crew.armed(f"{spot.name}=error*1") as engine:
                came = _come(engine, ready)
            return _stopped(spot, ready, came, came.refusals > 0)
        case "go-on":
            with crew.armed(f"{spot.name}=error*1") as engine:
                came = _come(engine, ready)
                return _result(spot, came.refusals > 0, came.ending, lambda: _go_on(engine, ready, came, str(spot)))
        case "pause":
            return _hold(crew, ready, spot)


def _stopped(spot: Spot, ready: Ready, came: Came, reached: bool) -> Stopped | SpotResult:
    try:
        return Stopped(spot, ready, came, _look(ready), reached)
    except RequirementBroken as broken:
        return SpotResult(spot, reached, came.ending.kind, wrong=(broken.ids, broken.because))


def _come(engine: Engine, ready: Ready) -> Came:
    """Let the subject do what it does, to its end or to its death."""
    refusals = 0
    try:
        try:
            handle = _begun(engine, ready)
        except EngineError as error:
            if ready.does != "step":
                return Came(_refused(error), refusals=1)
            refusals = 1
            handle = _begun(engine, ready)
        if handle is None or ready.does != "step":
            return Came(Ending(ACKNOWLEDGED), handle, refusals=refusals)
        try:
            return Came(Ending(ACKNOWLEDGED, ask(handle, ready.before.step)), handle, refusals=refusals)
        except EngineError as error:
            return Came(_refused(error), handle, refusals=refusals + 1)
    except AdapterFault as fault:
        if fault.reason not in _DEATHS:
            raise
        return Came(Ending(UNKNOWN, error=fault.message), died=True, refusals=refusals)


def _begun(engine: Engine, ready: Ready) -> Handle | None:
    if ready.does == "init":
        engine.init(ready.before.uri, SCHEMA)
        return None
    return engine.open(ready.before.uri)


def _refused(error: EngineError) -> Ending:
    return Ending(REFUSED if error.kind in DEFINITE else UNKNOWN, error=str(error))


def _look(ready: Ready) -> Scene | None:
    """What is there now, and what an open had found to recover."""
    if ready.does == "init":
        return None
    scene = look(ready.before)
    return scene if ready.pending is None else joined(ready.pending, scene)


# -- judging -----------------------------------------------------------------------------------------------------------


def _result(spot: Spot, reached: bool, ending: Ending, judgement: Callable[[], str]) -> SpotResult:
    try:
        return SpotResult(spot, reached, ending.kind, judgement())
    except RequirementBroken as broken:
        return SpotResult(spot, reached, ending.kind, wrong=(broken.ids, broken.because))


def _refuse_refusals(spot: Spot, ready: Ready, came: Came) -> None:
    """A subject that never came to the name has nothing to be refused for."""
    if came.ending.kind != ACKNOWLEDGED:
        step = ready.before.step
        ids = ("SCH-16",) if ready.does == "init" else (operation_of(step["do"], step),)
        raise RequirementBroken(ids, f"{spot.writer} never came to {spot.name}, and ended {came.ending}")


def _judged(engine: Engine, ready: Ready, ending: Ending, scene: Scene | None, what: str) -> str:
    """The oracle of the subject, by whichever engine."""
    if scene is None:
        return judge_init(engine, ready.before.uri, ready.before.env, SCHEMA, ending, what).name
    if ready.pending is None:
        return word_of(judge(engine, ready.before, scene, ending, what))
    # The step died with its writer. Whatever the open that recovers it was told says nothing about it.
    outcome = judge(engine, ready.before, scene, Ending(UNKNOWN), what)
    if engine.supports("recoveries") and outcome.kinds != (ready.kind,):
        because = f"after {what} ({scene}) the audit says {outcome.kinds}, and should: {ready.kind}"
        raise RequirementBroken(("REC-04" if ready.kind == "RolledBack" else "REC-05", "REC-18"), because)
    return word_of(outcome)


def _go_on(engine: Engine, ready: Ready, came: Came, what: str) -> str:
    """The process that has failed is asked for more."""
    scene = _look(ready)
    if came.handle is None or ready.does != "step" or scene is None:
        return _judged(engine, ready, came.ending, scene, f"{what} in the same process")
    return word_of(judge_going_on(came.handle, ready.before, scene, came.ending, what))


# -- standing still ----------------------------------------------------------------------------------------------------


def _hold(crew: Crew, ready: Ready, spot: Spot) -> SpotResult:
    """While the subject stands still another process reads, or, where it recovers, recovers as well [REC-19]."""
    came: list[Came] = []
    with meeting() as place, crew.armed(f"{spot.name}={place.action}") as engine:
        arrived = place.begin(lambda: came.append(_come(engine, ready)))

        def meanwhile() -> str:
            if arrived and ready.does != "init":
                _look_on(crew.judge, ready, f"{spot}")
            place.end()
            _refuse_refusals(spot, ready, came[0])
            return _judged(crew.judge, ready, came[0].ending, _look(ready), str(spot)) if arrived else ""

        result = _result(spot, arrived, Ending(ACKNOWLEDGED), meanwhile)
    return result


def _look_on(engine: Engine, ready: Ready, what: str) -> None:
    is_recovery = ready.does == "open"
    ids = ("REC-19",) if is_recovery else ("PUB-01",)
    try:
        handle = engine.open(ready.before.uri, read_only=None if is_recovery else True)
    except EngineError as error:
        raise RequirementBroken(
            ids, f"while {what} stands still, another process cannot open the graph: {error}"
        ) from error
    the_one(
        handle,
        worlds_after(ready.before.model, ready.before.step, Ending(UNKNOWN)),
        f"{what}, and before it goes on",
        ids,
    )
    handle.close()
