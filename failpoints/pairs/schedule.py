"""One schedule: a lane is held inside one of its storage requests, the other lane runs, and the first goes on.

    with Stage(bench, store, prepare(bench, store, pair)) as stage:    # the graph of a pair, built once
        requests = alone(stage, "first")                               # what a lane asks of the store, undisturbed
        result = run(stage, "first", hold)                             # one schedule, judged

A hold is found again by its verb, its role, its table and its number among those, and not by its place among all
requests: a client that sends some of them at once sends them in no fixed order. Three processes play: the two lanes,
and one that reads the graph while one of them is held, and looks at everything when both are done.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from conformance.adapters import AdapterFault
from conformance.judge import Handle, RequirementBroken
from failpoints.baseline import SetupFailed
from failpoints.gate import Exchange, Rule
from failpoints.pairs.gaps import Evidence, gap_of
from failpoints.pairs.glimpse import Glimpse, Named, glimpse, judge_glimpse, judge_kept
from failpoints.pairs.judge import ends_branch
from failpoints.pairs.orders import CONFLICT, CRASHED, Call, Serial, unknown, was_acknowledged, was_refused
from failpoints.pairs.pairs import SIDES, WITHOUT_A_HANDLE, Pair, Side
from failpoints.pairs.rest import judge_at_rest
from failpoints.pairs.stage import NoSuchMeeting, Stage, held_in
from failpoints.pairs.traces import trace_of
from failpoints.steps import Step, branch_of
from failpoints.world import ACKNOWLEDGED, UNKNOWN, Ending, attempt, attempt_init, exports_of

Verdict = Literal["ok", "gap", "wrong"]
Moment = Literal["before", "after"]
# How long a lane may stand still for the held one: a lease or a lock is waited for, and then the held one goes on. A
# lane that takes long by itself gets more.
PATIENCE_SECONDS = 4.0
PATIENCE_LANES: Final = 3
# How long a reader may take meanwhile. One that waits for writers is rare, so this may be long on a slow machine.
READER_SECONDS: Final = 20.0
# The only kind of error that may leave open whether a call has happened [PUB-23].
OUTCOME_PENDING: Final = "outcome_pending"
# What an adapter says of a call that was done, and of which it can see no more.
NOT_SEEN: Final = "storage/not_seen"


@dataclass(frozen=True)
class Hold:
    """A request to stand still in: the nth of its verb, role and table, and its place among all in a quiet run."""

    ordinal: int
    verb: str
    role: str
    nth: int
    when: Moment = "before"
    table: str = ""

    def __str__(self) -> str:
        if not self.verb:
            return "nowhere"
        where = f" of {self.table}" if self.table else ""
        return f"{self.when} request {self.ordinal} ({self.verb} {self.role}{where}, its {self.nth}.)"

    def rule(self, owner: str) -> Rule:
        tables = (self.table,) if self.table else ()
        return Rule(
            "hold", when=self.when, owner=owner, verbs=(self.verb,), roles=(self.role,), tables=tables, nth=self.nth
        )

    def as_json(self) -> dict[str, Any]:
        body = {"ordinal": self.ordinal, "verb": self.verb, "role": self.role, "nth": self.nth, "when": self.when}
        return {**body, "table": self.table}


# Of a result that needs no hold.
NOWHERE: Final = Hold(0, "", "", 0)


@dataclass(frozen=True)
class ScheduleResult:
    """What became of one schedule. `order` is A for the first lane and B for the second, as they took effect."""

    pair: str
    held: Side
    hold: Hold
    endings: Mapping[str, tuple[str, ...]]
    outcome: str
    order: str
    verdict: Verdict
    because: str
    ids: tuple[str, ...]
    gap: str | None
    reached: bool
    waited: bool
    seconds: float
    trace: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def accuses(self) -> bool:
        return self.verdict != "ok"


# -- running -----------------------------------------------------------------------------------------------------------


def alone(stage: Stage, side: Side) -> tuple[Exchange, ...]:
    """The requests of a lane that nobody disturbs, with its graph open before."""
    stage.begin()
    handle = _opened(stage, side)
    stage.crash()
    since = stage.bench.gate.mark()
    began = time.monotonic()
    calls = _done(handle, stage, side)
    stage.lane_seconds_max = max(stage.lane_seconds_max, time.monotonic() - began)
    for call in calls:
        if call.ending.kind == ACKNOWLEDGED:
            continue
        because = f"the {call} ended {call.ending}, and nobody was in its way"
        if call.step["do"] == "open" and stage.ground.dead:
            raise RequirementBroken(("REC-18",), because)
        if call.refused_as == CONFLICT and stage.ground.dead:
            if call.is_maintenance:
                continue  # It may wait for a recovery, and is held while it looks whether it must.
            raise NoSuchMeeting(because)
        raise SetupFailed(because)
    return stage.bench.gate.exchanges(stage.driver(side).owner, since)


def patience(stage: Stage) -> float:
    """How long a lane is waited for while the other one is held."""
    return max(PATIENCE_SECONDS, PATIENCE_LANES * stage.lane_seconds_max)


def holds_of(requests: Sequence[Exchange]) -> list[Hold]:
    """Every place to stand still in: before each request, and after each that can change the store."""
    counted: Counter[tuple[str, ...]] = Counter()
    holds = []
    for ordinal, each in enumerate(requests, 1):
        # A rule without a table is for all of them, so that is how those without one are counted.
        counted.update({(each.verb, each.role), (each.verb, each.role, each.table)})
        kind = (each.verb, each.role, each.table) if each.table else (each.verb, each.role)
        hold = Hold(ordinal, each.verb, each.role, counted[kind], table=each.table)
        holds.append(hold)
        if each.durable:
            holds.append(replace(hold, when="after"))
    return holds


def run(stage: Stage, held: Side, hold: Hold) -> ScheduleResult:
    """Run one schedule, and judge it."""
    started = time.monotonic()
    pair = stage.ground.pair
    what = f"{pair.name}, the {held} lane held {hold}:"
    stage.begin()
    mark = stage.bench.gate.mark()
    ran = _interleaved(stage, held, hold)
    exchanges = {side: stage.bench.gate.exchanges(stage.driver(side).owner, mark) for side in SIDES}
    order, broken, gap = "", _silent(stage, what), None
    if broken is None:
        try:
            order = _judge(stage, held, ran, what)
        except RequirementBroken as error:
            broken = error
            gap = gap_of(Evidence(pair, held, ran.at, exchanges), error.ids)
        except AdapterFault as fault:
            if fault.reason == "gave_up":
                raise
            stage.replace("reader")
            broken = RequirementBroken(("PUB-21",), f"{what} whoever looks at the graph breaks down: {fault.message}")
    verdict: Verdict = "ok" if broken is None else "wrong" if gap is None else "gap"
    result = ScheduleResult(
        pair=pair.name,
        held=held,
        hold=hold,
        endings={side: tuple(str(call.ending) for call in ran.calls[side]) for side in SIDES},
        outcome=_outcome(ran.calls),
        order=order,
        verdict=verdict,
        because="" if broken is None else broken.because,
        ids=() if broken is None else broken.ids,
        gap=gap,
        reached=ran.at is not None,
        waited=ran.waited,
        seconds=time.monotonic() - started,
    )
    return result if broken is None else replace(result, trace=trace_of(pair, result, exchanges))


def broken_before(pair: Pair, held: Side, broken: RequirementBroken) -> ScheduleResult:
    """A pair that breaks a requirement before anybody is held: in its set-up, or in a lane that is alone."""
    because = f"{pair.name}, with nobody in the way: {broken.because}"
    return ScheduleResult(
        pair.name, held, NOWHERE, {}, "alone", "", "wrong", because, broken.ids, None, True, False, 0.0
    )


@dataclass(frozen=True)
class _Ran:
    """How both lanes ended, the request that one of them was held in, and what a reader saw meanwhile."""

    handles: Mapping[Side, Handle]
    calls: Mapping[Side, tuple[Call, ...]]
    at: Exchange | None
    waited: bool
    glimpse: Glimpse | None


def _interleaved(stage: Stage, held: Side, hold: Hold) -> _Ran:
    other: Side = "second" if held == "first" else "first"
    handles = {side: _opened(stage, side) for side in (held, other)}
    reader = stage.driver("reader").engine
    stage.crash()
    armed = stage.bench.gate.arm(hold.rule(stage.driver(held).owner))
    with ThreadPoolExecutor(3) as threads:
        seen: Glimpse | None = None
        try:
            standing = threads.submit(_done, handles[held], stage, held)
            at = held_in(armed, standing)
            passing = threads.submit(_done, handles[other], stage, other)
            waited = not _ends_within(passing, patience(stage))
            if at is not None and not waited and stage.ground.model is not None:
                reading = threads.submit(glimpse, reader, stage.uri)
                # One who reads and waits for the held one may see more when that goes on: it has seen nothing for us.
                seen = reading.result() if _ends_within(reading, READER_SECONDS) else None
        finally:
            armed.disarm()
        return _Ran(handles, {held: standing.result(), other: passing.result()}, at, waited, seen)


def _opened(stage: Stage, side: Side) -> Handle:
    """The handle that a lane begins with: a graph that is open, or none that is."""
    engine = stage.driver(side).engine
    if stage.ground.pair.lane(side)[0]["do"] in WITHOUT_A_HANDLE:
        return Handle(engine, "")
    handle = engine.open(stage.uri)
    if stage.ground.pair.known:
        exports_of(handle)
    return handle


def _done(handle: Handle, stage: Stage, side: Side) -> tuple[Call, ...]:
    """Do the steps of a lane, whatever becomes of them."""
    steps = stage.ground.pair.lane(side)
    return tuple(Call(side, number, step, _attempted(handle, stage.uri, step)) for number, step in enumerate(steps))


def _attempted(handle: Handle, uri: str, step: Step) -> Ending:
    if step["do"] == "init":
        return attempt_init(handle.engine, uri, step["schema"])
    return attempt(handle, {**step, "uri": uri} if step["do"] == "open" else step)


def _ends_within(lane: Future[Any], seconds: float) -> bool:
    try:
        lane.exception(timeout=seconds)
    except TimeoutError:
        return False
    return True


def _crashed(pair: Pair) -> list[tuple[Call, ...]]:
    """The steps that somebody died in, each alone: nobody knows their end before the lanes begin."""
    return [(Call(CRASHED, number, step, Ending(UNKNOWN)),) for number, step in enumerate(pair.crash)]


# -- judging -----------------------------------------------------------------------------------------------------------


def _judge(stage: Stage, held: Side, ran: _Ran, what: str) -> str:
    """Everything that must hold of a schedule whose lanes came to their ends; the order that they took effect in."""
    pair, ground = stage.ground.pair, stage.ground
    dead = _crashed(pair)
    visible: frozenset[Named] = frozenset()
    if ran.glimpse is not None:
        if ran.glimpse.fault is not None:
            raise ran.glimpse.fault
        then = [ran.calls[side] if side != held else tuple(unknown(call) for call in ran.calls[side]) for side in SIDES]
        visible = judge_glimpse(ground.model, [*then, *dead], ran.glimpse, what)
    lanes = [ran.calls["first"], ran.calls["second"], *dead]
    engine = stage.driver("reader").engine
    witnesses = [handle for handle in ran.handles.values() if handle.name]
    decision = judge_at_rest(
        engine,
        stage.uri,
        ground.env,
        ground.model,
        lanes,
        what,
        witnesses=witnesses,
        follow=pair.follow,
        dead=ground.dead,
    )
    judge_kept(decision.serial, visible - _gone(lanes, decision.serial), what)
    _judge_endings(pair, lanes, what)
    return decision.serial.order


def _gone(lanes: Sequence[Sequence[Call]], serial: Serial) -> frozenset[Named]:
    """The calls whose branch somebody has deleted: whether they have been there before, no order can tell."""
    return frozenset(
        (str(call.step["do"]), call.lane, call.number)
        for lane in lanes
        for call in lane
        if any(ends_branch(done.call, branch_of(call.step)) for done in serial.done)
    )


def _silent(stage: Stage, what: str) -> RequirementBroken | None:
    """A process that died, or gave no answer in time: every call ends, whoever is in its way [PUB-21]."""
    broken = None
    for side in SIDES:
        try:
            stage.driver(side).engine.call("hello")
        except AdapterFault as fault:
            if fault.reason == "gave_up":
                raise
            stage.replace(side)
            broken = RequirementBroken(("PUB-21",), f"{what} the {side} lane came to no end: {fault.message}")
    return broken


def _judge_endings(pair: Pair, lanes: Sequence[Sequence[Call]], what: str) -> None:
    """Nothing has failed, so each call is done, refused, or left to a recovery; some must all be done."""
    for call in (call for lane in lanes for call in lane if call.lane in SIDES and not was_acknowledged(call)):
        if str(call.ending.error).startswith(NOT_SEEN):
            continue
        if pair.both:
            raise RequirementBroken(pair.both_ids, f"{what} neither may fail, and the {call} ended {call.ending}")
        if call.ending.kind == UNKNOWN and not str(call.ending.error).startswith(f"{OUTCOME_PENDING}/"):
            raise RequirementBroken(("PUB-21",), f"{what} no typed conflict is what the {call} ended in: {call.ending}")


def _outcome(calls: Mapping[Side, Sequence[Call]]) -> str:
    """What the two heard: `both done`, `one refused`, `both refused` or `unknown`."""
    if any(call.ending.kind == UNKNOWN for lane in calls.values() for call in lane):
        return "unknown"
    refused = sum(all(was_refused(call) for call in lane) for lane in calls.values())
    if refused == 2:
        return "both refused"
    return "one refused" if any(was_refused(call) for lane in calls.values() for call in lane) else "both done"
