"""Is this a report? The shape is in `report.schema.json`; what a shape cannot say is checked here.

A report that contradicts itself is refused, because everything made from it would repeat one half of the
contradiction: counts that are not those of the lists, a green verdict over a broken `must`, an id that no entry has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from conformance.report.words import COUNTED_AS

SCHEMA_FILE: Final = Path(__file__).parent / "report.schema.json"
_MESSAGE_LENGTH_MAX: Final = 300


class ReportRefused(ValueError):
    """A record of a run that is no report: the place in it, and what is wrong there."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}; the runner has to write what report.schema.json describes")
        self.place = place
        self.problem = problem


def check_report(report: object) -> None:
    """Refuse what is no report, or contradicts itself."""
    errors = sorted(_validator().iter_errors(report), key=lambda error: list(map(str, error.absolute_path)))
    if errors:
        raise ReportRefused(_place(errors[0].absolute_path), _shortened(errors[0].message))
    assert isinstance(report, Mapping)
    for place, problem in _contradictions(report):
        raise ReportRefused(place, problem)


@cache
def report_schema() -> dict[str, Any]:
    """The JSON Schema of a report."""
    body: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return body


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(report_schema())


def _place(path: Iterable[object]) -> str:
    return "report" + "".join(f"[{step!r}]" for step in path)


def _shortened(message: str) -> str:
    return message if len(message) <= _MESSAGE_LENGTH_MAX else f"{message[:_MESSAGE_LENGTH_MAX]} …"


def _contradictions(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _numbers_that_json_lacks(report)
    yield from _names(report)
    yield from _counts(report)
    yield from _verdict(report)


def _numbers_that_json_lacks(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        json.dumps(report, allow_nan=False)
    except (TypeError, ValueError) as error:
        yield "report", f"it cannot be written as JSON, {error}"


def _names(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    stores = [store["name"] for store in report["stores"]]
    ids = [requirement["id"] for requirement in report["requirements"]]
    for what, names in (("stores", stores), ("requirements", ids)):
        yield from ((_place([what]), f"{name!r} is there twice") for name, n in Counter(names).items() if n > 1)
    for index, requirement in enumerate(report["requirements"]):
        if requirement["group"] != requirement["id"].partition("-")[0]:
            yield _place(["requirements", index, "group"]), f"the group of {requirement['id']} is another one"
        for name in requirement["stores"].keys() - set(stores):
            yield _place(["requirements", index, "stores"]), f"{name!r} is not one of the stores"
    for index, row in enumerate(report["parity"]):
        for name in row["answers"].keys() - set(stores):
            yield _place(["parity", index, "answers"]), f"{name!r} is not one of the stores"
    for index, test in enumerate(report["tests"]):
        if test["store"] not in (None, *stores):
            yield _place(["tests", index, "store"]), f"{test['store']!r} is not one of the stores"
        for field in ("requirements", "broke"):
            for unknown in sorted(set(test[field]) - set(ids)):
                yield _place(["tests", index, field]), f"{unknown} is not one of the requirements"


def _counts(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for what in ("requirements", "tests"):
        counted = Counter(COUNTED_AS.get(each["outcome"], each["outcome"]) for each in report[what])
        counted["total"] = len(report[what])
        for name, said in report["summary"][what].items():
            if said != counted[name]:
                yield _place(["summary", what, name]), f"it says {said}, and the list has {counted[name]}"


def _verdict(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    conforms = report["verdict"] == "conforms"
    if conforms != (report["exit_code"] == 0):
        yield "report['exit_code']", f"it is {report['exit_code']}, and the verdict is {report['verdict']!r}"
    if conforms:
        broken = [
            each["id"] for each in report["requirements"] if (each["level"], each["outcome"]) == ("must", "failed")
        ]
        if broken:
            yield "report['verdict']", f"it is 'conforms', and {broken[0]} failed"
        tests = report["summary"]["tests"]
        if report["faults"] or tests["faults"] or tests["store_faults"]:
            yield "report['verdict']", "it is 'conforms', and the adapter had a fault, or a store"
