"""The order of ids, many at a time: rows sorted by id, and where a sorted table is to be cut.

Ids are ordered by their UTF-8 bytes, as an export orders them. Texts are slow to sort, numbers are not: the eight bytes
after those that all ids begin with are sorted as numbers, and only ids that are still equal then as texts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from os.path import commonprefix
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_KEY_BYTES: Final = 8


def sorted_by_id(rows: pa.Table) -> pa.Table:
    """Rows in the order of their ids, in as few chunks as can be."""
    rows = rows.combine_chunks()
    ids = rows["id"]
    if ids.num_chunks > 1:  # More than two gibibytes of text do not fit one array.
        return rows.take(pc.sort_indices(ids))
    order = None if not ids.num_chunks else ascending_order(ids.chunk(0))
    return rows if order is None else rows.take(order)


def ascending_order(ids: pa.Array) -> npt.NDArray[np.int64] | None:
    """The places of ids in ascending order; None where they are in that order as they are."""
    if is_ascending(ids):
        return None
    ends = pc.min_max(ids).as_py()
    shared = len(commonprefix([ends["min"].encode(), ends["max"].encode()]))
    keys = _keys(ids, shared)
    # Blocks that come from an exchange are sorted each: a stable sort merges them.
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    equal = keys[1:] == keys[:-1]
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
        among = order[tied]
        order[tied] = among[pc.sort_indices(ids.take(pa.array(among))).to_numpy()]
    return order


def is_ascending(ids: pa.Array) -> bool:
    return len(ids) < 2 or bool(pc.all(pc.less_equal(ids[:-1], ids[1:])).as_py())


def cut_places(ids: pa.Array | pa.ChunkedArray, points: Sequence[str]) -> list[int]:
    """Where the ranges of sorted ids begin and end; a point is the first id of the range after it."""
    return [0, *(bisect_left(ids, point, key=lambda each: str(each.as_py())) for point in points), len(ids)]


def _keys(ids: pa.Array, skipped: int) -> npt.NDArray[np.uint64]:
    """Eight bytes of each id as a number, zeros where it has no more: a smaller id has no larger number."""
    _, offset_buffer, data_buffer = ids.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, dtype=np.uint8)
    found: npt.NDArray[Any]
    lengths = np.diff(offsets)
    if (lengths == lengths[0]).all():
        found = np.zeros((len(ids), _KEY_BYTES), dtype=np.uint8)
        part = data[offsets[0] : offsets[-1]].reshape(len(ids), lengths[0])[:, skipped : skipped + _KEY_BYTES]
        found[:, : part.shape[1]] = part
    else:
        places = offsets[:-1, None] + np.arange(skipped, skipped + _KEY_BYTES)
        found = np.where(places < offsets[1:, None], data[np.minimum(places, len(data) - 1)], np.uint8(0))
    return np.ascontiguousarray(found).view(">u8").ravel().astype(np.uint64)
