"""Failpoints do nothing until armed, and exactly what was asked once they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from failpoints import names, registry
from failpoints.registry import FailpointMisuse, FailpointReached, PauseTimeout, armed, fire, hits, paused, recorded

POINT = names.MUTATION_POST_FINALIZE_PRE_PUBLISHER
OTHER = names.RECOVERY_SIDECAR_DELETE


@pytest.fixture(autouse=True)
def nothing_armed() -> Iterator[None]:
    registry.reset()
    yield
    registry.reset()


def test_an_armed_error_is_raised_where_the_protocol_reaches_the_point() -> None:
    fire(POINT)
    with armed(POINT, "error"):
        fire(OTHER)
        with pytest.raises(FailpointReached, match=POINT) as reached:
            fire(POINT)
    assert reached.value.name == POINT
    fire(POINT)


def test_the_catalog_has_the_35_names_of_the_public_engine() -> None:
    assert len(names.UPSTREAM) == 35
    assert names.UPSTREAM <= names.NAMES
    assert all(name.count(".") == 1 for name in names.NAMES)


def test_a_disarmed_point_records_nothing() -> None:
    fire(POINT)
    assert hits(POINT) == 0


def test_times_limits_the_action_and_hits_go_on_counting() -> None:
    with armed(POINT, "error", times=2):
        for _ in range(2):
            with pytest.raises(FailpointReached):
                fire(POINT)
        fire(POINT)
    assert hits(POINT) == 3
    registry.reset()
    assert hits(POINT) == 0


def test_a_callback_runs_in_the_thread_that_reached_the_point() -> None:
    seen: list[int] = []
    with armed(POINT, lambda: seen.append(threading.get_ident())):
        fire(POINT)
    assert seen == [threading.get_ident()]


def test_a_point_is_disarmed_when_the_block_fails() -> None:
    with pytest.raises(RuntimeError), armed(POINT, "error"):
        raise RuntimeError
    fire(POINT)


def test_recording_keeps_the_order_in_which_points_were_reached() -> None:
    with recorded() as reached:
        fire(OTHER)
        fire(POINT)
    fire(POINT)
    assert reached == [OTHER, POINT]


def test_a_paused_thread_goes_on_only_when_released() -> None:
    passed = threading.Event()

    def write() -> None:
        fire(POINT)
        passed.set()

    with paused(POINT) as point:
        assert not point.arrived
        worker = threading.Thread(target=write)
        worker.start()
        point.wait_arrived()
        assert not passed.is_set()
        fire(POINT)  # Only the first arrival is held; the test's own steps pass.
        point.release()
        worker.join(10)
    assert passed.is_set()


def test_leaving_the_block_releases_who_is_still_held() -> None:
    with paused(POINT) as point:
        worker = threading.Thread(target=fire, args=(POINT,))
        worker.start()
        point.wait_arrived()
    worker.join(10)
    assert not worker.is_alive()


def test_a_rendezvous_that_fails_says_so() -> None:
    with paused(POINT, timeout_seconds=0.01) as point:
        with pytest.raises(PauseTimeout, match="not reached"):
            point.wait_arrived()
        with pytest.raises(PauseTimeout, match="not released"):
            fire(POINT)


def test_each_of_many_threads_counts() -> None:
    def write() -> None:
        for _ in range(200):
            fire(POINT)

    with armed(POINT, lambda: None):
        workers = [threading.Thread(target=write) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert hits(POINT) == 1600


@pytest.mark.parametrize(
    ("name", "action", "words"),
    [
        ("mutation.typo", "error", "not the name of a failpoint"),
        (POINT, "explode", "not an action"),
        (POINT, "pause", "nobody to meet"),
    ],
)
def test_what_nobody_can_fire_or_do_is_refused(name: str, action: str, words: str) -> None:
    with pytest.raises(FailpointMisuse, match=words), armed(name, action):
        pass


def test_a_name_is_armed_once() -> None:
    with armed(POINT, "error"), pytest.raises(FailpointMisuse, match="armed already"), armed(POINT, "error"):
        pass


def test_firing_an_unknown_name_is_found_as_soon_as_anything_is_armed() -> None:
    with armed(POINT, "error"), pytest.raises(FailpointMisuse):
        fire("mutation.typo")


def test_the_environment_names_points_actions_and_counts() -> None:
    text = f"{POINT}=error; {OTHER}=kill*2;"
    assert registry.parse(text) == [(POINT, "error", None), (OTHER, "kill", 2)]


@pytest.mark.parametrize("text", ["x", f"{POINT}=", "nope=error", f"{POINT}=explode", f"{POINT}=error*0"])
def test_a_mistake_in_the_environment_is_refused(text: str) -> None:
    with pytest.raises(FailpointMisuse):
        registry.parse(text)


def _process(setting: str) -> subprocess.Popen[bytes]:
    program = f"from failpoints.registry import fire; fire({POINT!r}); print('passed', flush=True)"
    environment = {**os.environ, registry.ENVIRONMENT_VARIABLE: setting}
    root = Path(registry.__file__).parents[1]
    return subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=root, stdout=subprocess.PIPE)


def test_kill_ends_another_process_without_a_word() -> None:
    with _process(f"{POINT}=kill") as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert output == b""


def test_two_processes_meet_by_files(tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    with _process(f"{POINT}=pause:{meeting}") as process:
        tick = threading.Event()
        while not Path(f"{meeting}.arrived").exists():
            assert process.poll() is None, "the process passed its failpoint without waiting"
            tick.wait(0.01)
        assert process.poll() is None
        Path(f"{meeting}.release").touch()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == b"passed\n"
