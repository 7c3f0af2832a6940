"""Where a history goes wrong: rows that differ at a commit, the first commit that has them, and who wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.adapters import EngineError
from conformance.model import Model
from conformance.model.graph import NEW_ID
from failpoints.histories.chain import Link
from failpoints.histories.record import Commit, Done, History
from failpoints.histories.steps import Row, names_row
from failpoints.histories.telling import Contradicted, Look, Telling, row_words

ROWS_SHOWN: Final = 3


@dataclass(frozen=True)
class WrongRow:
    """A row that an engine shows and the model does not, or otherwise."""

    row: Row
    found: Mapping[str, Any] | None
    meant: Mapping[str, Any] | None

    @property
    def words(self) -> str:
        return row_words(self.row, self.found, self.meant)

    @property
    def ends(self) -> frozenset[Row]:
        """The nodes of an edge: who removes one removes the edge. In this schema only pets are owned."""
        shown = self.found or self.meant or {}
        if "src" not in shown:
            return frozenset()
        ends = {("node:Person", str(shown["src"])), ("node:Person", str(shown["dst"]))}
        return frozenset(ends | {("node:Pet", str(shown["dst"]))})


def told_by_rows(wrong: Sequence[WrongRow]) -> str:
    rest = f", and {len(wrong) - ROWS_SHOWN} more" if len(wrong) > ROWS_SHOWN else ""
    return "; ".join(each.words for each in wrong[:ROWS_SHOWN]) + rest


def differences(model: Model, look: Look, commit_id: str, *, branch: str | None = None) -> Iterator[WrongRow]:
    """The rows in which the engine's state at a commit is not the model's: at that commit, or at a branch's head."""
    for table_key in model.schema.types:
        meant = model.read(table_key, branch) if branch is not None else model.read(table_key, commit=commit_id)
        yield from _rows_apart(table_key, look(table_key, commit_id), meant)


def _rows_apart(
    table_key: str, found: Sequence[Mapping[str, Any]], meant: Sequence[Mapping[str, Any]]
) -> Iterator[WrongRow]:
    """Rows are matched by id, and those to which the engine gave an id that nobody knows, by all else of them."""
    by_id = {str(row["id"]): row for row in found}
    if len(by_id) < len(found):
        doubled = next(row for row in found if sum(row["id"] == each["id"] for each in found) > 1)
        yield WrongRow((table_key, str(doubled["id"])), {"twice": dict(doubled)}, doubled)
    new = []
    for row in meant:
        row_id = str(row["id"])
        if row_id.startswith(NEW_ID):
            new.append(row)
        elif (there := by_id.pop(row_id, None)) != row:
            yield WrongRow((table_key, row_id), there, row)
    for row in new:
        partner = next((row_id for row_id, there in by_id.items() if _content(there) == _content(row)), None)
        if partner is None:
            yield WrongRow((table_key, str(row["id"])), None, row)
        else:
            del by_id[partner]
    for row_id, there in by_id.items():
        yield WrongRow((table_key, row_id), there, None)


def _content(row: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in row.items() if name != "id"}, sort_keys=True, default=str)


def first_wrong_commit(
    model: Model,
    history: History,
    telling: Telling,
    placed: Mapping[str, Link],
    look: Look,
    branch: str,
    at_the_end: str,
) -> Contradicted:
    """The contradiction of a branch whose final state is wrong: the commit by which it became so.

    Looks at states by halves: before the commit that is found the state is right, and at that commit it is not.
    """
    commits = history.chains[branch]

    def wrong_at(position: int) -> list[WrongRow]:
        return list(differences(model, look, str(commits[position]["graph_commit_id"])))

    try:
        right, wrong = -1, len(commits) - 1
        if not wrong_at(wrong):
            because = f"{at_the_end}; read as of its last commit, it is"
            return telling.broke(("SNP-04",), because)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            right, wrong = (right, middle) if wrong_at(middle) else (middle, wrong)
        rows = wrong_at(wrong)
    except EngineError as error:
        return telling.broke(("SNP-07", "PUB-20"), f"{at_the_end}; and an older commit cannot be read: {error}")
    return _blamed(model, history, telling, placed, branch, commits[wrong], wrong, rows)


def _blamed(
    model: Model,
    history: History,
    telling: Telling,
    placed: Mapping[str, Link],
    branch: str,
    commit: Commit,
    position: int,
    rows: Sequence[WrongRow],
) -> Contradicted:
    culprit = next((actor for actor, link in placed.items() if link.commit_id == commit["graph_commit_id"]), None)
    meant = model.commit(commit["graph_commit_id"])
    parents = model.parents(meant)
    own = {(change.table_key, change.row_id) for change in model.diff(parents[0], meant)} if parents else set()
    concerned = {row.row for row in rows}
    ids: tuple[str, ...]
    if culprit is None:
        ids, what = ("OPT-01", "PUB-20"), "it changes no row by itself"
    elif commit.get("merged_parent_commit_id") is not None:
        ids, what = ("MRG-12", "LIN-09"), "it does not hold what its two parents make together"
    elif concerned <= own:
        ids, what = ("PUB-01",), f"of the {len(own)} rows that it changes, {len(concerned)} are not as it left them"
    else:
        ids, what = ("PUB-20",), "with it, rows are lost or come back that it does not touch"
    because = (
        f"commit number {position} on '{branch}', {telling.commit(commit)}, is the first whose state is not what the "
        f"commits up to it make: {what}: {told_by_rows(rows)}"
    )
    return telling.broke(ids, because, _writers(history, placed, branch, position, rows, culprit))


def _writers(
    history: History,
    placed: Mapping[str, Link],
    branch: str,
    position: int,
    rows: Sequence[WrongRow],
    culprit: str | None,
) -> list[str]:
    """The culprit first, then for each row in question the last calls before it that are about that row."""
    found = [culprit] if culprit is not None else []
    for wrong in rows[:ROWS_SHOWN]:
        about = [done for done in history.calls if _is_about(done, wrong, placed, branch, position)]
        about.sort(key=lambda done: placed[done.actor].position)
        found += [done.actor for done in about[-2:]]
    return found


def _is_about(done: Done, wrong: WrongRow, placed: Mapping[str, Link], branch: str, position: int) -> bool:
    link = placed.get(done.actor)
    if link is None or link.branch != branch or link.position > position:
        return False
    return names_row(done.step, wrong.row, wrong.ends)
