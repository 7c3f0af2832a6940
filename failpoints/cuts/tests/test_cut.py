"""Cuts as values: where they are, in words, in JSON, and among the requests of another engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from failpoints.cuts.cut import (
    LIVING,
    Cut,
    CutError,
    again_cuts_of,
    cuts_of,
    kills_of,
    listing_cuts_of,
    some_again_cuts_of,
    some_cuts_of,
)
from failpoints.cuts.sweep import SweepOptions, kinds_of, shape_of, tasks_of
from failpoints.cuts.traces import same_place
from failpoints.gate import Exchange
from failpoints.writers import WRITERS


def request(number: int, role: str, table: str = "nodes/a", verb: str = "PUT") -> Exchange:
    return Exchange(
        number=number,
        owner="a",
        method="PUT",
        verb=verb,
        bucket="b",
        key=f"g/{table}/x",
        prefix="",
        role=role,
        table=table,
        branch="",
        version=None,
        conditions=(),
        keys=(),
        bytes_in=1,
        bytes_out=0,
        status=200,
        answered=200,
        outcome="answered",
        started=0.0,
        ended=0.1,
        listed=0,
    )


WRITE = tuple(
    request(number, role, table)
    for number, (role, table) in enumerate(
        [
            ("sidecar", ""),
            ("table version", "nodes/a"),
            ("table version", "nodes/b"),
            ("manifest version", "__manifest"),
        ],
        1,
    )
)


def test_every_request_is_cut_in_four_ways_and_the_end_in_two() -> None:
    cuts = cuts_of(WRITE)

    assert len(cuts) == 4 * len(WRITE) + 2
    assert [cut.moment for cut in cuts[-2:]] == ["pre_ack", "ack"]
    assert len(kills_of(WRITE)) == 2 * len(WRITE)


@pytest.mark.parametrize("moment", LIVING)
def test_a_recovery_also_loses_answers_and_is_refused_requests_that_decide_something(moment: str) -> None:
    recovery = (request(1, "table data"), request(2, "manifest transaction"), *WRITE)

    assert [cut.nth for cut in again_cuts_of(recovery) if cut.moment == moment] == [3, 4, 5, 6]


def test_before_a_request_and_after_the_one_that_was_waited_for_a_recovery_is_killed_once() -> None:
    first, second, third = (request(number, "table version") for number in (1, 2, 3))
    in_turn = (
        replace(first, started=0.0, ended=1.0),
        replace(second, started=1.0, ended=3.0),
        replace(third, started=2.0, ended=4.0),
    )

    kills = [(cut.nth, cut.moment) for cut in again_cuts_of(in_turn) if cut.moment not in LIVING]

    assert kills == [(1, "before"), (1, "applied"), (2, "applied"), (3, "before"), (3, "applied")]


def test_recoveries_of_other_tables_of_the_same_kinds_have_one_shape() -> None:
    def shape(*tables: str, do: str = "mutate") -> object:
        return shape_of({"do": do}, [request(number, "table version", table) for number, table in enumerate(tables)])

    assert shape("nodes/a", "nodes/b") == shape("nodes/c", "nodes/a")
    others = [shape("nodes/a", "nodes/a"), shape("nodes/a", "edges/b"), shape("nodes/a")]
    assert shape("nodes/a", "nodes/b") not in [*others, shape("nodes/a", "nodes/b", do="optimize")]


def test_of_files_in_a_row_a_sweep_of_several_writers_cuts_the_first_and_the_last() -> None:
    roles = ["table index", "table index", "table index", "table index", "table version", "schema file", "schema file"]
    durable = [request(number, role) for number, role in enumerate([*roles, "schema file"], 1)]
    gone = [request(number, "table version", verb="DELETE") for number in (1, 2, 3)]
    recovery = [request(1, "table version"), request(2, "manifest version")]

    assert {cut.nth for cut in some_cuts_of(durable)} == {0, 1, 4, 5, 6, 7, 8}, "a schema file is no file of a version"
    assert some_cuts_of(gone) == cuts_of(gone), "versions are looked for, also when they are gone"
    assert not [cut for cut in some_cuts_of(durable) if cut.moment == "lost" and "index" in cut.request]
    assert some_cuts_of(WRITE) == cuts_of(WRITE)
    assert kinds_of({"do": "load"}, recovery[::-1]) == kinds_of({"do": "load"}, [*recovery, recovery[0]])
    assert [(cut.nth, cut.moment) for cut in some_again_cuts_of(recovery) if cut.moment in LIVING] == [
        (2, "lost"),
        (2, "failed"),
    ]


def test_a_sweep_of_several_writers_shares_recoveries_within_a_family_and_every_writer_is_in_one() -> None:
    writers = list(WRITERS.values())
    some = tasks_of(writers, SweepOptions(every=False), jobs=2)
    every = tasks_of(writers, SweepOptions(), jobs=2)

    assert sorted(name for task in some for name in task.writers) == sorted(WRITERS)
    assert ("insert", "update", "delete") in [task.writers for task in some]
    assert sorted(task.writers for task in every) == sorted((name,) for name in WRITERS)
    assert [task.options.cells for task in tasks_of(writers[1:2], SweepOptions(), jobs=2)] == [(0, 2), (1, 2)]


def test_an_operation_without_durable_requests_is_only_killed_around_its_answer() -> None:
    assert [cut.moment for cut in cuts_of(())] == ["pre_ack", "ack"]


def test_a_cut_is_the_same_after_json() -> None:
    for cut in cuts_of(WRITE):
        assert Cut.from_json(cut.as_json()) == cut


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "cut: is no object"),
        ({"moment": "later"}, "cut.moment: 'later' is none of before"),
        ({"moment": "before", "nth": 0}, "cut.nth: 0 is not the number of a request"),
        ({"moment": "before", "nth": True}, "cut.nth: True"),
        ({"moment": "lost", "nth": "2"}, "cut.nth: '2'"),
        ({"moment": "ack", "request": 3}, "cut.request: 3 is no text"),
        ({"moment": "ack", "when": "now"}, "cut.when: there is no such field"),
        ({"moment": "lost", "nth": 1, "occurrence": -1}, "cut.occurrence: -1"),
    ],
)
def test_what_is_no_cut_is_refused_by_its_field(body: Any, words: str) -> None:
    with pytest.raises(CutError, match=words):
        Cut.from_json(body)


def test_a_cut_says_where_it_is() -> None:
    assert str(Cut.at("before", 2, WRITE)) == "before request 2 (PUT table version of nodes/a)"
    assert "was applied" in str(Cut.at("applied", 1, WRITE))
    assert "got lost" in str(Cut.at("lost", 1, WRITE))
    assert "was refused" in str(Cut.at("failed", 1, WRITE))


def test_a_cut_is_found_by_what_its_request_does_however_many_others_there_are() -> None:
    cut = Cut.at("before", 3, WRITE)
    rule = cut.rule("a", "hold")

    assert (rule.verbs, rule.roles, rule.tables, rule.nth) == (("PUT",), ("table version",), ("nodes/b",), 1)
    assert Cut("before", 3).rule("a", "hold").nth == 3


def test_another_engine_is_cut_at_the_request_that_does_the_same() -> None:
    slower = (request(1, "table data"), request(2, "table data", "nodes/b"), *WRITE)

    place = same_place(Cut.at("applied", 4, WRITE), slower)

    assert place is not None
    assert (place.nth, place.moment, place.request) == (6, "applied", "PUT manifest version of __manifest")


def test_an_engine_that_makes_no_such_request_is_cut_nowhere() -> None:
    """A cut at another request would be another trial, and that it holds would prove nothing."""
    other = (request(1, "table data"), request(2, "table data"))

    assert same_place(Cut.at("before", 2, WRITE), other) is None
    assert same_place(Cut.at("before", 2, WRITE), ()) is None
    second = replace(Cut.at("before", 2, WRITE), occurrence=2)
    assert same_place(second, WRITE) is None, "the first of them is another request"


def test_a_cut_that_does_not_name_its_request_is_the_one_at_its_number() -> None:
    place = same_place(Cut("before", 2), WRITE)

    assert place is not None and place.request == "PUT table version of nodes/a"
    assert same_place(Cut("before", 9), WRITE) is None


def test_the_listing_that_is_refused_is_that_of_the_sidecars() -> None:
    listings = [
        replace(request(1, "listing", "", "LIST"), prefix="g/"),
        replace(request(2, "listing", "__manifest", "LIST"), prefix="g/__manifest/_versions/"),
        replace(request(3, "listing", "", "LIST"), prefix="g/__recovery/"),
        replace(request(4, "listing", "", "LIST"), prefix="g/__recovery/"),
    ]

    (cut,) = listing_cuts_of(listings)
    rule = cut.rule("a", "answer")

    assert (rule.verbs, rule.roles, rule.tables, rule.nth, rule.status) == (("LIST",), ("listing",), ("",), 2, 403)
    assert not rule.durable
    assert listing_cuts_of(listings[:2]) == []
