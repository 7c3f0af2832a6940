"""Made-up values: every one a function of the seed, the column and the number of its row, and of nothing else.

So any task can make any rows, in any order, and two tasks agree on what the other made: an edge knows the id of a
node that it never saw. Popularity follows a power law: of n things the one at rank r is chosen in proportion to r **
-(1 - 1/k), where k is the `skew`, which gives degrees a tail like that of real graphs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reference.pipeline.hashing import Hashes, mixed

Numbers = npt.NDArray[np.int64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_SYLLABLES: Final = ("an", "be", "cor", "da", "el", "fi", "gu", "ha", "iri", "jo", "ka", "lu", "mo", "ne", "os", "pi")
WORDS: Final = tuple(f"{one}{two}" for one in _SYLLABLES for two in _SYLLABLES)


@dataclass(frozen=True)
class Dice:
    """Draws for the rows of one table."""

    seed: int
    table: str

    def draws(self, column: str, rows: Numbers) -> Hashes:
        """A number of 64 bits for each row."""
        salt = hashlib.blake2b(f"{self.seed}/{self.table}/{column}".encode(), digest_size=8).digest()
        with np.errstate(over="ignore"):
            return mixed(mixed(rows.astype(np.uint64) * _GOLDEN) + np.uint64(int.from_bytes(salt, "little")))

    def shares(self, column: str, rows: Numbers) -> npt.NDArray[np.float64]:
        """A number from 0 up to 1 for each row."""
        return (self.draws(column, rows) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, column: str, rows: Numbers, limit: int) -> Numbers:
        """A whole number below a limit, each as likely as the others."""
        return np.minimum((self.shares(column, rows) * limit).astype(np.int64), limit - 1)

    def popular(self, column: str, rows: Numbers, limit: int, skew: float) -> Numbers:
        """A whole number below a limit, small ones far more often."""
        return np.minimum((self.shares(column, rows) ** skew * limit).astype(np.int64), limit - 1)

    def words(self, column: str, rows: Numbers, *, skew: float = 3.0) -> pa.Array:
        """A word, of which a few are everywhere."""
        return pa.array(WORDS, pa.string()).take(pa.array(self.popular(column, rows, len(WORDS), skew)))

    def sentences(self, column: str, rows: Numbers, longest: int) -> pa.Array:
        """Text of one word mostly, and of very many now and then."""
        lengths = 1 + self.popular(f"{column} length", rows, longest, 6.0)
        return _joined(self.items(column, rows, lengths), " ")

    def items(self, column: str, rows: Numbers, lengths: Numbers) -> pa.ListArray:
        """Lists of words, of given lengths."""
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        owners = np.repeat(rows, lengths)
        places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        # Of one row no list is longer than this, so no two items draw the same number.
        words = self.words(column, owners * 1_024 + places)
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), words)

    def vectors(self, column: str, rows: Numbers, dimensions: int) -> pa.FixedSizeListArray:
        """Unit-sized numbers of 32 bits, a fixed count for each row."""
        places = (rows[:, None] * dimensions + np.arange(dimensions)[None, :]).ravel()
        items = pa.array((self.shares(column, places) * 2 - 1).astype(np.float32))
        return pa.FixedSizeListArray.from_arrays(items, type=pa.list_(pa.field("item", pa.float32()), dimensions))

    def numbers(self, column: str, rows: Numbers, kind: pa.DataType, limit: int, *, start: int = 0) -> pa.Array:
        """Whole numbers of a type: also days and milliseconds, which are whole numbers underneath."""
        stored = pa.int32() if kind.bit_width == 32 else pa.int64()
        plain = pa.array(start + self.below(column, rows, limit)).cast(stored)
        return plain.view(kind) if plain.type != kind else plain

    def with_nulls(self, column: str, rows: Numbers, values: pa.Array, share: float) -> pa.Array:
        """The same values, a share of them missing."""
        present = pa.array(self.shares(f"{column} is null", rows) >= share)
        return pc.if_else(present, values, pa.scalar(None, values.type))


def spread(places: Numbers, limit: int) -> Numbers:
    """Another order of the numbers below a limit: so that what is popular lies everywhere."""
    step = next(each for each in range(int(limit * 0.618) | 1, 2 * limit + 3, 2) if math.gcd(each, limit) == 1)
    return (places * step + 7) % limit


def numbered(prefix: str, rows: Numbers) -> pa.Array:
    """Names that end in a number."""
    return text(prefix, pa.array(rows).cast(pa.string()))


def text(*parts: Any) -> pa.Array:
    """Texts put together, row by row; a plain str is the same in each."""
    columns: Sequence[Any] = [pa.scalar(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*columns, "")


def _joined(lists: pa.ListArray, separator: str) -> pa.Array:
    return pc.binary_join(lists, separator)
