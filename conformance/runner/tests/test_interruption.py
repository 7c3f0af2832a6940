"""A run that somebody ends: what was found until then is kept, nobody is blamed, and what it started ends too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.runner.interruption import Interruption, heard
from conformance.runner.tests.test_whole_runs import ENGINES, TIMEOUT_SECONDS, report_in
from conformance.runner.verdict import INTERRUPTED, judge


def ended(by: str, whom: str, workers: str, report: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """A run in a process group of its own, whose engine has it ended in its first mutation."""
    arguments = ["--engine", f"{ENGINES}:IsToldToEnd", "--suite", "DEL", "--profile", "quick", "--workers", workers]
    # The engine is to find the process of its run, and not that of this test, which may be somebody's worker.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
    return subprocess.run(
        [sys.executable, "-m", "conformance", "run", *arguments, "--report", str(report), *more],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env={**inherited, "COLUMNS": "300", "LANCE_LOG": "error", "ENDED_BY": by, "ENDED_WITH": whom},
        start_new_session=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("by", "whom", "workers"),
    [
        ("SIGTERM", "run", "1"),
        ("SIGINT", "run", "1"),
        ("SIGTERM", "group", "1"),
        ("SIGTERM", "run", "2"),
        ("SIGTERM", "group", "2"),
        pytest.param("SIGINT", "group", "2", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_ended_is_interrupted_and_blames_nobody(by: str, whom: str, workers: str, tmp_path: Path) -> None:
    done = ended(by, whom, workers, tmp_path)

    report = report_in(tmp_path)
    assert (done.returncode, report["verdict"]) == (INTERRUPTED, "interrupted"), done.stdout + done.stderr
    assert done.stdout.splitlines()[-2].startswith("interrupted: the run was ended after ")
    assert report["faults"] == [] and report["summary"]["requirements"]["failed"] == 0
    assert {test["outcome"] for test in report["tests"]} <= {"passed", "unsupported", "skipped"}
    assert "Traceback" not in done.stdout + done.stderr and "INTERNALERROR" not in done.stdout + done.stderr


@pytest.mark.s3
def test_after_a_store_on_which_a_run_was_ended_no_other_is_tried(tmp_path: Path) -> None:
    done = ended("SIGTERM", "run", "1", tmp_path, "--store", "moto", "--store", "local")

    report = report_in(tmp_path)
    assert done.returncode == INTERRUPTED, done.stdout + done.stderr
    assert {test["store"] for test in report["tests"]} <= {"moto"}


def test_what_is_told_twice_at_once_is_told_once() -> None:
    with heard() as interruption:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    assert interruption.came


def test_who_insists_ends_the_end() -> None:
    interruption = Interruption(told_at=0.0)

    with pytest.raises(KeyboardInterrupt):
        interruption.hear()


def test_an_interrupted_run_is_no_other_verdict_whatever_was_found() -> None:
    fault = {"test": None, "store": "moto", "message": "the store 'moto' broke down", "stderr": ""}

    verdict = judge([], ["moto"], [], [fault], interrupted=True)

    assert (verdict.exit_code, verdict.name) == (130, "interrupted")
