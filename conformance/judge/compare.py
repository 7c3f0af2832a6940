"""Answers brought into a form in which two of them can be compared, and the first difference of two exports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from conformance.model.errors import Conflict

ConflictKey = tuple[str, str, str]
# Two doubles that a careless reader of numbers takes for each other agree in so many digits.
_CARELESS_DIGITS: Final = 14
# Of a rule that is broken, which rows are named, and whether any, is left to the engine.
_ROW_IS_FREE = ("UniqueViolation", "CardinalityViolation", "ValueConstraintViolation")


def conflicts_of(found: Mapping[str, Any] | Iterable[Conflict]) -> list[ConflictKey]:
    """The conflicts of a merge, from an engine's details or from the model, as sorted keys, each once."""
    if isinstance(found, Mapping):
        rows = [each for each in found.get("conflicts", []) if isinstance(each, Mapping)]
        keys = [(str(each.get("table_key")), str(each.get("row_id")), str(each.get("kind"))) for each in rows]
    else:
        keys = [(each.table_key, each.row_id, each.kind) for each in found]
    return sorted({(table, "" if kind in _ROW_IS_FREE else row, kind) for table, row, kind in keys})


def plan_of(steps: Iterable[Mapping[str, Any]]) -> list[str]:
    """The steps of a schema plan without their words: what an engine says about a step is its own."""
    words = ("reason", "message", "hint", "description")
    bare = [{name: value for name, value in step.items() if name not in words} for step in steps]
    return sorted(json.dumps(step, sort_keys=True) for step in bare)


def first_difference(found: str, meant: str) -> str | None:
    """Where two exports differ, in words; None if they are the same bytes."""
    if found == meant:
        return None
    lines, expected = found.split("\n"), meant.split("\n")
    missing, extra = _without(expected, lines), _without(lines, expected)
    if not missing and not extra:
        number = next((n for n, (a, b) in enumerate(zip(lines, expected, strict=False), 1) if a != b), len(lines))
        return f"the same records stand in another order, first at line {number}"
    parts = []
    if missing:
        parts.append(f"{len(missing)} expected and not there, such as {missing[0]}")
    if extra:
        parts.append(f"{len(extra)} there and not expected, such as {extra[0]}")
    return "; ".join(parts)


def misread(found: str, meant: str) -> str | None:
    """The requirement that speaks of values of one kind, if two exports differ in nothing else: in the last digits of
    doubles [LOD-14], or in blobs of no bytes that are shown as none [EXP-06]."""
    for requirement, blurred in _BLURRED.items():
        one, other = (sorted(blurred(line) for line in text.split("\n")) for text in (found, meant))
        if one == other:
            return requirement
    return None


def _without_last_digits(line: str) -> str:
    def careless(text: str) -> str:
        return f"{float(text):.{_CARELESS_DIGITS}g}"

    return json.dumps(json.loads(line, parse_float=careless)) if line else line


def _without_empty_blobs(line: str) -> str:
    return line.replace('"base64:"', "null")


_BLURRED: Final[Mapping[str, Callable[[str], str]]] = {
    "LOD-14": _without_last_digits,
    "EXP-06": _without_empty_blobs,
}


def _without(lines: list[str], others: list[str]) -> list[str]:
    """The lines that the others do not have, as often as they do not."""
    left = list(others)
    kept = []
    for line in lines:
        if line in left:
            left.remove(line)
        else:
            kept.append(line)
    return kept
