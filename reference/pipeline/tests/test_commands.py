"""`omniref pipeline`, from a generated graph to its audit, through the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.audit.tests.forge import Forgery
from reference.cli.app import run
from reference.graph import Graph
from reference.pipeline import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Omniref = Callable[..., tuple[int, Any]]


@pytest.fixture
def omniref(capsys: pytest.CaptureFixture[str]) -> Omniref:
    """Run a command and give its exit code and its answer, as JSON."""

    def call(*args: object) -> tuple[int, Any]:
        code = run(["pipeline", *map(str, args), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


def test_the_commands_from_generate_to_diff(
    spark: SparkSession, omniref: Omniref, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, place = tmp_path / "generated", tmp_path / "graph"
    code, made = omniref("generate", "--nodes", 300, "--edges", 900, "--seed", 7, source)
    assert code == 0 and made["tables"]["edge:Knows"]["rows"] > 700
    assert [each["stage"] for each in made["stages"]] == ["making rows"]
    graph = Graph.init(str(place), (source / "schema.pg").read_text())
    assert omniref("load", "--mode", "append", place, source)[0] == 0
    version = graph.snapshot().version

    code, report = omniref("audit", place)
    assert (code, report["ok"], report["checked"]["rows"]) == (0, True, 1_200)

    graph.load(json.dumps({"type": "City", "data": {"country": "xx", "zip": 1, "name": "New"}}), mode="append")
    code, found = omniref("diff", place, "--from", f"main@{version}", "--to", "main")
    assert code == 0 and found["stats"] == {"inserts": 1, "updates": 0, "deletes": 0, "types_affected": ["City"]}
    assert found["tables"][0]["samples"]["insert"][0]["after"]["name"] == "New"

    code, done = omniref("export", place, tmp_path / "then", "--version", version)
    assert code == 0 and done["records"] == 1_200
    assert run(["pipeline", "export", str(place), str(tmp_path / "now"), "--format", "parquet"]) == 0
    said = capsys.readouterr().out
    assert "1201 records in 8 files" in said and "writing parquet" in said, "what was written, and what the stages took"

    again = Graph.init(str(tmp_path / "again"), (tmp_path / "now" / "schema.pg").read_text())
    assert omniref("load", "--mode", "append", tmp_path / "again", tmp_path / "now")[0] == 0
    assert list(again.export()) == list(graph.export()), "an export to Parquet loads again to the same graph"


def test_a_graph_that_is_not_sound_ends_with_one(spark: SparkSession, omniref: Omniref, tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), "node Person {\n  name: String @key\n}\n")
    graph.load('{"type":"Person","data":{"name":"ann"}}', mode="append")
    Forgery(tmp_path / "graph").amend("node:Person", lambda table: table.update({"id": "'bob'"}))
    code, report = omniref("audit", tmp_path / "graph")
    assert code == 1 and [each["code"] for each in report["findings"]] == ["key"]
    assert run(["pipeline", "audit", str(tmp_path / "graph")]) == 1


@pytest.mark.parametrize(
    ("args", "code", "kind"),
    [
        (["audit", "nowhere"], 3, "not_found"),
        (["diff", "graph", "--from", "main@x"], 2, "bad_request"),
        (["diff", "graph", "--from", "gone"], 3, "not_found"),
        (["export", "graph", "out", "--format", "xml"], 2, "bad_request"),
        (["export", "graph", "graph"], 2, "bad_request"),
        (["generate", "out", "--nodes", "0", "--edges", "1"], 2, "bad_request"),
        (["history", "nowhere"], 3, "not_found"),
    ],
)
def test_mistakes_have_the_exit_code_of_their_kind(
    spark: SparkSession, omniref: Omniref, tmp_path: Path, monkeypatch: Any, args: list[str], code: int, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Graph.init("graph", "node Person {\n  name: String @key\n}\n")
    found, answer = omniref(*args)
    assert (found, answer["error"]["kind"]) == (code, kind)


def test_without_java_one_sentence_says_what_to_install(
    monkeypatch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(session, "java_version", lambda: None)
    assert run(["pipeline", "generate", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "Java" in said[0] and "spark_unavailable" in said[0]
    assert not (tmp_path / "out").exists()
