"""Spots of the crash matrix, as values: who writes, at which name it is stopped, how, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from failpoints.oracle import BACK, DISCARDED, FORWARD, Outcome

Action = Literal["kill", "error", "go-on", "pause"]
# The process dies at the name, and a new one recovers the graph.
KILL: Final = "kill"
# The operation fails at the name, once; a new process judges what it left.
ERROR: Final = "error"
# The same, and the process that has failed goes on with the handle that it has.
GO_ON: Final = "go-on"
# The operation stands still at the name while another process looks, and then goes on.
PAUSE: Final = "pause"
ACTIONS: Final[tuple[Action, ...]] = (KILL, ERROR, GO_ON, PAUSE)

NOT_REACHED: Final = "not reached"
WRONG: Final = "WRONG"
_KINDS: Final[Mapping[str, str]] = {FORWARD: "forward", BACK: "back", DISCARDED: "discarded"}


@dataclass(frozen=True)
class Spot:
    """One thing to try: a writer, the name that is armed, and what happens there."""

    writer: str
    name: str
    action: Action

    def __str__(self) -> str:
        words = {KILL: "killed", ERROR: "made to fail", GO_ON: "made to fail and asked to go on", PAUSE: "held"}
        return f"{self.writer}, {words[self.action]} at {self.name}"


@dataclass(frozen=True)
class SpotResult:
    """What became of it. `wrong` are the requirements that are broken, and because of what."""

    spot: Spot
    reached: bool
    ending: str
    outcome: str = ""
    wrong: tuple[tuple[str, ...], str] | None = None

    @property
    def accuses(self) -> bool:
        return self.wrong is not None

    @property
    def word(self) -> str:
        """The one word that the matrix shows."""
        if self.wrong is not None:
            return WRONG
        return self.outcome if self.reached else NOT_REACHED

    def __str__(self) -> str:
        text = f"{self.spot}: {self.word}"
        return text if self.wrong is None else f"{text} [{', '.join(self.wrong[0])}] {self.wrong[1]}"


def word_of(outcome: Outcome) -> str:
    """What recovery has decided, or, where it had nothing to decide, which state the graph is in."""
    kinds = sorted({_KINDS.get(kind, kind) for kind in outcome.kinds})
    return " and ".join(kinds) or outcome.world.name
