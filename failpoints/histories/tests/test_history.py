"""Real histories: processes of the reference's driver on a local directory, with and without kills."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from conformance.adapters import AdapterFault, EngineError
from conformance.judge import Engine
from conformance.traces import make_trace
from failpoints.histories import HistoryResult, Sound, make_plan, rerun, run_history
from failpoints.histories.history import run_plan, trace_of
from failpoints.histories.record import MAIN, History
from failpoints.histories.run import CannotOpen, opened
from failpoints.histories.show import lines_of
from failpoints.histories.telling import Contradiction, Line
from fixtures.stores.catalog import Store, running

REFERENCE = f"cmd:{sys.executable} -m reference.cli drive"


@pytest.fixture(scope="module")
def local() -> Iterator[Store]:
    with running("local") as store:
        yield store


@pytest.mark.requirement("PUB-08", "PUB-20", "PUB-21", "LIN-06")
def test_four_processes_leave_one_chain_and_the_exact_state(local: Store) -> None:
    console = Console(record=True, width=120, quiet=True)
    result = run_history(REFERENCE, local, processes=4, writes=6, seed=1, console=console)
    assert isinstance(result.verdict, Sound), str(result.verdict)
    assert result.counts["unknown"] == 0
    assert result.counts["acknowledged"] + result.counts["refused"] == 24
    assert result.counts["acknowledged"] >= 12, "so few that nothing was shown"
    assert result.trace is None


@pytest.mark.requirement("PUB-21", "REC-05", "REC-18")
@pytest.mark.parametrize(
    "reopen",
    [
        pytest.param(False, id="one handle each", marks=pytest.mark.slow),
        pytest.param(True, id="an open before every call"),
    ],
)
def test_processes_that_are_killed_leave_nothing_half_done(local: Store, reopen: bool) -> None:
    result = run_history(REFERENCE, local, processes=3, writes=6, seed=2, profile="mixed", kill_every=3, reopen=reopen)
    assert isinstance(result.verdict, Sound), str(result.verdict)
    assert result.counts["killed"] == 6


def test_a_driver_that_does_not_start_is_no_verdict(local: Store) -> None:
    with pytest.raises(AdapterFault):
        run_history("cmd:./there-is-no-such-driver", local, processes=2, writes=1, seed=1)


def test_a_trace_has_all_that_a_second_run_needs(local: Store) -> None:
    plan = make_plan(processes=2, writes=2, seed=5)
    history = History(plan.schema, (), {MAIN: ()}, {MAIN: ""})
    broken = Contradiction(("PUB-20",), "something is lost")
    made = make_trace(trace_of(plan, False, history, broken), engine="an engine", store="local", seed=plan.seed)
    trace = json.loads(json.dumps(made))
    assert (trace["kind"], trace["broke"], trace["because"]) == ("history", ["PUB-20"], "something is lost")
    assert History.from_json(trace["fault"]["history"]) == history
    again = rerun(trace, REFERENCE, local)
    assert again.plan == plan
    assert isinstance(again.verdict, Sound), str(again.verdict)


def test_a_result_is_told_in_words() -> None:
    plan = make_plan(processes=2, writes=2, seed=5)
    line = Line("p00-001", 0, "mutate x", "ok with C1", "no commit in any chain")
    broken = Contradiction(("PUB-20",), "a row is lost", (line,))
    first, because, call = lines_of(HistoryResult(plan, broken, {"acknowledged": 3, "unknown": 0}, 1.25))
    assert first == "seed 5: acknowledged 3, in 1.2 s"
    assert because == "broke PUB-20 because a row is lost"
    assert call == "  p00-001 (process 0) asked mutate x; answered ok with C1; no commit in any chain"
    assert lines_of(HistoryResult(plan, Sound({}), {}, 1.25))[1].startswith("holds: one chain for each branch")


@pytest.mark.s3
@pytest.mark.requirement("PUB-08", "PUB-21")
def test_processes_on_s3_leave_one_chain_and_the_exact_state() -> None:
    with running("moto") as store:
        result = run_plan(REFERENCE, store, make_plan(processes=3, writes=4, seed=3, profile="mixed"))
    assert isinstance(result.verdict, Sound), str(result.verdict)


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.requirement("PUB-08", "PUB-21")
@pytest.mark.parametrize("name", ["local", "moto"])
def test_twenty_processes_with_fifty_writes_each_leave_one_chain_and_the_exact_state(name: str) -> None:
    with running(name) as store:
        result = run_history(REFERENCE, store, processes=20, writes=50, seed=1)
    assert isinstance(result.verdict, Sound), str(result.verdict)
    assert result.counts["unknown"] == 0
    assert result.counts["acknowledged"] + result.counts["refused"] == 1000
    assert result.counts["acknowledged"] >= 200, "so few that nothing was shown"


DIES_IN_ITS_SECOND_PUBLISH = """
import os
from reference import driver
from reference.protocol import commit

right, published = commit._publish, []

def dying(*given):
    published.append(1)
    if len(published) == 2:
        {dies}
    return right(*given)

commit._publish = dying
driver.main()
"""


@pytest.mark.parametrize(
    ("dies", "word"),
    [
        pytest.param("os._exit(101)", "ended", id="dies"),
        pytest.param("os.kill(os.getpid(), 19)", "no answer", id="hangs", marks=pytest.mark.slow),
    ],
)
def test_an_engine_that_breaks_down_among_others_is_wrong_and_leaves_a_trace(
    local: Store, tmp_path: Path, dies: str, word: str
) -> None:
    program = tmp_path / "engine.py"
    program.write_text(DIES_IN_ITS_SECOND_PUBLISH.format(dies=dies), encoding="utf-8")
    result = run_history(f"cmd:{sys.executable} {program}", local, processes=2, writes=3, seed=1, timeout=60)
    assert isinstance(result.verdict, Contradiction)
    assert result.ids == ("PUB-21",)
    assert "broke_down" in result.verdict.because and word in result.verdict.because
    assert "its process broke down" in result.verdict.slice[0].answered
    assert result.trace is not None
    assert make_trace(result.trace, engine="an engine", store="local", seed=1)["broke"] == ["PUB-21"]


def test_an_open_that_waits_for_a_lease_is_given_the_time() -> None:
    engine = Leased(free_after=4)
    assert cast(str, opened(cast(Engine, engine), "a graph")) == "a handle"
    assert engine.asked == 5


def test_an_open_that_is_always_refused_ends() -> None:
    with pytest.raises(CannotOpen, match=r"of \d+ opens for writing within 0.2 s none succeeded.*leased"):
        opened(cast(Engine, Leased(free_after=100)), "a graph", seconds=0.2)


class Leased:
    """An engine that refuses to open a graph a few times."""

    def __init__(self, free_after: int) -> None:
        self._free_after = free_after
        self.asked = 0

    def open(self, uri: str) -> str:
        self.asked += 1
        if self.asked <= self._free_after:
            raise EngineError("conflict", "leased", "leased", {})
        return "a handle"
