"""REC: recovery beside living ones: handles that were open when a writer died, readers, maintenance, rivals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from conformance.adapters import EngineError
from conformance.judge import Engine, Handle, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.crashed import ITEM, OTHER, OTHERS, TWO, Crashed, drift, rows_of
from conformance.suites.graphs import insert, lines, node, update, where
from conformance.suites.refusals import refused

FORWARD, BACK = "RolledForward", "RolledBack"


def mutation(handle: Handle) -> object:
    """A write that moves two tables."""
    return handle.mutate(insert("Item", name="c"), insert("Other", name="p"), actor="mona")


# -- live handles ------------------------------------------------------------------------------------------------------

HEALERS: list[tuple[str, Callable[[Handle], object]]] = [
    ("load", lambda handle: handle.load(lines(node("Other", name="p")))),
    ("mutate", lambda handle: handle.mutate(insert("Other", name="p"))),
    ("refresh", lambda handle: handle.refresh()),
    ("merge", lambda handle: handle.merge("side")),
    ("schema_apply", lambda handle: handle.schema_apply(TWO + "node Third {\n  name: String @key\n}\n")),
]


@pytest.mark.requirement("REC-06")
@pytest.mark.parametrize("healer", [each[1] for each in HEALERS], ids=[each[0] for each in HEALERS])
def test_a_live_handle_rolls_a_dead_writer_forward(judged: Judged, forge: ForgeOf, healer: Any) -> None:
    graph = judged(TWO, OTHERS)
    if healer is dict(HEALERS)["merge"]:
        graph.branch_create("side")
        graph.mutate(insert("Other", name="p"), branch="side")
    anvil = forge(graph.uri)
    pin = anvil.pin_of(ITEM)
    drift(anvil, ITEM, 1, rows=True)
    crash = Crashed.with_sidecar(graph, anvil, anvil.sidecar(writer_kind="Load", tables=[pin], actor="mona"))
    handle = crash.live_handle()

    healer(handle)

    with proving("REC-06"):
        assert [row["id"] for row in handle.read(ITEM)] == ["a", "b", "new0"]
        assert crash.check_audit(handle, FORWARD)["recovery_for_actor"] == "mona"
        assert anvil.sidecars() == {} and anvil.pin(ITEM) == anvil.head(ITEM)
        assert len(graph.engine.open(graph.uri).recoveries()) == 1


@pytest.mark.requirement("REC-06")
def test_a_live_handle_can_write_the_very_table_that_the_dead_writer_moved(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(TWO, OTHERS)
    anvil = forge(graph.uri)
    pin = anvil.pin_of(ITEM)
    drift(anvil, ITEM, 1, rows=True)
    crash = Crashed.with_sidecar(graph, anvil, anvil.sidecar(writer_kind="Mutation", tables=[pin]))
    handle = crash.live_handle()

    with proving("REC-06"):
        handle.mutate(update("Item", where("name", "new0"), size=9))
        assert {row["id"]: row["size"] for row in handle.read(ITEM)} == {"a": 1, "b": None, "new0": 9}


@pytest.mark.requirement("REC-07")
@pytest.mark.parametrize("healer", [each[1] for each in HEALERS[:3]], ids=[each[0] for each in HEALERS[:3]])
def test_a_live_handle_leaves_what_must_be_rolled_back_to_an_open(judged: Judged, forge: ForgeOf, healer: Any) -> None:
    graph = judged(TWO, OTHERS)
    anvil = forge(graph.uri)
    pins = [anvil.pin_of(ITEM, post=anvil.pin(ITEM) + 2)]
    drift(anvil, ITEM, 1, rows=True)
    crash = Crashed.with_sidecar(graph, anvil, anvil.sidecar(writer_kind="Load", tables=pins))
    handle = crash.live_handle()

    with suppress(EngineError):  # A write beside a pending sidecar may wait for the open, or go on.
        healer(handle)
        handle.mutate(insert("Item", name="c"))

    with proving("REC-07"):
        assert crash.sidecar_name in anvil.sidecars()
        assert handle.recoveries() == []
        assert "new0" not in handle.export(), "what must be rolled back can be seen"
        recovered = crash.reopened()
        assert "new0" not in recovered.export()
        assert anvil.sidecars() == {} and anvil.head(ITEM) == anvil.pin(ITEM)
        crash.check_audit(recovered, BACK)
        recovered.mutate(insert("Item", name="new0"))


@pytest.mark.requirement("REC-13")
@pytest.mark.parametrize("through", ["open", "write"])
@pytest.mark.parametrize("writer_kind", ["Load", "Mutation"])
def test_the_sidecar_of_a_finished_write_is_removed_and_recorded(
    judged: Judged, forge: ForgeOf, through: str, writer_kind: str
) -> None:
    graph = judged(TWO, OTHERS)

    def write() -> object:
        if writer_kind == "Load":
            return graph.handle.load(lines(node("Item", name="c"), node("Other", name="p")), actor="mona")
        return graph.handle.mutate(insert("Item", name="c"), insert("Other", name="p"), actor="mona")

    crash = Crashed.after_publish(graph, forge(graph.uri), write, writer_kind=writer_kind)
    handle = crash.reopened() if through == "open" else crash.live_handle()
    if through == "write":
        handle.mutate(insert("Other", name="q"))
        handle.mutate(insert("Other", name="r"))

    with proving("REC-13"):
        assert crash.check_audit(handle, FORWARD)["recovery_for_actor"] == "mona"
        assert crash.forge.sidecars() == {}
        assert [row["id"] for row in handle.read(ITEM)] == ["a", "b", "c"]
        crash.check_second_open(handle)


# -- who may do what ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("REC-21")
@pytest.mark.parametrize("state", ["forward", "back", "settled", "deleted-branch", "garbage"])
def test_a_read_only_open_reads_the_published_rows_and_writes_nothing(
    judged: Judged, forge: ForgeOf, engine: Engine, state: str
) -> None:
    graph = judged(TWO, OTHERS)
    anvil = forge(graph.uri)
    before = rows_of(graph.handle)
    if state == "forward":
        Crashed.before_publish(graph, anvil, lambda: mutation(graph.handle), writer_kind="Mutation")
    elif state == "back":
        Crashed.half_way(graph, anvil, lambda: mutation(graph.handle), writer_kind="Mutation")
    elif state == "settled":
        anvil.write_sidecar(anvil.sidecar(writer_kind="Load", tables=[anvil.pin_of(ITEM, expected=1)]))
    elif state == "deleted-branch":
        anvil.write_sidecar(anvil.sidecar(branch="gone", tables=[anvil.pin_of(ITEM)]))
    else:
        anvil.write("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"{")
    graph.audited = state not in ("garbage",)
    listing = anvil.listing()

    handle = engine.open(graph.uri, read_only=True)

    with proving("REC-21"):
        assert rows_of(handle) == before
        assert handle.recovered == () and handle.recoveries() == []
        assert anvil.listing() == listing, "a reader has written to the store"


@pytest.mark.requirement("REC-26")
@pytest.mark.parametrize("op", ["optimize", "repair"])
def test_maintenance_is_refused_while_a_sidecar_is_pending(judged: Judged, forge: ForgeOf, op: str) -> None:
    graph = judged(TWO, OTHERS)
    crash = Crashed.half_way(graph, forge(graph.uri), lambda: mutation(graph.handle), writer_kind="Mutation")
    handle = crash.live_handle()
    listing = crash.forge.listing()

    with proving("REC-26"):
        if op == "optimize":
            refused("conflict", handle.optimize, "an optimize beside a pending sidecar")
        else:
            refused("conflict", handle.repair, "a repair beside a pending sidecar")
            refused("conflict", lambda: handle.repair(confirm=True, force=True), "a forced repair beside a sidecar")
        assert crash.forge.listing() == listing, "something was written before the refusal"
    crash.check_settled(crash.reopened(), "RolledBack")


# -- recoveries that were cut, and rivals ------------------------------------------------------------------------------


@pytest.mark.requirement("REC-18")
def test_a_restore_that_was_not_published_is_finished_and_not_repeated_for_ever(judged: Judged, forge: ForgeOf) -> None:
    """A recovery died between its restore and its publish: the HEAD has moved once more."""
    graph = judged(TWO, OTHERS)
    anvil = forge(graph.uri)
    pin = anvil.pin(ITEM)
    body = anvil.sidecar(tables=[anvil.pin_of(ITEM), anvil.pin_of(OTHER)])
    drift(anvil, ITEM, 1, rows=True)
    old: Any = anvil.storage(ITEM).checkout_version(pin)
    old.restore()
    crash = Crashed.with_sidecar(graph, anvil, body)

    handle = crash.reopened()

    with proving("REC-18"):
        crash.check_audit(handle, BACK)
        crash.check_sound(handle, crash.before)
        crash.check_second_open(handle)
        handle.mutate(insert("Item", name="new0"))


@pytest.mark.requirement("REC-14", "REC-18")
@pytest.mark.parametrize("kind", [FORWARD, BACK])
def test_a_sidecar_that_comes_back_after_its_recovery_changes_nothing(
    judged: Judged, forge: ForgeOf, kind: str
) -> None:
    """A recovery died between its last step and the removal of the sidecar: what it did is recorded already."""
    graph = judged(TWO, OTHERS)
    cut = Crashed.before_publish if kind == FORWARD else Crashed.half_way
    crash = cut(
        graph,
        forge(graph.uri),
        lambda: graph.handle.mutate(insert("Item", name="c"), insert("Other", name="p")),
        writer_kind="Mutation",
    )
    content = crash.forge.sidecars()[crash.sidecar_name]
    rows = rows_of(crash.reopened())
    crash.forge.write(crash.sidecar_name, content)

    handle = crash.reopened()

    with proving("REC-18"):
        crash.check_sound(handle, rows)
        handle.mutate(insert("Item", name="d"))
    with proving("REC-14"):
        found = [row["recovery_kind"] for row in crash.audits(handle)]
        assert found == [kind], f"the audit says {found} of one operation, and it was {kind} and nothing else"
    # That is all that may be wrong here, and it has been said.
    graph.audited = False
    graph.audit(but="recovery-duplicate")


@pytest.mark.requirement("REC-19")
def test_two_opens_that_race_for_one_sidecar_both_succeed(judged: Judged, forge: ForgeOf, peers: Peers) -> None:
    graph = judged(TWO, OTHERS)
    anvil = forge(graph.uri)
    pin = anvil.pin_of(ITEM)
    drift(anvil, ITEM, 1, rows=True)
    crash = Crashed.with_sidecar(graph, anvil, anvil.sidecar(writer_kind="Load", tables=[pin]))
    engines = [peers(), peers()]
    start, opened, failures = threading.Barrier(2), list[Handle](), list[EngineError]()

    def race(engine: Engine) -> None:
        start.wait(timeout=60)
        try:
            opened.append(engine.open(graph.uri))
        except EngineError as error:
            failures.append(error)

    threads = [threading.Thread(target=race, args=(each,)) for each in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)

    with proving("REC-19"):
        assert failures == [], f"an open that lost the race has failed: {failures}"
        assert len(opened) == 2
        for handle in opened:
            assert [row["id"] for row in handle.read(ITEM)] == ["a", "b", "new0"]
        handle = graph.engine.open(graph.uri)
        crash.check_audit(handle, FORWARD)
        assert anvil.sidecars() == {} and anvil.head(ITEM) == anvil.pin(ITEM)
