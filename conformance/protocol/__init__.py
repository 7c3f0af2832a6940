"""The driver protocol: what a harness may ask an engine, and what the engine may answer.

One JSON request per line, one JSON answer per line, in the order of the requests. The shapes are JSON Schema, so that
a driver in any language can be checked message by message:

    request.schema.json      the envelope of a request
    answer.schema.json       the envelope of an answer: exactly one of `ok`, `error`, `unsupported`
    operations.schema.json   for each operation, `<op>.args` and `<op>.ok` in `$defs`, with the values they share

`check_request` and `check_answer` say what is wrong with a message, in words that name the place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

_HERE = Path(__file__).parent
OPERATIONS_SCHEMA = "operations.schema.json"


class ProtocolViolation(ValueError):
    """A message that is not in the protocol: the place in it, and what is wrong there."""


@cache
def schema(name: str) -> dict[str, Any]:
    """One of the schema files."""
    body: dict[str, Any] = json.loads((_HERE / name).read_text(encoding="utf-8"))
    return body


@cache
def operations() -> tuple[str, ...]:
    """Every operation of the vocabulary, sorted."""
    return tuple(sorted(name.removesuffix(".args") for name in schema(OPERATIONS_SCHEMA)["$defs"] if ".args" in name))


def check_request(message: Any) -> None:
    """Refuse a request that no driver has to understand."""
    _check("request.schema.json", message)
    if message["op"] not in operations():
        raise ProtocolViolation(f"op: '{message['op']}' is not an operation: {', '.join(operations())}")
    _check(f"{OPERATIONS_SCHEMA}#/$defs/{message['op']}.args", message.get("args", {}), at="args")


def check_answer(request: Mapping[str, Any] | None, message: Any) -> None:
    """Refuse an answer that does not belong to its request; None stands for a line that was no request at all."""
    _check("answer.schema.json", message)
    expected = None if request is None else request["seq"]
    if message["seq"] != expected:
        raise ProtocolViolation(f"seq: the answer to request {expected} says {message['seq']}")
    if request is None and "error" not in message:
        raise ProtocolViolation("a line that is no request is answered with an error")
    if request is not None and "ok" in message:
        _check(f"{OPERATIONS_SCHEMA}#/$defs/{request['op']}.ok", message["ok"], at="ok")


def _check(reference: str, value: Any, *, at: str = "message") -> None:
    errors = sorted(_validator(reference).iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
    if errors:
        place = "".join(f"[{step!r}]" for step in errors[0].absolute_path)
        raise ProtocolViolation(f"{at}{place}: {errors[0].message}")


@cache
def _validator(reference: str) -> Draft202012Validator:
    names = ("request.schema.json", "answer.schema.json", OPERATIONS_SCHEMA)
    registry = Registry().with_resources((name, Resource.from_contents(schema(name))) for name in names)
    name, _, pointer = reference.partition("#")
    part: Any = schema(name)
    for step in filter(None, pointer.split("/")):
        part = part[step]
    return Draft202012Validator(_inlined(part), registry=registry)


def _inlined(part: Any, inside: tuple[str, ...] = ()) -> Any:
    """A part of a schema with what it refers to in its place, unless that refers to itself.

    To look the same reference up for each of many rows would take most of the time of a check.
    """
    if isinstance(part, list):
        return [_inlined(each, inside) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part and part.keys() <= {"$ref", "description"}:
        name = part["$ref"].removeprefix("#/$defs/")
        if name in inside:
            return {"$ref": f"{OPERATIONS_SCHEMA}#/$defs/{name}"}
        return _inlined(schema(OPERATIONS_SCHEMA)["$defs"][name], (*inside, name))
    return {name: _inlined(each, inside) for name, each in part.items() if name != "$id"}
