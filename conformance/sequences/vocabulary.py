"""What sequences are made of: one schema and its later versions, few names that collide often, and hostile values.

The names are few on purpose: two steps that touch the same row say more than two that do not. Types share their keys,
so that an id means another row in another table; some keys and branch names are as awkward as a name may be.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

PERSON: Final = """node Person {
  name: String @key
  age: I32?
  email: String? @unique
  mood: enum(calm, busy)?
  note: String?
  weight: F64?
  @range(age, 0..150)
}
"""
PET: Final = "node Pet {\n  name: String @key\n  tags: [String]?\n}\n"
# A value of every other kind: merges, exports and compactions have to carry them all.
GAUGE: Final = """node Gauge {
  name: String @key
  big: I64?
  huge: U64?
  day: Date?
  moment: DateTime?
  flag: Bool?
  single: F32?
  marks: [I32]?
  spot: Vector(2)?
  file: Blob?
  @range(big, -9007199254740993..9223372036854775807)
}
"""
LOG: Final = "node Log {\n  text: String?\n}\n"
EDGES: Final = "edge Knows: Person -> Person {\n  since: I32?\n}\nedge Owns: Person -> Pet @card(0..2)\n"
BASE: Final = PERSON + PET + GAUGE + LOG + EDGES

# Each can be applied to any before it, and none brings back a type that an earlier one has dropped.
_CITY: Final = "node City {\n  name: String @key\n}\nedge LivesIn: Person -> City\n"
_NICK: Final = PERSON.replace("  note:", "  nick: String?\n  note:")
_REMARK: Final = _NICK.replace("  note: String?", '  remark: String? @rename_from("note")')
LATER_SCHEMAS: Final[tuple[str, ...]] = (
    _NICK + PET + GAUGE + LOG + EDGES,
    _NICK + PET + GAUGE + LOG + EDGES + _CITY,
    _REMARK + PET + GAUGE + LOG + EDGES + _CITY,
    _REMARK + PET + GAUGE + EDGES + _CITY,
)
# What can be applied to none of them.
REFUSED_SCHEMAS: Final[tuple[str, ...]] = (
    BASE.replace("age: I32?", "age: String?"),
    BASE.replace("  mood:", "  must: String\n  mood:"),
    BASE + 'node Broken {\n  name: String @key\n  @check(name, "(")\n}\n',
)

BRANCHES: Final = ("feature", "feat/one", "feat/two", "β.dev")
KEYS: Final = ("a", "b", "c", "d", "o'hara", 'say "hi"', "ü/ß 漢", "node:Person", "null", "A")
TEXTS: Final = ("", "plain", "it's", '"', "\\", "a\u001fb", "line\nbreak", "\u2028", "😀", "null", "x" * 3000)
EDGE_IDS: Final = ("e1", "e2", "e3", "e'4")
ACTORS: Final = (None, "ann", "o'hara")
FIRST_RECORDS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "Person", "data": {"name": "a", "age": 30, "email": "a@x", "note": "it's"}},
    {"type": "Person", "data": {"name": "b", "mood": "calm", "weight": -0.0}},
    {"type": "Person", "data": {"name": "o'hara"}},
    {"type": "Pet", "data": {"name": "a", "tags": ["", "plain"]}},
    {"type": "Log", "data": {"id": "log", "text": "😀"}},
    {"type": "Gauge", "data": {"name": "a", "big": 7, "marks": [1, 2], "file": "base64:AAEC"}},
    {"edge": "Knows", "from": "a", "to": "b", "data": {"id": "e1", "since": 2020}},
    {"edge": "Knows", "from": "b", "to": "b", "data": {"id": "e2"}},
    {"edge": "Owns", "from": "a", "to": "a", "data": {"id": "e1"}},
)
FIRST_CHANGE: Final = {
    "op": "update",
    "type": "Person",
    "where": {"property": "name", "op": "eq", "value": "b"},
    "set": {"age": 40},
}

keys = st.sampled_from(KEYS)
gauges = st.sampled_from(KEYS[:3])
branches = st.sampled_from(BRANCHES)
texts = st.one_of(st.none(), st.sampled_from(TEXTS), st.text(max_size=8))
# Mostly values that a row may have, and now and then one that must be refused.
ages = st.one_of(st.none(), st.integers(0, 150), st.sampled_from([-1, 151, 2**31, 1.5, "old", True]))
good_ages = st.one_of(st.none(), st.integers(0, 150))
emails = st.sampled_from([None, None, "a@x", "b@x", "c@x", "d@x"])
moods = st.sampled_from([None, "calm", "busy", "calm", "busy", "angry"])
weights = st.one_of(
    st.none(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0.0, -0.0, 1e16, 1e-7])
)


@st.composite
def person_data(draw: st.DrawFn, *, hostile: bool = True) -> dict[str, Any]:
    """The properties of a person, some of them given."""
    chosen: dict[str, Any] = {}
    for name, values in (
        ("age", ages if hostile else good_ages),
        ("email", emails),
        ("mood", moods if hostile else st.sampled_from([None, "calm", "busy"])),
        ("note", texts),
        ("weight", weights),
    ):
        if draw(st.booleans()):
            chosen[name] = draw(values)
    return chosen


# Of each property: values that it may have, some of which only look alike, and values that must be refused.
GAUGED: Final[dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]] = {
    "big": ((None, 0, -1, 2**53 + 1, 2**63 - 1, -(2**53) - 1), (2**63, 1.5, "1", -(2**53) - 2)),
    "huge": ((None, 0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1), (-1, 2**64, 0.5)),
    "day": ((None, "1970-01-01", "0001-01-01", "9999-12-31", -1), ("2023-02-29", "today", 1.5)),
    "moment": ((None, "1969-12-31T23:59:59.999Z", "2026-01-02T03:04:05+05:30", 0), ("2026-01-02T24:00:00Z", True)),
    "flag": ((None, True, False), (0, "true")),
    "single": ((None, 0.1, -0.0, 0.0, 16777217, 3.4028235e38), (1e39, "1")),
    "marks": ((None, [], [1, 2], [12], [2, 1], [-(2**31), 2**31 - 1]), ([2**31], ["1"], 1)),
    "spot": ((None, [0, 0], [-0.0, 0.0], [0.1, 3.4028235e38]), ([1], [1, 2, 3], [1, "x"], [1, 1e39])),
    "file": ((None, "base64:AAEC", "base64:AAED", "base64:", "memory://pictures/a"), ("base64:???", "", 7)),
}


@st.composite
def gauge_data(draw: st.DrawFn) -> dict[str, Any]:
    """Some of the properties of a gauge; once in a while one of them has a value that it cannot have."""
    chosen = draw(st.lists(st.sampled_from(list(GAUGED)), min_size=1, max_size=3, unique=True))
    bad = draw(st.sampled_from(chosen)) if draw(st.integers(0, 9)) == 9 else None
    return {name: draw(st.sampled_from(GAUGED[name][name == bad])) for name in chosen}


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records of people, pets, gauges and logs, most of them good."""
    found: list[dict[str, Any]] = []
    hostile = draw(st.integers(0, 9)) == 9
    for name in draw(st.lists(keys, max_size=3, unique=not hostile)):
        found.append({"type": "Person", "data": {"name": name, **draw(person_data(hostile=hostile))}})
    for name in draw(st.lists(keys, max_size=2, unique=True)):
        tags = draw(st.one_of(st.none(), st.lists(st.sampled_from(TEXTS[:6]), max_size=2)))
        found.append({"type": "Pet", "data": {"name": name, "tags": tags}})
    if draw(st.integers(0, 3)) == 3:
        found.append({"type": "Gauge", "data": {"name": draw(gauges), **draw(gauge_data())}})
    if draw(st.integers(0, 4)) == 4:
        found.append({"type": "Log", "data": {"text": draw(texts)}})
    return found


@st.composite
def predicates(draw: st.DrawFn, key: str) -> dict[str, Any]:
    """Which people: this one, those with a value, all, or a combination."""
    this = {"property": "name", "op": "eq", "value": key}
    compared = st.tuples(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), st.integers(0, 150)).map(
        lambda pair: {"property": "age", "op": pair[0], "value": pair[1]}
    )
    noted = st.sampled_from(TEXTS[:10]).map(lambda text: {"property": "note", "op": "eq", "value": text})
    nothing = st.sampled_from(["is_null", "is_not_null"]).map(lambda op: {"property": "email", "op": op})
    simple = st.one_of(st.just(this), compared, noted, nothing)
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return {"all": True}
    if kind == 1:
        return {"not": draw(simple)}
    if kind == 2:
        return {draw(st.sampled_from(["and", "or"])): [draw(simple), draw(simple)]}
    return this if kind < 7 else draw(simple)


@st.composite
def gauge_predicates(draw: st.DrawFn, key: str) -> dict[str, Any]:
    """Which gauges: mostly this one, and else those whose value compares so with one that it may have."""
    if draw(st.integers(0, 9)) < 6:
        return {"property": "name", "op": "eq", "value": key}
    name = draw(st.sampled_from(["big", "huge", "day", "moment", "single"]))
    # Whether the two zeros are equal nobody has laid down.
    value = draw(st.sampled_from([each for each in GAUGED[name][0][1:] if each != 0.0 or name != "single"]))
    return {"property": name, "op": draw(st.sampled_from(["eq", "lt", "ge"])), "value": value}
