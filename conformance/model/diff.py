"""Diff: the rows in which two states of a table differ, by value and not by who rewrote them [CHG]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from conformance.model.validate import Rows
from conformance.model.values import same_row


@dataclass(frozen=True, order=True)
class Change:
    """A row that is new, different or gone; edges with the nodes they join, or joined [CHG-01]."""

    table_key: str
    row_id: str
    op: Literal["insert", "update", "delete"]
    endpoints: tuple[str, str] | None = None


def changes(key: str, older: Rows, newer: Rows) -> Iterator[Change]:
    """What changed in one table, by id."""
    for row_id in sorted(older.keys() | newer.keys()):
        was, now = older.get(row_id), newer.get(row_id)
        row = now or was
        if row is None or same_row(was, now):
            continue
        op: Literal["insert", "update", "delete"] = "insert" if was is None else "delete" if now is None else "update"
        yield Change(key, row_id, op, (str(row["src"]), str(row["dst"])) if key.startswith("edge:") else None)
