"""What a run says of stores at its end: each thing once, and of the right one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from conformance.cli import show
from conformance.runner.interruption import Interruption
from conformance.runner.plugin import RUNNING, STOPPED, _blamed_on_the_store
from conformance.runner.progress import Progression
from conformance.runner.records import PROPERTY, Phase, TestRecord
from conformance.runner.session import Run, RunOptions
from conformance.runner.verdict import judge
from fixtures.stores.catalog import StoreRefused

NAME = "test_rec_held.py::test_x[reference-{store}-core]"


def skipped_on(*stores: str) -> list[str]:
    phase = {"requirements": ("REC-03",), "reason": "an object store has no directories"}
    records = [
        TestRecord(NAME.format(store=name), 0.1, [Phase("skipped", name, **cast(Any, phase))]) for name in stores
    ]
    this = Run(RunOptions(stores=stores), records=records, verdict=judge(records, stores))
    console = Console(record=True, width=300)
    show(this, console)
    return [line.strip() for line in console.export_text().splitlines() if "no directories" in line]


def test_a_reason_is_said_once_with_the_stores() -> None:
    assert skipped_on("moto", "seaweedfs") == ["REC-03: an object store has no directories (on moto, seaweedfs)"]


def test_with_one_store_its_name_adds_nothing() -> None:
    assert skipped_on("moto") == ["REC-03: an object store has no directories"]


def test_a_store_that_dies_in_its_proof_is_not_called_refused() -> None:
    error = StoreRefused("moto", "a GET with Range", "the store did not answer")
    item = SimpleNamespace(config=SimpleNamespace(stash={RUNNING: {}, STOPPED: {}}))
    call = SimpleNamespace(excinfo=SimpleNamespace(value=error))

    phase = _blamed_on_the_store(cast(Any, item), cast(Any, call), Phase("failed", "moto"))

    assert phase.outcome == "store_fault" and phase.because is not None
    assert phase.because.startswith("the store 'moto' broke down: it can do no longer what it could before: a GET with")
    assert "refused" not in phase.because


def test_a_group_that_did_not_come_to_its_end_is_said_with_what_was_done() -> None:
    console = Console(record=True, width=300)
    progression = Progression(console, Interruption(), store="moto")
    names = [f"test_bra_x.py::test_{number}" for number in range(3)]
    progression.pytest_xdist_node_collection_finished(None, names)

    for when in ("call", "teardown"):
        said = [(PROPERTY, Phase("passed", "moto").to_text())]
        report = SimpleNamespace(nodeid=names[0], duration=0.1, failed=False, when=when, user_properties=said)
        progression.pytest_runtest_logreport(cast(pytest.TestReport, report))
    progression.pytest_sessionfinish()

    assert console.export_text().splitlines()[-1] == "BRA    1 of 3 tests on moto: 1 passed"
