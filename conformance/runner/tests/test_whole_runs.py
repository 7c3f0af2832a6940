"""Whole runs through the command line: what an engine's author sees, and what their CI gets as an exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.report import check_report
from cost_budgets.budgets import read_budgets

ENGINES = "python:conformance.runner.tests.engines"
BROKEN_DRIVERS = Path(__file__).parents[3] / "fixtures" / "drivers" / "broken"
TIMEOUT_SECONDS = 300


def touchstone(*args: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, wide enough that no line is broken; its tests in no further ones."""
    if args[0] == "run" and "--workers" not in args:
        args = (*args, "--workers", "1")
    environment = {**os.environ, "COLUMNS": "300", "LANCE_LOG": "error"}
    return subprocess.run(
        [sys.executable, "-m", "conformance", *args],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env=environment,
        check=False,
    )


def report_in(directory: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    check_report(body)
    return body


def test_a_broken_engine_fails_with_a_trace_that_fails_on_it_and_holds_on_the_reference(tmp_path: Path) -> None:
    done = touchstone(
        "run", "--engine", f"{ENGINES}:Miscounts", "--suite", "DEL", "--profile", "quick", "--report", str(tmp_path)
    )

    report = report_in(tmp_path)
    assert (done.returncode, report["verdict"], report["exit_code"]) == (1, "fails", 1), done.stdout + done.stderr
    assert "because" in done.stdout and "fails" in done.stdout
    failed = next(test for test in report["tests"] if test["outcome"] == "failed" and test["broke"])
    trace = tmp_path / failed["trace"]
    assert json.loads(trace.read_text(encoding="utf-8"))["because"] == failed["because"]
    again = touchstone("replay", str(trace), "--engine", f"{ENGINES}:Miscounts")
    assert again.returncode == 1 and "because" in again.stdout, again.stdout + again.stderr
    sound = touchstone("replay", str(trace), "--engine", f"{ENGINES}:Sound")
    assert sound.returncode == 0 and "holds" in sound.stdout, sound.stdout + sound.stderr


def test_a_sound_engine_conforms_and_every_file_of_the_report_is_there(tmp_path: Path) -> None:
    done = touchstone(
        "run", "--engine", f"{ENGINES}:Sound", "--suite", "EXP", "--profile", "quick", "--report", str(tmp_path)
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert {"report.json", "index.html", "badge.svg", "junit.xml"} <= {path.name for path in tmp_path.iterdir()}
    assert report_in(tmp_path)["verdict"] == "conforms"


def test_a_selection_without_tests_is_no_success() -> None:
    done = touchstone("run", "--suite", "SRV", "--profile", "quick")

    assert done.returncode == 4, done.stdout + done.stderr
    assert "nothing tested" in done.stdout


def test_who_selects_what_is_measured_and_not_tested_is_told_the_command(tmp_path: Path) -> None:
    done = touchstone("run", "--suite", "COST", "--profile", "quick", "--report", str(tmp_path))

    assert done.returncode == 4, done.stdout + done.stderr
    assert "COST-01 to COST-09 have no tests: `touchstone cost` measures them, against budgets" in done.stdout
    (row,) = (row for row in report_in(tmp_path)["requirements"] if row["id"] == "COST-06")
    assert row["budgets"] == [name for name, budget in read_budgets().items() if "COST-06" in budget.guards]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert f"budgets: {', '.join(row['budgets'])}</span>" in page


def test_what_an_engine_does_not_offer_is_said_loudly_and_is_no_success(tmp_path: Path) -> None:
    done = touchstone(
        "run", "--engine", f"{ENGINES}:HasNoBranches", "--suite", "MRG", "--profile", "quick", "--report", str(tmp_path)
    )

    assert done.returncode == 4, done.stdout + done.stderr
    assert "unsupported: " in done.stdout and "MRG-01" in done.stdout
    assert report_in(tmp_path)["summary"]["requirements"]["passed"] == 0


def test_an_engine_that_does_not_do_what_it_declares_fails() -> None:
    done = touchstone("run", "--engine", f"{ENGINES}:DodgesMerges", "--suite", "MRG", "--profile", "quick")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "or what it said that it has" in done.stdout


@pytest.mark.parametrize(("engine", "outcome"), [("SaysLess", "failed"), ("SaysWhatItLacks", "unsupported")])
def test_a_form_of_an_operation_that_an_engine_lacks_fails_unless_it_says_so(
    engine: str, outcome: str, tmp_path: Path
) -> None:
    chosen = ("--suite", "EXP", "--report", str(tmp_path), "--", "-k", "of_one_branch_and_writes_nothing")

    touchstone("run", "--workers", "1", "--engine", f"{ENGINES}:{engine}", *chosen)

    assert {test["outcome"] for test in report_in(tmp_path)["tests"]} == {outcome}


def test_known_failures_are_run_and_a_stale_one_fails_the_run_by_name(tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("EXP-02 it sorts by chance\n", encoding="utf-8")

    stale = touchstone("run", "--suite", "EXP", "--known-failing", str(known))

    assert stale.returncode == 5, stale.stdout + stale.stderr
    assert "EXP-02" in stale.stdout.splitlines()[-1]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_true_line_is_not_stale_because_the_tests_that_fail_were_not_selected(workers: str, tmp_path: Path) -> None:
    """One test of RPR names SCH-08 as well, and passes; what this engine breaks is looked at by those of SCH."""
    known = tmp_path / "known.txt"
    known.write_text("SCH-08 it builds no cities\n", encoding="utf-8")

    done = touchstone(
        "run", "--engine", f"{ENGINES}:BuildsNoCities", "--suite", "RPR", "--known-failing", str(known),
        "--workers", workers, "--report", str(tmp_path / "report"),
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "not run known failure, line 1: SCH-08" in done.stdout
    report = report_in(tmp_path / "report")
    (row,) = (row for row in report["requirements"] if row["id"] == "SCH-08")
    assert (row["outcome"], report["known_failing"]["lines"][0]["state"]) == ("passed", "not_run")


@pytest.mark.parametrize(
    "driver", ["garbage", "dies_mid_request", "out_of_order", "prints_to_stdout", "hangs", "not_an_answer"]
)
def test_a_driver_that_breaks_down_is_a_fault_and_never_a_verdict(driver: str, tmp_path: Path) -> None:
    command = f"cmd:{sys.executable} {BROKEN_DRIVERS / driver}.py"

    done = touchstone("run", "--engine", command, "--timeout", "3", "--suite", "EXP", "--report", str(tmp_path))

    report = report_in(tmp_path)
    assert (done.returncode, report["verdict"]) == (3, "could_not_run"), done.stdout + done.stderr
    assert report["faults"] and report["summary"]["requirements"]["failed"] == 0
    assert "adapter" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--engine", "banana"], "banana"),
        (["--engine", "cmd:"], "cmd:"),
        (["--store", "floppy"], "there is no store 'floppy'"),
        (["--suite", "XYZ"], "there is no suite 'XYZ'"),
        (["--profile", "eternal"], "there is no profile 'eternal'"),
        (["--known-failing", "no/such/file"], "cannot be read"),
        (["--peer", "banana"], "banana"),
        (["--peer", "reference", "--suite", "LOD"], "--peer takes turns in random sequences"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_words(args: list[str], words: str) -> None:
    done = touchstone("run", *args)

    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr


def test_a_random_sequence_finds_what_optimize_loses_and_cuts_it_down(tmp_path: Path) -> None:
    done = touchstone(
        "run", "--engine", f"{ENGINES}:ForgetsOnOptimize", "--suite", "SEQ", "--seed", "2", "--report", str(tmp_path)
    )

    failed = [test for test in report_in(tmp_path)["tests"] if test["outcome"] == "failed"]
    assert done.returncode == 1 and failed, done.stdout + done.stderr
    trace = json.loads((tmp_path / failed[0]["trace"]).read_text(encoding="utf-8"))
    assert trace["kind"] == "sequence" and trace["steps"][-1]["do"] == "optimize"
    assert len(trace["steps"]) <= 3, "two steps are enough: a row, and optimize"
    again = touchstone("replay", str(tmp_path / failed[0]["trace"]), "--engine", f"{ENGINES}:ForgetsOnOptimize")
    assert again.returncode == 1 and "because" in again.stdout, again.stdout + again.stderr


def test_two_engines_take_turns_in_random_sequences_and_the_trace_names_both(tmp_path: Path) -> None:
    bad = f"{ENGINES}:ForgetsOnOptimize"
    done = touchstone("run", "--peer", bad, "--suite", "sequences", "--seed", "2", "--report", str(tmp_path))

    failed = [test for test in report_in(tmp_path)["tests"] if test["outcome"] == "failed"]
    assert done.returncode == 1 and failed, done.stdout + done.stderr
    trace = tmp_path / failed[0]["trace"]
    assert json.loads(trace.read_text(encoding="utf-8"))["peer"] == bad
    again = touchstone("replay", str(trace), "--peer", bad)
    alone = touchstone("replay", str(trace))
    assert (again.returncode, alone.returncode) == (1, 0), again.stdout + alone.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: it runs the example driver")
def test_the_example_driver_breaks_what_its_list_says_and_nothing_else(tmp_path: Path) -> None:
    driver = BROKEN_DRIVERS.parent / "node"
    engine = f"cmd:node {driver / 'driver.mjs'}"

    known = touchstone(
        "run", "--engine", engine, "--known-failing", str(driver / "known-failing.txt"), "--report", str(tmp_path)
    )

    assert known.returncode == 0, known.stdout + known.stderr
    report = report_in(tmp_path)
    assert {line["state"] for line in report["known_failing"]["lines"]} == {"failed"}


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: it runs the example driver")
def test_the_example_driver_fails_without_its_list_and_with_it_nothing_of_a_suite_is_left_that_holds() -> None:
    driver = BROKEN_DRIVERS.parent / "node"
    chosen = ("run", "--engine", f"cmd:node {driver / 'driver.mjs'}", "--suite", "LOD", "--profile", "quick")

    codes = [
        touchstone(*chosen, *more).returncode for more in ((), ("--known-failing", str(driver / "known-failing.txt")))
    ]

    assert codes == [1, 4]


def test_a_report_that_cannot_be_written_is_a_mistake_of_the_request(tmp_path: Path) -> None:
    in_the_way = tmp_path / "report"
    in_the_way.write_text("a file", encoding="utf-8")

    done = touchstone("run", "--suite", "RPR", "--report", str(in_the_way))

    assert (done.returncode, in_the_way.read_text(encoding="utf-8")) == (2, "a file"), done.stdout + done.stderr
    assert "the report cannot be written" in done.stderr


def test_a_known_failure_of_a_test_that_does_not_exist_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("test_nope.py::test_x it never was\n", encoding="utf-8")

    done = touchstone("run", "--suite", "RPR", "--known-failing", str(known))

    assert done.returncode == 2 and "line 1: there is no test 'test_nope.py::test_x'" in done.stderr
    assert "tests:" not in done.stdout
