"""The driver: one session over every operation, each message held against the harness's schemas, both ways."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance import protocol
from reference.driver import Session, serve
from reference.graph import Graph

ROOT = Path(__file__).parents[2]
SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
RECORDS = '{"type":"Person","data":{"name":"ann"}} {"type":"Person","data":{"name":"bob"}} '
RECORDS += '{"edge":"Knows","from":"ann","to":"bob"}'


class Client:
    """Asks a session, and checks every message that goes over the line."""

    def __init__(self) -> None:
        self.session = Session()
        self.asked: set[str] = set()
        self.seq = 0

    def answer(self, op: str, **args: Any) -> dict[str, Any]:
        self.seq += 1
        request = {"seq": self.seq, "op": op, "args": args}
        protocol.check_request(request)
        answer: dict[str, Any] = json.loads(json.dumps(self.session.answer(json.dumps(request).encode())))
        protocol.check_answer(request, answer)
        self.asked.add(op)
        return answer

    def ok(self, op: str, **args: Any) -> Any:
        answer = self.answer(op, **args)
        assert "ok" in answer, answer
        return answer["ok"]

    def error(self, op: str, **args: Any) -> Any:
        return self.answer(op, **args)["error"]


@pytest.fixture
def client() -> Client:
    return Client()


def opened(client: Client, place: Path, **how: Any) -> str:
    handle: str = client.ok("open", uri=str(place), **how)["handle"]
    return handle


def test_one_session_speaks_the_whole_vocabulary(client: Client, tmp_path: Path) -> None:
    hello = client.ok("hello")
    assert hello["name"] == "omniref" and hello["internal_schema_version"] == 4

    client.ok("init", uri=str(tmp_path / "graph"), schema=SCHEMA)
    graph = opened(client, tmp_path / "graph")
    loaded = client.ok("load", handle=graph, data=RECORDS, mode="append", actor="ann")
    assert (loaded["nodes_loaded"], loaded["edges_loaded"]) == (2, 1)

    insert = {"op": "insert", "type": "Person", "data": {"name": "carol", "age": 3}}
    where = {"property": "name", "op": "eq", "value": "bob"}
    client.ok("branch_create", handle=graph, name="feature")
    client.ok("mutate", handle=graph, statements=[insert], branch="feature", actor="bob", name="add carol")
    assert client.ok("branch_list", handle=graph)["branches"] == ["feature", "main"]
    assert client.ok("merge", handle=graph, source="feature", target="main")["outcome"] == "fast_forward"
    removed = client.ok("mutate", handle=graph, statements=[{"op": "delete", "type": "Person", "where": where}])
    assert (removed["affected_nodes"], removed["affected_edges"]) == (1, 1)

    commits = client.ok("commits", handle=graph)["commits"]
    assert client.ok("commit", handle=graph, commit_id=commits[1]["graph_commit_id"]) == commits[1]
    assert [row["id"] for row in client.ok("read", handle=graph, table_key="node:Person")["rows"]] == ["ann", "carol"]
    assert client.ok("entity_at", handle=graph, table_key="node:Person", id="bob")["entity"] is None
    then = {"commit": commits[1]["graph_commit_id"]}
    assert client.ok("entity_at", handle=graph, table_key="node:Person", id="bob", **then)["entity"]["id"] == "bob"
    assert client.ok("snapshot", handle=graph, version=1)["manifest_version"] == 1
    stats = client.ok("diff", handle=graph, older=then, newer={"branch": "main"}, types=["Person"])["stats"]
    assert (stats["inserts"], stats["deletes"]) == (1, 1)
    assert client.ok("export", handle=graph, types=["Person"])["data"].count("\n") == 2

    assert client.ok("refresh", handle=graph)["recovered"] == []
    assert client.ok("recoveries", handle=graph)["recoveries"] == []
    client.ok("sync_branch", handle=graph, branch="feature")
    assert client.ok("snapshot", handle=graph)["branch"] == "feature"
    client.ok("sync_branch", handle=graph, branch="main")
    client.ok("branch_delete", handle=graph, name="feature")

    wanted = SCHEMA.replace("age: I32?", "age: I32?  city: String?")
    assert client.ok("schema_plan", handle=graph, source=wanted)["supported"] is True
    assert client.ok("schema_apply", handle=graph, source=wanted)["applied"] is True
    client.ok("ensure_indices", handle=graph)
    client.ok("optimize", handle=graph)
    client.ok("repair", handle=graph)
    client.ok("cleanup", handle=graph, keep_versions=2)
    client.ok("cleanup", handle=graph, keep_versions=2, older_than_seconds=0, confirm=True)

    client.ok("close", handle=graph)
    assert client.error("snapshot", handle=graph)["code"] == "handle_not_found"
    assert client.asked == set(protocol.operations()) <= set(hello["capabilities"])


@pytest.mark.requirement("SNP-02", "SNP-09")
def test_several_handles_are_several_clients(client: Client, tmp_path: Path) -> None:
    client.ok("init", uri=str(tmp_path), schema=SCHEMA)
    writer, reader = opened(client, tmp_path), opened(client, tmp_path, read_only=True)

    client.ok("load", handle=writer, data=RECORDS, mode="merge")

    assert len(client.ok("read", handle=reader, table_key="node:Person")["rows"]) == 2
    assert client.error("load", handle=reader, data=RECORDS, mode="merge")["code"] == "read_only_handle"


@pytest.mark.parametrize(
    ("op", "args", "code"),
    [
        ("open", {}, "bad_argument"),
        ("open", {"uri": 3}, "bad_argument"),
        ("init", {"uri": "x", "schema": "", "force": 1}, "bad_argument"),
        ("init", {"uri": "x", "schema": "", "colour": "red"}, "bad_argument"),
        ("snapshot", {}, "bad_argument"),
        ("snapshot", {"handle": ["h1"]}, "bad_argument"),
        ("snapshot", {"handle": "h1"}, "handle_not_found"),
        ("open", {"uri": "/no/such/graph"}, "graph_not_found"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(op: str, args: dict[str, Any], code: str) -> None:
    answer = Session().answer(json.dumps({"seq": 7, "op": op, "args": args}).encode())
    assert (answer["seq"], answer["error"]["code"]) == (7, code)


def test_an_operation_that_is_not_there_is_unsupported() -> None:
    request = {"seq": 1, "op": "__init__", "args": {}}
    answer = Session().answer(json.dumps(request).encode())
    protocol.check_answer(request, answer)
    assert "__init__" in answer["unsupported"]


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"op":"hello"}', b'{"seq":true,"op":"hello"}', b"[" * 100_000]
)
def test_a_line_that_is_no_request_is_answered_and_the_driver_goes_on(line: bytes) -> None:
    answers = io.BytesIO()
    serve([line + b"\n", b'{"seq":2,"op":"hello"}\n'], answers)
    first, second = map(json.loads, answers.getvalue().splitlines())
    protocol.check_answer(None, first)
    assert first["error"]["code"] == "malformed_request" and second["seq"] == 2 and "ok" in second


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b'{"seq":3}', "'op' is missing"),
        (b'{"seq":3,"op":1}', "'op' is not a string"),
        (b'{"seq":3,"op":"hello","args":[]}', "'args' is not an object"),
        (b'{"seq":3,"op":"hello","id":1}', "'id'"),
        (b'{"seq":3,"op":"hello","seq":4}', "'seq' occurs twice"),
        (b'{"seq":3,"op":"hello","args":' + b'{"a":' * 200 + b"1" + b"}" * 201, "nested deeper than 100 levels"),
        (b"[" * 100_000, "nested deeper than 100 levels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_request_is_told_what_is_wrong_with_it(line: bytes, named: str) -> None:
    error = Session().answer(line)["error"]
    assert (error["kind"], error["code"]) == ("bad_request", "malformed_request") and named in error["message"]


@pytest.mark.parametrize(
    ("op", "args", "code"),
    [
        ("load", {"data": RECORDS, "mode": "merge", "actor": ""}, "invalid_actor"),
        ("load", {"data": RECORDS, "mode": "merge", "actor": "omnigraph:recovery"}, "invalid_actor"),
        ("cleanup", {"older_than_seconds": 10**20}, "bad_argument"),
        ("cleanup", {"older_than_seconds": -1}, "bad_argument"),
    ],
)
def test_an_argument_that_no_engine_could_take_is_a_bad_request(
    client: Client, tmp_path: Path, op: str, args: dict[str, Any], code: str
) -> None:
    client.ok("init", uri=str(tmp_path), schema=SCHEMA)
    error = client.error(op, handle=opened(client, tmp_path), **args)
    assert (error["kind"], error["code"]) == ("bad_request", code)


def test_an_error_nobody_foresaw_is_an_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(Graph, "open", fail)
    assert client.error("open", uri="/tmp")["message"] == "ZeroDivisionError: oops"


# A library that prints, to stand for any; then the script `omniref drive`.
NOISY_DRIVE = """
import sys
from reference.graph import Graph
refresh = Graph.refresh
def noisy(self):
    print("noise", flush=True)
    return refresh(self)
Graph.refresh = noisy
sys.argv = ["omniref", "drive"]
from reference.cli import main
main()
"""


@pytest.mark.requirement("PUB-23", "REC-05")
def test_the_process_prints_only_answers_and_obeys_failpoints(tmp_path: Path) -> None:
    requests: list[dict[str, Any]] = [
        {"seq": 1, "op": "init", "args": {"uri": str(tmp_path / "graph"), "schema": SCHEMA}},
        {"seq": 2, "op": "open", "args": {"uri": str(tmp_path / "graph")}},
        {"seq": 3, "op": "load", "args": {"handle": "h1", "data": RECORDS, "mode": "merge"}},
        {"seq": 4, "op": "refresh", "args": {"handle": "h1"}},
    ]
    ended = subprocess.run(
        [sys.executable, "-c", NOISY_DRIVE],
        input="".join(json.dumps(request) + "\n" for request in requests).encode(),
        env=os.environ | {"TOUCHSTONE_FAILPOINTS": "mutation.post_finalize_pre_publisher=error*1"},
        capture_output=True,
        cwd=ROOT,
        timeout=60,
    )
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0 and len(answers) == len(requests), ended.stderr
    assert b"noise" in ended.stderr
    for request, answer in zip(requests, answers, strict=True):
        protocol.check_answer(request, answer)
    assert answers[2]["error"]["kind"] == "outcome_pending"
    assert answers[3]["ok"]["recovered"][0]["recovery_kind"] == "RolledForward"
