"""`python:<module>:<Class>`: an engine as a Python class in this process, for speed.

The class is made with the store's variables, `Class(env)`, or with nothing, `Class()`. Its methods are the operations,
their keyword arguments those of `operations.schema.json`, and each returns what `ok` holds as plain JSON values. A
method that is not there is an unsupported operation. A method says no by raising `conformance.adapters.EngineError`;
anything else that it raises is a fault of the adapter. Requests and answers pass through JSON text and the same checks
as those of a process, so that the two kinds cannot drift apart. No time-out holds in process.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from conformance.adapters.base import EngineError, TransportFailure, Unsupported

_TRACEBACK_LINES_MAX: Final = 30

Answer = Mapping[str, Any]
Json = Mapping[str, Any]


class PythonEngine(Protocol):
    """Every operation there is. A class has those that its engine has, with these parameters."""

    def hello(self) -> Answer: ...

    def init(self, *, uri: str, schema: str, force: bool = False) -> Answer: ...
    def open(self, *, uri: str, branch: str | None = None, read_only: bool = False) -> Answer: ...
    def close(self, *, handle: str) -> Answer: ...
    def refresh(self, *, handle: str) -> Answer: ...
    def sync_branch(self, *, handle: str, branch: str) -> Answer: ...

    def load(
        self,
        *,
        handle: str,
        data: str,
        mode: Literal["append", "merge", "overwrite"],
        branch: str | None = None,
        base: str | None = None,
        actor: str | None = None,
    ) -> Answer: ...
    def mutate(
        self,
        *,
        handle: str,
        statements: Sequence[Json],
        branch: str | None = None,
        actor: str | None = None,
        name: str = "mutation",
    ) -> Answer: ...

    def snapshot(
        self, *, handle: str, branch: str | None = None, version: int | None = None, commit: str | None = None
    ) -> Answer: ...
    def read(
        self,
        *,
        handle: str,
        table_key: str,
        branch: str | None = None,
        version: int | None = None,
        commit: str | None = None,
    ) -> Answer: ...
    def entity_at(
        self,
        *,
        handle: str,
        table_key: str,
        id: str,
        branch: str | None = None,
        version: int | None = None,
        commit: str | None = None,
    ) -> Answer: ...
    def export(
        self,
        *,
        handle: str,
        branch: str | None = None,
        types: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
    ) -> Answer: ...
    def diff(
        self,
        *,
        handle: str,
        older: Json,
        newer: Json,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> Answer: ...
    def commits(self, *, handle: str, branch: str | None = None) -> Answer: ...
    def commit(self, *, handle: str, commit_id: str) -> Answer: ...
    def recoveries(self, *, handle: str) -> Answer: ...

    def branch_list(self, *, handle: str) -> Answer: ...
    def branch_create(self, *, handle: str, name: str, source: str | None = None) -> Answer: ...
    def branch_delete(self, *, handle: str, name: str) -> Answer: ...
    def merge(self, *, handle: str, source: str, target: str, actor: str | None = None) -> Answer: ...

    def schema_plan(self, *, handle: str, source: str, allow_data_loss: bool = False) -> Answer: ...
    def schema_apply(self, *, handle: str, source: str, allow_data_loss: bool = False) -> Answer: ...
    def ensure_indices(self, *, handle: str, branch: str | None = None) -> Answer: ...
    def optimize(self, *, handle: str) -> Answer: ...
    def cleanup(
        self,
        *,
        handle: str,
        keep_versions: int | None = None,
        older_than_seconds: int | None = None,
        confirm: bool = False,
    ) -> Answer: ...
    def repair(
        self, *, handle: str, branch: str | None = None, confirm: bool = False, force: bool = False
    ) -> Answer: ...


class PythonTransport:
    """Carries a line to a method of an engine's object, and its value back as a line."""

    def __init__(self, engine: object) -> None:
        self._engine = engine
        self._traceback = ""

    def exchange(self, request: bytes) -> bytes:
        asked = json.loads(request)
        answer = {"seq": asked["seq"], **self._answer(asked["op"], asked.get("args", {}))}
        try:
            return json.dumps(answer, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise TransportFailure("not_json", f"{asked['op']} returned what is not JSON: {error}") from None

    def _answer(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        method: Callable[..., Any] | None = None if op.startswith("_") else getattr(self._engine, op, None)
        if not callable(method):
            return {"unsupported": f"{type(self._engine).__name__} has no method '{op}'"}
        try:
            return {"ok": method(**args)}
        except Unsupported as refused:
            return {"unsupported": refused.why}
        except EngineError as error:
            return {"error": _error_body(error)}
        except Exception as error:
            self._traceback = _last_lines(error)
            message = f"{op} raised {type(error).__name__}: {error}; an engine says no by raising EngineError"
            raise TransportFailure("raised", message) from error

    def stderr(self) -> str:
        return self._traceback

    def close(self, *, at_once: bool = False) -> None:
        pass


def instantiate(module: str, class_name: str, env: Mapping[str, str]) -> object:
    """Import the class, from the current directory too, and make the engine."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        made = getattr(importlib.import_module(module), class_name, None)
    except Exception as error:
        message = f"module '{module}' cannot be imported: {type(error).__name__}: {error}"
        raise TransportFailure("not_started", message) from error
    if not callable(made):
        raise TransportFailure("not_started", f"module '{module}' has no class '{class_name}'")
    try:
        engine: object = made(env) if _takes_env(made) else made()
    except Exception as error:
        message = f"{class_name} cannot be made: {type(error).__name__}: {error}"
        raise TransportFailure("not_started", message) from error
    return engine


def _takes_env(made: Callable[..., Any]) -> bool:
    try:
        inspect.signature(made).bind({})
    except TypeError:
        return False
    except ValueError:
        return True  # What has no signature to look at is called as the documentation says.
    return True


def _error_body(error: EngineError) -> dict[str, Any]:
    body = {"kind": error.kind, "code": error.code, "message": error.message, "details": error.details}
    return body if error.hint is None else {**body, "hint": error.hint}


def _last_lines(error: Exception) -> str:
    return "\n".join("".join(traceback.format_exception(error)).split("\n")[-_TRACEBACK_LINES_MAX:])
