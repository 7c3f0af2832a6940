"""What sweeps, races, histories and storms leave for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from conformance.cli import app
from failpoints import named
from failpoints.matrix import KILL, Spot, SpotResult
from failpoints.reporting import FaultReport, FaultReportRefused, Wrong, read_fault_report

SPOT = Spot("insert", "recovery.sidecar_write", KILL)


def touchstone(*args: str) -> Result:
    return CliRunner().invoke(app, [*args], env={"COLUMNS": "250"})


def kept(folder: Path, **more: Any) -> FaultReport:
    return FaultReport(folder, "sweep", more.pop("engine", "reference"), None, "moto", ["--writer", "insert"], **more)


@pytest.mark.s3
def test_a_sweep_leaves_its_counts_and_whatever_was_wrong(tmp_path: Path) -> None:
    engine = "mutant:branch-create-lost-answer-is-an-error"
    command = ["sweep", "--engine", engine, "--writer", "branch-create", "--double", "none"]

    done = touchstone(*command, "--jobs", "1", "--traces", str(tmp_path / "traces"), "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "sweep.json")
    assert (body["exit_code"], body["ended"]) == (done.exit_code, "wrong") == (1, "wrong")
    assert body["command"].split()[1:] == [*command[:3], "--store", "moto", *command[3:]]
    row = body["counts"]["branch-create"]
    assert row["wrong"] == len(body["wrong"]) > 0
    assert f"wrong: {row['wrong']} of {body['tried']} cells" in done.output
    for wrong in body["wrong"]:
        assert f"wrong {wrong['where']}: {', '.join(wrong['broke'])}" in done.output
        assert wrong["because"] in done.output


@pytest.mark.s3
def test_a_race_a_history_and_a_storm_leave_one_each(tmp_path: Path) -> None:
    commands = {
        "race": ["race", "--pairs", "insert-insert-tables", "--limit", "2", "--jobs", "1"],
        "history": ["race", "--processes", "2", "--writes", "2", "--seed", "3"],
        "storm": ["storm", "--seed", "3", "--operations", "4"],
    }

    codes = [touchstone(*each, "--report", str(tmp_path)).exit_code for each in commands.values()]

    found = {name: read_fault_report(tmp_path / f"{name}.json") for name in commands}
    assert codes == [0, 0, 0]
    assert {body["ended"] for body in found.values()} == {"holds"}
    assert found["race"]["tried"] == found["race"]["counts"]["insert-insert-tables"]["schedules"] == 4
    assert found["history"]["tried"] == 4 == found["history"]["counts"]["writes"]["acknowledged"]
    assert found["storm"]["tried"] >= 4
    assert sum(found["storm"]["counts"]["endings"].values()) > 0


def test_named_failpoints_leave_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle:
        def __init__(self, *_: Any) -> None: ...

        def __enter__(self) -> Idle:
            return self

        def __exit__(self, *_: object) -> None: ...

        def can_try(self, subject: object) -> bool:
            return True

    wrong = SpotResult(SPOT, True, "x", wrong=(("REC-05",), "a row is lost"))
    monkeypatch.setattr(named, "Crew", Idle)
    monkeypatch.setattr(named, "sweep", lambda crew, subjects: (each for each in [wrong, SpotResult(SPOT, False, "x")]))

    touchstone("sweep", "--failpoints", "--store", "local", "--writer", "mutate", "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "sweep.json")
    assert body["counts"] == {"insert": {"spots": 2, "reached": 1, "wrong": 1}} and body["tried"] == 1
    assert body["wrong"] == [{"where": str(SPOT), "broke": ["REC-05"], "because": "a row is lost"}]


@pytest.mark.parametrize("command", ["sweep", "race", "storm"])
def test_a_report_that_cannot_be_written_is_said_before_anything_is_tried(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = touchstone(command, "--engine", "cmd:./no-driver", "--report", str(tmp_path / "file"))

    assert done.exit_code == 2 and "is a file, not a folder" in " ".join(done.stderr.split())


def test_no_old_success_outlives_a_command_that_could_not_run(tmp_path: Path) -> None:
    kept(tmp_path).write(0, tried=3, counts={}, seconds=1.0)
    assert read_fault_report(tmp_path / "sweep.json")["ended"] == "holds"

    done = touchstone(
        "sweep", "--engine", "cmd:./no-driver", "--writer", "insert", "--jobs", "1", "--report", str(tmp_path)
    )

    assert done.exit_code == 3
    assert read_fault_report(tmp_path / "sweep.json")["ended"] == "could not run"


def test_secrets_stay_out_of_it(tmp_path: Path) -> None:
    report = kept(tmp_path, engine="cmd:./driver --url https://ann:hush@store")
    report.wrong.append(Wrong("insert", ("REC-05",), "PUT https://ann:hush@store/x was refused"))

    report.write(1, tried=1, counts={}, seconds=1.0)

    text = (tmp_path / "sweep.json").read_text(encoding="utf-8")
    assert "hush" not in text and "REC-05" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "report['format']"),
        ({"tried": -1}, "report['tried']"),
        ({"wrong": [{"where": "x", "because": "y", "broke": []}]}, "report['wrong'][0]['broke']"),
        ({"counts": {"insert": {"cells": "x"}}}, "report['counts']['insert']['cells']"),
    ],
)
def test_what_is_no_report_of_faults_is_refused_by_its_place(change: Any, words: str, tmp_path: Path) -> None:
    kept(tmp_path).write(0, tried=3, counts={}, seconds=1.0)
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}), encoding="utf-8")

    with pytest.raises(FaultReportRefused) as refused:
        read_fault_report(path)

    assert str(refused.value).startswith(f"{path}: {words}")


@pytest.mark.parametrize("text", ["", "[", "\xff", "[" * 100_000, "3"])
def test_what_is_no_json_is_refused_as_well(text: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(FaultReportRefused):
        read_fault_report(path)
