"""From what the buckets found to rejections: the engine's words for each, and its place in the engine's order.

What is wrong is known by now; what is missing are the rows behind it, for the words. They are looked up in the input,
for so many records of each rule as can be told; the others are counted. Where edges are replaced and counted, the
engine's own rule decides on the rows around the sources in question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reference.format.records import TableRecords
from reference.format.values import shown
from reference.operations.changeset import HowToStage, TableChange
from reference.operations.load import id_refusal
from reference.operations.reading import read_matching
from reference.operations.validate import (
    ENDS,
    SOURCES,
    Scope,
    Violation,
    cardinality_violation,
    cardinality_violations,
    orphan_edge,
    unique_violation,
)
from reference.pipeline.findings import (
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
from reference.pipeline.keys import SIDES, Side
from reference.pipeline.look_up import Fetched, Wanted
from reference.pipeline.rejections import CARDINALITY, ENDPOINT, EXISTS, TWICE, UNIQUE, Rejection, told_max
from reference.pipeline.scan import rejection_of
from reference.protocol.manifests import Snapshot
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog, EdgeType

Fetch = Callable[[Mapping[str, Wanted]], Mapping[str, Fetched]]
Kind = TypeVar("Kind", bound=Finding)


@dataclass(frozen=True)
class Verdict:
    """What is wrong with the keys of a load, how much more that is not told, and the committed ids that it replaces.

    `is_undecided`: everything that was told has turned out to be right, and something was not told.
    """

    rejections: list[Rejection]
    unseen: int
    replaced: Mapping[str, pa.Array]
    is_undecided: bool


@dataclass
class Judge:
    """One look at a load against one snapshot. `firsts` is the first record of each table; up to `allowed` records may
    be left out."""

    store: GraphStore
    snapshot: Snapshot
    catalog: Catalog
    mode: HowToStage
    firsts: Mapping[str, int]
    allowed: int
    fetch: Fetch
    unseen: int = 0
    is_undecided: bool = False
    replaced: dict[str, pa.Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table_order = {key: index for index, key in enumerate(self.catalog.table_keys())}
        self.most = told_max(self.allowed)

    def verdict(self, findings: Sequence[Finding]) -> Verdict:
        self.replaced = {
            key: pa.concat_arrays([each.ids for each in parts]) for key, parts in _by_table(findings, Replaced).items()
        }
        rules: dict[type[Any], Callable[[Sequence[Finding]], Iterator[Rejection]]] = {
            Twice: self._twice,
            Existing: self._existing,
            Shared: self._shared,
            Missing: self._dangling,
            Stranded: self._stranded,
            Counted: self._counted,
        }
        rejections: list[Rejection] = []
        for kind, rule in rules.items():
            found = [finding for finding in findings if isinstance(finding, kind)]
            if len(rejections) < self.most:
                rejections += rule(found)
            else:  # The engine looks at the rules in this order: the first rejection is among those that are told.
                self.unseen += sum(each.count for each in found)
        return Verdict(rejections, self.unseen, self.replaced, self.is_undecided)

    def _told(self, counts: int, order: Numbers) -> Numbers:
        """As many of the first as are told; the others are counted."""
        least = order[: self.most]
        self.unseen += counts - len(least)
        return least

    def _ids_at(self, key: str, positions: Numbers) -> dict[int, str]:
        """The ids of some records of a table, by their numbers."""
        records = self.fetch({key: Wanted(tuple(sorted(positions.tolist())))})[key].records
        return dict(zip(records.positions.tolist(), records.table["id"].to_pylist(), strict=True))

    def _twice(self, findings: Sequence[Finding]) -> Iterator[Rejection]:
        for key, found in _by_table(findings, Twice).items():
            positions, firsts = (_joined(getattr(each, name) for each in found) for name in ("positions", "firsts"))
            least = self._told(sum(each.count for each in found), np.argsort(positions))
            ids = self._ids_at(key, positions[least])
            for position, first in zip(positions[least].tolist(), firsts[least].tolist(), strict=True):
                message = f"record {position}: {key} {shown(ids[position])} is in record {first} too"
                error = id_refusal(message, "unique_violation", key, ids[position], position)
                yield Rejection.of(error, (TWICE, self.firsts[key], position), position)

    def _existing(self, findings: Sequence[Finding]) -> Iterator[Rejection]:
        for key, found in _by_table(findings, Existing).items():
            positions, orders = (_joined(getattr(each, name) for each in found) for name in ("positions", "orders"))
            least = self._told(sum(each.count for each in found), np.argsort(orders, kind="stable"))
            ids = self._ids_at(key, positions[least])
            for position, order in zip(positions[least].tolist(), orders[least].tolist(), strict=True):
                message = f"record {position}: {key} {shown(ids[position])} is there already"
                error = id_refusal(message, "row_exists", key, ids[position], position)
                yield Rejection.of(error, (EXISTS, self.firsts[key], order), position)

    # -- unique -------------------------------------------------------------------------------------------------------

    def _shared(self, findings: Sequence[Finding]) -> Iterator[Rejection]:
        for key, found in _by_table(findings, Shared).items():
            groups: dict[int, list[SharedValue]] = defaultdict(list)
            for each in found:
                standing = self._standing(key, each.values)
                self.unseen += each.rest
                # What is in doubt may be right, as all that was told of it was: then more has to be told.
                self.is_undecided |= bool(each.rest_in_doubt) and len(standing) <= self.allowed
                groups[each.group] += standing
            for index, values in groups.items():
                yield from self._shared_values(key, index, values)

    def _standing(self, key: str, values: Sequence[SharedValue]) -> list[SharedValue]:
        """The values without the holders that the input itself replaces: what those held is free."""
        if key not in self.replaced:
            return list(values)
        ids = pc.unique(pa.array([row_id for value in values for _, row_id in value.holders], pa.string()))
        replaced = set(ids.filter(pc.is_in(ids, value_set=self.replaced[key])).to_pylist())
        held = [
            SharedValue(value.positions, tuple(each for each in value.holders if each[1] not in replaced))
            for value in values
        ]
        return [value for value in held if value.holders or len(value.positions) > 1]

    def _shared_values(self, key: str, group_index: int, values: Sequence[SharedValue]) -> Iterator[Rejection]:
        owner = self.catalog.type_of(key)
        group = owner.unique[group_index]
        ordered = sorted(values, key=lambda value: value.positions[0])
        wrong = [
            (value, position)
            for value in ordered
            for position in (value.positions if value.holders else value.positions[1:])
        ]
        self.unseen += max(0, len(wrong) - self.most)
        wrong = wrong[: self.most]
        if not wrong:
            return
        wanted = {position for value, position in wrong for position in (position, value.positions[0])}
        keep = ("id", *(name for name in group if name != "id"))
        rows = self.fetch({key: Wanted(tuple(sorted(wanted)), keep=keep)})[key].records
        places = {int(position): place for place, position in enumerate(rows.positions)}
        for value, position in wrong:
            first = value.positions[0]
            holder = value.holders[0][1] if value.holders else rows.table["id"][places[first]].as_py()
            row = rows.table.slice(places[position], 1).select(["id", *group])
            order = (UNIQUE, self.table_order[key], group_index, first, position)
            yield rejection_of(unique_violation(owner, group, row, holder), order, position)

    # -- endpoints ----------------------------------------------------------------------------------------------------

    def _dangling(self, findings: Sequence[Finding]) -> Iterator[Rejection]:
        wanted: dict[str, Wanted] = {}
        absent: dict[str, dict[Side, Keys]] = {}
        for key, found in _by_table(findings, Missing).items():
            self.unseen += sum(each.count - len(each.keys) for each in found)
            sides = {side: Keys.of(each.keys for each in found if each.side == side) for side in SIDES}
            absent[key] = {side: keys for side, keys in sides.items() if len(keys)}
            columns = {str(side): keys for side, keys in absent[key].items()}
            wanted[key] = Wanted(columns=columns, keep=("id", *columns), most=self.most)
        rows = self.fetch(wanted) if wanted else {}
        for key, missing_at in absent.items():
            self.unseen += rows[key].beyond
            records = rows[key].records
            for side, missing in missing_at.items():
                wrong = np.flatnonzero(Keys.of_texts(records.table[side]).found_in(missing))
                least = self._told(len(wrong), wrong)
                ends = zip(
                    records.positions[least].tolist(),
                    *_columns(records.table.take(pa.array(least)), "id", side),
                    strict=True,
                )
                for position, row_id, end in ends:
                    violation, order = self._orphan(key, side, row_id, end)
                    yield rejection_of(violation, (*order, 0, *self._edge_order(key, side), position), position)

    def _stranded(self, findings: Sequence[Finding]) -> Iterator[Rejection]:
        """Committed edges whose node an overwrite drops: no record is at fault, so none can be left out for it."""
        reported: set[tuple[str, str, str]] = set()
        for key, found in _by_table(findings, Stranded).items():
            self.unseen += sum(each.count - len(each.values) for each in found)
            for side in SIDES:
                parts = [each.values for each in found if each.side == side]
                if not parts:
                    continue
                values = pc.unique(pa.concat_arrays(parts))
                rows = read_matching(self.store, self.snapshot.entries.get(key), ENDS, side, values)
                told = self._told(rows.num_rows, np.arange(rows.num_rows))
                columns = _columns(rows.take(pa.array(told)), "id", side)
                for index, (row_id, end) in enumerate(zip(*columns, strict=True)):
                    violation, order = self._orphan(key, side, row_id, end)
                    if (key, violation.details["node_type"], row_id) not in reported:
                        reported.add((key, violation.details["node_type"], row_id))
                        yield rejection_of(violation, (*order, 1, *self._edge_order(key, side), index), None)

    def _orphan(self, key: str, side: Side, row_id: str, end: str) -> tuple[Violation, tuple[int, int]]:
        edge = self.catalog.type_of(key)
        assert isinstance(edge, EdgeType)
        node = self.catalog.nodes[edge.from_type if side == "src" else edge.to_type]
        return orphan_edge(edge, node, row_id, side, end), (ENDPOINT, list(self.catalog.nodes).index(node.name))

    def _edge_order(self, key: str, side: Side) -> tuple[int, int]:
        return sorted(self.catalog.edges).index(key.removeprefix("edge:")), SIDES.index(side)

    # -- cardinality --------------------------------------------------------------------------------------------------

    def _counted(self, findings: Sequence[Finding]) -> Iterator[Rejection]:
        for key, found in sorted(_by_table(findings, Counted).items()):
            edge = self.catalog.type_of(key)
            assert isinstance(edge, EdgeType)
            names = ("edges", "positions", "orders")
            edges, positions, orders = (_joined(getattr(each, name) for each in found) for name in names)
            least = self._told(sum(each.count for each in found), np.lexsort((orders, positions)))
            sources = pa.concat_arrays([each.sources for each in found]).take(pa.array(least))
            fetched = self._rows_around(key, sources)
            records = None if fetched is None else fetched.records
            if self.mode == "merge":
                violations = self._recounted(edge, records, sources)
            else:
                counts = zip(sources.to_pylist(), edges[least].tolist(), strict=True)
                violations = [cardinality_violation(edge, source, count) for source, count in counts]
            self.unseen += 0 if fetched is None else fetched.beyond
            yield from self._too_many_or_few(key, violations, records)

    def _rows_around(self, key: str, sources: pa.Array) -> Fetched | None:
        """The records from some sources, those whose id is that of a source, and those that replace their edges."""
        ids = sources
        if self.mode == "merge":
            standing = read_matching(self.store, self.snapshot.entries.get(key), SOURCES, "src", sources)["id"]
            ids = pa.concat_arrays([sources, *standing.chunks])
        most = None if self.mode == "merge" else self.most
        wanted = Wanted(columns={"src": sources}, always={"id": ids}, keep=("id", "src"), most=most)
        return self.fetch({key: wanted}).get(key)

    def _recounted(self, edge: EdgeType, rows: TableRecords | None, sources: pa.Array) -> list[Violation]:
        table = self.catalog.arrow_schema(edge.table_key).empty_table() if rows is None else rows.table
        change = TableChange(edge.table_key, table, how="merge")
        scope = Scope(self.store, self.snapshot, {edge.table_key: change})
        asked = set(sources.to_pylist())
        return [each for each in cardinality_violations(scope, edge, change) if each.row_id in asked]

    def _too_many_or_few(
        self, key: str, violations: Sequence[Violation], rows: TableRecords | None
    ) -> Iterator[Rejection]:
        """Each violation once for each record that adds to it, or for none. It is about the source, so the engine gives
        it the number of a record only if an edge has the very id of the source."""
        by_source: dict[str, list[int]] = defaultdict(list)
        by_id: dict[str, int] = {}
        if rows is not None:
            for position, row_id, source in zip(
                rows.positions.tolist(), *_columns(rows.table, "id", "src"), strict=True
            ):
                by_source[source].append(position)
                by_id.setdefault(row_id, position)
        told = 0
        for index, violation in enumerate(violations):
            error = violation.to_error()
            if violation.row_id in by_id:
                error.details["record"] = by_id[violation.row_id]
                error.message = f"record {by_id[violation.row_id]}: {error.message}"
            order = (CARDINALITY, self.table_order[key], index)
            added: list[int | None] = [*by_source.get(violation.row_id, ())] or [None]
            room = max(0, self.most - told)
            self.unseen += max(0, len(added) - room)
            told += len(added)
            for each in added[:room]:
                yield Rejection.of(error, (*order, each or 0), each)


def former_sources(findings: Sequence[Finding]) -> dict[str, pa.Table]:
    """By table, the sources that lose edges because these are replaced, and how many each of them loses."""
    found = {}
    for key, parts in _by_table(findings, Replaced).items():
        sources = [each.sources for each in parts if each.sources is not None]
        if sources:
            counted = pc.value_counts(pa.concat_arrays(sources))
            found[key] = pa.table({"source": counted.field("values"), "count": counted.field("counts")})
    return found


def _by_table(findings: Sequence[Finding], kind: type[Kind]) -> dict[str, list[Kind]]:
    found: dict[str, list[Kind]] = defaultdict(list)
    for finding in findings:
        if isinstance(finding, kind):
            found[finding.table_key].append(finding)
    return found


def _joined(parts: Iterator[Numbers]) -> Numbers:
    return np.concatenate(list(parts))


def _columns(rows: pa.Table, *names: str) -> list[list[Any]]:
    return [rows[name].to_pylist() for name in names]
