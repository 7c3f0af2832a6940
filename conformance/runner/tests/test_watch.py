"""A store that hangs is noticed within a bounded time, wherever somebody waits for it, and is blamed itself."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from conformance.runner.tests.test_whole_runs import ENGINES, report_in, touchstone
from conformance.runner.watch import StoreIsSilent, watched
from fixtures.stores.catalog import S3, Store
from fixtures.stores.s3_server import S3Server

TOO_LONG_SECONDS = 60.0


class Scripted(Store):
    """A store that says of itself what it is told to, and remembers that it was given up."""

    def __init__(self, *words: str | None) -> None:
        super().__init__("scripted", {}, lambda: "nowhere", lambda uri: None)
        self.words = list(words)
        self.asked = threading.Semaphore(0)
        self.ended = threading.Event()
        self.end = self.ended.set

    def silence(self) -> str | None:
        self.asked.release()
        return self.words.pop(0) if self.words else None


def nobody(name: str, words: str) -> None:
    raise AssertionError("the test could be ended")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.runner.watch.PATIENCE_SECONDS_MIN", 0.05)


def test_who_waits_for_a_store_that_is_silent_is_ended_and_the_store_with_it() -> None:
    store = Scripted(None, "it does not answer")

    with pytest.raises(StoreIsSilent, match="it does not answer"), watched(lambda: [store], 0.0, nobody):
        threading.Event().wait(TOO_LONG_SECONDS)

    assert store.ended.is_set()


def test_who_takes_long_on_a_store_that_answers_is_left_alone() -> None:
    store = Scripted()

    with watched(lambda: [store], 0.0, nobody):
        for _ in range(3):
            assert store.asked.acquire(timeout=TOO_LONG_SECONDS)

    assert not store.ended.is_set()


def test_what_comes_too_late_ends_nobody() -> None:
    store = Scripted("it does not answer")
    with pytest.raises(StoreIsSilent), watched(lambda: [store], 0.0, nobody):
        threading.Event().wait(TOO_LONG_SECONDS)

    os.kill(os.getpid(), signal.SIGUSR1)


def test_where_nothing_can_be_interrupted_the_last_resort_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.runner.watch.GRACE_SECONDS", 0.0)
    monkeypatch.setattr("conformance.runner.watch._interrupt", lambda number, frame: None)
    told: list[tuple[str, str]] = []
    is_told = threading.Event()

    def last_resort(name: str, words: str) -> None:
        told.append((name, words))
        is_told.set()

    with watched(lambda: [Scripted("it does not answer")], 0.0, last_resort):
        assert is_told.wait(TOO_LONG_SECONDS)

    assert told == [("scripted", "it does not answer")]


def test_a_store_that_accepts_and_never_answers_is_silent_within_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fixtures.stores.catalog.SILENCE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = S3Server(f"http://127.0.0.1:{listener.getsockname()[1]}", 0)
        store = Store("hung", server.env, server.fresh_root, lambda uri: None, frozenset({S3}))

        assert store.silence() == "it does not answer within 0.2 s"


def test_a_store_that_was_given_up_is_asked_for_nothing_more() -> None:
    removed: list[str] = []
    store = Store("gone", {}, lambda: "somewhere", removed.append)
    store.fresh_root()

    store.give_up("it does not answer")
    store.discard()

    assert (store.silence(), removed) == ("it does not answer", [])


@pytest.mark.s3
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_store_that_hangs_is_blamed_and_never_waited_for(workers: str, tmp_path: Path) -> None:
    done = touchstone(
        "run", "--engine", f"{ENGINES}:HangsWithItsStore", "--store", "moto", "--suite", "DEL", "--profile", "quick",
        "--timeout", "2", "--workers", workers, "--report", str(tmp_path),
    )  # fmt: skip

    report = report_in(tmp_path)
    assert (done.returncode, report["verdict"]) == (3, "could_not_run"), done.stdout + done.stderr
    assert [fault["store"] for fault in report["faults"]] == ["moto"]
    assert "could not run: the store 'moto' broke down: it does not answer" in done.stdout, done.stdout + done.stderr
    assert "the store 'moto' broke down: it does not answer" in report["because"]
    assert report["summary"]["tests"]["store_faults"] >= 1 and report["summary"]["tests"]["failed"] == 0
