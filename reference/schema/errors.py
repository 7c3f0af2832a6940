"""What can be wrong with a schema, shown where it is wrong.

`schema_syntax` is a text that is not in the language; `schema_invalid` is a sentence of the language that describes no
possible graph. Both are refused before anything is read or written [VAL-13, VAL-15].
"""

from __future__ import annotations

from typing import NamedTuple

from reference.errors import BadRequest

SYNTAX = "schema_syntax"
INVALID = "schema_invalid"

# A schema can be one line of a megabyte; people read a window around the mistake.
EXCERPT_CHARACTERS_MAX = 120


class Position(NamedTuple):
    """A place in the source, both parts counted from one."""

    line: int
    column: int


class SchemaError(BadRequest):
    """A schema that cannot be used, with the line it breaks on and a caret below the place."""

    def __init__(self, what: str, *, code: str, source: str = "", at: Position | None = None, hint: str) -> None:
        self.at = at
        message, details = what, {"reason": what}
        if at is not None:
            message = f"line {at.line}, column {at.column}: {what}\n{excerpt(source, at)}"
            details |= {"line": at.line, "column": at.column}  # type: ignore[dict-item]
        super().__init__(message, code=code, details=details, hint=hint)

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


def excerpt(source: str, at: Position) -> str:
    """The offending line with a caret under the column, every character one cell wide."""
    lines = source.split("\n")
    line = lines[at.line - 1] if at.line <= len(lines) else ""
    start = max(0, at.column - 1 - EXCERPT_CHARACTERS_MAX // 2)
    shown = line[start : start + EXCERPT_CHARACTERS_MAX]
    printable = "".join(char if char.isprintable() else " " if char in "\t\r" else "·" for char in shown)
    return f"  {printable.rstrip()}\n  {' ' * (at.column - 1 - start)}^"
