"""The IR, its hash and its way back, held to what the public release wrote into the golden graphs."""

from __future__ import annotations

import copy
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.errors import Internal
from reference.schema import Catalog, catalog_from_ir, compile_schema, ir_hash, parse_ir, schema_ir
from reference.schema.jsontext import compact_json, float_text, pretty_json
from reference.schema.tests.samples import BEFORE_EVOLUTION, BEFORE_EVOLUTION_HASH, SOCIAL, SOCIAL_HASH


@pytest.mark.requirement("LAY-11", "SCH-14")
def test_the_hash_is_the_one_that_the_release_recorded() -> None:
    assert ir_hash(schema_ir(compile_schema(SOCIAL))) == SOCIAL_HASH
    assert ir_hash(schema_ir(compile_schema(BEFORE_EVOLUTION))) == BEFORE_EVOLUTION_HASH


@pytest.mark.requirement("SCH-14")
def test_ids_are_hashes_of_names() -> None:
    ir = schema_ir(compile_schema(SOCIAL))
    person = next(each for each in ir["nodes"] if each["name"] == "Person")
    knows = next(each for each in ir["edges"] if each["name"] == "Knows")
    assert person["type_id"] == 3227219152
    assert person["properties"][0]["prop_id"] == 3446138241
    assert knows["type_id"] == 2041814322
    assert knows["properties"][0]["prop_id"] == 2596498354
    assert ir["interfaces"][0]["type_id"] == 1580757211
    assert ir["interfaces"][0]["properties"][0]["prop_id"] == 1864229240


@pytest.mark.requirement("SCH-14")
def test_constraints_are_sorted_by_kind_and_columns_by_name() -> None:
    ir = schema_ir(compile_schema(SOCIAL))
    person = next(each for each in ir["nodes"] if each["name"] == "Person")
    assert person["constraints"] == [
        {"Check": {"property": "handle", "pattern": "^[a-z][a-z0-9_]*$"}},
        {"Index": ["name"]},
        {"Key": ["handle"]},
        {"Range": {"property": "age", "min": {"Integer": 0}, "max": {"Integer": 150}}},
        {"Unique": ["email"]},
    ]
    works_at = next(each for each in ir["edges"] if each["name"] == "WorksAt")
    assert works_at["constraints"] == [{"Unique": ["role", "src"]}]


@pytest.mark.requirement("SCH-14")
def test_open_and_fractional_bounds_and_vectors_have_their_own_form() -> None:
    ir = schema_ir(compile_schema("node P { a: F64 v: Vector(3) @range(a, ..0.5) @range(a, -1..) }"))
    assert ir["nodes"][0]["constraints"] == [
        {"Range": {"property": "a", "min": None, "max": {"Float": 0.5}}},
        {"Range": {"property": "a", "min": {"Integer": -1}, "max": None}},
    ]
    assert ir["nodes"][0]["properties"][1]["prop_type"]["scalar"] == {"Vector": 3}


@pytest.mark.requirement("SCH-14")
def test_the_hash_does_not_depend_on_the_order_of_the_source() -> None:
    one = 'node B { x: I32 @index @z @a("2") y: enum(q, p)? @unique(y, x) } node A implements J, I {} '
    one += "interface I {} interface J {} edge E: A -> B edge D: B -> A"
    two = "edge D: B -> A interface J {} edge E: A -> B interface I {} node A implements I, J {} "
    two += 'node B { @unique(x, y) y: enum(p, q)? /* here */ x: I32 @a("2") @z @index }'
    assert compact_json(schema_ir(compile_schema(one))) == compact_json(schema_ir(compile_schema(two)))


@pytest.mark.requirement("LAY-13")
def test_columns_are_the_system_first_and_then_properties_by_name() -> None:
    catalog = compile_schema(SOCIAL)
    blob = catalog.arrow_schema("node:Note").field("body")
    assert catalog.arrow_schema("node:Person") == pa.schema(
        [
            pa.field("id", pa.utf8(), nullable=False),
            pa.field("age", pa.int32()),
            pa.field("email", pa.utf8()),
            pa.field("face", pa.list_(pa.field("item", pa.float32()), 4)),
            pa.field("handle", pa.utf8(), nullable=False),
            pa.field("joined", pa.date32()),
            pa.field("mood", pa.utf8()),
            pa.field("name", pa.utf8(), nullable=False),
            pa.field("score", pa.float64()),
            pa.field("seen", pa.date64()),
            pa.field("tags", pa.list_(pa.field("item", pa.utf8()))),
        ]
    )
    assert catalog.arrow_schema("edge:WorksAt").names == ["id", "src", "dst", "role"]
    assert [each.nullable for each in catalog.arrow_schema("edge:WorksAt")] == [False, False, False, True]
    assert blob.type.extension_name == "lance.blob.v2"
    assert [each.name for each in blob.type.storage_type] == ["data", "uri"], "as the release's tables have it"


@pytest.mark.requirement("LAY-11")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.00001, "0.00001"),
        (-0.000012345, "-0.000012345"),
        (0.0001, "0.0001"),
        (1.5e-7, "1.5e-7"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e+16"),
        (1.5e300, "1.5e+300"),
        (5e-324, "5e-324"),
    ],
)
def test_floats_are_spelled_as_the_release_spells_them(value: float, text: str) -> None:
    assert float_text(value) == text and float(text) == value


@pytest.mark.requirement("LAY-11")
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_json_without_floats_is_what_python_writes(value: Any) -> None:
    assert compact_json(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert pretty_json(value) == json.dumps(value, ensure_ascii=False, indent=2)


NAMES = st.sampled_from(["a", "b", "c_1", "null", "zZ"])
TYPES = st.sampled_from(["String", "I32?", "U64", "[F64]?", "Vector(3)?", "enum(x, y)", "Blob?", "DateTime?"])


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    lines = ["interface I { i: I32? @index }"]
    nodes = draw(st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, unique=True))
    for name in nodes:
        properties = draw(st.dictionaries(NAMES, TYPES, max_size=4))
        body = [f'{each}: {kind} @note("ü{each}")' for each, kind in properties.items()]
        for each, kind in properties.items():
            if kind in ("I32?", "U64"):
                low, high = (
                    draw(st.integers(-9, 0)),
                    draw(st.floats(0.5, 1e18).map(float_text).filter(lambda t: "e" not in t)),
                )
                body.append(f"@range({each}, {low}..{high}) @unique({each})")
            if kind == "String":
                body.append(f'@check({each}, "^\\\\d+$") @index({each})')
        lines.append(f"node {name} {draw(st.sampled_from(['', 'implements I']))} {{ {' '.join(body)} }}")
    for name in draw(st.lists(st.sampled_from(["E", "F"]), unique=True)):
        source, target = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
        lines.append(f"edge {name}: {source} -> {target} @card(1..{draw(st.sampled_from(['', '2']))}) {{ w: F32? }}")
    return compile_schema("\n".join(lines))


@pytest.mark.requirement("SCH-14", "SCH-13")
@settings(max_examples=200, deadline=None)
@given(catalogs())
def test_a_catalog_survives_the_way_through_its_ir(catalog: Catalog) -> None:
    ir = parse_ir(pretty_json(schema_ir(catalog)))
    again = catalog_from_ir(ir)
    assert again == catalog
    assert ir_hash(schema_ir(again)) == ir_hash(ir)


@pytest.mark.requirement("SCH-13")
@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"ir_version": NaN}', "[" * 100_000, '{"ir_version": 1, "\\ud800": 1}']
)
def test_a_text_that_is_no_ir_is_refused(text: str) -> None:
    with pytest.raises(Internal) as caught:
        parse_ir(text)
    assert caught.value.code == "schema_ir_invalid"


@pytest.mark.requirement("SCH-13")
@pytest.mark.parametrize("version", [0, 2, "1", True, None])
def test_an_ir_of_another_version_is_refused(version: object) -> None:
    ir = schema_ir(compile_schema(SOCIAL)) | {"ir_version": version}
    for read in (lambda: parse_ir(json.dumps(ir)), lambda: catalog_from_ir(ir)):
        with pytest.raises(Internal) as caught:
            read()
        assert caught.value.code == "unsupported_schema_format"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [each for key, item in inner for each in places(item, (*path, key))]


@pytest.mark.requirement("SCH-13")
def test_an_ir_broken_at_any_place_is_still_readable_or_refused_as_internal() -> None:
    whole = schema_ir(compile_schema(SOCIAL))
    for path in places(whole):
        for wrong in (None, 7, "x", [], {}, True, -1.5, [None], {"x": 1}):
            broken = copy.deepcopy(whole)
            parent: Any = broken
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = wrong
            try:
                catalog_from_ir(broken)
            except Internal as error:
                assert error.hint


@pytest.mark.requirement("SCH-13")
def test_a_truth_value_is_not_a_number_of_the_ir() -> None:
    ir = schema_ir(compile_schema("node P { a: I32 @range(a, 1..2) }"))
    ir["nodes"][0]["constraints"][0]["Range"]["min"]["Integer"] = True
    with pytest.raises(Internal) as caught:
        catalog_from_ir(ir)
    assert caught.value.code == "schema_ir_invalid"
