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
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator, TypeChecker, ValidationError, validators
from referencing import Registry, Resource

from conformance import protocol
from conformance.model.errors import Refusal
from conformance.model.schema_text import compile_schema
from conformance.runner.redaction import value_without_secrets

TRACE_FORMAT: Final = 1
_VALUE_MAX: Final = 120
# No step, rule or plan is nested so deep or counts so far: beyond, readers and writers of JSON break down.
_DEPTH_MAX: Final = 100
_NUMBER_MAX: Final = 2**63 - 1
# Of a trace what a replay runs, and of a fault what an engine has said.
_OURS: Final = ("schema", "steps", "kind", "broke")
_SAID: Final = ("history", "endings", "gap")
_SCHEMA_FILE: Final = Path(__file__).parent / "trace.schema.json"


class TraceError(ValueError):
    """A file that is not a trace: where, and what is wrong there."""


@cache
def trace_schema() -> dict[str, Any]:
    body: dict[str, Any] = json.loads(_SCHEMA_FILE.read_text(encoding="utf-8"))
    return body


@cache
def _validator() -> Draft202012Validator:
    operations = Resource.from_contents(protocol.schema(protocol.OPERATIONS_SCHEMA))
    registry = Registry().with_resource(protocol.OPERATIONS_SCHEMA, operations)
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_count).redefine("number", _is_number)
    return validators.extend(Draft202012Validator, type_checker=types)(trace_schema(), registry=registry)


def _is_count(checker: TypeChecker, value: Any) -> bool:
    """Whether it is a whole number of 64 bits, as the fields of a trace are; 1.0 and 10e400 are none."""
    return isinstance(value, int) and _is_number(checker, value)


def _is_number(checker: TypeChecker, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _NUMBER_MAX


def check_trace(body: Any, where: str) -> None:
    """Refuse what cannot be replayed, by its first field that is wrong."""
    errors = sorted(_validator().iter_errors(body), key=_rank)
    if errors:
        raise TraceError(f"{where}: {_complaint(errors[0])}")


def _rank(error: ValidationError) -> tuple[bool, list[str]]:
    """A step that is out of place comes first: what its fields lack is then beside the point."""
    path = list(map(str, error.absolute_path))
    return path[-1:] != ["do"], path


def _complaint(error: ValidationError) -> str:
    """What is wrong, and with which field; a field that is missing, or that nobody knows, is named as well."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    place = "".join(["trace", *steps])
    match error.validator:
        case "required":
            missing = next(name for name in error.validator_value if name not in error.instance)
            return f"{place}.{missing}: is missing"
        case "additionalProperties":
            known = error.schema["properties"]
            unknown = next(name for name in error.instance if name not in known)
            return f"{place}.{unknown}: there is no such field; there are {', '.join(known)}"
        case "enum":
            return f"{place}: {_shown(error.instance)} is none of {', '.join(map(str, error.validator_value))}"
        case "not":
            return f"{place}: there is no such field in a trace of this kind"
    return f"{place}: {_shown(error.instance)} does not fit: {error.validator} is {_shown(error.validator_value)}"


def _shown(value: Any) -> str:
    words = json.dumps(value, ensure_ascii=False)
    return words if len(words) <= _VALUE_MAX else f"{words[:_VALUE_MAX]}…"


def read_trace(path: Path) -> dict[str, Any]:
    """A trace from a file, which can be replayed."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise TraceError(f"{path}: is not JSON: {error}") from None
    except RecursionError:
        body = None
    if body is None or _depth(body) > _DEPTH_MAX:
        raise TraceError(f"{path}: is no trace: it is nested deeper than {_DEPTH_MAX} levels")
    check_trace(body, str(path))
    if body["kind"] == "sequence":
        try:
            compile_schema(body["schema"])
        except Refusal as refusal:
            raise TraceError(f"{path}: trace.schema: is no schema: {refusal.message}") from None
    elif body["kind"] != "example":
        # Imported late: faults are made of traces, and who reads a sequence needs none of their machinery.
        from failpoints.replays import check_fault

        check_fault(body, str(path))
    found: dict[str, Any] = body
    return found


def _depth(body: Any) -> int:
    """How deep a JSON value is nested, level by level: to call oneself for each would break down where it matters."""
    depth, level = 0, [body]
    while level := [part for each in level for part in _parts(each)]:
        depth += 1
    return depth


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def make_trace(
    found: Mapping[str, Any], *, engine: str, store: str | None, seed: int, peer: str | None = None
) -> dict[str, Any]:
    """A trace from what a failed test left: its operations, and for a sequence its schema and steps."""
    body = {
        "format": TRACE_FORMAT,
        "kind": found.get("kind") or ("sequence" if "steps" in found else "example"),
        "suite_version": importlib.metadata.version("omnigraph-touchstone"),
        "faults": [],
        "schedule": [],
        **cleared(found),
        # What the caller says of them has been cleared of secrets.
        "engine": engine,
        "store": store or "local",
        "seed": seed,
        **({} if peer is None else {"peer": peer}),
    }
    check_trace(body, "this trace")
    return body


def cleared(found: Mapping[str, Any]) -> dict[str, Any]:
    """What was found, without secrets in an engine's words. What a replay runs, no engine has said, and stays."""
    body = {name: value if name in _OURS else value_without_secrets(value) for name, value in found.items()}
    if isinstance(found.get("fault"), Mapping):
        fault = found["fault"]
        body["fault"] = {name: value_without_secrets(fault[name]) if name in _SAID else fault[name] for name in fault}
    return body


def write_trace(
    path: Path, found: Mapping[str, Any], *, engine: str, store: str | None, seed: int, peer: str | None = None
) -> None:
    body = make_trace(found, engine=engine, peer=peer, store=store, seed=seed)
    write_whole(path, as_text(body))


def as_text(body: Mapping[str, Any]) -> str:
    """A trace as it stands in its file."""
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all: half of one, where a disk is full, would be taken for what was found."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
