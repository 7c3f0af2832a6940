"""From what the buckets found to rejections: the engine's words for each, and its place in the engine's order.

What is wrong is known by now; what is missing are the rows behind it, for the words. They are looked up in the input,
and there are few of them, or the load is beyond saving. Where edges are replaced and counted, the engine's own rule
decides on the rows around the sources in question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from reference.format.records import TableRecords
from reference.format.values import shown
from reference.operations.changeset import HowToStage, TableChange
from reference.operations.load import _refusal
from reference.operations.reading import read_matching
from reference.operations.validate import (
    _ENDS,
    _SOURCES,
    _cardinality,
    _cardinality_violation,
    _orphan,
    _Scope,
    _unique_violation,
)
from reference.pipeline.buckets import (
    Counted,
    Existing,
    Finding,
    Keys,
    Missing,
    Replaced,
    Shared,
    Stranded,
    Twice,
)
from reference.pipeline.keys import SIDES, Side
from reference.pipeline.rejections import CARDINALITY, ENDPOINT, EXISTS, TWICE, UNIQUE, Rejection
from reference.pipeline.scan import Wanted, rejection_of
from reference.protocol.manifests import Snapshot
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog, EdgeType

Fetch = Callable[[Mapping[str, Wanted]], Mapping[str, TableRecords]]


@dataclass(frozen=True)
class Verdict:
    """What is wrong with the keys of a load, and the committed ids that it replaces."""

    rejections: list[Rejection]
    replaced: Mapping[str, pa.Array]


@dataclass(frozen=True)
class Judge:
    """One look at a load against one snapshot. `firsts` is the first record of each table."""

    store: GraphStore
    snapshot: Snapshot
    catalog: Catalog
    mode: HowToStage
    firsts: Mapping[str, int]
    fetch: Fetch
    table_order: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        order = {key: index for index, key in enumerate(self.catalog.table_keys())}
        object.__setattr__(self, "table_order", order)

    def verdict(self, findings: Sequence[Finding]) -> Verdict:
        by_kind: dict[type, list[Any]] = defaultdict(list)
        for finding in findings:
            by_kind[type(finding)].append(finding)
        replaced: dict[str, list[pa.Array]] = defaultdict(list)
        former: dict[str, set[str]] = defaultdict(set)
        for each in by_kind[Replaced]:
            replaced[each.table_key].append(each.ids)
            if each.sources is not None:
                former[each.table_key] |= set(each.sources.to_pylist())
        rejections = [
            *self._twice(by_kind[Twice]),
            *self._existing(by_kind[Existing]),
            *self._shared(by_kind[Shared]),
            *self._dangling(by_kind[Missing]),
            *self._stranded(by_kind[Stranded]),
            *self._counted(by_kind[Counted], former),
        ]
        return Verdict(rejections, {key: pa.concat_arrays(parts) for key, parts in replaced.items()})

    def _ids_at(self, found: Sequence[tuple[str, Sequence[int]]]) -> dict[tuple[str, int], str]:
        """The ids of some records, by table and number."""
        wanted: dict[str, set[int]] = defaultdict(set)
        for key, positions in found:
            wanted[key] |= set(positions)
        if not wanted:
            return {}
        rows = self.fetch({key: Wanted(tuple(sorted(positions))) for key, positions in wanted.items()})
        return {
            (key, position): row_id
            for key, records in rows.items()
            for position, row_id in zip(records.positions.tolist(), records.table["id"].to_pylist(), strict=True)
        }

    def _twice(self, found: Sequence[Twice]) -> Iterator[Rejection]:
        ids = self._ids_at([(each.table_key, each.positions) for each in found])
        for each in found:
            firsts: dict[str, int] = {}
            for position in each.positions:
                key, value = each.table_key, ids[each.table_key, position]
                first = firsts.setdefault(value, position)
                if first != position:
                    message = f"record {position}: {key} {shown(value)} is in record {first} too"
                    error = _refusal(message, "unique_violation", key, value, position)
                    yield Rejection.of(error, (TWICE, self.firsts[key], position), position)

    def _existing(self, found: Sequence[Existing]) -> Iterator[Rejection]:
        ids = self._ids_at([(each.table_key, [each.position]) for each in found])
        for each in found:
            key, value = each.table_key, ids[each.table_key, each.position]
            message = f"record {each.position}: {key} {shown(value)} is there already"
            error = _refusal(message, "row_exists", key, value, each.position)
            yield Rejection.of(error, (EXISTS, self.firsts[key], each.order), each.position)

    # -- unique -------------------------------------------------------------------------------------------------------

    def _shared(self, found: Sequence[Shared]) -> Iterator[Rejection]:
        if not found:
            return
        replaced = self._in_input(found)
        wanted: dict[str, set[int]] = defaultdict(set)
        for each in found:
            wanted[each.table_key] |= set(each.positions)
        rows = self.fetch({key: Wanted(tuple(sorted(positions))) for key, positions in wanted.items()})
        for each in found:
            yield from self._shared_value(each, rows[each.table_key], replaced.get(each.table_key, set()))

    def _in_input(self, found: Sequence[Shared]) -> dict[str, set[str]]:
        """The committed holders that the input itself replaces, with other values: what they held is free."""
        holders: dict[str, set[str]] = defaultdict(set)
        for each in found:
            holders[each.table_key] |= {row_id for _, row_id in each.holders}
        asked = {
            key: Wanted(columns={"id": pa.array(sorted(ids), pa.string())})
            for key, ids in holders.items()
            if ids and self.mode == "merge"
        }
        rows = self.fetch(asked) if asked else {}
        return {key: set(records.table["id"].to_pylist()) & holders[key] for key, records in rows.items()}

    def _shared_value(self, shared: Shared, rows: TableRecords, replaced: set[str]) -> Iterator[Rejection]:
        owner = self.catalog.type_of(shared.table_key)
        group = owner.unique[shared.group]
        index = {int(position): place for place, position in enumerate(rows.positions)}
        held = [row_id for _, row_id in shared.holders if row_id not in replaced]
        first = shared.positions[0]
        holder = held[0] if held else rows.table["id"][index[first]].as_py()
        for position in shared.positions if held else shared.positions[1:]:
            row = rows.table.slice(index[position], 1).select(["id", *group])
            violation = _unique_violation(owner, group, row, holder)
            order = (UNIQUE, self.table_order[shared.table_key], shared.group, first, position)
            yield rejection_of(violation, order, position)

    # -- endpoints ----------------------------------------------------------------------------------------------------

    def _dangling(self, found: Sequence[Missing]) -> Iterator[Rejection]:
        absent: dict[str, dict[Side, list[Keys]]] = defaultdict(lambda: defaultdict(list))
        for each in found:
            absent[each.table_key][each.side].append(each.keys)
        keys = {key: {side: Keys.of(parts) for side, parts in sides.items()} for key, sides in absent.items()}
        wanted = {key: Wanted(columns={str(side): each for side, each in sides.items()}) for key, sides in keys.items()}
        rows = self.fetch(wanted) if wanted else {}
        for key, sides in keys.items():
            for side, missing in sides.items():
                records = rows[key]
                wrong = Keys.of_texts(records.table[side]).found_in(missing)
                table = records.table.filter(pa.array(wrong))
                ends = zip(records.positions[wrong].tolist(), *_columns(table, "id", side), strict=True)
                for position, row_id, end in ends:
                    violation, order = self._orphan(key, side, row_id, end)
                    yield rejection_of(violation, (*order, 0, *self._edge_order(key, side), position), position)

    def _stranded(self, found: Sequence[Stranded]) -> Iterator[Rejection]:
        """Committed edges whose node an overwrite drops: no record is at fault, so none can be left out for it."""
        reported: set[tuple[str, str, str]] = set()
        for (key, side), values in sorted(_joined(found).items(), key=lambda each: SIDES.index(each[0][1])):
            rows = read_matching(self.store, self.snapshot.entries.get(key), _ENDS, side, values)
            for index, (row_id, end) in enumerate(zip(*_columns(rows, "id", side), strict=True)):
                violation, order = self._orphan(key, side, row_id, end)
                if (key, violation.details["node_type"], row_id) not in reported:
                    reported.add((key, violation.details["node_type"], row_id))
                    yield rejection_of(violation, (*order, 1, *self._edge_order(key, side), index), None)

    def _orphan(self, key: str, side: Side, row_id: str, end: str) -> tuple[Any, tuple[int, int]]:
        edge = self.catalog.type_of(key)
        assert isinstance(edge, EdgeType)
        node = self.catalog.nodes[edge.from_type if side == "src" else edge.to_type]
        return _orphan(edge, node, row_id, side, end), (ENDPOINT, list(self.catalog.nodes).index(node.name))

    def _edge_order(self, key: str, side: Side) -> tuple[int, int]:
        return sorted(self.catalog.edges).index(key.removeprefix("edge:")), SIDES.index(side)

    # -- cardinality --------------------------------------------------------------------------------------------------

    def _counted(self, found: Sequence[Counted], former: Mapping[str, set[str]]) -> Iterator[Rejection]:
        by_table: dict[str, list[Counted]] = defaultdict(list)
        for each in found:
            by_table[each.table_key].append(each)
        for key in sorted({*by_table, *former}):
            edge = self.catalog.type_of(key)
            assert isinstance(edge, EdgeType)
            sources = {each.source for each in by_table[key]} | former.get(key, set())
            if not sources:
                continue
            rows = self._rows_around(key, sources)
            if self.mode == "merge":
                violations = self._recounted(edge, rows, sources)
            else:
                ordered = sorted(by_table[key], key=lambda each: (each.position is None, each.position, each.order))
                violations = [_cardinality_violation(edge, each.source, each.count) for each in ordered]
            for index, violation in enumerate(violations):
                yield from self._too_many_or_few(key, index, violation, rows)

    def _rows_around(self, key: str, sources: set[str]) -> TableRecords | None:
        """The records from some sources, those whose id is that of a source, and those that replace their edges."""
        texts = pa.array(sorted(sources), pa.string())
        ids = set(sources)
        if self.mode == "merge":
            ids |= set(
                read_matching(self.store, self.snapshot.entries.get(key), _SOURCES, "src", texts)["id"].to_pylist()
            )
        columns = {"src": texts, "id": pa.array(sorted(ids), pa.string())}
        return self.fetch({key: Wanted(columns=columns)}).get(key)

    def _recounted(self, edge: EdgeType, rows: TableRecords | None, sources: set[str]) -> list[Any]:
        table = self.catalog.arrow_schema(edge.table_key).empty_table() if rows is None else rows.table
        change = TableChange(edge.table_key, table, how="merge")
        scope = _Scope(self.store, self.snapshot, {edge.table_key: change})
        return [each for each in _cardinality(scope, edge, change) if each.row_id in sources]

    def _too_many_or_few(self, key: str, index: int, violation: Any, rows: TableRecords | None) -> Iterator[Rejection]:
        """The violation once for each record that adds to it, or for none. It is about the source, so the engine gives
        it the number of a record only if an edge has the very id of the source."""
        error = violation.to_error()
        positions: list[int | None] = []
        if rows is not None:
            ids, sources = _columns(rows.table, "id", "src")
            named = [
                number
                for number, row_id in zip(rows.positions.tolist(), ids, strict=True)
                if row_id == violation.row_id
            ]
            if named:
                error.details["record"] = named[0]
                error.message = f"record {named[0]}: {error.message}"
            positions = [
                number
                for number, source in zip(rows.positions.tolist(), sources, strict=True)
                if source == violation.row_id
            ]
        order = (CARDINALITY, self.table_order[key], index)
        for position in positions or [None]:
            yield Rejection.of(error, (*order, position or 0), position)


def _columns(rows: pa.Table, *names: str) -> list[list[Any]]:
    return [rows[name].to_pylist() for name in names]


def _joined(found: Sequence[Stranded]) -> dict[tuple[str, Side], pa.Array]:
    parts: dict[tuple[str, Side], list[pa.Array]] = defaultdict(list)
    for each in found:
        parts[each.table_key, each.side].append(each.values)
    return {key: pa.concat_arrays(values) for key, values in parts.items()}


def joined_records(parts: Sequence[TableRecords]) -> TableRecords:
    """The records of several pieces as one, in the order of their numbers."""
    table = pa.concat_tables([part.table for part in parts]).combine_chunks()
    positions = np.concatenate([part.positions for part in parts])
    explicit = np.concatenate([part.explicit for part in parts])
    order = np.argsort(positions, kind="stable")
    return TableRecords(table.take(pa.array(order)), positions[order], explicit[order])
