"""The gate itself: ports on loopback, one per engine process, in front of one store.

    with Gate(store.endpoint) as gate:
        port = gate.port("engine")
        engine = Engine.connect(spec, env=port.environment(store.env))
        held = gate.arm(Rule("hold", roles=("manifest version",), verbs=("PUT",)))

It runs an event loop in one daemon thread. Every method may be called from any other thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import urlsplit

import uvloop

from failpoints.gate.errors import GateError, GateTimeout
from failpoints.gate.exchange import Exchange
from failpoints.gate.ledger import Armed, Ledger
from failpoints.gate.relay import Relay
from failpoints.gate.rules import Rule
from failpoints.gate.wire import Wire

_BACKLOG: Final = 1024
_CLOSE_TIMEOUT_SECONDS: Final = 30.0
_CALL_TIMEOUT_SECONDS: Final = 60.0
# A connection is accepted, registered, read and parsed in one turn of the loop each; this is some more than that.
_TURNS: Final = 16
_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")

T = TypeVar("T")


class Port:
    """Where one engine process finds the store. Made by `Gate.port`."""

    def __init__(self, gate: Gate, owner: str, number: int) -> None:
        self._gate = gate
        self.owner = owner
        self.endpoint = f"http://127.0.0.1:{number}"

    def __repr__(self) -> str:
        return f"Port({self.owner!r}, {self.endpoint!r})"

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables that lead an engine to the store, leading it here instead."""
        moved = {name: self.endpoint for name in _ENDPOINT_VARIABLES if name in env}
        return {**env, **moved, "AWS_ENDPOINT_URL_S3": self.endpoint}

    def close(self) -> None:
        """Stop listening and hang up on the owner's connections; return when nothing of it is at the store any more."""
        self._gate._close_port(self)


class _Listener:
    """The loop's side of a port."""

    def __init__(self, owner: str, server: asyncio.Server) -> None:
        self.owner = owner
        self.server = server
        self.closed = False
        self.tasks: dict[asyncio.Task[None], Relay] = {}


class Gate:
    """A reverse proxy for one store."""

    def __init__(self, endpoint: str) -> None:
        self._host, self._port = _address(endpoint)
        self._loop = uvloop.new_event_loop()
        self._thread: threading.Thread | None = None
        self._ledger = Ledger(self._call_in_loop)
        self._listeners: dict[str, _Listener] = {}
        self._ports: dict[str, Port] = {}
        self._opening = threading.Lock()
        self._faults: list[BaseException] = []

    def __repr__(self) -> str:
        return f"Gate('http://{self._host}:{self._port}')"

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise GateError("a gate is opened once: make another one")
        self._thread = threading.Thread(target=self._run, name="touchstone-gate", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._thread is None or self._ledger.closed:
            return
        try:
            self._call(self._shut_down())
        finally:
            self._ledger.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CALL_TIMEOUT_SECONDS)
        if self._faults and kind is None:
            raise GateError(f"a connection of the gate broke down: {self._faults[0]!r}") from self._faults[0]

    def port(self, owner: str) -> Port:
        """A port for one owner. Its name can be used again after the port is closed."""
        with self._opening:
            if owner in self._ports:
                raise GateError(f"the owner '{owner}' has a port already: close it first, or choose another name")
            self._ports[owner] = Port(self, owner, self._call(self._listen(owner)))
            return self._ports[owner]

    def arm(self, rule: Rule) -> Armed:
        """Arm a rule. Rules act in the order in which they were armed: the first that matches a request acts on it."""
        return self._ledger.arm(rule)

    def exchanges(self, owner: str | None = None, since: int = 0) -> tuple[Exchange, ...]:
        """What has happened, in order of arrival, after the exchange of number `since`."""
        return self._ledger.exchanges(owner, since)

    def mark(self) -> int:
        """The number of the last exchange."""
        return self._ledger.mark()

    def settle(self, owner: str | None = None, timeout_seconds: float = 30) -> None:
        """Wait until no request is at the store or on its way there. Held requests do not count.

        What a process has sent before it was killed counts, even if it is still in a socket's buffer.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            self._call(_turns())
            with self._ledger.changed:
                if not self._ledger.moving(owner):
                    return
                self._ledger.wait_for(
                    lambda: not self._ledger.moving(owner),
                    max(0.0, deadline - time.monotonic()),
                    lambda: f"{len(self._ledger.moving(owner))} requests did not come to their end",
                )

    def in_flight(self, owner: str | None = None) -> int:
        """How many requests are not over, held ones included."""
        return self._ledger.in_flight(owner)

    def reset(self) -> None:
        """Forget all exchanges and rules. Refused while anything is in flight."""
        self._ledger.reset()

    # -- between the threads -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop, and wait for it."""
        if self._thread is None or self._ledger.closed:
            work.close()
            raise GateError("the gate is not open: use it inside its `with` block")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(_CALL_TIMEOUT_SECONDS)
        except TimeoutError:
            future.cancel()
            raise GateTimeout("the gate's loop did not answer") from None

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # A loop that is closed has nobody to wake.
            self._loop.call_soon_threadsafe(callback)

    def _close_port(self, port: Port) -> None:
        with self._opening:
            if self._ports.get(port.owner) is not port:
                return
            del self._ports[port.owner]
            if not self._ledger.closed:
                self._call(self._close_listener(self._listeners.pop(port.owner)))

    # -- in the loop -------------------------------------------------------------------------------------------------

    async def _listen(self, owner: str) -> int:
        listening = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        server = await self._loop.create_server(lambda: self._accept(owner), sock=listening, backlog=_BACKLOG)
        self._listeners[owner] = _Listener(owner, cast(asyncio.Server, server))
        number: int = listening.getsockname()[1]
        return number

    def _accept(self, owner: str) -> Wire:
        listener = self._listeners.get(owner)
        relay = Relay(owner, self._ledger, self._connect)
        relay.client.on_made(lambda: self._start(listener, relay))
        return relay.client

    def _start(self, listener: _Listener | None, relay: Relay) -> None:
        if listener is None or listener.closed:
            relay.client.abort()
            return
        task = self._loop.create_task(relay.run())
        listener.tasks[task] = relay
        task.add_done_callback(lambda done: self._ended(listener, done))

    def _ended(self, listener: _Listener, task: asyncio.Task[None]) -> None:
        listener.tasks.pop(task, None)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._faults.append(fault)

    async def _connect(self, wake: Callable[[], None]) -> Wire:
        _, wire = await self._loop.create_connection(lambda: Wire(wake), self._host, self._port)
        return wire

    async def _close_listener(self, listener: _Listener) -> None:
        listener.closed = True
        listener.server.close()
        for relay in listener.tasks.values():
            relay.shut()
        if listener.tasks:
            _, late = await asyncio.wait(list(listener.tasks), timeout=_CLOSE_TIMEOUT_SECONDS)
            await _cancelled(late)
        await _turns()

    async def _shut_down(self) -> None:
        for listener in self._listeners.values():
            listener.closed = True
            listener.server.close()
            await _cancelled(set(listener.tasks))
        # Aborted connections close their sockets in the next turns.
        await _turns()
        await self._loop.shutdown_default_executor()


async def _cancelled(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _turns() -> None:
    """Let the loop look at every socket, several times."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _address(endpoint: str) -> tuple[str, int]:
    """Host and port of the store; says what is wrong with the rest, and never shows it."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        raise GateError("the endpoint of the store is no URL: it must be http://<host>:<port>") from None
    if parts.scheme == "https":
        raise GateError("the gate speaks plain HTTP to the store, and this endpoint is https: use one that is http")
    if parts.scheme != "http" or not parts.hostname:
        raise GateError("the endpoint of the store must be http://<host>:<port>")
    if parts.username is not None or parts.path not in ("", "/") or parts.query:
        raise GateError("the endpoint of the store must be http://<host>:<port>, with no user, path or query")
    return parts.hostname, port or 80
