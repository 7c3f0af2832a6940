"""Histories bite: engines that are broken on purpose are caught by a fixed plan, which the reference passes.

Who comes first is chance, so a broken engine may get through a race. It gets a few, each with the same plan; that it
gets through all of them does not happen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from failpoints.histories import Contradiction, Sound, make_plan
from failpoints.histories.history import run_plan
from fixtures.mutants import MUTANTS
from fixtures.stores.catalog import Store, running

RACES_MAX = 6
PLAN = make_plan(processes=4, writes=8, seed=1)


@pytest.fixture(scope="module")
def local() -> Iterator[Store]:
    with running("local") as store:
        yield store


@pytest.mark.parametrize("name", ["retry-with-the-old-parent", "blind-manifest-put", "acknowledge-before-publish"])
def test_a_broken_engine_does_not_get_through(local: Store, name: str) -> None:
    verdicts = (run_plan(f"mutant:{name}", local, PLAN).verdict for _ in range(RACES_MAX))
    caught = next((verdict for verdict in verdicts if isinstance(verdict, Contradiction)), None)
    assert caught is not None, f"{RACES_MAX} races, and {name} was not noticed"
    expected = {*MUTANTS[name].breaks, "PUB-14", "PUB-21"}
    assert set(caught.ids) & expected, f"{name} was caught for another reason: {caught}"
    assert caught.slice, "nothing is shown of how it was noticed"


def test_the_reference_gets_through_the_same_plan(local: Store) -> None:
    verdict = run_plan(f"cmd:{sys.executable} -m reference.cli drive", local, PLAN).verdict
    assert isinstance(verdict, Sound), str(verdict)
