"""What Lance itself counts: the requests that it sends to object stores, in this process.

It is a second opinion on the gate's counts, and the only one for an engine in this process on a local directory, where
nothing can stand between the engine and its files. Lance counts for the whole process and for ever, so a count is the
difference of two looks, and whoever else uses Lance meanwhile is counted too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from lance import lance as _lance

_REQUESTS: Final = "lance_object_store_requests_total"


@dataclass
class LanceCounts:
    """How many requests of each kind Lance made, by its own names: get, head, list, put, delete, rename."""

    operations: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        return self.operations.total()


@contextmanager
def lance_counts() -> Iterator[LanceCounts]:
    """Count what Lance does in a block; the numbers are there when the block is over."""
    _lance.register_lance_metrics_recorder()
    before, counts = _snapshot(), LanceCounts()
    yield counts
    counts.operations.update(_snapshot() - before)


def _snapshot() -> Counter[str]:
    found: Counter[str] = Counter()
    for point in _lance.snapshot_lance_metrics():
        if point.name == _REQUESTS:
            found[point.attributes["operation"]] += int(point.value or 0)
    return found
