"""VAL-14 and VAL-16: keys make ids of values of any type, and predicates see values exactly.

Neighbours that a 64-bit float cannot tell apart stay apart, as ids, in ranges and in predicates; and a predicate works
whatever the property is called, be it a word of some query language or not.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest

from conformance.judge import proving
from conformance.runner.plugin import Judged
from conformance.suites.graphs import as_statement, delete, delete_edge, edge, insert, insert_edge, node, update, where
from conformance.suites.refusals import refused

# -- keys ------------------------------------------------------------------------------------------------------------

SPOTS: Final = """
node Spot { number: I32
  city: String
  label: String?
  @key(number, city) }
edge Near: Spot -> Spot
"""


@pytest.mark.requirement("VAL-14")
def test_rows_that_differ_in_any_column_of_their_key_are_different_rows(judged: Judged) -> None:
    """The id is the compact JSON array of the values, in the sorted order of the columns."""
    graph = judged(SPOTS, [node("Spot", city=city, number=n) for city in ("Bern", "Basel") for n in (1, 2)])

    with proving("VAL-14"):
        assert [row["id"] for row in graph.handle.read("node:Spot")] == [
            '["Basel",1]',
            '["Basel",2]',
            '["Bern",1]',
            '["Bern",2]',
        ]
        graph.mutate(insert("Spot", city="Bern", number=1, label="again"), insert("Spot", city="Bern", number=11))
        graph.load([node("Spot", city=city, number=-1) for city in ("", '1,"2', "a\\b", "日本", "tab\t", "Bern,1")])
        graph.mutate(insert_edge("Near", '["Bern",1]', '["Bern",2]', id="n1"))
        graph.mutate(insert_edge("Near", '["1,\\"2",-1]', '["日本",-1]', id="n2"))
        refused("bad_request", partial(graph.mutate, insert_edge("Near", "Bern", "Basel")), "an edge at half a key")
        again = [node("Spot", city="Bern", number=1)]
        refused("bad_request", partial(graph.load, again, "append"), "an append of a key that is there")
        graph.mutate(delete("Spot", where("number", 1)))


@pytest.mark.requirement("VAL-14")
@pytest.mark.parametrize(
    ("type_name", "values", "ids"),
    [
        ("I32", (-2147483648, 0, 7), ["-2147483648", "0", "7"]),
        ("I64", (9007199254740993, 9007199254740992), ["9007199254740992", "9007199254740993"]),
        ("U64", (18446744073709551615, 9), ["18446744073709551615", "9"]),
        ("Bool", (True, False), ["false", "true"]),
        ("String", ("a", "A", "ä", "a\u0308", "\uff5e", "\U0001f600", "it's", "null"), None),
    ],
    ids=["I32", "I64", "U64", "Bool", "String"],
)
def test_the_id_of_a_key_of_one_column_is_its_value_as_text(
    judged: Judged, type_name: str, values: tuple[Any, ...], ids: list[str] | None
) -> None:
    schema = f"node Item {{ k: {type_name} @key\n n: I32? }}\nedge Next: Item -> Item"
    graph = judged(schema, [node("Item", k=value, n=n) for n, value in enumerate(values)], mode="append")

    with proving("VAL-14"):
        found = [row["id"] for row in graph.handle.read("node:Item")]
        assert found == (sorted(map(str, values)) if ids is None else ids)
        graph.mutate(*(insert("Item", k=value, n=100 + n) for n, value in enumerate(values)))
        graph.mutate(*(insert_edge("Next", found[0], each) for each in found))
        graph.mutate(update("Item", where("k", values[0]), n=-1))
        graph.mutate(delete("Item", where("k", values[0])))


# -- predicates ------------------------------------------------------------------------------------------------------

# In ascending order, each next to the one before it.
ORDERED: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "text": ("String", ('A "b"', "a'b", "a'c", "a\\c", "ä")),
    "small": ("I32", (-2147483648, -1, 0, 2147483646, 2147483647)),
    "large": ("I64", (-9223372036854775808, 9007199254740992, 9007199254740993, 9007199254740994)),
    "natural": ("U32", (0, 2147483648, 4294967294, 4294967295)),
    "huge": ("U64", (0, 9223372036854775808, 18446744073709551614, 18446744073709551615)),
    "single": ("F32", (-1.5, 0.5, 2.0)),
    "double": ("F64", (-1e300, 0.1, 0.10000000000000002, 1e300)),
    "day": ("Date", ("1582-10-15", "1969-12-31", "1970-01-01", "9999-12-30", "9999-12-31")),
    "moment": ("DateTime", ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z", "2026-01-02T03:04:05.001+02:00")),
    "mood": ("enum(busy, calm)", ("busy", "calm")),
}
COMPARISONS: Final = (("eq", "ne"), ("lt", "ge"), ("le", "gt"))


@pytest.mark.requirement("VAL-16")
def test_predicates_are_exact_on_values_of_every_type(judged: Judged) -> None:
    """Each comparison leaves a mark of its own, so that the model sees which rows it meant."""
    marks = "".join(f"\n  is_{op}: String?" for op in (*sum(COMPARISONS, ()), "in", "not"))
    columns = "".join(f"\n  {name}: {type_name}?" for name, (type_name, _) in ORDERED.items())
    rows = [{name: values[n % len(values)] for name, (_, values) in ORDERED.items()} for n in range(5)]
    records = [node("Row", name=str(n), **data) for n, data in enumerate(rows)]
    graph = judged(f"node Row {{ name: String @key{columns}{marks} }}", [*records, node("Row", name="nulls")])

    with proving("VAL-16"):
        for name, (_, values) in ORDERED.items():
            middle = values[1]
            for ops in COMPARISONS:  # Opposites, so that no row is written twice in one mutation.
                graph.mutate(*(update("Row", where(name, middle, op), **{f"is_{op}": name}) for op in ops))
            graph.mutate(update("Row", where(name, [values[0], values[-1]], "in"), is_in=name))
            graph.mutate(update("Row", {"not": where(name, middle)}, is_not=name))
        graph.mutate(update("Row", {"and": [where("large", 9007199254740993), where("huge", 1, "gt")]}, is_in="both"))
        graph.mutate(delete("Row", where("large", 9007199254740993)))
        graph.mutate(delete("Row", {"property": "day", "op": "is_null"}))


@pytest.mark.requirement("VAL-16", "VAL-04")
def test_ranges_of_integers_are_exact(judged: Judged) -> None:
    """A detour through 64-bit floats cannot tell these neighbours from each other."""
    schema = """node Big { name: String @key
      large: I64?
      huge: U64?
      @range(large, 9007199254740993..9223372036854775806)
      @range(huge, 9007199254740993..) }"""
    with proving("VAL-16", "VAL-04"):
        inside = {"large": (9007199254740993, 9223372036854775806), "huge": (9007199254740993, 2**64 - 1)}
        graph = judged(
            schema, [node("Big", name=f"{prop} {v}", **{prop: v}) for prop, values in inside.items() for v in values]
        )
        for prop, value in (("large", 9007199254740992), ("large", 9223372036854775807), ("huge", 9007199254740992)):
            bad = node("Big", name="bad", **{prop: value})
            refused("bad_request", partial(graph.load, [bad]), f"{prop} {value} (load)")
            refused("bad_request", partial(graph.mutate, as_statement(bad)), f"{prop} {value} (insert)")


WORDS: Final = (
    *("null", "true", "false", "interval", "exists", "select", "from", "to", "where", "order", "case", "end", "in"),
    *(
        "is",
        "not",
        "and",
        "cast",
        "date",
        "current_date",
        "struct",
        "key",
        "type",
        "data",
        "edge",
        "src",
        "value",
        "all",
    ),
)


@pytest.mark.requirement("VAL-16")
def test_predicates_work_whatever_a_property_is_called(judged: Judged) -> None:
    columns = "".join(f"\n  {word}: I64?" for word in WORDS)
    graph = judged(
        f"node Word {{ name: String @key{columns} }}",
        [node("Word", name=f"row {n}", **dict.fromkeys(WORDS, n)) for n in range(3)] + [node("Word", name="nulls")],
    )

    with proving("VAL-16"):
        graph.mutate(*(update("Word", where(word, 1), **{word: 10 + n}) for n, word in enumerate(WORDS)))
        graph.mutate(*(update("Word", {"property": word, "op": "is_null"}, **{word: 5}) for word in WORDS))
        deleted = graph.mutate(*(delete("Word", where(word, [0, 5], "in")) for word in WORDS))
        assert deleted["affected_nodes"] == 2, "the row of zeros and the row that had nulls"


@pytest.mark.requirement("VAL-16")
def test_predicates_on_edges_work_whatever_a_property_is_called(judged: Judged) -> None:
    words = ("null", "true", "interval", "exists", "select", "order", "type", "name")
    columns = "".join(f"\n  {word}: I64?" for word in words)
    schema = f"node Dot {{ name: String @key }}\nedge Joins: Dot -> Dot {{{columns}\n}}"
    edges = [edge("Joins", "a", "a", id=word, **{word: 1}) for word in words]
    graph = judged(schema, [node("Dot", name="a"), *edges])

    with proving("VAL-16"):
        for word in words[::2]:
            assert graph.mutate(delete_edge("Joins", where(word, 1)))["affected_edges"] == 1
        assert graph.mutate(*(delete_edge("Joins", where(word, 1)) for word in words))["affected_edges"] == 4
