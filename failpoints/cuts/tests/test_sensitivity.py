"""What the cut sweep is for: each of these broken engines is found at one cut, and the reference is not.

One cell each, at the place that the mutant's own schedule names, so that the proof stays quick; the whole sweep is
`touchstone sweep --engine mutant:<name>`.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from conformance.replay import replay
from conformance.runner.verdict import CONFORMS, FAILS
from conformance.suites.test_faults_cuts import tried
from conformance.traces import read_trace, write_trace
from failpoints.baseline import SetupFailed
from failpoints.cuts.cell import CellResult
from failpoints.cuts.cut import Cut, cuts_of, described, kills_of
from failpoints.cuts.show import show_cell, summary, unreached
from failpoints.cuts.show import tried as attempted
from failpoints.cuts.sweep import SweptWriter
from failpoints.cuts.traces import trace_of
from failpoints.gate import Exchange
from failpoints.workshop import bench_at
from failpoints.writers import WRITERS
from fixtures.mutants import MUTANTS
from fixtures.mutants.lawful import lawful
from fixtures.stores.catalog import S3, Store
from fixtures.stores.moto import MotoStore

Choice = Callable[[tuple[Exchange, ...]], Cut]


def at(moment: str, role: str, place: int) -> Choice:
    """The cut at a request of a role: the first of them is 0, the last -1."""

    def choose(durable: tuple[Exchange, ...]) -> Cut:
        cuts = [cut for cut in cuts_of(durable) if cut.moment == moment and role in cut.request]
        return cuts[place]

    return choose


def after_the_answer(durable: tuple[Exchange, ...]) -> Cut:
    return cuts_of(durable)[-1]


def the_listing(durable: tuple[Exchange, ...]) -> Cut:
    """Stands for the listing of the sidecars, which is no durable request."""
    raise AssertionError("it is not among these")


HALF_WAY = at("applied", "table version", 0)
BEFORE_PUBLISH = at("before", "manifest version", -1)
# Mutant -> its writer, the cut, and the cut of the recovery if it takes two.
FOUND_AT: dict[str, tuple[str, Choice, Choice | None]] = {
    "no-sidecar": ("insert", BEFORE_PUBLISH, None),
    "sidecar-after-first-commit": ("insert", HALF_WAY, None),
    "acknowledge-before-publish": ("insert", after_the_answer, None),
    "publish-per-table": ("insert", at("applied", "manifest version", 0), None),
    "roll-forward-a-subset": ("insert", HALF_WAY, None),
    "rollback-does-not-publish": ("insert", HALF_WAY, None),
    "recovery-without-audit": ("update", BEFORE_PUBLISH, None),
    "recovery-keeps-the-sidecar": ("update", BEFORE_PUBLISH, None),
    "finished-write-counts-as-rolled-back": ("insert", at("applied", "manifest version", -1), None),
    "recovery-not-idempotent": ("insert", BEFORE_PUBLISH, at("before", "sidecar", -1)),
    "recovery-forgets-for-whom": ("insert", BEFORE_PUBLISH, None),
    "recovery-in-nobodys-name": ("insert", BEFORE_PUBLISH, None),
    "recovered-merge-has-one-parent": ("merge", BEFORE_PUBLISH, None),
    "recovery-of-a-branch-moves-main": ("branch-write", BEFORE_PUBLISH, None),
    "read-only-open-recovers": ("insert", BEFORE_PUBLISH, None),
    "schema-apply-leaves-its-lock": ("schema-add", BEFORE_PUBLISH, None),
    "branch-create-lost-answer-is-an-error": ("branch-create", at("lost", "manifest ref", 0), None),
}
CELLS_MIN = 600
# One for each thing that an engine can get wrong about a crash; the others are tried on demand.
QUICK = (
    "sidecar-after-first-commit",
    "acknowledge-before-publish",
    "publish-per-table",
    "roll-forward-a-subset",
    "recovery-not-idempotent",
    "recovery-without-audit",
    "read-only-open-recovers",
    "schema-apply-leaves-its-lock",
)


def chosen(mutant: str) -> object:
    return pytest.param(mutant, marks=() if mutant in QUICK else pytest.mark.slow)


def cell(engine: str, store: Store, writer: str, cut: Choice, second: Choice | None) -> CellResult:
    with bench_at(store, engine) as bench:
        swept = SweptWriter.prepared(bench, store, WRITERS[writer], double="none")
        durable = swept.count()
        place = swept.listings[0] if cut is the_listing else cut(durable)
        if second is the_listing:
            return next(swept.listing_again(place))
        if second is not None:
            return swept.double_at(place, lambda recovery: _second(second, recovery))
        (result,) = swept.cell(place)
        return result


def _second(second: Choice, recovery: tuple[Exchange, ...]) -> Cut:
    assert kills_of(recovery), "the recovery makes no durable request: there is nothing to cut"
    return second(recovery)


@pytest.fixture
def place(moto_store: MotoStore) -> Store:
    return Store("moto", moto_store.env, moto_store.fresh_root, lambda uri: None, frozenset({S3}))


@pytest.mark.s3
@pytest.mark.parametrize("mutant", [chosen(mutant) for mutant in FOUND_AT])
def test_a_broken_engine_is_found_at_its_cut(place: Store, mutant: str) -> None:
    result = cell(f"mutant:{mutant}", place, *FOUND_AT[mutant])

    assert result.wrong is not None, f"{MUTANTS[mutant].sentence} Nothing was wrong with {result}"


# Several mutants are found at one cut.
PLACES = {found: mutant for mutant, found in FOUND_AT.items()}


@pytest.mark.s3
@pytest.mark.parametrize("mutant", [chosen(mutant) for mutant in PLACES.values()])
def test_the_reference_is_sound_at_the_same_cut(place: Store, mutant: str) -> None:
    result = cell("reference", place, *FOUND_AT[mutant])

    assert result.wrong is None, result.wrong


@pytest.mark.s3
def test_an_engine_that_shows_no_rows_of_the_past_is_judged_where_its_recovery_adds_a_commit(place: Store) -> None:
    published = at("applied", "manifest version", -1)
    result = cell(lawful("shows-no-old-rows"), place, "insert", published, None)

    assert (result.reached, result.wrong, result.world) == (True, None, "new")


@pytest.mark.s3
def test_a_driver_that_goes_past_the_gate_is_told_so(place: Store) -> None:
    """It writes where it was not sent: nothing can be cut, and nothing is proved by that."""
    past = f"AWS_ENDPOINT_URL_S3={place.env['AWS_ENDPOINT_URL_S3']}"
    engine = f"cmd:env {past} {sys.executable} -c 'from reference.driver import main; main()'"

    with (
        bench_at(place, engine) as bench,
        pytest.raises(SetupFailed, match="not one request of it came"),
    ):
        SweptWriter.prepared(bench, place, WRITERS["update"], double="none").count()


@pytest.mark.s3
def test_a_cleanup_makes_the_requests_in_every_cell_that_were_counted(place: Store) -> None:
    """An object that is put back is new, and a cleanup leaves files that are newer than the versions it keeps."""
    with bench_at(place, "reference") as bench:
        swept = SweptWriter.prepared(bench, place, WRITERS["cleanup"], double="none")
        counted = swept.count()
        again = swept.count()
        cut = next(each for each in cuts_of(counted) if "transaction" in each.request and each.moment == "applied")
        (result,) = swept.cell(cut)

    assert [described(each) for each in counted] == [described(each) for each in again]
    assert (result.reached, result.wrong) == (True, None)


@pytest.mark.s3
def test_a_cell_that_is_wrong_is_a_trace_that_replays(place: Store, tmp_path: Path) -> None:
    writer, cut, second = FOUND_AT["sidecar-after-first-commit"]
    result = cell("mutant:sidecar-after-first-commit", place, writer, cut, second)
    path = tmp_path / "trace.json"
    write_trace(path, trace_of(result), engine="mutant:sidecar-after-first-commit", store="moto", seed=0)

    codes = [
        replay(read_trace(path), engine=engine, store=None, timeout_seconds=120.0, console=Console(quiet=True))
        for engine in ("mutant:sidecar-after-first-commit", "reference")
    ]

    assert codes == [FAILS, CONFORMS]
    trace = json.loads(path.read_text())
    assert trace["requests"], "the requests that led there are part of it"
    assert "touchstone-secret" not in path.read_text()


def test_the_summary_counts_what_became_of_the_cells() -> None:
    cut = Cut("before", 1, "PUT sidecar")
    results = [
        CellResult("insert", cut, killed=True, world="old", kinds=("RolledBack",)),
        CellResult("insert", cut, second=cut, killed=True, world="new", kinds=("RolledForward",), uploads_left=2),
        CellResult("merge", cut, killed=True, wrong=(("REC-18",), "it is lost")),
    ]
    printed = io.StringIO()
    console = Console(width=160, file=printed)
    for result in results:
        show_cell(result, console)
    console.print(summary(results))

    said = printed.getvalue()
    rows = {
        line.split()[0]: line.split()[1:]
        for line in said.splitlines()
        if line.startswith(("insert ", "merge ", "all "))
    }
    assert rows["insert"] == ["2", "2", "1", "1", "1", "1", "1", "2", "0", "0"]
    assert rows["all"] == ["3", "3", "1", "1", "1", "1", "1", "2", "0", "1"]
    assert "broke REC-18 because it is lost" in said


def test_a_writer_many_of_whose_cells_were_not_reached_is_named() -> None:
    cut = Cut("before", 1, "PUT sidecar")
    steady = [CellResult("insert", cut, reached=number > 0) for number in range(5)]
    fickle = [CellResult("merge", cut, reached=number > 1) for number in range(5)]

    (said,) = unreached([*steady, *fickle])

    assert said.startswith("merge: 2 of 5 cells were not reached")


def test_a_writer_none_of_whose_requests_was_cut_has_tried_nothing() -> None:
    """Its end comes in any case, so that it came says nothing."""
    cells = [
        CellResult("insert", Cut("before", 1, "PUT sidecar"), reached=False),
        *(CellResult("insert", Cut("ack")) for _ in range(9)),
    ]

    assert attempted(cells) == 0
    assert unreached(cells) == ["insert: no request of it was cut, so nothing was tried"]


def test_a_selection_none_of_whose_requests_came_has_tried_nothing() -> None:
    """The kill after the answer always comes, and says nothing about recovery."""
    missed = [CellResult("insert", Cut("before", 1, "PUT sidecar"), reached=False), CellResult("insert", Cut("ack"))]
    wrong = CellResult("insert", Cut("ack"), wrong=(("PUB-14",), "it is lost"))

    with pytest.raises(pytest.skip.Exception, match="nothing was tried"):
        tried(missed)
    assert tried([*missed, wrong])[-1] is wrong


@pytest.mark.s3
def test_a_double_crash_whose_single_one_is_wrong_is_that(place: Store) -> None:
    """There is no recovery to be cut where the first one is wrong already."""
    result = cell("mutant:recovery-without-audit", place, "update", BEFORE_PUBLISH, at("before", "manifest version", 0))

    assert result.wrong is not None
    assert result.second is None


@pytest.mark.s3
@pytest.mark.slow
def test_a_sweep_of_all_writers_has_hundreds_of_cells(place: Store) -> None:
    """Fewer would mean that writers have become smaller than what they stand for."""
    with bench_at(place, "reference") as bench:
        cells = 0
        for writer in WRITERS.values():
            if writer.name != "init":
                swept = SweptWriter.prepared(bench, place, writer, double="none")
                cells += len(cuts_of(swept.count())) + len(swept.listings)

    assert cells >= CELLS_MIN, cells
