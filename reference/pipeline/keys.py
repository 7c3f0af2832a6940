"""The rules that reach further than one row, as work on key columns alone: ids, unique groups, endpoints, cardinality.

Each task cuts the keys that it sees into buckets by their hash, and whoever holds a bucket has every occurrence of a
key, of the input and of the committed tables (`buckets`). Ids and endpoints are many and are compared by two hashes,
128 bits together, which is as good as by value: what is found equal is looked at again where that costs nothing, and
what is found different is different. Everything else is compared by value.

    block       holds                                         columns
    new         ids that the input fixed                      position
    old         committed ids                                 order; id and src where a merge may replace the row
    end         endpoints of the input's edges, once a task
    old end     endpoints of committed edges that stay        value
    source      sources of the input's edges, counted         value, count, position
    old source  sources of committed edges, counted           value, count, order
    group       values of a unique group in the input         value, position, id
    old group   values of a unique group, committed           value, order, id

`position` is a record's number, `order` the place of a row in its table; every block has `hash` and `check` as well.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
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
# Blocks whose values nobody needs: the two hashes of a value stand for it.
HASHED_ROLES: frozenset[Role] = frozenset({"new", "old", "end"})


@dataclass(frozen=True)
class BlockKey:
    """What a block holds, of which table, and of which side or unique group of it."""

    role: Role
    table_key: str
    part: str | int = ""


@dataclass(frozen=True)
class Block:
    """Keys of one bucket on their way, as the bytes of an Arrow stream. All of them come from one piece of the input,
    or from one fragment of a table: the `origin`, by its place among the others."""

    key: BlockKey
    data: bytes
    origin: int = 0


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
        yield BlockKey("group", key, index), _grouped(rows, group, "position", positions)
    if isinstance(owner, EdgeType):
        for side in SIDES:
            yield BlockKey("end", key, side), pa.table({"value": rows[side]})
        if is_limited(owner):
            yield BlockKey("source", key), _counted(rows["src"], positions, "position")


@dataclass(frozen=True)
class CommittedNeeds:
    """Which keys of one committed table a load is held against."""

    ids: bool = False
    replaced: bool = False
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
            replaced=ids and key in touched and mode == "merge",
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
        if needs.replaced:
            columns["id"] = rows["id"]
        yield BlockKey("old", key), pa.table({**columns, "src": rows["src"]} if needs.with_source else columns)
    for side in needs.sides:
        yield BlockKey("old end", key, side), pa.table({"value": pc.unique(rows[side])})
    if needs.sources:
        yield BlockKey("old source", key), _counted(rows["src"], order, "order")
    for index, group in unique_groups(owner) if needs.groups else []:
        yield BlockKey("old group", key, index), _grouped(rows, group, "order", order)


def _grouped(rows: pa.Table, group: Sequence[str], place: str, places: pa.Array) -> pa.Table:
    """The values of a unique group, of the rows that have one in each of its columns. Properties may have any name, so
    nothing is put beside their columns."""
    filled = functools.reduce(pc.and_, (rows[name].is_valid() for name in group))
    chosen = rows.filter(filled)
    columns = {"value": encoded(chosen, group), place: places.filter(array_of(filled)), "id": chosen["id"]}
    return pa.table(columns)


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


def array_of(values: Any) -> pa.Array:
    """A column in one piece."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    combined = values.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def split(key: BlockKey, rows: pa.Table, buckets: int, origin: int = 0) -> Iterator[tuple[int, Block]]:
    """The rows of a block by bucket, each with the two hashes of its value and sorted by the first. The value itself
    goes along only where somebody reads it. `origin` is the place of the piece, or of the fragment, among all."""
    if not rows.num_rows:
        return
    hashes, checks = column_hashes(rows["value"], 0), column_hashes(rows["value"], 1)
    order = np.argsort(hashes)
    hashes, checks = hashes[order], checks[order]
    if key.role == "end":
        first = np.append(True, (hashes[1:] != hashes[:-1]) | (checks[1:] != checks[:-1]))
        hashes, checks, order = hashes[first], checks[first], order[first]
    ordered = rows.drop_columns(["value"]) if key.role in HASHED_ROLES else rows
    ordered = ordered.take(pa.array(order)) if ordered.num_columns else pa.table({})
    ordered = pa.table(
        {"hash": hashes, "check": checks, **dict(zip(ordered.column_names, ordered.columns, strict=True))}
    )
    # A bucket is a range of hashes.
    bounds = np.array([(bucket << 64) // buckets for bucket in range(1, buckets)], dtype=np.uint64)
    starts = [0, *np.searchsorted(hashes, bounds).tolist(), len(hashes)]
    for bucket, (start, end) in enumerate(itertools.pairwise(starts)):
        if end > start:
            yield bucket, Block(key, packed(ordered.slice(start, end - start)), origin)


def packed(rows: pa.Table) -> bytes:
    """Rows as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
