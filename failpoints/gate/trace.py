"""Exchanges for people: a table, and what a run has left unfinished at the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from failpoints.gate.exchange import Exchange

_KEY_CHARACTERS_MAX: Final = 48
_NUMBERS: Final = ("number", "status", "bytes", "ms")


def table_of(exchanges: Iterable[Exchange]) -> Table:
    """One line per exchange."""
    table = Table(box=None, pad_edge=False)
    for name in ("number", "owner", "verb", "role", "where", "condition", "status", "bytes", "ms", "outcome"):
        justify: JustifyMethod = "right" if name in _NUMBERS else "left"
        table.add_column(name, justify=justify, no_wrap=name in _NUMBERS, overflow="fold")
    for each in exchanges:
        milliseconds = "" if each.ended is None else f"{(each.ended - each.started) * 1000:.1f}"
        cells = (
            str(each.number),
            each.owner,
            each.verb,
            each.role,
            _where(each),
            " ".join(f"{name}={value}" for name, value in each.conditions),
            _status(each),
            f"{each.bytes_in}/{each.bytes_out}",
            milliseconds,
            each.outcome,
        )
        table.add_row(*(escape(cell) for cell in cells))
    return table


def print_trace(exchanges: Iterable[Exchange], console: Console) -> None:
    """Print the table; in a narrow console cells are broken, and nothing is left out."""
    console.print(table_of(exchanges))


def _where(each: Exchange) -> str:
    if each.verb == "LIST":
        tail = f"{each.prefix} ({each.listed} keys)"
    elif each.keys:
        tail = f"{len(each.keys)} keys"
    else:
        tail = each.key
    if not each.table:
        return _tail(tail)
    inside = tail.partition(f"{each.table}/")[2] if each.table in tail else tail
    name = each.table if not each.branch else f"{each.table} on {each.branch}"
    version = "" if each.version is None else f" v{each.version}"
    return f"{name}{version} {_tail(inside)}".rstrip()


def _tail(text: str) -> str:
    return text if len(text) <= _KEY_CHARACTERS_MAX else f"…{text[1 - _KEY_CHARACTERS_MAX :]}"


def _status(each: Exchange) -> str:
    """What the store said; and what the client heard, where that is something else."""
    said, heard = (("-" if code is None else str(code)) for code in (each.status, each.answered))
    return said if said == heard else f"{said} → {heard}"


def incomplete_uploads(exchanges: Iterable[Exchange]) -> tuple[Exchange, ...]:
    """Uploads that the store has begun and that were neither completed nor aborted, by their first request."""
    begun: dict[tuple[str, str], list[Exchange]] = {}
    for each in exchanges:
        place = (each.bucket, each.key)
        if each.verb == "INITIATE_UPLOAD" and each.applied:
            begun.setdefault(place, []).append(each)
        elif each.verb in ("COMPLETE_UPLOAD", "ABORT_UPLOAD") and each.applied and begun.get(place):
            begun[place].pop(0)
    return tuple(sorted((each for left in begun.values() for each in left), key=lambda each: each.number))
