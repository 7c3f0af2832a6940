"""The `.pg` language: what it accepts, and how it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.schema import SchemaError, compile_schema
from reference.schema.tests.samples import SOCIAL
from reference.schema.types import Annotation, PropertyType, Range

CONTEXTUAL_WORDS = ["null", "true", "false", "interval", "exists", "_", "_x9", "enum", "node", "edge", "interface"]
CONTEXTUAL_WORDS += ["implements", "key", "unique", "index", "range", "check", "card", "embed", "rename_from"]


def refusal(source: str) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        compile_schema(source)
    return caught.value


@pytest.mark.requirement("LAY-10")
def test_an_empty_schema_has_no_types() -> None:
    for source in ("", " \n\t", "// nothing\n", "/* nothing\n at all */"):
        assert compile_schema(source).table_keys() == [], f"{source!r} declares nothing"


@pytest.mark.requirement("VAL-16")
@pytest.mark.parametrize("name", CONTEXTUAL_WORDS)
def test_a_property_may_have_any_name_even_a_keyword(name: str) -> None:
    source = f"node P {{ {name}: I32 @index other: I32 @unique({name}, other) @range({name}, 0..9) }}\n"
    source += f"edge E: P -> P {{ {name}: String? @unique({name}, src) }}"
    catalog = compile_schema(source)
    assert catalog.nodes["P"].property(name) is not None
    assert catalog.nodes["P"].ranges == (Range(name, 0, 9),)
    assert catalog.edges["E"].unique == (tuple(sorted((name, "src"))),)


@pytest.mark.requirement("LAY-13")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("String", PropertyType("String")),
        ("DateTime?", PropertyType("DateTime", nullable=True)),
        ("Date", PropertyType("Date")),
        ("[U64]?", PropertyType("U64", nullable=True, is_list=True)),
        ("Vector( 4 )?", PropertyType("Vector", nullable=True, dimensions=4)),
        ("enum(b, a-1, 2, b)", PropertyType("String", enum_values=("2", "a-1", "b"))),
        ("[enum(x, y)]", PropertyType("String", is_list=True, enum_values=("x", "y"))),
    ],
)
def test_types_read_as_they_are_written(text: str, expected: PropertyType) -> None:
    found = compile_schema(f"node P {{ a: {text} }}").nodes["P"].property("a")
    assert found is not None and found.type == expected


@pytest.mark.requirement("VAL-04")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-5..5", Range("a", -5, 5)),
        ("..5", Range("a", None, 5)),
        ("-5..", Range("a", -5, None)),
        ("-0.5..1.25", Range("a", -0.5, 1.25)),
        ("3..3", Range("a", 3, 3)),
        ("-9223372036854775808..9223372036854775807", Range("a", -(2**63), 2**63 - 1)),
    ],
)
def test_either_bound_of_a_range_may_be_open_or_negative(text: str, expected: Range) -> None:
    assert compile_schema(f"node P {{ a: I64 @range(a, {text}) }}").nodes["P"].ranges == (expected,)


@pytest.mark.requirement("VAL-13")
def test_annotations_keep_their_values_and_custom_ones_are_accepted() -> None:
    catalog = compile_schema(
        'node P @description("a \\"p\\"\\n") @z { a: Vector(2) @embed("b") @custom(7) b: String @flag(true) }\n'
        'edge E: P -> P @card(1..) @rename_from("Old")'
    )
    node, edge = catalog.nodes["P"], catalog.edges["E"]
    assert node.annotations == (Annotation("description", 'a "p"\n'), Annotation("z"))
    assert node.properties[0].annotations == (Annotation("custom", "7"), Annotation("embed", "b"))
    assert node.properties[1].annotations == (Annotation("flag", "true"),)
    assert (edge.cardinality_min, edge.cardinality_max) == (1, None)
    assert edge.annotations == (Annotation("rename_from", "Old"),)


@pytest.mark.requirement("VAL-13")
def test_a_mistake_is_shown_under_its_line_with_a_hint() -> None:
    error = refusal("node Person {\n\tage: Int\n}")
    assert (error.code, error.kind, error.at) == ("schema_invalid", "bad_request", (2, 7))
    assert str(error) == (
        "line 2, column 7: there is no type 'Int'\n"
        "   age: Int\n"
        "        ^\n"
        "hint: use one of Blob, Bool, Date, DateTime, F32, F64, I32, I64, String, U32, U64, Vector(d), enum(a, b)"
        " or [T]"
    )
    assert error.details["line"] == 2 and error.details["column"] == 7


@pytest.mark.requirement("VAL-13")
@pytest.mark.parametrize(
    ("source", "line", "column", "words"),
    [
        ("node person {}", 1, 6, "'person' does not belong here"),
        ("node P {\n  a: I32\n", 2, 9, "ends too early"),
        ("\n \x00", 2, 2, "U+0000"),
        ('node P {\n a: String @description("x }', 2, 25, "string is not closed"),
        ("node P {} /* x", 1, 11, "comment is not closed"),
        ("\ufeffnode P {}", 1, 1, "byte order mark"),
        ("node P { a: [String?] }", 1, 20, "'?' does not belong here"),
        ("node P { a: I32 @range(a, ..) }", 1, 29, "')' does not belong here"),
        ('node P { a: String @check(a, "\\d") }', 1, 30, "is not an escape"),
        ("node P {} \ud800", 1, 11, "surrogate"),
        ("interface I { a: I32 @@ }", 1, 22, "'@' does not belong here"),
    ],
)
def test_broken_text_is_a_syntax_error_at_its_place(source: str, line: int, column: int, words: str) -> None:
    error = refusal(source)
    assert (error.code, error.at) == ("schema_syntax", (line, column))
    assert words in error.message and error.hint


@pytest.mark.requirement("VAL-13")
def test_a_mistake_in_a_very_long_line_is_shown_in_a_window() -> None:
    error = refusal("node P { " + "a: I32 " * 2_000 + "}")
    assert error.at == (1, 17)
    error = refusal("/*" + "x" * 100_000 + "*/ oops")
    shown, caret = error.message.splitlines()[1:]
    assert len(shown) < 150 and shown[len(caret) - 1 :] == "oops"


@pytest.mark.requirement("VAL-13")
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_text_compiles_or_is_refused_as_a_schema_error(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(SOCIAL)))
    stop = data.draw(st.integers(start, min(len(SOCIAL), start + 30)))
    broken = SOCIAL[:start] + data.draw(st.text(st.characters(), max_size=8)) + SOCIAL[stop:]
    try:
        compile_schema(broken)
    except SchemaError as error:
        assert error.at is not None and error.message.splitlines()[-1].endswith("^")


@pytest.mark.requirement("VAL-13", "SCH-06")
def test_a_keyword_may_follow_the_annotation_of_a_type() -> None:
    source = (
        'interface I {}\nnode P @plain implements I { name: String @key }\nedge E: P -> P @rename_from("X")\nnode Q {}'
    )

    catalog = compile_schema(source)

    assert catalog.nodes["P"].annotations == (Annotation("plain"),)
    assert catalog.edges["E"].annotations == (Annotation("rename_from", "X"),)
    assert catalog.table_keys() == ["edge:E", "node:P", "node:Q"]


@pytest.mark.requirement("VAL-15")
@pytest.mark.parametrize("pattern", ["a*+", "a++", "a?+", "a{1}+", "a{1,2}+"])
def test_a_pattern_that_engines_read_differently_is_refused(pattern: str) -> None:
    refusal(f'node P {{ name: String\n @check(name, "{pattern}") }}')
