"""Plans: what each change of a schema takes, what is refused, and what it does to tables."""

from __future__ import annotations

from typing import Any

import pytest

from reference.errors import BadRequest
from reference.schema import TableChanges, compile_schema, plan_migration, table_changes
from reference.schema.plan import MigrationPlan
from reference.schema.tests.samples import BEFORE_EVOLUTION, SOCIAL


def planned(old: str, new: str, **options: bool) -> MigrationPlan:
    return plan_migration(compile_schema(old), compile_schema(new), **options)


def steps(old: str, new: str) -> list[str]:
    """Each step as `kind type` or `kind type.property`."""
    found = []
    for each in planned(old, new).steps:
        column = "" if each.property_name is None else f".{each.property_name}"
        found.append(f"{each.kind} {each.type_kind}:{each.type_name}{column}")
    return found


def changes(old: str, new: str) -> TableChanges:
    before, after = compile_schema(old), compile_schema(new)
    return table_changes(before, after, plan_migration(before, after))


NOTHING = TableChanges([], [], {}, {})


@pytest.mark.requirement("SCH-04")
def test_the_same_schema_needs_no_steps() -> None:
    assert planned(SOCIAL, SOCIAL + "// a comment").to_json() == {"supported": True, "steps": []}
    assert changes(SOCIAL, SOCIAL) == NOTHING


@pytest.mark.requirement("SCH-03", "SCH-08")
def test_the_evolution_of_the_golden_graph_adds_a_property_and_a_type() -> None:
    text = {"scalar": "String", "nullable": True, "list": False, "enum_values": None}
    assert planned(BEFORE_EVOLUTION, SOCIAL).to_json() == {
        "supported": True,
        "steps": [
            {
                "kind": "add_property",
                "type_kind": "node",
                "type_name": "Company",
                "property_name": "city",
                "property_type": text,
            },
            {"kind": "add_type", "type_kind": "node", "type_name": "Place"},
        ],
    }
    columns = {name: name for name in ("founded", "name", "public", "size")}
    assert changes(BEFORE_EVOLUTION, SOCIAL) == TableChanges(
        ["node:Place"], [], {}, {"node:Company": {"city": None, **columns}}
    )


@pytest.mark.requirement("SCH-07")
def test_drops_are_soft_unless_data_loss_is_allowed() -> None:
    old, new = "node P { a: I32? b: I32 } node Q {} edge E: P -> P", "node P { b: I32 }"
    for options, mode in (({}, "soft"), ({"allow_data_loss": True}, "hard")):
        plan = planned(old, new, **options)
        assert plan.to_json()["steps"] == [
            {"kind": "drop_property", "type_kind": "node", "type_name": "P", "property_name": "a", "mode": mode},
            {"kind": "drop_type", "type_kind": "node", "type_name": "Q", "mode": mode},
            {"kind": "drop_type", "type_kind": "edge", "type_name": "E", "mode": mode},
        ]
    assert changes(old, new) == TableChanges([], ["node:Q", "edge:E"], {}, {"node:P": {"b": "b"}})


@pytest.mark.requirement("SCH-09")
def test_an_index_only_change_touches_no_table() -> None:
    old = "node P { a: I32? b: I32? } edge E: P -> P { w: I32? }"
    new = "node P { a: I32? @index b: I32? @index(b, a) } edge E: P -> P { w: I32? @index(src) }"
    assert steps(old, new) == ["add_constraint node:P", "add_constraint node:P", "add_constraint edge:E"]
    assert planned(old, new).steps[1].to_json()["constraint"] == {"Index": ["a", "b"]}
    assert changes(old, new) == NOTHING


@pytest.mark.requirement("SCH-03", "SCH-09")
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("node P {}", 'node P @description("p") {}', ["update_type_metadata node:P"]),
        ("node P { a: I32 }", 'node P { a: I32 @description("a") }', ["update_property_metadata node:P.a"]),
        ("node P { a: I32 @custom }", "node P { a: I32 }", ["update_property_metadata node:P.a"]),
        ("node P { a: I32 @index }", "node P { a: I32 @index(a) }", ["update_type_metadata node:P"]),
        ("node P { a: I32 @index @index(a) }", "node P { a: I32 @index }", ["update_type_metadata node:P"]),
        ("node P {}", "interface I {} node P {}", ["add_type interface:I"]),
        ("interface I {} node P {}", "node P {}", ["drop_type interface:I"]),
        ("interface I {} node P {}", "interface I { a: I32 } node P {}", ["update_type_metadata interface:I"]),
        ("interface I {} node P {}", "interface I {} node P implements I {}", ["update_type_metadata node:P"]),
        ("node P {}", 'node P @rename_from("Gone") {}', ["update_type_metadata node:P"]),
        ('node P { a: I32 @rename_from("b") }', "node P { a: I32 }", ["update_property_metadata node:P.a"]),
    ],
)
def test_a_change_that_no_table_shows_still_is_a_step(old: str, new: str, expected: list[str]) -> None:
    assert steps(old, new) == expected
    assert changes(old, new) == NOTHING


@pytest.mark.requirement("SCH-05")
@pytest.mark.parametrize(
    ("old", "new", "entity", "code"),
    [
        ("node P {}", "node P { a: I32 }", "node:P.a", "OG-MF-103"),
        ("node P { a: I32 }", "node P { a: I64 }", "node:P.a", "OG-MF-106"),
        ("node P { a: I32 }", "node P { a: I32? }", "node:P.a", "OG-MF-106"),
        ("node P { a: I32? }", "node P { a: I32 }", "node:P.a", "OG-MF-106"),
        ("node P { a: enum(x) }", "node P { a: enum(x, y) }", "node:P.a", "OG-MF-106"),
        ("node P { a: Vector(2)? }", "node P { a: Vector(3)? }", "node:P.a", "OG-MF-106"),
        ("node P { a: I32 }", 'node P { b: I64 @rename_from("a") }', "node:P.b", "OG-MF-106"),
        ("node P { a: I32 @key }", "node P { a: I32 }", "node:P", None),
        ("node P { a: I32 }", "node P { a: I32 @key }", "node:P", None),
        ("node P { a: I32 @unique }", "node P { a: I32 }", "node:P", None),
        ("node P { a: I32 }", "node P { a: I32 @unique }", "node:P", None),
        ("node P { a: I32 @index }", "node P { a: I32 }", "node:P", None),
        ("node P { a: I32 }", "node P { a: I32 @range(a, 0..1) }", "node:P", None),
        ("node P { a: String }", 'node P { a: String @check(a, "x") }', "node:P", None),
        ("node P {} edge E: P -> P", "node P {} edge E: P -> P @card(0..1)", "edge:E", None),
        ("node P {} node Q {} edge E: P -> P", "node P {} node Q {} edge E: P -> Q", "edge:E", None),
        ("node P {} edge E: P -> P {}", "node P {} edge E: P -> P { w: F32 }", "edge:E.w", "OG-MF-103"),
        ("node P { a: I32? @index }", "node P {}", "node:P", None),
        (
            "interface I {} node P implements I {}",
            "interface I { a: I32 } node P implements I {}",
            "node:P.a",
            "OG-MF-103",
        ),
    ],
)
def test_a_change_that_rows_cannot_follow_is_unsupported(old: str, new: str, entity: str, code: str | None) -> None:
    plan = planned(old, new)
    refused = [each for each in plan.steps if each.kind == "unsupported_change"]
    assert not plan.supported and (entity, code) in [(each.entity, each.code) for each in refused]
    with pytest.raises(BadRequest) as caught:
        table_changes(compile_schema(old), compile_schema(new), plan)
    assert caught.value.code == "schema_change_unsupported" and caught.value.details["steps"]
    assert code is None or f"[{code}]" in caught.value.message


@pytest.mark.requirement("SCH-06")
def test_a_renamed_node_type_takes_its_edges_along() -> None:
    old = "node P { a: I32 @key b: I32? @unique @range(b, 0..9) } node Q {} edge E: P -> Q { w: I32? }"
    new = (
        'node H @rename_from("P") { k: I32 @key @rename_from("a") b: I32? @unique @range(b, 0..9) c: I32? }'
        " node Q {} edge E: H -> Q { w: I32? }"
    )
    assert steps(old, new) == ["rename_type node:H", "add_property node:H.c", "rename_property node:H.k"]
    rename = planned(old, new).steps[0].to_json()
    assert rename == {"kind": "rename_type", "type_kind": "node", "type_name": "H", "from": "P", "to": "H"}
    assert changes(old, new) == TableChanges([], [], {"node:P": "node:H"}, {"node:H": {"b": "b", "c": None, "k": "a"}})


@pytest.mark.requirement("SCH-06")
def test_an_edge_type_and_its_properties_can_be_renamed() -> None:
    old = "node P {} edge E: P -> P @card(0..2) { w: I32? @unique(w, src) }"
    new = 'node P {} edge F: P -> P @card(0..2) @rename_from("E") { a: I32? @rename_from("w") @unique(a, src) }'
    assert steps(old, new) == ["rename_type edge:F", "rename_property edge:F.a"]
    assert changes(old, new) == TableChanges([], [], {"edge:E": "edge:F"}, {"edge:F": {"a": "w"}})


@pytest.mark.requirement("SCH-06")
def test_a_pure_rename_rewrites_no_columns() -> None:
    assert changes("node P { a: I32 }", 'node H @rename_from("P") { a: I32 }') == TableChanges(
        [], [], {"node:P": "node:H"}, {}
    )


RENAMES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "node P { a: I32 }",
        'node P { c: I32 @rename_from("a") a: I32? }',
        {"rewritten": {"node:P": {"a": None, "c": "a"}}},
    ),
    (
        "node P { a: I32 b: I32 @unique }",
        'node P { a: I32 @unique @rename_from("b") b: I32 @rename_from("a") }',
        {"rewritten": {"node:P": {"a": "b", "b": "a"}}},
    ),
    (
        "node P { a: I32 b: I32 }",
        'node P { b: I32 @rename_from("a") c: I32 @rename_from("b") }',
        {"rewritten": {"node:P": {"b": "a", "c": "b"}}},
    ),
    (
        "node A { x: I32 } edge E: A -> A",
        'node C @rename_from("A") { x: I32 } node A { y: I32 } edge E: C -> C',
        {"added": ["node:A"], "renamed": {"node:A": "node:C"}},
    ),
    (
        "node A { x: I32 } node B {} edge E: A -> B",
        'node A @rename_from("B") {} node B @rename_from("A") { x: I32 } edge E: B -> A',
        {"renamed": {"node:B": "node:A", "node:A": "node:B"}},
    ),
]


@pytest.mark.requirement("SCH-19")
@pytest.mark.parametrize(("old", "new", "expected"), RENAMES)
def test_renames_of_one_plan_happen_at_once(old: str, new: str, expected: dict[str, Any]) -> None:
    assert changes(old, new) == TableChanges(
        **({"added": [], "dropped": [], "renamed": {}, "rewritten": {}} | expected)
    )


@pytest.mark.requirement("SCH-19", "SCH-04")
@pytest.mark.parametrize("source", [new for _, new, _ in RENAMES])
def test_a_rename_that_was_carried_out_asks_for_nothing(source: str) -> None:
    assert planned(source, source).steps == ()


@pytest.mark.requirement("SCH-19")
def test_a_swap_of_types_that_leaves_edges_behind_is_refused() -> None:
    old = "node A {} node B {} edge E: A -> B"
    assert not planned(old, 'node A @rename_from("B") {} node B @rename_from("A") {} edge E: A -> B').supported


@pytest.mark.requirement("SCH-05")
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("node P {}", 'node Q @rename_from("X") {} node P {}', "does not have"),
        ("node P {}", 'node Q @rename_from("P") {} node R @rename_from("P") {}', "claims too"),
        ("node P { a: I32 }", 'node P { b: I32 @rename_from("x") a: I32 }', "does not have"),
        ("node P { a: I32 }", 'node P { b: I32 @rename_from("a") c: I32 @rename_from("a") }', "claims too"),
        ("node P { a: I32 b: I32 }", 'node P { b: I32 @rename_from("a") }', "would replace"),
        ("node P { a: I32 b: I32 }", 'node P { b: I32 @rename_from("a") a: I32 }', "would replace"),
        ("node A {} node B {}", 'node A {} node B @rename_from("A") {}', "would replace"),
    ],
)
def test_a_rename_that_would_lose_something_is_refused_and_nothing_else_is_said(old: str, new: str, words: str) -> None:
    plan = planned(old, new)
    assert not plan.supported
    assert {each.kind for each in plan.steps} == {"unsupported_change"}
    assert all(words in (each.reason or "") for each in plan.steps)


@pytest.mark.requirement("SCH-03")
def test_the_order_of_the_steps_does_not_depend_on_the_source() -> None:
    old = "node A {} node B {} node D {}"
    parts = ["node C {}", "node B { z: I32? a: I32? }", "edge E: A -> B", "node A { q: I32? }"]
    expected = [
        "add_property node:A.q",
        "add_property node:B.a",
        "add_property node:B.z",
        "add_type node:C",
        "drop_type node:D",
        "add_type edge:E",
    ]
    assert steps(old, " ".join(parts)) == steps(old, " ".join(reversed(parts))) == expected


@pytest.mark.requirement("SCH-03")
def test_an_index_that_is_declared_twice_is_added_once() -> None:
    assert steps("node P { a: I32 }", "node P { a: I32 @index @index(a) }") == ["add_constraint node:P"]


@pytest.mark.requirement("SCH-05")
def test_a_rename_from_nowhere_is_refused_also_where_its_name_is_renamed_away() -> None:
    old = "node P { a: String? }"

    plan = planned(old, 'node P { a: String? @rename_from("gone")\n c: String? @rename_from("a") }')

    assert not plan.supported


@pytest.mark.requirement("SCH-05", "SCH-06")
def test_a_rename_that_was_carried_out_may_stay_in_the_text() -> None:
    assert steps("node P { a: String? }", 'node P { a: String? @rename_from("gone") }') == [
        "update_property_metadata node:P.a"
    ]


@pytest.mark.requirement("VAL-14", "SCH-05")
def test_a_rename_that_would_reorder_the_columns_of_a_key_is_refused() -> None:
    old = "node P { a: I32\n b: I32\n @key(a, b) }"

    assert not planned(old, 'node P { z: I32 @rename_from("a")\n b: I32\n @key(z, b) }').supported
    assert planned(old, 'node P { aa: I32 @rename_from("a")\n b: I32\n @key(aa, b) }').supported
