"""Traces: a failure as one portable file that any engine can be asked to repeat.

A *sequence* holds operations that mean something by themselves: the schema, and the steps in order, each with the
handle it went through; a replay runs exactly these, with model and auditor after each step. An *example* holds what a
test of the suites asked and was answered, for people to read, and the name of the test: a replay runs the test again,
because a crash that was forged on disk is not one of the engine's operations. A *cut*, a *pair*, a *storm* and a
*history* come from `failpoints`: steps as well, and beside them what happened between the engine and its store.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

TRACE_FORMAT: Final = 1
_SCHEMA_FILE: Final = Path(__file__).parent / "trace.schema.json"


class TraceError(ValueError):
    """A file that is not a trace: where, and what is wrong there."""


@cache
def trace_schema() -> dict[str, Any]:
    body: dict[str, Any] = json.loads(_SCHEMA_FILE.read_text(encoding="utf-8"))
    return body


def check_trace(body: Any, where: str) -> None:
    """Refuse what cannot be replayed."""
    errors = sorted(Draft202012Validator(trace_schema()).iter_errors(body), key=lambda error: str(error.absolute_path))
    if errors:
        place = "".join(f"[{step!r}]" for step in errors[0].absolute_path)
        raise TraceError(f"{where}: trace{place}: {errors[0].message}")


def read_trace(path: Path) -> dict[str, Any]:
    """A trace from a file."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise TraceError(f"{path}: is not JSON: {error}") from None
    check_trace(body, str(path))
    found: dict[str, Any] = body
    return found


def make_trace(found: Mapping[str, Any], *, engine: str, store: str | None, seed: int) -> dict[str, Any]:
    """A trace from what a failed test left: its operations, and for a sequence its schema and steps."""
    body = {
        "format": TRACE_FORMAT,
        "kind": found.get("kind") or ("sequence" if "steps" in found else "example"),
        "suite_version": importlib.metadata.version("omnigraph-touchstone"),
        "faults": [],
        "schedule": [],
        **found,
        # What the caller says of them has been cleared of secrets.
        "engine": engine,
        "store": store or "local",
        "seed": seed,
    }
    check_trace(body, "this trace")
    return body


def write_trace(path: Path, found: Mapping[str, Any], *, engine: str, store: str | None, seed: int) -> None:
    body = make_trace(found, engine=engine, store=store, seed=seed)
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
