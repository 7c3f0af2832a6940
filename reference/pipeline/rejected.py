"""The records that one load leaves out, or because of which it is refused, and the quarantine that keeps them."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from reference.errors import OmniError
from reference.pipeline.found_input import RunTasks
from reference.pipeline.inputs import Piece, Place
from reference.pipeline.look_up import TextItem, fetch_texts
from reference.pipeline.rejections import PiecesByRecord, Rejection, write_quarantine
from reference.schema.types import Catalog

_PATTERN_MARKS = "*?["


def beside(source: Place) -> str:
    """Where rejected records go if nobody says: next to the input, under a name that no input takes up."""
    plain = source.uri
    for mark in _PATTERN_MARKS:
        plain = plain.partition(mark)[0]
    if plain != source.uri:
        plain = plain.rpartition("/")[0]  # A pattern may break off within a name.
    parent, _, name = plain.rstrip("/").rpartition("/")
    if parent.endswith("/") or not parent:  # The input is a whole bucket, or a whole disk.
        return f"{plain.rstrip('/')}/_rejected"
    return f"{parent}/_rejected-{name}"


@dataclass
class Rejected:
    """What is left out so far. Up to `allowed` records may be."""

    allowed: int
    quarantine: Place
    name: str
    source: Place
    catalog: Catalog
    run: RunTasks
    kept_in: str | None = None
    records: dict[int, Rejection] = field(default_factory=dict)
    _numbers: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def within(self, piece: Piece) -> tuple[int, ...]:
        """The numbers of the records of a piece that are left out."""
        start, end = (bisect.bisect_left(self._numbers, each) for each in (piece.first, piece.first + piece.records))
        return tuple(self._numbers[start:end])

    def reject(self, found: Sequence[Rejection], unseen: int, pieces: Sequence[Piece]) -> None:
        """Leave these records out, or refuse the load because of the first of them. `unseen` are beyond those."""
        everything = [*self.records.values(), *found]
        self.records |= {each.record: each for each in found if each.record is not None}
        self._numbers = sorted(self.records)
        count = len(self.records) + unseen
        if count <= self.allowed and not unseen and all(each.record is not None for each in found):
            return
        error = min(everything, key=lambda each: each.order).to_error()
        number = f"the first {len(everything)} of {count} or more" if unseen else f"all {len(everything)}"
        try:
            self._keep(everything, pieces)
            error.hint = f"{number} that are rejected are in {self.kept_in}"
        except OmniError as failure:
            error.hint = f"{number} that are rejected could not be kept: {failure.message}"
        raise error

    def keep(self, pieces: Sequence[Piece]) -> None:
        """Write what is left out to the quarantine, before the rest is loaded without it."""
        if self.records:
            self._keep(list(self.records.values()), pieces)

    def _keep(self, rejections: Sequence[Rejection], pieces: Sequence[Piece]) -> None:
        holders = PiecesByRecord.of(pieces)
        by_piece: dict[Piece, set[int]] = defaultdict(set)
        for each in rejections:
            if each.record is not None:
                by_piece[holders[each.record]].add(each.record)
        items = [
            TextItem(piece, self.source, self.catalog, tuple(sorted(numbers))) for piece, numbers in by_piece.items()
        ]
        found = {number: each for part in self.run("quarantine", items, fetch_texts) for number, each in part.items()}
        self.kept_in = write_quarantine(self.quarantine, self.name, rejections, found)
