"""Named failpoints: free while nothing is armed, exact once something is.

An engine calls `fire(name)` in the gaps of its commit protocol. A test arms a name with one of four actions:

    error           raise `FailpointReached`; the engine turns it into an error of its own
    kill            SIGKILL this process: no `finally`, no flush, no goodbye
    pause           stop here until the test says go (`paused`), across processes by two files (`pause:<path>`)
    a callable      run it here, in the thread that reached the point

In process a context manager arms and disarms. Another process is armed through its environment, which this module
reads once, when it is imported:

    TOUCHSTONE_FAILPOINTS="recovery.sidecar_delete=error*2;graph_publish.before_commit_append=kill"

The registry belongs to the process: two tests that arm failpoints must not share one at the same moment. Nothing
here sleeps: a pause is a rendezvous, and one that nobody releases ends in `PauseTimeout`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from failpoints.names import NAMES

ENVIRONMENT_VARIABLE: Final = "TOUCHSTONE_FAILPOINTS"
PAUSE_TIMEOUT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01

Action = str | Callable[[], object]


class FailpointReached(Exception):
    """The action `error`: the protocol reached `name`. Neutral on purpose: the engine says what kind of error it is."""

    def __init__(self, name: str) -> None:
        super().__init__(f"failpoint '{name}' was reached")
        self.name = name


class PauseTimeout(Exception):
    """A paused point was not released, or not reached, in time: the test's schedule is wrong."""

    def __init__(self, name: str, what: str, timeout_seconds: float) -> None:
        super().__init__(f"failpoint '{name}' was not {what} within {timeout_seconds:g} s")
        self.name = name


class FailpointMisuse(ValueError):
    """A name that no engine fires, an action that does not exist, or a name that is armed already."""


@dataclass
class _Armed:
    """One armed name: what to do, and how many times still (None: always)."""

    action: Callable[[], object]
    times_left: int | None


@dataclass
class PausePoint:
    """Both ends of a rendezvous: the engine's thread arrives and blocks, the test waits for it and releases it."""

    name: str
    timeout_seconds: float
    _arrived: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    @property
    def arrived(self) -> bool:
        return self._arrived.is_set()

    def wait_arrived(self, timeout_seconds: float | None = None) -> None:
        """Block until the engine is at the point."""
        timeout = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        if not self._arrived.wait(timeout):
            raise PauseTimeout(self.name, "reached", timeout)

    def release(self) -> None:
        """Let the engine go on, now or whenever it arrives."""
        self._released.set()

    def _meet(self) -> None:
        self._arrived.set()
        if not self._released.wait(self.timeout_seconds):
            raise PauseTimeout(self.name, "released", self.timeout_seconds)


_lock = threading.Lock()
# Never changed in place: `fire` reads it without the lock, so every change installs a new dictionary.
_armed: dict[str, _Armed] = {}
_hits: dict[str, int] = {}
_recording: list[str] | None = None


def fire(name: str) -> None:
    """Say that the protocol has reached `name`. Does nothing unless a test has armed something in this process."""
    if _armed or _recording is not None:
        _reach(name)


def _reach(name: str) -> None:
    _check_name(name)
    with _lock:
        if _recording is not None:
            _recording.append(name)
        point = _armed.get(name)
        if point is None:
            return
        _hits[name] = _hits.get(name, 0) + 1
        if point.times_left is not None:
            if point.times_left == 0:
                return
            point.times_left -= 1
    point.action()


def hits(name: str) -> int:
    """How often `name` was reached while it was armed, since the last `reset`."""
    _check_name(name)
    with _lock:
        return _hits.get(name, 0)


def reset() -> None:
    """Disarm everything and forget every hit."""
    global _armed, _recording
    with _lock:
        _armed = {}
        _recording = None
        _hits.clear()


@contextmanager
def armed(name: str, action: Action, *, times: int | None = None) -> Iterator[None]:
    """Perform `action` whenever `name` is reached, at most `times` times, until the block ends."""
    _arm(name, _action(name, action), times)
    try:
        yield
    finally:
        _disarm(name)


@contextmanager
def paused(name: str, *, timeout_seconds: float = PAUSE_TIMEOUT_SECONDS) -> Iterator[PausePoint]:
    """Stop the first thread that reaches `name` until the test releases it; leaving the block releases it too."""
    point = PausePoint(name, timeout_seconds)
    _arm(name, point._meet, 1)
    try:
        yield point
    finally:
        _disarm(name)
        point.release()


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Collect the names that are reached, in order, without acting on them."""
    global _recording
    with _lock:
        if _recording is not None:
            raise FailpointMisuse("failpoints are being recorded already")
        reached: list[str] = []
        _recording = reached
    try:
        yield reached
    finally:
        with _lock:
            _recording = None


def arm_from_environment(environment: Mapping[str, str]) -> None:
    """Arm what `TOUCHSTONE_FAILPOINTS` asks for, for the rest of this process's life."""
    for name, action, times in parse(environment.get(ENVIRONMENT_VARIABLE, "")):
        _arm(name, _action(name, action), times)


def parse(text: str) -> list[tuple[str, str, int | None]]:
    """Read `name=action;name2=action*2` into (name, action, times)."""
    points: list[tuple[str, str, int | None]] = []
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        name, equals, action = part.partition("=")
        if not equals or not action:
            raise FailpointMisuse(f"'{part}' does not say name=action in {ENVIRONMENT_VARIABLE}")
        action, star, count = action.partition("*")
        if star and not (count.isascii() and count.isdigit() and int(count) > 0):
            raise FailpointMisuse(f"'{part}' must end in *N with N a positive number in {ENVIRONMENT_VARIABLE}")
        _check_name(name)
        _action(name, action)
        points.append((name, action, int(count) if star else None))
    return points


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise FailpointMisuse(f"'{name}' is not the name of a failpoint; failpoints/names.py lists them")


def _action(name: str, action: Action) -> Callable[[], object]:
    if callable(action):
        return action
    kind, _, argument = action.partition(":")
    if kind == "pause" and argument:
        return lambda: _meet_by_files(name, Path(argument))
    match action:
        case "error":
            return lambda: _raise_reached(name)
        case "kill":
            return lambda: os.kill(os.getpid(), signal.SIGKILL)
        case "pause":
            raise FailpointMisuse(f"'{name}=pause' has nobody to meet: use paused('{name}') or pause:<path>")
        case _:
            raise FailpointMisuse(f"'{action}' is not an action: use error, kill or pause:<path>")


def _raise_reached(name: str) -> None:
    raise FailpointReached(name)


def _meet_by_files(name: str, path: Path) -> None:
    """The rendezvous of two processes: create `<path>.arrived`, go on when `<path>.release` exists."""
    Path(f"{path}.arrived").touch()
    release = Path(f"{path}.release")
    never = threading.Event()
    deadline = time.monotonic() + PAUSE_TIMEOUT_SECONDS
    while not release.exists():
        if time.monotonic() > deadline:
            raise PauseTimeout(name, "released", PAUSE_TIMEOUT_SECONDS)
        never.wait(_POLL_SECONDS)


def _arm(name: str, action: Callable[[], object], times: int | None) -> None:
    global _armed
    _check_name(name)
    if times is not None and times < 1:
        raise FailpointMisuse(f"'{name}' must be armed for at least one time, not {times}")
    with _lock:
        if name in _armed:
            raise FailpointMisuse(f"'{name}' is armed already")
        _armed = {**_armed, name: _Armed(action, times)}


def _disarm(name: str) -> None:
    global _armed
    with _lock:
        _armed = {other: point for other, point in _armed.items() if other != name}


arm_from_environment(os.environ)
