"""`reference`: the built-in engine, in this process. The only file of the harness that knows it.

It answers the same lines as `omniref drive` does in a process of its own, so that nothing is easier for it than for
another engine. Failpoints are armed in this process for as long as the adapter lives; one that would kill is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack

from conformance.adapters.base import TransportFailure
from failpoints import registry
from reference.driver import Session


class ReferenceTransport:
    """A session of the reference engine."""

    def __init__(self, env: Mapping[str, str], failpoints: str | None) -> None:
        self._session = Session(env)
        self._armed = ExitStack()
        points = registry.parse(failpoints or "")
        if killing := [name for name, action, _ in points if action == "kill"]:
            message = f"'{killing[0]}=kill' would end the harness; name the engine as 'cmd:omniref drive'"
            raise TransportFailure("not_started", message)
        with ExitStack() as arming:
            for name, action, times in points:
                arming.enter_context(registry.armed(name, action, times=times))
            self._armed = arming.pop_all()

    def exchange(self, request: bytes) -> bytes:
        return json.dumps(self._session.answer(request), default=str).encode()

    def stderr(self) -> str:
        return ""

    def close(self, *, at_once: bool = False) -> None:
        self._armed.close()
