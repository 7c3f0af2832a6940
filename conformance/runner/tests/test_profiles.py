"""How much a run does, and how somebody asks for more."""

from __future__ import annotations

import pytest

from conformance.runner.profiles import PROFILES
from conformance.runner.session import RunOptions


@pytest.mark.parametrize(("number", "sequences"), [(300, 20), (301, 21), (1, 1), (None, 8)])
def test_so_many_operations_are_as_many_sequences_as_it_takes(number: int | None, sequences: int) -> None:
    assert PROFILES["default"].with_operations(number).sequences == sequences


def test_the_command_that_repeats_a_run_says_how_many_operations_it_had() -> None:
    assert "--operations 300" in RunOptions(operations=300).command()
    assert "--operations" not in RunOptions().command()
