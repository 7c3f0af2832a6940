"""Schemas that describe no possible graph, and how types, keys and interfaces come together."""

from __future__ import annotations

import pytest

from reference.errors import BadRequest
from reference.schema import SchemaError, compile_schema
from reference.schema.patterns import PatternError, compile_pattern

WIDE = "node P {} "


@pytest.mark.requirement("VAL-13", "VAL-15", "VAL-05")
@pytest.mark.parametrize(
    ("source", "column", "words"),
    [
        ("node P {} node P {}", 16, "declared twice"),
        ("interface I {} interface I {}", 26, "declared twice"),
        (WIDE + "edge E: P -> P edge E: P -> P", 31, "declared twice"),
        (WIDE + "edge Knows: P -> P edge KNOWS: P -> P", 35, "differ in case only"),
        ("edge E: P -> P", 9, "source of edge 'E'"),
        (WIDE + "edge E: P -> Q", 24, "target of edge 'E'"),
        ("interface Q {} node P {} edge E: P -> Q", 39, "not a node type"),
        ("node P implements I {}", 19, "no interface 'I'"),
        ("node P { a: I32 a: I64 }", 17, "declared twice"),
        ("node P { id: String }", 10, "column of the system"),
        ("node P { _rowid: String }", 10, "column of the system"),
        (WIDE + "edge E: P -> P { src: String }", 28, "column of the system"),
        (WIDE + "edge E: P -> P { dst: String }", 28, "column of the system"),
        (WIDE + "edge E: P -> P { id: String }", 28, "column of the system"),
        (WIDE + "edge E: P -> P @card(2..1)", 26, "at least 2 and at most 1"),
        (WIDE + "edge E: P -> P @card(0..4294967296)", 35, "out of range"),
        ("node P { a: I32 @unique(b) }", 17, "does not declare"),
        ("node P { a: I32 @index(src) }", 17, "does not declare"),
        ("node P { a: I32 @range(b, 0..1) }", 17, "does not declare"),
        ('node P { a: String @check(a, "[") }', 20, "cannot be evaluated"),
        ('node P { a: String @check(a, "(?=x)") }', 20, "not portable"),
        ('node P { a: I32 @check(a, "x") }', 17, "@check cannot use"),
        ('node P { a: [String] @check(a, "x") }', 22, "@check cannot use"),
        ("node P { a: String @range(a, 0..1) }", 20, "@range cannot use"),
        ("node P { a: Date @range(a, 0..1) }", 18, "@range cannot use"),
        ("node P { a: [I32] @range(a, 0..1) }", 19, "@range cannot use"),
        ("node P { a: I32 @range(a, 2..1) }", 17, "no value is"),
        ("node P { a: I64 @range(a, 9007199254740993..9007199254740992.0) }", 17, "no value is"),
        (f"node P {{ a: F64 @range(a, 0..{'9' * 400}.0) }}", 17, "not a finite number"),
        ("node P { a: I64 @range(a, 0..9223372036854775808) }", 30, "out of range"),
        (f"node P {{ a: Vector({'9' * 5000}) }}", 20, "out of range"),
        ("node P { a: Vector(0) }", 20, "out of range"),
        ("node P { a: Vector(-1) }", 20, "out of range"),
        ("node P { a: Vector(2147483648) }", 20, "out of range"),
        ("node P { a: [Vector(2)] }", 14, "hold vectors"),
        ("node P { a: [Blob] }", 14, "hold blobs"),
        ("node P { a: Vector }", 13, "no type 'Vector'"),
        ("node P { a: enum() }", 13, "at least one value"),
        ("node P { a: String? @key }", 10, "@key cannot use"),
        ("node P { a: [String] @key }", 10, "@key cannot use"),
        ("node P { a: Vector(2) @key }", 10, "@key cannot use"),
        ("node P { a: Blob @key(a) }", 18, "@key cannot use"),
        ("node P { a: [String]? @unique }", 10, "@unique cannot use"),
        ("node P { a: Blob? @unique }", 10, "@unique cannot use"),
        ("node P { b: I32 a: Vector(2)? @unique(a, b) }", 31, "@unique cannot use"),
        ("node P { a: I32 @key b: I32 @key }", 22, "several keys"),
        ("node P { a: I32 @key @key(a) }", 10, "several keys"),
        ("node P { a: I32 @unique(a, a) }", 17, "twice"),
        ("node P { a: I32 @index @index }", 10, "more than once"),
        ("interface I { a: I32 @key(a) }", 22, "'@key' does not belong here"),
        ("node P { a: I32 @rename_from }", 10, "has no value"),
        ('node P @description(" ") {}', 6, "has no value"),
        ("node P @key {}", 6, "not about a whole type"),
        (WIDE + "edge E: P -> P { a: I32 @key }", 28, "cannot have @key"),
        (WIDE + "edge E: P -> P { a: I32 @range(a, 0..1) }", 35, "cannot have @range"),
        (WIDE + 'edge E: P -> P { a: String @check(a, "x") }', 38, "cannot have @check"),
        ("interface I { a: I32 } node P implements I { a: I32? }", 46, "promises I32"),
        ("interface I { a: I32 } interface J { a: I64 } node P implements I, J {}", 65, "promises I64"),
    ],
)
def test_an_impossible_schema_is_refused_where_it_is_impossible(source: str, column: int, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema(source)
    error = caught.value
    assert error.at is not None and error.at.column == column, str(error)
    assert words in error.message and error.hint and error.kind == "bad_request"


@pytest.mark.requirement("VAL-05")
def test_a_list_cannot_be_unique_and_the_hint_says_why() -> None:
    with pytest.raises(SchemaError, match="unsupported column type"):
        compile_schema("node P { a: [I32] @unique }")


@pytest.mark.requirement("LAY-03")
def test_a_node_and_an_edge_may_share_a_name() -> None:
    assert compile_schema("node P {} edge P: P -> P").table_keys() == ["edge:P", "node:P"]


@pytest.mark.requirement("VAL-14")
def test_a_key_is_declared_next_to_a_property_or_in_the_body_with_sorted_columns() -> None:
    assert compile_schema("node P { b: I32 @key }").nodes["P"].key == ("b",)
    assert compile_schema("node P { b: I32 a: I32 @key(b, a) }").nodes["P"].key == ("a", "b")
    assert compile_schema("node P { b: I32 }").nodes["P"].key == ()


@pytest.mark.requirement("SCH-14")
def test_a_node_type_gets_the_properties_of_its_interfaces_with_their_constraints() -> None:
    source = "interface I { a: I32 @index b: String? } node P implements I { b: String? @unique }"
    node = compile_schema(source).nodes["P"]
    assert [each.name for each in node.properties] == ["a", "b"]
    assert (node.indexes, node.unique, node.implements) == ((("a",),), (("b",),), ("I",))


@pytest.mark.requirement("VAL-13")
def test_edge_types_are_found_in_any_case_and_unknown_types_are_named() -> None:
    catalog = compile_schema("node P {} edge WorksAt: P -> P")
    assert catalog.edge_by_name("worksat") is catalog.edges["WorksAt"]
    assert catalog.edge_by_name("works") is None
    for table_key in ("node:Q", "edge:P", "P", "table:P"):
        with pytest.raises(BadRequest, match=table_key) as caught:
            catalog.type_of(table_key)
        assert caught.value.code == "unknown_type"


@pytest.mark.requirement("VAL-04")
def test_a_pattern_means_the_same_in_every_engine() -> None:
    assert compile_pattern("^a$").search("a\n") is None, "$ is the very end of the text"
    assert compile_pattern(r"a\z").search("ba")
    assert compile_pattern("^[$]$").search("$") and compile_pattern(r"\$").search("a$b")
    assert compile_pattern("[]$]").search("]") and compile_pattern("^[^]$]$").search("x")
    assert compile_pattern("(?i)^(?:ab|c)(?P<d>d)$").search("ABD")
    assert compile_pattern("(?m)^a$").search("b\na\nb")
    for pattern in (r"(a)\1", "(?!x)", "(?<=x)", "[[:alpha:]]", "[a&&b]", "(", "[b-a]", "a{99999999999}"):
        with pytest.raises(PatternError):
            compile_pattern(pattern)
