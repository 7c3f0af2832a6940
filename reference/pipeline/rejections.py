"""Records that a load does not take: why, where they are, and which of them the engine would have named.

The engine looks at a load in phases and stops at the first thing that is wrong. Here everything is looked at, and
each rejection carries the place that it has in the engine's order; the least of them is the error of the load. All of
them, with the records themselves, go to the quarantine: one JSON object a line.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from reference.errors import BadRequest
from reference.pipeline.inputs import Piece, Place

# More than a person reads. The rest is counted, and comes to light when these are mended.
REJECTED_MAX: Final = 10_000

# The phases of the engine, in its order.
RECORD, TWICE, EXISTS, VALUE, UNIQUE, ENDPOINT, CARDINALITY = range(7)


@dataclass(frozen=True)
class Rejection:
    """One thing that is wrong. `record` is None where what is hurt is a committed row and no record of the input."""

    order: tuple[int, ...]
    record: int | None
    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BadRequest, order: tuple[int, ...], record: int | None) -> Rejection:
        return cls(order, record, error.code, error.message, error.details)

    def numbered(self) -> Rejection:
        """With the number of its record in words and details, as `load` reports it."""
        if self.record is None or "record" in self.details:
            return self
        message = f"record {self.record}: {self.message}"
        return replace(self, message=message, details={**self.details, "record": self.record})

    def to_error(self) -> BadRequest:
        return BadRequest(self.message, code=self.code, details=self.details)


def one_each(rejections: Sequence[Rejection]) -> list[Rejection]:
    """The first thing that is wrong with each record, and everything that is wrong with none, in the engine's order."""
    found: dict[int, Rejection] = {}
    homeless = []
    for each in sorted(rejections, key=lambda each: each.order):
        if each.record is None:
            homeless.append(each)
        else:
            found.setdefault(each.record, each)
    return sorted([*found.values(), *homeless], key=lambda each: each.order)


def share(parts: int, allowed: int) -> int:
    """How many rejected records each of some tasks tells, so that all of them together do not flood the driver: always
    the first ones, and more than are allowed, so that what is told decides."""
    return min(told_max(allowed), max(allowed, REJECTED_MAX // max(parts, 1)) + 1)


def told_max(allowed: int) -> int:
    """How many rejected records are told of one rule and one table."""
    return max(REJECTED_MAX, allowed + 1)


@dataclass(frozen=True)
class PiecesByRecord:
    """The pieces that hold records, to be found by the numbers of these."""

    pieces: Sequence[Piece]
    firsts: Sequence[int]

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> PiecesByRecord:
        held = [piece for piece in pieces if piece.records]
        return cls(held, [piece.first for piece in held])

    def __getitem__(self, record: int) -> Piece:
        return self.pieces[bisect.bisect_right(self.firsts, record) - 1]


@dataclass(frozen=True)
class Found:
    """A rejected record as it is in its file."""

    file: str
    line: int | None
    byte: int | None
    text: str


def write_quarantine(place: Place, name: str, rejections: Sequence[Rejection], found: Mapping[int, Found]) -> str:
    """Write the rejected records with their reasons; returns where."""
    path = f"{place.path}/{name}.jsonl"
    lines = []
    for each in sorted(rejections, key=lambda each: (each.record is None, each.record or 0)):
        where = found.get(each.record) if each.record is not None else None
        body: dict[str, Any] = {"record": each.record}
        if where is not None:
            body |= {"file": where.file, "line": where.line, "byte": where.byte}
        body |= {"code": each.code, "message": each.message, "details": dict(each.details)}
        if where is not None:
            body["text"] = where.text
        lines.append(json.dumps(body, ensure_ascii=False, default=str))
    try:
        system = place.system()
        system.create_dir(place.path, recursive=True)
        with system.open_output_stream(path) as file:
            file.write("".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))
    except (OSError, pa.ArrowException) as error:
        raise place.refused(error, "written") from None
    return f"{place.uri}/{name}.jsonl"
