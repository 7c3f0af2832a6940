"""The commands that write, and the ways in which a command can end, through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from failpoints import registry
from fixtures import golden
from reference.cli.app import run
from reference.errors import Conflict, Internal, NotFound, OmniError, OutcomePending, StorageError
from reference.graph import Graph

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "fixtures/schemas/social.pg"
RECORDS = ROOT / "fixtures/records/social.jsonl"
SMALL = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
INSERT = '{"op":"insert","type":"Person","data":{"name":"ann","age":1}}'

Omniref = Callable[..., Any]


@pytest.fixture
def omniref(capsys: pytest.CaptureFixture[str]) -> Omniref:
    """Run a command with --json that must end with `code`, and return what it answered."""

    def call(*args: object, code: int = 0) -> Any:
        ended = run([*(str(arg) for arg in args), "--json"])
        printed = capsys.readouterr()
        assert ended == code, printed
        return json.loads(printed.out)

    return call


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    Graph.init(str(tmp_path / "graph"), SMALL)
    return tmp_path / "graph"


def process(*args: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "reference.cli", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, timeout=60)


def test_a_graph_is_made_loaded_and_looked_at(omniref: Omniref, tmp_path: Path) -> None:
    place = tmp_path / "graph"
    assert len(omniref("init", "--schema", SCHEMA, place)["tables"]) == 6

    loaded = omniref("load", "--mode", "merge", "--as", "ann", place, RECORDS)

    assert (loaded["nodes_loaded"], loaded["edges_loaded"]) == (8, 6)
    tables = omniref("snapshot", place)["tables"]
    assert {each["table_key"]: each["row_count"] for each in tables}["node:Person"] == 4
    by_ann = omniref("commit", "list", place, "--filter", "actor=ann")
    assert [each["graph_commit_id"] for each in by_ann] == [loaded["commit"]["graph_commit_id"]]
    assert omniref("commit", "list", place, "--filter", "who=ann", code=2)["error"]["code"] == "filter"


def test_records_and_statements_can_come_from_stdin(
    omniref: Omniref, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command, text in (
        (("load", "--mode", "append", graph, "-"), '{"type":"Person","data":{"name":"bob"}}'),
        (("mutate", graph, "--statements", "-"), f"[{INSERT}]"),
    ):
        (tmp_path / "in").write_text(text)
        with open(tmp_path / "in") as stdin, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stdin)
            omniref(*command)
    assert [row["id"] for row in omniref("read", graph, "node:Person")] == ["ann", "bob"]


def test_a_branch_is_created_written_merged_and_deleted(omniref: Omniref, graph: Path) -> None:
    omniref("branch", "create", graph, "feature")
    omniref("mutate", graph, INSERT, "--branch", "feature")
    assert omniref("read", graph, "node:Person") == []

    assert omniref("branch", "merge", graph, "feature", "main", "--as", "bob")["outcome"] == "fast_forward"

    assert [row["id"] for row in omniref("read", graph, "node:Person")] == ["ann"]
    assert omniref("commit", "list", graph)[-1]["merged_parent_commit_id"] is not None
    omniref("branch", "delete", graph, "feature")
    assert omniref("branch", "list", graph) == ["main"]


@pytest.mark.requirement("SCH-03", "SCH-04")
def test_a_schema_is_planned_applied_and_shown(omniref: Omniref, graph: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.pg"
    wanted.write_text(SMALL.replace("age: I32?", "age: I32?  city: String?"))

    assert [step["kind"] for step in omniref("schema", "plan", graph, "--schema", wanted)["steps"]] == ["add_property"]
    assert omniref("schema", "show", graph)["schema"] == SMALL

    assert omniref("schema", "apply", graph, "--schema", wanted)["applied"] is True
    assert omniref("schema", "show", graph)["schema"] == wanted.read_text()
    assert omniref("schema", "apply", graph, "--schema", wanted)["applied"] is False


@pytest.mark.requirement("CLI-02", "CLN-01")
def test_cleanup_wants_a_policy_and_previews_until_it_is_confirmed(
    omniref: Omniref, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for age in range(4):
        omniref("mutate", graph, INSERT.replace("1", str(age)))
    versions = graph / "nodes" / "40d76f1f51639ec0" / "_versions"
    before = sorted(versions.iterdir())

    assert omniref("cleanup", graph, code=2)["error"]["kind"] == "bad_request"
    assert omniref("cleanup", graph, "--older-than", "a week", code=2)["error"]["code"] == "duration"
    assert run(["cleanup", str(graph), "--keep", "1"]) == 0
    assert "preview" in capsys.readouterr().err and sorted(versions.iterdir()) == before

    omniref("cleanup", graph, "--keep", "1", "--confirm")
    assert len(list(versions.iterdir())) < len(before)
    assert [row["age"] for row in omniref("read", graph, "node:Person")] == [3]


@pytest.mark.requirement("RPR-01", "OPT-01", "IDX-05")
def test_maintenance_reports_each_table_and_changes_no_content(omniref: Omniref, graph: Path) -> None:
    omniref("mutate", graph, INSERT)
    rows = omniref("read", graph, "node:Person")
    omniref("ensure-indices", graph)
    assert omniref("optimize", graph)[-1]["table_key"] == "__manifest"
    assert {each["classification"] for each in omniref("repair", graph)["tables"]} == {"no_drift"}
    assert omniref("repair", graph, "--force", code=2)["error"]["kind"] == "bad_request"
    assert omniref("read", graph, "node:Person") == rows


@pytest.mark.requirement("RPR-01")
def test_repair_that_refuses_a_table_ends_with_4(omniref: Omniref, graph: Path) -> None:
    table = lance.dataset(str(graph / "nodes" / "40d76f1f51639ec0"))
    table.insert(pa.table({"id": ["mallory"], "age": pa.array([1], pa.int32()), "name": ["mallory"]}, table.schema))

    assert "suspicious" in {each["classification"] for each in omniref("repair", graph)["tables"]}
    assert "refused" in {each["action"] for each in omniref("repair", graph, "--confirm", code=4)["tables"]}
    omniref("repair", graph, "--confirm", "--force")
    assert [row["id"] for row in omniref("read", graph, "node:Person")] == ["mallory"]


@pytest.mark.requirement("CLN-04")
def test_cleanup_that_failed_on_a_table_ends_with_1(omniref: Omniref, graph: Path) -> None:
    with registry.armed("cleanup.table_gc", "error", times=1):
        stats = omniref("cleanup", graph, "--keep", "1", "--confirm", code=1)
    assert [each["error"] is None for each in stats["tables"]] == [False, True]


@pytest.mark.requirement("REC-05")
def test_recover_says_what_it_found_and_did(omniref: Omniref, tmp_path: Path) -> None:
    golden.unpack("crashed-load", tmp_path)
    place = golden.localize(tmp_path)

    first = omniref("recover", place)

    assert len(first["found"]) == 1 and first["left"] == []
    assert [row["recovery_kind"] for row in first["done"]] == ["RolledForward"]
    assert omniref("recover", place) == {"found": [], "done": [], "left": []}
    assert omniref("recoveries", place) == first["done"]


@pytest.mark.requirement("REC-05", "LIN-11")
def test_a_writer_that_is_killed_is_rolled_forward_by_the_next_read_write_open(omniref: Omniref, graph: Path) -> None:
    point = "mutation.post_finalize_pre_publisher=kill"
    assert process("mutate", graph, INSERT, "--as", "ann", TOUCHSTONE_FAILPOINTS=point).returncode == -9
    assert omniref("read", graph, "node:Person") == []

    omniref("branch", "create", graph, "any-writer")

    assert [row["id"] for row in omniref("read", graph, "node:Person")] == ["ann"]
    (audited,) = omniref("recoveries", graph)
    assert (audited["recovery_kind"], audited["recovery_for_actor"]) == ("RolledForward", "ann")
    last = omniref("commit", "list", graph)[-1]
    assert (last["actor_id"], last["graph_commit_id"]) == ("omnigraph:recovery", audited["graph_commit_id"])


# -- how a command ends ------------------------------------------------------------------------------------------


@pytest.mark.requirement("PUB-23")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Internal("broken"), 1),
        (StorageError("away"), 1),
        (NotFound("no such"), 3),
        (Conflict("taken", code="branch_exists", hint="try another"), 4),
        (OutcomePending("who knows"), 5),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_each_kind_of_error_has_its_exit_code_and_one_line(
    error: OmniError, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Graph, "open", _raising(error))

    assert run(["snapshot", str(tmp_path)]) == code
    printed = capsys.readouterr()
    hint = f" ({error.hint})" if error.hint else ""
    assert printed.err == f"error [{error.kind}/{error.code}]: {error.message}{hint}\n" and printed.out == ""

    assert run(["snapshot", str(tmp_path), "--json"]) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"error": error.to_json()} and printed.err == ""


@pytest.mark.parametrize("args", [["no-such-command"], ["load"], ["snapshot", "x", "--version", "three"], ["branch"]])
def test_a_wrong_command_line_ends_with_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*args, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["mutate", "GRAPH"], 2),
        (["mutate", "GRAPH", "not json"], 2),
        (["load", "--mode", "upsert", "GRAPH", str(RECORDS)], 2),
        (["load", "--mode", "merge", "GRAPH", "/no/such/file"], 3),
        (["snapshot", "GRAPH", "--branch", "nowhere"], 3),
        (["commit", "show", "GRAPH", "nothing"], 3),
        (["read", "GRAPH", "node:Nobody"], 3),
        (["init", "--schema", str(SCHEMA), "GRAPH"], 4),
        (["snapshot", "s3://bucket/a%20b"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_person_gets_wrong_has_a_code_of_its_own(
    args: list[str], code: int, graph: Path, omniref: Omniref
) -> None:
    assert "error" in omniref(*(str(graph) if arg == "GRAPH" else arg for arg in args), code=code)


@pytest.mark.requirement("VAL-13")
def test_a_schema_error_points_at_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.pg").write_text("node Person {\n  name: Strin\n}\n")
    assert run(["init", "--schema", str(tmp_path / "bad.pg"), str(tmp_path / "graph")]) == 2
    first, line, caret, hint = capsys.readouterr().err.splitlines()
    assert first.startswith("error [bad_request/schema_") and hint.startswith("hint: ")
    assert line[caret.index("^") :].startswith("Strin")


def test_an_error_nobody_foresaw_is_one_line_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    monkeypatch.setattr(Graph, "open", _raising(RuntimeError("signed with wJalrXUtnFEMI/K7MDENG\nsomewhere")))

    assert run(["snapshot", str(tmp_path)]) == 1
    plain = capsys.readouterr().err
    assert plain.startswith("error [internal/unexpected]: RuntimeError: signed with *** somewhere")
    assert plain.count("\n") == 1

    monkeypatch.setenv("OMNIREF_DEBUG", "1")
    assert run(["snapshot", str(tmp_path), "--json"]) == 1
    printed = capsys.readouterr()
    assert "Traceback" in printed.err and "wJalr" not in printed.err + printed.out


def test_a_reader_that_goes_away_ends_the_command_quietly(graph: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "reference.cli", "snapshot", str(graph)]
    ended = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def _raising(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail
