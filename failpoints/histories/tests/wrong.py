"""What tests of histories that are wrong share: the contradiction that is expected, and the calls that show it."""

from __future__ import annotations

from typing import Any

from failpoints.histories.check import check
from failpoints.histories.record import MAIN, History
from failpoints.histories.telling import Contradiction, Look
from failpoints.histories.tests.made import with_chain

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
