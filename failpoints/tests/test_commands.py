"""`touchstone sweep`, `race`, `storm`, `pin` and the replay of faults, through the command line."""

from __future__ import annotations

import ast
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from conformance.adapters import Unsupported
from conformance.cli import app
from failpoints import named
from failpoints.command_ends import keep_trace
from failpoints.matrix import KILL, Spot, SpotResult
from failpoints.pinning import check_pinned, pin
from failpoints.reporting import read_fault_report

LOST_ACK = Path(__file__).parents[2] / "fixtures" / "traces" / "lost-ack-on-publish.json"
PAIRS_ONLY = (["--limit", "3"], ["--jobs", "2"], ["--limit", "0"])
TIMED = (["race", "--processes", "1", "--writes", "1"], ["race"], ["storm", "--operations", "2"], ["sweep"])
HUGE = "9" * 401
SPOT = Spot("insert", "recovery.sidecar_write", KILL)


def touchstone(*args: str) -> Result:
    return CliRunner().invoke(app, [*args], env={"COLUMNS": "250"})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["sweep", "--writer", "poet"], "there is no writer 'poet'; there are init, load-append"),
        (["sweep", "--double", "thrice"], "--double is one of shapes, all, none, not 'thrice'"),
        (["sweep", "--engine", "nonsense"], "'nonsense' names no engine"),
        (["sweep", "--engine", "mutant:nobody"], "mutant:nobody"),
        (["sweep", "--store", "cloud"], "cloud"),
        (["race", "--pairs", "cat-dog"], "there is no pair 'cat-dog'"),
        (["storm", "--engine", "nonsense"], "'nonsense' names no engine"),
        (["run", "--suite", "faults", "--store", "local"], "the suite FAULTS needs an S3 store"),
        (["pin", "nowhere.json"], "nowhere.json: cannot be read"),
        (["pin", str(LOST_ACK), "--store", "motto"], "there is no store 'motto'"),
        (["pin", str(LOST_ACK), "--store", "local"], "'local' is none: give --store moto"),
        (["sweep", "--failpoints", "--writer", "painter"], "there is no 'painter' in the matrix"),
        (["sweep", "--failpoints", "--jobs", "2"], "--jobs, --every, --double and --peer are for cuts"),
        (["race", "--seed", "3"], "are for a history: say with --processes how many write"),
        *((["race", "--processes", "2", *more], "--limit and --jobs are for pairs") for more in PAIRS_ONLY),
        *(([*command, "--timeout", time], "--timeout") for command in TIMED for time in ("inf", "nan")),
        *((["race", "--processes", "2", option, HUGE], option) for option in ("--writes", "--seed", "--kill-every")),
        *((["race", option, HUGE], option) for option in ("--processes", "--limit", "--jobs")),
        *((["storm", option, HUGE], option) for option in ("--operations", "--seed")),
        (["race", "--pairs", "init-init", "--processes", "2"], "--pairs and --processes are two different races"),
    ],
)
def test_a_mistake_in_the_request_is_said_in_words(args: list[str], words: str) -> None:
    result = touchstone(*args)

    assert result.exit_code == 2, result.output
    assert words in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["sweep", "storm"])
def test_a_local_directory_has_no_requests_to_be_cut(command: str) -> None:
    result = touchstone(command, "--store", "local")

    assert result.exit_code == 2
    words = " ".join(result.stderr.split())
    assert "a local directory has none" in words and "there is no store" not in words


def is_gone(group: int) -> bool:
    """Whether all processes of a group end; Python's own tracker of resources leaves a moment after its parent."""
    never = threading.Event()
    for _ in range(500):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        never.wait(0.02)
    return False


# Whoever runs tests in the background ignores Ctrl-C, and so would every child of theirs.
LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"


@pytest.mark.s3
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_whoever_interrupts_a_sweep_sees_what_was_found_and_leaves_no_process(name: str, tmp_path: Path) -> None:
    start = "from conformance.cli import main; main()"
    args = ["sweep", "--writer", "insert", "--double", "none", "--jobs", "2", "--report", str(tmp_path)]
    command = [sys.executable, "-c", f"{LISTENING}; {start}", *args]
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert sweep.stdout is not None
    line = sweep.stdout.readline()
    assert line.startswith("ok insert"), line + sweep.stdout.read()

    sweep.send_signal(getattr(signal, name))
    rest, _ = sweep.communicate(timeout=60)

    assert sweep.returncode == 130
    assert "interrupted" in rest and "a minute" in rest
    body = read_fault_report(tmp_path / "sweep.json")
    assert (body["exit_code"], body["ended"], body["whole"]) == (130, "interrupted", False)
    assert body["counts"]["insert"]["cells"] >= 1
    assert is_gone(sweep.pid), "processes of the sweep are left"


def test_a_driver_that_does_not_start_is_no_verdict() -> None:
    result = touchstone("sweep", "--engine", "cmd:./there-is-no-such-driver", "--writer", "insert", "--jobs", "1")

    assert result.exit_code == 3
    assert "there is no command" in result.output


@pytest.mark.s3
def test_a_sweep_over_several_processes_says_a_line_for_each_cell_and_counts_them(tmp_path: Path) -> None:
    traces = tmp_path / "traces"

    result = touchstone("sweep", "--writer", "branch-create", "--jobs", "2", "--traces", str(traces))

    assert result.exit_code == 0, result.output
    cells = [line for line in result.output.splitlines() if line.startswith("ok branch-create")]
    assert len(cells) == 14
    assert "holds: 12 cells, none wrong" in result.output
    assert not traces.exists(), "nothing was wrong, so nothing is written"


@pytest.mark.s3
def test_what_is_wrong_is_a_trace_and_exit_code_1(tmp_path: Path) -> None:
    result = touchstone(
        "sweep", "--engine", "mutant:branch-create-lost-answer-is-an-error", "--writer", "branch-create", "--jobs", "1",
        "--traces", str(tmp_path),
    )  # fmt: skip

    assert result.exit_code == 1, result.output
    (first, *_) = sorted(tmp_path.glob("*.json"))
    trace = json.loads(first.read_text())
    assert trace["kind"] == "cut" and trace["broke"] and trace["requests"]
    assert f"trace: {first}" in result.output


def test_a_trace_is_pinned_as_a_test_beside_it_and_never_over_another(tmp_path: Path) -> None:
    result = touchstone("pin", str(LOST_ACK), "--into", str(tmp_path / "tests"), "--engine", "cmd:./my driver")

    assert result.exit_code == 0, result.output
    test = tmp_path / "tests" / "test_pinned_lost_ack_on_publish.py"
    compile(test.read_text(), str(test), "exec")
    assert "check_pinned(TRACE, engine='cmd:./my driver', store=None)" in test.read_text()
    assert "on the engine cmd:./my driver" in result.output
    again = touchstone("pin", str(LOST_ACK), "--into", str(tmp_path / "tests"))
    assert again.exit_code == 2
    assert "is there already" in again.stderr


def test_a_trace_is_pinned_on_the_engine_that_it_was_found_on(tmp_path: Path) -> None:
    result = touchstone("pin", str(LOST_ACK), "--into", str(tmp_path))

    assert result.exit_code == 0
    assert "engine='mutant:lost-publish-is-a-conflict'" in next(tmp_path.glob("*.py")).read_text()


class FullDisk(OSError):
    """What a full disk says."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fills_the_disk(monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """Half of what is written to a file of that kind is still written."""
    write_text = Path.write_text

    def write_half(path: Path, text: str, **options: Any) -> int:
        if suffix not in path.name:
            return write_text(path, text, **options)
        write_text(path, text[: len(text) // 2], **options)
        raise FullDisk

    monkeypatch.setattr(Path, "write_text", write_half)


@pytest.mark.parametrize("suffix", [".json", ".py"])
def test_a_full_disk_leaves_nothing_of_a_pinned_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    fills_the_disk(monkeypatch, suffix)

    result = touchstone("pin", str(LOST_ACK), "--into", str(tmp_path))

    assert result.exit_code == 2 and os.strerror(errno.ENOSPC) in result.stderr, result.output
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_trace_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {name: [] for name in ("operations", "broke")} | {"test": "t", "kind": "example"}
    keep_trace(tmp_path, "t", found, "reference", "moto", Console())
    before = (tmp_path / "t.json").read_text()
    fills_the_disk(monkeypatch, ".json")

    keep_trace(tmp_path, "t", {**found, "because": "another"}, "reference", "moto", Console())

    assert "its trace cannot be written" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"] and (tmp_path / "t.json").read_text() == before


@pytest.mark.parametrize("engine", ["cmd:./driver\n--flag", 'cmd:./driver "it\'s" \\'])
def test_an_engine_is_pinned_whatever_it_is_called(tmp_path: Path, engine: str) -> None:
    source = pin(LOST_ACK, tmp_path, engine=engine, store=None).read_text()

    called = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.keyword) and node.arg == "engine"]
    assert [ast.literal_eval(each.value) for each in called] == [engine]


class Idle:
    """A crew that can try everything and does nothing."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *_: object) -> None: ...

    def can_try(self, subject: Any) -> bool:
        return True


@pytest.mark.parametrize(
    ("results", "code", "words"),
    [
        ([SpotResult(SPOT, True, "x", "forward")], 0, "holds: 1 spots"),
        ([SpotResult(SPOT, True, "x", wrong=(("REC-05",), "a row is lost"))], 1, "wrong: 1 of 1 spots"),
        ([SpotResult(SPOT, False, "x")], 4, "nothing was tried"),
    ],
    ids=["sound", "wrong", "not reached"],
)
def test_named_failpoints_have_a_line_each_and_the_exit_codes_of_a_sweep(
    monkeypatch: pytest.MonkeyPatch, results: list[SpotResult], code: int, words: str
) -> None:
    monkeypatch.setattr(named, "Crew", Idle)
    monkeypatch.setattr(named, "sweep", lambda crew, subjects: (each for each in results))

    done = touchstone("sweep", "--failpoints", "--store", "local", "--writer", "mutate")

    assert done.exit_code == code and words in done.output
    assert "insert, killed at recovery.sidecar_write" in done.output


def test_an_engine_that_does_not_obey_named_failpoints_has_nothing_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: Any) -> Idle:
        raise Unsupported("failpoints", "the engine does not obey them")

    monkeypatch.setattr(named, "Crew", lacks)

    done = touchstone("sweep", "--failpoints", "--store", "local")

    assert done.exit_code == 4 and "unsupported failpoints" in done.output


@pytest.mark.s3
def test_a_pinned_test_passes_where_it_holds_and_fails_in_words_where_it_does_not() -> None:
    check_pinned(LOST_ACK, engine="reference", store=None)

    with pytest.raises(AssertionError, match="broke PUB-23"):
        check_pinned(LOST_ACK, engine="mutant:lost-publish-is-a-conflict", store=None)


def spoilt(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**json.loads(LOST_ACK.read_text()), **changes}))
    return path


OPEN = {"do": "open"}
HOLD = {"ordinal": 1, "verb": "PUT", "role": "sidecar", "nth": 1, "where": "here"}
PAIR = {"name": "x", "sentence": "x", "first": [OPEN], "second": [OPEN], "both": True, "follow": [], "held": "first"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "cut"}, "trace.fault: is missing"),
        ({"kind": "cut", "fault": {"cut": {"moment": "soon"}}}, 'trace.fault.cut.moment: "soon" is none of'),
        ({"kind": "cut", "fault": {"cut": {"moment": "ack"}}, "steps": []}, "trace.steps: [] does not fit"),
        ({"kind": "earthquake"}, 'trace.kind: "earthquake" is none of'),
        ({"kind": "history", "fault": {}}, "trace.fault.plan: is missing"),
        ({"kind": "pair", "fault": {}}, ": is missing"),
        ({"kind": "pair", "fault": {**PAIR, "hold": HOLD}}, "trace.fault.hold.where: there is no such field"),
        ({"steps": [{"do": "mutte"}]}, 'trace.steps[0].do: "mutte" is none of'),
        (
            {"steps": [{"do": "load", "records": [], "weather": {"rules": [{"action": "x"}]}}]},
            "trace.steps[0].weather.rules[0].action",
        ),
    ],
)
@pytest.mark.parametrize("command", ["replay", "pin"])
def test_a_malformed_trace_is_refused_with_the_field_named(
    tmp_path: Path, command: str, changes: dict[str, Any], words: str
) -> None:
    into = ["--into", str(tmp_path / "tests")] if command == "pin" else []

    result = touchstone(command, str(spoilt(tmp_path, **changes)), *into)

    assert result.exit_code == 2, result.output
    assert words in " ".join(result.stderr.split())
    assert not (tmp_path / "tests").exists()
