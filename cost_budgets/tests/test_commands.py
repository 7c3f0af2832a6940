"""`touchstone cost`, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from conformance.cli import app

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
    result = cost(*TINY, "--budgets", str(budgets))
    assert result.exit_code == 1, result.output
    assert "over warm-read, grown: requests (1, 1, 1) against 0 [COST-01]" in result.output


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
