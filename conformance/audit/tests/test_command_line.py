"""`python -m conformance.audit`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.audit.cli import main
from conformance.audit.tests.forge import Forgery


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sentence is broken into lines."""
    monkeypatch.setenv("COLUMNS", "250")


def test_a_sound_graph_ends_with_0(forgery: Forgery, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(forgery.path)]) == 0
    printed = capsys.readouterr().out
    assert "is sound: nothing found" in printed
    assert "8 rows" in printed


def test_findings_end_with_1_and_name_the_requirement(forgery: Forgery, capsys: pytest.CaptureFixture[str]) -> None:
    forgery.table("node:Person").delete("false")
    assert main([f"file://{forgery.path}"]) == 1
    printed = capsys.readouterr().out
    assert "PUB-21" in printed
    assert "drift-uncovered" in printed
    assert main([str(forgery.path), "--json"]) == 1
    body = json.loads(capsys.readouterr().out)
    (finding,) = body["findings"]
    assert body["ok"] is False
    assert finding["requirement"] == "PUB-21"
    assert finding["where"] == "main/node:Person"
    assert finding["details"]["head"] == finding["details"]["pin"] + 1


def test_warnings_alone_end_with_0(forgery: Forgery, capsys: pytest.CaptureFixture[str]) -> None:
    forgery.sidecar()
    assert main([str(forgery.path)]) == 0
    assert "is sound: 1 warning" in capsys.readouterr().out


def test_rows_are_left_unread_on_demand(forgery: Forgery, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(forgery.path), "--no-data", "--json"]) == 0
    assert "rows" not in json.loads(capsys.readouterr().out)["checked"]


@pytest.mark.parametrize(
    "argv", [[], ["--what"], ["a", "b"], ["gs://bucket/graph"], ["s3://key:secret@bucket/graph"], [""]]
)
def test_a_wrong_request_ends_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert "secret" not in printed.err


def test_no_graph_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 3
    assert "there is no graph at" in capsys.readouterr().err
    assert main([str(tmp_path), "--json"]) == 3
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "unreadable"


def test_a_manifest_that_is_no_dataset_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "__manifest").mkdir()
    assert main([str(tmp_path)]) == 3
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.requirement("STO-02")
def test_a_store_that_does_not_answer_ends_with_3_and_no_secret_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:2",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "KEYKEYKEY",
        "AWS_SECRET_ACCESS_KEY": "hush-hush",
    }.items():
        monkeypatch.setenv(name, value)
    assert main(["s3://bucket/graph"]) == 3
    said = capsys.readouterr().err
    assert "127.0.0.1:1" in said
    assert "hush-hush" not in said
    assert "KEYKEYKEY" not in said


def test_it_runs_as_a_module(forgery: Forgery) -> None:
    command = [sys.executable, "-m", "conformance.audit", str(forgery.path), "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(finished.stdout)["findings"] == []
