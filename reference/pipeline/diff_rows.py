"""The rows of two states of a table, compared by tasks: ids and contents travel as hashes, ids as text beside them.

A side sends only rows that may differ. In its bucket an id that only the newer side has is an insert, one that only
the older side has is a delete, and one that both have is an update if the contents differ. Of states of one history a
row with the same row version in both is the same row, whatever happened to its columns since [CHG-04].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reference.pipeline.hashing import Hashes, column_hashes, row_hashes
from reference.pipeline.scans import ROW_UPDATED_AT, Piece, blob_contents, blob_names, chosen_fragments

OPS: Final = ("insert", "update", "delete")
# Of a fragment that lost more than this share of its rows, all are read and most are dropped: that is faster then.
_TAKEN_SHARE_MAX: Final = 0.2
_CONTENT: Final = b"\x00content"
_REFERENCE: Final = b"\x01reference"


class Side(IntEnum):
    """Which of two states a row is of."""

    OLDER = 0
    NEWER = 1


@dataclass(frozen=True)
class Part:
    """Rows of one side. With `against`, only those that this fragment of the other side, of the same files, lacks."""

    side: Side
    piece: Piece
    rows: int
    ids_only: bool = False
    in_one_history: bool = False
    against: Piece | None = None


@dataclass(frozen=True)
class Shared:
    """What all parts need to know."""

    buckets: int
    foreign_versions: Mapping[str, frozenset[int]]


@dataclass(frozen=True)
class Sent:
    """Rows of one side of one table that belong to one bucket. A version of 0 is none."""

    table_key: str
    side: Side
    ids: Any
    hashes: Hashes
    contents: tuple[Hashes, Hashes]
    versions: npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Changed:
    """Rows of a table with one kind of change: how many, and the first of them by id."""

    table_key: str
    op: str
    count: int
    first_ids: tuple[str, ...]


# -- reading -----------------------------------------------------------------------------------------------------------


def read_part(shared: Shared, part: Part) -> Iterator[tuple[int, Sent]]:
    """The rows of a part, each to the bucket of its id."""
    from reference.storage.tables import translated

    with translated(f"the rows of {part.piece.table.table_key}"):
        rows, contents = _read(part, shared)
    if not rows.num_rows:
        return
    ids = rows["id"].combine_chunks()
    hashes = column_hashes(ids)
    versions = np.zeros(len(ids), dtype=np.uint64)
    if part.in_one_history and ROW_UPDATED_AT in rows.column_names:
        versions = rows[ROW_UPDATED_AT].to_numpy().astype(np.uint64)
    owners = (hashes % np.uint64(shared.buckets)).astype(np.int64)
    for bucket in range(shared.buckets):
        mine = np.flatnonzero(owners == bucket)
        if len(mine):
            yield (
                bucket,
                Sent(
                    part.piece.table.table_key,
                    part.side,
                    ids.take(pa.array(mine)),
                    hashes[mine],
                    (contents[0][mine], contents[1][mine]),
                    versions[mine],
                ),
            )


def _read(part: Part, shared: Shared) -> tuple[pa.Table, tuple[Hashes, Hashes]]:
    """The rows of a part, and two hashes of the content of each."""
    handle = part.piece.open()
    if part.ids_only:
        rows = part.piece.read(["id"], handle=handle)
        nothing = np.zeros(rows.num_rows, dtype=np.uint64)
        return rows, (nothing, nothing)
    names, blobs = list(handle.schema.names), blob_names(handle)
    extra = [ROW_UPDATED_AT] if part.in_one_history or blobs else []
    if part.against is None:
        rows = part.piece.read([*names, *extra], handle=handle, with_row_id=bool(blobs))
    else:
        rows = _only_here(part, part.against, handle, [*names, *extra], has_blobs=bool(blobs))
    if not rows.num_rows:
        return rows, (np.empty(0, np.uint64), np.empty(0, np.uint64))
    foreign = shared.foreign_versions.get(part.piece.table.table_key, frozenset())
    columns = [
        _blob_column(blob_contents(handle, rows, name, foreign)) if name in blobs else rows[name] for name in names
    ]
    shape = _shape(handle.schema, blobs)
    one, two = (row_hashes([pa.repeat(shape, rows.num_rows), *columns], lane) for lane in (0, 1))
    return rows, (one, two)


def _shape(schema: pa.Schema, blobs: list[str]) -> pa.Scalar:
    """Which columns there are: where they changed, every row did."""
    return pa.scalar(repr([(each.name, "blob" if each.name in blobs else str(each.type)) for each in schema]))


def _only_here(part: Part, against: Piece, handle: Any, columns: list[str], *, has_blobs: bool) -> pa.Table:
    """The rows of a fragment that are deleted on the other side: the files are the same, so are the places in them."""
    here, there = (_places(piece, opened) for piece, opened in ((part.piece, handle), (against, against.open())))
    positions = np.flatnonzero(~np.isin(here, there))
    if not len(positions) or (len(positions) <= _TAKEN_SHARE_MAX * len(here) and not has_blobs):
        fragment = chosen_fragments(handle, part.piece.fragment_ids)[0]
        stored = [name for name in columns if not name.startswith("_row")]
        return fragment.take(positions.tolist(), columns=stored)
    return part.piece.read(columns, handle=handle, with_row_id=has_blobs).take(pa.array(positions))


def _places(piece: Piece, handle: Any) -> npt.NDArray[np.uint64]:
    """Where the live rows of a fragment are in its files."""
    addresses = piece.scanner(handle, [], with_row_address=True).to_table()["_rowaddr"].to_numpy()
    places: npt.NDArray[np.uint64] = addresses.astype(np.uint64) & np.uint64(0xFFFFFFFF)
    return places


def _blob_column(values: Iterable[Any]) -> pa.Array:
    """Blobs for comparison: a content is never a reference, and an empty one is not null."""
    tagged = [
        None if value is None else _CONTENT + value if isinstance(value, bytes) else _REFERENCE + value.encode()
        for value in values
    ]
    return pa.array(tagged, pa.large_binary())


# -- comparing ---------------------------------------------------------------------------------------------------------


def compare(samples: int, bucket: int, blocks: Iterable[Sent]) -> list[Changed]:
    """What changed among the ids of one bucket."""
    tables: dict[str, dict[Side, list[Sent]]] = {}
    for block in blocks:
        tables.setdefault(block.table_key, {Side.OLDER: [], Side.NEWER: []})[block.side].append(block)
    return [
        Changed(key, op, len(ids), _first(ids, samples))
        for key, sides in sorted(tables.items())
        for op, ids in _changes(_Joined(sides[Side.OLDER]), _Joined(sides[Side.NEWER]))
        if len(ids)
    ]


class _Joined:
    """All rows of one side of a table in one bucket, by their hashes."""

    def __init__(self, blocks: list[Sent]) -> None:
        empty = np.empty(0, np.uint64)
        hashes = np.concatenate([block.hashes for block in blocks]) if blocks else empty
        order = np.argsort(hashes)
        self.hashes: Hashes = hashes[order]
        ids = pa.concat_arrays([block.ids for block in blocks]) if blocks else pa.array([], pa.string())
        self.ids = ids.take(pa.array(order))
        self.contents = [
            np.concatenate([block.contents[lane] for block in blocks])[order] if blocks else empty for lane in (0, 1)
        ]
        self.versions = np.concatenate([block.versions for block in blocks])[order] if blocks else empty


def _changes(older: _Joined, newer: _Joined) -> Iterator[tuple[str, Any]]:
    places = np.searchsorted(older.hashes, newer.hashes)
    inside = np.minimum(places, max(0, len(older.hashes) - 1))
    known = np.zeros(len(newer.hashes), dtype=np.bool_)
    if len(older.hashes):
        known = np.equal(older.hashes[inside], newer.hashes)
    before, after = inside[known], np.flatnonzero(known)
    differs = np.zeros(len(after), dtype=np.bool_)
    for one, other in zip(older.contents, newer.contents, strict=True):
        differs |= one[before] != other[after]
    is_same_row = (older.versions[before] == newer.versions[after]) & (newer.versions[after] != 0)
    gone = np.ones(len(older.hashes), dtype=np.bool_)
    gone[before] = False
    yield "insert", newer.ids.take(pa.array(np.flatnonzero(~known)))
    yield "update", newer.ids.take(pa.array(after[differs & ~is_same_row]))
    yield "delete", older.ids.take(pa.array(np.flatnonzero(gone)))


def _first(ids: Any, samples: int) -> tuple[str, ...]:
    count = min(samples, len(ids))
    chosen = pc.select_k_unstable(ids, count, sort_keys=[("", "ascending")]) if count else pa.array([], pa.uint64())
    return tuple(ids.take(chosen).to_pylist())
