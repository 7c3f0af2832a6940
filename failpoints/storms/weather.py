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
_REQUESTS_MAX: Final = 30
_DELAY_SECONDS: Final = 0.05


class WeatherError(ValueError):
    """A weather that a trace cannot mean: which field, and what is wrong with it."""


@dataclass(frozen=True)
class Weather:
    """What happens during one step: `rules` at the gate, and `kill` at a durable request."""

    rules: tuple[Rule, ...] = ()
    kill: Cut | None = None

    @property
    def is_calm(self) -> bool:
        return not self.rules and self.kill is None

    def __str__(self) -> str:
        words = [f"{rule.action} of request {rule.nth}" if rule.nth else rule.action for rule in self.rules]
        return ", ".join([*words, *([] if self.kill is None else [f"killed {self.kill}"])]) or "calm"

    def as_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"rules": [rule.as_json() for rule in self.rules]}
        return body if self.kill is None else {**body, "kill": self.kill.as_json()}

    @classmethod
    def from_json(cls, body: Any, where: str = "weather") -> Self:
        if not isinstance(body, Mapping):
            raise WeatherError(f"{where}: is no object")
        if unknown := sorted(body.keys() - {"rules", "kill"}):
            raise WeatherError(f"{where}.{unknown[0]}: there is no such field; there are rules and kill")
        rules = body.get("rules", [])
        if not isinstance(rules, list):
            raise WeatherError(f"{where}.rules: is no list")
        made = tuple(Rule.from_json(each, f"{where}.rules[{number}]") for number, each in enumerate(rules))
        for number, rule in enumerate(made):
            if rule.action == "hold":
                raise WeatherError(f"{where}.rules[{number}].action: nobody would release what is held in a storm")
        return cls(made, _kill(body.get("kill"), f"{where}.kill"))


def _kill(body: Any, where: str) -> Cut | None:
    if body is None:
        return None
    kill = Cut.from_json(body, where)
    if kill.moment not in KILLS:
        raise WeatherError(f"{where}.moment: in a storm a process is killed {' or '.join(KILLS)}")
    check_place(kill, where)
    return kill


def drawn(chance: random.Random) -> Weather:
    """Some weather: calm in one of four steps, a kill in one of six."""
    kind = chance.randrange(12)
    nth = chance.randint(1, _REQUESTS_MAX)
    if kind < 3:
        return Weather()
    if kind < 5:
        moment = chance.choice(KILLS)
        return Weather(kill=Cut.from_json({"moment": moment, "nth": chance.randint(1, 14), "request": "any"}))
    if kind < 7:
        return Weather((Rule("cut", durable=True, nth=chance.randint(1, 14)),))
    if kind == 7:
        return Weather((Rule("cut", roles=("manifest version",), durable=True, nth=chance.randint(1, 2)),))
    if kind == 8:
        return Weather((Rule("refuse", nth=nth, times=chance.randint(1, 2)),))
    if kind == 9:
        return Weather((Rule("answer", status=412, verbs=("PUT",), roles=CONDITIONAL, nth=chance.randint(1, 4)),))
    if kind == 10:
        return Weather((Rule("delay", seconds=_DELAY_SECONDS, nth=nth, times=3),))
    return Weather((Rule("answer", status=chance.choice([500, 503]), nth=nth, times=chance.randint(1, 3)),))
