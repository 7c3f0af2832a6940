"""A driver of the nursery is a process like any other: it has its own environment, exit status, group and death."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.adapters import parse
from failpoints.nursery import nursery

Quick = Callable[[str], str]
GONE_SECONDS_MAX = 20.0


def started(quick: Quick, code: str, **environment: str) -> subprocess.Popen[bytes]:
    command = parse(quick(f"cmd:{shlex.join([sys.executable, '-c', code])}")).command
    assert command[1:3] == ("-I", "-S"), "the nursery was not asked"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=os.environ | environment, process_group=0, **pipes)  # type: ignore[call-overload, no-any-return]


def test_it_talks_through_its_own_pipes_and_sees_its_own_environment(quick: Quick) -> None:
    code = "import os, sys; print(sys.stdin.read(), os.environ['COLOUR']); print('aside', file=sys.stderr)"

    with started(quick, code, COLOUR="green") as driver:
        out, err = driver.communicate(b"asked", timeout=60)

    assert (out, err, driver.returncode) == (b"asked green\n", b"aside\n", 0)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("raise ValueError('no')", 1),
    ],
)
def test_the_command_ends_as_the_driver_has_ended(quick: Quick, code: str, status: int) -> None:
    with started(quick, code) as driver:
        driver.communicate(timeout=60)

    assert driver.returncode == status


def test_who_kills_the_group_kills_the_driver(quick: Quick) -> None:
    with started(quick, "import os, threading; print(os.getpid(), flush=True); threading.Event().wait(60)") as driver:
        assert driver.stdout is not None
        inner = int(driver.stdout.readline())
        os.killpg(driver.pid, signal.SIGKILL)

    never = threading.Event()
    for _ in range(int(GONE_SECONDS_MAX / 0.01)):
        try:
            os.kill(inner, 0)
        except ProcessLookupError:
            return
        never.wait(0.01)
    pytest.fail("the driver outlives its group")


def test_a_failpoint_of_its_environment_is_armed(quick: Quick) -> None:
    code = "from failpoints import registry; registry.fire('recovery.sidecar_write')"

    with started(quick, code, TOUCHSTONE_FAILPOINTS="recovery.sidecar_write=kill") as driver:
        driver.communicate(timeout=60)

    assert driver.returncode == -signal.SIGKILL


def test_a_driver_that_is_no_python_is_started_as_ever(quick: Quick) -> None:
    assert quick("cmd:./my-driver --fast") == "cmd:./my-driver --fast"


def test_a_folder_that_is_called_like_one_of_ours_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fixtures", "failpoints", "reference"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('somebody else is here')\n")
    monkeypatch.chdir(tmp_path)

    with nursery("reference.driver", "fixtures.mutants"):
        pass


def test_nothing_of_a_nursery_is_left_when_it_is_over() -> None:
    with nursery("json") as through:
        address = parse(through(f"cmd:{shlex.join([sys.executable, '-c', 'pass'])}")).command[4]
        assert os.path.exists(address)

    assert not os.path.exists(address)
