"""A plugin for pytest that takes the stores of a run away, at a place that is named as `module.function`.

touchstone run … -- -p conformance.runner.tests.ends_stores --end-stores-at failpoints.cuts.sweep.judged
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

from conformance.runner.tests.engines import end_stores


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--end-stores-at", help="Kill every S3 server of this process whenever this is called.")
    parser.addoption("--start-nothing-at", help="Have every call of this fail as if the machine had no memory left.")


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    for option, happens in (("--end-stores-at", end_stores), ("--start-nothing-at", have_no_memory)):
        if config.getoption(option) is not None:
            happens_at(patch, config.getoption(option), happens)


def happens_at(patch: pytest.MonkeyPatch, place: str, happens: Callable[[], object]) -> list[str]:
    """Have something happen whenever a function is called, just before it runs; the list says how often it did."""
    right, met = pkgutil.resolve_name(place), list[str]()

    def changed(*args: Any, **options: Any) -> Any:
        met.append(place)
        happens()
        return right(*args, **options)

    patch.setattr(place, changed)
    return met


def have_no_memory() -> None:
    raise MemoryError("there is none left")
