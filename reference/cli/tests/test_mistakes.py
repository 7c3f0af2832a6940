"""What people and their shells get wrong: each mistake is named, and no way to end a command shows a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reference.cli.app import run
from reference.graph import Graph

ROOT = Path(__file__).parents[3]
SCHEMA = "node Person { name: String @key }\nedge Likes: Person -> Person"
INSERT = '{"op":"insert","type":"Person","data":{"name":"ann"}}'


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    Graph.init(str(tmp_path / "graph"), SCHEMA)
    return tmp_path / "graph"


def in_shell(redirection: str, *args: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "-m", "reference.cli", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, timeout=60)


def failing(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full"])
@pytest.mark.parametrize("args", [["version"], ["version", "--json"]], ids=" ".join)
def test_an_answer_that_cannot_be_written_is_one_line_and_exit_code_1(redirection: str, args: list[str]) -> None:
    ended = in_shell(redirection, *args)
    assert ended.returncode == 1 and ended.stderr.count(b"\n") == 1
    assert ended.stderr.startswith(b"error [storage/stdout]: ")


def test_help_that_cannot_be_written_is_one_line_and_exit_code_1() -> None:
    ended = in_shell("> /dev/full", "load", "--help")
    assert (ended.returncode, ended.stderr[:24]) == (1, b"error [storage/stdout]: ") and ended.stderr.count(b"\n") == 1


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full"])
def test_an_error_that_cannot_be_written_to_stdout_goes_to_stderr(redirection: str, tmp_path: Path) -> None:
    ended = in_shell(redirection, "load", "--from", "main", "--mode", "merge", tmp_path, "-", "--json")
    assert ended.returncode == 2 and ended.stderr.startswith(b"error [bad_request/usage]: --from")
    assert ended.stderr.count(b"\n") == 1


def test_an_error_that_nobody_reads_ends_with_141() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "reference.cli", "fly", "--json"]
    ended = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_credentials_are_taken_out_of_values_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "unexpected")  # A word that is a code of ours too.
    monkeypatch.setenv("AWS_SESSION_TOKEN", "message")  # Too short to be anybody's secret.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", 'AKIA"IOSFODNN7EXAMPLE')
    monkeypatch.setattr(Graph, "open", failing(RuntimeError('unexpected message, AKIA"IOSFODNN7EXAMPLE')))

    assert run(["snapshot", str(tmp_path), "--json"]) == 1

    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["code"]) == ("internal", "unexpected")
    assert error["message"] == "RuntimeError: *** message, ***"


@pytest.mark.requirement("PUB-23")
@pytest.mark.parametrize(
    ("args", "kind", "said"),
    [
        (["snapshot", "GRAPH"], "interrupted", "interrupted"),
        (["mutate", "GRAPH", INSERT], "outcome_pending", "omniref recover"),
    ],
    ids=["reading", "writing"],
)
def test_an_interrupt_says_whether_the_outcome_is_pending(
    args: list[str],
    kind: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Graph, "open", failing(KeyboardInterrupt()))
    line = [str(tmp_path) if arg == "GRAPH" else arg for arg in args]

    assert run(line) == 130
    printed = capsys.readouterr()
    assert printed.err.startswith("interrupted") and said in printed.err and printed.err.count("\n") == 1

    assert run([*line, "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == kind


@pytest.mark.parametrize("points", ["no.such.point=error", "mutation.post_finalize_pre_publisher=fly", "x"])
def test_failpoints_that_are_misspelt_are_a_bad_request(points: str, tmp_path: Path) -> None:
    ended = in_shell("", "snapshot", tmp_path, TOUCHSTONE_FAILPOINTS=points)
    assert ended.returncode == 2 and ended.stderr.startswith(b"error [bad_request/failpoint]: '")


@pytest.mark.parametrize(
    ("args", "code", "named"),
    [
        (["export", "GRAPH", "--output", ""], "file_unusable", "''"),
        (["load", "--mode", "merge", "--from", "main", "GRAPH", "-"], "usage", "--branch"),
        (["mutate", "GRAPH", INSERT, "--as", ""], "invalid_actor", "empty"),
        (["mutate", "GRAPH", INSERT, "--as", "omnigraph:recovery"], "invalid_actor", "omnigraph:recovery"),
        (["branch", "merge", "GRAPH", "a", "b", "--as", "omnigraph:x"], "invalid_actor", "omnigraph:x"),
        (["mutate", "GRAPH", INSERT[:-1] + ',"op":"delete"}'], "statements", "'op' occurs twice"),
        (["mutate", "GRAPH", "[" * 5000], "statements", "nested deeper"),
        (["cleanup", "GRAPH"], "cleanup_policy_missing", "--older-than"),
        (["cleanup", "GRAPH", "--keep", "0"], "cleanup_policy", "--keep 0"),
        (["cleanup", "GRAPH", "--older-than", "-3d"], "duration", "--older-than '-3d'"),
        (["cleanup", "GRAPH", "--older-than", "999999w"], "duration", "--older-than '999999w'"),
        (["repair", "GRAPH", "--force"], "confirm_required", "--confirm"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_mistake_is_named(
    args: list[str], code: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(tmp_path) if arg == "GRAPH" else arg for arg in args]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error [bad_request/{code}]: ") and named in said


@pytest.mark.parametrize("command", ["snapshot", "recover", "init", "optimize"])
@pytest.mark.parametrize("below", ["", "/below"])
def test_a_file_is_no_graph(command: str, below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "notes"
    file.write_text(SCHEMA)
    schema = ["--schema", str(file)] if command == "init" else []
    assert run([command, *schema, f"{file}{below}"]) == 2
    message = f"{file} is a file, not the directory of a graph"
    assert capsys.readouterr().err == f"error [bad_request/not_a_directory]: {message}\n"


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (b"\xef\xbb\xbf{}", "byte_order_mark", "stdin begins with"),
        (b"\xff", "not_utf8", "stdin is not UTF-8"),
    ],
)
def test_stdin_is_called_stdin(
    text: bytes,
    code: str,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "in").write_bytes(text)
    with open(tmp_path / "in") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert run(["load", "--mode", "merge", str(tmp_path), "-"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error [bad_request/{code}]: ") and named in said


def test_who_names_a_type_is_told_its_table(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, hint in (("Person", "node:Person"), ("Likes", "edge:Likes")):
        assert run(["read", str(graph), name]) == 2
        assert f"did you mean {hint}?" in capsys.readouterr().err


@pytest.mark.requirement("CLN-01", "RPR-01")
@pytest.mark.parametrize("command", [["cleanup", "--keep", "1"], ["repair"]], ids=lambda command: command[0])
def test_a_preview_says_so_in_json_too(command: list[str], graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for confirm in (False, True):
        assert run([*command, str(graph), "--json", *(["--confirm"] if confirm else [])]) == 0
        assert json.loads(capsys.readouterr().out)["confirmed"] is confirm


@pytest.mark.parametrize("command", [["load"], ["mutate"], ["export"], ["branch", "merge"]], ids=" ".join)
def test_help_shows_no_types_of_python(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    said = capsys.readouterr().out
    assert "GRAPH" in said and not set("{}<>") & set(said)
