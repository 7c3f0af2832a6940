"""Values as 64-bit hashes, column by column: what is compared, joined and summed up in place of the values themselves.

A hash depends on the value alone: not on the chunk it comes in, not on the width of the offsets, not on whether a
time is a date64 or a timestamp in milliseconds. So a table read from Parquet, from a scan or from an export hashes
alike. Text is taken eight bytes at a time, many rows at once; nothing is done value by value, long texts aside.

Two different values share a hash by chance once in 2**64 times. Where a wrong answer would follow from that, callers
look at the values of what they suspect; content is compared in two lanes, 128 bits together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

_MULTIPLIERS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93))
_SEEDS: Final = (np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344))
_NULL: Final = np.uint64(0xA4093822299F31D0)
_WORD: Final = 8
# The arrays that one step leaves for the next then stay in the cache of a processor.
_ROWS_AT_ONCE: Final = 32_768
# A longer text is hashed by itself: the loop over words of all rows would turn around for it alone.
_LONG_TEXT_BYTES: Final = 256
# How much of a word of eight bytes belongs to a text that ends in it.
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(_WORD)] + [2**64 - 1], dtype=np.uint64)


def mixed(values: Hashes) -> Hashes:
    """Every bit of each number spread over all of its bits; different numbers stay different."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        return values ^ (values >> np.uint64(33))


def column_hashes(column: pa.Array | pa.ChunkedArray, lane: int = 0) -> Hashes:
    """One hash for each value of a column; a null has one of its own."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 0:
            return np.empty(0, dtype=np.uint64)
        return np.concatenate([column_hashes(chunk, lane) for chunk in column.chunks])
    if len(column) > _ROWS_AT_ONCE:
        starts = range(0, len(column), _ROWS_AT_ONCE)
        return np.concatenate([column_hashes(column.slice(start, _ROWS_AT_ONCE), lane) for start in starts])
    hashes = _value_hashes(column, lane)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def row_hashes(columns: Sequence[pa.Array | pa.ChunkedArray], lane: int = 0) -> Hashes:
    """One hash for each row of some columns, which are told apart by their order."""
    with np.errstate(over="ignore"):
        found = np.full(len(columns[0]), _SEEDS[lane], dtype=np.uint64)
        for column in columns:
            found = mixed(found * _MULTIPLIERS[lane] + column_hashes(column, lane))
    return found


@dataclass(frozen=True)
class Checksum:
    """How many rows there are, and the sum of their hashes in two lanes: the same in whatever order they come."""

    rows: int = 0
    lanes: tuple[int, int] = (0, 0)

    def __add__(self, other: Checksum) -> Checksum:
        one, two = ((mine + theirs) % 2**64 for mine, theirs in zip(self.lanes, other.lanes, strict=True))
        return Checksum(self.rows + other.rows, (one, two))

    def __str__(self) -> str:
        return "".join(f"{lane:016x}" for lane in self.lanes)


def checksum(rows: pa.Table | pa.RecordBatch, columns: Iterable[str]) -> Checksum:
    """The checksum of some columns of a table, in the order in which they are named."""
    chosen = [rows.column(name) for name in columns]
    one, two = (int(np.add.reduce(row_hashes(chosen, lane), dtype=np.uint64)) for lane in (0, 1))
    return Checksum(rows.num_rows, (one, two))


def _value_hashes(array: pa.Array, lane: int) -> Hashes:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text_hashes(array, np.dtype(np.int32), lane)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _text_hashes(array, np.dtype(np.int64), lane)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list_hashes(array, lane)
    return _number_hashes(array, lane)


def _number_hashes(array: pa.Array, lane: int) -> Hashes:
    """Numbers, times and truth values by their bits: a zero keeps its sign."""
    kind = array.type
    if pa.types.is_boolean(kind):
        bits = array.cast(pa.uint8())
    elif pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        bits = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    else:
        bits = array
    numbers = pc.fill_null(bits, 0).to_numpy(zero_copy_only=False)
    # A negative number of 32 bits becomes the same 64 bits whether it came as 32 or as 64.
    with np.errstate(over="ignore"):
        return mixed(
            numbers.astype(np.int64 if numbers.dtype.kind == "i" else np.uint64).view(np.uint64) ^ _SEEDS[lane]
        )


def _list_hashes(array: pa.Array, lane: int) -> Hashes:
    """A list is its items, each at its place, and how many they are."""
    items = column_hashes(array.flatten(), lane)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    begins = ends - lengths
    places = (np.arange(len(items), dtype=np.int64) - np.repeat(begins, lengths)).view(np.uint64)
    with np.errstate(over="ignore"):
        placed = mixed(items + mixed(places ^ _SEEDS[lane]) * _MULTIPLIERS[lane])
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(placed, dtype=np.uint64)])
        return mixed(running[ends] - running[begins] + lengths.view(np.uint64) * _MULTIPLIERS[lane])


def _text_hashes(array: pa.Array, offset_type: np.dtype[Any], lane: int) -> Hashes:
    if not len(array):
        return np.empty(0, dtype=np.uint64)
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=offset_type)[array.offset : array.offset + len(array) + 1]
    offsets = offsets.astype(np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    data = np.zeros(offsets[-1] - offsets[0] + _WORD, dtype=np.uint8)
    if data_buffer is not None:
        data[: -_WORD or None] = np.frombuffer(data_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets[:-1] - offsets[0]
    hashes = mixed(lengths.view(np.uint64) ^ _SEEDS[lane])
    _fold_words(hashes, data, starts, np.where(lengths > _LONG_TEXT_BYTES, 0, lengths), lane)
    for index in np.flatnonzero(lengths > _LONG_TEXT_BYTES):
        text = data[starts[index] : starts[index] + lengths[index]]
        digest = hashlib.blake2b(text.tobytes(), digest_size=_WORD, salt=bytes([lane])).digest()
        hashes[index] = np.uint64(int.from_bytes(digest, "little"))
    return mixed(hashes)


def _fold_words(
    hashes: Hashes,
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    lane: int,
) -> None:
    """Fold the words of each text into its hash. For one hash so far, different words give different hashes."""
    words = np.ndarray((len(data) - _WORD + 1,), dtype="<u8", buffer=data.data, strides=(1,))
    active = np.flatnonzero(lengths > 0)
    done = 0
    while len(active):
        whole = len(active) == len(hashes)
        left = (lengths if whole else lengths[active]) - done
        word = words[(starts if whole else starts[active]) + done] & _MASKS[np.minimum(left, _WORD)]
        with np.errstate(over="ignore"):
            folded = ((hashes if whole else hashes[active]) ^ word) * _MULTIPLIERS[lane]
        hashes[active] = folded ^ (folded >> np.uint64(32))
        done += _WORD
        active = active[left > _WORD]
