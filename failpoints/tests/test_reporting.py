"""What sweeps, races, histories and storms leave for programs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from conformance.cli import app
from conformance.sequences.shrinking import Failure
from failpoints import named
from failpoints.cuts.cell import CellResult
from failpoints.cuts.cut import Cut
from failpoints.gate import GateError
from failpoints.matrix import KILL, Spot, SpotResult
from failpoints.reporting import FaultReport, FaultReportRefused, SoFar, Wrong, read_fault_report
from failpoints.storms.storm import StormResult
from failpoints.tests.test_commands import Idle
from failpoints.tests.test_dead_stores import Mortal
from failpoints.workshop import StoreBrokeDown, SweepBroken, UnfitStore, WorkerFailed, swept_in_processes
from fixtures.stores.moto import StoreUnavailable

SPOT = Spot("insert", "recovery.sidecar_write", KILL)
CUT = Cut("applied", 1, "PUT sidecar")
LOST = CellResult("insert", CUT, wrong=(("REC-05",), "a row is lost"))


def touchstone(*args: str) -> Result:
    return CliRunner().invoke(app, [*args], env={"COLUMNS": "250"})


def kept(folder: Path, **more: Any) -> FaultReport:
    return FaultReport(folder, "sweep", more.pop("engine", "reference"), None, "moto", ["--writer", "insert"], **more)


def written(folder: Path, code: int = 0, **more: Any) -> dict[str, Any]:
    """What a sweep that comes to its end with this exit code leaves."""
    with suppress(typer.Exit), kept(folder, **more) as report:
        report.whole = True
        raise typer.Exit(code)
    return read_fault_report(folder / "sweep.json")


@pytest.mark.s3
def test_a_sweep_leaves_its_counts_and_whatever_was_wrong(tmp_path: Path) -> None:
    engine = "mutant:branch-create-lost-answer-is-an-error"
    command = ["sweep", "--engine", engine, "--writer", "branch-create", "--double", "none"]

    done = touchstone(*command, "--jobs", "1", "--traces", str(tmp_path / "traces"), "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "sweep.json")
    assert (body["exit_code"], body["ended"]) == (done.exit_code, "wrong") == (1, "wrong")
    assert body["whole"] is True
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
    assert {(body["ended"], body["whole"]) for body in found.values()} == {("holds", True)}
    assert found["race"]["tried"] == found["race"]["counts"]["insert-insert-tables"]["schedules"] == 4
    assert found["history"]["tried"] == 4 >= found["history"]["counts"]["writes"]["acknowledged"] > 0
    assert found["storm"]["tried"] >= 4
    assert sum(found["storm"]["counts"]["endings"].values()) > 0


def test_named_failpoints_leave_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SpotResult(SPOT, True, "x", wrong=(("REC-05",), "a row is lost"))
    monkeypatch.setattr(named, "Crew", Idle)
    monkeypatch.setattr(named, "sweep", lambda crew, subjects: (each for each in [wrong, SpotResult(SPOT, False, "x")]))

    touchstone("sweep", "--failpoints", "--store", "local", "--writer", "mutate", "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "sweep.json")
    assert body["counts"] == {"insert": {"spots": 2, "reached": 1, "wrong": 1}} and body["tried"] == 1
    assert body["wrong"] == [{"where": str(SPOT), "broke": ["REC-05"], "because": "a row is lost"}]


# -- what ends a command in the middle ---------------------------------------------------------------------------------


@pytest.fixture
def no_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was never done cannot be told as a trace."""
    monkeypatch.setattr("failpoints.commands.keep_trace", lambda *_, **__: None)


def interrupted() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def told_to_end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def raised(error: Exception) -> Callable[[], None]:
    def happens() -> None:
        raise error

    return happens


def found_then(results: Sequence[Any], happens: Callable[[], None]) -> Callable[..., Iterator[Any]]:
    """A sweep that finds all of this; then something happens."""

    def sweep(*_: Any, **__: Any) -> Iterator[Any]:
        yield from results
        happens()

    return sweep


ENDINGS = {
    "the store is gone": (raised(StoreBrokeDown("moto", "it does not answer")), 3, "could not run"),
    "the gate": (raised(GateError("no port is left")), 3, "could not run"),
    "a worker": (raised(SweepBroken("a process of the sweep ended with -9 before its work")), 3, "could not run"),
    "a store is missing": (raised(StoreUnavailable("no server")), 4, "nothing was tried"),
    "an unfit store": (raised(UnfitStore("it has no requests")), 2, "could not run"),
    "Ctrl-C": (interrupted, 1, "wrong"),
    "SIGTERM": (told_to_end, 1, "wrong"),
}


@pytest.mark.usefixtures("no_traces")
@pytest.mark.parametrize(("happens", "code", "ended"), ENDINGS.values(), ids=ENDINGS)
def test_what_ends_a_sweep_takes_nothing_back_that_was_found(
    happens: Callable[[], None], code: int, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("failpoints.cuts.sweep.sweep", found_then([LOST], happens))

    done = touchstone("sweep", "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "sweep.json")
    assert (body["exit_code"], body["ended"]) == (done.exit_code, ended) == (code, ended), done.output
    assert body["whole"] is False
    assert (body["tried"], body["counts"]["insert"]["wrong"]) == (1, 1)
    assert [(each["broke"], each["because"]) for each in body["wrong"]] == [(["REC-05"], "a row is lost")]


def test_a_sweep_that_is_interrupted_before_anything_is_wrong_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("failpoints.cuts.sweep.sweep", found_then([CellResult("insert", CUT)], interrupted))

    done = touchstone("sweep", "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "sweep.json")
    assert (body["exit_code"], body["ended"]) == (done.exit_code, "interrupted") == (130, "interrupted")
    assert (body["whole"], body["tried"], body["wrong"]) == (False, 1, [])


@pytest.mark.usefixtures("no_traces")
def test_a_mistake_of_the_kit_in_the_middle_of_a_sweep_is_no_verdict_and_keeps_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("failpoints.cuts.sweep.sweep", found_then([LOST], raised(WorkerFailed("KeyError"))))

    touchstone("sweep", "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "sweep.json")
    assert (body["exit_code"], body["ended"], body["whole"], len(body["wrong"])) == (3, "could not run", False, 1)


@pytest.mark.usefixtures("no_traces")
@pytest.mark.s3
def test_a_store_that_dies_after_a_wrong_cell_leaves_that_cell_and_accuses_of_nothing_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mortal = Mortal()
    monkeypatch.setattr("failpoints.workshop.running", mortal.running)
    since = CellResult("insert", Cut("ack"), wrong=(("REC-18",), "an open is refused"))

    def trial(*_: Any) -> Iterator[CellResult]:
        yield LOST
        mortal.end()
        yield since

    def sweep(*_: Any, **__: Any) -> Iterator[Any]:
        return swept_in_processes(trial, ["a task"], engine="cmd:true", store="moto", jobs=1, timeout_seconds=60.0)  # type: ignore[arg-type]

    monkeypatch.setattr("failpoints.cuts.sweep.sweep", sweep)

    done = touchstone("sweep", "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "sweep.json")
    assert "the store 'moto' broke down" in done.output
    assert (body["exit_code"], body["whole"]) == (done.exit_code, False) == (3, False)
    assert [each["broke"] for each in body["wrong"]] == [["REC-05"]] and body["tried"] == 1


def test_named_failpoints_that_end_in_the_middle_leave_what_they_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = SpotResult(SPOT, True, "x", wrong=(("REC-05",), "a row is lost"))
    monkeypatch.setattr(named, "Crew", Idle)
    monkeypatch.setattr(named, "sweep", found_then([wrong], raised(GateError("no port is left"))))

    done = touchstone("sweep", "--failpoints", "--store", "local", "--writer", "mutate", "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "sweep.json")
    assert (body["exit_code"], body["whole"]) == (done.exit_code, False) == (3, False)
    assert [each["broke"] for each in body["wrong"]] == [["REC-05"]] and body["tried"] == 1


@pytest.mark.usefixtures("no_traces")
@pytest.mark.parametrize(
    ("has_failed", "happens", "code"),
    [(True, interrupted, 1), (False, interrupted, 130), (True, raised(GateError("no")), 3)],
    ids=["while it is shortened", "before anything failed", "the gate"],
)
def test_a_storm_that_ends_in_the_middle_leaves_what_was_played_and_how_it_failed(
    has_failed: bool, happens: Callable[[], None], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_graph(bench: Any, store: Any, result: StormResult, *_: Any) -> None:
        result.operations += 7
        result.endings["acknowledged"] += 7
        if has_failed:
            result.failure = Failure(({"do": "open"},), ("REC-05",), "a row is lost")
        happens()

    monkeypatch.setattr("failpoints.workshop.workshop", lambda *_, **__: nullcontext((None, None)))
    monkeypatch.setattr("failpoints.storms.storm._one_graph", one_graph)

    done = touchstone("storm", "--seed", "3", "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "storm.json")
    assert (body["exit_code"], body["whole"]) == (done.exit_code, False) == (code, False), done.output
    assert body["tried"] == 7 == body["counts"]["endings"]["acknowledged"]
    assert [each["where"] for each in body["wrong"]] == ["seed 3"] * has_failed


def test_a_history_that_is_interrupted_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixtures.stores.catalog.running", lambda *_: nullcontext())
    monkeypatch.setattr("failpoints.histories.history.run_history", lambda *_, **__: interrupted())

    done = touchstone("race", "--processes", "2", "--report", str(tmp_path))

    body = read_fault_report(tmp_path / "history.json")
    assert (body["exit_code"], body["ended"], body["whole"]) == (done.exit_code, "interrupted", False)


@pytest.mark.parametrize("command", ["sweep", "race", "storm"])
def test_a_report_that_cannot_be_written_is_said_before_anything_is_tried(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = touchstone(command, "--engine", "cmd:./no-driver", "--report", str(tmp_path / "file"))

    assert done.exit_code == 2 and "is a file, not a folder" in " ".join(done.stderr.split())


def test_no_old_success_outlives_a_command_that_could_not_run(tmp_path: Path) -> None:
    assert written(tmp_path)["ended"] == "holds"

    done = touchstone(
        "sweep", "--engine", "cmd:./no-driver", "--writer", "insert", "--jobs", "1", "--report", str(tmp_path)
    )

    assert done.exit_code == 3
    assert read_fault_report(tmp_path / "sweep.json")["ended"] == "could not run"


def test_secrets_stay_out_of_it(tmp_path: Path) -> None:
    wrong = Wrong("insert", ("REC-05",), "PUT https://ann:hush@store/x was refused")
    engine = "cmd:./driver --url https://ann:hush@store"

    written(tmp_path, 1, engine=engine, so_far=lambda: SoFar(1, wrong=[wrong]))

    text = (tmp_path / "sweep.json").read_text(encoding="utf-8")
    assert "hush" not in text and "REC-05" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "report['format']"),
        ({"tried": -1}, "report['tried']"),
        ({"whole": "yes"}, "report['whole']"),
        ({"exit_code": 3}, "report['exit_code']"),
        ({"more": 1}, ""),
        ({"wrong": [{"where": "x", "because": "y", "broke": []}]}, "report['wrong'][0]['broke']"),
        ({"counts": {"insert": {"cells": "x"}}}, "report['counts']['insert']['cells']"),
    ],
)
def test_what_is_no_report_of_faults_is_refused_by_its_place(change: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({**written(tmp_path), **change}), encoding="utf-8")

    with pytest.raises(FaultReportRefused) as refused:
        read_fault_report(path)

    assert str(refused.value).startswith(f"{path}: {words or 'report: Additional properties'}")


@pytest.mark.parametrize("field", ["whole", "exit_code", "tried", "wrong"])
def test_what_lacks_a_field_is_no_report_of_faults(field: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({k: v for k, v in written(tmp_path).items() if k != field}), encoding="utf-8")

    with pytest.raises(FaultReportRefused, match=field):
        read_fault_report(path)


@pytest.mark.parametrize("text", ["", "[", "\xff", "[" * 100_000, "3"])
def test_what_is_no_json_is_refused_as_well(text: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(FaultReportRefused):
        read_fault_report(path)
