"""A driver process can break in many ways; each has its own fault, in time, and none takes the harness along."""

from __future__ import annotations

import os
import select
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.adapters import (
    AdapterFault,
    Conversation,
    EngineError,
    NotInProtocol,
    ProcessTransport,
    Unsupported,
    connect,
)
from conformance.adapters.credentials import Scrubber
from fixtures.drivers import broken

BROKEN = Path(broken.__file__).parent
SECRETS = {"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG", "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE"}
Connect = Callable[..., Conversation]


def driver(name: str) -> str:
    return f"cmd:{shlex.quote(sys.executable)} {shlex.quote(str(BROKEN / name))}.py"


def program(text: str) -> str:
    return f"cmd:{shlex.quote(sys.executable)} -c {shlex.quote(text)}"


@pytest.fixture
def connected() -> Iterator[Connect]:
    """Connects, and closes at the end whatever a test left open."""
    opened: list[Conversation] = []

    def connect_(spec: str, **how: Any) -> Conversation:
        opened.append(connect(spec, **{"env": {}, "timeout_seconds": 30, **how}))
        return opened[-1]

    yield connect_
    for adapter in opened:
        adapter.close()


def fault_of(adapter: Conversation, op: str = "open", **args: Any) -> AdapterFault:
    with pytest.raises(AdapterFault) as raised:
        adapter.call(op, {"uri": "/graph"} if op == "open" else args)
    return raised.value


@pytest.mark.parametrize(
    ("name", "reason", "says"),
    [
        ("garbage", "not_json", "'Segmentation fault (core not dumped)'"),
        ("dies_mid_request", "exited_mid_request", "signal 9 (SIGKILL)"),
        ("out_of_order", "wrong_seq", "says seq 1 where 2 was asked"),
        ("huge_line", "line_too_long", "without a line feed"),
        ("not_an_answer", "not_an_answer", "ok: 'handle' is a required property"),
        ("not_utf8", "not_utf8", "is not UTF-8"),
    ],
)
def test_each_way_to_break_is_told_from_the_others(connected: Connect, name: str, reason: str, says: str) -> None:
    adapter = connected(driver(name))
    adapter.call("hello", {})

    fault = fault_of(adapter)

    assert fault.reason == reason and says in fault.message, fault
    assert fault.request == {"seq": 2, "op": "open", "args": {"uri": "/graph"}}


@pytest.mark.parametrize(
    ("name", "says"),
    [("hangs", "no answer within 0.3 s; if it has answered"), ("never_flushes", "bytes came, but no line feed")],
)
def test_a_silent_driver_is_left_after_the_time_out(connected: Connect, name: str, says: str) -> None:
    started = connected(driver(name), timeout_seconds=30)
    started.call("hello", {})
    transport = started.transport
    assert isinstance(transport, ProcessTransport)
    transport.timeout_seconds = 0.3  # Not before: a busy machine may take longer to start an interpreter.

    fault = fault_of(started)

    assert fault.reason == "silent" and says in fault.message
    with pytest.raises(ProcessLookupError):
        os.killpg(transport.pid, 0)


def test_a_driver_that_does_not_read_is_silent_too(connected: Connect) -> None:
    adapter = connected(program("import threading; threading.Event().wait()"), timeout_seconds=0.3)
    fault = fault_of(adapter, "load", handle="h1", mode="append", data="x" * 1_000_000)
    assert fault.reason == "silent" and "of the request unread" in fault.message


def test_a_driver_that_closes_stdout_is_not_taken_for_one_that_ended() -> None:
    command = [sys.executable, str(BROKEN / "closes_stdout.py")]
    scrubber = Scrubber({})
    transport = ProcessTransport(command, os.environ, scrubber, timeout_seconds=30, exit_grace_seconds=0.2)
    with Conversation("cmd:closes_stdout", None, transport, scrubber) as adapter:
        adapter.call("hello", {})
        assert fault_of(adapter).reason == "closed_stdout"


def test_a_line_that_nobody_asked_for_is_found_before_the_next_request(connected: Connect) -> None:
    adapter = connected(driver("prints_to_stdout"))
    adapter.call("hello", {})
    adapter.call("init", {"uri": "/graph", "schema": ""})
    fault = fault_of(adapter)
    assert fault.reason == "spoke_unasked" and "'INFO init took 3 ms'" in fault.message
    assert "after answer 2" in fault.message


def test_a_driver_that_ends_before_it_answers_leaves_its_stderr(connected: Connect) -> None:
    fault = fault_of(connected(program("import sys; sys.exit('no configuration')")), "hello")
    assert fault.reason == "exited_before_first_answer" and "before " in fault.message
    assert "exit status 1" in fault.message and fault.stderr == "no configuration\n"
    assert "no configuration" in str(fault) and '"op": "hello"' in str(fault)


@pytest.mark.parametrize(("status", "reason"), [(3, "gave_up"), (4, "exited_mid_request")])
def test_a_driver_that_gives_up_is_told_from_one_that_dies(connected: Connect, status: int, reason: str) -> None:
    text = f"""import json, sys
request = json.loads(sys.stdin.readline())
print(json.dumps({{"seq": 1, "unsupported": "tired"}}), flush=True)
sys.stdin.readline()
sys.exit({status})"""
    adapter = connected(program(text))
    with pytest.raises(Unsupported, match="tired"):
        adapter.call("hello", {})
    fault = fault_of(adapter)
    assert fault.reason == reason and f"exit status {status}" in fault.message


def test_a_driver_that_ends_while_nobody_asks_is_found_gone(connected: Connect) -> None:
    text = """import json, sys
request = json.loads(sys.stdin.readline())
print(json.dumps({"seq": 1, "unsupported": "tired"}), flush=True)"""
    adapter = connected(program(text))
    transport = adapter.transport
    assert isinstance(transport, ProcessTransport)
    with pytest.raises(Unsupported, match="tired"):
        adapter.call("hello", {})
    transport._waiter.join(30)
    fault = fault_of(adapter)
    assert fault.reason == "exited_between_requests" and "after answer 1" in fault.message


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "not_json"),
        ("[]", "not_an_answer"),
        ('{"seq": 1, "ok": {}, "error": {}}', "not_an_answer"),
        ('{"ok": {}}', "wrong_seq"),
        ('{"seq": null, "error": {"kind": "internal", "code": "c", "message": "m", "details": {}}}', "wrong_seq"),
        ('{"seq": 1, "error": {"kind": "oops", "code": "c", "message": "m", "details": {}}}', "not_an_answer"),
        ('{"seq": 1, "unsupported": "half a pair: \\\\ud83d"}', "not_utf8"),
        ('{"seq": 1, "ok": NaN}', "not_json"),
        ("[" * 100_000, "not_json"),
    ],
    ids=lambda value: value[:40],
)
def test_any_other_line_than_an_answer_is_a_fault(connected: Connect, answer: str, reason: str) -> None:
    body = f"'{answer}'" if len(answer) < 1000 else "'[' * 100000"
    assert fault_of(connected(program(f"import sys; sys.stdin.readline(); print({body})")), "hello").reason == reason


def test_a_broken_adapter_stays_broken_with_the_same_fault(connected: Connect) -> None:
    adapter = connected(driver("garbage"))
    first = fault_of(adapter)
    assert fault_of(adapter, "hello") is first


@pytest.mark.parametrize(
    ("command", "says"),
    [("/no/such/driver", "there is no command"), ("{dir}/plain", "not executable"), ("{dir}/orphan", "interpreter")],
)
def test_a_command_that_does_not_start_says_why(tmp_path: Path, command: str, says: str) -> None:
    (tmp_path / "plain").write_text("print('hello')")
    (tmp_path / "orphan").write_text("#!/no/such/interpreter\n")
    (tmp_path / "orphan").chmod(0o755)
    with pytest.raises(AdapterFault) as raised:
        connect(f"cmd:{command.format(dir=tmp_path)}", env={})
    assert raised.value.reason == "not_started" and says in str(raised.value)


def test_credentials_reach_no_error(connected: Connect) -> None:
    adapter = connected(driver("tells_secrets"), env=SECRETS)
    adapter.call("hello", {})
    with pytest.raises(EngineError) as refused:
        adapter.call("init", {"uri": "/graph", "schema": ""})
    assert refused.value.message == "key *** is refused" and refused.value.details == {"key": ["***"]}

    fault = fault_of(adapter)

    assert "exit status 3" in fault.message and fault.stderr.count("signing with ***") == 2
    assert not any(secret in f"{fault} {fault.args}" for secret in SECRETS.values())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("f'signed with {token}'", "not_json"),
        (
            "json.dumps({'seq': 1, 'error': {'kind': token, 'code': 'c', 'message': 'm', 'details': {}}})",
            "not_an_answer",
        ),
        ("""json.dumps({'seq': 1, 'unsupported': 'no'}) + f'\\nsigned with {token}'""", "spoke_unasked"),
    ],
)
def test_no_part_of_a_token_reaches_an_error_that_is_cut(connected: Connect, said: str, reason: str) -> None:
    token = "a-token-that-nobody-may-see/" * 40
    text = f"""import json, os, sys
token = os.environ["AWS_SESSION_TOKEN"]
sys.stdin.readline()
os.write(1, ({said} + "\\n").encode())
sys.stdin.readline()"""
    adapter = connected(program(text), env={"AWS_SESSION_TOKEN": token})
    if reason == "spoke_unasked":
        with pytest.raises(Unsupported):
            adapter.call("hello", {})

    fault = fault_of(adapter, "hello")

    assert fault.reason == reason and "***" in fault.message
    assert "a-token" not in f"{fault} {fault.args}"


def test_a_driver_sees_one_store_and_the_failpoints_that_it_is_given(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.startswith(("AWS_", "TOUCH"))]:
        monkeypatch.delenv(name)  # Whoever runs the tests may have some of their own.
    monkeypatch.setenv("AWS_PROFILE", "somebody")
    monkeypatch.setenv("TOUCHSTONE_FAILPOINTS", "recovery.sidecar_delete=error")
    text = """import json, os, sys
sys.stdin.readline()
names = sorted(name for name in os.environ if name.startswith(("AWS_", "TOUCH")))
print(json.dumps({"seq": 1, "unsupported": " ".join(names) or "none"}))"""
    for how, seen in (
        ({"env": {}}, "none"),
        ({"env": {"AWS_REGION": "r"}, "failpoints": "a=kill"}, "AWS_REGION TOUCHSTONE_FAILPOINTS"),
    ):
        with pytest.raises(Unsupported, match=f"unsupported: {seen}"):
            connected(program(text), **how).call("hello", {})


def test_the_person_who_attaches_is_told_the_process_before_it_is_asked(connected: Connect) -> None:
    told: list[str] = []
    adapter = connected(driver("garbage"), attach=told.append)
    assert isinstance(adapter.transport, ProcessTransport)
    assert told == [f"process {adapter.transport.pid}: {adapter.command}"]


def test_a_driver_ends_if_the_person_gives_up_attaching() -> None:
    told: list[str] = []

    def give_up(text: str) -> None:
        told.append(text)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connect(driver("garbage"), env={}, attach=give_up)
    with pytest.raises(ProcessLookupError):
        os.killpg(int(told[0].removeprefix("process ").partition(":")[0]), 0)


def test_whatever_a_driver_started_ends_with_it(connected: Connect, tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    text = f"""import os, subprocess, sys
os.set_inheritable(os.open({str(held)!r}, os.O_WRONLY), True)
subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"], close_fds=False)
sys.stdin.readline()
print('{{"seq": 1, "unsupported": "its child holds the pipe"}}', flush=True)
sys.stdin.readline()"""
    adapter = connected(program(text))
    with pytest.raises(Unsupported):
        adapter.call("hello", {})
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)  # Somebody could still write.

    adapter.close()

    assert fault_of(adapter).reason == "closed"
    assert select.select([reader], [], [], 30)[0] and os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_call_that_waits_ends_when_another_thread_ends_the_driver(connected: Connect, end: str) -> None:
    adapter = connected(driver("hangs"))
    adapter.call("hello", {})
    assert isinstance(adapter.transport, ProcessTransport)
    faults: list[AdapterFault] = []
    waiting = threading.Thread(target=lambda: faults.append(fault_of(adapter)))
    waiting.start()
    while "thinking about open" not in adapter.transport.stderr():
        pass  # It says so when it has the request.
    getattr(adapter.transport, end)()
    waiting.join(30)
    assert [fault.reason for fault in faults] == ["exited_mid_request"]


def test_a_driver_may_be_as_loud_on_stderr_as_it_likes(connected: Connect) -> None:
    text = """import json, sys
sys.stdin.readline()
sys.stderr.write("x" * 1000000 + "the end")
print("garbage", flush=True)"""
    fault = fault_of(connected(program(text)), "hello")
    assert len(fault.stderr) == 65536 and fault.stderr.endswith("the end")


@pytest.mark.parametrize(
    ("text", "travels"),
    [("Ç☂𝄞", "Ç☂𝄞"), ("a\u0085b\u2028c\u2029d\n", "a\\u0085b\\u2028c\\u2029d\\n"), ("\ud83d", "\\ud83d")],
    ids=["as it is", "escaped if a line could end there", "escaped if it has no bytes"],
)
def test_a_request_is_one_line_of_utf8_to_any_reader(connected: Connect, text: str, travels: str) -> None:
    program_text = """import json, sys
line = sys.stdin.buffer.readline().decode("utf-8")
print(json.dumps({"seq": 1, "unsupported": line}))"""
    with pytest.raises(Unsupported) as seen:
        connected(program(program_text)).call("open", {"uri": text})
    assert seen.value.why == f'{{"seq":1,"op":"open","args":{{"uri":"{travels}"}}}}\n'


def test_a_request_outside_the_protocol_is_the_fault_of_the_harness(connected: Connect) -> None:
    adapter = connected(driver("garbage"))
    for op, args in (("fly", {}), ("open", {}), ("open", {"uri": 3})):
        with pytest.raises(NotInProtocol, match="the harness asks"):
            adapter.call(op, args)
    assert adapter.call("hello", {})["name"] == "garbage"
