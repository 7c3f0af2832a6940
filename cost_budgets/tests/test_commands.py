"""`touchstone cost`, through the command line."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from conformance.cli import app
from cost_budgets.counters import Tally
from cost_budgets.counters.tests.test_tally import exchange
from cost_budgets.measuring import Measured, Point
from cost_budgets.reporting import unclassified_of
from cost_budgets.tests.test_judging import point
from failpoints.gate import Exchange

TINY = ["--operation", "warm-read", "--operation", "cold-open-read-only", "--profile", "quick"]


def cost(*args: str) -> Result:
    return CliRunner().invoke(app, ["cost", *args], env={"COLUMNS": "250"})


@pytest.mark.s3
def test_an_engine_within_its_budgets_is_said_to_be_so(tmp_path: Path) -> None:
    result = cost(*TINY, "--report", str(tmp_path / "report"))
    assert result.exit_code == 0, result.output
    assert "all kept" in result.output and "warm-read" in result.output
    assert (tmp_path / "report" / "cost.html").exists()
    measured = json.loads((tmp_path / "report" / "cost.json").read_text())
    assert {each["operation"] for each in measured["measurements"]} == {"warm-read", "cold-open-read-only"}


@pytest.mark.s3
def test_an_engine_over_a_budget_is_told_which_and_what_it_guards(tmp_path: Path) -> None:
    budgets = tmp_path / "mine.toml"
    budgets.write_text('[warm-read]\nguards = ["COST-01"]\nat_most = { requests = "0" }\n')
    result = cost("--profile", "quick", "--budgets", str(budgets))
    assert result.exit_code == 1, result.output
    assert "over warm-read, grown: requests (1, 1, 1) against 0 [COST-01]" in result.output


class FakeMeasurement:
    """A measurement that found what it is told to, without any store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[list[str]] = []
        self.found = Measured()
        monkeypatch.setattr("cost_budgets.commands._store", lambda *_: nullcontext())
        monkeypatch.setattr("cost_budgets.measuring.counting", lambda *_, **__: nullcontext())
        monkeypatch.setattr("cost_budgets.measuring.measure", self._measure)

    def _measure(self, *_: object, names: list[str], **__: object) -> Measured:
        self.asked.append(names)
        return self.found


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeMeasurement:
    return FakeMeasurement(monkeypatch)


@pytest.mark.parametrize(("requests", "kept"), [(1, "all kept"), (70, "1 broken")])
def test_what_could_not_be_measured_is_no_success_and_comes_before_what_is_broken(
    fake: FakeMeasurement, tmp_path: Path, requests: int, kept: str
) -> None:
    budgets = tmp_path / "mine.toml"
    budgets.write_text('[warm-read]\nguards = ["COST-01"]\nat_most = { requests = "7" }\n')
    fake.found.points["warm-read", "grown"] = [point(requests)]
    fake.found.failed["warm-read"] = "the driver exited"
    result = cost("--budgets", str(budgets), "--report", str(tmp_path))
    assert result.exit_code == 3, result.output
    assert f"incomplete: 1 budgets, {kept}; 1 could not be measured." in result.output
    assert json.loads((tmp_path / "cost.json").read_text())["verdict"] == "incomplete"


def test_an_operation_that_is_named_twice_is_measured_once(fake: FakeMeasurement) -> None:
    assert cost("--operation", "update", "--operation", "update").exit_code == 4
    assert fake.asked == [["update"]]


def test_an_operation_without_a_budget_is_refused(fake: FakeMeasurement, tmp_path: Path) -> None:
    budgets = tmp_path / "mine.toml"
    budgets.write_text('[warm-read]\nguards = ["COST-01"]\nat_most = { requests = "7" }\n')
    result = cost("--budgets", str(budgets), "--operation", "update")
    assert result.exit_code == 2 and fake.asked == []
    assert "mine.toml has no budget for 'update'; it has some for warm-read" in " ".join(result.stderr.split())


def test_requests_of_no_known_kind_are_shown(fake: FakeMeasurement, tmp_path: Path) -> None:
    strange = exchange("PUT", "other", key="g/_lock[1]")
    fake.found.points["warm-read", "grown"] = [Point(point(0).variables, Tally.of([strange, strange]))]
    result = cost("--operation", "warm-read", "--report", str(tmp_path))
    words = "2 requests of no known kind, for example PUT g/_lock[1]"
    assert f"unclassified warm-read, grown: {words}" in result.output
    assert words in (tmp_path / "cost.html").read_text()
    report = json.loads((tmp_path / "cost.json").read_text())
    assert report["unclassified"] == {"warm-read, grown": words}
    assert [each["unclassified"] for each in report["measurements"]] == [2]


@pytest.mark.parametrize(
    ("strange", "named"),
    [
        (exchange("LIST", "listing", key="", prefix="cache/"), "LIST cache/"),
        (exchange("HEAD", "bucket", key=""), "HEAD the bucket"),
        (exchange("DELETE", "bulk delete", key="", keys=("g/__recovery/a.json", "cache/b")), "DELETE cache/b"),
    ],
)
def test_an_example_of_no_known_kind_names_what_no_graph_has(strange: Exchange, named: str) -> None:
    found = Measured({("warm-read", "grown"): [Point(point(0).variables, Tally.of([strange]))]})
    assert unclassified_of(found)["warm-read, grown"].endswith(f"for example {named}")


@pytest.mark.s3
def test_measurements_can_be_read_by_a_program() -> None:
    result = cost(*TINY, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["verdict"] == "within"


@pytest.mark.s3
def test_a_file_of_few_budgets_measures_only_what_it_names(tmp_path: Path) -> None:
    budgets = tmp_path / "mine.toml"
    budgets.write_text('[warm-read]\nguards = ["COST-01"]\nat_most = { requests = "7" }\n')
    result = cost("--budgets", str(budgets), "--profile", "quick", "--json")
    assert result.exit_code == 0, result.output
    assert {each["operation"] for each in json.loads(result.stdout)["measurements"]} == {"warm-read"}


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--operation", "fly"], 2, "there is no operation 'fly'; there are cold-open-read-only"),
        (["--profile", "deep"], 2, "--profile is full or quick, not 'deep'"),
        (["--engine", "nonsense"], 2, "'nonsense' names no engine"),
        (["--budgets", "nowhere.toml"], 2, "nowhere.toml: cannot be read"),
        (["--store", "local"], 2, "a local directory has none"),
        (["--store", "endpoint"], 2, "'endpoint' is somebody's, and nothing is broken there"),
        (["--store", "cloud"], 2, "there is no store 'cloud'"),
        (["--engine", "cmd:./no-such-driver"], 3, "there is no command"),
    ],
)
def test_what_cannot_be_measured_is_said_in_words(args: list[str], code: int, words: str) -> None:
    result = cost(*args)
    assert result.exit_code == code, result.output
    assert words in " ".join((result.stdout + result.stderr).split())
