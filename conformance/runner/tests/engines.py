"""Engines that break one promise each, to see that a run notices: the reference, with one answer bent."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.adapters import EngineError, Unsupported
from reference.driver import Session


class Sound:
    """The reference as a `python:` engine: every operation is handed on."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._session = Session(env)

    def __getattr__(self, op: str) -> Any:
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda **args: self.ask(op, args)

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        answer = self._session.answer(json.dumps({"seq": 1, "op": op, "args": args}).encode())
        if "error" in answer:
            raise EngineError(**{"hint": None, **answer["error"]})
        return answer["ok"]


class Miscounts(Sound):
    """Counts one node too many in every mutation that deletes."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        answer = super().ask(op, args)
        if op == "mutate" and answer["affected_nodes"] and args["statements"][0]["op"] == "delete":
            answer["affected_nodes"] += 1
        return answer


class ForgetsOnOptimize(Sound):
    """Loses a row whenever it optimizes."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "optimize":
            where = {"property": "name", "op": "eq", "value": "a"}
            super().ask("mutate", {**args, "statements": [{"op": "delete", "type": "Person", "where": where}]})
        return super().ask(op, args)


class ShowsNoEmptyBlobs(Sound):
    """Exports a blob of no bytes as one that is not there."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        answer = super().ask(op, args)
        return {"data": answer["data"].replace('"base64:"', "null")} if op == "export" else answer


class BuildsNoCities(Sound):
    """Applies every schema but one that has cities."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "schema_apply" and "node City" in args["source"]:
            raise EngineError("internal", "internal", "there is no ground to build on", {})
        return super().ask(op, args)


class DodgesMerges(Sound):
    """Says that it can merge, and when it is asked, that it cannot."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "merge":
            raise Unsupported("merge", "not today")
        return super().ask(op, args)


class SaysLess(Sound):
    """Opens no graph to read only, shows no entity, and understands no condition but the one for all rows."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "open" and args.get("read_only"):
            raise Unsupported("open", "only to write")
        if op == "mutate" and any("property" in each.get("where", {}) for each in args["statements"]):
            raise Unsupported("mutate", "no conditions")
        answer = super().ask(op, args)
        if op == "hello":
            answer["capabilities"].remove("entity_at")
        return answer


class SaysWhatItLacks(SaysLess):
    """Says less, and says so."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        answer = super().ask(op, args)
        return {**answer, "lacks": ["open.read_only", "mutate.where"]} if op == "hello" else answer


class HasNoBranches(Sound):
    """Offers nothing that has to do with branches."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        answer = super().ask(op, args)
        if op == "hello":
            answer["capabilities"] = [
                each for each in answer["capabilities"] if "branch" not in each and each != "merge"
            ]
        return answer


class WrongOnS3(Sound):
    """Miscounts like `Miscounts`, and only on S3."""

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(env)
        self._on_s3 = bool(env)

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        answer = super().ask(op, args)
        if self._on_s3 and op == "mutate" and answer["affected_nodes"] and args["statements"][0]["op"] == "delete":
            answer["affected_nodes"] += 1
        return answer


class IsToldToEnd(Sound):
    """Is ended with its run by the first mutation: with the signal, and to the processes, that two variables name."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "mutate":
            own = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
            number = signal.Signals[os.environ["ENDED_BY"]]
            if os.environ["ENDED_WITH"] == "run":
                os.kill(own, number)
            else:
                os.killpg(0, number)
            threading.Event().wait()
        return super().ask(op, args)


class EndsItsStore(Sound):
    """Takes its S3 server down with the first mutation, and reports what comes of that: the one that a variable names,
    or that of its own test process."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "mutate":
            named = os.environ.get("ENDPOINT_PID")
            if named is None:
                end_stores()
            else:
                end_store(int(named))
            raise EngineError("internal", "internal", "the store is gone", {})
        return super().ask(op, args)


class HangsWithItsStore(Sound):
    """Has its S3 server hang with the first mutation, and waits in code that nobody interrupts."""

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "mutate":
            for pid in _children_that_run("moto_process.py"):
                os.kill(pid, signal.SIGSTOP)
                os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
            library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
            for _ in range(2):
                library.pthread_mutex_lock(mutex)
        return super().ask(op, args)


def end_stores() -> None:
    """End every S3 server that this process has started."""
    for pid in _children_that_run("moto_process.py"):
        end_store(pid)


def end_store(pid: int) -> None:
    """Kill a server, whoever has started it, and wait until nobody listens there any more."""
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([process], [], [])
    os.close(process)


def _children_that_run(program: str) -> list[int]:
    """The children of this process, by id, that run a program."""
    listed = [path.read_text(encoding="ascii").split() for path in Path("/proc/self/task").glob("*/children")]
    children = [int(pid) for line in listed for pid in line]
    return [pid for pid in children if program in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")]
