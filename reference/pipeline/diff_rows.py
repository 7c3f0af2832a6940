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
from reference.pipeline.scans import ROW_UPDATED_AT, Share, blob_contents, blob_names, chosen_fragments

OPS: Final = ("insert", "update", "delete")
# Of a fragment that lost more than this share of its rows, all are read and most are dropped: that is faster then.
_TAKEN_SHARE_MAX: Final = 0.2
_CONTENT: Final = b"\x00content"
_REFERENCE: Final = b"\x01reference"


# The number of a fragment, shifted by 32 bits, and the number of a row among the live ones of the fragment.
Places = npt.NDArray[np.uint64]


class Side(IntEnum):
    """Which of two states a row is of."""

    OLDER = 0
    NEWER = 1


@dataclass(frozen=True)
class Part:
    """Fragments that only one side has."""

    side: Side
    share: Share
    ids_only: bool = False
    in_one_history: bool = False

    @property
    def shares(self) -> dict[Side, Share]:
        return {self.side: self.share}


@dataclass(frozen=True)
class Pairs:
    """Fragments that both sides have, number by number, in the same files and with other rows deleted."""

    older: Share
    newer: Share

    @property
    def shares(self) -> dict[Side, Share]:
        return {Side.OLDER: self.older, Side.NEWER: self.newer}


@dataclass(frozen=True)
class Shared:
    """What all parts need to know."""

    buckets: int
    foreign_versions: Mapping[str, frozenset[int]]


@dataclass(frozen=True)
class Sent:
    """Rows of one side of one table that belong to one bucket. A version of 0 is none; a place is where a row is."""

    table_key: str
    side: Side
    ids: Any
    hashes: Hashes
    contents: tuple[Hashes, Hashes]
    versions: npt.NDArray[np.uint64]
    places: Places


@dataclass(frozen=True)
class Example:
    """A changed row: its id, and where it is on the sides that have it."""

    row_id: str
    places: Mapping[Side, int]


@dataclass(frozen=True)
class Changed:
    """Rows of a table with one kind of change: how many, and the first of them by id."""

    table_key: str
    op: str
    count: int
    first: tuple[Example, ...]


# -- reading -----------------------------------------------------------------------------------------------------------


def read_part(shared: Shared, part: Part | Pairs) -> Iterator[tuple[int, Sent]]:
    """The rows of a part that may differ, each to the bucket of its id."""
    from reference.storage.tables import translated

    for side, share in part.shares.items():
        key = share.table.table_key
        with translated(f"the rows of {key}"):
            handle = share.open()
            if isinstance(part, Part):
                rows, places = _all_rows(handle, share, _columns(handle, part), ids_only=part.ids_only)
            else:
                rows, places = _rows_of_one_side(handle, part, side)
            if rows.num_rows:
                foreign = shared.foreign_versions.get(key, frozenset())
                contents = _contents(handle, rows, foreign, ids_only=isinstance(part, Part) and part.ids_only)
                versions = _versions(rows, known=isinstance(part, Part) and part.in_one_history)
                yield from _sent(shared, Rows(key, side, rows["id"].combine_chunks(), contents, versions, places))


@dataclass(frozen=True)
class Rows:
    """Rows of one side, as hashes, before they are shared out."""

    table_key: str
    side: Side
    ids: Any
    contents: tuple[Hashes, Hashes]
    versions: npt.NDArray[np.uint64]
    places: Places


def _sent(shared: Shared, rows: Rows) -> Iterator[tuple[int, Sent]]:
    hashes = column_hashes(rows.ids)
    owners = (hashes % np.uint64(shared.buckets)).astype(np.int64)
    for bucket in range(shared.buckets):
        mine = np.flatnonzero(owners == bucket)
        if len(mine):
            one, two = rows.contents
            yield (
                bucket,
                Sent(
                    rows.table_key,
                    rows.side,
                    rows.ids.take(pa.array(mine)),
                    hashes[mine],
                    (one[mine], two[mine]),
                    rows.versions[mine],
                    rows.places[mine],
                ),
            )


def _columns(handle: Any, part: Part) -> list[str]:
    if part.ids_only:
        return ["id"]
    needs_versions = part.in_one_history or bool(blob_names(handle))
    return [*handle.schema.names, *([ROW_UPDATED_AT] if needs_versions else [])]


def _all_rows(handle: Any, share: Share, columns: list[str], *, ids_only: bool) -> tuple[pa.Table, Places]:
    with_row_id = not ids_only and bool(blob_names(handle))
    tables, places = [], []
    for number in share.fragment_ids:
        tables.append(share.of(number).read(columns, handle=handle, with_row_id=with_row_id))
        places.append(_place(number, np.arange(tables[-1].num_rows, dtype=np.uint64)))
    return pa.concat_tables(tables), np.concatenate(places)


def _rows_of_one_side(handle: Any, pairs: Pairs, side: Side) -> tuple[pa.Table, Places]:
    """Of fragments with the same files on both sides, the rows that the other side has deleted."""
    mine, other = (pairs.older, pairs.newer) if side is Side.OLDER else (pairs.newer, pairs.older)
    there = other.open()
    has_blobs = bool(blob_names(handle))
    tables, places = [], []
    for number, number_there in zip(mine.fragment_ids, other.fragment_ids, strict=True):
        positions = _positions(mine.of(number), handle, other.of(number_there), there)
        if not len(positions):
            continue
        places.append(_place(number, positions.astype(np.uint64)))
        (fragment,) = chosen_fragments(handle, [number])
        if has_blobs or len(positions) > _TAKEN_SHARE_MAX * fragment.physical_rows:
            extra = [ROW_UPDATED_AT] if has_blobs else []
            rows = mine.of(number).read([*handle.schema.names, *extra], handle=handle, with_row_id=has_blobs)
            tables.append(rows.take(pa.array(positions)))
        else:
            tables.append(fragment.take(positions.tolist(), columns=list(handle.schema.names)))
    if not tables:
        return handle.schema.empty_table().select([]), np.empty(0, np.uint64)
    return pa.concat_tables(tables), np.concatenate(places)


def _positions(mine: Share, handle: Any, other: Share, there: Any) -> npt.NDArray[np.int64]:
    """Which of the live rows of a fragment the other side has deleted."""
    (here,), (beyond,) = chosen_fragments(handle, mine.fragment_ids), chosen_fragments(there, other.fragment_ids)
    if not beyond.num_deletions:
        return np.empty(0, np.int64)  # It has all of them.
    deleted = np.ones(here.physical_rows, dtype=np.bool_)
    deleted[_offsets(other, there)] = False
    offsets = _offsets(mine, handle) if here.num_deletions else np.arange(here.physical_rows, dtype=np.uint32)
    return np.flatnonzero(deleted[offsets])


def _offsets(share: Share, handle: Any) -> npt.NDArray[np.uint32]:
    """Where the live rows of a fragment are in its files."""
    addresses = share.scanner(handle, [], with_row_address=True).to_table()["_rowaddr"].to_numpy()
    offsets: npt.NDArray[np.uint32] = (addresses.astype(np.uint64) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return offsets


def _place(number: int, positions: Places) -> Places:
    return positions | np.uint64(number << 32)


def _versions(rows: pa.Table, *, known: bool) -> npt.NDArray[np.uint64]:
    if not known or ROW_UPDATED_AT not in rows.column_names:
        return np.zeros(rows.num_rows, dtype=np.uint64)
    versions: npt.NDArray[np.uint64] = rows[ROW_UPDATED_AT].to_numpy().astype(np.uint64)
    return versions


def _contents(handle: Any, rows: pa.Table, foreign: frozenset[int], *, ids_only: bool) -> tuple[Hashes, Hashes]:
    """Two hashes of each row: of all its values, blobs by their contents, and of which columns there are."""
    if ids_only:
        nothing = np.zeros(rows.num_rows, dtype=np.uint64)
        return nothing, nothing
    blobs = blob_names(handle)
    columns = [
        _blob_column(blob_contents(handle, rows, name, foreign)) if name in blobs else rows[name]
        for name in handle.schema.names
    ]
    shape = pa.repeat(_shape(handle.schema, blobs), rows.num_rows)
    one, two = (row_hashes([shape, *columns], lane) for lane in (0, 1))
    return one, two


def _shape(schema: pa.Schema, blobs: list[str]) -> pa.Scalar:
    """Which columns there are: where they changed, every row did."""
    return pa.scalar(repr([(each.name, "blob" if each.name in blobs else str(each.type)) for each in schema]))


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
        Changed(key, op, len(ids), _first(ids, places, samples))
        for key, sides in sorted(tables.items())
        for op, ids, places in _changes(_Joined(sides[Side.OLDER]), _Joined(sides[Side.NEWER]))
        if len(ids)
    ]


class _Joined:
    """All rows of one side of a table in one bucket, by their hashes."""

    def __init__(self, blocks: list[Sent]) -> None:
        hashes = _concatenated([block.hashes for block in blocks])
        order = np.argsort(hashes)
        self.hashes: Hashes = hashes[order]
        ids = pa.concat_arrays([block.ids for block in blocks]) if blocks else pa.array([], pa.string())
        self.ids = ids.take(pa.array(order))
        self.contents = [_concatenated([block.contents[lane] for block in blocks])[order] for lane in (0, 1)]
        self.versions = _concatenated([block.versions for block in blocks])[order]
        self.places = _concatenated([block.places for block in blocks])[order]


def _concatenated(parts: list[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _changes(older: _Joined, newer: _Joined) -> Iterator[tuple[str, Any, dict[Side, Places]]]:
    """Each kind of change: the ids, and where their rows are."""
    inside = np.minimum(np.searchsorted(older.hashes, newer.hashes), max(0, len(older.hashes) - 1))
    known = np.zeros(len(newer.hashes), dtype=np.bool_)
    if len(older.hashes):
        known = np.equal(older.hashes[inside], newer.hashes)
    before, after = inside[known], np.flatnonzero(known)
    differs = np.zeros(len(after), dtype=np.bool_)
    for one, other in zip(older.contents, newer.contents, strict=True):
        differs |= one[before] != other[after]
    differs &= (older.versions[before] != newer.versions[after]) | (newer.versions[after] == 0)
    gone = np.ones(len(older.hashes), dtype=np.bool_)
    gone[before] = False
    yield "insert", newer.ids.take(pa.array(np.flatnonzero(~known))), {Side.NEWER: newer.places[~known]}
    both = {Side.OLDER: older.places[before[differs]], Side.NEWER: newer.places[after[differs]]}
    yield "update", newer.ids.take(pa.array(after[differs])), both
    yield "delete", older.ids.take(pa.array(np.flatnonzero(gone))), {Side.OLDER: older.places[gone]}


def _first(ids: Any, places: Mapping[Side, Places], samples: int) -> tuple[Example, ...]:
    count = min(samples, len(ids))
    if not count:
        return ()
    chosen = pc.select_k_unstable(ids, count, sort_keys=[("", "ascending")]).to_pylist()
    return tuple(
        Example(ids[index].as_py(), {side: int(found[index]) for side, found in places.items()}) for index in chosen
    )
