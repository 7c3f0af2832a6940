"""The model and the reference engine agree while the schema changes: rows are moved, and old points stay as they were.

The scripts are changes that are hard to meet by chance; the random sequences mix them with writes, branches and
maintenance. `TOUCHSTONE_MODEL_EXAMPLES` makes the latter longer.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.model import Refusal, compile_schema
from conformance.model.schema import Schema, Type
from conformance.model.tests.schemas import changed, first_sketches, text_of
from conformance.model.tests.side_by_side import SideBySide, Step
from conformance.model.tests.test_values_against_reference import values

EXAMPLES = os.environ.get("TOUCHSTONE_MODEL_EXAMPLES")
IDS = ("a", "b", "o'brien")

# -- scripts -----------------------------------------------------------------------------------------------------

BEFORE = "node P { k: String @key a: I32? b: I32? } node Q { t: Blob? } edge E: P -> Q { w: I32? @index(w) }"
SETTLED: Step = {
    "do": "load",
    "mode": "merge",
    "branch": "main",
    "records": [
        {"type": "P", "data": {"k": "x", "a": 1, "b": 1}},
        {"type": "P", "data": {"k": "y", "a": 1, "b": 2}},
        {"type": "Q", "data": {"id": "q", "t": "base64:AAEC"}},
        {"type": "Q", "data": {"id": "r", "t": None}},
        {"edge": "E", "from": "x", "to": "q", "data": {"id": "e", "w": 7}},
    ],
}


def apply(source: str, *, allow_data_loss: bool = False) -> Step:
    return {"do": "schema_apply", "source": source, "allow_data_loss": allow_data_loss}


def load(*records: Any, branch: str = "main") -> Step:
    return {"do": "load", "mode": "merge", "branch": branch, "records": list(records)}


def person(k: str, **data: Any) -> Step:
    return {"type": "P", "data": {"k": k, **data}}


def edited(*changes: tuple[str, str]) -> str:
    text = BEFORE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


BRANCH: Step = {"do": "branch_create", "name": "one", "source": "main"}
NO_BRANCH: Step = {"do": "branch_delete", "name": "one"}
MERGE: Step = {"do": "merge", "source": "one", "target": "main"}
OPTIMIZE: Step = {"do": "optimize"}
REOPEN: Step = {"do": "reopen"}
SWAPPED = edited(("a: I32? b: I32?", 'a: I32? @rename_from("b") b: I32? @rename_from("a")'))
COMPOSED = edited(("a: I32? b: I32?", 'a: String? b: I32? c: I32? @rename_from("a")'))
TYPES_SWAPPED = (
    'node Q @rename_from("P") { k: String @key a: I32? b: I32? } node P @rename_from("Q") { t: Blob? }'
    " edge E: Q -> P { w: I32? @index(w) }"
)
ALL_RENAMED = (
    'node H @rename_from("P") { key: String @key @rename_from("k") a: I32? c: I32? @rename_from("b") }'
    ' node R @rename_from("Q") { t: Blob? }'
    ' edge F: H -> R @rename_from("E") { v: I32? @rename_from("w") @index(v) src2: String? }'
)

SCRIPTS: dict[str, tuple[Step, ...]] = {
    "nothing changes": (apply(BEFORE), apply(f"// a comment\n{BEFORE}"), OPTIMIZE, apply(BEFORE)),
    "not a schema": (apply("node"), apply("node P { a: Int }"), apply("edge E: P -> P"), apply("")),
    "a property and a type": (
        apply(edited(("b: I32?", "b: I32? c: String?")) + " node N { a: I32 }"), load(person("z", c="new")), OPTIMIZE,
        load({"type": "N", "data": {"id": "n", "a": 1}}), apply(BEFORE), load(person("z", c="gone")),
    ),
    "an index alone": (apply(edited(("a: I32?", "a: I32? @index"))), {"do": "ensure_indices"}, load(person("z"))),
    "words alone": (apply(edited(("node P", 'node P @description("p")'), ("a: I32?", "a: I32? @note"))), REOPEN),
    "what rows cannot follow": tuple(
        apply(edited(change))
        for change in (
            ("b: I32?", "b: I32? c: I32"), ("a: I32?", "a: I64?"), ("a: I32?", "a: I32"), ("-> Q", "-> P @card(0..1)"),
            ("k: String @key", "k: String"), ("a: I32?", "a: I32? @unique"), ("-> Q", "-> Q @card(0..1)"),
            ("-> Q", "-> P"), (" @index(w)", ""),
            ("a: I32? b: I32?", 'b: I32? @rename_from("a")'), ("node Q", 'node Q @rename_from("P")'),
            ("a: I32? b: I32?", 'b: I32? c: I32? @rename_from("a") d: I32? @rename_from("a")'),
            ("a: I32? b: I32?", 'a: I32? b: I32? c: I32? @rename_from("gone")'),
        )
    ),
    "two names swapped, twice": (
        apply(SWAPPED), apply(SWAPPED), load(person("x", a=5, b=6)), apply(BEFORE), apply(SWAPPED), REOPEN,
    ),
    "renamed, and the old name used again": (
        apply(COMPOSED), load(person("x", a="text", c=3)), OPTIMIZE, apply(COMPOSED),
    ),
    "two types swapped": (
        apply(TYPES_SWAPPED), load({"type": "Q", "data": {"k": "x", "a": 9}}), OPTIMIZE, apply(TYPES_SWAPPED),
        BRANCH, load({"type": "P", "data": {"id": "q"}}, branch="one"), MERGE, NO_BRANCH,
    ),
    "everything renamed at once": (
        apply(ALL_RENAMED), apply(ALL_RENAMED), load({"type": "H", "data": {"key": "x", "a": 2}}), OPTIMIZE,
        load({"edge": "F", "from": "y", "to": "r", "data": {"id": "g", "v": 1, "src2": "s"}}), REOPEN,
    ),
    "dropped, and added again": (
        apply("node P { k: String @key b: I32? }"), load(person("x", a=1)), apply(BEFORE), load(person("w", a=1)),
        apply("node P { k: String @key a: I32? b: I32? }"), apply(BEFORE), load({"type": "Q", "data": {"id": "q"}}),
    ),
    "dropped for good": (
        apply(edited(("a: I32?", "")), allow_data_loss=True), load(person("x", b=3)),
        apply("node P { k: String @key b: I32? }", allow_data_loss=True), apply(BEFORE), OPTIMIZE,
    ),
    "a branch stands in the way": (
        BRANCH, apply(edited(("b: I32?", "b: I32? c: I32?"))), apply(BEFORE), load(person("x", a=3), branch="one"),
        MERGE, NO_BRANCH, apply(edited(("b: I32?", "b: I32? c: I32?"))), BRANCH, load(person("y", c=3), branch="one"),
        OPTIMIZE, MERGE,
    ),
}  # fmt: skip


@pytest.mark.requirement(
    "SCH-02", "SCH-03", "SCH-04", "SCH-05", "SCH-06", "SCH-07", "SCH-08", "SCH-09", "SCH-19", "SNP-03", "SNP-04",
    "SNP-06", "SNP-07", "CHG-03", "CHG-04", "LIN-02", "LIN-04", "MAN-07", "LAY-12", "OPT-07",
)  # fmt: skip
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_change_means_the_same(tmp_path: Path, name: str) -> None:
    both = SideBySide(str(tmp_path / "graph"), BEFORE)
    for each in (SETTLED, *SCRIPTS[name]):
        both.step(each)
    both.compare_histories()


# -- sequences ---------------------------------------------------------------------------------------------------


@st.composite
def records(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    """A node or an edge of the schema of now, with ids out of a few."""
    owner = schema.types[draw(st.sampled_from(sorted(schema.types)))]
    data = draw(properties(owner))
    if owner.kind == "edge":
        ends = {"from": draw(st.sampled_from(IDS)), "to": draw(st.sampled_from(IDS))}
        return {"edge": owner.name, **ends, "data": {"id": draw(st.sampled_from(IDS)), **data}}
    return {"type": owner.name, "data": data if owner.key else {"id": draw(st.sampled_from(IDS)), **data}}


@st.composite
def properties(draw: st.DrawFn, owner: Type) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for prop in owner.properties:
        if prop.name in owner.key and prop.scalar == "String":
            data[prop.name] = draw(st.sampled_from(IDS))
        elif prop.scalar == "I32" and not prop.is_list:
            data[prop.name] = draw(st.sampled_from([1, 2, 3] if not prop.nullable else [1, 2, 3, None]))
        elif not prop.nullable or draw(st.integers(0, 3)) == 0:
            data[prop.name] = draw(values(prop))
    return data


@st.composite
def writes(draw: st.DrawFn, schema: Schema) -> Step:
    branch = draw(st.sampled_from(["main", "main", "one"]))
    if not schema.types or draw(st.integers(0, 3)):
        several = draw(st.lists(records(schema), max_size=3)) if schema.types else []
        return {"do": "load", "mode": "merge", "branch": branch, "records": several}
    owner = schema.types[draw(st.sampled_from(sorted(schema.types)))]
    where = {"property": "id", "op": "eq", "value": draw(st.sampled_from(IDS))}
    statement = {"op": "delete", "type" if owner.kind == "node" else "edge": owner.name, "where": where}
    return {"do": "mutate", "branch": branch, "statements": [statement]}


others = st.sampled_from([OPTIMIZE, REOPEN, {"do": "ensure_indices"}, BRANCH, MERGE, NO_BRANCH, NO_BRANCH])


@pytest.mark.requirement(
    "SCH-02", "SCH-03", "SCH-05", "SCH-06", "SCH-07", "SCH-08", "SCH-19", "SNP-03", "SNP-07", "CHG-03", "MRG-01",
)  # fmt: skip
@settings(
    max_examples=int(EXAMPLES or 8),
    derandomize=EXAMPLES is None,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_any_sequence_with_schema_changes_means_the_same(data: st.DataObject) -> None:
    sketches = first_sketches()
    with tempfile.TemporaryDirectory() as directory:
        both = SideBySide(f"{directory}/graph", text_of(sketches))
        for _ in range(data.draw(st.integers(5, 10), "steps")):
            dice = data.draw(st.integers(0, 9), "kind of step")
            if dice > 5:
                candidate = data.draw(changed(sketches))
                step = apply(text_of(candidate), allow_data_loss=data.draw(st.integers(0, 4)) == 0)
                both.step(step)
                sketches = candidate if both.model.schema.ir == _ir(step["source"]) else sketches
            else:
                both.step(data.draw(others if dice == 5 else writes(both.model.schema), "step"))
        both.compare_histories()


def _ir(source: str) -> dict[str, Any] | None:
    try:
        return compile_schema(source)
    except Refusal:
        return None
