"""What the gate is told to do with a request: one rule, which requests it is for, and how often it acts.

    Rule("cut", verbs=("PUT",), roles=("manifest version",))      the store applies it, the client never hears of it
    Rule("answer", status=503, times=2)                           the next two requests are told to slow down
    Rule("hold", owner="engine", durable=True, nth=3, times=None) stand still from the third write on

Each armed rule counts every request that it fits, also those on which an earlier rule has acted: `nth` and `times` mean
the same whatever else is armed.

`ignore_conditions` takes If-Match and If-None-Match out of a request, as a store would that does not know them. A store
that checks signatures refuses such a request, because clients sign these headers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from failpoints.gate.errors import RuleError
from failpoints.gate.roles import ROLES, VERBS

ACTIONS: Final = ("hold", "refuse", "cut", "answer", "delay", "throttle", "ignore_conditions")
MOMENTS: Final = ("before", "after")
# Beyond anything that a run can reach: a number that is larger is a mistake, and no clock and no float could take it.
COUNT_MAX: Final = 10**9
SECONDS_MAX: Final = 3600
_TUPLES: Final = ("verbs", "roles", "tables")
# Fields that mean something for one action only. With another one they would be a mistake that nobody notices.
_USED_BY: Final = {"when": "hold", "status": "answer", "seconds": "delay", "bytes_per_second": "throttle"}


@dataclass(frozen=True)
class Rule:
    """A rule; what is left out means any."""

    action: str
    when: str = "before"
    owner: str | None = None
    verbs: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    durable: bool | None = None
    nth: int = 1
    times: int | None = 1
    status: int = 503
    seconds: float = 0.0
    bytes_per_second: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            why = _objection(field.name, getattr(self, field.name))
            if why is not None:
                raise RuleError("rule", field.name, why)
        for field in dataclasses.fields(self):
            if getattr(self, field.name) != field.default:
                self._refuse_unused("rule", field.name, self.action)
        if self.action == "throttle" and self.bytes_per_second < 1:
            raise RuleError("rule", "bytes_per_second", "a throttle needs at least 1")
        if self.action == "delay" and self.seconds == 0:
            raise RuleError("rule", "seconds", "a delay needs more than 0")

    @staticmethod
    def _refuse_unused(where: str, name: str, action: Any) -> None:
        user = _USED_BY.get(name, action)
        if user != action and action in ACTIONS:
            raise RuleError(where, name, f"only {_article(user)} has it, and this is '{action}'")

    @classmethod
    def from_json(cls, body: Any, where: str = "rule") -> Self:
        """Read a rule; `where` is how errors name it."""
        if not isinstance(body, Mapping):
            raise RuleError(where, "", f"must be an object, not {_named(body)}")
        known = [field.name for field in dataclasses.fields(cls)]
        for name in body:
            if name not in known:
                raise RuleError(where, str(name), f"is no field of a rule; there are {', '.join(known)}")
        if "action" not in body:
            raise RuleError(where, "action", f"is missing; there are {', '.join(ACTIONS)}")
        for name in body:
            cls._refuse_unused(where, name, body["action"])
        given = dict(body)
        for name in _TUPLES:
            if name in given:
                if not isinstance(given[name], list):
                    raise RuleError(where, name, f"must be a list of names, not {_named(given[name])}")
                given[name] = tuple(given[name])
        try:
            return cls(**given)
        except RuleError as error:
            raise RuleError(where, error.field, error.why) from None

    def as_json(self) -> dict[str, Any]:
        """The rule as `from_json` reads it, without what is as it would be anyway."""
        body: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "action" or value != field.default:
                body[field.name] = list(value) if isinstance(value, tuple) else value
        return body


def _article(action: str) -> str:
    return f"{'an' if action.startswith('a') else 'a'} {action}"


def _objection(field: str, value: Any) -> str | None:
    """Why a field cannot have a value, or None."""
    match field:
        case "action":
            return _not_one_of(ACTIONS, value)
        case "when":
            return _not_one_of(MOMENTS, value)
        case "owner":
            return None if value is None or isinstance(value, str) else f"must be a name, not {_named(value)}"
        case "verbs" | "roles" | "tables":
            return _objection_to_names(field, value)
        case "durable":
            return None if value is None or isinstance(value, bool) else f"must be true or false, not {_named(value)}"
        case "nth":
            return _not_from(1, COUNT_MAX, value)
        case "times":
            return None if value is None else _not_from(1, COUNT_MAX, value)
        case "status":
            # What begins with 1 is no answer: a client would wait for the one that follows.
            return _not_from(200, 599, value)
        case "seconds":
            if isinstance(value, bool) or not isinstance(value, int | float):
                return f"must be a number, not {_named(value)}"
            return None if 0 <= value <= SECONDS_MAX else f"must be a time of at most {SECONDS_MAX} seconds"
        case _:
            return _not_from(0, COUNT_MAX, value)


def _objection_to_names(field: str, value: Any) -> str | None:
    if not isinstance(value, tuple):
        return f"must be a tuple of names, not {_named(value)}"
    allowed = {"verbs": VERBS, "roles": ROLES}.get(field)
    for each in value:
        if not isinstance(each, str):
            return f"must hold names, not {_named(each)}"
        if allowed is not None and each not in allowed:
            return f"there is no '{each}'; there are {', '.join(allowed)}"
    return None


def _not_one_of(allowed: tuple[str, ...], value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a name, not {_named(value)}"
    return None if value in allowed else f"there is no '{value}'; there are {', '.join(allowed)}"


def _not_from(least: int, most: int, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"must be a whole number, not {_named(value)}"
    if least <= value <= most:
        return None
    return f"must be at least {least}" if value < least else f"must be at most {most}"


def _named(value: Any) -> str:
    """A wrong value by its type: it may be long, or a secret that slipped into the wrong place."""
    return "null" if value is None else f"a value of type {type(value).__name__}"
