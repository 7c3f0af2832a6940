"""Engines that are built otherwise, or leave what nobody expects: a cell ends with the right verdict on each.

A lawful engine that does what the reference does not is not blamed for it. A broken one that leaves bytes which make
no sense is wrong in that cell, and does not end the sweep.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from conformance.judge import Engine, RequirementBroken
from conformance.model import Model
from failpoints.cuts.cell import CellResult, Crashed, _judge_own_view
from failpoints.cuts.cut import Cut, cuts_of
from failpoints.cuts.sweep import SweptWriter, sweep_init
from failpoints.gate import Exchange
from failpoints.scene import Before, Scene, look
from failpoints.steps import mean
from failpoints.workshop import Bench, bench_at
from failpoints.world import UNKNOWN, Ending
from failpoints.writers import PEOPLE, SCHEMA, WRITERS
from fixtures.forge import Forge
from fixtures.stores.catalog import S3, Store
from fixtures.stores.moto import MotoStore

OPERATION = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture
def place(moto_store: MotoStore) -> Store:
    return Store("moto", moto_store.env, moto_store.fresh_root, lambda uri: None, frozenset({S3}))


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    return tmp_path / "flag"


@contextmanager
def altered(place: Store, name: str, flag: Path) -> Iterator[Bench]:
    module = f"-m failpoints.cuts.tests.altered {name} {shlex.quote(str(flag))}"
    with bench_at(place, f"cmd:{shlex.quote(sys.executable)} {module}") as bench:
        yield bench


def cell_at(bench: Bench, place: Store, flag: Path, writer: str, moment: str, role: str) -> CellResult:
    """The cell at the first request of a role; the engine is altered from then on."""
    swept = SweptWriter.prepared(bench, place, WRITERS[writer], double="none")
    cuts = [cut for cut in cuts_of(swept.count()) if cut.moment == moment and role in cut.request]
    flag.touch()
    (result,) = swept.cell(cuts[0])
    return result


@pytest.mark.s3
def test_a_writer_may_take_its_own_move_back_and_try_again(place: Store, flag: Path) -> None:
    with altered(place, "takes-its-move-back", flag) as bench:
        result = cell_at(bench, place, flag, "insert", "lost", "table version")

    assert not flag.exists(), "it never came to that"
    assert (result.wrong, result.world, result.reached) == (None, "new", True)
    assert "an operation that says RolledBack" in result.scene


@pytest.mark.s3
def test_what_an_engine_keeps_while_a_graph_is_open_is_its_own_affair(place: Store, flag: Path) -> None:
    with altered(place, "keeps-a-lease", flag) as bench:
        result = cell_at(bench, place, flag, "update", "before", "sidecar")

    assert result.wrong is None


@pytest.mark.s3
def test_a_sidecar_that_makes_no_sense_is_a_wrong_cell_and_not_the_end(place: Store, flag: Path) -> None:
    with altered(place, "leaves-an-odd-sidecar", flag) as bench:
        result = cell_at(bench, place, flag, "update", "before", "manifest version")

    assert result.wrong is not None
    assert "a None sidecar" in result.scene


@pytest.mark.s3
def test_an_init_that_refuses_its_own_graph_is_wrong(place: Store, flag: Path) -> None:
    def last_lost(durable: tuple[Exchange, ...]) -> list[Cut]:
        flag.touch()
        return [cut for cut in cuts_of(durable) if cut.moment == "lost"][-1:]

    with altered(place, "refuses-its-own-graph", flag) as bench:
        (result,) = sweep_init(bench, place, WRITERS["init"], last_lost)

    assert result.wrong is not None
    assert result.wrong[0] == ("SCH-16", "PUB-23")


# -- what a writer that lives shows itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "rows", "is_wrong"),
    [
        ("old", {}, False),
        ("new", {}, True),
        ("new", {"op": {"recovery_kind": "RolledBack"}}, True),
        # An engine that opens the graph anew for every call recovers its own move when it looks.
        ("new", {"op": {"recovery_kind": "RolledForward"}}, False),
        ("other", {"op": {"recovery_kind": "RolledForward"}}, True),
    ],
)
def test_what_is_not_published_is_shown_by_nobody_but_who_has_taken_it_forward(
    state: str, rows: Mapping[str, Mapping[str, Any]], is_wrong: bool
) -> None:
    step = WRITERS["insert"].step
    old = mean(Model.from_source(SCHEMA), PEOPLE).model
    shown = {"old": old, "new": mean(old, step).model, "other": Model.from_source(SCHEMA)}[state]
    before = Before("uri", {}, old, step, {"main": 2}, frozenset())
    crashed = Crashed(Ending(UNKNOWN), False, True, (), (), {"main": shown.export("main")})
    scene = Scene(published=False, sidecars={}, moved=frozenset(), locked=False, settled=rows)
    with pytest.raises(RequirementBroken, match="it is not the old state") if is_wrong else nullcontext():
        _judge_own_view(before, scene, crashed, "it")


# -- looking at bytes that make no sense -------------------------------------------------------------------------------


@pytest.fixture
def left(quick: Callable[[str], str], tmp_path: Path) -> Before:
    """A graph in a directory, before an insert."""
    uri = str(tmp_path / "graph")
    engine = Engine.connect(quick("reference"), env={})
    try:
        engine.init(uri, SCHEMA)
    finally:
        engine.close()
    return Before(uri, {}, Model.from_source(SCHEMA), WRITERS["insert"].step, {"main": 1}, frozenset())


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "null",
        "{",
        '{"tables": null}',
        '{"tables": [5]}',
        '{"tables": [{"table_key": "node:Person"}]}',
        '{"tables": [{"table_key": "node:Person", "expected_version": null}]}',
        '{"tables": [{"table_key": 7, "expected_version": 1}]}',
        '{"tables": [{"table_key": "Person", "expected_version": 1}]}',
        '{"tables": [{"table_key": "node:Person", "expected_version": 1, "table_branch": []}], "branch": {}}',
    ],
)
def test_whatever_a_sidecar_holds_it_can_be_looked_at(left: Before, content: str) -> None:
    Forge(left.uri, {}).write(f"__recovery/{OPERATION}.json", content.encode())

    scene = look(left)

    assert (list(scene.sidecars), scene.moved, scene.published) == ([OPERATION], frozenset(), False)


def test_a_manifest_that_nobody_can_read_breaks_a_requirement(left: Before) -> None:
    forge = Forge(left.uri, {})
    forge.write(next(name for name in forge.list("__manifest/data")), b"nonsense")

    with pytest.raises(RequirementBroken, match="can be read by nobody") as broken:
        look(left)
    assert broken.value.ids == ("REC-18",)
