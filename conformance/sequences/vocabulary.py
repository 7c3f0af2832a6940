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
LOG: Final = "node Log {\n  text: String?\n}\n"
EDGES: Final = "edge Knows: Person -> Person {\n  since: I32?\n}\nedge Owns: Person -> Pet @card(0..2)\n"
BASE: Final = PERSON + PET + LOG + EDGES

# Each can be applied to any before it, and none brings back a type that an earlier one has dropped.
_NICK: Final = PERSON.replace("  note:", "  nick: String?\n  note:")
_REMARK: Final = _NICK.replace("  note: String?", '  remark: String? @rename_from("note")')
LATER_SCHEMAS: Final[tuple[str, ...]] = (
    _NICK + PET + LOG + EDGES,
    _NICK + PET + LOG + EDGES + "node City {\n  name: String @key\n}\nedge LivesIn: Person -> City\n",
    _REMARK + PET + LOG + EDGES + "node City {\n  name: String @key\n}\nedge LivesIn: Person -> City\n",
    _REMARK + PET + EDGES + "node City {\n  name: String @key\n}\nedge LivesIn: Person -> City\n",
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


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records of people, pets and logs, most of them good."""
    found: list[dict[str, Any]] = []
    hostile = draw(st.integers(0, 9)) == 9
    for name in draw(st.lists(keys, max_size=3, unique=not hostile)):
        found.append({"type": "Person", "data": {"name": name, **draw(person_data(hostile=hostile))}})
    for name in draw(st.lists(keys, max_size=2, unique=True)):
        tags = draw(st.one_of(st.none(), st.lists(st.sampled_from(TEXTS[:6]), max_size=2)))
        found.append({"type": "Pet", "data": {"name": name, "tags": tags}})
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
