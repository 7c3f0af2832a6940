"""How an export is cut into parts: what is known of the ids of each fragment, and which rows have to meet.

Rows travel between tasks only where they must. A table of few rows is one part. Of a larger one the smallest and the
largest id of every fragment are looked up: fragments that have no ids in between each other's are written by one task
each, as they are, and so are ranges of rows of a fragment that is in order. The ids of edges are made when they are
loaded, so most tables of edges are written like this. What is left over is cut at sampled ids, and its rows are
exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reference.pipeline.id_order import is_ascending
from reference.pipeline.pinned import PinnedTable
from reference.pipeline.scans import ROW_UPDATED_AT, Share

if TYPE_CHECKING:
    from lance import LanceDataset

# Ids that are looked at for each part: so that no part is far larger than another.
_SAMPLES_PER_PART: Final = 64
_READ_AT_ONCE: Final = 65_536
# What the driver looks at itself: to start tasks for less takes longer than to read it.
HERE_ROWS: Final = 10_000_000
HERE_FRAGMENTS: Final = 1_000
_HERE_THREADS: Final = 4
# Spreads the places that are sampled evenly, so that small fragments have their turn as well.
_SPREAD: Final = 2_654_435_761


@dataclass(frozen=True)
class Look:
    """What is wanted of some fragments: an id every so many rows, and perhaps which versions wrote the rows."""

    share: Share
    step: int
    with_versions: bool


@dataclass(frozen=True)
class Extent:
    """What is known of the rows of one fragment: the first and the last id, and some of those in between."""

    fragment_id: int
    rows: int
    first: str
    last: str
    is_ascending: bool
    sample: tuple[str, ...] = ()
    versions: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Group:
    """Rows of a table that no other rows come in between. Without points they are one part, which one task writes."""

    shares: tuple[Share, ...]
    rows: int
    points: tuple[str, ...] = ()


def sample_step(part_rows: int) -> int:
    return max(1, part_rows // _SAMPLES_PER_PART)


def is_little(looks: Sequence[Look]) -> bool:
    """Whether the driver may look at all of it."""
    rows = sum({look.share.table.table_key: look.share.table.row_count for look in looks}.values())
    return rows <= HERE_ROWS and sum(len(look.share.fragment_ids) for look in looks) <= HERE_FRAGMENTS


def look_here(looks: Sequence[Look], handles: Mapping[str, LanceDataset]) -> list[list[Extent]]:
    """Look at fragments in this process, some at a time."""
    single = [(each, number) for each in looks for number in each.share.fragment_ids]
    with ThreadPoolExecutor(_HERE_THREADS) as pool:
        found = pool.map(lambda one: _extent(one[0], one[1], handles[one[0].share.table.table_key]), single)
        extents = iter(list(found))
    return [[each for each in islice(extents, len(task.share.fragment_ids)) if each is not None] for task in looks]


def look(task: Look) -> list[Extent]:
    """The same in a task."""
    handle = task.share.open()
    found = (_extent(task, number, handle) for number in task.share.fragment_ids)
    return [each for each in found if each is not None]


def _extent(task: Look, fragment_id: int, handle: LanceDataset) -> Extent | None:
    """What is known of one fragment; nothing where all of its rows are deleted."""
    from reference.storage.tables import translated

    rows, ends, ascending = 0, _Ends(), True
    sample: list[str] = []
    versions: set[int] = set()
    columns = ["id", ROW_UPDATED_AT] if task.with_versions else ["id"]
    phase = fragment_id * _SPREAD % task.step
    with translated(f"the ids of {task.share.table.table_key}"):
        for batch in task.share.of(fragment_id).scanner(handle, columns, batch_size=_READ_AT_ONCE).to_batches():
            if not batch.num_rows:
                continue
            ids = batch["id"]
            ascending = ends.add(ids) and ascending
            places = np.arange((phase - rows) % task.step, len(ids), task.step)
            sample += ids.take(pa.array(places)).to_pylist()
            rows += len(ids)
            if task.with_versions:
                versions.update(pc.unique(batch[ROW_UPDATED_AT]).to_pylist())
    if not rows:
        return None
    return Extent(fragment_id, rows, ends.first, ends.last, ascending, tuple(sample), frozenset(versions))


@dataclass
class _Ends:
    """The smallest and the largest id so far."""

    first: str = ""
    last: str = ""
    is_empty: bool = True

    def add(self, ids: Any) -> bool:
        """Whether these ids, too, come in order after all before."""
        ordered = is_ascending(ids)
        found = pc.min_max(ids).as_py() if not ordered else {"min": ids[0].as_py(), "max": ids[-1].as_py()}
        in_order = ordered and (self.is_empty or self.last <= found["min"])
        self.first = found["min"] if self.is_empty else min(self.first, found["min"])
        self.last = found["max"] if self.is_empty else max(self.last, found["max"])
        self.is_empty = False
        return in_order


# -- which rows have to meet -------------------------------------------------------------------------------------------


def whole(table: PinnedTable, storage_options: Mapping[str, str]) -> Group:
    """A table that is one part."""
    return Group((Share(table, table.fragment_ids, storage_options),), table.row_count)


def groups(
    table: PinnedTable, storage_options: Mapping[str, str], extents: Iterable[Extent], part_rows: int
) -> Iterator[Group]:
    """A table in groups of rows, in the order of their ids."""
    for found in _joined(_overlapping(extents), part_rows):
        rows = sum(each.rows for each in found)
        share = Share(table, tuple(each.fragment_id for each in found), storage_options)
        if rows <= 2 * part_rows:
            yield Group((share,), rows)
        elif len(found) == 1 and found[0].is_ascending:
            yield from (Group((each,), _count(each)) for each in _cut(share, rows, part_rows))
        else:
            points = _points(sorted(each for extent in found for each in extent.sample), rows, part_rows)
            yield Group(tuple(_shares(share, found, part_rows)) if points else (share,), rows, points)


def _overlapping(extents: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Fragments in the order of their ids; those that have ids in between each other's come together."""
    kept: list[Extent] = []
    last = ""
    for each in sorted(extents, key=attrgetter("first", "last")):
        if kept and last < each.first:
            yield kept
            kept, last = [], ""
        kept.append(each)
        last = max(last, each.last)
    if kept:
        yield kept


def _joined(found: Iterable[list[Extent]], part_rows: int) -> Iterator[list[Extent]]:
    """The same, with neighbours that are small enough to be one part together."""
    kept: list[Extent] = []
    for group in found:
        if kept and sum(each.rows for each in (*kept, *group)) > part_rows:
            yield kept
            kept = []
        kept = [*kept, *group]
    if kept:
        yield kept


def _shares(share: Share, found: Sequence[Extent], rows: int) -> Iterator[Share]:
    """What tasks read of a group: about so many rows each, of small fragments several, of a large one a part."""
    small: list[int] = []
    count = 0
    for each in found:
        if each.rows > rows:
            yield from _cut(share.of(each.fragment_id), each.rows, rows)
            continue
        if small and count + each.rows > rows:
            yield replace(share, fragment_ids=tuple(small))
            small, count = [], 0
        small.append(each.fragment_id)
        count += each.rows
    if small:
        yield replace(share, fragment_ids=tuple(small))


def _cut(share: Share, rows: int, at_most: int) -> Iterator[Share]:
    """Ranges of the rows of one fragment, of about the same size."""
    number = -(-rows // at_most)
    bounds = [rows * index // number for index in range(number + 1)]
    for start, stop in zip(bounds, bounds[1:], strict=False):
        yield replace(share, places=(start, stop))


def _count(share: Share) -> int:
    assert share.places is not None
    return share.places[1] - share.places[0]


def _points(sample: Sequence[str], rows: int, part_rows: int) -> tuple[str, ...]:
    """Where a group is cut: between any two neighbours lie about as many rows. Equal points would cut nothing."""
    parts = -(-rows // part_rows)
    wanted = [sample[len(sample) * number // parts] for number in range(1, parts)] if sample else []
    return tuple(dict.fromkeys(wanted))
