"""`touchstone smoke`: is the adapter fit to be run, and if not, what is wrong with it?

One small conversation, step by step, each explained. It judges how an engine is spoken with and never what it says: a
wrong number of rows is the suites' business, a wrong shape is this one's. The first fault ends the conversation,
because what comes after it says nothing; the steps that were not tried are listed as such.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance import protocol
from conformance.adapters import (
    TIMEOUT_SECONDS,
    AdapterFault,
    Conversation,
    EngineError,
    FaultReason,
    InvalidEngineSpec,
    ProcessTransport,
    Unsupported,
    connect,
    parse,
)
from conformance.capabilities import OPERATIONS

EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
EXIT_CANNOT_RUN: Final = 3

# What every engine has to have; a run counts each of these that is missing as a failure.
CORE_OPERATIONS: Final = ("hello", *sorted(OPERATIONS["core"]))
KNOWN_CAPABILITIES: Final = frozenset({*protocol.operations(), "failpoints", "s3"}.union(*OPERATIONS.values()))
# Somebody who holds the driver in a debugger does not want it killed meanwhile.
ATTACHED_TIMEOUT_SECONDS: Final = 3600.0
LARGE_CHARACTERS: Final = 1 << 20
ODD_TEXT: Final = 'Çarol ☂ 𝄞 "quoted" \\ back\tslash\nand a new line, \u2028 and another'

SCHEMA: Final = """node Person {
  name: String @key
  note: String?
}
edge Knows: Person -> Person
"""
RECORDS: Final = """{"type": "Person", "data": {"name": "ann"}}
{"type": "Person", "data": {"name": "bob", "note": "second"}}
{"edge": "Knows", "from": "ann", "to": "bob"}
"""

ADVICE: Final[Mapping[FaultReason, str]] = {
    "not_started": "Run the command in a shell first. After `cmd:` comes a command line, and no shell reads it.",
    "exited_before_first_answer": "Mend what its stderr says. A driver stays, and reads stdin until it ends.",
    "exited_mid_request": "Catch whatever an operation raises and answer with an error of kind internal.",
    "exited_between_requests": "A driver stays and reads stdin, line by line, until stdin ends. Look at its stderr.",
    "gave_up": "The driver says on stderr what it lacks. That says nothing about the engine.",
    "closed_stdout": "Keep stdout open; a driver ends when its stdin does.",
    "silent": "Write the answer, a line feed, and flush. If the work takes this long, raise --timeout.",
    "line_too_long": "An answer is one line. Check that it ends with a line feed.",
    "not_utf8": "Write stdout as UTF-8, whatever the locale says.",
    "not_json": "Write JSON and nothing else to stdout: one object on one line. Send logs to stderr.",
    "not_an_answer": "Compare the answer with conformance/protocol/*.schema.json at the place that is named.",
    "wrong_seq": "Answer each request before the next one, and copy its seq.",
    "spoke_unasked": "Write one line per request. Send logs, and what libraries print, to stderr.",
    "raised": "Raise conformance.adapters.EngineError for what the engine refuses.",
    "closed": "Connect anew.",
}

Outcome = Literal["ok", "failed", "unsupported", "not tried"]


@dataclass(frozen=True)
class Step:
    """One thing that was tried: how it went, in words, and what to do about it."""

    name: str
    outcome: Outcome
    explanation: str
    advice: str = ""


@dataclass(frozen=True)
class SmokeReport:
    """The whole conversation."""

    spec: str
    steps: tuple[Step, ...]

    @property
    def ok(self) -> bool:
        return not any(step.outcome == "failed" for step in self.steps)

    @property
    def exit_code(self) -> int:
        return EXIT_OK if self.ok else EXIT_CANNOT_RUN

    def to_json(self) -> dict[str, Any]:
        return {"engine": self.spec, "ok": self.ok, "steps": [vars(step) for step in self.steps]}


class Misfit(Exception):
    """An answer in the right shape that still shows an adapter at fault: what it shows, and what to do."""

    def __init__(self, explanation: str, advice: str) -> None:
        super().__init__(explanation, advice)
        self.explanation = explanation
        self.advice = advice


class _Impassable(Exception):
    """Nothing can be tried after this step."""


class _Tour:
    """The steps, in their order. Each returns what it saw; how it can fail is the same for all."""

    def __init__(self, root_uri: str, start: Callable[[], Conversation]) -> None:
        self._root = root_uri.rstrip("/")
        self._graph = f"{self._root}/graph"
        self._start = start
        self.adapter: Conversation | None = None
        self._handle = ""
        self._declared: frozenset[str] = frozenset()
        self.steps: list[Step] = []
        self._plan: tuple[tuple[str, Callable[[], str]], ...] = (
            ("start", self.start),
            ("hello", self.hello),
            ("init", self.init),
            ("open", self.open),
            ("load", self.load),
            ("read", self.read),
            ("mutate", self.mutate),
            ("export", self.export),
            ("commits", self.commits),
            ("snapshot", self.snapshot),
            ("an error with a type", self.typed_error),
            ("an unknown operation", self.unknown_operation),
            ("text of all kinds", self.odd_text),
            ("a large line", self.large_line),
            ("two handles", self.two_handles),
            ("close", self.close),
            ("stop", self.stop),
        )

    def run(self) -> None:
        passable = True
        for name, step in self._plan:
            if not passable:
                self.steps.append(Step(name, "not tried", "an earlier step has to work first"))
                continue
            try:
                self.steps.append(self._tried(name, step))
            except _Impassable:
                passable = False
        if self.adapter is not None:
            self.adapter.close()

    def _tried(self, name: str, step: Callable[[], str]) -> Step:
        try:
            return Step(name, "ok", step())
        except Misfit as misfit:
            return Step(name, "failed", misfit.explanation, misfit.advice)
        except AdapterFault as fault:
            self.steps.append(Step(name, "failed", str(fault), ADVICE[fault.reason]))
            raise _Impassable from None
        except EngineError as error:
            advice = "A plain request like this one has to work. If the engine is right, the adapter asked it wrongly."
            failed = Step(name, "failed", f"the engine answered with an error: {error}", advice)
        except Unsupported as refused:
            if refused.op not in self._declared and name not in ("hello", "init", "open"):
                advice = "A run will count it as a failure: it is a core operation."
                return Step(name, "unsupported", f"the driver says: {refused.why}", advice)
            why = "hello declares it" if refused.op in self._declared else "nothing can be tried without it"
            failed = Step(name, "failed", f"the driver says that it is unsupported ({refused.why}), but {why}")
        if name in ("hello", "init", "open"):
            self.steps.append(failed)
            raise _Impassable
        return failed

    def call(self, op: str, **args: Any) -> Any:
        assert self.adapter is not None
        return self.adapter.call(op, args)

    # -- steps -----------------------------------------------------------------------------------------------------

    def start(self) -> str:
        self.adapter = self._start()
        return f"started: {self.adapter.command or self.adapter.spec}"

    def hello(self) -> str:
        hello = self.call("hello")
        self._declared = frozenset(hello["capabilities"])
        unknown = sorted(self._declared - KNOWN_CAPABILITIES)
        missing = sorted(set(CORE_OPERATIONS) - self._declared)
        said = f"{hello['name']} {hello['version']}, protocol {hello['protocol_version']}, internal schema "
        said += f"{hello['internal_schema_version']}, {len(self._declared)} capabilities"
        said += f"; not known to the protocol: {', '.join(unknown)}" if unknown else ""
        return said + (f"; core operations that it does not declare: {', '.join(missing)}" if missing else "")

    def init(self) -> str:
        self.call("init", uri=self._graph, schema=SCHEMA)
        return f"a graph at {self._graph}"

    def open(self) -> str:
        self._handle = self.call("open", uri=self._graph)["handle"]
        return f"handle {self._handle!r}"

    def load(self) -> str:
        loaded = self.call("load", handle=self._handle, data=RECORDS, mode="append", actor="smoke")
        return f"{loaded['nodes_loaded']} nodes and {loaded['edges_loaded']} edges, by its own count"

    def read(self) -> str:
        rows = [self.call("read", handle=self._handle, table_key=key)["rows"] for key in ("node:Person", "edge:Knows")]
        return f"{len(rows[0])} rows of node:Person, {len(rows[1])} of edge:Knows"

    def mutate(self) -> str:
        where = {"property": "name", "op": "eq", "value": "carol"}
        statements: tuple[dict[str, Any], ...] = (
            {"op": "insert", "type": "Person", "data": {"name": "carol"}},
            {"op": "update", "type": "Person", "where": where, "set": {"note": "third"}},
            {"op": "delete", "type": "Person", "where": where},
        )
        for statement in statements:
            self.call("mutate", handle=self._handle, statements=[statement], name=statement["op"])
        return "insert, update and delete, by an equality"

    def export(self) -> str:
        text: str = self.call("export", handle=self._handle)["data"]
        lines = text.split("\n")
        for line in lines[:-1]:
            _exported(line)
        if lines[-1]:
            raise Misfit("the last line of the export has no line feed", "End each exported record with a line feed.")
        return f"{len(lines) - 1} records"

    def commits(self) -> str:
        return f"{len(self.call('commits', handle=self._handle)['commits'])} commits"

    def snapshot(self) -> str:
        seen = self.call("snapshot", handle=self._handle)
        return f"manifest version {seen['manifest_version']}, {len(seen['tables'])} tables"

    def typed_error(self) -> str:
        advice = "Answer with an error of kind not_found, and leave the driver running."
        try:
            self.call("open", uri=f"{self._root}/nowhere")
        except EngineError as error:
            if error.kind not in ("not_found", "bad_request"):
                raise Misfit(f"a graph that is not there is answered with {error}", advice) from None
            return f"a graph that is not there: {error}"
        raise Misfit("a graph that is not there was opened", advice)

    def unknown_operation(self) -> str:
        assert self.adapter is not None
        try:
            self.adapter.ask("levitate", {})
        except Unsupported as refused:
            said = f"unsupported: {refused.why}"
        except EngineError as error:
            said = str(error)
        self.call("hello")
        return f"'levitate' is refused ({said}), and the driver goes on"

    def odd_text(self) -> str:
        self._insert("odd", ODD_TEXT)
        return "quotes, escapes and characters of one to four bytes came back as they went"

    def large_line(self) -> str:
        self._insert("large", "0123456789abcdef" * (LARGE_CHARACTERS // 16))
        return f"a record of {LARGE_CHARACTERS:,} characters came back whole"

    def _insert(self, name: str, note: str) -> None:
        """Send a text through the engine, and look for it in the answer."""
        record = json.dumps({"type": "Person", "data": {"name": name, "note": note}}, ensure_ascii=False)
        self.call("load", handle=self._handle, data=record, mode="append")
        rows = self.call("read", handle=self._handle, table_key="node:Person")["rows"]
        notes = [row.get("note") for row in rows if row.get("name") == name]
        if notes != [note]:
            got = json.dumps(notes, ensure_ascii=False)[:100]
            advice = "Read stdin and write stdout as UTF-8; cut lines at line feeds only; do not limit their length."
            raise Misfit(f"a text of {len(note)} characters came back as {got}", advice)

    def two_handles(self) -> str:
        second = self.call("open", uri=self._graph)["handle"]
        if second == self._handle:
            advice = "Answer each open with a handle of its own: each plays another client."
            raise Misfit(f"two opens got the same handle {second!r}", advice)
        self.call("snapshot", handle=second)
        self.call("close", handle=second)
        self.call("snapshot", handle=self._handle)
        return f"{self._handle!r} and {second!r}; the first still answers when the second is closed"

    def close(self) -> str:
        self.call("close", handle=self._handle)
        try:
            self.call("snapshot", handle=self._handle)
        except EngineError as error:
            return f"the handle is gone: {error}"
        advice = "Forget a handle when it is closed, and answer not_found from then on."
        raise Misfit("a closed handle still answers", advice)

    def stop(self) -> str:
        assert self.adapter is not None
        self.adapter.close()
        transport = self.adapter.transport
        if isinstance(transport, ProcessTransport) and not transport.ended_by_itself:
            return "the driver did not end with its stdin and was killed; a run is faster if it ends by itself"
        return "ended"


def _exported(line: str) -> None:
    advice = "Export one JSON object per line, with `type` or `edge`, and `data`."
    try:
        record = json.loads(line)
    except ValueError as error:
        raise Misfit(f"a line of the export is not JSON ({error}): {line[:80]!r}", advice) from None
    if not isinstance(record, dict) or not {"type", "edge"} & record.keys():
        raise Misfit(f"a line of the export is no record: {line[:80]!r}", advice)


def smoke(
    spec: str,
    env: Mapping[str, str],
    root_uri: str,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    attach: Callable[[str], None] | None = None,
) -> SmokeReport:
    """Hold one conversation with an engine, over a graph that is made below `root_uri`."""
    parse(spec)
    tour = _Tour(root_uri, lambda: connect(spec, env=env, timeout_seconds=timeout_seconds, attach=attach))
    tour.run()
    return SmokeReport(spec, tuple(tour.steps))


MARKS: Final[Mapping[Outcome, tuple[str, str]]] = {
    "ok": ("ok", "green"),
    "failed": ("FAILED", "bold red"),
    "unsupported": ("unsupported", "yellow"),
    "not tried": ("-", "dim"),
}


def render(report: SmokeReport, console: Console) -> None:
    """The steps as a table, and what to do next."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for step in report.steps:
        mark, style = MARKS[step.outcome]
        words = Text(step.explanation) + Text(f"\n→ {step.advice}" if step.advice else "", style="bold")
        table.add_row(Text(mark, style=style), Text(step.name), words)
    console.print(table)
    if report.ok:
        next_command = f"touchstone run --engine {shlex.quote(report.spec)}"
        console.print(Text(f"\nThe adapter works. Next: {next_command}"), soft_wrap=True)
    else:
        console.print(Text("\nThe adapter cannot be run yet. Start with the first step that failed."))


def smoke_command(
    engine: Annotated[str, typer.Option("--engine", help="cmd:<command line>, python:<module>:<Class> or reference.")],
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for each answer.")] = TIMEOUT_SECONDS,
    attach: Annotated[bool, typer.Option("--attach", help="Show the process, and wait for Enter.")] = False,
    root: Annotated[str, typer.Option("--root", help="Where to make a graph; default: a temporary directory.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Check an adapter before any verdict on its engine.

    Exit codes: 0 the adapter can be run; 2 the request is wrong; 3 the adapter cannot be run.
    """
    env = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    seconds = max(timeout, ATTACHED_TIMEOUT_SECONDS) if attach else timeout
    wait = _wait_for_enter if attach else None
    try:
        with tempfile.TemporaryDirectory(prefix="touchstone-smoke-") as directory:
            place = f"{root.rstrip('/')}/smoke-{uuid.uuid4().hex[:12]}" if root else directory
            report = smoke(engine, env, place, timeout_seconds=seconds, attach=wait)
    except InvalidEngineSpec as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE) from None
    if as_json:
        print(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
    else:
        render(report, Console())
    raise typer.Exit(report.exit_code)


def _wait_for_enter(process: str) -> None:
    print(f"{process}\nattach to it, then press Enter", file=sys.stderr)
    sys.stdin.readline()
