"""What a history is made of: calls, what became of each, and what the graph says about itself when all is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Step = dict[str, Any]
Commit = Mapping[str, Any]
Verdict = Literal["ok", "refused", "unknown", "passed over"]

MAIN: Final = "main"
# The process number of what is asked before the starting shot and after the last answer.
ALONE: Final = -1
# The kinds of an answer that no engine gives: its process was killed, or died or fell silent by itself.
KILLED: Final = "killed"
BROKE_DOWN: Final = "broke_down"


@dataclass(frozen=True)
class Call:
    """One thing that one process asks. `kill_at`: after this share of the time that a call usually takes, or at once
    after its answer, its process is killed."""

    process: int
    number: int
    actor: str
    step: Step
    kill_at: float | None = None

    def as_json(self) -> dict[str, Any]:
        body = {"process": self.process, "number": self.number, "actor": self.actor, "step": self.step}
        return body if self.kill_at is None else {**body, "kill_at": self.kill_at}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Call:
        return cls(body["process"], body["number"], body["actor"], dict(body["step"]), body.get("kill_at"))


@dataclass(frozen=True)
class Outcome:
    """What a call was answered, and when: `began` and `ended` count the beginnings and ends of all calls.

    `refused` is definite: it did not happen and never will. `unknown` leaves that open. `passed over` was never asked:
    the engine does not have the operation.
    """

    verdict: Verdict
    answer: Mapping[str, Any]
    began: int
    ended: int
    killed: bool = False

    @property
    def commit(self) -> Commit | None:
        """The commit that was acknowledged, if one was."""
        found: Commit | None = self.answer.get("commit") if self.verdict == "ok" else None
        return found

    def as_json(self) -> dict[str, Any]:
        body = {"verdict": self.verdict, "answer": dict(self.answer), "began": self.began, "ended": self.ended}
        return {**body, "killed": True} if self.killed else body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Outcome:
        return cls(body["verdict"], body["answer"], body["began"], body["ended"], body.get("killed", False))


@dataclass(frozen=True)
class Done:
    """A call and what became of it."""

    call: Call
    outcome: Outcome

    @property
    def actor(self) -> str:
        return self.call.actor

    @property
    def step(self) -> Step:
        return self.call.step

    def as_json(self) -> dict[str, Any]:
        return {**self.call.as_json(), "outcome": self.outcome.as_json()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Done:
        return cls(Call.from_json(body), Outcome.from_json(body["outcome"]))


@dataclass(frozen=True)
class History:
    """All that the checker looks at.

    `calls` are those of every process, and those that were made alone before and after; `chains` and `exports` are what
    each branch said at the end, and `recoveries` the audit rows of the graph.
    """

    schema: str
    calls: tuple[Done, ...]
    chains: Mapping[str, tuple[Commit, ...]]
    exports: Mapping[str, str]
    recoveries: tuple[Mapping[str, Any], ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema,
            "outcomes": [done.as_json() for done in self.calls],
            "chain": {branch: [dict(commit) for commit in commits] for branch, commits in self.chains.items()},
            "exports": dict(self.exports),
            "recoveries": [dict(row) for row in self.recoveries],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> History:
        return cls(
            body["schema"],
            tuple(Done.from_json(each) for each in body["outcomes"]),
            {branch: tuple(commits) for branch, commits in body["chain"].items()},
            body["exports"],
            tuple(body["recoveries"]),
        )
