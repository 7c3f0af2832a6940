"""The rules that reach further than one row, as work on key columns alone: ids, unique groups, endpoints, cardinality.

Each task cuts the keys that it sees into buckets by their hash, and whoever holds a bucket has every occurrence of a
key, of the input and of the committed tables. What is compared are the values themselves: a hash only says who
compares them. So neither a good load can be refused nor a bad one accepted by chance.

    block       holds                                         columns
    new         ids that the input fixed                      value, position
    old         committed ids                                 value, order, and src where edges are counted
    end         endpoints of the input's edges, once a task   value
    old end     endpoints of committed edges that stay        value
    source      sources of the input's edges, counted         value, count, position
    old source  sources of committed edges, counted           value, count, order
    group       values of a unique group in the input         value, position, id
    old group   values of a unique group, committed           value, order, id

`position` is a record's number, `order` the place of a row in its table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reference.format.records import TableRecords
from reference.operations.changeset import HowToStage
from reference.pipeline.hashing import column_hashes
from reference.schema.types import Catalog, EdgeType, NodeType

Role = Literal["new", "old", "end", "old end", "source", "old source", "group", "old group"]
Side = Literal["src", "dst"]
Owner = NodeType | EdgeType
SIDES: tuple[Side, Side] = ("src", "dst")


@dataclass(frozen=True)
class BlockKey:
    """What a block holds, of which table, and of which side or unique group of it."""

    role: Role
    table_key: str
    part: str | int = ""


@dataclass(frozen=True)
class Block:
    """Keys of one bucket on their way, as the bytes of an Arrow stream."""

    key: BlockKey
    data: bytes


def unique_groups(owner: Owner) -> list[tuple[int, tuple[str, ...]]]:
    """The unique groups that must be looked at: one that holds the key is distinct because the key is [VAL-07]."""
    return [
        (index, group) for index, group in enumerate(owner.unique) if not (owner.key and set(owner.key) <= set(group))
    ]


def is_limited(owner: Owner) -> bool:
    """Whether the number of edges from a node has a limit."""
    return isinstance(owner, EdgeType) and (owner.cardinality_min > 0 or owner.cardinality_max is not None)


def sides_of(edge: EdgeType, node_name: str) -> list[Side]:
    return [side for side, end in zip(SIDES, (edge.from_type, edge.to_type), strict=True) if end == node_name]


# -- blocks of the input and of committed rows ---------------------------------------------------------------------


def input_blocks(owner: Owner, records: TableRecords) -> Iterator[tuple[BlockKey, pa.Table]]:
    """The keys of some records of one table."""
    key, rows = owner.table_key, records.table
    positions = pa.array(records.positions)
    if records.explicit.all():
        yield BlockKey("new", key), pa.table({"value": rows["id"], "position": positions})
    elif records.explicit.any():
        known = pa.table({"value": rows["id"], "position": positions}).filter(pa.array(records.explicit))
        yield BlockKey("new", key), known
    for index, group in unique_groups(owner):
        filled = rows.select(["id", *group]).append_column("position", positions).drop_null()
        columns = {"value": encoded(filled, group), "position": filled["position"], "id": filled["id"]}
        yield BlockKey("group", key, index), pa.table(columns)
    if isinstance(owner, EdgeType):
        for side in SIDES:
            yield BlockKey("end", key, side), pa.table({"value": pc.unique(rows[side])})
        if is_limited(owner):
            yield BlockKey("source", key), _counted(rows["src"], positions, "position")


@dataclass(frozen=True)
class CommittedNeeds:
    """Which keys of one committed table a load is held against."""

    ids: bool = False
    with_source: bool = False
    sides: tuple[Side, ...] = ()
    sources: bool = False
    groups: bool = False

    def columns(self, owner: Owner) -> list[str]:
        names = {"id"} if self.ids or self.groups else set()
        names |= set(self.sides) | ({"src"} if self.sources or self.with_source else set())
        if self.groups:
            names |= {name for _, group in unique_groups(owner) for name in group}
        return sorted(names)


def committed_needs(
    catalog: Catalog, mode: HowToStage, touched: Iterable[str], fixed: Iterable[str]
) -> dict[str, CommittedNeeds]:
    """What must be read of the committed tables for a load of `mode` that touches some tables; `fixed` are those of
    them in which the input says the ids."""
    touched, fixed = set(touched), set(fixed)
    overwrites = mode == "overwrite"
    needs: dict[str, CommittedNeeds] = {}
    for key in catalog.table_keys():
        owner = catalog.type_of(key)
        limited = key in touched and is_limited(owner)
        ids = key in fixed and not overwrites
        sides: tuple[Side, ...] = ()
        if isinstance(owner, NodeType):
            # A node is asked for by edges of the input, or leaves edges behind when its table is overwritten.
            around = [edge for edge in catalog.edges.values() if owner.name in (edge.from_type, edge.to_type)]
            ids |= any((edge.table_key in touched) != (overwrites and key in touched) for edge in around)
            ids |= overwrites and key in touched and any(is_limited(edge) for edge in around)
        elif overwrites and key not in touched:
            sides = tuple(
                side
                for side, end in zip(SIDES, (owner.from_type, owner.to_type), strict=True)
                if f"node:{end}" in touched
            )
        needs[key] = CommittedNeeds(
            ids=ids,
            with_source=limited and ids and mode == "merge",
            sides=sides,
            sources=limited,
            groups=key in touched and not overwrites and bool(unique_groups(owner)),
        )
    return {key: need for key, need in needs.items() if need != CommittedNeeds()}


def committed_blocks(
    owner: Owner, needs: CommittedNeeds, rows: pa.Table, order: pa.Array
) -> Iterator[tuple[BlockKey, pa.Table]]:
    """The keys of some committed rows of one table."""
    key = owner.table_key
    if needs.ids:
        columns = {"value": rows["id"], "order": order}
        yield BlockKey("old", key), pa.table({**columns, "src": rows["src"]} if needs.with_source else columns)
    for side in needs.sides:
        yield BlockKey("old end", key, side), pa.table({"value": pc.unique(rows[side])})
    if needs.sources:
        yield BlockKey("old source", key), _counted(rows["src"], order, "order")
    for index, group in unique_groups(owner) if needs.groups else []:
        filled = rows.select(["id", *group]).append_column("order", order).drop_null()
        columns = {"value": encoded(filled, group), "order": filled["order"], "id": filled["id"]}
        yield BlockKey("old group", key, index), pa.table(columns)


def _counted(sources: Any, places: pa.Array, name: str) -> pa.Table:
    rows = pa.table({"value": sources, name: places})
    counted = rows.group_by("value").aggregate([(name, "count"), (name, "min")])
    return counted.select(["value", f"{name}_count", f"{name}_min"]).rename_columns(["value", "count", name])


def encoded(rows: pa.Table, group: Sequence[str]) -> Any:
    """The values of a unique group as one text each: equal exactly where Arrow, and so the engine, calls them equal."""
    parts = []
    for name in group:
        column = rows[name]
        if pa.types.is_floating(column.type):
            bits = pa.int32() if column.type.bit_width == 32 else pa.int64()
            column = pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
        elif pa.types.is_date64(column.type):
            column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
        parts.append(column.cast(pa.string()))
    if len(parts) == 1:
        return parts[0]
    # Lengths before texts: otherwise ("a", "bc") and ("ab", "c") could meet.
    sized = [text for part in parts for text in (pc.utf8_length(part).cast(pa.string()), part)]
    return pc.binary_join_element_wise(*sized, ":")


def split(key: BlockKey, rows: pa.Table, buckets: int) -> Iterator[tuple[int, Block]]:
    """The rows of a block by bucket."""
    if not rows.num_rows:
        return
    numbers = (column_hashes(rows["value"]) % np.uint64(buckets)).astype(np.int64)
    ordered = rows.take(pa.array(np.argsort(numbers, kind="stable"))).combine_chunks()
    ends = np.cumsum(np.bincount(numbers, minlength=buckets))
    for bucket, end in enumerate(ends.tolist()):
        start = 0 if bucket == 0 else int(ends[bucket - 1])
        if end > start:
            yield bucket, Block(key, _to_bytes(ordered.slice(start, end - start)))


def _to_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


# -- one bucket ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Twice:
    """An id that several records fix."""

    table_key: str
    value: str
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Existing:
    """A record that appends an id that is committed."""

    table_key: str
    value: str
    position: int
    order: int


@dataclass(frozen=True)
class Replaced:
    """Committed ids that the input replaces, and where the edges among them that are counted began."""

    table_key: str
    ids: pa.Array
    sources: pa.Array | None


@dataclass(frozen=True)
class Missing:
    """Endpoints of the input's edges that are no nodes; or, `is_stranded`, of committed ones that are none any more."""

    table_key: str
    side: Side
    values: pa.Array
    is_stranded: bool = False


@dataclass(frozen=True)
class Counted:
    """A source with too few or too many edges, first seen in the input at `position` or in the table at `order`."""

    table_key: str
    source: str
    count: int
    position: int | None
    order: int | None


@dataclass(frozen=True)
class Shared:
    """A value of a unique group that several rows have: records, and committed rows by their place and id."""

    table_key: str
    group: int
    positions: tuple[int, ...]
    holders: tuple[tuple[int, str], ...]


Finding = Twice | Existing | Replaced | Missing | Counted | Shared


@dataclass(frozen=True)
class Bucket:
    """Every occurrence of the keys of one bucket."""

    catalog: Catalog
    mode: HowToStage
    touched: frozenset[str]
    blocks: Mapping[BlockKey, pa.Table]

    @classmethod
    def of(cls, catalog: Catalog, mode: HowToStage, touched: Iterable[str], blocks: Iterable[Block]) -> Bucket:
        parts: dict[BlockKey, list[pa.Table]] = defaultdict(list)
        for block in blocks:
            parts[block.key].append(pa.ipc.open_stream(block.data).read_all())
        joined = {key: pa.concat_tables(tables) for key, tables in parts.items()}
        return cls(catalog, mode, frozenset(touched), joined)

    def findings(self) -> Iterator[Finding]:
        """All that is wrong with these keys, and what they replace."""
        for key in sorted(self.touched):
            owner = self.catalog.type_of(key)
            yield from self._ids(owner)
            for index, _ in unique_groups(owner):
                yield from self._shared(key, index)
        for node in self.catalog.nodes.values():
            yield from self._endpoints(node)
        for key in sorted(self.touched):
            owner = self.catalog.type_of(key)
            if isinstance(owner, EdgeType) and is_limited(owner):
                yield from self._cardinality(owner)

    def _values(self, role: Role, table_key: str, part: str | int = "") -> Any:
        block = self.blocks.get(BlockKey(role, table_key, part))
        return pa.chunked_array([], pa.string()) if block is None else block["value"]

    def _ids(self, owner: Owner) -> Iterator[Finding]:
        new = self.blocks.get(BlockKey("new", owner.table_key))
        if new is None:
            return
        repeated = _repeated(new["value"])
        if len(repeated):
            for value, rows in _grouped(new.filter(pc.is_in(new["value"], value_set=_array(repeated)))).items():
                yield Twice(owner.table_key, value, tuple(sorted(row["position"] for row in rows)))
        old = self.blocks.get(BlockKey("old", owner.table_key))
        if old is None or self.mode == "overwrite":
            return
        old = old.filter(pc.is_in(old["value"], value_set=new["value"]))
        if not old.num_rows:
            return
        if self.mode == "merge":
            sources = old["src"].combine_chunks() if "src" in old.column_names else None
            yield Replaced(owner.table_key, _array(old["value"]), None if sources is None else _array(sources))
            return
        new = new.filter(pc.is_in(new["value"], value_set=old["value"]))
        orders = dict(zip(old["value"].to_pylist(), old["order"].to_pylist(), strict=True))
        for value, position in zip(new["value"].to_pylist(), new["position"].to_pylist(), strict=True):
            yield Existing(owner.table_key, value, position, orders[value])

    def _shared(self, table_key: str, index: int) -> Iterator[Finding]:
        new = self.blocks.get(BlockKey("group", table_key, index))
        if new is None:
            return
        old = self.blocks.get(BlockKey("old group", table_key, index))
        suspects = _repeated(new["value"])
        if old is not None:
            old = old.filter(pc.is_in(old["value"], value_set=new["value"]))
            suspects = pc.unique(pa.chunked_array([*suspects.chunks, *old["value"].chunks], pa.string()))
        if not len(suspects):
            return
        members = _grouped(new.filter(pc.is_in(new["value"], value_set=_array(suspects))))
        holders = {} if old is None else _grouped(old)
        for value, rows in members.items():
            own = {row["id"] for row in rows}
            # A committed row of the same id is replaced by the record, so it holds nothing any more.
            held = sorted((row["order"], row["id"]) for row in holders.get(value, []) if row["id"] not in own)
            positions = tuple(sorted(row["position"] for row in rows))
            if len(positions) > 1 or held:
                yield Shared(table_key, index, positions, tuple(held))

    def _endpoints(self, node: NodeType) -> Iterator[Finding]:
        key = node.table_key
        new, old = self._values("new", key), self._values("old", key)
        overwritten = self.mode == "overwrite" and key in self.touched
        there = new if overwritten else pa.chunked_array([*new.chunks, *old.chunks], pa.string())
        for edge in self.catalog.edges.values():
            for side in sides_of(edge, node.name):
                yield from _absent(edge.table_key, side, self._values("end", edge.table_key, side), there)
        if not overwritten:
            return
        gone = _without(old, new)
        for edge in self.catalog.edges.values():
            for side in sides_of(edge, node.name):
                ends = self._values("old end", edge.table_key, side)
                stranded = pc.unique(ends.filter(pc.is_in(ends, value_set=gone)))
                if len(stranded):
                    yield Missing(edge.table_key, side, _array(stranded), is_stranded=True)

    def _cardinality(self, edge: EdgeType) -> Iterator[Finding]:
        """Exact for append and overwrite. A merge may move edges away from a source, which another bucket knows."""
        new = _summed(self.blocks.get(BlockKey("source", edge.table_key)), "position")
        old = _summed(self.blocks.get(BlockKey("old source", edge.table_key)), "order")
        former = old if self.mode == "overwrite" else {}
        if f"node:{edge.from_type}" in self.touched and self.mode == "overwrite":
            node = f"node:{edge.from_type}"
            gone = set(_without(self._values("old", node), self._values("new", node)).to_pylist())
            new = {source: counted for source, counted in new.items() if source not in gone}
            former = {source: counted for source, counted in former.items() if source not in gone}
        for source, (count, position) in new.items():
            standing = 0 if self.mode == "overwrite" else old.get(source, (0, 0))[0]
            if not within(edge, count + standing):
                yield Counted(edge.table_key, source, count + standing, position, None)
        for source, (_, order) in former.items():
            if source not in new and edge.cardinality_min:
                yield Counted(edge.table_key, source, 0, None, order)


def within(edge: EdgeType, count: int) -> bool:
    """Whether a node may have so many edges."""
    return count >= edge.cardinality_min and (edge.cardinality_max is None or count <= edge.cardinality_max)


def _array(values: Any) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        combined = values.combine_chunks()
        return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
    return values


def _without(values: Any, others: Any) -> Any:
    return values.filter(pc.invert(pc.is_in(values, value_set=others)))


def _absent(table_key: str, side: Side, wanted: Any, there: Any) -> Iterator[Missing]:
    absent = pc.unique(_without(wanted, there))
    if len(absent):
        yield Missing(table_key, side, _array(absent))


def _repeated(values: Any) -> Any:
    """The values that occur more than once."""
    if len(pc.unique(values)) == len(values):
        return pa.chunked_array([], pa.string())
    counted = pc.value_counts(values)
    return pa.chunked_array([counted.field("values").filter(pc.greater(counted.field("counts"), 1))])


def _grouped(rows: pa.Table) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.to_pylist():
        found[row["value"]].append(row)
    return found


def _summed(block: pa.Table | None, place: str) -> dict[str, tuple[int, int]]:
    """Of each source, how many edges it has, and where it comes first."""
    if block is None:
        return {}
    rows = block.group_by("value").aggregate([("count", "sum"), (place, "min")])
    names = ("value", "count_sum", f"{place}_min")
    return {
        value: (count, first) for value, count, first in zip(*(rows[name].to_pylist() for name in names), strict=True)
    }
