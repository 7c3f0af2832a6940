"""One evaluator decides what a change may be: each rule by example, and all of them together against a naive model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.errors import Conflict
from reference.format.manifest import TableEntry
from reference.format.records import rows_to_table
from reference.operations import validate
from reference.operations.changeset import ChangeSet, HowToStage, TableChange
from reference.operations.validate import Violation, endpoints_recheck, violations
from reference.protocol.manifests import Snapshot
from reference.schema.compiler import compile_schema

CATALOG = compile_schema("""
node Person {
  handle: String @key
  age: I32?
  level: I64?
  huge: U64?
  ratio: F64?
  half: F32?
  mood: enum(calm, busy)?
  moods: [enum(calm, busy)]?
  @range(age, 0..150)
  @range(level, ..9007199254740993)
  @range(huge, 0.5..9223372036854775806)
  @range(ratio, 9007199254740993..)
  @range(half, 0.25..0.75)
  @check(handle, "^[a-z]+$")
}
node Thing {
  tag: I64? @unique
  day: Date? @unique
  at: DateTime? @unique
  flag: Bool? @unique
  number: F64? @unique
  id64: U64? @unique
  name: String? @unique
  a: String?
  b: I32?
  @unique(a, b)
}
node Place { name: String @key }
edge Near: Thing -> Thing @card(1..2)
edge In: Thing -> Place @card(0..1) {
  rank: I32?
  kind: enum(main, side)?
  @unique(src, rank)
}
""")

Row = dict[str, Any]


@dataclass
class Committed:
    """Committed tables in memory, in the place of a store; `asked` records what was looked up."""

    tables: Mapping[str, pa.Table]
    asked: list[tuple[str, str, int | None]] = field(default_factory=list)

    def snapshot(self, version: int = 1) -> Snapshot:
        keys = sorted(CATALOG.table_keys())
        entries = {key: TableEntry(key, key, version, None, self.rows(key).num_rows) for key in keys}
        return Snapshot(None, version, 4, entries)

    def rows(self, key: str) -> pa.Table:
        return self.tables.get(key, CATALOG.arrow_schema(key).empty_table())

    def read_matching(self, _: Any, entry: TableEntry, schema: pa.Schema, column: str, wanted: Any) -> pa.Table:
        self.asked.append((entry.table_key, column, None if wanted is None else len(wanted)))
        rows = self.rows(entry.table_key).select(schema.names)
        return rows if wanted is None else rows.filter(pc.is_in(rows[column], value_set=wanted))


def table(key: str, *rows: Row) -> pa.Table:
    ends = [(row["src"], row["dst"]) for row in rows if "src" in row]
    data = [{name: value for name, value in row.items() if name not in ("src", "dst")} for row in rows]
    return rows_to_table(CATALOG, key, data, "here", ends)


def change(key: str, *rows: Row, deleted: tuple[str, ...] = (), how: HowToStage = "merge") -> dict[str, TableChange]:
    return {key: TableChange(key, table(key, *rows), frozenset(deleted), how)}


def found(changes: Mapping[str, TableChange], committed: Committed | None = None) -> list[Violation]:
    committed = committed or Committed({})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "read_matching", committed.read_matching)
        return list(violations(None, committed.snapshot(), CATALOG, changes))  # type: ignore[arg-type]


def offences(changes: Mapping[str, TableChange], committed: Committed | None = None) -> list[tuple[str, str]]:
    return [(each.code, each.row_id) for each in found(changes, committed)]


# -- single values ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("VAL-03", "VAL-04", "VAL-16")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"age": 0}, None),
        ({"age": 150}, None),
        ({"age": -1}, "range_violation"),
        ({"age": 151}, "range_violation"),
        ({"level": 2**53 + 1}, None),
        ({"level": 2**53 + 2}, "range_violation"),
        ({"level": -(2**63)}, None),
        ({"huge": 2**63 - 2}, None),
        ({"huge": 2**63 - 1}, "range_violation"),
        ({"huge": 0}, "range_violation"),
        ({"huge": 1}, None),
        ({"ratio": float(2**53)}, "range_violation"),
        ({"ratio": float(2**53 + 2)}, None),
        ({"half": 0.25}, None),
        ({"half": 0.7500001}, "range_violation"),
        ({"mood": "calm"}, None),
        ({"mood": "angry"}, "enum_violation"),
        ({"moods": ["calm", None, "busy"]}, None),
        ({"moods": []}, None),
        ({"moods": ["calm", "angry"]}, "enum_violation"),
        ({}, None),
    ],
)
def test_values_outside_enum_and_range_are_found_exactly(data: Row, code: str | None) -> None:
    changes = change("node:Person", {"handle": "fine"}, {"handle": "this", **data}, {"handle": "other", "age": 5})
    assert offences(changes) == ([] if code is None else [(code, "this")])


@pytest.mark.requirement("VAL-04")
def test_a_text_that_does_not_match_its_pattern_is_found() -> None:
    violation = found(change("node:Person", {"handle": "ann"}, {"handle": "Ann 2\n"}))[0]
    assert (violation.kind, violation.code, violation.row_id) == ("value", "check_violation", "Ann 2\n")
    error = violation.to_error()
    assert error.kind == "bad_request" and error.details["property"] == "handle"
    assert "Person" in error.message and "handle" in error.message


@pytest.mark.requirement("VAL-03")
def test_an_enum_of_an_edge_is_checked() -> None:
    committed = Committed(
        {"node:Thing": table("node:Thing", {"id": "t"}), "node:Place": table("node:Place", {"name": "p"})}
    )
    changes = change("edge:In", {"id": "e", "src": "t", "dst": "p", "kind": "none"})
    assert offences(changes, committed) == [("enum_violation", "e")]


@pytest.mark.requirement("VAL-03")
def test_items_of_a_list_are_matched_with_their_own_row_even_behind_a_hidden_null_list() -> None:
    rows = table("node:Person", {"handle": "a"}, {"handle": "b", "moods": ["calm"]}, {"handle": "c", "moods": ["busy"]})
    items = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()),
        pa.array(["hidden", "calm", "wrong"]),
        type=rows.schema.field("moods").type,
        mask=pa.array([True, False, False]),
    )
    rows = rows.set_column(rows.schema.get_field_index("moods"), rows.schema.field("moods"), items)
    assert offences({"node:Person": TableChange("node:Person", rows)}) == [("enum_violation", "c")]


# -- unique -------------------------------------------------------------------------------------------------------

UNIQUE_VALUES = [
    ("tag", 2**53, 2**53 + 1),
    ("day", "2024-02-29", "2024-03-01"),
    ("at", "2024-02-29T10:00:00", "2024-02-29T10:00:00.001"),
    ("flag", True, False),
    ("number", 0.1, 0.2),
    ("id64", 2**64 - 2, 2**64 - 1),
    ("name", "a'b", "a b"),
]


@pytest.mark.requirement("VAL-06", "VAL-08", "VAL-16")
@pytest.mark.parametrize(("name", "held", "free"), UNIQUE_VALUES)
def test_a_value_that_a_committed_row_holds_is_refused_for_every_type(name: str, held: Any, free: Any) -> None:
    committed = Committed({"node:Thing": table("node:Thing", {"id": "old", name: held}, {"id": "none"})})
    assert offences(change("node:Thing", {"id": "new", name: held}), committed) == [("unique_violation", "new")]
    assert offences(change("node:Thing", {"id": "new", name: free}), committed) == []
    assert offences(change("node:Thing", {"id": "new", name: None}), committed) == []
    assert offences(change("node:Thing", {"id": "old", name: held}), committed) == []  # itself
    freed = change("node:Thing", {"id": "new", name: held}, {"id": "old", name: free})
    assert offences(freed, committed) == []
    assert offences(change("node:Thing", {"id": "new", name: held}, deleted=("old",)), committed) == []
    assert offences(change("node:Thing", {"id": "new", name: held}, how="overwrite"), committed) == []


@pytest.mark.requirement("VAL-05", "VAL-06")
def test_two_rows_of_one_change_may_not_share_a_value() -> None:
    changes = change("node:Thing", {"id": "1", "tag": 5}, {"id": "2", "tag": 6}, {"id": "3", "tag": 5})
    violation = found(changes)[0]
    assert (violation.row_id, violation.details["holder"], violation.details["value"]) == ("3", "1", [5])


@pytest.mark.requirement("VAL-05")
def test_a_composite_is_compared_column_by_column_and_a_null_exempts() -> None:
    committed = Committed({"node:Thing": table("node:Thing", {"id": "0", "a": "x", "b": 1}, {"id": "n", "a": "x"})})
    for row, refused in (
        ({"a": "x", "b": 1}, True),
        ({"a": "x", "b": 2}, False),
        ({"a": "x"}, False),
        ({"b": 1}, False),
    ):
        assert bool(offences(change("node:Thing", {"id": "1", **row}), committed)) is refused


@pytest.mark.requirement("VAL-05")
def test_the_source_of_an_edge_can_be_part_of_what_is_unique() -> None:
    committed = Committed(
        {"node:Thing": table("node:Thing", {"id": "t"}), "node:Place": table("node:Place", {"name": "p"})}
    )
    edges = [{"id": str(number), "src": "t", "dst": "p", "rank": number // 2} for number in range(2)]
    assert ("unique_violation", "1") in offences(change("edge:In", *edges), committed)


@pytest.mark.requirement("VAL-07")
def test_a_keyed_insert_looks_nothing_up() -> None:
    committed = Committed({"node:Person": table("node:Person", {"handle": "ann", "age": 3})})
    assert offences(change("node:Person", {"handle": "ann", "age": 4}), committed) == []
    assert committed.asked == []


@pytest.mark.requirement("VAL-06")
def test_two_ids_with_one_key_are_found_in_rows_whose_ids_the_key_did_not_make() -> None:
    rows = table("node:Place", {"name": "p"}, {"name": "q"})
    rows = rows.set_column(1, rows.schema.field("name"), pa.array(["p", "p"]))
    assert offences({"node:Place": TableChange("node:Place", rows)}) == [("unique_violation", "q")]


# -- endpoints and cardinality ------------------------------------------------------------------------------------


@pytest.mark.requirement("VAL-09")
def test_an_edge_needs_both_its_nodes_before_or_in_the_change() -> None:
    committed = Committed({"node:Thing": table("node:Thing", {"id": "t"}, {"id": "u"})})
    edge = change("edge:In", {"id": "e", "src": "t", "dst": "p"})
    assert [(each.row_id, each.details["side"]) for each in found(edge, committed)] == [("e", "dst")]
    assert offences(edge | change("node:Place", {"name": "p"}), committed) == []
    assert offences(edge | change("node:Place", {"name": "p"}) | change("node:Thing", deleted=("t",)), committed) == [
        ("orphan_edge", "e")
    ]
    dropped = change("node:Thing", {"id": "u"}, how="overwrite")
    assert offences(edge | change("node:Place", {"name": "p"}) | dropped, committed) == [("orphan_edge", "e")]


@pytest.mark.requirement("VAL-09", "LOD-10")
@pytest.mark.parametrize(
    "removal", [change("node:Thing", deleted=("t",)), change("node:Thing", {"id": "u"}, how="overwrite")]
)
def test_a_node_that_goes_away_may_not_leave_an_edge_behind(removal: dict[str, TableChange]) -> None:
    nodes = table("node:Thing", {"id": "t"}, {"id": "u"})
    edges = table("edge:Near", {"id": "loop", "src": "t", "dst": "t"}, {"id": "in", "src": "u", "dst": "t"})
    committed = Committed({"node:Thing": nodes, "edge:Near": edges})
    assert offences(removal, committed) == [("orphan_edge", "loop"), ("orphan_edge", "in")]
    both = removal | change("edge:Near", {"id": "in", "src": "u", "dst": "u"}, deleted=("loop",))
    assert offences(both, committed) == []


@pytest.mark.requirement("VAL-10", "DEL-04")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (change("edge:Near", {"id": "c", "src": "t", "dst": "u"}), [("t", 3)]),
        (change("edge:Near", {"id": "a", "src": "t", "dst": "t"}), []),
        (change("edge:Near", {"id": "c", "src": "u", "dst": "u"}), []),
        (change("edge:Near", deleted=("a",)), []),
        (change("edge:Near", deleted=("a", "b")), [("t", 0)]),
        (change("edge:Near", {"id": "a", "src": "u", "dst": "u"}, {"id": "b", "src": "u", "dst": "t"}), [("t", 0)]),
        (change("edge:Near", deleted=("a", "b")) | change("node:Thing", deleted=("t",)), []),
        (change("edge:Near", {"id": "n", "src": "u", "dst": "u"}, how="overwrite"), [("t", 0)]),
        (change("node:Thing", {"id": "never"}), []),
    ],
)
def test_edges_are_counted_for_every_source_that_a_change_touches(
    changes: dict[str, TableChange], expected: list[tuple[str, int]]
) -> None:
    edges = table("edge:Near", {"id": "a", "src": "t", "dst": "u"}, {"id": "b", "src": "t", "dst": "u"})
    committed = Committed({"node:Thing": table("node:Thing", {"id": "t"}, {"id": "u"}), "edge:Near": edges})
    counted = [each for each in found(changes, committed) if each.kind == "cardinality"]
    assert [(each.row_id, each.details["count"]) for each in counted] == expected


# -- a later snapshot ---------------------------------------------------------------------------------------------


def recheck(changes: Mapping[str, TableChange], later: Committed, moved: str) -> None:
    before = Committed({}).snapshot(1)
    entries = {**before.entries, moved: later.snapshot(2).entries[moved]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "read_matching", later.read_matching)
        ask = endpoints_recheck(None, CATALOG, ChangeSet(before, changes))  # type: ignore[arg-type]
        ask(Snapshot(None, 2, 4, entries))


@pytest.mark.requirement("VAL-09", "PUB-23")
def test_an_endpoint_that_is_gone_in_a_later_snapshot_is_a_conflict() -> None:
    edge = change("edge:In", {"id": "e", "src": "t", "dst": "p"})
    here = Committed({"node:Place": table("node:Place", {"name": "p"})})
    recheck(edge, here, "node:Place")
    assert {key for key, _, _ in here.asked} == {"node:Place"}, "only the table that moved is looked at"
    with pytest.raises(Conflict) as lost:
        recheck(edge, Committed({}), "node:Place")
    assert lost.value.code == "read_set_changed" and lost.value.details["row_id"] == "e"


@pytest.mark.requirement("VAL-09", "PUB-23")
def test_an_edge_that_came_to_a_removed_node_meanwhile_is_a_conflict() -> None:
    later = Committed({"edge:Near": table("edge:Near", {"id": "new", "src": "u", "dst": "t"})})
    with pytest.raises(Conflict) as lost:
        recheck(change("node:Thing", deleted=("t",)), later, "edge:Near")
    assert lost.value.code == "read_set_changed"
    recheck(change("node:Thing", deleted=("u2",)), later, "edge:Near")
    recheck(change("node:Thing", deleted=("t",)), later, "edge:In")


# -- all rules against a model ------------------------------------------------------------------------------------

IDS = ("1", "2", "3")
VALUES = st.sampled_from([None, 1, 2])
ROWS: dict[str, st.SearchStrategy[Row]] = {
    "node:Thing": st.fixed_dictionaries(
        {"id": st.sampled_from(IDS), "tag": VALUES, "b": VALUES, "a": st.sampled_from([None, "x"])}
    ),
    "node:Place": st.fixed_dictionaries({"name": st.sampled_from(IDS)}),
    "edge:Near": st.fixed_dictionaries({name: st.sampled_from(IDS) for name in ("id", "src", "dst")}),
    "edge:In": st.fixed_dictionaries({name: st.sampled_from(IDS) for name in ("id", "src", "dst")} | {"rank": VALUES}),
}
UNIQUE: dict[str, list[tuple[str, ...]]] = {"node:Thing": [("tag",), ("a", "b")], "edge:In": [("src", "rank")]}
ENDS = {"edge:Near": ("node:Thing", "node:Thing", 1, 2), "edge:In": ("node:Thing", "node:Place", 0, 1)}


def by_id(rows: list[Row]) -> dict[str, Row]:
    return {row["id"] if "id" in row else row["name"]: row for row in rows}


@st.composite
def planned(draw: st.DrawFn) -> dict[str, tuple[dict[str, Row], frozenset[str], HowToStage]]:
    plan: dict[str, tuple[dict[str, Row], frozenset[str], HowToStage]] = {}
    for key in draw(st.sets(st.sampled_from(sorted(ROWS)), min_size=1)):
        rows = by_id(draw(st.lists(ROWS[key], max_size=3)))
        how: HowToStage = draw(st.sampled_from(["merge", "overwrite"]))
        deleted = draw(st.frozensets(st.sampled_from(IDS))) - rows.keys() if how == "merge" else frozenset()
        plan[key] = (rows, deleted, how)
    return plan


def model(before: Mapping[str, dict[str, Row]], plan: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    standing: dict[str, dict[str, Row]] = {}
    gone: dict[str, set[str]] = {}
    after: dict[str, dict[str, Row]] = {}
    for key in ROWS:
        rows, deleted, how = plan.get(key, ({}, frozenset(), "merge"))
        standing[key] = (
            {} if how == "overwrite" else {k: v for k, v in before[key].items() if k not in {*rows, *deleted}}
        )
        gone[key] = set(before[key]) - set(rows) if how == "overwrite" else set(deleted)
        after[key] = standing[key] | rows
    expected: set[tuple[str, str, str]] = set()
    for key, (rows, _, _) in plan.items():
        for group in UNIQUE.get(key, []):
            seen: set[Any] = {tuple(row[name] for name in group) for row in standing[key].values()}
            for row_id, row in rows.items():
                value = tuple(row[name] for name in group)
                if value in seen and None not in value:
                    expected.add(("unique", key, row_id))
                seen.add(value)
    for key, (source, target, low, high) in ENDS.items():
        rows = plan[key][0] if key in plan else {}
        for side, end in (("src", source), ("dst", target)):
            expected |= {("orphan_edge", key, row_id) for row_id, row in rows.items() if row[side] not in after[end]}
            expected |= {("orphan_edge", key, k) for k, row in standing[key].items() if row[side] in gone[end]}
        changed = {row["src"] for k, row in before[key].items() if k not in standing[key]} if key in plan else set()
        for node in ({row["src"] for row in rows.values()} | changed) - gone[source]:
            if not low <= sum(row["src"] == node for row in after[key].values()) <= high:
                expected.add(("cardinality", key, node))
    return expected


@pytest.mark.requirement("VAL-02", "VAL-06", "VAL-09", "VAL-10", "LOD-10")
@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({key: st.lists(rows, max_size=3).map(by_id) for key, rows in ROWS.items()}), planned())
def test_the_evaluator_agrees_with_a_naive_model(before: dict[str, dict[str, Row]], plan: dict[str, Any]) -> None:
    committed = Committed({key: table(key, *rows.values()) for key, rows in before.items()})
    changes: dict[str, TableChange] = {}
    for key, (rows, deleted, how) in plan.items():
        changes |= change(key, *rows.values(), deleted=tuple(deleted), how=how)
    assert {(each.kind, each.table_key, each.row_id) for each in found(changes, committed)} == model(before, plan)
