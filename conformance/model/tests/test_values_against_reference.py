"""The model and the reference engine agree on single values: of every type, at every limit, valid and not.

One graph takes all examples: rows are written over the last ones, then updated or deleted by a predicate.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.model.schema import Property, Type
from conformance.model.tests.side_by_side import SideBySide
from conformance.model.values import INTEGERS

EXAMPLES = os.environ.get("TOUCHSTONE_MODEL_EXAMPLES")
EVERYTHING = Path(__file__).parents[3] / "fixtures" / "schemas" / "everything.pg"
TYPES = ("Measure", "Odd", "Parcel", "Ticket", "Day", "Switch", "Picture")

texts = st.text(max_size=6) | st.sampled_from(["", "a", "b", "c", "main", "red", "\ud800", "x" * 3000, "\u2028\x85"])
dates = st.dates().map(str) | st.sampled_from(
    ["0000-01-01", "2026-02-29", "2024-02-29", "2026-1-1", "10000-01-01", "2026-01-01T00:00:00", "-719163"]
)
moments = st.datetimes().map(lambda each: each.isoformat()) | st.sampled_from(
    [
        "2026-01-02T03:04:05Z",
        "2026-01-02 03:04",
        "2026-01-02T03:04:05.6789+23:59",
        "2026-01-02T03:04:05.1-00:30",
        "2026-01-02T24:00:00",
        "2026-01-02T03:04:60",
        "2026-01-02T03",
        "2026-01-02T03:04.5",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59.9999-00:01",
        "2026-01-02T03:04:05+0100",
        "2026-01-02T03:04:05 ",
    ]
)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [
        0.0,
        -0.0,
        1e-5,
        9.999e-6,
        1e16,
        9999999999999998.0,
        1e39,
        3.4028235677973366e38,
        1e-46,
        0.25,
        0.75,
        -1.5,
        2**53 + 1,
    ]
)
anything = st.sampled_from([True, False, 0, 1, -1, 1.0, 1.5, "1", "true", [], [None], {}, {"now": 1}, 10**400])


def near(*limits: int) -> st.SearchStrategy[int]:
    return st.integers(-3, 3).flatmap(lambda step: st.sampled_from([limit + step for limit in limits]))


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "String": texts,
    "Bool": st.booleans(),
    "F32": floats | near(0, 2**24),
    "F64": floats | near(0, 2**53, -(2**63)),
    "Date": dates | near(0, -719162, 2932896),
    "DateTime": moments | near(0, -719162 * 86_400_000, 2932897 * 86_400_000 - 1),
    "Blob": st.sampled_from(["base64:", "base64:eA==", "base64:eA", "base64:_-8=", "base64:e A==", "base64:ü"]),
    **{scalar: near(0, *limits, 9007199254740993, -9007199254740993) for scalar, limits in INTEGERS.items()},
}


def values(prop: Property) -> st.SearchStrategy[Any]:
    """Mostly of the right type; a list or a vector of them where that is asked for."""
    right = SCALARS["F32" if prop.scalar == "Vector" else prop.scalar]
    if prop.enum_values is not None:
        right = st.sampled_from(prop.enum_values) | st.just("none of them")
    if prop.dimensions is not None:
        right = st.lists(right, min_size=prop.dimensions, max_size=prop.dimensions) | st.lists(right, max_size=2)
    elif prop.is_list:
        right = st.lists(right | st.none(), max_size=3)
    return st.integers(0, 19).flatmap(lambda dice: {0: anything, 1: st.none()}.get(dice, right))


def key_values(owner: Type, prop: Property) -> st.SearchStrategy[Any]:
    if owner.checks:
        return st.sampled_from(["AA-1", "AA-2", "ZZ-0", "AA-1\n", "aa-1", "AA-١"])
    return SCALARS[prop.scalar]


@st.composite
def rows(draw: st.DrawFn, owner: Type) -> dict[str, Any]:
    """A record's data: its key, what is required, and up to three properties more."""
    chosen = draw(st.sets(st.sampled_from([prop.name for prop in owner.properties]), max_size=3))
    data: dict[str, Any] = {}
    for prop in owner.properties:
        if prop.name in owner.key:
            data[prop.name] = draw(key_values(owner, prop))
        elif prop.name in chosen or not prop.nullable:
            data[prop.name] = draw(values(prop))
    if not owner.key:
        data["id"] = draw(texts)
    return data


@st.composite
def predicates(draw: st.DrawFn, owner: Type) -> dict[str, Any]:
    prop = draw(st.sampled_from(owner.properties))
    value = draw(values(prop))
    op = draw(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge", "in", "is_null", "is_not_null"]))
    if op == "in":
        value = [value, draw(values(prop))]
    leaf = (
        {"property": prop.name, "op": op} if op.startswith("is_") else {"property": prop.name, "op": op, "value": value}
    )
    return leaf if draw(st.booleans()) else {"not": leaf}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> SideBySide:
    root = tmp_path_factory.mktemp("everything") / "graph"
    return SideBySide(str(root), EVERYTHING.read_text(encoding="utf-8"))


@pytest.mark.requirement(
    "LOD-02", "LOD-05", "LOD-14", "LOD-17", "VAL-01", "VAL-03", "VAL-04", "VAL-05", "VAL-08", "VAL-14", "VAL-16",
    "MUT-09", "MUT-11", "EXP-01", "EXP-06",
)  # fmt: skip
@settings(
    max_examples=int(EXAMPLES or 40),
    derandomize=EXAMPLES is None,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_value_means_the_same(both: SideBySide, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(TYPES), "type")
    owner = both.model.schema.types[f"node:{name}"]
    records = [
        {"type": name, "data": each} for each in data.draw(st.lists(rows(owner), min_size=1, max_size=3), "rows")
    ]
    both.step({"do": "load", "mode": "overwrite", "branch": "main", "records": records})
    statement: dict[str, Any] = {"type": name, "where": data.draw(predicates(owner), "where")}
    free = [prop for prop in owner.properties if prop.name not in owner.key]
    if data.draw(st.booleans(), "delete") or not free:
        statement["op"] = "delete"
    else:
        prop = data.draw(st.sampled_from(free), "property")
        statement |= {"op": "update", "set": {prop.name: data.draw(values(prop), "value")}}
    both.step({"do": "mutate", "branch": "main", "statements": [statement]})
