"""Schema changes and points in time by example: what becomes of the rows, and what older points still show."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.model import Model, Refusal
from conformance.model.tests.graphs import load

BEFORE = "node P { k: String @key a: I32? b: I32? } node Q { t: String } edge E: P -> Q { w: I32? }"


def graph() -> Model:
    """One of each; the first commit with rows is at version 4 [MAN-07]."""
    model = Model.from_source(BEFORE)
    load(
        model,
        {"type": "P", "data": {"k": "x", "a": 1, "b": 2}},
        {"type": "Q", "data": {"id": "q", "t": "here"}},
        {"edge": "E", "from": "x", "to": "q", "data": {"id": "e", "w": 3}},
    )
    return model


def kinds(model: Model, source: str) -> list[str]:
    return [step["kind"] for step in model.schema_plan(source).steps]


def refused(operation: Any, *args: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(Refusal) as refusal:
        operation(*args, **options)
    return refusal.value.kind, refusal.value.code


@pytest.mark.requirement("SCH-03", "SCH-08", "SNP-07")
def test_a_property_and_a_type_are_added_and_older_points_do_not_have_them() -> None:
    model = graph()
    old, export = model.head(), model.export()

    done = model.schema_apply(BEFORE.replace("b: I32?", "b: I32? c: [F64]?") + " node New { n: I32 }")

    assert done.applied and done.commit == model.head()
    assert [dict(step) for step in done.steps] == [
        {"kind": "add_type", "type_kind": "node", "type_name": "New"},
        {
            "kind": "add_property",
            "type_kind": "node",
            "type_name": "P",
            "property_name": "c",
            "property_type": {"scalar": "F64", "nullable": True, "list": True, "enum_values": None},
        },
    ]
    assert model.read("node:P") == [{"id": "x", "a": 1, "b": 2, "c": None, "k": "x"}]
    assert model.read("node:New") == []
    assert model.export(commit=old.commit_id) == export
    assert refused(model.read, "node:New", commit=old.commit_id) == ("not_found", "table_not_found")
    assert model.entity_at("node:New", "x", commit=old.commit_id) is None
    assert [(change.table_key, change.op) for change in model.diff(old, model.head())] == [("node:P", "update")]


@pytest.mark.requirement("LAY-03")
def test_what_no_table_can_be_called_is_a_bad_request_and_a_missing_table_is_not_found() -> None:
    for key in ("interface:P", "P", "node:", ""):
        assert refused(graph().read, key) == ("bad_request", "invalid_table_key")
    assert refused(graph().read, "edge:P") == ("not_found", "table_not_found")


@pytest.mark.requirement("SCH-04", "SCH-05", "SCH-02")
def test_what_is_not_applied_makes_no_commit() -> None:
    model = graph()
    commits = model.commits()

    assert model.schema_apply(f"// said otherwise\n{BEFORE}").applied is False
    for change in (("b: I32?", "b: I32"), ("b: I32?", "b: I64?"), ("b: I32?", "b: I32? @unique"), ("-> Q", "-> P")):
        assert refused(model.schema_apply, BEFORE.replace(*change)) == ("bad_request", "schema_change_unsupported")
    assert refused(model.schema_apply, "node") == ("bad_request", "invalid_schema")
    model.branch_create("one")
    assert refused(model.schema_apply, "") == refused(model.schema_apply, BEFORE)
    assert refused(model.schema_apply, "") == ("conflict", "schema_apply_has_branches")

    assert model.commits() == commits and model.schema_plan("").supported


@pytest.mark.requirement("SCH-06", "SCH-19", "CHG-03")
def test_all_names_change_at_once_and_every_row_comes_along() -> None:
    model = graph()
    old = model.head()

    model.schema_apply(
        'node Q @rename_from("P") { k: String @key a: I32? @rename_from("b") b: I32? @rename_from("a") }'
        ' node P @rename_from("Q") { s: String @rename_from("t") t: String? }'
        ' edge F: Q -> P @rename_from("E") { w: I32? }'
    )

    assert model.export() == (
        '{"edge":"F","from":"x","to":"q","data":{"id":"e","w":3}}\n'
        '{"type":"P","data":{"id":"q","s":"here","t":null}}\n'
        '{"type":"Q","data":{"id":"x","a":2,"b":1,"k":"x"}}\n'
    )
    assert [(each.table_key, each.row_id, each.op) for each in model.diff(old, model.head())] == [
        ("edge:E", "e", "delete"),
        ("edge:F", "e", "insert"),
        ("node:P", "q", "insert"),
        ("node:P", "x", "delete"),
        ("node:Q", "q", "delete"),
        ("node:Q", "x", "insert"),
    ]


@pytest.mark.requirement("SCH-19", "SCH-04")
def test_a_rename_is_carried_out_once() -> None:
    model = graph()
    swapped = BEFORE.replace("a: I32? b: I32?", 'a: I32? @rename_from("b") b: I32? @rename_from("a")')

    assert model.schema_apply(swapped).applied and not model.schema_apply(swapped).applied
    assert model.read("node:P") == [{"id": "x", "a": 2, "b": 1, "k": "x"}]
    model.schema_apply(BEFORE)
    assert model.read("node:P") == [{"id": "x", "a": 2, "b": 1, "k": "x"}]


@pytest.mark.requirement("SCH-05")
@pytest.mark.parametrize(
    "properties",
    [
        'b: I32? @rename_from("a")',
        'b: I32? @rename_from("a") a: I32?',
        'b: I32? c: I32? @rename_from("a") d: I32? @rename_from("a")',
        'a: I32? b: I32? c: I32? @rename_from("gone")',
        'a: I32? @rename_from("gone") c: I32? @rename_from("a") b: I32?',
        'c: I64? @rename_from("a") b: I32?',
    ],
)
def test_a_rename_that_would_lose_something_or_comes_from_nowhere_is_unsupported(properties: str) -> None:
    source = BEFORE.replace("a: I32? b: I32?", properties)
    assert not graph().schema_plan(source).supported


@pytest.mark.requirement("SCH-05", "VAL-14")
def test_the_columns_of_a_key_cannot_change_places() -> None:
    model = Model.from_source("node P { a: I32 b: I32 @key(a, b) }")
    load(model, {"type": "P", "data": {"a": 1, "b": 2}})
    assert refused(model.schema_apply, 'node P { z: I32 @rename_from("a") b: I32 @key(z, b) }')[0] == "bad_request"
    model.schema_apply('node P { aa: I32 @rename_from("a") b: I32 @key(aa, b) }')
    load(model, {"type": "P", "data": {"aa": 1, "b": 2}})
    assert model.read("node:P") == [{"id": "[1,2]", "aa": 1, "b": 2}]


@pytest.mark.requirement("SCH-09", "SCH-03")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("a: I32?", "a: I32? @index"), ["add_constraint"]),
        (("a: I32?", "a: I32? @index @index(a)"), ["add_constraint"]),
        (("node P", "node P @note"), ["update_type_metadata"]),
        (("a: I32?", 'a: I32? @rename_from("gone")'), ["update_property_metadata"]),
        (("node P", "interface I { a: I32? } node P implements I"), ["add_type", "update_type_metadata"]),
    ],
)
def test_a_change_that_no_row_shows_is_a_step_and_a_commit(change: tuple[str, str], expected: list[str]) -> None:
    model = graph()
    before, source = model.export(), BEFORE.replace(*change)
    assert kinds(model, source) == expected
    assert model.schema_apply(source).commit is not None and model.export() == before
    assert model.diff(*model.commits()[-2:]) == []


@pytest.mark.requirement("SCH-07", "SNP-07")
@pytest.mark.parametrize("allow_data_loss", [False, True])
def test_what_is_dropped_stays_readable_at_older_points_unless_it_was_dropped_for_good(allow_data_loss: bool) -> None:
    model = graph()

    done = model.schema_apply("node P { k: String @key b: I32? }", allow_data_loss=allow_data_loss)

    assert {(step["kind"], step["mode"]) for step in done.steps} == {
        ("drop_property", mode := "hard" if allow_data_loss else "soft"),
        ("drop_type", mode),
    }
    assert list(model.state()) == ["node:P"] and model.head().lost == frozenset()
    if allow_data_loss:
        for key in ("node:P", "node:Q", "edge:E"):
            assert refused(model.read, key, version=4) == ("not_found", "rows_removed")
    else:
        assert model.read("node:P", version=4)[0]["a"] == 1 and model.read("node:Q", version=4)


@pytest.mark.requirement("SNP-03", "SNP-04", "MAN-07", "LAY-12", "OPT-07")
def test_a_version_is_the_last_commit_up_to_it() -> None:
    model = graph()
    model.branch_create("early")
    model.reach("main", 7)
    model.branch_create("late")
    load(model, {"type": "Q", "data": {"id": "r", "t": "there"}}, branch="late")
    model.identify(model.maintain(), "kept", 9)

    first, rows, kept = model.commits()
    late = model.head("late")
    assert [model.at(version=version) for version in range(1, 10)] == [first] * 3 + [rows] * 5 + [kept]
    assert [model.at("late", version) for version in (7, 8)] == [rows, late]
    assert model.at("early", 4) == model.at("early") == rows
    for branch, version in (("main", 0), ("main", 10), ("late", 6), ("late", 9), ("early", 3), ("early", 5)):
        assert refused(model.at, branch, version) == ("not_found", "version_not_found")
    assert model.at(commit="kept") == model.at() == kept
    assert refused(model.at, commit="nobody") == ("not_found", "commit_not_found")
    assert refused(model.at, "nowhere", 4) == ("not_found", "branch_not_found")
    assert refused(model.at, version=4, commit="kept")[0] == "bad_request"
    assert model.export("late", version=7) == model.export(version=4) != model.export("late")
