"""What happened to each test of a run, as plain values that travel from a worker to the controller."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from conformance.runner.redaction import value_without_secrets
from conformance.traces import cleared

Outcome = Literal["passed", "failed", "known_failing", "unsupported", "skipped", "fault", "store_fault"]
PROPERTY: Final = "touchstone"


@dataclass(frozen=True)
class Phase:
    """One phase (setup, call, teardown) of one test."""

    outcome: Outcome
    store: str | None = None
    requirements: tuple[str, ...] = ()
    proved: tuple[str, ...] = ()
    broke: tuple[str, ...] = ()
    because: str | None = None
    detail: str | None = None
    reason: str | None = None
    stderr: str | None = None
    trace: dict[str, Any] | None = None

    def to_text(self) -> str:
        """The phase on its way into report and JUnit file: nobody's secrets go with it, whatever an engine has said."""
        body = asdict(self)
        trace = None if self.trace is None else cleared(self.trace)
        return json.dumps({**value_without_secrets({**body, "trace": None}), "trace": trace})

    @classmethod
    def from_text(cls, text: str) -> Phase:
        body = json.loads(text)
        for name in ("requirements", "proved", "broke"):
            body[name] = tuple(body[name])
        return cls(**body)


@dataclass(frozen=True)
class SuiteTest:
    """A test that the suites have on a store, whether a run selects it or not."""

    name: str
    store: str | None
    requirements: tuple[str, ...]


# Of several phases the worst counts: a test that passed and left a broken graph behind has failed.
_WORST_FIRST: Final[tuple[Outcome, ...]] = (
    "store_fault",
    "fault",
    "failed",
    "known_failing",
    "unsupported",
    "skipped",
    "passed",
)


@dataclass
class TestRecord:
    """One test with all its phases."""

    name: str
    seconds: float = 0.0
    phases: list[Phase] = field(default_factory=list)

    __test__ = False  # A record, not a test class, whatever its name begins with.

    @property
    def outcome(self) -> Outcome:
        outcomes = {phase.outcome for phase in self.phases}
        return next((each for each in _WORST_FIRST if each in outcomes), "skipped")

    @property
    def decisive(self) -> Phase:
        """The first phase with the outcome of the whole."""
        return next((phase for phase in self.phases if phase.outcome == self.outcome), Phase("skipped"))

    @property
    def store(self) -> str | None:
        return next((phase.store for phase in self.phases if phase.store is not None), None)

    @property
    def requirements(self) -> tuple[str, ...]:
        return next((phase.requirements for phase in self.phases if phase.requirements), ())

    @property
    def broke(self) -> tuple[str, ...]:
        return tuple(sorted({each for phase in self.phases for each in phase.broke}))

    @property
    def proved(self) -> tuple[str, ...]:
        """What the test showed to hold: nothing that it also broke."""
        return tuple(sorted({each for phase in self.phases for each in phase.proved} - set(self.broke)))
