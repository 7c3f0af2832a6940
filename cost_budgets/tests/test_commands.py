"""`touchstone cost`, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from conformance.cli import app
from conformance.judge.engine import Hello
from cost_budgets.counters import Tally
from cost_budgets.counters.tests.test_tally import exchange
from cost_budgets.measuring import PROFILES, Measured, Point, Profile
from cost_budgets.reporting import unclassified_of
from cost_budgets.tests.test_judging import point
from failpoints.command_ends import default_jobs
from failpoints.gate import Exchange
from failpoints.workshop import SweepBroken
from fixtures.stores.catalog import StoreUnavailable

TINY = ["--operation", "warm-read", "--operation", "cold-open-read-only", "--profile", "quick"]


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick profile, and quicker: three points, and nobody is watched."""
    monkeypatch.setitem(PROFILES, "quick", Profile((2, 3, 4), merges=(), crashes=(), branches=()))


def cost(*args: str) -> Result:
    return CliRunner().invoke(app, ["cost", *args], env={"COLUMNS": "250"})


@pytest.mark.s3
@pytest.mark.usefixtures("shallow")
def test_an_engine_within_its_budgets_is_said_to_be_so(tmp_path: Path) -> None:
    result = cost(*TINY, "--report", str(tmp_path / "report"))
    assert result.exit_code == 0, result.output
    assert "all kept" in result.output and "warm-read" in result.output
    assert (tmp_path / "report" / "cost.html").exists()
    measured = json.loads((tmp_path / "report" / "cost.json").read_text())
    assert {each["operation"] for each in measured["measurements"]} == {"warm-read", "cold-open-read-only"}


@pytest.mark.s3
@pytest.mark.usefixtures("shallow")
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
        self.jobs: list[int] = []
        self.found = Measured()
        self.found_at: dict[str, Measured] = {}
        self.missing: set[str] = set()
        self.breaks: set[str] = set()
        self.interrupted: set[str] = set()
        self.stores: list[str] = []
        monkeypatch.setattr("cost_budgets.measuring.measure_at_once", self._measure)

    def _measure(
        self, engine: str, store: str, profile: Profile, *, names: list[str], jobs: int, **_: object
    ) -> tuple[Hello, Measured]:
        self.stores.append(store)
        if store in self.missing:
            raise StoreUnavailable(f"the store '{store}' cannot run here")
        self.asked.append(names)
        self.jobs.append(jobs)
        if store in self.interrupted:
            raise KeyboardInterrupt
        if store in self.breaks:
            raise SweepBroken(f"the store '{store}' broke down")
        return Hello("fake", "7", 4, frozenset({"s3"})), self.found_at.get(store, self.found)


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


@pytest.mark.parametrize("first", ["moto", "seaweedfs"])
def test_an_interrupted_measurement_reports_the_stores_that_were_measured_to_their_end(
    fake: FakeMeasurement, tmp_path: Path, first: str
) -> None:
    fake.found.points["warm-read", "grown"] = [point(1)]
    fake.interrupted = {"seaweedfs"}
    result = cost("--store", first, "--store", "seaweedfs", "--report", str(tmp_path), *TINY)
    assert result.exit_code == 130, result.output
    if first == "moto":
        assert [each["store"] for each in json.loads((tmp_path / "cost.json").read_text())["stores"]] == ["moto"]
    else:
        assert list(tmp_path.iterdir()) == [] and "no store was measured to its end" in result.output


def test_an_engine_that_lacks_s3_is_known_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a store was started")

    monkeypatch.setattr("cost_budgets.measuring.swept_in_processes", started)
    monkeypatch.setattr("cost_budgets.measuring.S3", "teleport")
    result = cost("--engine", "reference", *TINY)
    assert result.exit_code == 4, result.output
    assert "unsupported every operation: the engine does not declare s3" in result.output
    result = cost("--engine", "cmd:./no-such-driver --token=hidden", *TINY)
    assert result.exit_code == 3, result.output
    assert "cmd:./no-such-driver" in result.output and "hidden" not in result.output


def seven_for_a_read(tmp_path: Path) -> list[str]:
    budgets = tmp_path / "mine.toml"
    budgets.write_text('[warm-read]\nguards = ["COST-01"]\nat_most = { requests = "7" }\n')
    return ["--budgets", str(budgets)]


def reads(requests: int) -> Measured:
    return Measured({("warm-read", "grown"): [point(requests)]})


def test_every_store_that_is_named_is_measured_and_has_its_own_table(fake: FakeMeasurement, tmp_path: Path) -> None:
    fake.found_at = {"moto": reads(3), "seaweedfs": reads(4)}
    stores = ["--store", "moto", "--store", "seaweedfs,moto"]
    result = cost(*seven_for_a_read(tmp_path), *stores, "--profile", "quick", "--report", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert fake.stores == ["moto", "seaweedfs"]
    for store, requests in (("moto", 3), ("seaweedfs", 4)):
        heading = f"fake 7 on {store}, profile quick, 0 s"
        assert heading in result.output
        line = result.output.partition(heading)[2].splitlines()[2]
        assert line.split()[:8] == ["warm-read", "grown", "at", "most", "requests", "H", "10", str(requests)]
    assert result.output.count("long pages on seaweedfs") == 1 and "long pages on moto" not in result.output
    report = json.loads((tmp_path / "cost.json").read_text())
    assert report["engine_says"] == "fake 7" and report["store"] == "moto, seaweedfs"
    assert [(each["store"], each["requests"]) for each in report["measurements"]] == [("moto", 3), ("seaweedfs", 4)]
    page = (tmp_path / "cost.html").read_text()
    assert "<h2>moto</h2>" in page and "<h2>seaweedfs</h2>" in page and "fake 7, measured on moto, seaweedfs" in page


@pytest.mark.parametrize(
    ("breaks", "missing", "requests", "code"),
    [
        ({"moto"}, set(), 70, 3),
        (set(), {"moto"}, 70, 1),
        (set(), {"moto"}, 3, 4),
        ({"moto"}, {"minio"}, 3, 3),
    ],
)
def test_the_worst_store_decides_and_the_others_are_measured_all_the_same(
    fake: FakeMeasurement, tmp_path: Path, breaks: set[str], missing: set[str], requests: int, code: int
) -> None:
    fake.found, fake.breaks, fake.missing = reads(requests), breaks, missing
    stores = ["--store", "moto", "--store", "minio", "--store", "seaweedfs"]
    result = cost(*seven_for_a_read(tmp_path), *stores, "--report", str(tmp_path))
    assert result.exit_code == code, result.output
    report = json.loads((tmp_path / "cost.json").read_text())
    assert "seaweedfs" in {each["store"] for each in report["measurements"]}
    assert [each["store"] for each in report["stores"]] == ["moto", "minio", "seaweedfs"]
    for store in breaks:
        assert f"could not run: the store '{store}' broke down" in result.output
    for store in missing:
        assert f"skipped: the store '{store}' cannot run here" in result.output


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(
    fake: FakeMeasurement, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    result = cost("--report", str(tmp_path / "file" / "report"))
    assert (result.exit_code, fake.stores) == (2, []), result.output
    words = " ".join(result.stderr.split())
    assert "the report cannot be written to" in words and "file is a file, not a folder" in words
    assert cost("--report", str(tmp_path / ("n" * 300))).exit_code == 2


@pytest.mark.parametrize(("requests", "verdict"), [(0, "under"), (9, "over")])
def test_an_engine_that_is_only_under_a_floor_is_not_said_to_be_over(
    fake: FakeMeasurement, tmp_path: Path, requests: int, verdict: str
) -> None:
    budgets = tmp_path / "mine.toml"
    budgets.write_text('[warm-read]\nguards = ["COST-01"]\nat_most = { requests = 7 }\nat_least = { reads = 1 }\n')
    fake.found = reads(requests)
    result = cost("--budgets", str(budgets), "--report", str(tmp_path))
    assert result.exit_code == 1, result.output
    assert f"{verdict}: 2 budgets, 1 broken." in result.output
    assert json.loads((tmp_path / "cost.json").read_text())["verdict"] == verdict


@pytest.mark.parametrize(("args", "jobs"), [((), default_jobs()), (("--jobs", "3"), 3)])
def test_several_graphs_are_measured_at_the_same_time(fake: FakeMeasurement, args: tuple[str, ...], jobs: int) -> None:
    cost(*args)
    assert fake.jobs == [jobs]


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
    assert report["stores"][0]["unclassified"] == {"warm-read, grown": words}
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
@pytest.mark.usefixtures("shallow")
def test_measurements_can_be_read_by_a_program() -> None:
    result = cost(*TINY, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["verdict"] == "within"


@pytest.mark.s3
@pytest.mark.usefixtures("shallow")
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
        (
            ["--store", "endpoint"],
            2,
            "counted between an engine and an S3 server of our own; 'endpoint' is somebody's, and mostly",
        ),
        (["--store", "cloud"], 2, "there is no store 'cloud'"),
        (["--store", "moto", "--store", "local"], 2, "a local directory has none"),
        (["--jobs", "0"], 2, "Invalid value for '--jobs'"),
        (["--store", "moto,cloud"], 2, "there is no store 'cloud'"),
        (["--engine", "cmd:./no-such-driver"], 3, "there is no command"),
    ],
)
def test_what_cannot_be_measured_is_said_in_words(args: list[str], code: int, words: str) -> None:
    result = cost(*args)
    assert result.exit_code == code, result.output
    assert words in " ".join((result.stdout + result.stderr).split())
