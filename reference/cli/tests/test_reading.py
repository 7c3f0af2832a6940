"""The commands that read, through the command line, on a graph that the public engine wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from reference.cli.app import run
from reference.graph import Graph

Omniref = Callable[..., str]


@pytest.fixture
def omniref(capsys: pytest.CaptureFixture[str]) -> Omniref:
    """Run a command that must succeed, and return what it printed."""

    def call(*args: object) -> str:
        code = run([str(arg) for arg in args])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    return call


@pytest.fixture
def social(tmp_path: Path) -> Path:
    return golden.unpack("social", tmp_path)


def files(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*")}


def without_nulls(commits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in commit.items() if value is not None} for commit in commits]


@pytest.mark.requirement("STM-10")
def test_version_prints_the_release_and_the_internal_schema(omniref: Omniref) -> None:
    first, second = omniref("version").splitlines()
    assert first.startswith("omniref ") and second == "internal-schema 4"
    assert json.loads(omniref("version", "--json"))["internal_schema_version"] == 4


@pytest.mark.requirement("SRV-06")
def test_snapshot_says_what_the_public_engine_says(omniref: Omniref, social: Path) -> None:
    assert json.loads(omniref("snapshot", social, "--json")) == golden.expect("social")["snapshot"]["main"]


@pytest.mark.requirement("LIN-10", "SRV-06")
def test_commit_list_says_what_the_public_engine_says(omniref: Omniref, social: Path) -> None:
    expected = golden.expect("social")["commits"]["main"]
    expected = expected if isinstance(expected, list) else expected["commits"]

    listed = json.loads(omniref("commit", "list", social, "--json"))

    assert without_nulls(listed) == without_nulls(expected)
    last = listed[-1]["graph_commit_id"]
    assert json.loads(omniref("commit", "show", social, last, "--json")) == listed[-1]
    assert last in omniref("commit", "list", social)


@pytest.mark.requirement("EXP-01", "EXP-02")
def test_export_prints_what_the_public_engine_exports(omniref: Omniref, social: Path, tmp_path: Path) -> None:
    expected = golden.expect("social")["export"]["main"]
    assert omniref("export", social) == expected

    said = omniref("export", social, "--output", tmp_path / "out.jsonl", "--json")

    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == expected
    assert json.loads(said)["records"] == expected.count("\n")


def test_an_export_that_fails_leaves_the_file_that_was_there(
    social: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out" / "social.jsonl"
    output.parent.mkdir()
    output.write_text("before")

    def half(*_: Any, **__: Any) -> Any:
        yield b"{}\n"
        raise RuntimeError("the store went away")

    monkeypatch.setattr(Graph, "export", half)
    assert run(["export", str(social), "--output", str(output)]) == 1
    assert [path.read_text() for path in output.parent.iterdir()] == ["before"]


@pytest.mark.requirement("SNP-09", "REC-21", "EXP-05")
@pytest.mark.parametrize(
    "command",
    [["snapshot"], ["commit", "list"], ["export"], ["branch", "list"], ["recoveries"], ["read"], ["diff"]],
    ids=" ".join,
)
def test_a_reading_command_changes_nothing_beside_a_dead_writer(
    omniref: Omniref, tmp_path: Path, command: list[str]
) -> None:
    golden.unpack("crashed-load", tmp_path)
    graph = golden.localize(tmp_path)
    before = files(graph)
    rest = {"read": ["node:Person"], "diff": ["main@1", "main"]}.get(command[0], [])

    omniref(*command, graph, *rest)

    assert files(graph) == before


@pytest.mark.requirement("SNP-03", "SNP-04", "SNP-06")
def test_rows_can_be_read_now_and_as_of_a_version_or_a_commit(omniref: Omniref, social: Path) -> None:
    genesis = json.loads(omniref("commit", "list", social, "--json"))[0]["graph_commit_id"]
    now = json.loads(omniref("read", social, "node:Person", "--json"))

    assert [json.loads(line) for line in omniref("read", social, "node:Person").splitlines()] == now
    assert json.loads(omniref("entity", social, "node:Person", now[0]["id"])) == now[0]
    assert omniref("entity", social, "node:Person", "nobody") == "null\n"
    assert json.loads(omniref("read", social, "node:Person", "--version", "1", "--json")) == []
    assert json.loads(omniref("read", social, "node:Person", "--commit", genesis, "--json")) == []


@pytest.mark.requirement("CHG-01")
def test_diff_says_what_came_since_a_version(omniref: Omniref, social: Path) -> None:
    found = json.loads(omniref("diff", social, "main@1", "main", "--type", "Person", "--json"))
    people = json.loads(omniref("read", social, "node:Person", "--json"))
    assert {change["id"] for change in found["changes"]} == {row["id"] for row in people}
    assert found["stats"]["inserts"] == len(people)


def test_schema_show_prints_the_source_as_it_was_written(omniref: Omniref, social: Path) -> None:
    assert omniref("schema", "show", social) == (social / "_schema.pg").read_text(encoding="utf-8")


def test_what_a_graph_holds_cannot_talk_to_the_terminal(
    omniref: Omniref, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Graph, "branch_list", lambda _: ["main", "\x1b]0;owned\x07", "[red]x[/red]"])
    Graph.init(str(tmp_path / "graph"), "node A { n: String? }")
    assert omniref("branch", "list", tmp_path / "graph") == "main\n\\x1b]0;owned\\x07\n[red]x[/red]\n"


def test_version_and_help_do_not_load_the_engine() -> None:
    script = "import sys; from reference.cli.app import run; run(['version']); run(['load', '--help'])"
    script += "; sys.exit('lance' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60).returncode == 0
