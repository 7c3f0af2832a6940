"""One history from beginning to end: plan, opening, race, closing, the chain against the model, and the auditor.

`run_history` is what a command line needs. Its result holds the verdict, the counts, and for a failure a trace: one
JSON value with all that it takes to look at it, and to run the same plan again with `rerun`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from conformance.adapters import TIMEOUT_SECONDS, AdapterFault, EngineError, Unsupported
from conformance.audit import GraphUnreadable, audit
from conformance.judge import Handle
from conformance.model import Model
from failpoints.drivers import DIED
from failpoints.histories.check import Sound, check, counts
from failpoints.histories.plan import Plan, closing, make_plan
from failpoints.histories.record import MAIN, Done, History
from failpoints.histories.run import CannotOpen, Place, ask, new_clock, race
from failpoints.histories.telling import Contradiction, Line, Look
from failpoints.nursery import quickened
from failpoints.workshop import ask as ask_store
from failpoints.workshop import blaming
from fixtures.stores.catalog import Store

KIND: Final = "history"
# A line on the console after so many answers.
_ANSWERS_PER_LINE: Final = 100


@dataclass(frozen=True)
class HistoryResult:
    """How a history ended: sound, or what contradicts; and how much of it there was.

    `counts` has acknowledged, refused, unknown, passed over, killed, commits, branches and recoveries. `seconds` is the
    race alone, from the starting shot to the last answer. `trace` is there when something contradicts.
    """

    plan: Plan
    verdict: Sound | Contradiction
    counts: Mapping[str, int]
    seconds: float
    trace: Mapping[str, Any] | None = None

    @property
    def holds(self) -> bool:
        return isinstance(self.verdict, Sound)

    @property
    def ids(self) -> tuple[str, ...]:
        """The requirements that were broken."""
        return self.verdict.ids if isinstance(self.verdict, Contradiction) else ()


def run_history(
    engine: str,
    store: Store,
    *,
    processes: int,
    writes: int,
    seed: int,
    profile: str = "writes",
    kill_every: int | None = None,
    reopen: bool = False,
    console: Console | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> HistoryResult:
    """Let processes of an engine write one graph at once, and judge what they leave.

    Raises what says nothing about the engine's verdict: `AdapterFault` where a driver does not start, answers nonsense
    or breaks down before anybody else is there, `EngineError` where it cannot even make the graph, `PlanError` for what
    cannot be asked, `StoreBrokeDown` where the store is gone. An engine that dies or falls silent while others write,
    or after that, has broken PUB-21.
    """
    plan = make_plan(processes=processes, writes=writes, seed=seed, profile=profile, kill_every=kill_every)
    return run_plan(engine, store, plan, reopen=reopen, console=console, timeout=timeout)


def rerun(
    trace: Mapping[str, Any],
    engine: str,
    store: Store,
    *,
    console: Console | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> HistoryResult:
    """Run the plan of a trace again, on any engine. Who comes first is not part of a plan, so it may hold this time."""
    fault = trace["fault"]
    plan = Plan.from_json(fault.get("plan"))
    return run_plan(engine, store, plan, reopen=bool(fault.get("reopen")), console=console, timeout=timeout)


def run_plan(
    engine: str,
    store: Store,
    plan: Plan,
    *,
    reopen: bool = False,
    console: Console | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> HistoryResult:
    """Run a plan that was made before."""
    with blaming(store), quickened(engine) as process:
        place = Place(process, store.fresh_root(), store.env, timeout)
        result = _run_at(place, engine, store, plan, reopen=reopen, console=console)
        if not result.holds:
            ask_store(store)
        return result


def _run_at(
    place: Place, engine: str, store: Store, plan: Plan, *, reopen: bool, console: Console | None
) -> HistoryResult:
    clock = new_clock()
    opened = _opening(place, plan, clock)
    shown = _Shown(console, plan)
    try:
        raced = race(place, plan, clock, reopen=reopen, started=shown.started, answered=shown.answered)
    except CannotOpen as refused:
        return _result(engine, store, plan, reopen, _nothing_read(plan, opened), shown.seconds(), _cannot_open(refused))
    seconds = shown.seconds()
    with _alone(place) as handle:
        if isinstance(handle, Contradiction):
            history = _nothing_read(plan, [*opened, *raced])
            return _result(engine, store, plan, reopen, history, seconds, handle)
        history, unread = _read(handle, plan, [*opened, *raced], clock)
        try:
            verdict = unread or check(history, _look(handle, history))
        except AdapterFault as fault:
            verdict = _broke_down(fault)
    return _result(
        engine,
        store,
        plan,
        reopen,
        history,
        seconds,
        verdict if isinstance(verdict, Contradiction) else _audited(place) or verdict,
    )


# -- before and after --------------------------------------------------------------------------------------------------


def _opening(place: Place, plan: Plan, clock: Iterator[int]) -> list[Done]:
    engine = place.connect()
    try:
        engine.init(place.uri, plan.schema)
        handle = engine.open(place.uri)
        return [ask(handle, call, clock) for call in plan.opening]
    finally:
        engine.close()


@contextmanager
def _alone(place: Place) -> Iterator[Handle | Contradiction]:
    """A new process with the graph open for writing, which recovers what was left; that it opens is required."""
    engine = place.connect()
    try:
        try:
            opened: Handle | Contradiction = engine.open(place.uri)
        except EngineError as error:
            opened = Contradiction(("PUB-21",), f"when all processes were done, the graph could not be opened: {error}")
        except AdapterFault as fault:
            opened = _broke_down(fault)
        yield opened
    finally:
        engine.close()


def _read(handle: Handle, plan: Plan, done: list[Done], clock: Iterator[int]) -> tuple[History, Contradiction | None]:
    """Write once more to every table, then everything that the graph says about itself."""
    try:
        branches = sorted(handle.branch_list()) if handle.engine.supports("branch_list") else [MAIN]
        done = [*done, *(ask(handle, call, clock) for call in closing(branches))]
        chains = {branch: tuple(handle.commits(branch)) for branch in branches}
        exports = {branch: handle.export(branch) for branch in branches}
        recoveries = tuple(handle.recoveries()) if handle.engine.supports("recoveries") else ()
        return History(plan.schema, tuple(done), chains, exports, recoveries), None
    except EngineError as error:
        because = f"when all processes were done, the graph could not be read: {error}"
        return _nothing_read(plan, done), Contradiction(("PUB-21",), because)
    except AdapterFault as fault:
        return _nothing_read(plan, done), _broke_down(fault)


def _look(handle: Handle, history: History) -> Look | None:
    """How rows as of a commit are read; None where the engine cannot show those of every table."""

    def look(table_key: str, commit: str) -> list[dict[str, Any]]:
        return handle.read(table_key, commit=commit)

    try:
        for commit in history.chains.get(MAIN, ())[-1:]:
            for table_key in Model.from_source(history.schema).schema.types:
                look(table_key, commit["graph_commit_id"])
    except Unsupported:
        return None
    except EngineError:
        pass  # That is for the checker to find.
    return look


def _nothing_read(plan: Plan, done: Sequence[Done]) -> History:
    return History(plan.schema, tuple(done), {}, {})


def _broke_down(fault: AdapterFault) -> Contradiction:
    """The verdict on an engine that dies or falls silent when all processes are done; other faults are no verdict."""
    if fault.reason not in DIED:
        raise fault
    return Contradiction(("PUB-21",), f"when all processes were done, the engine broke down: {fault.message}")


def _cannot_open(refused: CannotOpen) -> Contradiction:
    return Contradiction(("PUB-21",), f"while others were writing, a process could not open the graph: {refused}")


def _audited(place: Place) -> Contradiction | None:
    """What the auditor finds in the bytes when everything else held."""
    try:
        report = audit(place.uri, dict(place.env))
    except GraphUnreadable as error:
        return Contradiction(("LAY-01",), f"the auditor can read no graph there: {error}")
    errors = report.of("error")
    if not errors:
        return None
    ids = tuple(sorted({finding.requirement for finding in errors}))
    words = "; ".join(f"{finding.where}: {finding.message}" for finding in errors[:5])
    return Contradiction(ids, f"the auditor finds in the bytes: {words}")


# -- the result --------------------------------------------------------------------------------------------------------


def _result(
    engine: str,
    store: Store,
    plan: Plan,
    reopen: bool,
    history: History,
    seconds: float,
    verdict: Sound | Contradiction,
) -> HistoryResult:
    trace = None
    if isinstance(verdict, Contradiction):
        trace = trace_of(plan, reopen, history, verdict)
    return HistoryResult(plan, verdict, counts(history), seconds, trace)


def trace_of(plan: Plan, reopen: bool, history: History, broken: Contradiction) -> dict[str, Any]:
    """What a failed history leaves, for `conformance.traces.make_trace`: its `operations` are the few that show it."""
    lines: tuple[Line, ...] = broken.slice
    return {
        "kind": KIND,
        "test": f"history: {plan.processes} processes, {plan.writes} calls each, profile {plan.profile}",
        "faults": [{"kill": call.actor, "at": call.kill_at} for call in plan.calls if call.kill_at is not None],
        "broke": list(broken.ids),
        "because": broken.because,
        "operations": [line.as_json() for line in lines],
        "schema": plan.schema,
        "steps": [dict(call.step) for call in plan.opening],
        "fault": {"plan": plan.as_json(), "reopen": reopen, "history": history.as_json()},
    }


class _Shown:
    """Says on the console how far a race is, and knows since when it runs."""

    def __init__(self, console: Console | None, plan: Plan) -> None:
        self._console = console
        self._plan = plan
        self._lock = threading.Lock()
        self._started = 0
        self._answered = 0
        self._since = time.monotonic()

    def started(self, process: int) -> None:
        with self._lock:
            self._started += 1
            self._since = time.monotonic()
            if self._started == self._plan.processes:
                self._say(f"{self._started} processes are ready, with {self._plan.writes} calls each")

    def answered(self, done: Done) -> None:
        with self._lock:
            self._answered += 1
            total = len(self._plan.calls)
            if self._answered % _ANSWERS_PER_LINE == 0 or self._answered == total:
                self._say(f"{self._answered} of {total} calls answered after {self.seconds():.1f} s")

    def seconds(self) -> float:
        return time.monotonic() - self._since

    def _say(self, words: str) -> None:
        if self._console is not None:
            self._console.print(words, highlight=False)
