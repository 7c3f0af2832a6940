"""The fragments that the tasks of a load have written so far, by piece and table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reference.pipeline.scan import PieceReport


@dataclass(frozen=True)
class _Written:
    """The fragments of one piece and table, and the records that they leave out."""

    parts: tuple[str, ...]
    excluded: tuple[int, ...]


@dataclass
class Fragments:
    """What is written, and what is still to be written."""

    _written: dict[tuple[int, str], _Written] = field(default_factory=dict)

    def keep(self, reports: Iterable[PieceReport], excluded: Mapping[int, tuple[int, ...]]) -> None:
        """Take note of what tasks have written, when those records of their pieces were left out."""
        for report in reports:
            for key, parts in report.fragments.items():
                self._written[report.index, key] = _Written(parts, excluded[report.index])

    def clear(self) -> None:
        self._written.clear()

    def missing(self, report: PieceReport, excluded: tuple[int, ...]) -> list[str]:
        """The tables whose rows in a piece must be written, or anew, because other records are left out by now."""
        found = []
        for key, rows in report.rows.items():
            written = self._written.get((report.index, key))
            if written is not None and (not rows or written.excluded != excluded):
                del self._written[report.index, key]
                written = None
            if rows and written is None:
                found.append(key)
        return found

    def by_table(self) -> dict[str, list[str]]:
        """The fragments of each table, in the order of the records."""
        found: dict[str, list[str]] = defaultdict(list)
        for (_, key), written in sorted(self._written.items(), key=lambda each: each[0]):
            found[key] += written.parts
        return found
