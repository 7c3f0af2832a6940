"""The record of a run: what the schema takes, what it refuses with the place, and which contradictions it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from conformance.report import ReportRefused, check_report, report_schema
from conformance.report.tests.sample import SAMPLES, failing, small

Record = dict[str, Any]
Change = Callable[[Record], object]


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_every_kind_of_run_is_a_report(sample: Callable[[], Record]) -> None:
    check_report(sample())


def test_the_schema_is_one_and_every_object_in_it_is_closed() -> None:
    Draft202012Validator.check_schema(report_schema())

    def objects(node: object) -> list[Record]:
        if isinstance(node, dict):
            own = [node] if node.get("type") == "object" else []
            return own + [one for value in node.values() for one in objects(value)]
        return [one for value in node for one in objects(value)] if isinstance(node, list) else []

    found = objects(report_schema())
    assert len(found) > 10
    assert all("additionalProperties" in each for each in found)
    assert all(set(each["required"]) == set(each["properties"]) for each in found if "properties" in each)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda record: record.pop("because"), "report"),
        (lambda record: record.update(extra=1), "report"),
        (lambda record: record.update(format=2), "report['format']"),
        (lambda record: record.update(verdict="great"), "report['verdict']"),
        (lambda record: record.update(exit_code=6), "report['exit_code']"),
        (lambda record: record["run"].update(started_at="yesterday"), "report['run']['started_at']"),
        (lambda record: record["tests"][1].update(outcome="flaky"), "report['tests'][1]['outcome']"),
        (lambda record: record["tests"][0].update(trace="../secrets.json"), "report['tests'][0]['trace']"),
        (lambda record: record["tests"][0].update(trace="traces/../x.json"), "report['tests'][0]['trace']"),
        (lambda record: record["tests"][0].update(trace="javascript:alert(1)"), "report['tests'][0]['trace']"),
        (lambda record: record["requirements"][0].update(id="lay-1"), "report['requirements'][0]['id']"),
        (lambda record: record["faults"].append({"test": None, "message": ""}), "report['faults'][0]"),
        (lambda record: record["parity"].append({"id": "x", "question": "y"}), "report['parity'][0]"),
    ],
)
def test_another_shape_is_refused_with_its_place(change: Change, place: str) -> None:
    record = small()
    change(record)
    with pytest.raises(ReportRefused) as refusal:
        check_report(record)
    assert refusal.value.place == place
    assert place in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda record: record["summary"]["requirements"].update(passed=9), "it says 9, and the list has"),
        (lambda record: record["summary"]["tests"].update(total=1), "it says 1, and the list has"),
        (lambda record: record["summary"]["tests"].update(faults=1), "it says 1, and the list has 0"),
        (lambda record: record["summary"]["tests"].update(store_faults=1), "it says 1, and the list has 0"),
        (
            lambda record: record["parity"].append({"id": "x", "question": "y", "answers": {"attic": "z"}}),
            "'attic' is not one of the stores",
        ),
        (lambda record: record["stores"].append(record["stores"][0]), "'local' is there twice"),
        (lambda record: record["requirements"].append(record["requirements"][0]), "'LAY-01' is there twice"),
        (lambda record: record["requirements"][0].update(group="PUB"), "the group of LAY-01 is another one"),
        (lambda record: record["tests"][0].update(store="attic"), "'attic' is not one of the stores"),
        (lambda record: record["tests"][0].update(broke=["ZZZ-99"]), "ZZZ-99 is not one of the requirements"),
        (lambda record: record["run"].update(seconds=float("nan")), "it cannot be written as JSON"),
        (lambda record: record.update(exit_code=1), "it is 1, and the verdict is 'conforms'"),
        (lambda record: record.update(verdict="fails"), "it is 0, and the verdict is 'fails'"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change: Change, problem: str) -> None:
    record = small()
    change(record)
    with pytest.raises(ReportRefused, match=problem):
        check_report(record)


def test_no_run_conforms_in_which_a_must_failed() -> None:
    record = failing() | {"verdict": "conforms", "exit_code": 0}
    with pytest.raises(ReportRefused, match="it is 'conforms', and LAY-04 failed"):
        check_report(record)


@pytest.mark.parametrize("store", [None, "local"])
def test_no_run_conforms_in_which_the_adapter_or_a_store_had_a_fault(store: str | None) -> None:
    record = small() | {"faults": [{"test": None, "store": store, "message": "It hung.", "stderr": None}]}
    with pytest.raises(ReportRefused, match="the adapter had a fault"):
        check_report(record)


@pytest.mark.parametrize("nothing", [None, [], "report", 1])
def test_what_is_no_object_is_refused(nothing: object) -> None:
    with pytest.raises(ReportRefused, match="^report: "):
        check_report(nothing)


def test_a_refusal_does_not_repeat_a_megabyte() -> None:
    record = small() | {"because": ["x" * 1_000_000]}
    with pytest.raises(ReportRefused) as refusal:
        check_report(record)
    assert len(str(refusal.value)) < 600
