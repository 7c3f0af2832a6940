"""The model and the reference engine agree: random sequences of operations with hostile values, step by step.

Neither knows the other, so a mistake in one of them shows here. A failure prints the shortest list of steps; a run
without `TOUCHSTONE_MODEL_EXAMPLES` is the same every time, and with it as long as one likes:

    TOUCHSTONE_MODEL_EXAMPLES=500 pytest conformance/model/tests/test_against_reference.py --hypothesis-seed=1
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.model.tests.side_by_side import SideBySide, Step

EXAMPLES = os.environ.get("TOUCHSTONE_MODEL_EXAMPLES")

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  email: String? @unique
  score: F64? @unique
  mood: enum(calm, busy)?
  seen: DateTime?
  tags: [String]?
  face: Vector(2)?
  @range(age, -5..150)
  @check(name, "^[^!]*$")
}
node Place {
  title: String
  size: U64?
  weight: F32?
  built: Date?
  photo: Blob?
}
edge Knows: Person -> Person {
  since: Date?
}
edge Lives: Person -> Place @card(2..3) {
  role: String?
  @unique(src, role)
}
"""

# One pool for the names of people and the ids of places and edges, so that they meet across types.
IDS = ("a", "b", "Zoë", "o'brien", 'say "hi"', "x\ny\u2028", "long " * 500)

branches = st.sampled_from(["main", "main", "one", "one", "one", "two", "two", "one/sub"])
ids = st.sampled_from(IDS)
texts = st.sampled_from(["", "x", "null", "日本", "\x00\x1f\x7f", "a, b", "👩‍👩‍👧", "%_\\"]) | ids
floats = st.sampled_from([0.0, -0.0, 1e-5, 1e16, 5e-324, 1.7976931348623157e308, 0.1, 3, 2**53 + 1])
days = st.sampled_from([0, -719162, 2932896, "1970-01-01", "9999-12-31", "0001-01-01"])
moments = st.sampled_from([0, -1, 1, "2026-01-02T03:04:05.678999+02:00", "0001-01-01", "9999-12-31 23:59:59.999"])
broken = st.sampled_from([1.5, "old", True, [], {}, 2**64, 1e39])


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly a value, sometimes null, now and then one of a wrong type."""
    return st.integers(0, 24).flatmap(lambda dice: {0: broken, 1: st.none(), 2: st.none()}.get(dice, values))


PERSON = {
    "age": maybe(st.sampled_from([-5, 0, 1, 2, 30, 31, 150, 151])),
    "email": maybe(texts),
    "score": maybe(floats),
    "mood": maybe(st.sampled_from(["calm", "busy"])),
    "seen": maybe(moments),
    "tags": maybe(st.lists(texts | st.none(), max_size=2)),
    "face": maybe(st.lists(floats, min_size=2, max_size=2)),
}
PLACE = {
    "title": maybe(texts),
    "size": maybe(st.sampled_from([0, 2**64 - 1, 2**63])),
    "weight": maybe(floats),
    "built": maybe(days),
    "photo": maybe(st.sampled_from(["base64:", "base64:AAEC/w==", "base64:AA", "base64:eA=="])),
}


def some_of(fields: dict[str, st.SearchStrategy[Any]], required: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The required properties and up to three others: rows with everything are refused too often."""
    rest = {name: each for name, each in fields.items() if name not in required}
    chosen = st.sets(st.sampled_from(sorted(rest)), max_size=3)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({**required, **{name: rest[name] for name in names}}))


people = some_of(PERSON, {"name": ids})
places = some_of(PLACE, {"title": PLACE["title"]})
places_with_ids = some_of(PLACE, {"id": ids, "title": PLACE["title"]})
edge_data: st.SearchStrategy[Any] = st.fixed_dictionaries({"id": ids}) | st.just({})
lives_data: st.SearchStrategy[Any] = st.fixed_dictionaries({"id": ids, "role": maybe(texts)}) | st.just({})


def ends(name: str, data: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"edge": st.just(name), "from": ids, "to": ids, "data": data})


records = st.one_of(
    st.fixed_dictionaries({"type": st.just("Person"), "data": people}),
    st.fixed_dictionaries({"type": st.just("Person"), "data": people}),
    st.fixed_dictionaries({"type": st.just("Place"), "data": places_with_ids | places}),
    ends("Knows", edge_data),
    ends("lives", lives_data),
)
inserts = records.map(lambda record: {"op": "insert", **record})


def comparison(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    operators = st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"])
    single = st.fixed_dictionaries({"property": st.just(name), "op": operators, "value": values})
    several = st.fixed_dictionaries(
        {"property": st.just(name), "op": st.just("in"), "value": st.lists(values, min_size=1, max_size=2)}
    )
    nulls = st.fixed_dictionaries({"property": st.just(name), "op": st.sampled_from(["is_null", "is_not_null"])})
    return single | several | nulls


def predicates(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Most of them name rows by id."""
    known = st.fixed_dictionaries({"property": st.just("id"), "op": st.just("eq"), "value": ids})
    leaves = st.one_of(known, known, *(comparison(name, values) for name, values in fields.items()))
    nested = st.one_of(
        st.lists(leaves, min_size=1, max_size=2).map(lambda parts: {"and": parts}),
        st.lists(leaves, min_size=1, max_size=2).map(lambda parts: {"or": parts}),
        leaves.map(lambda part: {"not": part}),
    )
    return st.one_of(leaves, leaves, nested, st.just({"all": True}))


def setting(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    chosen = st.sets(st.sampled_from(sorted(fields)), min_size=1, max_size=2)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: fields[name] for name in names}))


def update(name: str, fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    where = predicates({key: each for key, each in fields.items() if key not in ("tags", "face", "photo")})
    return st.fixed_dictionaries(
        {"op": st.just("update"), "type": st.just(name), "where": where, "set": setting(fields)}
    )


def delete(word: str, name: str, fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"op": st.just("delete"), word: st.just(name), "where": predicates(fields)})


updates = update("Person", PERSON) | update("Place", PLACE)
deletes = st.one_of(
    delete("type", "Person", {"age": PERSON["age"], "email": PERSON["email"], "score": floats}),
    delete("type", "Place", {"size": PLACE["size"], "built": days}),
    delete("edge", "Knows", {"from": ids, "to": ids}),
    delete("edge", "LIVES", {"role": texts, "dst": ids}),
)
homes = st.tuples(ids, st.permutations(IDS), maybe(texts)).map(
    lambda drawn: [
        {"edge": "Lives", "from": drawn[0], "to": drawn[1][0], "data": {"id": drawn[1][1], "role": drawn[2]}},
        {"edge": "Lives", "from": drawn[0], "to": drawn[1][2], "data": {"id": drawn[1][3]}},
    ]
)
writes = st.lists(inserts, min_size=1, max_size=4) | st.lists(inserts | updates, min_size=1, max_size=3)
statements = st.one_of(writes, writes, st.lists(deletes, min_size=1, max_size=2), st.tuples(inserts, deletes).map(list))
# Rows that are nearly always accepted, and differ in little: what makes merges interesting.
edits = st.one_of(
    st.lists(st.tuples(st.sampled_from(IDS[:3]), st.sampled_from([None, 1, 2])), min_size=1, max_size=2).map(
        lambda rows: [{"type": "Person", "data": {"name": name, "age": age}} for name, age in dict(rows).items()]
    ),
    st.tuples(st.sampled_from(IDS[:2]), st.sampled_from([None, 0.0, -0.0])).map(
        lambda drawn: [{"type": "Place", "data": {"id": drawn[0], "title": "", "weight": drawn[1]}}]
    ),
    st.tuples(st.sampled_from(IDS[:2]), st.sampled_from([None, [], [None], [""], ["a", "b"], ["a, b"]])).map(
        lambda drawn: [{"type": "Person", "data": {"name": drawn[0], "tags": drawn[1]}}]
    ),
    st.tuples(st.sampled_from(IDS[:3]), ids, ids).map(
        lambda drawn: [{"edge": "Knows", "from": drawn[1], "to": drawn[2], "data": {"id": drawn[0]}}]
    ),
    homes,
)


def only(name: str, table: str, word: str = "type") -> Step:
    return {"op": "delete", word: table, "where": {"property": "id", "op": "eq", "value": name}}


removals = st.one_of(
    st.sampled_from(IDS[:3]).map(lambda name: [only(name, "Person")]),
    st.sampled_from(IDS[:3]).map(lambda name: [only(name, "Place")]),
    st.sampled_from(IDS[:3]).map(lambda name: [only(name, "Knows", "edge")]),
)
settled: list[Step] = [
    {"do": "load", "mode": "merge", "branch": "main", "records": [
        *({"type": "Person", "data": {"name": name, "age": age}} for age, name in enumerate(IDS)),
        *({"type": "Place", "data": {"id": name, "title": "home", "photo": "base64:"}} for name in IDS),
        {"edge": "Knows", "from": "a", "to": "a", "data": {"id": "a"}},
        {"edge": "Lives", "from": "a", "to": "a", "data": {"id": "a"}},
        {"edge": "Lives", "from": "a", "to": "b", "data": {"id": "b", "role": ""}},
    ]},
    {"do": "branch_create", "name": "one", "source": "main"},
    {"do": "branch_create", "name": "two", "source": "main"},
]  # fmt: skip


def step(do: str, **args: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.fixed_dictionaries({"do": st.just(do), **args})


edit_steps = st.one_of(
    step("load", mode=st.just("merge"), branch=branches, records=edits),
    step("load", mode=st.just("merge"), branch=branches, records=edits),
    step("mutate", branch=branches, statements=removals),
)
merge_steps = st.permutations(["main", "one", "two"]).flatmap(
    lambda names: step("merge", source=st.just(names[0]), target=st.just(names[1]))
)
modes = st.sampled_from(["append", "merge", "overwrite"])
loads = step("load", mode=modes, branch=branches, records=st.lists(records, max_size=4))
other_steps = st.one_of(
    step("mutate", branch=branches, statements=statements),
    step("mutate", branch=branches, statements=statements),
    loads,
    st.tuples(loads, branches).map(lambda drawn: {**drawn[0], "base": drawn[1]}),
    step("merge", source=branches, target=branches),
    step("branch_create", name=branches, source=branches),
    step("branch_delete", name=branches),
    st.sampled_from([{"do": "optimize"}, {"do": "ensure_indices"}, {"do": "reopen"}]),
)
# `one_of` would flatten its parts and draw the many rare steps more often than the few that matter.
steps: st.SearchStrategy[Step] = st.integers(0, 8).flatmap(
    lambda dice: edit_steps if dice < 3 else merge_steps if dice < 6 else other_steps
)


@pytest.mark.requirement(
    "MUT-04", "MUT-05", "MUT-07", "MUT-10", "DEL-02", "LOD-06", "LOD-07", "LOD-08", "LOD-09", "LOD-10", "LOD-14",
    "VAL-02", "VAL-06", "VAL-09", "VAL-10", "VAL-16", "BRA-08", "BRA-12", "BRA-17", "MRG-01", "MRG-02", "MRG-03",
    "MRG-10", "MRG-12", "MRG-13", "LIN-09", "LIN-13", "SNP-04", "SNP-06", "EXP-01", "EXP-02", "CHG-01", "CHG-03",
    "IDX-01", "OPT-01",
)  # fmt: skip
@settings(
    max_examples=int(EXAMPLES or 10),
    derandomize=EXAMPLES is None,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(sequence=st.lists(steps, min_size=8, max_size=15))
def test_any_sequence_of_operations_means_the_same(sequence: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        both = SideBySide(f"{directory}/graph", SCHEMA)
        for each in [*settled, *sequence]:
            both.step(each)
        both.compare_histories()
