"""Which tests stand behind each requirement, by asking pytest for the suites without running them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from conformance.registry import Requirement, requirements
from conformance.runner.plugin import FAULTS, SUITES, ids_of, short_name


class SuitesUnreadable(Exception):
    """The suites cannot be collected; the message says why."""


@dataclass(frozen=True)
class Listed:
    """A test of the suites, without its axes."""

    name: str
    requirements: tuple[str, ...]


class _Collector:
    def __init__(self) -> None:
        self.found: list[Listed] = []
        self.errors: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.found = [Listed(short_name(item.nodeid).partition("[")[0], ids_of(item)) for item in session.items]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(str(report.longrepr))


@cache
def listed_tests(*more: str) -> tuple[Listed, ...]:
    """Every test of the suites, each once, sorted by name; those of faults only if `more` options select them."""
    collector = _Collector()
    args = [str(SUITES), "--collect-only", "-c", str(SUITES / "pytest.ini"), "--rootdir", str(SUITES)]
    args += ["-p", "conformance.runner.plugin", "-p", "no:terminal", "-p", "no:cacheprovider"]
    os.environ.setdefault("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    code = pytest.main([*args, "--touchstone-profile", "deep", *more], plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise SuitesUnreadable("; ".join(collector.errors) or f"pytest ended with {pytest.ExitCode(code).name}")
    return tuple(sorted(set(collector.found), key=lambda each: each.name))


def names_of_tests() -> list[str]:
    """Of every test that there is, also of faults, without its axes."""
    return [each.name for each in (*listed_tests(), *listed_tests("--touchstone-suite", FAULTS))]


def by_requirement() -> Mapping[Requirement, Sequence[str]]:
    """For every requirement, in the registry's order, the tests that name it."""
    return {
        requirement: [test.name for test in listed_tests() if requirement.id in test.requirements]
        for requirement in requirements().values()
    }
