"""Two compilers and two planners that do not know each other agree: on whole schemas, on broken ones, and on changes.

A run without `TOUCHSTONE_MODEL_EXAMPLES` is the same every time, and with it as long as one likes.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.model import Refusal, compile_schema
from conformance.model.evolution import Plan, plan_evolution
from conformance.model.schema_text import ir_hash, ir_text
from conformance.model.tests.schemas import broken_texts, changed, first_sketches, schema_texts, text_of
from reference import schema as reference
from reference.errors import OmniError
from reference.schema.jsontext import compact_json

EXAMPLES = os.environ.get("TOUCHSTONE_MODEL_EXAMPLES")
SCHEMAS = sorted((Path(__file__).parents[3] / "fixtures" / "schemas").glob("*.pg"))
often = settings(
    max_examples=int(EXAMPLES or 60),
    derandomize=EXAMPLES is None,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def by_reference(source: str) -> tuple[str, str] | str:
    """The compact IR and its hash, or the kind of the refusal."""
    try:
        ir = reference.schema_ir(reference.compile_schema(source))
    except OmniError as error:
        return error.kind
    return compact_json(ir), reference.ir_hash(ir)


def by_model(source: str) -> tuple[str, str] | str:
    try:
        ir = compile_schema(source)
    except Refusal as refusal:
        return refusal.kind
    return ir_text(ir), ir_hash(ir)


def assert_the_same(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of patterns that it may read otherwise one day.
        found = by_reference(source)
    assert by_model(source) == found


@pytest.mark.requirement("SCH-14", "LAY-11")
@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_the_schemas_of_the_fixtures_compile_to_the_same_bytes(path: Path) -> None:
    assert_the_same(path.read_text(encoding="utf-8"))


@pytest.mark.requirement("SCH-14", "LAY-11", "VAL-13", "VAL-15")
@often
@given(schema_texts())
def test_any_schema_compiles_to_the_same_bytes_or_is_refused_by_both(source: str) -> None:
    assert_the_same(source)


@pytest.mark.requirement("VAL-13")
@often
@given(broken_texts())
def test_a_broken_text_is_a_schema_to_both_or_to_none(source: str) -> None:
    assert_the_same(source)


@pytest.mark.requirement("SCH-03", "SCH-04", "SCH-05", "SCH-19")
@often
@given(st.data())
def test_any_change_of_a_schema_takes_the_same_steps(data: st.DataObject) -> None:
    before = first_sketches()
    for _ in range(3):
        after = data.draw(changed(before))
        allow_data_loss = data.draw(st.booleans())
        old, new = text_of(before), text_of(after)
        if isinstance(by_model(new), str):
            assert by_reference(new) == by_model(new)
            return
        plan = plan_evolution(compile_schema(old), compile_schema(new), allow_data_loss=allow_data_loss)
        found = reference.plan_migration(
            reference.compile_schema(old), reference.compile_schema(new), allow_data_loss=allow_data_loss
        ).to_json()
        assert plan.supported == found["supported"], f"{old}\nto\n{new}"
        if not plan.supported:
            return
        assert _steps(plan) == found["steps"], f"{old}\nto\n{new}"
        before = after


def _steps(plan: Plan) -> list[dict[str, Any]]:
    return [dict(step) for step in plan.steps]
