"""The rules of a schema on whole states: what is wrong with the state that a write would make.

A state is every table's rows by id. Every committed state keeps the rules, so looking at all rows again, as is done
here, finds just what the write broke. Only the cardinality needs the state before: a source that never had an edge is
not asked for its minimum [VAL-10].
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from conformance.model.errors import Conflict, ConflictKind
from conformance.model.schema import Schema, Type
from conformance.model.values import Row, Value, identity, same_row

Rows = Mapping[str, Row]
State = Mapping[str, Rows]


def violations(schema: Schema, before: State, after: State) -> list[Conflict]:
    """Every row that breaks a rule, of a state that follows another."""
    found: list[Conflict] = []
    for key, owner in schema.types.items():
        for row in after[key].values():
            if _breaks_a_value_rule(owner, row):
                found.append(_conflict(key, row["id"], "ValueConstraintViolation"))
        found += _doubles(owner, before[key], after[key])
        found += _loose_ends(owner, after)
        found += _miscounted(owner, before, after)
    return found


def _conflict(table_key: str, row_id: Value, kind: ConflictKind) -> Conflict:
    return Conflict(table_key, str(row_id), kind)


# -- single values [VAL-03, VAL-04] ------------------------------------------------------------------------------


def _breaks_a_value_rule(owner: Type, row: Row) -> bool:
    """Nulls keep every rule; so do null items of a list."""
    for prop in owner.properties:
        value = row[prop.name]
        items = value if isinstance(value, tuple) else (value,)
        if prop.enum_values is not None and any(item not in (None, *prop.enum_values) for item in items):
            return True
    for limit in owner.ranges:
        number = row[limit.property]
        if not isinstance(number, int | float):
            continue
        # Python compares integers and floats of any size exactly [VAL-16].
        if limit.minimum is not None and number < limit.minimum:
            return True
        if limit.maximum is not None and number > limit.maximum:
            return True
    return any(
        isinstance(text := row[check.property], str) and not check.pattern.search(text) for check in owner.checks
    )


# -- uniqueness [VAL-05, VAL-06] ---------------------------------------------------------------------------------


def _doubles(owner: Type, before: Rows, after: Rows) -> Iterator[Conflict]:
    """New rows that share their values with another row. A row with a null among them shares with none."""
    for group in owner.unique:
        holders: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for row_id, row in after.items():
            values = [row[column] for column in group]
            if None not in values:
                holders[tuple(identity(value) for value in values)].append(row_id)
        for row_ids in holders.values():
            if len(row_ids) > 1:
                new = (row_id for row_id in row_ids if not same_row(before.get(row_id), after[row_id]))
                yield from (_conflict(owner.table_key, row_id, "UniqueViolation") for row_id in new)


# -- endpoints [VAL-09] ------------------------------------------------------------------------------------------


def _loose_ends(edge: Type, after: State) -> Iterator[Conflict]:
    for row in after[edge.table_key].values():
        if any(row[side] not in after[f"node:{end}"] for side, end in edge.ends.items()):
            yield _conflict(edge.table_key, row["id"], "OrphanEdge")


# -- cardinality [VAL-10, DEL-04] --------------------------------------------------------------------------------


def _miscounted(edge: Type, before: State, after: State) -> Iterator[Conflict]:
    if edge.kind == "node":
        return
    counts = Counter(row["src"] for row in after[edge.table_key].values())
    had_edges = {row["src"] for row in before[edge.table_key].values()}
    nodes = f"node:{edge.ends['src']}"
    for source in counts.keys() | had_edges:
        if source in before[nodes] and source not in after[nodes]:
            continue  # This very change removes the node, and nothing is asked of it any more.
        too_many = edge.edges_max is not None and counts[source] > edge.edges_max
        if too_many or counts[source] < edge.edges_min:
            yield _conflict(edge.table_key, source, "CardinalityViolation")
