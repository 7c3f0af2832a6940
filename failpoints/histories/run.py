"""The processes of a history: all warm and with the graph open before one starting shot, then each asks by itself.

One thread per process. A process that is killed in the middle of a call is started anew and goes on with its next call;
what became of the call, nobody was told. One that dies or falls silent by itself ends the race: that is an answer too,
and waiting for it in every call would take for ever. Nothing here judges: answers are written down as they come.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.adapters.hosting import as_process
from conformance.judge import Engine, Handle
from conformance.judge.graph import DEFINITE
from failpoints.drivers import DIED, process_of
from failpoints.histories.plan import Plan
from failpoints.histories.record import BROKE_DOWN, KILLED, Call, Done, Outcome
from failpoints.histories.steps import perform, supported

# An open can lose against writers that are busy, or wait for a lease to run out. One that loses for so long is not
# going to succeed.
OPEN_SECONDS: Final = 30.0
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0
# Until a process has answered something, this is how long a call is taken to last.
FIRST_GUESS_SECONDS: Final = 0.1


class CannotOpen(Exception):
    """A graph that other processes write could not be opened, however often it was tried."""


@dataclass(frozen=True)
class Place:
    """The engine under test, and the graph: how each process gets to it."""

    engine: str
    uri: str
    env: Mapping[str, str]
    timeout_seconds: float

    def connect(self) -> Engine:
        return Engine.connect(as_process(self.engine), env=self.env, timeout_seconds=self.timeout_seconds)


def ask(handle: Handle, call: Call, clock: Iterator[int]) -> Done:
    """Make one call and write down what was answered; an `AdapterFault` is for the caller."""
    if not supported(handle.engine, call.step):
        now = next(clock)
        return Done(call, Outcome("passed over", {}, now, now))
    began = next(clock)
    try:
        answer = perform(handle, call)
    except EngineError as error:
        said = {"kind": error.kind, "code": error.code, "message": error.message}
        return Done(call, Outcome("refused" if error.kind in DEFINITE else "unknown", said, began, next(clock)))
    except Unsupported as error:
        return Done(call, Outcome("passed over", {"message": error.why}, began, next(clock)))
    return Done(call, Outcome("ok", answer, began, next(clock)))


def race(
    place: Place,
    plan: Plan,
    clock: Iterator[int],
    *,
    reopen: bool = False,
    started: Callable[[int], None] = lambda process: None,
    answered: Callable[[Done], None] = lambda done: None,
) -> list[Done]:
    """Let all processes of a plan loose at once; every call with what became of it.

    `reopen`: open the graph anew before each call, instead of keeping one handle. Both callbacks come from the threads
    of the processes.
    """
    start = threading.Barrier(plan.processes)
    stopped = threading.Event()

    def work(process: int) -> list[Done]:
        writer = _Writer(place, clock, reopen=reopen)
        try:
            writer.begin()
            started(process)
            start.wait(place.timeout_seconds * 2)
            found = []
            for call in plan.of(process):
                if stopped.is_set():
                    break
                found.append(writer.do(call))
                answered(found[-1])
                if found[-1].outcome.answer.get("kind") == BROKE_DOWN:
                    stopped.set()
            return found
        except BaseException:
            stopped.set()
            start.abort()
            raise
        finally:
            writer.end()

    with ThreadPoolExecutor(plan.processes, thread_name_prefix="history") as pool:
        try:
            futures = [pool.submit(work, process) for process in range(plan.processes)]
            wait(futures)
        except BaseException:
            # Whoever interrupts waits for the calls that are under way, and not for all that are planned.
            stopped.set()
            start.abort()
            raise
    return [done for found in _results(futures) for done in found]


def _results(futures: Sequence[Future[list[Done]]]) -> list[list[Done]]:
    """What all threads found, or the error of the first that failed by itself and not because another did."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda each: isinstance(each, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]


class _Writer:
    """One process of the engine, started again whenever it has been killed."""

    def __init__(self, place: Place, clock: Iterator[int], *, reopen: bool) -> None:
        self._place = place
        self._clock = clock
        self._reopen = reopen
        self._handle: Handle | None = None
        self._seconds = FIRST_GUESS_SECONDS

    def begin(self) -> None:
        """Start, open, and read once: whatever is loaded late is loaded now."""
        engine = self._place.connect()
        try:
            with _told_when_it_breaks_down():
                self._handle = opened(engine, self._place.uri)
                self._handle.export()
        except EngineError as error:
            self._handle = None
            engine.close()
            raise CannotOpen(f"it was opened, and could not be read: {error}") from error
        except BaseException:
            self._handle = None
            engine.close()
            raise

    def do(self, call: Call) -> Done:
        handle = self._open_handle()
        if call.kill_at is not None:
            return self._do_and_die(handle, call, call.kill_at)
        since, began = time.monotonic(), next(self._clock)
        try:
            done = ask(handle, call, self._clock)
        except AdapterFault as fault:
            if fault.reason not in DIED:
                raise
            self.end()
            said = {"kind": BROKE_DOWN, "code": fault.reason, "message": fault.message}
            return Done(call, Outcome("unknown", said, began, next(self._clock)))
        self._seconds = (self._seconds * 3 + time.monotonic() - since) / 4
        return done

    def end(self) -> None:
        if self._handle is not None:
            self._handle.engine.close()
            self._handle = None

    def _open_handle(self) -> Handle:
        if self._handle is None:
            self.begin()
        elif self._reopen:
            engine = self._handle.engine
            with _told_when_it_breaks_down():
                self._handle.close()
                self._handle = opened(engine, self._place.uri)
        assert self._handle is not None
        return self._handle

    def _do_and_die(self, handle: Handle, call: Call, kill_at: float) -> Done:
        """Make a call in whose course the process is killed, or right after it if the answer was faster."""
        transport = process_of(handle.engine)
        answered = threading.Event()

        def kill() -> None:
            answered.wait(kill_at * self._seconds)
            transport.kill()

        killer = threading.Thread(target=kill, name="history-killer")
        began = next(self._clock)
        killer.start()
        try:
            outcome = ask(handle, call, self._clock).outcome
        except AdapterFault as fault:
            if fault.reason not in ("exited_mid_request", "exited_between_requests", "closed_stdout"):
                raise
            outcome = Outcome("unknown", {"kind": KILLED, "code": fault.reason}, began, next(self._clock))
        finally:
            answered.set()
            killer.join()
            self.end()
        return Done(call, Outcome(outcome.verdict, outcome.answer, began, outcome.ended, killed=True))


@contextmanager
def _told_when_it_breaks_down() -> Iterator[None]:
    """An engine that dies or falls silent while it opens a graph cannot open it."""
    try:
        yield
    except AdapterFault as fault:
        if fault.reason not in DIED:
            raise
        raise CannotOpen(f"the engine broke down: {fault.message}") from fault


def opened(engine: Engine, uri: str, *, seconds: float = OPEN_SECONDS) -> Handle:
    """Open for writing while others write. What an open recovers may be taken from under it: then it tries again.

    It waits a little longer each time: whoever holds a lease that has to run out is not overtaken by asking faster.
    """
    nobody, since, pause = threading.Event(), time.monotonic(), FIRST_PAUSE_SECONDS
    for opens in itertools.count(1):
        try:
            return engine.open(uri)
        except EngineError as error:
            if time.monotonic() - since + pause > seconds:
                because = (
                    f"of {opens} opens for writing within {seconds:g} s none succeeded; the last one said: {error}"
                )
                raise CannotOpen(because) from error
        nobody.wait(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
    raise AssertionError("nobody counts so far")


def new_clock() -> Iterator[int]:
    """Counts beginnings and ends of calls, from any thread."""
    return itertools.count(1)
