"""One bucket of keys: every occurrence of some ids, endpoints, sources and values, and what is wrong with them.

A bucket yields findings, each of at most so many records as the driver asks for. It turns them into words (`verdict`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reference.operations.changeset import HowToStage
from reference.pipeline.findings import (
    NOWHERE,
    Counted,
    Existing,
    Finding,
    Keys,
    Missing,
    Numbers,
    Replaced,
    Shared,
    SharedValue,
    Stranded,
    Twice,
)
from reference.pipeline.keys import Block, BlockKey, Owner, Role, array_of, is_limited, sides_of, unique_groups
from reference.pipeline.rejections import REJECTED_MAX
from reference.schema.types import Catalog, EdgeType, NodeType


@dataclass(frozen=True)
class Bucket:
    """Every occurrence of the keys of one bucket. A finding tells `most` records, and the rest is counted."""

    catalog: Catalog
    mode: HowToStage
    touched: frozenset[str]
    blocks: Mapping[BlockKey, pa.Table]
    origins: Mapping[BlockKey, Numbers]
    most: int
    _sorted: dict[BlockKey, Keys] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        mode: HowToStage,
        touched: Iterable[str],
        blocks: Iterable[Block],
        most: int = REJECTED_MAX,
    ) -> Bucket:
        parts: dict[BlockKey, list[pa.Table]] = defaultdict(list)
        places: dict[BlockKey, list[Numbers]] = defaultdict(list)
        for block in blocks:
            rows = pa.ipc.open_stream(block.data).read_all()
            parts[block.key].append(rows)
            if block.key.role in ("end", "old end"):
                places[block.key].append(np.full(rows.num_rows, block.origin, dtype=np.int64))
        joined = {key: pa.concat_tables(tables) for key, tables in parts.items()}
        origins = {key: np.concatenate(each) for key, each in places.items()}
        return cls(catalog, mode, frozenset(touched), joined, origins, most)

    def findings(self) -> Iterator[Finding]:
        """All that is wrong with these keys, and what they replace. A merge may move edges away from a source, which
        another bucket knows: its sources are counted once that is known."""
        for key in sorted(self.touched):
            owner = self.catalog.type_of(key)
            yield from self._ids(owner)
            for index, _ in unique_groups(owner):
                yield from self._shared(key, index)
        for node in self.catalog.nodes.values():
            yield from self._endpoints(node)
        if self.mode != "merge":
            yield from self.counted({})

    def counted(self, former: Mapping[str, pa.Table]) -> Iterator[Finding]:
        """Sources with too few or too many edges. `former` has, by table, the sources that lose edges to others."""
        for key in sorted(self.touched):
            owner = self.catalog.type_of(key)
            if isinstance(owner, EdgeType) and is_limited(owner):
                yield from self._cardinality(owner, former.get(key))

    def _keys(self, role: Role, table_key: str, part: str | int = "") -> Keys:
        """The keys of a block, sorted, once."""
        key = BlockKey(role, table_key, part)
        if key not in self._sorted:
            block = self.blocks.get(key)
            self._sorted[key] = Keys.of([] if block is None else [_unsorted(block)])
        return self._sorted[key]

    def _is_overwritten(self, table_key: str) -> bool:
        return self.mode == "overwrite" and table_key in self.touched

    def _gone(self, table_key: str) -> Keys:
        """The ids that an overwrite drops."""
        old = self._keys("old", table_key)
        return old.chosen(~old.found_in(self._keys("new", table_key)))

    def _ids(self, owner: Owner) -> Iterator[Finding]:
        key = owner.table_key
        new = self.blocks.get(BlockKey("new", key))
        if new is None:
            return
        yield from self._twice(key, new)
        old = self.blocks.get(BlockKey("old", key))
        if old is None or self.mode == "overwrite":
            return
        old = old.filter(pa.array(_unsorted(old).found_in(self._keys("new", key))))
        if not old.num_rows:
            return
        if self.mode == "merge":
            sources = old["src"] if "src" in old.column_names else None
            yield Replaced(key, array_of(old["id"]), None if sources is None else array_of(sources))
            return
        by_hash = np.argsort(old["hash"].to_numpy(), kind="stable")
        places = _unsorted(new).places_in(_unsorted(old).chosen(by_hash))
        positions = new["position"].to_numpy()[places >= 0]
        orders = old["order"].to_numpy()[by_hash][places[places >= 0]]
        least = np.argsort(orders, kind="stable")[: self.most]
        yield Existing(key, positions[least], orders[least], len(positions))

    def _twice(self, key: str, new: pa.Table) -> Iterator[Twice]:
        hashes = self._keys("new", key).hashes
        repeated = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        if not len(repeated):
            return
        suspects = new.filter(pa.array(np.isin(new["hash"].to_numpy(), repeated)))
        hashes, checks, positions = (suspects[name].to_numpy() for name in ("hash", "check", "position"))
        order = np.lexsort((positions, checks, hashes))
        hashes, checks, positions = hashes[order], checks[order], positions[order]
        begins = np.append(True, (hashes[1:] != hashes[:-1]) | (checks[1:] != checks[:-1]))
        firsts = positions[np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))]
        positions, firsts = positions[~begins], firsts[~begins]
        least = np.argsort(positions)[: self.most]
        if len(least):
            yield Twice(key, positions[least], firsts[least], len(positions))

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
        values = array_of(suspects)
        new = new.filter(pc.is_in(new["value"], value_set=values))
        codes = _codes(new, values)
        positions = new["position"].to_numpy()
        firsts = np.full(len(values), NOWHERE, dtype=np.int64)
        np.minimum.at(firsts, codes, positions)
        holders = None if old is None else _foreign(old, new, values)
        is_held = np.zeros(len(values), dtype=np.bool_)
        if holders is not None:
            is_held[_codes(holders, values)] = True
        several = np.bincount(codes, minlength=len(values)) > 1
        # In a merge the holder of a value may itself get another: then one record alone is not wrong.
        in_doubt = is_held & ~several if self.mode == "merge" else np.zeros(len(values), dtype=np.bool_)
        order = np.lexsort((positions, firsts[codes]))
        certain = order[(several | (is_held & ~in_doubt))[codes[order]]]
        doubtful = order[in_doubt[codes[order]]]
        told = np.concatenate([certain[: self.most + 1], doubtful[: self.most]])
        if len(told):
            rest_in_doubt = max(0, len(doubtful) - self.most)
            rest = max(0, len(certain) - self.most - 1) + rest_in_doubt
            values_told = _values_told(codes[told], positions[told], holders, values)
            yield Shared(table_key, index, values_told, rest, rest_in_doubt)

    def _endpoints(self, node: NodeType) -> Iterator[Finding]:
        key = node.table_key
        there: Keys | None = None
        for edge in self.catalog.edges.values():
            for side in sides_of(edge, node.name):
                block = BlockKey("end", edge.table_key, side)
                if block not in self.blocks:
                    continue
                if there is None:
                    sources: tuple[Role, ...] = ("new",) if self._is_overwritten(key) else ("new", "old")
                    there = Keys.of(self._keys(role, key) for role in sources)
                ends = _unsorted(self.blocks[block])
                absent = np.flatnonzero(~ends.found_in(there))
                if len(absent):
                    told = absent[self._first(self.origins[block][absent])]
                    yield Missing(edge.table_key, side, ends.chosen(told), len(absent))
        if not self._is_overwritten(key):
            return
        gone = self._gone(key)
        for edge in self.catalog.edges.values():
            for side in sides_of(edge, node.name):
                block = BlockKey("old end", edge.table_key, side)
                rows = self.blocks.get(block)
                if rows is None:
                    continue
                stranded = np.flatnonzero(_unsorted(rows).found_in(gone))
                if len(stranded):
                    told = stranded[self._first(self.origins[block][stranded])]
                    values = array_of(pc.unique(rows["value"].take(pa.array(told))))
                    yield Stranded(edge.table_key, side, values, len(values) + len(stranded) - len(told))

    def _first(self, origins: Numbers) -> Numbers:
        """All that come from the first piece or fragment, and as many more as are to be told."""
        order = np.argsort(origins, kind="stable")
        of_the_first = int(np.count_nonzero(origins == origins[order[0]]))
        return order[: max(self.most, of_the_first)]

    def _cardinality(self, edge: EdgeType, former: pa.Table | None) -> Iterator[Finding]:
        parts = []
        if (new := self._sources("source", edge)) is not None:
            parts.append(new.append_column("order", pa.nulls(new.num_rows, pa.int64())))
        if (old := self._sources("old source", edge)) is not None:
            if self.mode == "overwrite":  # What was there is not counted, but must be asked for.
                old = old.set_column(1, "count", pa.array(np.zeros(old.num_rows, dtype=np.int64)))
            parts.append(old.append_column("position", pa.nulls(old.num_rows, pa.int64())))
        if not parts:
            return
        names = ["value", "count", "position", "order"]
        rows = pa.concat_tables([part.select(names) for part in parts]).group_by("value")
        sums = rows.aggregate([("count", "sum"), ("position", "min"), ("order", "min")])
        positions, orders = (pc.fill_null(sums[name], NOWHERE).to_numpy() for name in ("position_min", "order_min"))
        lost = _lost(array_of(sums["value"]), former)
        edges = sums["count_sum"].to_numpy() - lost
        wrong = edges < edge.cardinality_min
        if edge.cardinality_max is not None:
            wrong |= edges > edge.cardinality_max
        if self.mode != "overwrite":
            wrong &= (positions != NOWHERE) | (lost > 0)
        chosen = np.flatnonzero(wrong)
        if not len(chosen):
            return
        least = chosen[np.lexsort((orders[chosen], positions[chosen]))[: self.most]]
        sources = array_of(sums["value"].take(pa.array(least)))
        yield Counted(edge.table_key, sources, edges[least], positions[least], orders[least], len(chosen))

    def _sources(self, role: Role, edge: EdgeType) -> pa.Table | None:
        """The sources of edges that stay nodes: value, count, and where each comes first."""
        block = self.blocks.get(BlockKey(role, edge.table_key))
        node = f"node:{edge.from_type}"
        if block is not None and self._is_overwritten(node):
            block = block.filter(pa.array(~_unsorted(block).found_in(self._gone(node))))
        return None if block is None else block.drop_columns(["hash", "check"])


def _unsorted(block: pa.Table) -> Keys:
    """The keys of a block in the order of its rows."""
    return Keys(block["hash"].to_numpy(), block["check"].to_numpy())


def _repeated(values: Any) -> Any:
    """The values that occur more than once."""
    if len(pc.unique(values)) == len(values):
        return pa.chunked_array([], pa.string())
    counted = pc.value_counts(values)
    return pa.chunked_array([counted.field("values").filter(pc.greater(counted.field("counts"), 1))])


def _codes(rows: pa.Table, values: pa.Array) -> Numbers:
    """Which of some values each row has."""
    codes: Numbers = pc.index_in(rows["value"], value_set=values).to_numpy().astype(np.int64)
    return codes


def _foreign(old: pa.Table, new: pa.Table, values: pa.Array) -> pa.Table:
    """The committed rows that hold a value and are not themselves replaced by a record with it."""

    def pairs(rows: pa.Table) -> Any:
        codes = pa.array(_codes(rows, values)).cast(pa.string())
        return pc.binary_join_element_wise(codes, array_of(rows["id"]), ":")

    return old.filter(pc.invert(pc.is_in(pairs(old), value_set=pairs(new))))


def _values_told(
    codes: Numbers, positions: Numbers, holders: pa.Table | None, values: pa.Array
) -> tuple[SharedValue, ...]:
    held: dict[int, list[tuple[int, str]]] = defaultdict(list)
    if holders is not None:
        of_holders = _codes(holders, values)
        chosen = holders.filter(pa.array(np.isin(of_holders, codes)))
        rows = zip(_codes(chosen, values).tolist(), chosen["order"].to_pylist(), chosen["id"].to_pylist(), strict=True)
        for code, order, row_id in rows:
            held[code].append((order, row_id))
    records: dict[int, list[int]] = defaultdict(list)
    for code, position in zip(codes.tolist(), positions.tolist(), strict=True):
        records[code].append(position)
    return tuple(SharedValue(tuple(each), tuple(sorted(held[code]))) for code, each in records.items())


def _lost(sources: pa.Array, former: pa.Table | None) -> Numbers:
    """How many edges each source loses because they are replaced."""
    if former is None:
        return np.zeros(len(sources), dtype=np.int64)
    places = pc.index_in(sources, value_set=array_of(former["source"]))
    lost: Numbers = pc.fill_null(array_of(former["count"]).take(places), 0).to_numpy()
    return lost
