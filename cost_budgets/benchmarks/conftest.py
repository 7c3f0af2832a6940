"""Ratios: what a benchmark is for. Each is taken inside one run, because seconds mean nothing on another machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pytest
from _pytest.terminal import TerminalReporter

from reference.pipeline.tests.spark_fixture import spark

__all__ = ["ASSERTED_FROM", "Ratio", "Ratios", "alternating", "ratios", "spark"]


# Below this scale processor time is that of starting something, not of rows, and no ratio of it is held to a budget.
ASSERTED_FROM: Final = 0.2


@dataclass(frozen=True)
class Ratio:
    """One measured ratio, the most it may be, and what it is a ratio of."""

    name: str
    value: float
    budget: float
    of: str


@dataclass
class Ratios:
    """The ratios of this run."""

    found: list[Ratio] = field(default_factory=list)

    def add(self, name: str, value: float, *, budget: float, of: str) -> None:
        self.found.append(Ratio(name, value, budget, of))


_ratios = Ratios()


@pytest.fixture
def ratios() -> Iterator[Ratios]:
    yield _ratios


def alternating(rounds: int, *actions: Callable[[int], object]) -> list[float]:
    """The median seconds of each action, taken in turns, so that a noisy neighbour disturbs all of them alike."""
    seconds: list[list[float]] = [[] for _ in actions]
    for number in range(rounds):
        for action, taken in zip(actions, seconds, strict=True):
            started = time.perf_counter()
            action(number)
            taken.append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in seconds]


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    if not _ratios.found:
        return
    terminalreporter.section("ratios of this run")
    for ratio in _ratios.found:
        verdict = "within" if ratio.value <= ratio.budget else "OVER"
        terminalreporter.write_line(f"{ratio.name}: {ratio.value:.2f} ({verdict} {ratio.budget:g}) of {ratio.of}")
