"""A writer in a process of its own, for tests of races: waits for a starting shot, writes, and reports each call.

    python -m reference.tests.worker URI  <<< '{"env": {…}, "reopen": bool, "calls": [[statement, …], …]}' and "go"

One line `ready` when everything is imported and open; one JSON line with the outcome of every call at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reference.errors import OmniError
from reference.graph import Graph


@dataclass(frozen=True)
class Outcome:
    """How one call ended: `kind` is `ok` or the kind of its error."""

    kind: str
    code: str
    message: str


def race(
    uri: str, env: dict[str, str], calls_of_each: Sequence[Sequence[Sequence[dict[str, Any]]]], *, reopen: bool = False
) -> list[list[Outcome]]:
    """Run one process for each list of calls, all let loose at once, and return what became of every call."""
    command = [sys.executable, "-m", "reference.tests.worker", uri]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in calls_of_each
    ]
    try:
        for worker, calls in zip(workers, calls_of_each, strict=True):
            _tell(worker, json.dumps({"env": env, "reopen": reopen, "calls": calls}))
        for worker in workers:
            assert _hear(worker) == "ready"
        for worker in workers:
            _tell(worker, "go")
        return [[Outcome(*found) for found in json.loads(_hear(worker))] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _tell(worker: subprocess.Popen[str], line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line + "\n")
    worker.stdin.flush()


def _hear(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def main() -> None:
    uri = sys.argv[1]
    task = json.loads(sys.stdin.readline())
    graph = Graph.open(uri, env=task["env"])
    print("ready", flush=True)
    sys.stdin.readline()
    outcomes: list[tuple[str, str, str]] = []
    for statements in task["calls"]:
        try:
            if task["reopen"]:
                graph = Graph.open(uri, env=task["env"])
            graph.mutate(statements)
            outcomes.append(("ok", "", ""))
        except OmniError as error:
            outcomes.append((error.kind, error.code, error.message))
    print(json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    main()
