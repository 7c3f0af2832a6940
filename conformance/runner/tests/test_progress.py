"""What pytest says of a breakdown is told without secrets, and without a part of one, wherever it is cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from conformance.runner.interruption import Interruption
from conformance.runner.progress import Progression

SAID = f"the environment was AWS_SESSION_TOKEN={'hush' * 200}"


@pytest.fixture
def progression() -> Progression:
    return Progression(Console(file=io.StringIO()), Interruption())


def test_the_words_of_a_process_that_broke_down_end_in_no_part_of_a_secret(progression: Progression) -> None:
    report = pytest.TestReport("test_x.py::test_y", ("test_x.py", 1, "test_y"), {}, "failed", SAID, "call")

    progression.pytest_runtest_logreport(report)

    assert [fault["message"] for fault in progression.faults] == [
        "the test process broke down: the environment was AWS_SESSION_TOKEN=…"
    ]


def test_the_words_of_a_suite_that_cannot_be_read_have_no_secret(progression: Progression) -> None:
    progression.pytest_collectreport(pytest.CollectReport("test_x.py", "failed", SAID, None))

    assert progression.collect_errors == ["the environment was AWS_SESSION_TOKEN=…"]
