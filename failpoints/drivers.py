"""Driver processes behind the gate: each has a port of its own, and the next ones are started ahead.

A process that is killed in every cell must not be waited for in every cell. `Drivers` keeps a few that have said hello
and have seen nothing yet.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from conformance.adapters import AdapterFault, Conversation, ProcessTransport
from conformance.adapters.hosting import as_process
from conformance.adapters.process import kill_made_in
from conformance.judge import Engine
from failpoints.gate import Armed, Gate, GateTimeout, Port
from failpoints.world import Ending

# Faults of an adapter whose process is gone or says nothing; any other one is a mistake of its protocol.
DIED: Final = ("exited_mid_request", "exited_between_requests", "closed_stdout", "silent")
_LOOK_SECONDS: Final = 0.02
_LOOKS_MAX: Final = 100


@dataclass(frozen=True)
class Driver:
    """One driver process, and the port through which it reaches the store."""

    engine: Engine
    port: Port

    @property
    def owner(self) -> str:
        return self.port.owner

    def kill(self) -> None:
        """SIGKILL, at once, from any thread."""
        process_of(self.engine).kill()

    def close(self) -> None:
        """End the process, and wait until nothing of it is under way to the store."""
        self.kill()  # How politely it ends is not what is tried here.
        with suppress(AdapterFault):
            self.engine.close()
        self.port.close()


def process_of(engine: Engine) -> ProcessTransport:
    """The process of an engine that was connected as one (`as_process`)."""
    adapter = engine.adapter
    assert isinstance(adapter, Conversation) and isinstance(adapter.transport, ProcessTransport)
    return adapter.transport


def killed_when_held(
    driver: Driver, armed: Armed, work: Callable[[], Ending], *, first: Callable[[], object] = lambda: None
) -> tuple[Ending, bool]:
    """Have a driver work, and kill it when a request of it is held; how the work ended, and whether it was killed.

    What was held is dropped only when the process is dead: one that lives would try again.
    """
    with ThreadPoolExecutor(1) as thread:
        working = thread.submit(work)
        try:
            while not working.done() and not armed.hits:
                with suppress(GateTimeout):
                    armed.wait(_LOOK_SECONDS)
            killed = armed.hits > 0
            if killed:
                first()
        except BaseException:
            # Whoever interrupts this does not wait for a driver that nobody would release.
            killed = True
            raise
        finally:
            if killed:
                driver.kill()
                armed.drop()
        return working.result(), killed


def until_over(gate: Gate, owner: str) -> None:
    """Wait until nothing of an owner is under way, for a while."""
    never = threading.Event()
    for _ in range(_LOOKS_MAX):
        if not gate.in_flight(owner):
            return
        never.wait(_LOOK_SECONDS)


class Drivers:
    """A supply of drivers that nobody has used yet."""

    def __init__(
        self,
        gate: Gate,
        spec: str,
        env: Mapping[str, str],
        *,
        timeout_seconds: float = 120.0,
        ahead: int = 2,
        name: str = "driver",
    ) -> None:
        self._gate = gate
        self._name = name
        self._spec = as_process(spec)
        self._env = env
        self._timeout_seconds = timeout_seconds
        self._ahead = ahead
        self._numbers = itertools.count(1)
        self._starting = ThreadPoolExecutor(1, thread_name_prefix="drivers")
        self._warm: deque[Future[Driver]] = deque()
        self._taken: list[Driver] = []
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._top_up()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._starting.shutdown(wait=False, cancel_futures=True)
        # One that is silent has the whole time-out to say hello, and nobody waits for that any more.
        while wait([each for each in self._warm if not each.cancelled()], timeout=_LOOK_SECONDS).not_done:
            if self._thread is not None:
                kill_made_in(self._thread)
        for future in self._warm:
            if not future.cancelled() and future.exception() is None:
                future.result().close()
        for driver in self._taken:
            driver.close()

    def take(self) -> Driver:
        """A driver that has said hello and nothing else."""
        self._top_up()
        driver = self._warm.popleft().result()
        self._top_up()
        self._taken.append(driver)
        return driver

    def done(self, driver: Driver) -> None:
        """A driver that is not needed any more, dead or alive; a second time does nothing."""
        if driver in self._taken:
            self._taken.remove(driver)
            driver.close()

    def _top_up(self) -> None:
        while len(self._warm) < max(1, self._ahead):
            self._warm.append(self._starting.submit(self._start, f"{self._name}-{next(self._numbers)}"))

    def _start(self, owner: str) -> Driver:
        self._thread = threading.current_thread()
        port = self._gate.port(owner)
        try:
            environment = port.environment(self._env)
            engine = Engine.connect(self._spec, env=environment, timeout_seconds=self._timeout_seconds)
        except BaseException:
            port.close()
            raise
        return Driver(engine, port)
