"""One history per way to be wrong: the checker names the requirement, and the calls that show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformance.audit.names import RECOVERY_ACTOR
from failpoints.histories.check import check
from failpoints.histories.record import ALONE, MAIN, Done, History
from failpoints.histories.telling import Contradiction, Look
from failpoints.histories.tests.made import (
    BAD_REQUEST,
    CARDINALITY,
    CONFLICT,
    READ_ONLY,
    Made,
    both,
    insert,
    knows,
    log,
    merge,
    owns,
    update,
    with_chain,
    without_commit,
)

NOTHING_CHANGED = {"affected_nodes": 0, "affected_edges": 0, "commit": None}


def contradiction(history: History, look: Look | None, *ids: str) -> Contradiction:
    found = check(history, look)
    assert isinstance(found, Contradiction), "the checker found nothing wrong"
    assert found.ids == ids, str(found)
    return found


def actors(found: Contradiction) -> list[str]:
    return [line.actor for line in found.slice]


def changed(history: History, commit_id: str, **fields: Any) -> History:
    """The history with other fields of one commit, in the chain and in the answer."""
    commits = [{**each, **fields} if each["graph_commit_id"] == commit_id else each for each in history.chains[MAIN]]
    return with_chain(history, commits)


def person(name: str, age: int) -> dict[str, Any]:
    return {"id": name, "name": name, "age": age, "email": None, "note": None}


# -- rows ------------------------------------------------------------------------------------------------------------


def lost_update() -> tuple[Made, History]:
    """Two updates of one row; the third commit, of another row, brings the first update back, and it stays so."""
    made = Made()
    made.ok("p00-000", update("ann", 1))
    made.ok("p01-000", update("ann", 2), process=1)
    third = made.ok("p02-000", insert("bob", 5), process=2)
    made.falsify(third, "node:Person", [person("ann", 1), person("bob", 5)])
    for number in range(6):
        later = made.ok(f"p03-00{number}", log("later"), process=3)
        made.falsify(later, "node:Person", [person("ann", 1), person("bob", 5)])
    history = made.history()
    return made, replace(history, exports={MAIN: history.exports[MAIN].replace('"age":2', '"age":1')})


def test_a_lost_update_is_told_by_the_commit_that_lost_it() -> None:
    made, history = lost_update()
    found = contradiction(history, made.look, "PUB-20")
    assert "commit number 4 on 'main', C004 (p02-000)" in found.because
    assert "node:Person 'ann' is" in found.because
    assert actors(found) == ["p00-000", "p01-000", "p02-000"]
    assert "process 1" in found.slice[1].words and "number 3 on main" in found.slice[1].words


def test_a_wrong_final_state_is_noticed_without_time_travel_too() -> None:
    _, history = lost_update()
    contradiction(history, None, "PUB-20")


def test_half_a_commit_is_told_as_such() -> None:
    made = Made()
    commit = made.ok("p00-000", both("bob"))
    made.falsify(commit, "node:Pet", [])
    history = made.history()
    lines = [line for line in history.exports[MAIN].split("\n") if '"Pet"' not in line]
    found = contradiction(replace(history, exports={MAIN: "\n".join(lines)}), made.look, "PUB-01")
    assert actors(found) == ["p00-000"]
    assert "of the 2 rows that it changes, 1 are not as it left them" in found.because


def test_a_row_that_was_written_twice_is_noticed_whatever_its_id() -> None:
    made = Made()
    commit = made.ok("p00-000", log("one"))
    twice = [{"id": "LOG1", "text": "one"}, {"id": "LOG9", "text": "one"}]
    made.falsify(commit, "node:Log", twice)
    history = made.history()
    line = next(line for line in history.exports[MAIN].split("\n") if "LOG1" in line)
    exported = history.exports[MAIN].replace(f"{line}\n", f"{line}\n{line.replace('LOG1', 'LOG9')}\n")
    found = contradiction(replace(history, exports={MAIN: exported}), made.look, "PUB-20")
    assert actors(found) == ["p00-000"]


def test_a_state_that_only_the_last_read_shows_wrong_is_told_as_such() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    contradiction(replace(made.history(), exports={MAIN: ""}), made.look, "SNP-04")


# -- the chain -------------------------------------------------------------------------------------------------------


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


# -- branches and merges ---------------------------------------------------------------------------------------------


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


# -- what the model does not accept ----------------------------------------------------------------------------------


def test_a_commit_that_the_rows_before_it_forbid_is_noticed() -> None:
    """An edge to a node that is not there: its writer looked before, and not when it published."""
    made = Made()
    deleted = made.ok("p00-000", insert("bob"))
    made.ok("p01-000", knows("k1", "ann", "bob"))
    history = without_commit(made.history(), deleted)
    calls = tuple(done for done in history.calls if done.actor != "p00-000")
    found = contradiction(replace(history, calls=calls), made.look, "VAL-09")
    assert actors(found)[-1] == "p01-000"


def test_a_commit_that_changes_nothing_is_noticed() -> None:
    made = Made()
    made.maintained("p00-000")
    made.lost("p00-000", update("nobody", 1), happened=False)
    contradiction(made.history(), made.look, "LIN-03")


def test_a_commit_of_a_call_that_was_told_of_none_is_noticed() -> None:
    made = Made()
    made.maintained("p00-000")
    made.record("p00-000", update("ann", 1), "ok", NOTHING_CHANGED)
    contradiction(made.history(), made.look, "LIN-03")


def test_a_wrong_count_is_noticed() -> None:
    made = Made()
    made.ok("p00-000", update("ann", 1))
    answer = {**made.calls[-1].outcome.answer, "affected_nodes": 2}
    calls = [*made.calls[:-1], Done(made.calls[-1].call, replace(made.calls[-1].outcome, answer=answer))]
    contradiction(replace(made.history(), calls=tuple(calls)), made.look, "MUT-10", "PUB-18")


def test_nothing_to_do_needs_a_state_in_which_there_was_nothing_to_do() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    made.record("p01-000", update("bob", 1), "ok", NOTHING_CHANGED)
    made.ok("p00-001", insert("cyd"))
    contradiction(made.history(), made.look, "SNP-02", "MUT-04")


def test_a_bad_request_needs_a_state_in_which_it_was_one() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    made.record("p01-000", knows("k1", "ann", "bob"), "refused", BAD_REQUEST)
    contradiction(made.history(), made.look, "MUT-08")


def test_a_source_with_room_for_an_edge_is_no_reason_to_refuse_it() -> None:
    made = Made()
    made.ok("p00-000", insert("rex", kind="Pet"))
    made.ok("p00-001", owns("o1", "ann", "rex"))
    made.lost("p01-000", owns("o2", "ann", "rex"), happened=False)
    made.record("p02-000", owns("o3", "ann", "rex"), "refused", CARDINALITY)
    contradiction(made.history(), made.look, "MUT-08")


# -- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("somebody_was_killed", [False, True])
def test_who_was_not_killed_is_told_what_became_of_it(somebody_was_killed: bool) -> None:
    """The death of one process is no excuse for another."""
    made = Made()
    if somebody_was_killed:
        made.lost("p01-000", insert("cyd"), happened=False)
    made.record("p00-000", insert("bob"), "unknown", {"kind": "internal", "code": "panic", "message": "?"})
    contradiction(made.history(), made.look, "PUB-21")


def test_when_all_is_over_a_write_has_to_work() -> None:
    made = Made()
    made.record("last-000", insert("bob"), "refused", CONFLICT, process=ALONE)
    contradiction(made.history(), made.look, "PUB-21")


# -- recovery --------------------------------------------------------------------------------------------------------


def test_a_recovery_that_publishes_half_of_a_call_is_noticed() -> None:
    made = Made()
    made.lost("p00-000", both("bob"), happened=False)
    made.audited("RolledForward", "p00-000", made.rolled_forward(insert("bob")))
    assert actors(contradiction(made.history(), made.look, "REC-04", "REC-05")) == ["p00-000"]


def test_a_refused_call_that_recovery_publishes_is_noticed() -> None:
    made = Made()
    made.record("p00-000", insert("bob"), "refused", CONFLICT)
    made.audited("RolledForward", "p00-000", made.rolled_forward(insert("bob")))
    assert actors(contradiction(made.history(), made.look, "PUB-23")) == ["p00-000"]


def test_a_call_that_recovery_publishes_twice_is_noticed() -> None:
    made = Made()
    made.lost("p00-000", log("one"), happened=True)
    made.audited("RolledForward", "p00-000", made.rolled_forward(log("one")))
    contradiction(made.history(), made.look, "REC-04", "REC-05")


def test_an_answer_with_a_recovery_commit_of_somebody_else_is_noticed() -> None:
    made = Made()
    commit = made.maintained(RECOVERY_ACTOR)
    made.record("p00-000", insert("bob"), "ok", {"affected_nodes": 1, "affected_edges": 0, "commit": commit})
    contradiction(made.history(), made.look, "PUB-22")


def test_a_recovery_that_says_forward_and_publishes_nothing_is_noticed() -> None:
    made = Made()
    made.lost("p00-000", insert("bob"), happened=False)
    made.audited("RolledForward", "p00-000", made.maintained(RECOVERY_ACTOR))
    contradiction(made.history(), made.look, "REC-05")
