"""The judge on hand-made graphs: the ways in which two processes can leave one wrong, and those that are right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.judge import RequirementBroken
from conformance.model import Model
from failpoints.pairs.judge import Shown, decide
from failpoints.pairs.orders import Call
from failpoints.pairs.tests.graphs import after, done, graph, refused, showing, unsure
from failpoints.writers import CREATE, SCHEMA, WRITERS, delete, insert, mutate, update

AGE = mutate(update("Person", "ann", age=77))
EMAIL = mutate(update("Person", "ann", email="other@x"))
DAN = mutate(insert("Person", name="dan"))
NO_ANN = mutate(delete("Person", "ann"))
BEFORE = graph()
NUMBER = len(BEFORE.commits())
# What the model calls the next commits: an engine whose graph is a model names them so.
NEXT, AFTER_NEXT = f"commit {NUMBER}", f"commit {NUMBER + 1}"


def decided(seen: dict[str, Shown] | None, *lanes: list[Call], before: Model | None = BEFORE) -> str:
    return decide(before, lanes, seen, "after both").serial.order


def broken(seen: dict[str, Shown] | None, *lanes: list[Call], before: Model | None = BEFORE) -> RequirementBroken:
    with pytest.raises(RequirementBroken) as caught:
        decide(before, lanes, seen, "after both")
    return caught.value


def test_both_updates_of_a_row_are_there() -> None:
    seen = showing(after(BEFORE, AGE, EMAIL))
    lanes = [done("first", AGE, commit=NEXT)], [done("second", EMAIL, commit=AFTER_NEXT)]
    assert decided(seen, *lanes) == "AB"


def test_the_order_is_that_of_the_chain_where_both_orders_give_the_same_rows() -> None:
    seen = showing(after(BEFORE, EMAIL, AGE))
    lanes = [done("first", AGE, commit=AFTER_NEXT)], [done("second", EMAIL, commit=NEXT)]
    assert decided(seen, *lanes) == "BA"


def test_rows_of_one_order_under_a_chain_of_the_other_are_wrong() -> None:
    """Two ages: the last in the chain must be the one that is there."""
    other = mutate(update("Person", "ann", age=1))
    seen = showing(after(BEFORE, other, AGE))
    lanes = [done("first", AGE, commit=NEXT)], [done("second", other, commit=AFTER_NEXT)]
    assert "stand the other way" in broken(seen, *lanes).because


def test_an_acknowledged_update_that_is_overwritten_is_lost() -> None:
    lost = after(BEFORE, EMAIL)
    lost = after(lost, mutate(update("Person", "bob", age=31)))  # Its commit is there, and its row is not.
    lanes = [done("first", AGE, commit=AFTER_NEXT)], [done("second", EMAIL, commit=NEXT)]
    error = broken(showing(lost), *lanes)
    assert "no serial order" in error.because and "PUB-07" in error.ids


def test_an_acknowledged_write_of_which_nothing_is_there_is_named() -> None:
    lanes = [done("first", AGE, commit=NEXT)], [done("second", EMAIL, commit=NEXT)]
    error = broken(showing(after(BEFORE, EMAIL)), *lanes)
    assert "the mutate of the first lane is lost" in error.because and "PUB-20" in error.ids


def test_a_refused_write_that_is_there_is_named() -> None:
    lanes = [refused("first", AGE)], [done("second", EMAIL, commit=AFTER_NEXT)]
    error = broken(showing(after(BEFORE, AGE, EMAIL)), *lanes)
    assert "the mutate of the first lane was refused, and is there" in error.because and error.ids == ("PUB-23",)


def test_two_refusals_that_leave_nothing_are_allowed() -> None:
    assert decided(showing(BEFORE), [refused("first", AGE)], [refused("second", EMAIL)]) == ""


def test_two_refusals_that_leave_something_are_not() -> None:
    error = broken(showing(after(BEFORE, AGE)), [refused("first", AGE)], [refused("second", EMAIL)])
    assert error.ids[0] == "PUB-23"


def test_a_write_of_unknown_end_is_there_whole_or_not_at_all() -> None:
    both = mutate(insert("Person", name="dan"), insert("Company", name="dyno"))
    lanes = [unsure("first", both)], [done("second", EMAIL, commit=NEXT)]
    assert decided(showing(after(BEFORE, EMAIL)), *lanes) == "B"
    assert decided(showing(after(BEFORE, EMAIL, both)), *lanes) in ("AB", "BA")
    half = broken(showing(after(BEFORE, EMAIL, DAN)), *lanes)
    assert "no serial order" in half.because


def test_an_update_after_the_delete_of_its_row_makes_no_commit() -> None:
    seen = showing(after(BEFORE, NO_ANN))
    assert decided(seen, [done("first", NO_ANN, commit=NEXT)], [done("second", AGE)]) == "AB"
    error = broken(seen, [done("first", NO_ANN, commit=NEXT)], [done("second", AGE, commit="c9")])
    assert "the mutate of the second lane is lost" in error.because


def test_a_commit_that_is_not_on_its_branch_is_missed() -> None:
    error = broken(showing(after(BEFORE, AGE)), [done("first", AGE, commit="c9")], [refused("second", EMAIL)])
    assert "is lost" in error.because or "is not on 'main'" in error.because


def test_a_write_that_is_committed_twice_is_seen_although_the_rows_are_right() -> None:
    lanes = [done("first", AGE, commit=NEXT)], [refused("second", EMAIL)]
    assert "1 commits more than were made" in broken(showing(after(BEFORE, AGE, AGE)), *lanes).because


def test_commits_of_recovery_and_of_maintenance_may_be_more() -> None:
    twice = after(BEFORE, AGE)
    twice.maintain()
    lanes = [done("first", AGE, commit=NEXT)], [refused("second", EMAIL)]
    assert decided(showing(twice, actors={AFTER_NEXT: "omnigraph:recovery"}), *lanes) == "A"
    maintained = [done("first", AGE, commit=NEXT)], [done("second", {"do": "optimize"})]
    assert decided(showing(twice), *maintained) == "A"


ANNS = {**AGE, "actor": "first"}
BOBS = {**EMAIL, "actor": "second"}
MERGE = {"do": "merge", "source": "feature", "target": "main", "actor": "first"}


def test_the_commit_of_a_call_carries_its_actor_or_recoverys() -> None:
    shown = after(BEFORE, ANNS, BOBS)
    lanes = [done("first", ANNS, commit=NEXT)], [done("second", BOBS, commit=AFTER_NEXT)]
    for actor in ("second", "omnigraph:recovery"):
        assert decided(showing(shown, actors={NEXT: "first", AFTER_NEXT: actor}), *lanes) == "AB"
    for actors in ({NEXT: "first"}, {NEXT: "first", AFTER_NEXT: "first"}):
        error = broken(showing(shown, actors=actors), *lanes)
        assert error.ids == ("LIN-14",) and "the commit of the mutate of the second lane" in error.because


def test_a_commit_that_nobody_was_answered_carries_the_actor_of_its_call_too() -> None:
    shown = after(BEFORE, ANNS, BOBS)
    lanes = [unsure("first", ANNS)], [done("second", BOBS, commit=AFTER_NEXT)]
    assert decided(showing(shown, actors={NEXT: "omnigraph:recovery", AFTER_NEXT: "second"}), *lanes) == "AB"
    error = broken(showing(shown, actors={AFTER_NEXT: "second"}), *lanes)
    assert error.ids == ("LIN-14",) and "do not name the actors" in error.because


def test_a_merge_names_the_head_that_it_merged_and_nobody_else_names_one() -> None:
    before = graph(CREATE, {**DAN, "branch": "feature"})
    number = f"commit {len(before.commits()) + 1}"
    seen = showing(after(before, MERGE), actors={number: "first"})
    lanes = [done("first", MERGE, commit=number)], [refused("second", BOBS)]
    assert decided(seen, *lanes, before=before) == "A"
    head = {**seen["main"].commits[-1]}
    for merged in (None, seen["main"].ids[0]):
        wrong = replace(seen["main"], commits=(*seen["main"].commits[:-1], {**head, "merged_parent_commit_id": merged}))
        error = broken({**seen, "main": wrong}, *lanes, before=before)
        assert error.ids == ("LIN-09",) and f"names the merged parent {merged}" in error.because
    plain = showing(after(BEFORE, ANNS), actors={NEXT: "first"})
    odd = {**plain["main"].commits[-1], "merged_parent_commit_id": NEXT}
    plain = {"main": replace(plain["main"], commits=(*plain["main"].commits[:-1], odd))}
    error = broken(plain, [done("first", ANNS, commit=NEXT)], [refused("second", BOBS)])
    assert error.ids == ("LIN-09",) and "is no merge" in error.because


def test_a_merge_may_name_a_commit_of_its_source_that_changed_no_row() -> None:
    """A recovery stood between the last write of the source and the merge."""
    before = graph(CREATE, {**DAN, "branch": "feature"})
    recovered = before.copy()
    extra = recovered.maintain("feature").commit_id
    merged = after(recovered, MERGE)
    own = merged.head().commit_id
    seen = showing(merged, actors={own: "first", extra: "omnigraph:recovery"})
    assert decided(seen, [done("first", MERGE, commit=own)], [refused("second", BOBS)], before=before) == "A"


def test_beside_maintenance_a_write_that_is_committed_twice_is_seen_by_its_actor() -> None:
    twice = after(BEFORE, ANNS)
    twice.maintain()
    lanes = [done("first", ANNS, commit=NEXT)], [done("second", {"do": "optimize"})]
    for actor in ("", "engine"):
        assert decided(showing(twice, actors={NEXT: "first", AFTER_NEXT: actor}), *lanes) == "A"
    error = broken(showing(twice, actors={NEXT: "first", AFTER_NEXT: "first"}), *lanes)
    assert "a commit by 'first' more than were made" in error.because


@pytest.mark.parametrize("do", ["open", "refresh"])
def test_who_opens_or_refreshes_commits_in_no_name_but_recoverys(do: str) -> None:
    twice = after(BEFORE, ANNS)
    twice.maintain()
    lanes = [done("first", ANNS, commit=NEXT)], [done("second", {"do": do})]
    assert decided(showing(twice, actors={NEXT: "first", AFTER_NEXT: "omnigraph:recovery"}), *lanes) == "A"
    error = broken(showing(twice, actors={NEXT: "first"}), *lanes)
    assert "1 commits more than were made" in error.because


def test_the_model_has_learned_every_commit() -> None:
    twice = after(BEFORE, AGE)
    twice.maintain()
    seen = showing(twice, actors={AFTER_NEXT: "omnigraph:recovery"})
    model = decide(BEFORE, ([done("first", AGE, commit=NEXT)],), seen, "after both").model
    assert model is not None
    assert [commit.commit_id for commit in model.commits()] == seen["main"].ids


def test_a_forked_chain_is_seen() -> None:
    seen = showing(after(BEFORE, AGE, EMAIL))
    last = {**seen["main"].commits[-1], "parent_commit_id": seen["main"].commits[-3]["graph_commit_id"]}
    forked = {"main": replace(seen["main"], commits=(*seen["main"].commits[:-1], last))}
    error = broken(forked, [done("first", AGE, commit=NEXT)], [done("second", EMAIL, commit=AFTER_NEXT)])
    assert error.ids == ("LIN-06", "PUB-08")


def test_a_branch_that_nobody_made_is_seen() -> None:
    error = broken(showing(after(BEFORE, AGE, CREATE)), [done("first", AGE, commit=NEXT)], [refused("second", EMAIL)])
    assert "there are the branches" in error.because


def test_a_branch_and_another_schema_cannot_both_have_been_made_in_that_order() -> None:
    apply = WRITERS["schema-add"].step
    changed = after(BEFORE, apply)
    lanes = [done("first", apply, commit=NEXT)], [done("second", CREATE)]
    assert decided(showing(after(changed, CREATE)), *lanes) == "AB"
    early = {**showing(changed), "feature": showing(after(BEFORE, CREATE))["feature"]}
    assert "SCH-08" in broken(early, *lanes).ids or "no serial order" in broken(early, *lanes).because


def test_a_new_type_is_seen_although_it_has_no_rows() -> None:
    apply = WRITERS["schema-add"].step
    seen = showing(after(BEFORE, apply))
    small = {"main": replace(seen["main"], tables=seen["main"].tables - {"node:Place"})}
    assert "node:Place" in broken(small, [done("first", apply, commit=NEXT)], [refused("second", AGE)]).because


def test_a_commit_of_a_branch_that_was_deleted_later_is_not_missed() -> None:
    before = graph(CREATE)
    write = {**DAN, "branch": "feature"}
    delete_it = {"do": "branch_delete", "name": "feature"}
    lanes = [done("first", write, commit="c9")], [done("second", delete_it)]
    assert decided(showing(after(before, delete_it)), *lanes, before=before) == "AB"


def test_of_two_inits_the_graph_is_the_winners() -> None:
    first, second = {"do": "init", "schema": SCHEMA}, {"do": "init", "schema": WRITERS["schema-add"].step["source"]}
    seen = showing(Model.from_source(SCHEMA))
    assert decided(seen, [done("first", first)], [refused("second", second)], before=None) == "A"
    assert "PUB-23" in broken(seen, [refused("first", first)], [refused("second", second)], before=None).ids
    assert "other tables" in broken(seen, [refused("first", first)], [done("second", second)], before=None).because
    assert decided(None, [refused("first", first)], [refused("second", second)], before=None) == ""
