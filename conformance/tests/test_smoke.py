"""The smoke test of an adapter: green on one that works, and a sentence with advice for each way not to."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from conformance import protocol
from conformance.adapters import EngineError, InvalidEngineSpec
from conformance.smoke import CORE_OPERATIONS, SmokeReport, Step, render, smoke, smoke_command
from fixtures import drivers

DRIVERS = Path(drivers.__file__).parent
NODE_DRIVER = DRIVERS / "node" / "driver.mjs"
GUIDE = DRIVERS.parents[1] / "docs" / "guides" / "writing-an-adapter.md"
HERE = "python:conformance.tests.test_smoke"


class Toy:
    """An engine in memory, with the core operations and no more."""

    def __init__(self) -> None:
        self.graphs: dict[str, dict[str, dict[str, Any]]] = {}
        self.open_graphs: dict[str, str] = {}
        self.opened = 0

    def hello(self) -> Any:
        named = {"name": "toy", "version": "1", "protocol_version": 1, "internal_schema_version": 0}
        return {**named, "capabilities": [*CORE_OPERATIONS, "levitation"]}

    def init(self, *, uri: str, schema: str) -> Any:
        self.graphs[uri] = {}
        return {}

    def open(self, *, uri: str) -> Any:
        if uri not in self.graphs:
            raise EngineError("not_found", "graph_not_found", "there is no such graph")
        self.opened += 1
        self.open_graphs[self.handle()] = uri
        return {"handle": self.handle(), "recovered": []}

    def handle(self) -> str:
        return f"h{self.opened}"

    def rows(self, handle: str) -> dict[str, dict[str, Any]]:
        if handle not in self.open_graphs:
            raise EngineError("not_found", "handle_not_found", f"no graph is open as {handle}")
        return self.graphs[self.open_graphs[handle]]

    def close(self, *, handle: str) -> Any:
        del self.open_graphs[handle]
        return {}

    def load(self, *, handle: str, data: str, mode: str, actor: str | None = None) -> Any:
        for record in map(json.loads, data.strip().split("\n")):
            if "type" in record:
                self.rows(handle)[record["data"]["name"]] = record["data"]
        counts = {"nodes_loaded": 0, "edges_loaded": 0}
        return {"branch": "main", "base_branch": None, "branch_created": False, **counts, "commit": COMMIT}

    def mutate(self, *, handle: str, statements: Any, name: str) -> Any:
        return {"affected_nodes": 0, "affected_edges": 0, "commit": None}

    def read(self, *, handle: str, table_key: str) -> Any:
        return {"rows": [{"id": name, **row} for name, row in self.rows(handle).items()]}

    def export(self, *, handle: str) -> Any:
        return {
            "data": "".join(json.dumps({"type": "Person", "data": row}) + "\n" for row in self.rows(handle).values())
        }

    def commits(self, *, handle: str) -> Any:
        return {"commits": [COMMIT]}

    def snapshot(self, *, handle: str) -> Any:
        self.rows(handle)
        return {"branch": "main", "manifest_version": 1, "internal_schema_version": 0, "tables": []}


COMMIT = {"graph_commit_id": "0" * 26, "manifest_branch": None, "manifest_version": 1, "created_at": 0}


class OneHandle(Toy):
    def handle(self) -> str:
        return "h"


class NeverForgets(Toy):
    def close(self, *, handle: str) -> Any:
        return {}


class OpensAnything(Toy):
    def open(self, *, uri: str) -> Any:
        self.graphs.setdefault(uri, {})
        return super().open(uri=uri)


class MissingIsInternal(Toy):
    def open(self, *, uri: str) -> Any:
        try:
            return super().open(uri=uri)
        except EngineError as error:
            raise EngineError("internal", "oops", error.message) from None


class Latin(Toy):
    def load(self, *, handle: str, data: str, mode: str, actor: str | None = None) -> Any:
        return super().load(handle=handle, data=data.encode("ascii", "replace").decode(), mode=mode)


class ExportsNoLines(Toy):
    def export(self, *, handle: str) -> Any:
        return {"data": "{}{}"}


class ExportsNoRecords(Toy):
    def export(self, *, handle: str) -> Any:
        return {"data": '{"table": 1}\n'}


class RefusesToInit(Toy):
    def init(self, *, uri: str, schema: str) -> Any:
        raise EngineError("storage", "disk_full", "there is no room")


class Forgetful(Toy):
    """Declares an operation that it does not have, and does not declare another that it does not have."""

    commits = None  # type: ignore[assignment]
    export = None  # type: ignore[assignment]

    def hello(self) -> Any:
        hello = super().hello()
        return {**hello, "capabilities": [each for each in hello["capabilities"] if each != "export"]}


def step(report: SmokeReport, name: str) -> Step:
    return next(each for each in report.steps if each.name == name)


def failed(report: SmokeReport) -> list[str]:
    return [each.name for each in report.steps if each.outcome == "failed"]


def node_driver() -> str:
    if shutil.which("node") is None:
        pytest.skip("node is not on the PATH")
    return f"cmd:node {shlex.quote(str(NODE_DRIVER))}"


@pytest.mark.parametrize("spec", [node_driver, lambda: "reference", lambda: f"{HERE}:Toy"], ids=["node", "ref", "toy"])
def test_an_adapter_that_works_is_green_in_every_step(spec: Callable[[], str], tmp_path: Path) -> None:
    report = smoke(spec(), {}, str(tmp_path))
    assert [each.outcome for each in report.steps] == ["ok"] * 17, report
    assert report.exit_code == 0


def test_the_example_can_be_read_in_one_sitting() -> None:
    lines = NODE_DRIVER.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 120


def test_the_guide_shows_messages_of_the_protocol_and_the_code_of_the_example() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    sent = [json.loads(line[2:]) for line in guide.splitlines() if line.startswith("→ {")]
    answered = [json.loads(line[2:]) for line in guide.splitlines() if line.startswith("← {")]
    for request, answer in zip(sent, answered, strict=True):
        protocol.check_request(request)
        protocol.check_answer(request, answer)
    assert len(sent) == 9
    code = guide.partition("```js\n")[2].partition("```")[0]
    assert code and NODE_DRIVER.read_text(encoding="utf-8").endswith(code)


def test_capabilities_that_nobody_knows_are_named(tmp_path: Path) -> None:
    said = step(smoke(f"{HERE}:Toy", {}, str(tmp_path)), "hello").explanation
    assert said.endswith("11 capabilities; not known to the protocol: levitation")


@pytest.mark.parametrize(
    ("engine", "name", "says", "advises"),
    [
        ("OneHandle", "two handles", "the same handle 'h'", "a handle of its own"),
        ("NeverForgets", "close", "a closed handle still answers", "Forget a handle"),
        ("OpensAnything", "an error with a type", "was opened", "kind not_found"),
        ("MissingIsInternal", "an error with a type", "internal/oops", "kind not_found"),
        ("Latin", "text of all kinds", 'came back as ["?arol ?', "as UTF-8"),
        ("ExportsNoLines", "export", "no line feed", "line feed"),
        ("ExportsNoRecords", "export", "is no record", "`type` or `edge`"),
    ],
)
def test_a_step_that_fails_says_what_it_saw_and_what_to_do(
    tmp_path: Path, engine: str, name: str, says: str, advises: str
) -> None:
    report = smoke(f"{HERE}:{engine}", {}, str(tmp_path))
    assert failed(report) == [name] and report.exit_code == 3
    assert says in step(report, name).explanation and advises in step(report, name).advice


def test_an_operation_that_is_missing_fails_only_if_it_was_declared(tmp_path: Path) -> None:
    report = smoke(f"{HERE}:Forgetful", {}, str(tmp_path))
    assert step(report, "export").outcome == "unsupported" and "does not declare: export" in str(report)
    assert failed(report) == ["commits"] and "hello declares it" in step(report, "commits").explanation


def test_without_a_graph_nothing_more_is_tried(tmp_path: Path) -> None:
    report = smoke(f"{HERE}:RefusesToInit", {}, str(tmp_path))
    assert failed(report) == ["init"] and "storage/disk_full" in step(report, "init").explanation
    assert {each.outcome for each in report.steps[3:]} == {"not tried"}


@pytest.mark.parametrize(
    ("driver", "name", "advises"),
    [
        ("garbage", "init", "nothing else to stdout"),
        ("dies_mid_request", "init", "error of kind internal"),
        ("out_of_order", "init", "copy its seq"),
        ("prints_to_stdout", "open", "to stderr"),
        ("not_an_answer", "init", "conformance/protocol"),
        ("not_utf8", "init", "as UTF-8"),
    ],
)
def test_a_broken_driver_is_advised_at_the_step_that_it_broke(
    tmp_path: Path, driver: str, name: str, advises: str
) -> None:
    command = shlex.join([sys.executable, str(DRIVERS / "broken" / f"{driver}.py")])
    report = smoke(f"cmd:{command}", {}, str(tmp_path), timeout_seconds=30)
    assert failed(report) == [name] and advises in step(report, name).advice
    assert report.steps[-1].outcome == "not tried"


def test_the_report_for_people_shows_the_step_the_words_and_the_advice() -> None:
    steps = (Step("start", "ok", "started: x"), Step("hello", "failed", "it said [bold]no", "Say yes."))
    out = StringIO()
    render(SmokeReport("cmd:x", (*steps, Step("init", "not tried", "later"))), Console(file=out, width=80))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "ok      start  started: x",
        "FAILED  hello  it said [bold]no",
        "               → Say yes.",
        "-       init   later",
        "",
        "The adapter cannot be run yet. Start with the first step that failed.",
    ]


def command_line(*args: str, stdin: str = "") -> Any:
    app = typer.Typer()
    app.command()(smoke_command)
    return CliRunner().invoke(app, list(args), input=stdin)


def test_the_command_ends_with_the_code_of_its_report(tmp_path: Path) -> None:
    green = command_line("--engine", f"{HERE}:Toy", "--root", str(tmp_path))
    assert green.exit_code == 0 and f"touchstone run --engine {HERE}:Toy" in green.stdout
    red = command_line("--engine", "cmd:/no/such/driver", "--json")
    assert red.exit_code == 3 and json.loads(red.stdout)["steps"][0]["outcome"] == "failed"
    wrong = command_line("--engine", "./driver")
    assert wrong.exit_code == 2 and "names no engine" in wrong.stderr


def test_who_attaches_is_shown_the_process_and_waited_for() -> None:
    shown = command_line("--engine", f"{HERE}:Toy", "--attach", stdin="\n")
    assert shown.exit_code == 0 and "attach to it, then press Enter" in shown.stderr and "process " in shown.stderr


def test_a_text_that_names_no_engine_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InvalidEngineSpec):
        smoke("engine", {}, str(tmp_path))
