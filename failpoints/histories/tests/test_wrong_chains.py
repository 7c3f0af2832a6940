"""Chains that are wrong: commits that fork, vanish, come twice or are nobody's, and branches and merges."""

from __future__ import annotations

from dataclasses import replace

from failpoints.histories.record import MAIN, Done
from failpoints.histories.tests.made import (
    CONFLICT,
    READ_ONLY,
    Made,
    insert,
    merge,
    without_commit,
)
from failpoints.histories.tests.wrong import actors, changed, contradiction, person


def test_a_forked_chain_is_told_by_both_children() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    made.ok("p01-000", insert("cyd"))
    found = contradiction(changed(made.history(), "C003", parent_commit_id="C001"), made.look, "LIN-06", "PUB-08")
    assert actors(found) == ["p00-000", "p01-000"]


def test_an_acknowledged_commit_that_is_gone_is_noticed() -> None:
    made = Made()
    gone = made.ok("p00-000", insert("bob"))
    made.ok("p01-000", insert("cyd"))
    found = contradiction(without_commit(made.history(), gone), made.look, "PUB-20", "LIN-02")
    assert actors(found) == ["p01-000", "p00-000"], "the one that has its place, and the one that is gone"
    assert "no commit in any chain" in found.slice[1].words


def test_a_commit_that_is_there_twice_is_noticed() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    made.maintained("p00-000")
    assert actors(contradiction(made.history(), made.look, "LIN-02", "PUB-09")) == ["p00-000"]


def test_a_commit_of_an_unanswered_call_may_be_there_once_only() -> None:
    made = Made()
    made.lost("p00-000", insert("bob"), happened=True)
    made.maintained("p00-000")
    contradiction(made.history(), made.look, "LIN-02", "PUB-09")


def test_a_commit_of_a_refused_call_is_noticed() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    refused = [_refused(done) if done.actor == "p00-000" else done for done in made.calls]
    found = contradiction(replace(made.history(), calls=tuple(refused)), made.look, "PUB-23")
    assert "conflict/expected_version_mismatch" in found.slice[0].words


def _refused(done: Done) -> Done:
    return Done(done.call, replace(done.outcome, verdict="refused", answer=CONFLICT))


def test_a_commit_that_nobody_asked_for_is_noticed() -> None:
    made = Made()
    made.maintained("somebody")
    contradiction(made.history(), made.look, "LIN-02", "LIN-14")


def test_a_commit_without_actor_needs_maintenance_that_somebody_asked_for() -> None:
    made = Made()
    made.maintained()
    made.record("p00-000", {"do": "optimize"}, "refused", READ_ONLY)
    contradiction(made.history(), made.look, "LIN-02", "LIN-14")


def test_a_commit_under_another_calls_name_is_noticed() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    made.lost("p01-000", insert("bob"), happened=False)
    found = contradiction(changed(made.history(), "C002", actor_id="p01-000"), made.look, "LIN-14")
    assert "carries the actor 'p01-000'" in found.because


def test_an_answer_with_another_commit_than_the_calls_own_is_noticed() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    answer = {"affected_nodes": 1, "affected_edges": 0, "commit": {"graph_commit_id": "C999"}}
    calls = [*made.calls[:-1], Done(made.calls[-1].call, replace(made.calls[-1].outcome, answer=answer))]
    contradiction(replace(made.history(), calls=tuple(calls)), made.look, "PUB-09")


def test_an_answer_that_describes_its_commit_wrongly_is_noticed() -> None:
    made = Made()
    commit = made.ok("p00-000", insert("bob"))
    answer = {"affected_nodes": 1, "affected_edges": 0, "commit": {**commit, "parent_commit_id": "C000"}}
    calls = [*made.calls[:-1], Done(made.calls[-1].call, replace(made.calls[-1].outcome, answer=answer))]
    contradiction(replace(made.history(), calls=tuple(calls)), made.look, "LIN-01", "PUB-14")


def test_two_calls_with_one_commit_are_noticed() -> None:
    made = Made()
    commit = made.rolled_forward(insert("bob"))
    for actor in ("p00-000", "p01-000"):
        made.record(actor, insert("bob"), "ok", {"affected_nodes": 1, "affected_edges": 0, "commit": commit})
    contradiction(made.history(), made.look, "LIN-02", "PUB-22")


def test_a_chain_that_real_time_contradicts_is_noticed() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    made.ok("p01-000", insert("cyd"))
    history = made.history()
    first, second = history.calls[-2:]
    swapped = [
        Done(first.call, replace(first.outcome, began=second.outcome.began, ended=second.outcome.ended)),
        Done(second.call, replace(second.outcome, began=first.outcome.began, ended=first.outcome.ended)),
    ]
    found = contradiction(replace(history, calls=(*history.calls[:-2], *swapped)), made.look, "LIN-06")
    assert "p01-000 was acknowledged before p00-000 was asked" in found.because


def test_a_merge_whose_second_parent_is_nowhere_is_noticed() -> None:
    made = Made()
    made.branch("side")
    made.ok("p00-000", insert("bob", branch="side"))
    merged = made.ok("p01-000", merge("side"))
    history = changed(made.history(), merged["graph_commit_id"], merged_parent_commit_id="C999")
    contradiction(history, made.look, "LIN-09")


def test_a_merge_whose_second_parent_is_not_on_its_source_is_noticed() -> None:
    made = Made()
    made.branch("side")
    made.branch("other")
    made.ok("p00-000", insert("bob", branch="side"))
    made.ok("p02-000", insert("bob", branch="other"))
    merged = made.ok("p01-000", merge("side"))
    history = changed(made.history(), merged["graph_commit_id"], merged_parent_commit_id="C003")
    contradiction(history, made.look, "LIN-09")


def test_a_merge_that_names_a_later_head_than_it_merged_is_noticed() -> None:
    made = Made()
    made.branch("side")
    made.ok("p00-000", insert("bob", branch="side"))
    made.ok("p00-001", insert("cyd", branch="side"))
    merged = made.ok("p01-000", merge("side"))
    made.falsify(merged, "node:Person", [person("ann", 0), person("bob", 0)])
    history = made.history()
    lines = [line for line in history.exports[MAIN].split("\n") if '"cyd"' not in line]
    found = contradiction(
        replace(history, exports={**history.exports, MAIN: "\n".join(lines)}), made.look, "MRG-12", "LIN-09"
    )
    assert actors(found) == ["p01-000"]


def test_a_commit_on_another_branch_than_asked_for_is_noticed() -> None:
    made = Made()
    made.branch("side")
    made.ok("p00-000", insert("bob", branch="side"))
    made.calls[-1].step["branch"] = MAIN
    contradiction(made.history(), made.look, "BRA-08")


def test_an_unanswered_call_on_another_branch_than_asked_for_is_noticed() -> None:
    made = Made()
    made.branch("side")
    made.lost("p00-000", insert("bob", branch="side"), happened=True)
    made.calls[-1].step["branch"] = MAIN
    contradiction(made.history(), made.look, "BRA-08")


def test_a_branch_that_does_not_begin_with_its_source_is_noticed() -> None:
    made = Made()
    made.branch("side")
    made.ok("p00-000", insert("bob", branch="side"))
    history = made.history()
    first, second, own = history.chains["side"]
    strange = ({**first, "graph_commit_id": "C777"}, {**second, "parent_commit_id": "C777"}, own)
    contradiction(replace(history, chains={**history.chains, "side": strange}), made.look, "LIN-07")


def test_branches_are_those_that_were_made() -> None:
    made = Made()
    made.branch("side")
    history = made.history()
    only_main = replace(history, chains={MAIN: history.chains[MAIN]}, exports={MAIN: history.exports[MAIN]})
    contradiction(only_main, made.look, "BRA-01")
    contradiction(replace(history, calls=history.calls[:-1]), made.look, "BRA-04")
