"""Runs on several stores, and on stores that are missing, refused or die: who is blamed, and what the report says."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import obstore
import pytest
from rich.console import Console

from conformance.doctor import show_ledgers
from conformance.runner.junit import join_junit
from conformance.runner.known import KnownFailure
from conformance.runner.records import Phase, TestRecord
from conformance.runner.session import RunOptions, run
from conformance.runner.stores import show_stores
from conformance.runner.tests.test_whole_runs import ENGINES, report_in, touchstone
from conformance.runner.verdict import COULD_NOT_RUN, NOTHING_TESTED, judge
from fixtures.stores import moto
from fixtures.stores.catalog import STORES, Store, StoreKind, StoreRefused
from fixtures.stores.moto import MotoStore


@pytest.mark.s3
def test_one_command_judges_on_each_store_and_says_per_requirement_where(tmp_path: Path) -> None:
    done = touchstone(
        "run", "--store", "local", "--store", "moto", "--suite", "EXP", "--suite", "STO", "--profile", "quick",
        "--report", str(tmp_path),
    )  # fmt: skip

    report = report_in(tmp_path)
    assert (done.returncode, report["verdict"]) == (0, "conforms"), done.stdout + done.stderr
    (row,) = (row for row in report["requirements"] if row["id"] == "EXP-02")
    assert {name: cell["outcome"] for name, cell in row["stores"].items()} == {"local": "passed", "moto": "passed"}
    assert {test["store"] for test in report["tests"]} == {"local", "moto"}
    assert "on local: " in done.stdout and "on moto: " in done.stdout
    assert done.stdout.index("tests on local") < done.stdout.index("tests on moto")
    assert done.stdout.rindex("tests on local") < done.stdout.index("tests on moto"), "one after the other"
    asked = {row["id"]: row["answers"] for row in report["parity"]}
    assert asked["replace-missing"] == {"moto": "404"}
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot().findall("testsuite")
    assert sum(int(suite.attrib["tests"]) for suite in suites) == len(report["tests"])
    assert not list(tmp_path.glob("junit-*.xml"))


@pytest.mark.s3
def test_a_failure_on_one_of_two_stores_fails_the_run_with_a_trace_that_names_the_store(tmp_path: Path) -> None:
    done = touchstone(
        "run", "--engine", f"{ENGINES}:WrongOnS3", "--store", "local,moto", "--suite", "DEL", "--profile", "quick",
        "--report", str(tmp_path),
    )  # fmt: skip

    report = report_in(tmp_path)
    assert (done.returncode, report["verdict"]) == (1, "fails"), done.stdout + done.stderr
    failed = [test for test in report["tests"] if test["outcome"] == "failed"]
    assert failed and {test["store"] for test in failed} == {"moto"}
    traces = [json.loads((tmp_path / test["trace"]).read_text(encoding="utf-8")) for test in failed]
    assert {trace["store"] for trace in traces} == {"moto"}
    assert "failed on moto; passed on local" in done.stdout


@pytest.mark.s3
@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_a_store_that_dies_is_blamed_and_never_the_engine(workers: str, tmp_path: Path) -> None:
    done = touchstone(
        "run", "--engine", f"{ENGINES}:EndsItsStore", "--store", "moto", "--store", "local", "--suite", "DEL",
        "--profile", "quick", "--workers", workers, "--report", str(tmp_path),
    )  # fmt: skip

    report = report_in(tmp_path)
    on_moto = [test for test in report["tests"] if test["store"] == "moto"]
    assert (done.returncode, report["verdict"]) == (3, "could_not_run"), done.stdout + done.stderr
    assert "the store 'moto' broke down" in report["because"]
    assert {test["outcome"] for test in on_moto} <= {"store_fault", "passed", "unsupported", "skipped"}
    assert report["summary"]["tests"]["store_faults"] >= 1
    assert [fault["store"] for fault in report["faults"]] == ["moto"]
    assert all(row["stores"]["moto"]["outcome"] != "failed" for row in report["requirements"])
    assert all(test["trace"] is None for test in on_moto)
    assert any(test["outcome"] == "failed" for test in report["tests"] if test["store"] == "local"), "it goes on there"


def ending_stores(option: str, place: str) -> tuple[str, ...]:
    return ("--workers", "1", "--", "-p", "conformance.runner.tests.ends_stores", option, place)


@pytest.mark.s3
def test_a_store_that_dies_under_a_test_of_faults_is_blamed_and_never_the_engine(tmp_path: Path) -> None:
    done = touchstone(
        "run", "--store", "moto", "--suite", "faults", "--report", str(tmp_path),
        *ending_stores("--end-stores-at", "failpoints.cuts.sweep.judged"), "-k", "writer_that_is_killed and insert",
    )  # fmt: skip

    report = report_in(tmp_path)
    assert (done.returncode, report["verdict"]) == (3, "could_not_run"), done.stdout + done.stderr
    assert "the store 'moto' broke down: it does not answer" in report["because"]
    assert {test["outcome"] for test in report["tests"]} == {"store_fault"}
    assert all(test["trace"] is None for test in report["tests"])


@pytest.mark.s3
@pytest.mark.parametrize(
    ("option", "place", "words"),
    [
        (
            "--end-stores-at",
            "fixtures.stores.moto.MotoStore.create_bucket",
            "moto's server listens, and makes no bucket",
        ),
        ("--start-nothing-at", "fixtures.stores.catalog.Store.prove", "it could not be started (MemoryError"),
    ],
)
def test_a_store_that_does_not_come_up_for_the_tests_is_blamed_and_never_the_engine(
    option: str, place: str, words: str, tmp_path: Path
) -> None:
    done = touchstone(
        "run", "--store", "moto", "--suite", "MUT", "--profile", "quick", "--report", str(tmp_path),
        *ending_stores(option, place),
    )  # fmt: skip

    report = report_in(tmp_path)
    assert (done.returncode, report["verdict"]) == (3, "could_not_run"), done.stdout + done.stderr
    assert f"the store 'moto' broke down: {words}" in report["because"]
    assert {test["outcome"] for test in report["tests"]} == {"store_fault"}
    assert report["summary"]["requirements"]["failed"] == 0


def test_a_store_that_is_missing_is_said_and_the_others_are_no_success(tmp_path: Path) -> None:
    done = touchstone(
        "run", "--store", "local", "--store", "endpoint", "--suite", "RPR", "--profile", "quick",
        "--report", str(tmp_path),
    )  # fmt: skip

    report = report_in(tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "the store 'endpoint' cannot be used: set AWS_ENDPOINT_URL_S3" in done.stdout
    assert "nothing was tested on endpoint" in report["because"]
    assert report["stores"][1]["skipped"].startswith("set AWS_ENDPOINT_URL_S3")
    passed = report["summary"]["requirements"]["passed"]
    assert passed and report["because"].endswith(f"; elsewhere {passed} requirements shown to hold, none failed")
    assert "tests on local: " in done.stdout and "on endpoint: nothing was tested" in done.stdout
    assert "not tested on every store: " in done.stdout
    assert "<h1>Not tested on every store</h1>" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_a_store_that_is_refused_is_named_in_the_report_and_nothing_is_run_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start() -> AbstractContextManager[Store]:
        raise StoreRefused("carefree", "8 PUTs at once", "8 were told that they had won")

    kind = StoreKind("carefree", "ignores conditions", lambda: None, start)
    monkeypatch.setattr("fixtures.stores.catalog.STORES", {"carefree": kind})
    console = Console(record=True, width=300)

    this = run(RunOptions(stores=("carefree",)), console)

    assert this.verdict is not None and this.verdict.exit_code == NOTHING_TESTED
    assert "nothing was tested on carefree" in this.verdict.because
    assert this.records == [] and "8 were told that they had won" in this.stores[0]["skipped"]
    assert "'carefree' is refused. Tried: 8 PUTs at once." in console.export_text()


@pytest.fixture
def malformed_endpoint(monkeypatch: pytest.MonkeyPatch) -> str:
    """The variables of somebody whose endpoint no client can take apart, and the words that are said about it."""
    given = {
        "AWS_ENDPOINT_URL": "http://1.2.3.4.5:9",
        "AWS_ACCESS_KEY_ID": "somebody",
        "TOUCHSTONE_BUCKET": "my-bucket",
    }
    for name, value in (given | {"AWS_SECRET_ACCESS_KEY": "top-secret"}).items():
        monkeypatch.setenv(name, value)
    return "AWS_ENDPOINT_URL names a host that is neither an IP address nor a name"


@pytest.mark.parametrize("command", ["run", "bench"])
def test_at_an_endpoint_that_cannot_be_meant_nothing_is_tested(
    command: str, malformed_endpoint: str, tmp_path: Path
) -> None:
    options = ("--history", str(tmp_path / "history")) if command == "bench" else ("--suite", "RPR")

    done = touchstone(command, "--store", "endpoint", *options)

    assert done.returncode == NOTHING_TESTED, done.stdout + done.stderr
    assert malformed_endpoint in done.stdout
    assert done.stderr == "" and "top-secret" not in done.stdout


def test_the_doctor_says_that_an_endpoint_cannot_be_meant(
    malformed_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.doctor.STORES", {"endpoint": STORES["endpoint"]})
    console = Console(record=True, width=300)

    show_ledgers(console)

    assert malformed_endpoint in console.export_text()


@pytest.mark.s3
def test_an_endpoint_of_somebody_is_used_by_every_process_of_a_run_and_left_as_it_was(
    moto_store: MotoStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = "a-secret-that-nobody-may-see"
    given = {**moto_store.env, "AWS_SECRET_ACCESS_KEY": secret, "TOUCHSTONE_BUCKET": moto_store.bucket}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    before = {each["path"] for each in obstore.list(moto_store.objects()).collect()}

    engine = f"cmd:{sys.executable} -m reference.cli drive"
    done = touchstone(
        "run", "--engine", engine, "--store", "endpoint", "--suite", "RPR", "--profile", "quick", "--workers", "2",
        "--report", str(tmp_path),
    )  # fmt: skip

    report = report_in(tmp_path)
    assert (done.returncode, report["verdict"]) == (0, "conforms"), done.stdout + done.stderr
    assert {test["store"] for test in report["tests"]} == {"endpoint"}
    assert {each["path"] for each in obstore.list(moto_store.objects()).collect()} == before
    said = done.stdout + done.stderr + "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.*"))
    assert secret not in said


@pytest.mark.s3
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_what_is_left_at_an_endpoint_that_died_is_named(
    workers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with moto.running() as server:
        for name, value in {**server.env, "TOUCHSTONE_BUCKET": server.bucket, "ENDPOINT_PID": str(server.pid)}.items():
            monkeypatch.setenv(name, value)

        done = touchstone(
            "run", "--engine", f"{ENGINES}:EndsItsStore", "--store", "endpoint", "--suite", "DEL",
            "--profile", "quick", "--workers", workers, "--report", str(tmp_path),
        )  # fmt: skip

    assert done.returncode == 3, done.stdout + done.stderr
    assert f"what was written below s3://{server.bucket}/touchstone-" in done.stderr


def test_faults_are_made_at_servers_of_our_own_only() -> None:
    done = touchstone("run", "--suite", "faults", "--store", "endpoint")

    assert done.returncode == 2 and "a server of our own, and 'endpoint' is none" in done.stderr


def lost(**more: Any) -> TestRecord:
    return TestRecord(
        "test_x.py::test_y[reference-moto-core]", 0.1, [Phase("store_fault", "moto", ("LOD-07",), **more)]
    )


def test_a_test_that_the_store_took_along_breaks_nothing_and_makes_nothing_stale() -> None:
    fault = {"test": None, "store": "moto", "message": "the store 'moto' broke down: it is gone", "stderr": ""}

    verdict = judge([lost()], ["moto"], [KnownFailure(1, "LOD-07", "why")], [fault])

    (row,) = (row for row in verdict.requirements if row["id"] == "LOD-07")
    assert (verdict.exit_code, row["outcome"], verdict.known[0]["state"]) == (COULD_NOT_RUN, "not_tested", "not_run")
    assert "the store 'moto' broke down" in verdict.because and "adapter" not in verdict.because
    assert verdict.summary["tests"]["store_faults"] == 1 and verdict.summary["tests"]["failed"] == 0


def shown(stores: list[dict[str, str]]) -> list[str]:
    console = Console(record=True, width=200)
    rows = [
        {"id": f"LOD-0{number}", "stores": {name: {"outcome": outcome} for name, outcome in each.items()}}
        for number, each in enumerate(stores, 1)
    ]
    show_stores(rows, console)
    return console.export_text().splitlines()


def test_requirements_that_are_not_the_same_everywhere_are_named() -> None:
    lines = shown([{"a": "passed", "b": "passed"}, {"a": "passed", "b": "not_tested"}, {"a": "passed", "b": "failed"}])

    assert lines == [
        "on a: passed 3",
        "on b: passed 1, not tested 1, failed 1",
        "not tested on b; passed on a: LOD-02",
        "failed on b; passed on a: LOD-03",
    ]


def test_of_one_store_nothing_more_is_said() -> None:
    assert shown([{"a": "passed"}, {"a": "failed"}]) == []


def test_junit_files_become_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        suite = f'<testsuites><testsuite name="pytest" tests="1"><testcase name="{name}"/></testsuite></testsuites>'
        (tmp_path / f"{name}.xml").write_text(suite, encoding="utf-8")
    parts = [tmp_path / "a.xml", tmp_path / "never-written.xml", tmp_path / "b.xml"]

    join_junit(parts, tmp_path / "whole.xml")

    cases = ElementTree.parse(tmp_path / "whole.xml").getroot().findall("testsuite/testcase")
    assert [case.attrib["name"] for case in cases] == ["a", "b"]
    assert [path.name for path in tmp_path.iterdir()] == ["whole.xml"]
