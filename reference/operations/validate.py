"""The rules of a schema, checked on a whole change set before any of it is written.

There is one evaluator for load, mutate and merge [VAL-02]. It yields every violation; who writes raises the first,
who merges collects them all. Rules about one value look at the changed rows only. Rules that reach further (unique,
endpoints, cardinality) also look at committed rows, and only at those that could matter: a few values are looked up,
many are compared with a column that is read once. Everything is Arrow; integers are never turned into floats [VAL-16].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import BadRequest, Conflict
from reference.format.export_lines import json_values
from reference.format.values import INTEGER_RANGES, detail, shown
from reference.operations.changeset import ChangeSet, TableChange
from reference.operations.reading import read_matching
from reference.protocol.manifests import Snapshot
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog, EdgeType, NodeType, Property, Range

ViolationKind = Literal["value", "unique", "orphan_edge", "cardinality"]
Texts = Any  # Of Arrow: an array or a chunked array of strings.
Owner = NodeType | EdgeType

_ID = pa.schema([pa.field("id", pa.string(), nullable=False)])
SOURCES = _ID.append(pa.field("src", pa.string(), nullable=False))
ENDS = SOURCES.append(pa.field("dst", pa.string(), nullable=False))


@dataclass(frozen=True)
class Violation:
    """One row that breaks one rule. For a cardinality the row is the source node."""

    kind: ViolationKind
    table_key: str
    row_id: str
    message: str
    code: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_error(self) -> BadRequest:
        details = {"table_key": self.table_key, "row_id": detail(self.row_id), **self.details}
        return BadRequest(self.message, code=self.code, details=details)


def violations(
    store: GraphStore, snapshot: Snapshot, catalog: Catalog, changes: Mapping[str, TableChange]
) -> Iterator[Violation]:
    """Everything that is wrong with a change set on a snapshot. The ids in a change's rows are distinct already."""
    scope = Scope(store, snapshot, changes)
    owners = {key: catalog.type_of(key) for key in sorted(changes)}
    for key, owner in owners.items():
        yield from value_violations(owner, changes[key].rows)
    for key, owner in owners.items():
        yield from _unique(scope, owner, changes[key])
    yield from missing_endpoints(store, snapshot, catalog, changes)
    for key, owner in owners.items():
        if isinstance(owner, EdgeType):
            yield from cardinality_violations(scope, owner, changes[key])


def refuse_violations(store: GraphStore, catalog: Catalog, changes: ChangeSet) -> None:
    """Raise the first violation, if there is one: the way of load and mutate."""
    for violation in violations(store, changes.snapshot, catalog, changes.tables):
        raise violation.to_error()


# -- committed rows, as far as a change leaves them ---------------------------------------------------------------


@dataclass(frozen=True)
class Scope:
    """The committed state that a change set is held against."""

    store: GraphStore
    snapshot: Snapshot
    changes: Mapping[str, TableChange]

    def committed(self, table_key: str, schema: pa.Schema, column: str, wanted: Texts | None) -> pa.Table:
        """Committed rows whose column is one of `wanted`; all rows for None."""
        return read_matching(self.store, self.snapshot.entries.get(table_key), schema, column, wanted)

    def standing(self, table_key: str, schema: pa.Schema, column: str, wanted: Texts) -> pa.Table:
        """The same without the rows that the change set replaces or removes."""
        change = self.changes.get(table_key)
        if change is None:
            return self.committed(table_key, schema, column, wanted)
        if change.how == "overwrite":
            return schema.empty_table()
        rows = self.committed(table_key, schema, column, wanted)
        return rows.filter(_is_not_in(rows["id"], _joined([change.rows["id"], _texts(change.deleted)])))

    def absent(self, table_key: str, wanted: Texts) -> Texts:
        """Which of some ids have no row in a table once the change set is in."""
        change = self.changes.get(table_key)
        if change is not None:
            wanted = wanted.filter(_is_not_in(wanted, change.rows["id"]))
        wanted = pc.unique(wanted)
        return wanted.filter(_is_not_in(wanted, self.standing(table_key, _ID, "id", wanted)["id"]))

    def gone(self, table_key: str) -> Texts:
        """The ids that the change set removes from a table; what an overwrite does not repeat is removed too."""
        change = self.changes.get(table_key)
        if change is None:
            return _texts(())
        if change.how != "overwrite":
            return _texts(change.deleted)
        before = self.committed(table_key, _ID, "id", None)["id"]
        return before.filter(_is_not_in(before, change.rows["id"]))


def _texts(texts: Iterable[str]) -> pa.Array:
    return pa.array(sorted(texts), pa.string())


def _joined(parts: Iterable[Texts]) -> pa.ChunkedArray:
    chunks = [chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    return pa.chunked_array(chunks, pa.string())


def _is_not_in(texts: Texts, others: Texts) -> Texts:
    return pc.invert(pc.is_in(texts, value_set=others))


# -- single values: enum, range, check ----------------------------------------------------------------------------


def value_violations(owner: Owner, rows: pa.Table) -> Iterator[Violation]:
    for prop in owner.properties:
        if prop.type.enum_values is not None:
            rule = f"is not one of {', '.join(prop.type.enum_values)}"
            yield from _reported(owner, rows, prop.name, _outside_enum(prop, rows), rule, "enum_violation")
    for limit in owner.ranges:
        rule = f"is not within {_shown_range(limit)}"
        yield from _reported(owner, rows, limit.property, _outside_range(owner, limit, rows), rule, "range_violation")
    for check in owner.checks:
        present = pc.indices_nonzero(rows[check.property].is_valid())
        matches = map(check.regex.search, rows[check.property].drop_null().to_pylist())
        wrong = [present[index].as_py() for index, match in enumerate(matches) if match is None]
        rule = f"does not match the pattern {shown(check.pattern)}"
        yield from _reported(owner, rows, check.property, wrong, rule, "check_violation")


def _reported(
    owner: Owner, rows: pa.Table, name: str, indices: Iterable[int], rule: str, code: str
) -> Iterator[Violation]:
    for index in indices:
        row_id = rows["id"][index].as_py()
        value = json_values(rows[name].slice(index, 1).combine_chunks(), name)[0]
        message = f"{owner.name} {shown(row_id)}: the value {shown(value)} of '{name}' {rule}"
        details = {"type": owner.name, "property": name, "value": detail(value)}
        yield Violation("value", owner.table_key, row_id, message, code, details)


def _outside_enum(prop: Property, rows: pa.Table) -> list[int]:
    present = pc.indices_nonzero(rows[prop.name].is_valid())
    # A null list can hide items, which only dropping it removes.
    column = rows[prop.name].combine_chunks().drop_null()
    items = pc.list_flatten(column) if prop.type.is_list else column
    wrong = pc.indices_nonzero(
        pc.and_(items.is_valid(), _is_not_in(items, pa.array(prop.type.enum_values, pa.string())))
    )
    if prop.type.is_list:
        wrong = pc.unique(pc.list_parent_indices(column).take(wrong))
    return list(present.take(wrong).to_pylist())


def _outside_range(owner: Owner, limit: Range, rows: pa.Table) -> list[int]:
    prop = owner.property(limit.property)
    assert prop is not None
    column = rows[limit.property]
    lowest: float
    highest: float
    if prop.type.scalar in INTEGER_RANGES:
        lowest, highest = INTEGER_RANGES[prop.type.scalar]
        if limit.minimum is not None:
            lowest = max(lowest, math.ceil(limit.minimum))
        if limit.maximum is not None:
            highest = min(highest, math.floor(limit.maximum))
    else:
        column = column.cast(pa.float64())
        lowest = -math.inf if limit.minimum is None else _float_towards(limit.minimum, math.inf)
        highest = math.inf if limit.maximum is None else _float_towards(limit.maximum, -math.inf)
    if lowest > highest:
        return list(pc.indices_nonzero(column.is_valid()).to_pylist())
    low, high = pa.scalar(lowest, column.type), pa.scalar(highest, column.type)
    return list(pc.indices_nonzero(pc.or_(pc.less(column, low), pc.greater(column, high))).to_pylist())


def _float_towards(bound: int | float, side: float) -> float:
    """The float nearest to a bound among those that are inside the range: a big integer may lie between two."""
    nearest = float(bound)
    outside = nearest < bound if side > 0 else nearest > bound
    return math.nextafter(nearest, side) if outside else nearest


def _shown_range(limit: Range) -> str:
    return f"{'' if limit.minimum is None else limit.minimum}..{'' if limit.maximum is None else limit.maximum}"


# -- unique -------------------------------------------------------------------------------------------------------


def _unique(scope: Scope, owner: Owner, change: TableChange) -> Iterator[Violation]:
    """Two rows with one value. The key makes the id, so another row with the same key is this row [VAL-06, VAL-07]."""
    if not change.rows.num_rows:
        return
    if owner.key and not (len(owner.key) == 1 and change.rows[owner.key[0]].equals(change.rows["id"])):
        yield from _shared(owner, owner.key, _filled(change.rows, owner.key), None)
    for group in owner.unique:
        if owner.key and set(owner.key) <= set(group):
            continue  # Distinct already, because the key is.
        rows = _filled(change.rows, group)
        if not rows.num_rows:
            continue
        # A text can be looked up; a value of another type is compared with the column.
        column = next((name for name in group if pa.types.is_string(rows.schema.field(name).type)), group[0])
        others = scope.standing(owner.table_key, rows.schema, column, rows[column])
        yield from _shared(owner, group, rows, _filled(others, group))


def _filled(rows: pa.Table, group: tuple[str, ...]) -> pa.Table:
    """The id and the columns of a group, of the rows that have a value in all of them."""
    return rows.select(["id", *group]).drop_null()


def all_distinct(rows: pa.Table, names: list[str]) -> bool:
    """Whether no two rows have the same values in some columns. Grouping is the fastest way that Arrow has."""
    return bool(rows.group_by(names).aggregate([]).num_rows == rows.num_rows)


def _shared(owner: Owner, group: tuple[str, ...], rows: pa.Table, others: pa.Table | None) -> Iterator[Violation]:
    names = [f"column {index}" for index in range(len(group))]
    tables = [rows] if others is None else [rows, others]
    both = pa.concat_tables([table.rename_columns(["id", *names]) for table in tables])
    if all_distinct(both, names):
        return
    numbered = both.append_column("row", pa.array(range(both.num_rows)))
    holders = numbered.group_by(names, use_threads=False).aggregate([("row", "list")])["row_list"]
    for members in holders.filter(pc.greater(pc.list_value_length(holders), 1)).to_pylist():
        committed = [member for member in members if member >= rows.num_rows]
        holder = (committed or members)[0]
        for member in members:
            if member < rows.num_rows and member != holder:
                yield unique_violation(owner, group, both.slice(member, 1), both["id"][holder].as_py())


def unique_violation(owner: Owner, group: tuple[str, ...], row: pa.Table, holder: str) -> Violation:
    row_id, *columns = (row[name].combine_chunks() for name in row.column_names)
    value = [json_values(column, name)[0] for column, name in zip(columns, group, strict=True)]
    message = (
        f"{owner.name} {shown(row_id[0].as_py())}: {', '.join(group)} must be unique, "
        f"and {', '.join(map(shown, value))} belongs to {shown(holder)}"
    )
    details = {"type": owner.name, "properties": list(group), "value": [*map(detail, value)], "holder": detail(holder)}
    return Violation("unique", owner.table_key, row_id[0].as_py(), message, "unique_violation", details)


# -- endpoints ----------------------------------------------------------------------------------------------------


def missing_endpoints(
    store: GraphStore,
    snapshot: Snapshot,
    catalog: Catalog,
    changes: Mapping[str, TableChange],
    only: Collection[str] | None = None,
) -> Iterator[Violation]:
    """Edges without a node at one end: new ones, and committed ones whose node goes away [VAL-09].

    `only` names the tables whose committed rows are looked at: those that have moved since the last time.
    """
    scope = Scope(store, snapshot, changes)
    edges = [catalog.edges[name] for name in sorted(catalog.edges)]
    changed = [edge for edge in edges if edge.table_key in changes and changes[edge.table_key].rows.num_rows]
    for node in catalog.nodes.values():
        if only is None or node.table_key in only:
            yield from _dangling(scope, node, changed)
        gone = scope.gone(node.table_key)
        if len(gone):
            for edge in edges:
                if only is None or edge.table_key in only:
                    yield from _stranded(scope, node, edge, gone)


def _sides(edge: EdgeType, node: NodeType) -> list[str]:
    return [side for side, end in (("src", edge.from_type), ("dst", edge.to_type)) if end == node.name]


def _dangling(scope: Scope, node: NodeType, edges: list[EdgeType]) -> Iterator[Violation]:
    ends = [(edge, side, scope.changes[edge.table_key].rows) for edge in edges for side in _sides(edge, node)]
    if not ends:
        return
    absent = scope.absent(node.table_key, _joined(rows[side] for _, side, rows in ends))
    if not len(absent):
        return
    for edge, side, rows in ends:
        for row in rows.select(["id", side]).filter(pc.is_in(rows[side], value_set=absent)).to_pylist():
            yield orphan_edge(edge, node, row["id"], side, row[side])


def _stranded(scope: Scope, node: NodeType, edge: EdgeType, gone: Texts) -> Iterator[Violation]:
    reported: set[str] = set()
    for side in _sides(edge, node):
        for row in scope.standing(edge.table_key, ENDS, side, gone).to_pylist():
            if row["id"] not in reported:
                reported.add(row["id"])
                yield orphan_edge(edge, node, row["id"], side, row[side])


def orphan_edge(edge: EdgeType, node: NodeType, row_id: str, side: str, end: str) -> Violation:
    message = f"{edge.name} {shown(row_id)}: its {side} {shown(end)} is not a {node.name}"
    details = {"type": edge.name, "side": side, "endpoint": detail(end), "node_type": node.name}
    return Violation("orphan_edge", edge.table_key, row_id, message, "orphan_edge", details)


def endpoints_recheck(store: GraphStore, catalog: Catalog, changes: ChangeSet) -> Callable[[Snapshot], None]:
    """What to ask a later snapshot before a validated change set is published on it: do its endpoints still stand?"""

    def recheck(later: Snapshot) -> None:
        before = changes.snapshot.entries
        # A table that is gone has moved as well: the catalog's tables are asked for, not the snapshot's.
        moved = {
            key for key in catalog.table_keys() if _pin(later, key) != (before[key].pin if key in before else None)
        }
        for violation in missing_endpoints(store, later, catalog, changes.tables, only=moved):
            raise Conflict(
                f"another writer was faster: {violation.message}",
                code="read_set_changed",
                details={"table_key": violation.table_key, "row_id": detail(violation.row_id), **violation.details},
                hint="refresh and retry",
            )

    return recheck


def _pin(snapshot: Snapshot, table_key: str) -> tuple[int, str | None] | None:
    entry = snapshot.entries.get(table_key)
    return None if entry is None else entry.pin


# -- cardinality --------------------------------------------------------------------------------------------------


def cardinality_violations(scope: Scope, edge: EdgeType, change: TableChange) -> Iterator[Violation]:
    """How many edges each source has, for the sources whose edges change. One that has none and had none is fine."""
    low, high = edge.cardinality_min, edge.cardinality_max
    if low == 0 and high is None:
        return
    sources = pc.unique(_joined([change.rows["src"], _former_sources(scope, edge, change)]))
    sources = sources.filter(_is_not_in(sources, scope.gone(f"node:{edge.from_type}")))
    standing = scope.standing(edge.table_key, SOURCES, "src", sources)
    counted = pc.value_counts(_joined([change.rows["src"], standing["src"]]))
    counts = pa.table({"source": counted.field("values"), "count": counted.field("counts")})
    counts = counts.filter(pc.is_in(counts["source"], value_set=sources))
    wrong = pc.less(counts["count"], low)
    if high is not None:
        wrong = pc.or_(wrong, pc.greater(counts["count"], high))
    for row in counts.filter(wrong).to_pylist():
        yield cardinality_violation(edge, row["source"], row["count"])
    if low:
        for source in sources.filter(_is_not_in(sources, counts["source"])).to_pylist():
            yield cardinality_violation(edge, source, 0)


def _former_sources(scope: Scope, edge: EdgeType, change: TableChange) -> Texts:
    """Where the edges that are replaced or removed began."""
    if change.how == "overwrite":
        return scope.committed(edge.table_key, SOURCES, "id", None)["src"]
    touched = [_texts(change.deleted)] if change.how == "append" else [_texts(change.deleted), change.rows["id"]]
    return scope.committed(edge.table_key, SOURCES, "id", _joined(touched))["src"]


def cardinality_violation(edge: EdgeType, source: str, count: int) -> Violation:
    most = "any number" if edge.cardinality_max is None else edge.cardinality_max
    message = f"{edge.name}: {shown(source)} has {count} edges and must have {edge.cardinality_min} to {most}"
    details = {
        "type": edge.name,
        "source": detail(source),
        "count": count,
        "min": edge.cardinality_min,
        "max": edge.cardinality_max,
    }
    return Violation("cardinality", edge.table_key, source, message, "cardinality_violation", details)
