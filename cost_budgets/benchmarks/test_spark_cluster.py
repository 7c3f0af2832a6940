"""A standalone cluster on this machine runs the load, and a worker that is killed in the middle changes nothing.

    pytest cost_budgets/benchmarks/test_spark_cluster.py --benchmark-only

One master and two workers are processes of their own, on loopback. It is here and not among the tests because to start
them takes longer than all tests of the pipeline together; it fails if the result differs, never for being slow.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import pytest

from conformance.audit import audit
from reference.errors import OmniError
from reference.graph import Graph
from reference.pipeline.session import refuse_without_spark
from reference.pipeline.staging import NOTES_DIR

SCHEMA: Final = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { weight: F64? }
"""
FILES, PEOPLE_PER_FILE = 16, 4_000
_MASTER = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
_WORKER = re.compile(r"Successfully registered with master")
LOOK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True)
class Cluster:
    """A master's address, and the processes of its workers."""

    url: str
    workers: tuple[subprocess.Popen[str], ...]


def spark_class(name: str, *arguments: str, place: Path) -> subprocess.Popen[str]:
    """One of Spark's own processes, in a process group of its own, with what it started."""
    import pyspark

    home = str(Path(pyspark.__file__).parent)
    library = next(Path(home, "jars").glob("scala-library-*.jar")).name
    env = {
        **os.environ,
        "SPARK_HOME": home,
        # A worker would look for this in the directories of a build, which a package has none of.
        "SPARK_SCALA_VERSION": ".".join(library.removeprefix("scala-library-").split(".")[:2]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(place),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [
        "java",
        "-Xmx512m",
        "-Dspark.master.rest.enabled=false",
        "-cp",
        f"{home}/jars/*",
        name,
        "--host",
        "127.0.0.1",
        "--webui-port",
        "0",
        *arguments,
    ]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def said(stream: IO[str] | None, pattern: re.Pattern[str]) -> re.Match[str]:
    """Read what a process says until it says this; what it says after that is of no interest."""
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line)
        if found := pattern.search(line):
            return found
    raise AssertionError("it ended and said:\n" + "".join(lines[-20:]))


def killed(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def running(place: Path) -> Iterator[Cluster]:
    started: list[subprocess.Popen[str]] = []
    readers: list[threading.Thread] = []
    try:
        master = spark_class("org.apache.spark.deploy.master.Master", "--port", "0", place=place)
        started.append(master)
        url = said(master.stderr, _MASTER)[1]
        for number in range(2):
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(place / f"worker{number}"), url)
            started.append(spark_class("org.apache.spark.deploy.worker.Worker", *options, place=place))
        for worker in started[1:]:
            said(worker.stderr, _WORKER)
        # What is said from now on is read by somebody, so that it blocks nobody, and forgotten.
        readers += [threading.Thread(target=_streamed, args=(process,), daemon=True) for process in started]
        for reader in readers:
            reader.start()
        yield Cluster(url, tuple(started[1:]))
    finally:
        for process in reversed(started):
            killed(process)
        for reader in readers:
            reader.join()
        for process in started:
            if process.stderr is not None:
                process.stderr.close()


def _streamed(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for _ in process.stderr:
        pass


def write_input(folder: Path) -> None:
    folder.mkdir()
    for file in range(FILES):
        with (folder / f"part-{file:02}.jsonl").open("w") as lines:
            for number in range(file * PEOPLE_PER_FILE, (file + 1) * PEOPLE_PER_FILE):
                data = {"name": f"p{number}", "age": number % 90}
                lines.write(json.dumps({"type": "Person", "data": data}) + "\n")
                ends = {"from": f"p{number}", "to": f"p{number * 7919 % (FILES * PEOPLE_PER_FILE)}"}
                lines.write(json.dumps({"edge": "Knows", **ends, "data": {"id": f"k{number}", "weight": 0.5}}) + "\n")


def load(graph: Path, source: Path, master: str, during: Callable[[], bool]) -> dict[str, Any]:
    """`omniref pipeline load` as a process; `during` is asked again and again until it has done what it wanted."""
    command = [sys.executable, "-m", "reference.cli", "pipeline", "load", "--mode", "append", "--json"]
    process = subprocess.Popen(
        [*command, "--master", master, str(graph), str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    done = False
    while not done and process.poll() is None:
        done = during()
        try:
            process.wait(LOOK_AGAIN_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    out, errors = process.communicate()
    assert process.returncode == 0, f"{out}\n{errors}"
    assert done, "the load was over before anything could happen to it"
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_a_worker_killed_in_the_middle_changes_nothing(tmp_path: Path, benchmark: Any) -> None:
    try:
        refuse_without_spark()
    except OmniError as reason:
        pytest.skip(str(reason))
    write_input(tmp_path / "input")
    graphs = {name: tmp_path / name for name in ("calm", "struck")}
    for place in graphs.values():
        Graph.init(str(place), SCHEMA)
    (tmp_path / "scratch").mkdir()
    with running(tmp_path / "scratch") as cluster:
        load(graphs["calm"], tmp_path / "input", cluster.url, lambda: True)

        def strike() -> bool:
            """Kill a worker, with its executor, once some pieces have been written and while others have not."""
            notes = [path for path in graphs["struck"].rglob("*-*.json") if NOTES_DIR in path.parts]
            if len(notes) < 4:
                return False
            killed(cluster.workers[0])
            return True

        answer = benchmark.pedantic(lambda: load(graphs["struck"], tmp_path / "input", cluster.url, strike), rounds=1)
    benchmark.extra_info.update(stages=answer["stages"], files_removed=answer["files_removed"])
    calm, struck = (Graph.open(str(place)) for place in graphs.values())
    assert b"".join(struck.export()) == b"".join(calm.export())
    assert struck.snapshot().entry("node:Person").row_count == FILES * PEOPLE_PER_FILE
    assert audit(str(graphs["struck"])).findings == ()
    on_disk = {
        path.name for path in graphs["struck"].rglob("*.lance") if path.parent.parent.parent.name in ("nodes", "edges")
    }
    committed = {
        file.path
        for entry in struck.snapshot().entries.values()
        for fragment in struck.store.tables.open(entry.path, None, entry.version).get_fragments()
        for file in fragment.metadata.files
    }
    assert on_disk == committed, "what lost attempts wrote is gone"
