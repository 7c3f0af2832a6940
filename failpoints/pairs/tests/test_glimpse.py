"""What a reader may see while one lane is held and the other is done, on hand-made graphs."""

from __future__ import annotations

import pytest

from conformance.judge import RequirementBroken
from failpoints.pairs.glimpse import Glimpse, judge_glimpse, judge_kept
from failpoints.pairs.orders import Call, serial_orders
from failpoints.pairs.tests.graphs import after, done, graph, refused, unsure
from failpoints.steps import Step
from failpoints.writers import CREATE, WRITERS, insert, mutate

BEFORE = graph()
DAN = mutate(insert("Person", name="dan"))
ELI = mutate(insert("Person", name="eli"))
BOTH_TABLES = mutate(insert("Person", name="dan"), insert("Company", name="dyno"))


def seen(*steps: Step) -> Glimpse:
    model = after(BEFORE, *steps)
    return Glimpse({name: model.export(name) for name in model.branch_list()})


def judged(glimpse: Glimpse, *lanes: list[Call]) -> frozenset[tuple[str, str, int]]:
    return judge_glimpse(BEFORE, lanes, glimpse, "meanwhile")


def test_what_was_acknowledged_is_there_and_what_is_held_may_be() -> None:
    lanes = [unsure("first", BOTH_TABLES)], [done("second", ELI)]
    assert judged(seen(ELI), *lanes) == {("mutate", "second", 0)}
    assert judged(seen(ELI, BOTH_TABLES), *lanes) == {("mutate", "first", 0), ("mutate", "second", 0)}


def test_an_acknowledged_write_that_a_reader_does_not_see_is_missed() -> None:
    with pytest.raises(RequirementBroken, match="a reader meanwhile sees a graph in no order") as caught:
        judged(seen(), [unsure("first", DAN)], [done("second", ELI)])
    assert caught.value.ids == ("PUB-01", "SNP-02")


def test_half_of_a_held_write_is_seen() -> None:
    with pytest.raises(RequirementBroken, match="PUB-01"):
        judged(seen(DAN), [unsure("first", BOTH_TABLES)], [refused("second", ELI)])


def test_a_branch_that_is_being_made_is_there_or_not() -> None:
    lanes = [unsure("first", CREATE)], [done("second", ELI)]
    assert ("branch_create", "first", 0) not in judged(seen(ELI), *lanes)
    assert ("branch_create", "first", 0) in judged(seen(CREATE, ELI), *lanes)


def test_a_refusal_is_allowed_beside_a_schema_apply_only() -> None:
    no = Glimpse(refusal="conflict/busy: not now")
    assert judged(no, [unsure("first", WRITERS["schema-add"].step)], [done("second", ELI)]) == frozenset()
    with pytest.raises(RequirementBroken, match="a reader is refused meanwhile: conflict/busy"):
        judged(no, [unsure("first", DAN)], [done("second", ELI)])


def test_what_a_reader_has_seen_does_not_go_away() -> None:
    visible = judged(seen(DAN, ELI), [unsure("first", DAN)], [done("second", ELI)])
    kept = serial_orders(BEFORE, [[done("first", DAN)], [done("second", ELI)]])[0]
    judge_kept(kept, visible, "at last")
    gone = serial_orders(BEFORE, [[refused("first", DAN)], [done("second", ELI)]])[0]
    with pytest.raises(RequirementBroken, match="a reader had seen the mutate of the first lane, and it is gone"):
        judge_kept(gone, visible, "at last")
