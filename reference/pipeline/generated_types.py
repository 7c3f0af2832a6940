"""The types of a generated graph, and how many rows of each there are.

Most rows are plain: people who know each other. A small part carries every rule that a schema can have, so that
checking has something to do: composite keys, unique values, enums, ranges, patterns, and edges that a source may have
only so many of. Accounts own things in pairs, because a cardinality with a minimum needs sources that fulfil it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import BadRequest
from reference.pipeline.made_up import Dice, Numbers, numbered, spread, text

SCHEMA: Final = """\
node Person {
  handle: String @key
  name: String
  bio: String?
  age: I32?
  score: F64?
  born: Date?
  active: Bool
  face: Vector(4)?
}

node Account {
  number: I64 @key
  email: String? @unique
  state: enum(closed, frozen, open)
  balance: F64?
  code: String
  seen: DateTime?
  @range(balance, 0..1000000)
  @check(code, "^[A-Z]{2}[0-9]+$")
}

node City {
  country: String
  zip: I32
  name: String
  population: U32?
  @key(country, zip)
}

node Event {
  title: String
  at: DateTime
  tags: [String]?
  ticket: String? @unique
}

edge Knows: Person -> Person {
  since: Date?
  weight: F32?
}

edge Attends: Person -> Event {
  role: enum(guest, host)?
}

edge LivesIn: Person -> City @card(0..1) {
  since: Date?
}

edge Owns: Account -> Event @card(2..3) {
  share: F64
}
"""
SHARES_OF_NODES: Final = {"Account": 0.06, "City": 0.02, "Event": 0.08}
SHARES_OF_EDGES: Final = {"Attends": 0.08, "LivesIn": 0.06, "Owns": 0.02}
# Edges with ids of their own; the others get theirs when they are loaded, as most edges of the world do.
EDGES_WITH_IDS: Final = ("Attends", "Owns")
COUNTRIES: Final = ("be", "ch", "de", "es", "fr", "it", "nl", "pl", "pt", "se")
_1970_TO_2025_DAYS: Final = 20_089
_DAY_MILLIS: Final = 86_400_000
_2020_MILLIS: Final = 1_577_836_800_000


@dataclass(frozen=True)
class Sizes:
    """How many rows each type has, and the seed that decides what is in them."""

    seed: int
    nodes: Mapping[str, int]
    edges: Mapping[str, int]


def sizes(nodes: int, edges: int, seed: int) -> Sizes:
    """Share out the rows that were asked for. There are never fewer, and never more."""
    if nodes < 0 or edges < 0:
        raise BadRequest("a graph cannot have fewer than 0 rows", code="invalid_size")
    counts = {name: int(nodes * share) for name, share in SHARES_OF_NODES.items()}
    counts["Person"] = nodes - sum(counts.values())
    if edges and not nodes:
        raise BadRequest("edges need nodes to join", code="invalid_size", hint="ask for some nodes")
    joined = {name: int(edges * share) for name, share in SHARES_OF_EDGES.items()}
    joined["Attends"] = joined["Attends"] if counts["Event"] else 0
    joined["LivesIn"] = min(joined["LivesIn"], counts["Person"]) if counts["City"] else 0
    joined["Owns"] = min(joined["Owns"], 2 * counts["Account"]) if counts["Event"] else 0
    joined["Owns"] = joined["Owns"] if joined["Owns"] >= 2 else 0
    joined["Knows"] = edges - sum(joined.values())
    return Sizes(seed, dict(sorted(counts.items())), dict(sorted(joined.items())))


def node_rows(name: str, rows: Numbers, size: Sizes) -> dict[str, pa.Array]:
    """The columns of some nodes, by number; `id` only where the type has no key."""
    return _NODES[name](Dice(size.seed, f"node:{name}"), rows)


def edge_rows(name: str, rows: Numbers, size: Sizes) -> dict[str, pa.Array]:
    """The columns of some edges, by number: their two ends first."""
    return _EDGES[name](Dice(size.seed, f"edge:{name}"), rows, size)


# -- nodes -------------------------------------------------------------------------------------------------------------


def person_ids(seed: int, people: Numbers) -> pa.Array:
    return text(Dice(seed, "node:Person").words("handle", people), numbered("-", people))


def event_ids(events: Numbers) -> pa.Array:
    return numbered("event-", events)


def city_ids(cities: Numbers) -> pa.Array:
    """The compact JSON array of the key, its columns in the order of their names."""
    country, code = _city_key(cities)
    return text('["', country, '",', code.cast(pa.string()), "]")


def _city_key(cities: Numbers) -> tuple[pa.Array, pa.Array]:
    country = pa.array(COUNTRIES, pa.string()).take(pa.array(cities % len(COUNTRIES)))
    return country, pa.array((1_000 + cities // len(COUNTRIES)).astype(np.int32))


def _people(dice: Dice, rows: Numbers) -> dict[str, pa.Array]:
    first, last = dice.words("handle", rows), dice.words("last name", rows, skew=4.0)
    return {
        "handle": person_ids(dice.seed, rows),
        "name": text(pc.utf8_capitalize(first), " ", pc.utf8_capitalize(last)),
        "bio": dice.with_nulls("bio", rows, dice.sentences("bio", rows, 60), 0.4),
        "age": dice.with_nulls("age", rows, dice.numbers("age", rows, pa.int32(), 96), 0.1),
        "score": dice.with_nulls("score", rows, pa.array(dice.shares("score", rows) * 100), 0.05),
        "born": dice.with_nulls("born", rows, dice.numbers("born", rows, pa.date32(), _1970_TO_2025_DAYS), 0.2),
        "active": pa.array(dice.shares("active", rows) < 0.7),
        "face": dice.with_nulls("face", rows, dice.vectors("face", rows, 4), 0.5),
    }


def _accounts(dice: Dice, rows: Numbers) -> dict[str, pa.Array]:
    states = pa.array(["open", "open", "open", "frozen", "closed"]).take(pa.array(dice.below("state", rows, 5)))
    email = text(dice.words("email", rows), numbered(".", rows), "@example.org")
    balance = pa.array(np.round(dice.shares("balance", rows) ** 5 * 1_000_000, 2))
    seen = dice.numbers("seen", rows, pa.timestamp("ms"), 2_000 * _DAY_MILLIS, start=_2020_MILLIS)
    return {
        "number": pa.array(10_000_000 + rows),
        "email": dice.with_nulls("email", rows, email, 0.3),
        "state": states,
        "balance": dice.with_nulls("balance", rows, balance, 0.1),
        "code": text("AC", numbered("", rows)),
        "seen": dice.with_nulls("seen", rows, seen, 0.3),
    }


def _cities(dice: Dice, rows: Numbers) -> dict[str, pa.Array]:
    country, code = _city_key(rows)
    population = pa.array((1 + dice.shares("population", rows) ** 8 * 20_000_000).astype(np.uint32))
    return {
        "country": country,
        "zip": code,
        "name": pc.utf8_capitalize(dice.words("name", rows, skew=1.0)),
        "population": dice.with_nulls("population", rows, population, 0.1),
    }


def _events(dice: Dice, rows: Numbers) -> dict[str, pa.Array]:
    tags = dice.items("tags", rows, dice.popular("tags length", rows, 8, 2.0))
    return {
        "id": event_ids(rows),
        "title": dice.sentences("title", rows, 20),
        "at": dice.numbers("at", rows, pa.timestamp("ms"), 2_000 * _DAY_MILLIS, start=_2020_MILLIS),
        "tags": dice.with_nulls("tags", rows, tags, 0.3),
        "ticket": dice.with_nulls("ticket", rows, numbered("T", rows), 0.5),
    }


# -- edges -------------------------------------------------------------------------------------------------------------


def _popular_people(dice: Dice, rows: Numbers, size: Sizes, *, end: str, skew: float) -> pa.Array:
    people = size.nodes["Person"]
    return person_ids(size.seed, spread(dice.popular(end, rows, people, skew), people))


def _knows(dice: Dice, rows: Numbers, size: Sizes) -> dict[str, pa.Array]:
    weight = pa.array(dice.shares("weight", rows).astype(np.float32))
    return {
        "from": _popular_people(dice, rows, size, end="from", skew=2.0),
        "to": _popular_people(dice, rows, size, end="to", skew=3.0),
        "since": dice.with_nulls("since", rows, dice.numbers("since", rows, pa.date32(), _1970_TO_2025_DAYS), 0.2),
        "weight": dice.with_nulls("weight", rows, weight, 0.1),
    }


def _attends(dice: Dice, rows: Numbers, size: Sizes) -> dict[str, pa.Array]:
    events = size.nodes["Event"]
    roles = pa.array(["guest", "guest", "guest", "host"]).take(pa.array(dice.below("role", rows, 4)))
    return {
        "from": _popular_people(dice, rows, size, end="from", skew=2.0),
        "to": event_ids(spread(dice.popular("to", rows, events, 3.0), events)),
        "id": numbered("attends-", rows),
        "role": dice.with_nulls("role", rows, roles, 0.2),
    }


def _lives_in(dice: Dice, rows: Numbers, size: Sizes) -> dict[str, pa.Array]:
    """Each person lives in one city at most: the number of the edge is that of the person."""
    people, cities = size.nodes["Person"], size.nodes["City"]
    return {
        "from": person_ids(size.seed, spread(rows, people)),
        "to": city_ids(spread(dice.popular("to", rows, cities, 3.0), cities)),
        "since": dice.with_nulls("since", rows, dice.numbers("since", rows, pa.date32(), _1970_TO_2025_DAYS), 0.2),
    }


def _owns(dice: Dice, rows: Numbers, size: Sizes) -> dict[str, pa.Array]:
    """Two edges for each account that has any; the last one takes the odd one out."""
    accounts, events = np.minimum(rows // 2, size.edges["Owns"] // 2 - 1), size.nodes["Event"]
    return {
        "from": pa.array(10_000_000 + accounts).cast(pa.string()),
        "to": event_ids(dice.below("to", rows, events)),
        "id": numbered("owns-", rows),
        "share": pa.array(dice.shares("share", rows)),
    }


_NODES: Final[Mapping[str, Callable[[Dice, Numbers], dict[str, pa.Array]]]] = {
    "Person": _people,
    "Account": _accounts,
    "City": _cities,
    "Event": _events,
}
_EDGES: Final[Mapping[str, Callable[[Dice, Numbers, Sizes], dict[str, pa.Array]]]] = {
    "Knows": _knows,
    "Attends": _attends,
    "LivesIn": _lives_in,
    "Owns": _owns,
}
