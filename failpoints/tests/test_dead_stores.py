"""A store that is gone is to blame, by name, whatever an engine and its judges make of it; one that is there never is.

The store dies where an instrument is about to judge: from then on everything that it finds looks wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from conformance.cli import app
from conformance.judge import RequirementBroken
from conformance.runner.tests.ends_stores import happens_at
from conformance.runner.tests.engines import end_store, end_stores
from conformance.sequences.player import Player
from conformance.sequences.shrinking import Failure
from failpoints import named
from failpoints.cuts.cell import CellResult
from failpoints.cuts.cut import Cut
from failpoints.gate import GateError
from failpoints.matrix import KILL, Spot, SpotResult
from failpoints.storms import storm
from failpoints.tests.test_commands import LOST_ACK, Idle, spoilt
from failpoints.workshop import Bench, Refused, StoreBrokeDown, SweepBroken, blaming, swept_in_processes
from fixtures.forge import ForgeError
from fixtures.stores import moto
from fixtures.stores.catalog import S3, Store

BROKE_DOWN = "the store 'moto' broke down: it does not answer"
ABOUT_NOBODY = "This says nothing about the engine"
ONE_SCHEDULE = ["race", "--pairs", "insert-insert-tables", "--limit", "1", "--jobs", "1"]
WRONG = CellResult("insert", Cut("ack"), wrong=(("REC-18",), "an open is refused"))
SOUND = CellResult("insert", Cut("ack"))
REFUSED = Refused("insert", "it ended unknown", unsupported=False)


class Mortal:
    """The store of a command, which can be ended from within."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    @contextmanager
    def running(self, name: str, **_: Any) -> Iterator[Store]:
        with moto.running() as server:
            self.pids.append(server.pid)
            yield Store(name, server.env, server.fresh_root, lambda uri: None, frozenset({S3}))

    def end(self) -> None:
        while self.pids:
            end_store(self.pids.pop())


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Mortal:
    store = Mortal()
    for module in ("failpoints.workshop", "conformance.replay", "fixtures.stores.catalog"):
        monkeypatch.setattr(f"{module}.running", store.running)
    return store


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store says that it is gone when it is asked directly."""
    monkeypatch.setattr(Store, "silence", lambda self: "it is gone")


def touchstone(*args: str) -> Result:
    return CliRunner().invoke(app, [*args], env={"COLUMNS": "250"})


# -- the commands ------------------------------------------------------------------------------------------------------


@pytest.mark.s3
@pytest.mark.parametrize(
    ("args", "place"),
    [
        (["sweep", "--writer", "insert", "--jobs", "1"], "failpoints.cuts.sweep.judged"),
        (["sweep", "--writer", "merge", "--jobs", "1"], "failpoints.cuts.sweep.crash_writer"),
        (ONE_SCHEDULE, "failpoints.pairs.schedule._judge"),
        (ONE_SCHEDULE, "failpoints.pairs.schedule._done"),
        (["race", "--processes", "2", "--writes", "1"], "failpoints.histories.history._alone"),
        (["storm", "--operations", "20"], "failpoints.storms.player.StormPlayer._reopened"),
        (["storm", "--operations", "20"], "failpoints.storms.player.look"),
        (["replay", str(LOST_ACK), "--engine", "reference"], "failpoints.storms.player._world"),
    ],
    ids=["cut", "writer", "schedule", "lane", "history", "storm", "forge", "replay"],
)
def test_a_store_that_dies_under_a_command_is_blamed_and_never_the_engine(
    args: list[str], place: str, mortal: Mortal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    met = happens_at(monkeypatch, place, mortal.end)
    traces = [] if args[0] == "replay" else ["--traces", str(tmp_path / "traces")]

    result = touchstone(*args, *traces)

    assert met, result.output
    assert result.exit_code == 3, result.output
    assert BROKE_DOWN in result.output and ABOUT_NOBODY in result.output
    judged = ("wrong", "because", "could not be tried", "trace:", "traceback")
    assert [words for words in judged if words in result.output.lower()] == []
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_spot_of_the_matrix_is_wrong_only_while_the_store_is_there(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    result = SpotResult(Spot("insert", "recovery.sidecar_write", KILL), True, "x", wrong=(("REC-05",), "a row is lost"))
    monkeypatch.setattr(named, "Crew", Idle)
    monkeypatch.setattr(named, "sweep", lambda crew, subjects: (each for each in [result]))
    if is_gone:
        request.getfixturevalue("gone")

    done = touchstone("sweep", "--failpoints", "--store", "local", "--writer", "mutate")

    assert done.exit_code == (3 if is_gone else 1), done.output
    assert ("the store 'local' broke down: it is gone" in done.output) == is_gone
    assert ("REC-05" in done.output) != is_gone


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_sequence_that_is_replayed_breaks_something_only_while_the_store_is_there(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    def play(self: Player, step: Any) -> None:
        raise RequirementBroken(("LOD-07",), "a row is lost")

    monkeypatch.setattr(Player, "play", play)
    if is_gone:
        request.getfixturevalue("gone")

    done = touchstone("replay", str(spoilt(tmp_path, kind="sequence")), "--engine", "reference")

    assert done.exit_code == (3 if is_gone else 1), done.output
    assert ("the store 'local' broke down: it is gone" in done.output) == is_gone
    assert ("broke LOD-07" in done.output) != is_gone


# -- what they share ---------------------------------------------------------------------------------------------------


Trial = Callable[[Bench, Store, str], Generator[CellResult | Refused, None, None]]


def trial_of(happens: Callable[[], object], last: CellResult | Refused | Exception) -> Trial:
    """A trial that finds something sound; then something happens, and this is the last that is found."""

    def run(bench: Bench, store: Store, task: str) -> Generator[CellResult | Refused, None, None]:
        yield SOUND
        happens()
        if isinstance(last, Exception):
            raise last
        yield last

    return run


def accuse_on_a_dead_store(bench: Bench, store: Store, task: str) -> Generator[CellResult | Refused, None, None]:
    """In a process of a sweep, which has started one server."""
    return trial_of(end_stores, WRONG)(bench, store, task)


def break_down(bench: Bench, store: Store, task: str) -> Generator[CellResult | Refused, None, None]:
    return trial_of(lambda: None, ForgeError("cannot list"))(bench, store, task)


def swept(run: Trial, *, jobs: int) -> Generator[CellResult | Refused, None, None]:
    """The results of one task, with an engine that nobody asks."""
    return swept_in_processes(run, ["a task"], engine="cmd:true", store="moto", jobs=jobs, timeout_seconds=60.0)


def until_it_broke(results: Iterator[CellResult | Refused]) -> tuple[list[CellResult | Refused], str]:
    """What a sweep has found before it broke, and what it said."""
    found: list[CellResult | Refused] = []
    with pytest.raises(SweepBroken) as broken:
        for each in results:
            found.append(each)
    return found, str(broken.value)


@pytest.mark.s3
@pytest.mark.parametrize("last", [WRONG, REFUSED, ForgeError("cannot list"), KeyError("a row")])
def test_whoever_sweeps_accuses_nobody_when_the_store_is_gone(
    last: CellResult | Refused | Exception, mortal: Mortal
) -> None:
    found, words = until_it_broke(swept(trial_of(mortal.end, last), jobs=1))

    assert found == [SOUND]
    assert words.startswith(BROKE_DOWN) and words.endswith(ABOUT_NOBODY)


@pytest.mark.s3
@pytest.mark.parametrize("last", [WRONG, REFUSED])
def test_whoever_sweeps_hands_out_what_is_wrong_while_the_store_is_there(
    last: CellResult | Refused, mortal: Mortal
) -> None:
    assert list(swept(trial_of(lambda: None, last), jobs=1)) == [SOUND, last]


@pytest.mark.s3
def test_a_process_of_a_sweep_accuses_nobody_when_its_store_is_gone() -> None:
    found, words = until_it_broke(swept(accuse_on_a_dead_store, jobs=2))

    assert found == [SOUND]
    assert words.startswith(BROKE_DOWN) and words.endswith(ABOUT_NOBODY)


@pytest.mark.s3
def test_what_a_process_of_a_sweep_cannot_do_at_a_store_that_is_there_is_said_in_one_line() -> None:
    found, words = until_it_broke(swept(break_down, jobs=2))

    assert (found, words) == ([SOUND], "cannot list")


@pytest.mark.parametrize(
    "error", [ForgeError("no"), GateError("no"), KeyError("no"), RequirementBroken(("A-1",), "no")]
)
def test_whatever_ends_the_work_on_a_store_is_itself_only_while_the_store_is_there(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = Store("local", {}, lambda: str(tmp_path / "graph"), lambda uri: None)

    with pytest.raises(type(error)), blaming(store):
        raise error
    monkeypatch.setattr(Store, "silence", lambda self: "it is gone")
    with (
        pytest.raises(StoreBrokeDown, match="the store 'local' broke down: it is gone. This says nothing"),
        blaming(store),
    ):
        raise error


@pytest.mark.parametrize("how", ["finds another failure", "breaks down"])
def test_a_store_that_dies_while_a_failure_is_shortened_leaves_it_as_it_was(
    how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failed = Failure(({"do": "open"}, {"do": "refresh"}), ("REC-18",), "a row is lost")

    def shrink(*_: Any, **options: Any) -> Failure:
        monkeypatch.setattr(Store, "silence", lambda self: "it is gone")
        if how == "breaks down":
            raise ForgeError("cannot list")
        return Failure(({"do": "open"},), ("REC-18",), "the store does not answer")

    monkeypatch.setattr(storm, "shrink", shrink)
    nobody: Any = None
    store = Store("local", {}, lambda: str(tmp_path / "graph"), lambda uri: None)

    assert storm._shortest(nobody, store, failed, replays=3) is failed
