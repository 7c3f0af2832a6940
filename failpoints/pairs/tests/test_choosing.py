"""Which requests are held, how results are counted, and pairs as values that a trace can hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from failpoints.gate import Exchange
from failpoints.pairs.pairs import PAIRS, Pair, UnknownPair, pairs_called
from failpoints.pairs.schedule import Hold, ScheduleResult, holds_of
from failpoints.pairs.sweep import chosen, counts_of, decisive, distinct, seldom_reached


def request(verb: str, role: str, table: str = "") -> Exchange:
    return Exchange(
        1, "driver", verb, verb, "b", "k", "", role, table, "", None, (), (), 0, 0, 200, 200, "answered", 0.0, 1.0, 0
    )


REQUESTS = [
    request("LIST", "listing"),
    request("GET", "table data", "nodes/1"),
    request("PUT", "sidecar"),
    request("GET", "table data", "nodes/1"),
    request("PUT", "table version", "nodes/1"),
    request("PUT", "table version", "nodes/2"),
    request("DELETE", "sidecar"),
]


def test_every_request_is_held_before_and_every_write_after_too() -> None:
    holds = holds_of(REQUESTS)
    assert [hold.ordinal for hold in holds if hold.when == "before"] == [1, 2, 3, 4, 5, 6, 7]
    assert [hold.ordinal for hold in holds if hold.when == "after"] == [3, 5, 6, 7]


def test_a_hold_knows_its_number_among_its_kind() -> None:
    holds = [hold for hold in holds_of(REQUESTS) if hold.when == "before"]
    assert [hold.nth for hold in holds] == [1, 1, 1, 2, 1, 1, 1]
    rule = holds[3].rule("driver-1")
    assert (rule.verbs, rule.roles, rule.tables) == (("GET",), ("table data",), ("nodes/1",))
    assert (rule.nth, rule.owner, rule.when) == (2, "driver-1", "before")


def test_a_hold_without_a_table_is_counted_among_all_tables_as_its_rule_counts() -> None:
    lists = [request("LIST", "listing", "nodes/1"), request("LIST", "listing"), request("LIST", "listing", "nodes/1")]
    holds = holds_of(lists)
    assert [(hold.table, hold.nth) for hold in holds] == [("nodes/1", 1), ("", 2), ("nodes/1", 2)]
    assert holds[1].rule("driver-1").tables == ()


def places(holds: list[Hold]) -> list[tuple[int, str]]:
    return [(hold.ordinal, hold.when) for hold in holds]


def test_no_limit_and_a_large_one_take_all() -> None:
    holds = holds_of(REQUESTS)
    assert chosen(holds, None) == holds
    assert chosen(holds, len(holds)) == holds


def test_of_two_places_with_nothing_in_between_one_is_held() -> None:
    """After a request that was waited for, and before the next one, nobody could tell the difference."""
    first, second, third = (request("PUT", role) for role in ("sidecar", "table data", "table version"))
    in_turn = [first, replace(second, started=2.0, ended=3.0), replace(third, started=2.5, ended=4.0)]
    assert places(distinct(holds_of(in_turn), in_turn, nothing_goes=False)) == [
        (1, "before"),
        (2, "before"),
        (2, "after"),
        (3, "before"),
        (3, "after"),
    ]


def test_what_meets_nobody_is_passed_and_what_may_meet_somebody_is_held() -> None:
    """Reads of what is written once, and writes of what no version names yet, come to the same at any time."""
    requests = [
        request("GET", "table version"),
        replace(request("HEAD", "table version"), status=404),
        request("GET", "table data"),
        request("PUT", "table data"),
        replace(request("PUT", "table data"), conditions=(("if-none-match", "*"),)),
        request("PUT", "table version"),
        request("GET", "schema file"),
        request("DELETE", "table data"),
        request("LIST", "listing"),
        request("PUT", "manifest transaction"),
    ]
    in_turn = [replace(each, started=float(n), ended=n + 1.0) for n, each in enumerate(requests)]
    held = [hold.ordinal for hold in distinct(holds_of(in_turn), in_turn) if hold.when == "before"]
    assert held == [2, 5, 6, 7, 8, 9, 10]
    everywhere = distinct(holds_of(in_turn), in_turn, nothing_goes=False)
    assert [hold.ordinal for hold in everywhere if hold.when == "before"] == list(range(1, 11))


def test_where_a_lane_removes_objects_it_matters_when_they_are_read() -> None:
    assert {name for name, pair in PAIRS.items() if pair.removes} == {
        "insert-cleanup",
        "branch-write-delete",
        "branch-write-recreate",
        "branch-write-recreate-known",
        "first-write-cleanup",
        "open-branch-delete",
        "open-cleanup",
    }


def test_a_limit_takes_writes_before_reads_and_a_third_after_the_request_and_keeps_the_order() -> None:
    holds = holds_of(REQUESTS)
    assert places(chosen(holds, 2)) == [(3, "before"), (5, "after")]
    assert places(chosen(holds, 6)) == [
        (3, "before"),
        (3, "after"),
        (5, "before"),
        (5, "after"),
        (6, "before"),
        (7, "before"),
    ]


def test_a_limit_takes_the_requests_first_that_decide_most() -> None:
    """Whoever is held only before its tables never meets anybody between its last look and its publish."""
    writes = ["table data", "sidecar", "table version", "table version", "manifest data", "manifest version"]
    holds = holds_of([request("PUT", role) for role in (*writes[:2], "manifest data", *writes[2:])])
    assert places(chosen(holds, 1)) == [(6, "before")]
    assert places(chosen(holds, 3)) == [(2, "before"), (4, "after"), (6, "before")]
    reads = holds_of([request("GET", "manifest data"), request("LIST", "listing")])
    assert decisive(reads) == []


@pytest.mark.parametrize("verb", ["PUT", "COPY", "COMPLETE_UPLOAD"])
def test_what_decides_most_is_found_however_an_engine_writes_an_object(verb: str) -> None:
    holds = holds_of([request(verb, role) for role in ("sidecar", "table version", "manifest data")])
    assert len(decisive(holds)) == 3


def test_a_limit_takes_each_kind_once_before_any_twice() -> None:
    ordinals = {hold.ordinal for hold in chosen(holds_of(REQUESTS), 9) if hold.when == "before"}
    assert ordinals == {1, 2, 3, 5, 6, 7}


def test_a_pair_survives_json() -> None:
    for pair in PAIRS.values():
        again = Pair.from_json(json.loads(json.dumps(pair.as_json())))
        assert again.as_json() == pair.as_json()
        assert (again.first, again.second, again.crash, again.follow) == (
            pair.first,
            pair.second,
            pair.crash,
            pair.follow,
        )


def test_a_pair_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(UnknownPair, match="there is no pair 'insert'; there are all, insert-insert-tables"):
        pairs_called(["insert"])
    assert [pair.name for pair in pairs_called(["open-open", "init-init", "open-open"])] == ["init-init", "open-open"]
    assert len(pairs_called(["all"])) == len(PAIRS)


def result(verdict: str, outcome: str, order: str, *, waited: bool = False, reached: bool = True) -> ScheduleResult:
    hold = Hold(1, "PUT", "sidecar", 1)
    return ScheduleResult(
        "p", "first", hold, {}, outcome, order, verdict, "", (), None, reached, waited, 0.1  # type: ignore[arg-type]
    )  # fmt: skip


def test_results_are_counted_by_what_became_of_them() -> None:
    results = [
        result("ok", "both done", "AB"),
        result("ok", "both done", "BA", waited=True),
        result("ok", "both done", "BA"),
        result("ok", "one refused", "A"),
        result("ok", "both refused", ""),
        result("ok", "unknown", "B"),
        result("ok", "both done", "BAB", reached=False),
        result("gap", "both done", ""),
        result("wrong", "both done", ""),
    ]
    assert counts_of(results)["p"] == {
        "schedules": 9,
        "serial AB": 1,
        "serial BA": 2,
        "conflicts": 1,
        "both refused": 1,
        "other": 2,
        "gaps": 1,
        "wrong": 1,
        "waited": 1,
        "not reached": 1,
    }


def test_pairs_that_are_seldom_reached_are_named() -> None:
    missed = result("ok", "both done", "AB", reached=False)
    fine = [result("ok", "both done", "AB")] * 4
    assert seldom_reached([*fine, missed]) == []
    (words,) = seldom_reached([*fine, missed, missed])
    assert words == "p: the request that was to be held never came in 2 of 6 schedules"
