"""REC and PUB while a writer stands still: held at a named point, looked at, and let go.

What a test cannot see in a writer that has finished or died, it sees here: that the sidecar is there before a HEAD has
moved, and that what was decided on rows of one state is not done on rows of another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.adapters import EngineError
from conformance.judge import proving
from conformance.judge.engine import Handle
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import PEOPLE, SOCIAL, delete, update, where
from conformance.suites.test_rec_failpoints import RECORDS, SCHEMA, WRITERS, Writer
from fixtures.forge import Forge

ARRIVAL_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.01


class Held:
    """A writer in a thread of its own that waits at a named point, in whatever process its engine is."""

    def __init__(self, peers: Peers, uri: str, point: str, meeting: Path) -> None:
        self._meeting = meeting
        self._handle = peers(failpoints=f"{point}=pause:{meeting}*1").open(uri)
        self._thread: threading.Thread | None = None
        self.answer: Any = None
        self.error: EngineError | None = None

    def start(self, work: Callable[[Handle], object]) -> None:
        """Begin, and return when the point is reached."""

        def run() -> None:
            try:
                self.answer = work(self._handle)
            except EngineError as error:
                self.error = error

        self._thread = threading.Thread(target=run)
        self._thread.start()
        never = threading.Event()
        for _ in range(int(ARRIVAL_SECONDS_MAX / POLL_SECONDS)):
            if Path(f"{self._meeting}.arrived").exists():
                return
            if not self._thread.is_alive():
                break
            never.wait(POLL_SECONDS)
        self.release()
        pytest.fail(f"the writer never reached the point: it answered {self.answer}, {self.error}")

    def release(self) -> None:
        """Let it go, and wait for its end."""
        Path(f"{self._meeting}.release").touch()
        assert self._thread is not None
        self._thread.join(ARRIVAL_SECONDS_MAX)


def ahead(forge: Forge) -> dict[str, tuple[int, int]]:
    """The tables whose HEAD is not their pin, with both."""
    return {key: (forge.pin(key), forge.head(key)) for key in forge.entries() if forge.pin(key) != forge.head(key)}


@pytest.mark.requirement("REC-01", "REC-02")
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_writer_between_commit_and_publish_has_its_sidecar(
    judged: Judged, peers: Peers, forge: ForgeOf, tmp_path: Path, writer: Writer
) -> None:
    graph = judged(SCHEMA, RECORDS)
    writer.prepare(graph)
    held = Held(peers, graph.uri, writer.point, tmp_path / "meeting")
    held.start(writer.work)

    disk = forge(graph.uri)
    moved, sidecars = ahead(disk), disk.sidecars()
    held.release()

    with proving("REC-01"):
        assert not moved or sidecars, f"{moved} have moved, and no sidecar says why"
    with proving("REC-02"):
        assert held.error is None, f"the writer failed after it was let go: {held.error}"
        assert disk.sidecars() == {}, "and takes its sidecar away when it is done"


@pytest.mark.requirement("PUB-18", "DEL-05")
@pytest.mark.parametrize(
    "statement",
    [update("Person", where("name", "bob"), age=7), delete("Person", where("name", "bob"))],
    ids=["update", "delete"],
)
def test_what_was_decided_on_older_rows_is_refused_and_never_done(
    judged: Judged, peers: Peers, forge: ForgeOf, tmp_path: Path, statement: dict[str, Any]
) -> None:
    """While the writer waits to write its sidecar, somebody else publishes another version of its table."""
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    held = Held(peers, graph.uri, "recovery.sidecar_write", tmp_path / "meeting")
    held.start(lambda handle: handle.mutate(statement))
    forge(graph.uri).amend("node:Person", lambda table: table.delete("id = 'cat'"))
    held.release()

    with proving("PUB-18", "DEL-05"):
        assert held.error is not None, f"done on rows that it has not seen: {held.answer}"
        assert held.error.kind == "conflict", f"refused as {held.error.kind}: {held.error}"
        names = [row["id"] for row in graph.engine.open(graph.uri).read("node:Person")]
        assert names == ["ann", "bob"], "and nothing of it was done"
