"""Broken requirements, and the steps at which a test proves that one holds.

A test names its requirements with a marker, and shows each of them in a step of its own:

    with proving("LAY-02"):
        assert location == "nodes/40d76f1f51639ec0"

Entering the step is what counts as having tested the requirement: a test that returned early has proved nothing. What
fails inside of it breaks that requirement and no other; what fails elsewhere breaks every requirement of the test that
was not proved by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


class RequirementBroken(AssertionError):
    """The engine does not do what a requirement says: which, and because of what."""

    def __init__(self, ids: tuple[str, ...], because: str) -> None:
        super().__init__(f"{', '.join(ids)}: {because}")
        self.ids = ids
        self.because = because


@dataclass
class Case:
    """One test while it runs: what it names, what it has proved and broken, and what was asked of the engine."""

    name: str
    ids: tuple[str, ...]
    proved: set[str] = field(default_factory=set)
    broke: set[str] = field(default_factory=set)
    operations: list[dict[str, Any]] = field(default_factory=list)
    sequence: dict[str, Any] | None = None

    def blamed(self) -> tuple[str, ...]:
        """What a failure outside of any step breaks: all that is not proved yet, or all if everything is."""
        return tuple(each for each in self.ids if each not in self.proved) or self.ids


_case: Case | None = None


def current_case() -> Case | None:
    """The test that runs now in this process, if one does."""
    return _case


@contextmanager
def running(case: Case) -> Iterator[Case]:
    """The runner's frame around a test."""
    global _case
    before, _case = _case, case
    try:
        yield case
    finally:
        _case = before


@contextmanager
def proving(*ids: str) -> Iterator[None]:
    """The step that shows requirements: reached when it is entered, proved when it is left without an error."""
    try:
        yield
    except BaseException:
        if _case is not None:
            _case.broke.update(ids)
        raise
    if _case is not None:
        _case.proved.update(ids)
