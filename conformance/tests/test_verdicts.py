"""The page of a verdict says what the report and the traces say, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from conformance.report.tests import sample
from conformance.verdicts import main, page_of, traces_in

TRACE = Path(__file__).parents[2] / "fixtures" / "traces" / "lost-ack-on-publish.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A report that fails, and one trace."""
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.json").write_text(json.dumps(sample.failing()), encoding="utf-8")
    (tmp_path / "traces").mkdir()
    shutil.copy(TRACE, tmp_path / "traces")
    return tmp_path


def written(folder: Path, *more: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command()(main)
    page = folder / "docs" / "page.md"
    args = [str(folder / "report"), "--traces", str(folder / "traces"), "--into", str(page), *more]
    done = CliRunner().invoke(app, args)
    return done.exit_code, page.read_text(encoding="utf-8") if page.exists() else "", done.stderr


def test_every_requirement_of_the_report_stands_in_exactly_one_part_of_the_page(folder: Path) -> None:
    report = sample.failing()

    code, page, said = written(folder)

    assert code == 0, said
    breaks, _, rest = page.partition("## What holds")
    held, _, silent = rest.partition("## What was not asked")
    for row in report["requirements"]:
        group, _, number = row["id"].partition("-")
        if row["outcome"] in ("failed", "known_failing"):
            assert f"**{row['id']}** " in breaks
        elif row["outcome"] == "passed":
            line = next(line for line in held.splitlines() if line.startswith(f"- {group}:"))
            assert number in line.split()
        else:
            assert row["id"] in silent


def test_a_trace_is_linked_from_the_page_and_can_be_replayed_by_its_command(folder: Path) -> None:
    _, page, _ = written(folder)

    assert "](../traces/lost-ack-on-publish.json)" in page
    assert "touchstone replay" in page and "lost-ack-on-publish.json" in page.rpartition("```sh")[2]


def test_the_words_of_an_engine_are_no_markup(folder: Path) -> None:
    path = folder / "traces" / TRACE.name
    body = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**body, "because": "it said `x`\n# <b>loudly</b>"}), encoding="utf-8")

    page = page_of(sample.failing(), traces_in(folder / "traces", folder / "page.md"), commands=[])

    assert "it said 'x' # ‹b›loudly‹/b›" in page


@pytest.mark.parametrize("by", ["id", "test", "file", "nobody"])
def test_what_the_list_says_stands_beside_what_breaks(by: str) -> None:
    report = sample.failing()
    failed = next(test for test in report["tests"] if test["broke"])
    id_, folder = failed["broke"][0], failed["name"].partition("/")[0]
    names = {"id": id_, "test": failed["name"], "file": f"{folder}/*", "nobody": "other/*"}[by]
    lines = [{"line": 1, "names": names, "reason": "it forgets", "state": "failed"}]

    page = page_of({**report, "known_failing": {"file": "list", "lines": lines}}, [], commands=[])

    row = next(line for line in page.splitlines() if line.startswith(f"**{id_}** "))
    assert row.endswith("*Here: it forgets*") == (by == "id")
    # What a line says of tests is about all of them: what this requirement has met stands beside it.
    assert f"*Here: it forgets; such as: {failed['because'][:15]}" in row or by not in ("test", "file")


def test_with_two_measurements_the_costs_stand_side_by_side(folder: Path) -> None:
    for name, requests in (("theirs", (40, 400)), ("ours", (20, 21))):
        rows = [
            {"operation": "cold-query", "ground": "grown", "variables": {"H": commits}, "requests": number}
            for commits, number in zip((2, 80), requests, strict=True)
        ]
        body = {"engine": name, "measurements": rows}
        (folder / f"{name}.json").write_text(json.dumps(body), encoding="utf-8")

    code, page, said = written(folder, "--cost", str(folder / "theirs.json"), "--reference", str(folder / "ours.json"))

    assert code == 0, said
    assert "| cold-query | grown | 40 at 2, 400 at 80 | 20 at 2, 21 at 80 |" in page
    picture = (folder / "docs" / "page.svg").read_text(encoding="utf-8")
    assert picture.count("<polyline") == 2 and ">400<" in picture and "stroke-dasharray" in picture


def test_what_is_no_report_is_refused_in_words_and_nothing_is_written(folder: Path) -> None:
    (folder / "report" / "report.json").write_text("{}", encoding="utf-8")

    code, page, said = written(folder)

    assert (code, page) == (2, "")
    assert "error:" in said


def fault_report(folder: Path, **more: object) -> Path:
    body = {
        "format": 1, "instrument": "sweep", "command": "touchstone sweep --engine x", "engine": "x", "peer": None,
        "store": "moto", "ended": "wrong", "tried": 9, "noun": "cells", "seconds": 3.0, "counts": {},
        "wrong": [
            {"where": f"insert kill at {number}", "broke": ["REC-05"], "because": "a | row\nis lost"} for number in "12"
        ],
    }  # fmt: skip
    path = folder / "sweep.json"
    path.write_text(json.dumps({**body, **more}), encoding="utf-8")
    return path


def test_what_sweeps_have_left_is_counted_and_grouped_by_what_it_broke(folder: Path) -> None:
    code, page, said = written(folder, "--faults", str(fault_report(folder)))

    assert code == 0, said
    assert "| `touchstone sweep --engine x` | 9 cells | 2 | wrong |" in page
    assert "- 2 × **REC-05**, such as insert kill at 1: a | row is lost" in page
    assert "touchstone sweep --engine x\n" in page.rpartition("```sh")[2]


def test_the_list_says_why_of_faults_as_well(folder: Path) -> None:
    lines = [{"line": 1, "names": "REC-05", "reason": "it forgets", "state": "failed"}]
    fault = json.loads(fault_report(folder).read_text(encoding="utf-8"))

    page = page_of(
        {**sample.failing(), "known_failing": {"file": "list", "lines": lines}}, [], commands=[], faults=[fault]
    )

    assert "- 2 × **REC-05** *it forgets*, such as insert kill at 1" in page


def test_what_is_no_report_of_faults_is_refused_and_nothing_is_written(folder: Path) -> None:
    code, page, said = written(folder, "--faults", str(fault_report(folder, tried="many")))

    assert (code, page) == (2, "") and "report['tried']" in said
