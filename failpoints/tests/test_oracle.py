"""What the oracle asks of a reader and of the writes that follow, without an engine."""

from __future__ import annotations

from typing import Any, cast

import pytest

from conformance.adapters import EngineError, Unsupported
from conformance.judge import Engine, Handle, RequirementBroken
from conformance.model import Model
from failpoints.oracle import _judge_past, judge_reader
from failpoints.pairs.glimpse import glimpse
from failpoints.scene import Before, Scene
from failpoints.steps import mean
from failpoints.world import ACKNOWLEDGED, UNKNOWN, Ending
from failpoints.writers import CREATE, PEOPLE, SCHEMA, WRITERS, follow_up

LEFT = Scene(published=True, sidecars={}, moved=frozenset(), locked=False)
DELETE = {"do": "branch_delete", "name": "feature"}


class Refusing:
    """An engine that refuses to open one thing, and shows main."""

    def __init__(self, model: Model, refusals: int) -> None:
        self._model = model
        self._refusals = refusals

    def open(self, uri: str, *, read_only: bool) -> Any:
        if self._refusals:
            self._refusals -= 1
            raise EngineError("internal", "half_done", "it is being changed", {}, None)
        return self

    def export(self, branch: str) -> str:
        return self._model.export(branch)


def before(step: Any) -> Before:
    model = mean(Model.from_source(SCHEMA), PEOPLE).model
    if step is DELETE:
        model.branch_create("feature", "main")
    return Before("uri", {}, model, step, {"main": 2}, frozenset())


@pytest.mark.parametrize("step", [WRITERS["schema-add"].step, CREATE, DELETE], ids=["schema", "create", "delete"])
def test_a_reader_may_be_refused_while_a_step_is_half_done_and_not_after_its_answer(step: Any) -> None:
    asked = before(step)
    engine = cast(Engine, Refusing(asked.model, 1))

    assert not judge_reader(engine, asked, LEFT, Ending(UNKNOWN), "it")
    answered = Ending(ACKNOWLEDGED, {"commit": {"graph_commit_id": "mine"}})
    with pytest.raises(RequirementBroken, match="acknowledged, and somebody who only reads is refused"):
        judge_reader(cast(Engine, Refusing(asked.model, 1)), asked, LEFT, answered, "it")


def test_what_was_acknowledged_holds_no_lock_but_one_that_the_store_has_kept() -> None:
    asked = before(WRITERS["schema-add"].step)
    locked = Scene(published=True, sidecars={}, moved=frozenset(), locked=True)
    answered = Ending(ACKNOWLEDGED, {"commit": {"graph_commit_id": "mine"}})
    engine = cast(Engine, Refusing(asked.model, 1))

    with pytest.raises(RequirementBroken, match="holds the lock") as broken:
        judge_reader(engine, asked, locked, answered, "it")
    assert broken.value.ids == ("SCH-17",)
    assert not judge_reader(engine, asked, locked, Ending(UNKNOWN), "it")


class WritesOnly(Refusing):
    def open(self, uri: str, *, read_only: bool) -> Any:
        raise Unsupported("open", "only to write")


def test_where_nobody_can_only_read_nobody_is_asked_what_they_see() -> None:
    asked = before(WRITERS["schema-add"].step)
    engine = cast(Engine, WritesOnly(asked.model, 0))

    assert not judge_reader(engine, asked, LEFT, Ending(ACKNOWLEDGED, {"commit": {"graph_commit_id": "mine"}}), "it")
    assert glimpse(engine, "uri") is None


class Remembering:
    """An engine that has these rows in its past."""

    def __init__(self, rows: list[dict[str, Any]] | None) -> None:
        self._rows = rows

    def read(self, table_key: str, *, commit: str) -> list[dict[str, Any]]:
        if self._rows is None:
            raise EngineError("internal", "gone", "its files are not there", {}, None)
        return self._rows


def test_what_a_step_began_with_can_still_be_read() -> None:
    asked = before(WRITERS["insert"].step)
    asked.model.identify(asked.model.head(), "people", 4)
    rows = asked.model.read("node:Person")

    _judge_past(cast(Handle, Remembering(rows)), asked, "it")
    for wrong, words in ((rows[:-1], "has other rows"), (None, "cannot be read any more")):
        with pytest.raises(RequirementBroken, match=words) as broken:
            _judge_past(cast(Handle, Remembering(wrong)), asked, "it")
        assert broken.value.ids == ("SNP-07",)
    _judge_past(cast(Handle, Remembering(None)), before(WRITERS["cleanup"].step), "it")


@pytest.mark.parametrize("name", ["insert", "schema-add", "schema-rename", "schema-drop"])
def test_a_further_write_touches_every_table_that_there_is(name: str) -> None:
    model = mean(mean(Model.from_source(SCHEMA), PEOPLE).model, WRITERS[name].step).model

    step = follow_up(0, "main", model.schema)
    after = mean(model, step).model

    changed = {key for key in model.schema.types if after.state("main")[key] != model.state("main")[key]}
    assert changed == set(model.schema.types)
