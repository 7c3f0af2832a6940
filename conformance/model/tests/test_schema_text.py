"""The schema language by example: what compiles to what, and what is no schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.model import Model, Refusal, compile_schema
from conformance.model.patterns import compile_pattern
from conformance.model.schema_text import ir_hash, ir_text
from fixtures import golden

P = "node P {} "


@pytest.mark.requirement("SCH-14", "LAY-11", "LAY-10")
@pytest.mark.parametrize("name", golden.names())
def test_a_golden_schema_compiles_to_the_ir_and_the_hash_that_were_stored(name: str, tmp_path: Path) -> None:
    graph = golden.unpack(name, tmp_path)
    for staging in ("", ".staging"):
        source = graph / f"_schema.pg{staging}"
        if source.exists():
            ir = compile_schema(source.read_text(encoding="utf-8"))
            assert json.dumps(ir, indent=2) == (graph / f"_schema.ir.json{staging}").read_text(encoding="utf-8")
            state = json.loads((graph / f"__schema_state.json{staging}").read_text(encoding="utf-8"))
            assert ir_hash(ir) == state["schema_ir_hash"]


@pytest.mark.requirement("SCH-14")
def test_a_whole_schema_by_its_ir() -> None:
    ir = compile_schema('edge E: P -> P @card(1..) { b: F64? @unique(src, b) } node P { a: I32 @key @x("1") }')
    [edge], [node] = ir["edges"], ir["nodes"]
    assert ir_text({**node, "properties": []}) == (
        '{"name":"P","type_id":4261254687,"annotations":[],"implements":[],"properties":[],"constraints":[{"Key":["a"]}]}'
    )
    assert [edge[name] for name in ("from_type", "to_type", "cardinality")] == ["P", "P", {"min": 1, "max": None}]
    assert edge["constraints"] == [{"Unique": ["b", "src"]}]
    assert node["properties"][0]["annotations"] == [{"name": "key", "value": None}, {"name": "x", "value": "1"}]
    assert compile_schema("node Person {}")["nodes"][0]["type_id"] == 3227219152


@pytest.mark.requirement("SCH-14")
def test_the_order_of_the_text_leaves_no_trace() -> None:
    one = 'node B { x: I32 @index @z @a("2") y: enum(q, p, q)? @unique(y, x) @range(x, 9..) @range(x, ..9) } node A {}'
    two = (
        '/* */ node A {} node B { @range(x, ..9) @unique(x, y) y: enum(p, q)? x: I32 @a("2") @z @index @range(x, 9..) }'
    )
    assert ir_text(compile_schema(one)) == ir_text(compile_schema(two))


@pytest.mark.requirement("SCH-14")
def test_rules_of_one_kind_stand_by_columns_and_ranges_by_the_text_of_their_bounds() -> None:
    ranges = " ".join(f"@range(a, {bounds})" for bounds in ("9..", "10..", "-1..", "0.5..", "..5", "9..11", "9..100"))
    [node] = compile_schema(f"node P {{ a: I32 b: I32 {ranges} @index(b, a) @index(a) @index(b) }}")["nodes"]
    bodies = [next(iter(rule.values())) for rule in node["constraints"]]
    assert bodies[:3] == [["a"], ["a", "b"], ["b"]]
    texts = [f"{(body['min'] or {'': ''})}..{(body['max'] or {'': ''})}" for body in bodies[3:]]
    assert texts == sorted(texts, key=lambda text: text.replace("{'': ''}", "")), texts
    assert [body["max"] for body in bodies[-3:]] == [None, {"Integer": 100}, {"Integer": 11}]


@pytest.mark.requirement("VAL-13")
def test_a_type_may_have_annotations_before_its_interfaces_and_before_the_next_type() -> None:
    text = 'interface I { a: I32 } node P @note("x") implements I {} edge E: P -> P @note edge F: P -> P'
    ir = compile_schema(text)
    assert (ir["nodes"][0]["implements"], len(ir["edges"])) == (["I"], 2)


@pytest.mark.requirement("SCH-14")
def test_a_node_type_has_the_properties_of_its_interfaces_with_their_rules() -> None:
    text = "interface I { a: I32 @index b: String? @index } node P implements I { b: String? @unique }"
    [node] = compile_schema(text)["nodes"]
    assert [each["name"] for each in node["properties"]] == ["a", "b"]
    assert node["constraints"] == [{"Index": ["a"]}, {"Unique": ["b"]}]


@pytest.mark.requirement("VAL-13", "VAL-15", "VAL-05")
@pytest.mark.parametrize(
    "text",
    [
        "node p {}", "node P", "node P {", "nodes P {}", "node P {} }", "node P { a I32 }", "node P { a: I32, b: I32 }",
        "node P { a: Int }", "node P { a: [I32?] }", "node P { a: [[I32]] }", "node P { a: [Blob] }", "/* x", "\ufeff",
        "node P { a: [Vector(2)] }", "node P { a: Vector(0) }", "node P { a: Vector(2147483648) }", "node P {} \ud800",
        f"node P {{ a: Vector({'9' * 5000}) }}", "node P { a: enum() }", 'node P { a: I32 @x("\\q") }',
        "node P {} node P {}", "interface I {} interface I {}", P + "edge E: P -> P edge e: P -> P",
        P + "edge Knows: P -> P edge KNOWS: P -> P", "edge E: P -> P", "interface Q {} node P {} edge E: P -> Q",
        "node P implements I {}", "node P { a: I32 a: I64 }", "node P { id: String }", "node P { _rowid: String }",
        P + "edge E: P -> P { src: String }", P + "edge E: P -> P @card(2..1)", P + "edge E: P -> P @card(1)",
        P + "edge E: P -> P @card(0..4294967296)", "node P { a: I32 @unique(b) }", "node P { a: I32 @index(src) }",
        'node P { a: String @check(a, "[") }', 'node P { a: String @check(a, "(?=x)") }',
        'node P { a: I32 @check(a, "x") }', "node P { a: Date @range(a, 0..1) }", "node P { a: I32 @range(a, 2..1) }",
        "node P { a: I64 @range(a, 9007199254740993..9007199254740992.0) }", "node P { a: I32 @range(a, ..) }",
        f"node P {{ a: F64 @range(a, 0..{'9' * 400}.0) }}", "node P { a: I64 @range(a, 0..9223372036854775808) }",
        "node P { a: String? @key }", "node P { a: [String] @key }", "node P { a: Blob? @unique }",
        "node P { a: I32 @key b: I32 @key }", "node P { a: I32 @unique(a, a) }", "node P { a: I32 @index @index }",
        "interface I { a: I32 @key(a) }", "node P { a: I32 @rename_from }", 'node P @description(" ") {}',
        "node P @key {}", P + "edge E: P -> P { a: I32 @key }", P + "edge E: P -> P { a: I32 @range(a, 0..1) }",
        "interface I { a: I32 } node P implements I { a: I32? }",
        "interface I { a: I32 } interface J { a: I64 } node P implements I, J {}",
    ],
)  # fmt: skip
def test_what_describes_no_graph_is_a_bad_request(text: str) -> None:
    with pytest.raises(Refusal) as refusal:
        Model.from_source(text)
    assert (refusal.value.kind, refusal.value.code) == ("bad_request", "invalid_schema")


@pytest.mark.requirement("VAL-15", "VAL-04")
def test_a_range_of_one_value_and_a_cardinality_of_one_number_are_possible() -> None:
    model = Model.from_source("node P { a: I32 @range(a, 3..3) } edge E: P -> P @card(2..2)")
    assert model.schema.types["edge:E"].edges_min == model.schema.types["edge:E"].edges_max == 2


@pytest.mark.requirement("VAL-16")
@pytest.mark.parametrize("name", ["null", "node", "enum", "implements", "key", "range", "card", "_", "true"])
def test_a_property_may_have_any_name(name: str) -> None:
    model = Model.from_source(f"node P {{ a: I32? @note {name}: I32 @key(a2, {name}) a2: I32 @range({name}, 0..9) }}")
    assert model.schema.types["node:P"].property(name)


@pytest.mark.requirement("VAL-15", "VAL-04")
def test_a_pattern_means_the_same_in_every_engine() -> None:
    assert compile_pattern("^a$").search("a\n") is None, "the end is the very end"
    assert compile_pattern(r"a\z").search("ba") and compile_pattern("^[$]$").search("$")
    assert compile_pattern("(?m)^a$").search("b\na\nb") and compile_pattern("(?m:^a$)|x$").search("b\na\nb")
    assert compile_pattern("(?m:^a$)|x$").search("x\n") is None
    for pattern in (
        r"(a)\1",
        "(?!x)",
        "(?<=x)",
        "(?>a)",
        "[[:alpha:]]",
        "[a&&b]",
        "a*+",
        "a{2}+",
        "(",
        "a{99999999999}",
    ):
        with pytest.raises(Refusal):
            compile_pattern(pattern)
