"""The weather of one step: rules for the gate, and perhaps a kill. Drawn from a seed, and a plain value in a trace."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from failpoints.cuts.cut import Cut, check_place
from failpoints.gate import Rule

# Roles whose objects are created under a condition: a 412 for them is what a lost race looks like.
CONDITIONAL: Final = ("manifest version", "table version")
KILLS: Final = ("before", "applied")
# The writes that decide something, and the requests whose refusal an engine has to hear of.
DECIDING_WRITES: Final = ("sidecar", "table version", "manifest version", "manifest ref")
DECIDING: Final = (
    *(("PUT", role) for role in (*DECIDING_WRITES, "sidecar", "schema file", "table data", "audit version")),
    ("DELETE", "sidecar"),
    ("DELETE", "manifest ref"),
    ("LIST", "listing"),
    ("GET", "manifest version"),
    ("GET", "table version"),
    ("GET", "sidecar"),
)
# What is there for the case that a process dies, and that nobody misses while it lives.
FAILSAFES: Final = (("PUT", "sidecar"), ("PUT", "audit version"), ("LIST", "listing"))
OUTAGES: Final = (("PUT", "sidecar"), ("PUT", "manifest version"), ("DELETE", "sidecar"))
# So often clients of S3 ask before they give up, which takes them most of a minute. One that went on for ever would
# keep an engine that asks again by itself longer than anybody waits for an answer.
OUTAGE_REQUESTS: Final = 11
# More races in a row than the attempts of one publish [PUB-08]: whoever has lost them all says so.
CONTENDED_REQUESTS: Final = 12
_KINDS: Final = 26
_REQUESTS_MAX: Final = 30
_DELAY_SECONDS: Final = 0.05
_SECOND_RULE: Final = 0.15
_KILL_TOO: Final = 0.25
_BAD_RECOVERY: Final = 0.3
_OUTAGE: Final = 0.2


class WeatherError(ValueError):
    """A weather that a trace cannot mean: which field, and what is wrong with it."""


@dataclass(frozen=True)
class Weather:
    """What happens during one step: `rules` at the gate, and `kill` at a durable request.

    `recovery` is the weather of the first open after it, if that has something to recover.
    """

    rules: tuple[Rule, ...] = ()
    kill: Cut | None = None
    recovery: Weather | None = None

    @property
    def is_calm(self) -> bool:
        return not self.rules and self.kill is None

    def __str__(self) -> str:
        words = [_words_of(rule) for rule in self.rules]
        words += [] if self.kill is None else [f"killed {self.kill}"]
        return (", ".join(words) or "calm") + (f"; in the recovery {self.recovery}" if self.recovery else "")

    def as_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"rules": [rule.as_json() for rule in self.rules]}
        if self.kill is not None:
            body["kill"] = self.kill.as_json()
        return body if self.recovery is None else {**body, "recovery": self.recovery.as_json()}

    @classmethod
    def from_json(cls, body: Any, where: str = "weather") -> Self:
        if not isinstance(body, Mapping):
            raise WeatherError(f"{where}: is no object")
        if unknown := sorted(body.keys() - {"rules", "kill", "recovery"}):
            raise WeatherError(f"{where}.{unknown[0]}: there is no such field; there are rules, kill and recovery")
        rules = body.get("rules", [])
        if not isinstance(rules, list):
            raise WeatherError(f"{where}.rules: is no list")
        made = tuple(Rule.from_json(each, f"{where}.rules[{number}]") for number, each in enumerate(rules))
        for number, rule in enumerate(made):
            if rule.action == "hold":
                raise WeatherError(f"{where}.rules[{number}].action: nobody would release what is held in a storm")
        recovery = None
        if "recovery" in body:
            recovery = cls.from_json(body["recovery"], f"{where}.recovery")
            if recovery.recovery is not None:
                raise WeatherError(f"{where}.recovery.recovery: a recovery that failed is recovered in calm weather")
        return cls(made, _kill(body.get("kill"), f"{where}.kill"), recovery)


def _words_of(rule: Rule) -> str:
    verbs, roles = "/".join(rule.verbs), "/".join(rule.roles)
    about = " ".join(each for each in (verbs, roles) if each) or "any request"
    action = f"{rule.action} {rule.status}" if rule.action == "answer" else rule.action
    return f"{action} of {about}, {'from ' if rule.times is None else ''}number {rule.nth}"


def _kill(body: Any, where: str) -> Cut | None:
    if body is None:
        return None
    kill = Cut.from_json(body, where)
    if kill.moment not in KILLS:
        raise WeatherError(f"{where}.moment: in a storm a process is killed {' or '.join(KILLS)}")
    check_place(kill, where)
    return kill


def drawn(chance: random.Random) -> Weather:
    """Some weather: calm in one of four steps, a kill in one of four, and now and then one for the recovery too."""
    kind = chance.randrange(_KINDS)
    if kind < 6:
        return Weather()
    rules, kill = _struck(chance, kind)
    if rules and chance.random() < _SECOND_RULE:
        rules = (*rules, _passing(chance, chance.randrange(6)))
    if kill is None and chance.random() < _KILL_TOO:
        kill = _killed(chance)
    recovery = None
    if chance.random() < _BAD_RECOVERY:
        recovery = Weather(*_struck(chance, chance.randrange(6, _KINDS)))
    return Weather(rules, kill, recovery)


def _struck(chance: random.Random, kind: int) -> tuple[tuple[Rule, ...], Cut | None]:
    """One bad thing: a kill, a fault that passes, or one that does not."""
    if kind < 10:
        return (), _killed(chance)
    if kind < 18:
        return (_passing(chance, kind - 10),), None
    if kind < 22:
        return (_forbidden(chance),), None
    if kind < 24:
        # Whoever goes on without what it was refused, and dies then, leaves a graph that shows it.
        verb, role = chance.choice(FAILSAFES)
        at = chance.choice(("manifest version", "manifest version", "table version"))
        kill = {"moment": chance.choice(KILLS), "nth": 1, "request": f"PUT {at}", "occurrence": 1}
        return (Rule("answer", status=403, verbs=(verb,), roles=(role,), times=None),), Cut.from_json(kill)
    if kind == 24:
        rule = Rule("answer", status=412, verbs=("PUT",), roles=("manifest version",), times=CONTENDED_REQUESTS)
        return (rule,), None
    # A client asks again for long when it is told to slow down: so only where it decides, and seldom.
    if chance.random() < _OUTAGE:
        verb, role = chance.choice(OUTAGES)
        return (Rule("answer", status=503, verbs=(verb,), roles=(role,), times=OUTAGE_REQUESTS),), None
    return (_forbidden(chance),), None


def _killed(chance: random.Random) -> Cut:
    moment = chance.choice(KILLS)
    if chance.random() < 0.5:
        return Cut.from_json({"moment": moment, "nth": chance.randint(1, 14), "request": "any"})
    request, occurrence = chance.choice(DECIDING_WRITES), chance.choice((1, 1, 2))
    return Cut.from_json({"moment": moment, "nth": 1, "request": f"PUT {request}", "occurrence": occurrence})


def _forbidden(chance: random.Random) -> Rule:
    """A request that is refused for good: no client asks again, and the engine has to live with it."""
    verb, role = chance.choice(DECIDING)
    times = chance.choice((1, None))
    return Rule("answer", status=403, verbs=(verb,), roles=(role,), nth=chance.choice((1, 1, 1, 2, 3)), times=times)


def _passing(chance: random.Random, kind: int) -> Rule:
    """A fault that is over when a client asks again."""
    nth = chance.randint(1, _REQUESTS_MAX)
    if kind < 2:
        return Rule("cut", durable=True, nth=chance.randint(1, 14))
    if kind == 2:
        return Rule("cut", roles=("manifest version",), durable=True, nth=chance.randint(1, 2))
    if kind == 3:
        return Rule("refuse", nth=nth, times=chance.randint(1, 2))
    if kind == 4:
        return Rule("answer", status=412, verbs=("PUT",), roles=CONDITIONAL, nth=chance.randint(1, 4))
    if kind == 5:
        return Rule("delay", seconds=_DELAY_SECONDS, nth=nth, times=3)
    return Rule("answer", status=chance.choice([500, 503]), nth=nth, times=chance.randint(1, 3))
