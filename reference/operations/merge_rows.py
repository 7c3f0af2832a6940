"""How the rows of two states of a table differ, by id: what merge and diff are made of [MRG-13, CHG-02].

Rows are compared by typed value over every column: null is not the empty text, a list is not its parts joined, a blob
is its content or its URI, and a zero keeps its sign because an export shows it. Reading is kept small: where one state
came out of the other by commits of one table, Lance's row versions say which rows can differ at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reference.format.manifest import TableEntry
from reference.operations.reading import ROW_UPDATED_AT, Rows, one_of, open_entry, read_entry
from reference.protocol.store import GraphStore

LOOKED_UP_MAX = 500


@dataclass(frozen=True)
class Delta:
    """The ids whose rows a newer state has in addition, has with other values, or has no more."""

    inserted: frozenset[str] = frozenset()
    updated: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)

    @property
    def present(self) -> frozenset[str]:
        """The changed ids that the newer state has rows of."""
        return self.inserted | self.updated

    @property
    def changed(self) -> frozenset[str]:
        return self.present | self.deleted

    def without(self, ids: frozenset[str]) -> Delta:
        return Delta(self.inserted - ids, self.updated - ids, self.deleted - ids)


def delta_between(store: GraphStore, older: TableEntry | None, newer: TableEntry | None) -> Delta:
    """What changed in a table from one state to another. A state that is None has no rows."""
    if older is None or newer is None:
        only = _ids(store, older or newer)
        return Delta(deleted=only) if newer is None else Delta(inserted=only)
    if older.pin == newer.pin:
        return Delta()
    by_version = is_one_history(store, older, newer)
    before, after = (_scan(store, *pair[: 1 + by_version]) for pair in ((older, newer), (newer, older)))
    place = pc.index_in(after["id"], value_set=before["id"])
    kept = pc.is_valid(place)
    common = after.filter(kept)
    if by_version:
        common = common.filter(pc.not_equal(common[ROW_UPDATED_AT], before[ROW_UPDATED_AT].take(place.filter(kept))))
    return Delta(
        inserted=frozenset(after["id"].filter(pc.invert(kept)).to_pylist()),
        updated=differing(store, older, newer, frozenset(common["id"].to_pylist())),
        deleted=frozenset(before["id"].filter(pc.invert(pc.is_in(before["id"], value_set=after["id"]))).to_pylist()),
    )


def _scan(store: GraphStore, entry: TableEntry, beside: TableEntry | None = None) -> pa.Table:
    """The ids of a table. Beside another state of one history: with the versions of rows, and only where both differ.

    What is in a fragment that both have is the same in both, and need not be read, however many of those there are.
    """
    handle = open_entry(store, entry)
    columns = ["id", ROW_UPDATED_AT] if beside else ["id"]
    shared = {_files(each) for each in open_entry(store, beside).get_fragments()} if beside else set[str]()
    fragments = [each for each in handle.get_fragments() if _files(each) not in shared]
    return store.tables.run(entry.table_key, lambda: handle.scanner(columns=columns, fragments=fragments).to_table())


def _files(fragment: Any) -> str:
    """What a fragment is made of. A branch has files of its parent, and they are called the same there."""
    return f"{fragment.data_files()} {fragment.deletion_file()} {fragment.metadata.overlays}"


def _ids(store: GraphStore, entry: TableEntry | None) -> frozenset[str]:
    return frozenset() if entry is None else frozenset(_scan(store, entry)["id"].to_pylist())


def is_one_history(store: GraphStore, one: TableEntry, other: TableEntry) -> bool:
    """Whether one entry came out of the other by commits, forks of branches included.

    Then a row that has the same row version in both is the same row: compaction keeps row versions, a restore brings
    the old ones back, and an overwrite gives every row a new one. Siblings count their versions alike, so there the
    numbers say nothing.
    """
    if one.path != other.path or not open_entry(store, other).has_stable_row_ids:
        return False
    if one.branch == other.branch:
        return True
    forks = store.tables.branches(one.path)

    def descends(younger: TableEntry, elder: TableEntry) -> bool:
        branch, version = younger.branch, younger.version
        while branch is not None and branch != elder.branch:
            if branch not in forks:
                return False
            branch, version = forks[branch]["parent_branch"], forks[branch]["parent_version"]
        return branch == elder.branch and version >= elder.version

    return descends(one, other) or descends(other, one)


def rows_by_id(store: GraphStore, entry: TableEntry, ids: frozenset[str], columns: list[str] | None = None) -> Rows:
    """Some rows of a table, in the order of their ids: a few are looked up, many are picked from a scan."""
    wanted = sorted(ids)
    if not wanted:
        return read_entry(store, entry, columns=columns, where="false")
    if len(wanted) <= LOOKED_UP_MAX:
        return read_entry(store, entry, columns=columns, where=one_of("id", wanted)).sorted_by_id()
    rows = read_entry(store, entry, columns=columns).sorted_by_id()
    return picked(rows, pc.is_in(rows.table["id"], value_set=pa.array(wanted, pa.string())))


def picked(rows: Rows, mask: pa.ChunkedArray) -> Rows:
    """The rows for which the mask is true."""
    chosen = np.flatnonzero(mask.to_numpy())
    blobs = {name: [values[index] for index in chosen] for name, values in rows.blobs.items()}
    return Rows(rows.table.take(chosen), blobs)


def differing(store: GraphStore, one: TableEntry, other: TableEntry, ids: frozenset[str]) -> frozenset[str]:
    """Those of some ids, all of them present in both states, whose rows have different values."""
    if not ids:
        return frozenset()
    first, second = (rows_by_id(store, entry, ids) for entry in (one, other))
    mask = unequal_rows(first, second)
    return frozenset(second.table["id"].filter(pa.array(mask)).to_pylist())


def unequal_rows(one: Rows, other: Rows) -> npt.NDArray[np.bool_]:
    """Row by row, whether any column differs. Rows of different columns differ all."""
    if _shape(one) != _shape(other):
        return np.ones(one.table.num_rows, dtype=np.bool_)
    mask = np.zeros(one.table.num_rows, dtype=np.bool_)
    for name in one.table.schema.names:
        if name in one.blobs:
            pairs = zip(one.blobs[name], other.blobs[name], strict=True)
            mask |= np.array([first != second for first, second in pairs], dtype=np.bool_)
        else:
            mask |= _unequal(one.table[name].combine_chunks(), other.table[name].combine_chunks())
    return mask


def _shape(rows: Rows) -> list[tuple[str, pa.DataType | None]]:
    return [(column.name, None if column.name in rows.blobs else column.type) for column in rows.table.schema]


def _unequal(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    """Value by value, whether two arrays of one type differ. Floats are compared by their bits."""
    if pa.types.is_list(one.type) or pa.types.is_fixed_size_list(one.type):
        lengths = (pc.fill_null(pc.list_value_length(array), -1) for array in (one, other))
        mask = np.array(pc.not_equal(*lengths), dtype=np.bool_)
        same = np.flatnonzero(~mask)
        one, other = one.take(same), other.take(same)
        owners = pc.list_parent_indices(one).to_numpy(zero_copy_only=False)
        mask[same[owners[_unequal(one.flatten(), other.flatten())]]] = True
        return mask
    if pa.types.is_floating(one.type):
        bits = pa.int64() if one.type.bit_width == 64 else pa.int32()
        one, other = one.view(bits), other.view(bits)
    unequal = pc.coalesce(pc.not_equal(one, other), pc.xor(one.is_null(), other.is_null()))
    return np.array(unequal, dtype=np.bool_)
