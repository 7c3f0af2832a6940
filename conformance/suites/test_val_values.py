r"""VAL and LOD-14: every type at the edges of its range, on every surface that takes a value.

What a property can hold is stored as it was given, by a load, an insert, an update and a merge. What it cannot hold is
refused by each of them, for nullable properties too. Nothing is wrapped round, cut off, turned into null or repaired.

The values are JSON texts, because that is what a load reads: `NaN`, `1e400` and `"\ud800"` can be spelled there. Where
the rules leave a choice (a whole number written as `1.0`, a null inside a vector) nothing is asked.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

import pytest

from conformance.judge import JudgedGraph, proving
from conformance.runner.plugin import Judged
from conformance.suites.graphs import (
    EVERYTHING,
    as_statement,
    edge,
    insert,
    insert_edge,
    lines,
    node,
    update,
    where,
)
from conformance.suites.refusals import refused

LONG_TEXT: Final = json.dumps("long " * 20_000)

ACCEPTED: Final[dict[str, tuple[str, ...]]] = {
    "text": (
        '""',
        '" "',
        r'"it\'s \"quoted\" \\ back"'.replace(r"\'", "'"),
        r'"tab\tline\nreturn\r"',
        r'"nul \u0000 unit \u001f delete \u007f line \u2028"',
        r'"\ud83d\ude00 pair, e\u0301 is not \u00e9"',
        '"ünïcödé 日本 \U0001f600 ﬀ"',
        '"null"',
        '"%_*[a-z]"',
        LONG_TEXT,
    ),
    "flag": ("true", "false"),
    "small": ("-2147483648", "-1", "0", "2147483647"),
    "large": ("-9223372036854775808", "9007199254740992", "9007199254740993", "9223372036854775807"),
    "natural": ("0", "2147483648", "4294967295"),
    "huge": ("0", "9223372036854775808", "18446744073709551614", "18446744073709551615"),
    "single": ("-3.4028235e38", "-0.0", "0.1", "1", "1.17549435e-38", "1e-45", "3.4028235e38"),
    # The last three are one step away from what a reader takes them for that computes with doubles.
    "double": (
        "-1.7976931348623157e308",
        "-0.0",
        "5e-324",
        "0.1",
        "1e16",
        "3",
        "1.7976931348623157e308",
        "1.7976931348623155e308",
        "2.7715077941825975e-163",
        "2.2790121708605243e+274",
    ),
    "day": ('"0001-01-01"', '"1582-10-15"', '"1969-12-31"', "-1", "0", '"2024-02-29"', "18262", '"9999-12-31"'),
    "moment": (
        '"0001-01-01T00:00:00Z"',
        '"1969-12-31T23:59:59.999Z"',
        "-1",
        "0",
        "1767323045678",
        '"2026-01-02T03:04:05+05:30"',
        '"2026-01-01T00:30:00-23:30"',
        '"2026-01-02T03:04:05.678999Z"',
        '"9999-12-31T23:59:59.999Z"',
    ),
    "mood": ('"calm"', '"busy"'),
    "tags": ("[]", '[""]', '["a","a"]', '["a, b"]', '["a","b"]', '[null,"x"]', r'["it\u0027s \"q\" \\"]'),
    "numbers": ("[]", "[-2147483648,0,2147483647]", "[null]", "[1,1]"),
    "face": ("[0,0,0]", "[-0.0,0.1,1]", "[3.4028235e38,-3.4028235e38,1e-45]"),
    "photo": ('"base64:"', '"base64:AA=="', '"base64:AAECAwQ="', '"base64:+/+/"'),
}

REFUSED: Final[dict[str, tuple[str, ...]]] = {
    "text": ("0", "1.5", "true", "[]", '["a"]', "{}", r'"\ud800"', r'"x\udc00y"'),
    "flag": ("0", "1", '"true"', '""', "[true]"),
    "small": ("-2147483649", "2147483648", "4294967296", "1.5", "0.5", "-0.5", '"1"', '""', "true", "[1]", "{}"),
    "large": ("-9223372036854775809", "9223372036854775808", "18446744073709551616", "1.5", '"1"', "true"),
    "natural": ("-1", "4294967296", "0.5", '"1"', "false"),
    "huge": ("-1", "18446744073709551616", "1000000000000000000000000000000", "0.5", '"1"', "true"),
    "single": ("1e39", "-1e39", "3.5e38", '"1.0"', '"NaN"', "true", "[1.0]"),
    "double": ('"1.0"', '"Infinity"', "true", "[]", "{}"),
    "day": ('"2023-02-29"', '"2023-13-01"', '"2023-00-10"', '"yesterday"', '""', "1.5", "true", "[]"),
    "moment": (
        '"2023-02-29T00:00:00Z"',
        '"2023-01-01T25:00:00Z"',
        '"2023-01-01T00:61:00Z"',
        '"noon"',
        '""',
        "1.5",
        "true",
    ),
    "mood": ('"happy"', '"CALM"', '""', '" calm"', "0", "true"),
    "tags": ('"a"', '["a",1]', '["a",true]', '[["a"]]', "{}", r'["\ud800"]'),
    "numbers": ("1", "[2147483648]", "[-2147483649]", "[1,1.5]", '[1,"2"]', "[true]", "[[1]]"),
    "face": ("[]", "[1,2]", "[1,2,3,4]", '[1,2,"x"]', "[1,2,1e39]", "[1,2,true]", "[1,2,[3]]", "1", '"1,2,3"'),
    "photo": ('"base64:!"', '"base64:AAA"', '"base64:A"', "1", "true", "[1]"),
}
# What only text can spell: no value of a mutation is such a number.
MODES: Final = ("append", "merge", "overwrite")
NOT_JSON: Final = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400")

MOODS: Final = """
node Mood { name: String @key
  feel: enum(calm, busy)? }
edge Turns: Mood -> Mood { how: enum(fast, slow)? }
"""
MANY_MOODS: Final = """
node Mood { name: String @key
  feels: [enum(calm, busy)]? }
edge Turns: Mood -> Mood { hows: [enum(fast, slow)]? }
"""

RULES: Final = """
node Part { name: String @key
  count: I32?
  least: I64?
  most: U32?
  share: F64?
  third: F32?
  code: String?
  word: String?
  @range(count, -5..10)
  @range(least, 0..)
  @range(most, ..7)
  @range(share, 0.25..0.75)
  @range(third, -1.5..1.5)
  @check(code, "^[A-Z]{2}-[0-9]+$")
  @check(word, "b+") }
"""

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "texts": ("text", "mood"),
    "integers": ("small", "large", "natural", "huge"),
    "lists": ("tags", "numbers"),
    "fractions": ("single", "double", "face"),
    "times": ("day", "moment"),
    "flags and blobs": ("flag", "photo"),
}

COMPLETE: Final[dict[str, Any]] = {name: json.loads(texts[-1]) for name, texts in ACCEPTED.items()}


def thing(name: str, **data: Any) -> dict[str, Any]:
    return insert("Thing", name=name, **data)


def line(name: str, **texts: str) -> str:
    """A record with values just as they are spelled."""
    return f'{{"type":"Thing","data":{{"name":"{name}"' + "".join(f',"{p}":{t}' for p, t in texts.items()) + "}}\n"


def spelled_rows(props: tuple[str, ...]) -> list[dict[str, str]]:
    """As many rows as it takes to give each property each of its values."""
    count = max(len(ACCEPTED[prop]) for prop in props)
    return [{prop: ACCEPTED[prop][index % len(ACCEPTED[prop])] for prop in props} for index in range(count)]


def values_of(texts: dict[str, str]) -> dict[str, Any]:
    return {prop: json.loads(text) for prop, text in texts.items()}


def refuse_everywhere(graph: JudgedGraph, prop: str, text: str) -> None:
    """A value that must be refused by each mode of load, by insert and by update."""
    what = f"the value {text[:60]} for '{prop}'"
    record = line("new", **{prop: text})
    for mode in MODES:
        refused("bad_request", partial(graph.handle.load, record, mode), f"{what} ({mode})")
    value = {prop: json.loads(text)}
    refused("bad_request", partial(graph.handle.mutate, thing("new", **value)), f"{what} (insert)")
    change = update("Thing", where("name", "there"), **value)
    refused("bad_request", partial(graph.handle.mutate, change), f"{what} (update)")


@pytest.mark.requirement("LOD-14")
@pytest.mark.parametrize("group", list(GROUPS))
def test_a_value_within_its_type_is_stored_as_it_is(judged: Judged, group: str) -> None:
    rows = spelled_rows(GROUPS[group])
    values = [values_of(texts) for texts in rows]

    with proving("LOD-14"):
        graph = judged(EVERYTHING, "".join(line(f"loaded {n}", **texts) for n, texts in enumerate(rows)))
        graph.mutate(*(thing(f"inserted {n}", **each) for n, each in enumerate(values)))
        shifted = values[1:] + values[:1]
        graph.mutate(*(update("Thing", where("name", f"loaded {n}"), **each) for n, each in enumerate(shifted)))
        graph.mutate(update("Thing", where("name", "inserted 0"), **dict.fromkeys(GROUPS[group])))


@pytest.mark.requirement("LOD-14", "MRG-13")
def test_values_at_the_edges_of_their_types_survive_a_merge(judged: Judged) -> None:
    """A three-way merge rewrites rows: what it writes is what was there."""
    graph = judged(EVERYTHING, [node("Thing", name="there"), node("Thing", name="both")])
    graph.branch_create("feat")
    rows = [values_of(texts) for texts in spelled_rows(tuple(ACCEPTED))]

    graph.load([node("Thing", name=f"new {n}", **data) for n, data in enumerate(rows)], branch="feat")
    graph.mutate(update("Thing", where("name", "there"), **rows[0]), branch="feat")
    graph.mutate(update("Thing", where("name", "both"), text="main moved too"))

    with proving("LOD-14", "MRG-13"):
        assert graph.merge("feat")["outcome"] == "merged"


@pytest.mark.requirement("LOD-14")
@pytest.mark.parametrize("group", list(GROUPS))
def test_a_value_outside_its_type_is_refused_although_null_would_be_allowed(judged: Judged, group: str) -> None:
    graph = judged(EVERYTHING, [node("Thing", name="there", **COMPLETE)])

    with proving("LOD-14"):
        for prop in GROUPS[group]:
            for text in REFUSED[prop]:
                refuse_everywhere(graph, prop, text)
        graph.compare("only refused writes", "LOD-14")


@pytest.mark.requirement("LOD-14")
def test_a_value_outside_its_type_is_refused_where_a_value_is_required(judged: Judged) -> None:
    """Zero, false and the empty string are values; what does not fit is never replaced by one of them."""
    graph = judged(EVERYTHING.replace("?", ""), [node("Thing", name="there", **COMPLETE)])

    with proving("LOD-14"):
        for prop, text in ((prop, text) for prop, texts in REFUSED.items() for text in texts):
            given = {**COMPLETE, prop: json.loads(text)}
            record = json.dumps(node("Thing", name="new", **given))
            refused("bad_request", partial(graph.handle.load, record), f"the value {text} for '{prop}'")
        graph.compare("only refused writes", "LOD-14")


@pytest.mark.requirement("LOD-14", "LOD-02")
def test_what_is_not_a_number_of_json_is_refused(judged: Judged) -> None:
    graph = judged(EVERYTHING, [node("Thing", name="there", double=1.5)])

    with proving("LOD-14", "LOD-02"):
        for text in NOT_JSON:
            for prop, spelled in (("single", text), ("double", text), ("face", f"[1,2,{text}]")):
                load = partial(graph.handle.load, line("new", **{prop: spelled}))
                refused("bad_request", load, f"{spelled} for '{prop}'")
        graph.compare("only refused loads", "LOD-14")


@pytest.mark.requirement("LOD-14", "VAL-02")
@pytest.mark.parametrize("place", ["first", "last"])
def test_one_bad_value_among_many_good_records_stops_the_whole_load(judged: Judged, place: str) -> None:
    graph = judged(EVERYTHING, [node("Thing", name="there", small=1)])
    good = "".join(line(f"good {n}", small=str(n)) for n in range(50))
    bad = line("bad", small="2147483648")

    with proving("LOD-14", "VAL-02"):
        for mode in MODES:
            data = bad + good if place == "first" else good + bad
            refused("bad_request", partial(graph.load, data, mode), f"a load whose {place} record is bad")


@pytest.mark.requirement("VAL-01")
def test_a_required_property_must_have_a_value_on_every_surface(judged: Judged) -> None:
    graph = judged(EVERYTHING.replace("?", ""), [node("Thing", name="there", **COMPLETE)])

    with proving("VAL-01"):
        for prop in ACCEPTED:
            missing = {name: value for name, value in COMPLETE.items() if name != prop}
            for given in (missing, {**COMPLETE, prop: None}):
                record = json.dumps(node("Thing", name="new", **given))
                for mode in MODES:
                    refused("bad_request", partial(graph.handle.load, record, mode), f"no '{prop}' ({mode})")
                refused("bad_request", partial(graph.handle.mutate, thing("new", **given)), f"no '{prop}' (insert)")
            nothing = update("Thing", where("name", "there"), **{prop: None})
            refused("bad_request", partial(graph.handle.mutate, nothing), f"no '{prop}' (update)")
        graph.compare("only refused writes", "VAL-01")


# -- single values ---------------------------------------------------------------------------------------------------


BAD_MOODS: Final[dict[str, tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]]] = {
    "values": (({"feel": "glad"}, {"feel": "Calm"}, {"feel": "calm "}), ({"how": "late"}, {"how": "FAST"})),
    "lists": (({"feels": ["calm", "glad"]}, {"feels": [""]}), ({"hows": ["late"]}, {"hows": ["fast", "late"]})),
}


@pytest.mark.requirement("VAL-03")
@pytest.mark.parametrize("what", BAD_MOODS)
def test_a_value_outside_its_enum_is_refused_in_lists_and_on_edges_too(judged: Judged, what: str) -> None:
    of_nodes, of_edges = BAD_MOODS[what]
    good = ({"feel": "calm"}, {"how": "slow"}), ({"feels": ["busy", None, "calm"]}, {"hows": ["fast", "slow"]})
    of_node, of_edge = good[what == "lists"]
    graph = judged(
        MANY_MOODS if what == "lists" else MOODS, [node("Mood", name="a", **of_node), node("Mood", name="b")]
    )
    graph.load([edge("Turns", "a", "b", **of_edge)])
    if what == "values":
        graph.mutate(insert_edge("Turns", "a", "b", **of_edge), update("Mood", where("name", "b"), feel="busy"))

    with proving("VAL-03"):
        for bad in of_nodes:
            for mode in ("append", "merge"):
                refused("bad_request", partial(graph.load, [node("Mood", name="c", **bad)], mode), f"{bad} ({mode})")
            refused("bad_request", partial(graph.mutate, insert("Mood", name="c", **bad)), f"{bad} (insert)")
            refused("bad_request", partial(graph.mutate, update("Mood", where("name", "a"), **bad)), f"update to {bad}")
        for bad in of_edges:
            for mode in MODES:
                refused("bad_request", partial(graph.load, [edge("Turns", "a", "b", **bad)], mode), f"{bad} ({mode})")
            refused("bad_request", partial(graph.mutate, insert_edge("Turns", "a", "b", **bad)), f"{bad} (insert)")


@pytest.mark.requirement("VAL-04")
@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("count", (-5, 0, 10, None), (-6, 11, 2147483647)),
        ("least", (0, 9223372036854775807), (-1, -9223372036854775808)),
        ("most", (0, 7), (8, 4294967295)),
        ("share", (0.25, 0.5, 0.75), (0.24999999999999997, 0.7500000000000001, -0.5, 1e300)),
        ("third", (-1.5, 1.5), (-1.6, 1.5000001, 3e38)),
        ("code", ("AB-1", "ZZ-0123456789"), ("", "ab-1", "AB-", "xAB-1", "AB-1x", "AB-1 ")),
        ("word", ("b", "abc", "a bb"), ("", "B", "acd")),
    ],
    ids=["count", "least", "most", "share", "third", "code", "word"],
)
def test_a_value_outside_its_range_or_pattern_is_refused(
    judged: Judged, name: str, inside: tuple[Any, ...], outside: tuple[Any, ...]
) -> None:
    """Both bounds belong to a range; a missing bound is open; a pattern may match anywhere; a null breaks nothing."""
    with proving("VAL-04"):
        graph = judged(RULES, [node("Part", name=f"in {n}", **{name: value}) for n, value in enumerate(inside)])
        graph.mutate(
            *(insert("Part", name=f"in {n}", **{name: value}) for n, value in enumerate(inside, 10)),
            insert("Part", name="null"),
        )
        for value in outside:
            bad = node("Part", name="out", **{name: value})
            for mode in MODES:
                refused("bad_request", partial(graph.handle.load, lines(bad), mode), f"{name} {value!r} ({mode})")
            refused("bad_request", partial(graph.handle.mutate, as_statement(bad)), f"{name} {value!r} (insert)")
            change = update("Part", where("name", "null"), **{name: value})
            refused("bad_request", partial(graph.handle.mutate, change), f"{name} {value!r} (update)")
        graph.compare("only refused writes", "VAL-04")
