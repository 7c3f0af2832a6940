"""Serial orders by the model alone: which interleavings of two lanes their endings allow."""

from __future__ import annotations

from conformance.model import Model
from failpoints.pairs.orders import serial_orders
from failpoints.pairs.tests.graphs import done, graph, refused, unsure
from failpoints.writers import CREATE, SCHEMA, delete, insert, insert_edge, load, mutate, update

DAN = mutate(insert("Person", name="dan"))
ELI = mutate(insert("Person", name="eli"))
NEW_EDGE = mutate(insert_edge("Knows", "ann", "cat", id="k7"))
NO_CAT = mutate(delete("Person", "cat"))
APPEND_DAN = load({"type": "Person", "data": {"name": "dan"}}, mode="append")


def orders(*lanes: list) -> list[str]:  # type: ignore[type-arg]
    return sorted({serial.order for serial in serial_orders(graph(), lanes)})


def test_two_acknowledged_writes_come_in_either_order() -> None:
    assert orders([done("first", DAN)], [done("second", ELI)]) == ["AB", "BA"]


def test_a_refused_write_is_in_no_order() -> None:
    assert orders([refused("first", DAN)], [done("second", ELI)]) == ["B"]


def test_a_write_of_unknown_end_is_in_or_out() -> None:
    assert orders([unsure("first", DAN)], [done("second", ELI)]) == ["AB", "B", "BA"]


def test_of_two_appends_of_one_key_both_acknowledged_no_order_is_left() -> None:
    assert orders([done("first", APPEND_DAN)], [done("second", APPEND_DAN)]) == []


def test_an_edge_to_a_node_that_was_deleted_can_only_have_come_first() -> None:
    """Its delete then takes the edge along."""
    assert orders([done("first", NEW_EDGE)], [done("second", NO_CAT)]) == ["AB"]


def test_a_bad_request_needs_a_state_that_says_so() -> None:
    """Nobody has deleted the node: then there was no reason to refuse the edge."""
    assert orders([refused("first", NEW_EDGE, "bad_request")], [done("second", NO_CAT)]) == ["B"]
    assert orders([refused("first", NEW_EDGE, "bad_request")], [done("second", DAN)]) == []


def test_a_conflict_needs_no_reason() -> None:
    assert orders([refused("first", NEW_EDGE, "conflict")], [done("second", DAN)]) == ["B"]


def test_a_lane_keeps_its_own_order_and_the_other_may_come_between() -> None:
    remade = [
        done("second", {"do": "branch_delete", "name": "feature"}),
        done("second", CREATE, 1),
        done("second", {**ELI, "branch": "feature"}, 2),
    ]
    found = serial_orders(graph(CREATE), [[done("first", {**DAN, "branch": "feature"})], remade])
    # Between the deletion and the creation there is no branch to write to.
    assert sorted({serial.order for serial in found}) == ["AB", "BA", "BAB"]


def test_a_call_of_unknown_end_may_happen_after_later_calls_of_its_lane() -> None:
    lane = [
        unsure("first", mutate(update("Person", "ann", age=1))),
        done("first", mutate(update("Person", "ann", age=2)), 1),
    ]
    ages = {
        serial.model.entity_at("node:Person", "ann")["age"]  # type: ignore[union-attr, index]
        for serial in serial_orders(graph(), [lane])
    }
    assert ages == {1, 2}


def test_a_load_that_was_refused_may_leave_the_branch_that_it_made() -> None:
    step = {**APPEND_DAN, "branch": "feature", "base": "main"}
    branches = {tuple(serial.model.branch_list()) for serial in serial_orders(graph(), [[refused("first", step)]])}  # type: ignore[union-attr]
    assert branches == {("main",), ("feature", "main")}


def test_maintenance_is_in_no_order_and_changes_nothing() -> None:
    assert orders([done("first", DAN)], [done("second", {"do": "optimize"})]) == ["A"]


def test_whoever_died_before_the_two_began_has_happened_or_not() -> None:
    lanes = [[done("first", {"do": "open"})], [done("second", {"do": "open"})], [unsure("crashed", DAN)]]
    found = {"dan" in serial.model.export() for serial in serial_orders(graph(), lanes)}  # type: ignore[union-attr]
    assert found == {True, False}


def test_of_two_inits_one_wins() -> None:
    init = {"do": "init", "schema": SCHEMA}
    assert serial_orders(None, [[done("first", init)], [done("second", init)]]) == []
    (won,) = serial_orders(None, [[done("first", init)], [refused("second", init)]])[:1]
    assert won.order == "A" and isinstance(won.model, Model)
    (none,) = {serial.model for serial in serial_orders(None, [[refused("first", init)], [refused("second", init)]])}
    assert none is None
