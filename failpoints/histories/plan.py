"""What the processes of a history will ask, made from a seed before any of them starts.

Few hot keys, for contention, and cold ones that nobody else writes. Whatever a call writes carries the name of the
call, so that every row says who wrote it last. A plan is a plain value: the same seed gives the same one, a process
does the same however many others there are, and kills change nothing of what is asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failpoints.histories.record import ALONE, MAIN, Call, Step

SCHEMA: Final = """node Person {
  name: String @key
  age: I32?
  email: String? @unique
  note: String?
}
node Pet {
  name: String @key
  note: String?
}
node Log {
  text: String?
}
edge Knows: Person -> Person {
  note: String?
}
edge Owns: Person -> Pet @card(0..3) {
  note: String?
}
"""
HOT: Final = ("ann", "bob", "cyd", "dan")
HOT_EDGES: Final = ("k1", "k2", "k3")
EMAILS: Final = ("a@x", "b@x", "c@x")
SIDE: Final = "side"
FIRST_RECORDS: Final[tuple[dict[str, Any], ...]] = (
    *({"type": "Person", "data": {"name": name, "age": 30, "note": "first"}} for name in HOT),
    *({"type": "Pet", "data": {"name": name, "note": "first"}} for name in HOT),
    {"type": "Log", "data": {"text": "first"}},
    {"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "k1", "note": "first"}},
    {"edge": "Owns", "from": "ann", "to": "ann", "data": {"id": "o1", "note": "first"}},
)
# A kill may also come when the answer is there already: that is a crash after the acknowledgement.
LATEST_KILL: Final = 1.2
# A part of the cold keys that a process goes back to are its own, the rest another's.
_PROCESSES_SEEN: Final = 4

Weights = Mapping[str, int]
# What two calls can take from each other: few rows, and hardly anything but them. Everything there is hot.
_HOTTEST: Final = "hot"
PROFILES: Final[Mapping[str, Weights]] = {
    "writes": {
        "insert": 20,
        "update": 18,
        "update_many": 3,
        "delete": 10,
        "edge": 14,
        "edge_delete": 5,
        "several": 12,
        "delete_several": 3,
        "log": 5,
        "load_merge": 6,
        "load_append": 4,
    },
    _HOTTEST: {"update": 40, "insert": 10, "delete": 16, "edge": 28, "several": 3, "log": 3},
    "mixed": {
        "insert": 16,
        "update": 14,
        "update_many": 2,
        "delete": 8,
        "edge": 12,
        "edge_delete": 4,
        "several": 10,
        "delete_several": 2,
        "log": 4,
        "load_merge": 5,
        "load_append": 3,
        "merge": 8,
        "branch": 4,
        "optimize": 4,
        "ensure_indices": 2,
    },
}


class PlanError(ValueError):
    """A history that cannot be planned: what is wrong, and what to give instead."""


@dataclass(frozen=True)
class Plan:
    """All calls of a history: `opening` is made alone before the start, `calls` by the processes at once."""

    seed: int
    profile: str
    processes: int
    writes: int
    kill_every: int | None
    schema: str
    opening: tuple[Call, ...]
    calls: tuple[Call, ...]

    def of(self, process: int) -> tuple[Call, ...]:
        """What one process asks, in its order."""
        return tuple(call for call in self.calls if call.process == process)

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "profile": self.profile,
            "processes": self.processes,
            "writes": self.writes,
            "kill_every": self.kill_every,
            "schema": self.schema,
            "opening": [call.as_json() for call in self.opening],
            "calls": [call.as_json() for call in self.calls],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Plan:
        try:
            return cls(
                seed=body["seed"],
                profile=body["profile"],
                processes=body["processes"],
                writes=body["writes"],
                kill_every=body["kill_every"],
                schema=body["schema"],
                opening=tuple(Call.from_json(call) for call in body["opening"]),
                calls=tuple(Call.from_json(call) for call in body["calls"]),
            )
        except (KeyError, TypeError) as error:
            raise PlanError(f"this is no plan of a history: {error!r}; take the `plan` of a trace as it is") from None


def make_plan(
    *, processes: int, writes: int, seed: int, profile: str = "writes", kill_every: int | None = None
) -> Plan:
    """What `processes` processes ask, `writes` calls each, and in one of every `kill_every` calls of each a kill."""
    if profile not in PROFILES:
        raise PlanError(f"there is no profile '{profile}' of histories; there are {', '.join(PROFILES)}")
    for name, value in (("processes", processes), ("writes", writes), ("kill_every", kill_every)):
        if value is not None and value < 1:
            raise PlanError(f"{name} is {value}, and has to be at least 1")
    mixed = "merge" in PROFILES[profile]
    calls = [
        call for process in range(processes) for call in _process_calls(process, writes, seed, profile, kill_every)
    ]
    return Plan(seed, profile, processes, writes, kill_every, SCHEMA, _opening(mixed), tuple(calls))


def _opening(mixed: bool) -> tuple[Call, ...]:
    steps: list[Step] = [{"do": "load", "records": [dict(record) for record in FIRST_RECORDS], "mode": "merge"}]
    if mixed:
        steps.append({"do": "branch_create", "name": SIDE, "source": MAIN})
    return tuple(Call(ALONE, number, f"first-{number:03}", step) for number, step in enumerate(steps))


def closing(branches: Sequence[str]) -> tuple[Call, ...]:
    """A write to every table of every branch, when all is over: it has to work [PUB-21]."""
    calls = []
    for number, branch in enumerate(branches):
        actor = f"last-{number:03}"
        records = [
            {"type": "Person", "data": {"name": actor, "note": actor}},
            {"type": "Pet", "data": {"name": actor, "note": actor}},
            {"type": "Log", "data": {"text": actor}},
            {"edge": "Knows", "from": actor, "to": actor, "data": {"id": actor, "note": actor}},
            {"edge": "Owns", "from": actor, "to": actor, "data": {"id": actor, "note": actor}},
        ]
        calls.append(Call(ALONE, number, actor, {"do": "load", "records": records, "mode": "merge", "branch": branch}))
    return tuple(calls)


def _process_calls(process: int, writes: int, seed: int, profile: str, kill_every: int | None) -> list[Call]:
    author = _Author(process, random.Random(f"{seed}/{profile}/{process}"), profile)
    kills = random.Random(f"{seed}/kills/{process}")
    chosen = None if kill_every is None else kills.randrange(kill_every)
    calls = []
    for number in range(writes):
        actor = f"p{process:02}-{number:03}"
        kill_at = round(kills.uniform(0, LATEST_KILL), 3)
        killed = kill_every is not None and number % kill_every == chosen
        calls.append(Call(process, number, actor, author.step(actor, number), kill_at if killed else None))
    return calls


class _Author:
    """Makes up what one process asks."""

    def __init__(self, process: int, chance: random.Random, profile: str) -> None:
        self._process = process
        self._chance = chance
        self._weights = PROFILES[profile]
        self._mixed = "merge" in self._weights
        self._hottest = profile == _HOTTEST
        self._own: str | None = None
        self._branch_now: str | None = None

    def step(self, actor: str, number: int) -> Step:
        self._branch_now = self._somewhere()
        (kind,) = self._chance.choices(list(self._weights), weights=list(self._weights.values()))
        make: Callable[[str, int], Step] = getattr(self, f"_{kind}")
        return make(actor, number)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _insert(self, actor: str, number: int) -> Step:
        return self._mutate(self._node(actor, self._key(actor)))

    def _update(self, actor: str, number: int) -> Step:
        given: dict[str, Any] = {"note": actor, "age": self._chance.randrange(100)}
        if self._branch_now is None and self._chance.random() < 0.2:
            given["email"] = self._chance.choice(EMAILS)
        return self._mutate({"op": "update", "type": "Person", "where": _named(self._old_key(number)), "set": given})

    def _update_many(self, actor: str, number: int) -> Step:
        """Whoever is decided on by a value must be decided on by the rows that are there when it is published."""
        floor = 50 if self._branch_now is None else 98
        where = {"property": "age", "op": "ge", "value": self._chance.randrange(floor, 100)}
        return self._mutate({"op": "update", "type": "Person", "where": where, "set": {"note": actor}})

    def _delete(self, actor: str, number: int) -> Step:
        kind = "Person" if self._chance.random() < 0.7 else "Pet"
        return self._mutate({"op": "delete", "type": kind, "where": _named(self._old_key(number))})

    def _delete_several(self, actor: str, number: int) -> Step:
        key = self._old_key(number)
        return self._mutate(*({"op": "delete", "type": kind, "where": _named(key)} for kind in ("Person", "Pet")))

    def _log(self, actor: str, number: int) -> Step:
        """A row whose id the engine makes: done twice, it is there twice."""
        return self._mutate({"op": "insert", "type": "Log", "data": {"text": actor}})

    # -- edges ---------------------------------------------------------------------------------------------------------

    def _edge(self, actor: str, number: int) -> Step:
        if self._branch_now is not None:
            return self._several(actor, number)
        hot = self._chance.random() < 0.4 and not self._hottest
        data = {"id": self._chance.choice(HOT_EDGES) if hot else actor, "note": actor}
        ends = self._chance.choice(HOT), self._chance.choice(HOT)
        if self._chance.random() < 0.7:
            return self._mutate({"op": "insert", "edge": "Knows", "from": ends[0], "to": ends[1], "data": data})
        return self._mutate({"op": "insert", "edge": "Owns", "from": ends[0], "to": ends[1], "data": data})

    def _edge_delete(self, actor: str, number: int) -> Step:
        where = {"property": "from", "op": "eq", "value": self._chance.choice(HOT)}
        return self._mutate({"op": "delete", "edge": self._chance.choice(("Knows", "Owns")), "where": where})

    # -- several tables at once ----------------------------------------------------------------------------------------

    def _several(self, actor: str, number: int) -> Step:
        """A person, a pet, and mostly an edge between them: all of it or nothing."""
        person, pet = self._key(actor), self._key(actor)
        statements = [self._node(actor, person, "Person"), self._node(actor, pet, "Pet")]
        if self._chance.random() < 0.7:
            data = {"id": actor, "note": actor}
            statements.append({"op": "insert", "edge": "Owns", "from": person, "to": pet, "data": data})
        return self._mutate(*statements)

    def _load_merge(self, actor: str, number: int) -> Step:
        return self._load(actor, "merge", self._key(actor))

    def _load_append(self, actor: str, number: int) -> Step:
        """Mostly of new keys; of one that is there, it has to be refused."""
        return self._load(actor, "append", actor if self._chance.random() < 0.7 else self._key(actor))

    def _load(self, actor: str, mode: str, key: str) -> Step:
        records: list[dict[str, Any]] = [
            {"type": "Person", "data": {"name": key, "age": self._chance.randrange(100), "note": actor}},
            {"type": "Pet", "data": {"name": key, "note": actor}},
        ]
        if self._chance.random() < 0.5:
            other = self._chance.choice(HOT) if self._branch_now is None else key
            records.append({"edge": "Knows", "from": key, "to": other, "data": {"id": actor, "note": actor}})
        return {"do": "load", "records": records, "mode": mode, **self._on_branch()}

    # -- branches and maintenance --------------------------------------------------------------------------------------

    def _merge(self, actor: str, number: int) -> Step:
        source = self._own if self._own is not None and self._chance.random() < 0.6 else SIDE
        if self._chance.random() < 0.75:
            return {"do": "merge", "source": source, "target": MAIN}
        return {"do": "merge", "source": MAIN, "target": source}

    def _branch(self, actor: str, number: int) -> Step:
        self._own = f"own-{self._process:02}-{number:03}"
        return {"do": "branch_create", "name": self._own, "source": MAIN if self._chance.random() < 0.7 else SIDE}

    def _optimize(self, actor: str, number: int) -> Step:
        return {"do": "optimize"}

    def _ensure_indices(self, actor: str, number: int) -> Step:
        return {"do": "ensure_indices"}

    # -- inside --------------------------------------------------------------------------------------------------------

    def _mutate(self, *statements: Mapping[str, Any]) -> Step:
        return {"do": "mutate", "statements": [dict(each) for each in statements], **self._on_branch()}

    def _node(self, actor: str, key: str, kind: str | None = None) -> dict[str, Any]:
        kind = kind or ("Person" if self._chance.random() < 0.7 else "Pet")
        data: dict[str, Any] = {"name": key, "note": actor}
        if kind == "Person":
            data["age"] = self._chance.randrange(100)
        return {"op": "insert", "type": kind, "data": data}

    def _key(self, actor: str) -> str:
        """A key to write: hot, or cold and never written before."""
        return self._chance.choice(HOT) if self._chance.random() < self._heat(0.4) else actor

    def _old_key(self, number: int) -> str:
        """A key that may be there: hot, or one that this or another process may have written."""
        if self._chance.random() < self._heat(0.6):
            return self._chance.choice(HOT)
        process = self._process if self._chance.random() < 0.6 else self._chance.randrange(_PROCESSES_SEEN)
        return f"p{process:02}-{self._chance.randrange(max(number, 1)):03}"

    def _heat(self, on_main: float) -> float:
        """How often a key is hot. On other branches seldom: once two branches disagree, they never merge again."""
        if self._hottest:
            return 1.0
        return on_main if self._branch_now is None else on_main / 100

    def _somewhere(self) -> str | None:
        """Mostly main; where there are other branches, now and then one of them."""
        if not self._mixed or self._chance.random() < 0.65:
            return None
        return self._own if self._own is not None and self._chance.random() < 0.4 else SIDE

    def _on_branch(self) -> dict[str, str]:
        return {} if self._branch_now is None else {"branch": self._branch_now}


def _named(key: str) -> dict[str, Any]:
    return {"property": "name", "op": "eq", "value": key}
