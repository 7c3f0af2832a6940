"""The processes of a sweep: whatever becomes of one of them, nothing hangs and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from failpoints import workshop
from failpoints.cuts.cell import CellResult
from failpoints.cuts.cut import Cut
from failpoints.workshop import Bench, Refused, SweepBroken, WorkerFailed, swept_in_processes
from fixtures.stores.catalog import Store, StoreUnavailable

pytestmark = pytest.mark.s3
SOUND: Final = CellResult("insert", Cut("ack"))
Results = Generator[CellResult | Refused, None, None]
Making = AbstractContextManager[tuple[Bench, Store]]
DEADLINE_SECONDS: Final = 60.0


def swept(run: Any, *tasks: str, jobs: int = 2) -> Results:
    """The results of tasks, with an engine that nobody asks."""
    return swept_in_processes(run, tasks, engine="cmd:true", store="moto", jobs=jobs, timeout_seconds=60.0)


def dies(bench: Bench, store: Store, task: str) -> Results:
    yield SOUND
    os.kill(os.getpid(), signal.SIGKILL)


def dies_in_the_middle_of_a_message(bench: Bench, store: Store, task: str) -> Results:
    """The message is longer than a pipe holds, and nobody reads it before this process is gone."""
    Path(task, str(os.getpid())).touch()
    yield SOUND
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    yield replace(SOUND, wrong=((), "long " * 10**6))


def is_mistaken(bench: Bench, store: Store, task: str) -> Results:
    yield SOUND
    raise KeyError("a row")


def rests(bench: Bench, store: Store, task: str) -> Results:
    """Says that it is there, and goes on for as long as anybody waits."""
    Path(task, str(os.getpid())).touch()
    threading.Event().wait(DEADLINE_SECONDS * 2)
    yield SOUND


@pytest.mark.parametrize("run", [dies, dies_in_the_middle_of_a_message])
def test_a_process_that_is_killed_ends_the_sweep_with_what_it_ended_with(run: Any, tmp_path: Path) -> None:
    found = []
    with pytest.raises(SweepBroken, match="a process of the sweep ended with -9 before its work"):
        for each in swept(run, str(tmp_path)):
            found.append(each)
            _when(lambda: [pid for pid in _pids_in(tmp_path) if _is_alive(pid)], lambda alive: not alive)
    assert found == [SOUND]


@pytest.mark.parametrize(("jobs", "kind"), [(1, KeyError), (2, WorkerFailed)])
def test_a_mistake_of_the_kit_is_no_breakdown_of_an_engine_in_any_process(jobs: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="a row"):
        list(swept(is_mistaken, "a task", jobs=jobs))


# Run in a process of its own: what one of two processes cannot start is done by the other one.
@contextmanager
def starts_once(folder: str) -> Any:
    try:
        Path(folder, "started").mkdir()
    except FileExistsError:
        raise StoreUnavailable("there is no port left") from None
    yield None, Store("moto", {}, lambda: "s3://b/nowhere", lambda uri: None)


@contextmanager
def never_starts(folder: str) -> Any:
    if Path(folder).is_dir():
        raise StoreUnavailable("there is no port left")
    yield None, None


def finds(bench: Bench, store: Store, task: str) -> Results:
    yield SOUND


def test_one_store_that_does_not_start_leaves_its_work_to_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workshop, "workshop", _made_by(starts_once, tmp_path))
    assert list(swept(finds, "one", "two", "three")) == [SOUND] * 3


def test_where_no_store_starts_it_is_said_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workshop, "workshop", _made_by(never_starts, tmp_path))
    with pytest.raises(StoreUnavailable, match="there is no port left"):
        list(swept(finds, "one", "two", "three"))


class _made_by:
    """A workshop that can be sent to another process."""

    def __init__(self, make: Any, folder: Path) -> None:
        self.make, self.folder = make, str(folder)

    def __call__(self, *_: object, **__: object) -> Making:
        made: Making = self.make(self.folder)
        return made


GATHERS: Final = """
import sys
from failpoints.tests.test_workers import rests, swept

if __name__ == "__main__":
    list(swept(rests, sys.argv[1], sys.argv[1]))
"""


def test_no_process_outlives_who_gathers_however_that_one_ends(tmp_path: Path) -> None:
    program, folder = tmp_path / "gathers.py", tmp_path / "pids"
    program.write_text(GATHERS)
    folder.mkdir()
    gathering = subprocess.Popen([sys.executable, str(program), str(folder)])
    try:
        pids = _when(lambda: _pids_in(folder), lambda found: len(found) == 2)
        gathering.kill()
        gathering.wait()
        assert _when(lambda: [pid for pid in pids if _is_alive(pid)], lambda alive: not alive) == []
    finally:
        gathering.kill()


def _when(look: Any, is_so: Any) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so(found := look()) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    return found


def _pids_in(folder: Path) -> list[int]:
    return [int(each.name) for each in folder.iterdir()]


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
