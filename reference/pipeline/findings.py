"""What a bucket of keys can find. A finding speaks of many records at once, of the first of them in the engine's order,
and counts the others: a load that goes wrong everywhere must not carry every record to the driver to say so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reference.pipeline.hashing import column_hashes
from reference.pipeline.keys import Side

Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
# Behind every position and every order.
NOWHERE = 2**63 - 1


@dataclass(frozen=True)
class Keys:
    """Values as two hashes each. Those that others are looked for in are sorted by the first."""

    hashes: Hashes
    checks: Hashes

    @classmethod
    def of(cls, parts: Iterable[Keys]) -> Keys:
        found = list(parts)
        hashes = np.concatenate([each.hashes for each in found]) if found else np.empty(0, dtype=np.uint64)
        checks = np.concatenate([each.checks for each in found]) if found else np.empty(0, dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], checks[order])

    @classmethod
    def of_texts(cls, texts: Any) -> Keys:
        return cls(column_hashes(texts, 0), column_hashes(texts, 1))

    def __len__(self) -> int:
        return len(self.hashes)

    def chosen(self, which: Mask | Numbers) -> Keys:
        return Keys(self.hashes[which], self.checks[which])

    def found_in(self, others: Keys) -> Mask:
        """Which of these are among others, which are sorted."""
        found: Mask = self.places_in(others) >= 0
        return found

    def places_in(self, others: Keys) -> Numbers:
        """Where each of these is among others, which are sorted; below 0 where it is not."""
        if not len(others):
            return np.full(len(self), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(others.hashes, self.hashes), len(others) - 1).astype(np.int64)
        is_near = others.hashes[places] == self.hashes
        is_found = is_near & (others.checks[places] == self.checks)
        # Two values may share the first hash, and the one that is looked for may be the second of them.
        for index in np.flatnonzero(is_near & ~is_found).tolist():
            end = np.searchsorted(others.hashes, self.hashes[index], side="right")
            same = np.flatnonzero(others.checks[places[index] : end] == self.checks[index])
            places[index] += same[0] if len(same) else 0
            is_found[index] = bool(len(same))
        return np.where(is_found, places, -1)


@dataclass(frozen=True)
class Twice:
    """Records that fix an id which an earlier record fixes: those that come first, and how many there are in all."""

    table_key: str
    positions: Numbers
    firsts: Numbers
    count: int


@dataclass(frozen=True)
class Existing:
    """Records that append an id which is committed, with the places of those rows in their table."""

    table_key: str
    positions: Numbers
    orders: Numbers
    count: int


@dataclass(frozen=True)
class Replaced:
    """Committed ids that the input replaces, and where the edges among them that are counted began."""

    table_key: str
    ids: pa.Array
    sources: pa.Array | None


@dataclass(frozen=True)
class Missing:
    """Endpoints of the input's edges that are no nodes: all from the first piece that has any, and some more."""

    table_key: str
    side: Side
    keys: Keys
    count: int


@dataclass(frozen=True)
class Stranded:
    """Endpoints of committed edges that are no nodes any more: all from the first fragment with any, and some more."""

    table_key: str
    side: Side
    values: pa.Array
    count: int


@dataclass(frozen=True)
class Counted:
    """Sources with too few or too many edges, each first seen in the input at a position or in a table at an order."""

    table_key: str
    sources: pa.Array
    edges: Numbers
    positions: Numbers
    orders: Numbers
    count: int


@dataclass(frozen=True)
class SharedValue:
    """A value of a unique group that several rows have: records, and committed rows by their place and id."""

    positions: tuple[int, ...]
    holders: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Shared:
    """Values of a unique group that several rows have. `rest` are the records that are not told, of which some are in
    doubt: they are wrong unless the input itself takes the value from its holder."""

    table_key: str
    group: int
    values: tuple[SharedValue, ...]
    rest: int
    rest_in_doubt: int

    @property
    def count(self) -> int:
        return self.rest + sum(len(value.positions) for value in self.values)


Finding = Twice | Existing | Replaced | Missing | Stranded | Counted | Shared
