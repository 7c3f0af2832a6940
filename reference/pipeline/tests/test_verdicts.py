"""What is told of a load that goes wrong everywhere: the engine's error, the first records of each rule, and a count.

The driver of a load of millions must not hold a line for each of them to say that the first is wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reference.errors import BadRequest
from reference.graph import Graph
from reference.operations.load import LoadMode
from reference.pipeline import rejections
from reference.pipeline.findings import Existing, Finding
from reference.pipeline.keys import committed_needs
from reference.pipeline.load import pipeline_load
from reference.pipeline.tests import in_process as in_process_module
from reference.pipeline.tests.in_process import in_process

__all__ = ["in_process"]

SCHEMA = """
node Person { name: String @key  email: String? @unique  age: I32?  @range(age, 0..9) }
edge Knows: Person -> Person @card(0..2)
edge Likes: Person -> Person @card(2..3)
"""
MANY = 40
TOLD = 6


def people(count: int = MANY, **data: Any) -> list[dict[str, Any]]:
    return [{"type": "Person", "data": {"name": f"p{number:02}", **data}} for number in range(count)]


def edges(name: str, pairs: list[tuple[str, str]], **data: Any) -> list[dict[str, Any]]:
    return [{"edge": name, "from": source, "to": target, "data": data} for source, target in pairs]


def stars(name: str, degree: int, ids: str = "") -> list[dict[str, Any]]:
    """Edges from every person to the next few."""
    found = []
    for number in range(MANY):
        for step in range(degree):
            target = f"p{(number + step + 1) % MANY:02}"
            data = {"id": f"{ids}{number:02}-{step}"} if ids else {}
            found.append({"edge": name, "from": f"p{number:02}", "to": target, "data": data})
    return found


def emails(shift: int) -> list[dict[str, Any]]:
    return [
        {"type": "Person", "data": {"name": f"p{number:02}", "email": f"{(number + shift) % MANY}@x"}}
        for number in range(MANY)
    ]


CASES: dict[str, tuple[list[Any], list[Any], LoadMode]] = {
    "the same ids again": (people(), people()[::-1], "append"),
    "every id twice": ([], [*people(), *people()[::-1]], "append"),
    "every value out of range": ([], people(age=99), "append"),
    "every value of a wrong type": ([], people(age="old"), "append"),
    "one email for all": ([], people(email="a@x"), "append"),
    "every email is another's": (
        emails(0),
        [{**each, "data": {**each["data"], "name": f"q{i}"}} for i, each in enumerate(emails(0))],
        "merge",
    ),
    "every edge dangles": (people(1), edges("Knows", [("p00", f"x{n}") for n in range(MANY)][::-1]), "append"),
    "every edge is stranded": ([*people(), *stars("Knows", 1)], people(1), "overwrite"),
    "too many edges everywhere": (people(), stars("Knows", 3), "append"),
    "too many edges after a merge": ([*people(), *stars("Knows", 2, "k")], stars("Knows", 1), "merge"),
    "too few edges after a merge": (
        [*people(), *stars("Likes", 2, "l")],
        [{"edge": "Likes", "from": "p00", "to": "p01", "data": {"id": f"l{n:02}-0"}} for n in range(MANY)],
        "merge",
    ),
}


@pytest.mark.requirement("LOD-11", "VAL-02")
@pytest.mark.parametrize("case", CASES)
def test_a_load_that_is_wrong_everywhere_has_the_engines_error_and_is_told_in_part(
    tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(rejections, "REJECTED_MAX", TOLD)
    content, records, mode = CASES[case]
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    if content:
        graph.load("\n".join(map(json.dumps, content)), mode="append")
    text = "\n".join(map(json.dumps, records))
    (tmp_path / "input.jsonl").write_text(text)
    with pytest.raises(BadRequest) as engine:
        graph.load(text, mode=mode)
    with pytest.raises(BadRequest) as pipeline:
        pipeline_load(graph, str(tmp_path / "input.jsonl"), mode=mode, spark=in_process)
    ours, theirs = ({**each.value.to_json(), "hint": None} for each in (pipeline, engine))
    for made_up in ("row_id", "holder"):
        if str(theirs["details"].get(made_up, "")).startswith("01"):
            for each in (ours, theirs):
                each["message"] = each["message"].replace(each["details"].pop(made_up), "ULID")
    assert ours == theirs
    (kept,) = (tmp_path / "_rejected-input.jsonl").iterdir()
    told = len(kept.read_text().splitlines())
    assert told <= 6 * TOLD and f"the first {told} of" in str(pipeline.value.hint)


@pytest.mark.requirement("LOD-08")
def test_values_that_all_change_hands_are_right_however_few_can_be_told(
    tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejections, "REJECTED_MAX", TOLD)
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    graph.load("\n".join(map(json.dumps, emails(0))), mode="append")
    (tmp_path / "input.jsonl").write_text("\n".join(map(json.dumps, emails(1))))
    pipeline_load(graph, str(tmp_path / "input.jsonl"), mode="merge", spark=in_process)
    assert [row["email"] for row in graph.read("node:Person")][0] == "1@x"


@pytest.mark.requirement("VAL-06")
def test_the_one_value_that_does_not_change_hands_is_found_behind_many_that_do(
    tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejections, "REJECTED_MAX", TOLD)
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    other = {"type": "Person", "data": {"name": "zoe", "email": "zoe@x"}}
    graph.load("\n".join(map(json.dumps, [*emails(0), other])), mode="append")
    taken = {"type": "Person", "data": {"name": "p39", "email": "zoe@x"}}
    text = "\n".join(map(json.dumps, [*emails(1)[:-1], taken]))
    (tmp_path / "input.jsonl").write_text(text)
    with pytest.raises(BadRequest) as engine:
        graph.load(text, mode="merge")
    with pytest.raises(BadRequest) as pipeline:
        pipeline_load(graph, str(tmp_path / "input.jsonl"), mode="merge", spark=in_process)
    assert (pipeline.value.code, pipeline.value.details) == (engine.value.code, engine.value.details)


def test_a_load_may_leave_out_more_than_is_told_of_others(
    tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejections, "REJECTED_MAX", TOLD)
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    records = [*people(), *edges("Knows", [("p00", f"x{n}") for n in range(MANY)])]
    (tmp_path / "input.jsonl").write_text("\n".join(map(json.dumps, records)))
    source = str(tmp_path / "input.jsonl")
    report = pipeline_load(graph, source, mode="append", spark=in_process, max_rejected=MANY)
    assert (report.nodes_loaded, report.edges_loaded, report.rejected) == (MANY, 0, MANY)


def test_no_finding_grows_with_the_input(tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejections, "REJECTED_MAX", TOLD)
    found: list[Finding] = []
    real = in_process_module.KeyedScan.findings

    def findings(self: Any, *arguments: Any) -> list[Finding]:
        found.extend(real(self, *arguments))
        return found

    monkeypatch.setattr(in_process_module.KeyedScan, "findings", findings)
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    graph.load("\n".join(map(json.dumps, people())), mode="append")
    (tmp_path / "input.jsonl").write_text("\n".join(map(json.dumps, people())))
    with pytest.raises(BadRequest):
        pipeline_load(graph, str(tmp_path / "input.jsonl"), mode="append", spark=in_process)
    existing = [each for each in found if isinstance(each, Existing)]
    assert found == existing and all(len(each.positions) <= TOLD // 3 + 1 for each in existing)
    assert sum(each.count for each in existing) == MANY


@pytest.mark.parametrize("with_ids", [True, False])
def test_ids_are_read_only_if_the_input_says_some(
    tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch, with_ids: bool
) -> None:
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA.replace(" @card(0..2)", ""))
    graph.load("\n".join(map(json.dumps, [*people(), *stars("Knows", 1, "k")])), mode="append")
    asked: list[Any] = []

    def needs(*arguments: Any) -> Any:
        asked.append(committed_needs(*arguments))
        return asked[-1]

    monkeypatch.setattr("reference.pipeline.load.committed_needs", needs)
    (tmp_path / "input.jsonl").write_text("\n".join(map(json.dumps, stars("Knows", 1, "n" if with_ids else ""))))
    pipeline_load(graph, str(tmp_path / "input.jsonl"), mode="append", spark=in_process)
    assert [("edge:Knows" in each) for each in asked] == [with_ids]
