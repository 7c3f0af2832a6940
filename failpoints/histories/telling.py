"""A contradiction in words: which requirement, because of what, and the few calls that it takes to see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.runner.redaction import words_without_secrets
from conformance.sequences.story import line_of
from failpoints.histories.record import BROKE_DOWN, KILLED, Commit, Done, History
from failpoints.histories.steps import Row

LINES_MAX: Final = 8
_WORDS_MAX: Final = 240

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
Look = Callable[[str, str], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Line:
    """One call of a slice: what it was, what it was answered, and where its commit is in the chain."""

    actor: str
    process: int
    asked: str
    answered: str
    place: str

    @property
    def words(self) -> str:
        who = "alone" if self.process < 0 else f"process {self.process}"
        return f"{self.actor} ({who}) asked {self.asked}; answered {self.answered}; {self.place}"

    def as_json(self) -> dict[str, Any]:
        return {
            "op": "call",
            "args": {"actor": self.actor, "process": self.process, "asked": self.asked},
            "answered": self.answered,
            "place": self.place,
        }


@dataclass(frozen=True)
class Contradiction:
    """The history breaks requirements: which, because of what, and the calls that show it, in the chain's order."""

    ids: tuple[str, ...]
    because: str
    slice: tuple[Line, ...] = ()

    def __str__(self) -> str:
        lines = "".join(f"\n  {line.words}" for line in self.slice)
        return f"{', '.join(self.ids)}: {self.because}{lines}"


class Contradicted(Exception):
    """Raised where a check finds out, and caught by the checker."""

    def __init__(self, contradiction: Contradiction) -> None:
        super().__init__(str(contradiction))
        self.contradiction = contradiction


class Telling:
    """Finds the words for calls and commits of one history."""

    def __init__(self, history: History) -> None:
        self._done = {done.actor: done for done in history.calls}
        self._places: dict[str, list[tuple[str, int, Commit]]] = {}
        # Commits that are a call's although they carry another actor: recovery has published them.
        self._adopted: dict[str, str] = {}
        self._by_id: dict[str, tuple[str, int, Commit]] = {}
        for branch, commits in history.chains.items():
            for position, commit in enumerate(commits):
                if (commit.get("manifest_branch") or "main") == branch:
                    place = (branch, position, commit)
                    self._by_id[commit["graph_commit_id"]] = place
                    self._places.setdefault(str(commit.get("actor_id")), []).append(place)

    def adopt(self, actor: str, commit_id: str) -> None:
        self._adopted[actor] = commit_id

    def broke(self, ids: tuple[str, ...], because: str, actors: Iterable[str | None] = ()) -> Contradicted:
        """A contradiction with the calls of these actors as its slice."""
        known = [self._done[actor] for actor in dict.fromkeys(actors) if actor in self._done]
        ordered = sorted(known, key=self._order)
        return Contradicted(Contradiction(ids, because, tuple(self.line(done) for done in ordered[:LINES_MAX])))

    def line(self, done: Done) -> Line:
        return Line(
            done.actor, done.call.process, _cut(line_of(done.step)), _answer_of(done), self._place_words(done.actor)
        )

    def commit(self, commit: Commit) -> str:
        """A commit with the name of whoever made it."""
        return f"{commit['graph_commit_id']} ({commit.get('actor_id') or 'no actor'})"

    def _where(self, actor: str) -> list[tuple[str, int, Commit]]:
        if actor in self._adopted:
            return [self._by_id[self._adopted[actor]]]
        return self._places.get(actor, [])

    def _order(self, done: Done) -> tuple[int, int]:
        places = self._where(done.actor)
        return (places[0][1] if places else 1 << 60), done.outcome.began

    def _place_words(self, actor: str) -> str:
        places = self._where(actor)
        if not places:
            return "no commit in any chain"
        shown = [f"number {position} on {branch} ({commit['graph_commit_id']})" for branch, position, commit in places]
        return f"commit {' and '.join(shown)}{', published by recovery' if actor in self._adopted else ''}"


def _answer_of(done: Done) -> str:
    outcome = done.outcome
    after = ", then killed" if outcome.killed and outcome.verdict != "unknown" else ""
    if outcome.verdict == "ok":
        commit = outcome.commit
        return ("ok without a commit" if commit is None else f"ok with {commit['graph_commit_id']}") + after
    if outcome.verdict == "passed over":
        return "nothing: it was passed over"
    said = outcome.answer
    # Before it is cut: a half of a secret is not known for one any more.
    message = words_without_secrets(str(said.get("message", "")))
    if said.get("kind") == KILLED:
        return "nothing: its process was killed"
    if said.get("kind") == BROKE_DOWN:
        return _cut(f"nothing: its process broke down: {message}")
    return _cut(f"{said.get('kind')}/{said.get('code')}: {message}") + after


def _cut(text: str) -> str:
    return text if len(text) <= _WORDS_MAX else f"{text[:_WORDS_MAX]}…"


def row_words(row: Row, found: Mapping[str, Any] | None, meant: Mapping[str, Any] | None) -> str:
    """A row that is not what it should be."""
    table_key, row_id = row
    if found is None:
        return f"{table_key} '{row_id}' is not there, and should be {_cut(str(dict(meant or {})))}"
    if meant is None:
        return f"{table_key} '{row_id}' is there as {_cut(str(dict(found)))}, and should not be"
    return f"{table_key} '{row_id}' is {_cut(str(dict(found)))}, and should be {_cut(str(dict(meant)))}"
