"""`python -m cost_budgets.tripwires`, as a command; what it measures is in test_cost_of_the_reference.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cost_budgets.tripwires import COSTLY


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--help"], 0, "Measure costly engines on moto, and say which budgets each of them broke."),
        (["validates-thrice"], 2, f"there is no costly engine 'validates-thrice'; there are {COSTLY[0]}"),
        (["validates-twice", "reference"], 2, "there is no costly engine 'reference'"),
    ],
)
def test_help_is_help_and_a_mistake_is_one(args: list[str], code: int, words: str) -> None:
    command = [sys.executable, "-m", "cost_budgets.tripwires", *args]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert words in " ".join((ended.stdout + ended.stderr).replace("│", " ").split())
