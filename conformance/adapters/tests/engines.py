"""Engines as Python classes, for the tests of `python:` adapters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from conformance.adapters import EngineError
from reference.driver import Session

HELLO = {
    "name": "in-process",
    "version": "1",
    "protocol_version": 1,
    "internal_schema_version": 4,
    "capabilities": ["hello"],
}


class Wrapped:
    """The reference engine as a class with a method for each operation."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._session = Session(env)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        def method(**args: Any) -> Any:
            answer = self._session.answer(json.dumps({"seq": 1, "op": op, "args": args}).encode())
            if "error" in answer:
                raise EngineError(**answer["error"])
            return answer["ok"]

        return method


class Small:
    """An engine made with nothing, that has little and does it badly."""

    def hello(self) -> Any:
        return HELLO

    def init(self, *, uri: str, schema: str) -> Any:
        raise ZeroDivisionError(f"no room at {uri}")

    def open(self, *, uri: str) -> Any:
        return {"handle": 7, "recovered": []}

    def close(self, *, handle: str) -> Any:
        return {"at": object()}

    def refresh(self, *, handle: str) -> Any:
        raise EngineError("not_found", "handle_not_found", f"no graph is open as {handle}", hint="open it")


class Unmakeable:
    def __init__(self) -> None:
        raise OSError("no licence")
