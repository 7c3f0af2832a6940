"""A whole engine behind the gate: every request that it sends has a known role, and it dies where it is told to."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from conformance.adapters import AdapterFault
from conformance.adapters.process import ProcessTransport
from conformance.judge.engine import Engine
from conformance.suites.graphs import (
    EVERYTHING,
    EVOLVED,
    PEOPLE,
    SOCIAL,
    delete,
    id_of,
    insert,
    lines,
    node,
    person,
    update,
    where,
)
from failpoints.gate import Gate, Port, Rule
from fixtures.stores.moto import MotoStore

pytestmark = pytest.mark.s3

DRIVER = f"cmd:{shlex.join([sys.executable, '-m', 'reference.cli', 'drive'])}"
WAIT_SECONDS = 120.0


@contextmanager
def engine_behind(port: Port, store: MotoStore) -> Iterator[Engine]:
    engine = Engine.connect(DRIVER, env=port.environment(store.env), timeout_seconds=WAIT_SECONDS)
    try:
        yield engine
    finally:
        engine.close()


def everything_that_an_engine_does(engine: Engine, social: str, things: str) -> None:
    """Each operation of the protocol at least once, on main and on a branch."""
    engine.init(social, SOCIAL)
    graph = engine.open(social)
    graph.load(lines(*PEOPLE))
    graph.mutate(insert("Person", name="dan", age=4))
    graph.mutate(update("Person", where("name", "dan"), age=5))
    commits = graph.commits()
    graph.commit(id_of(commits[0]))
    graph.diff({"commit": id_of(commits[-1])}, {"commit": id_of(commits[0])})
    graph.entity_at("node:Person", "ann")
    graph.branch_create("feat/one")
    graph.mutate(insert("Person", name="eve"), branch="feat/one")
    graph.load(lines(*PEOPLE, person("fay")), "overwrite", branch="feat/one")
    graph.merge("feat/one")
    graph.branch_create("other", "feat/one")
    graph.mutate(delete("Person", where("name", "fay")), branch="other")
    graph.branch_delete("other")
    graph.branch_delete("feat/one")
    graph.ensure_indices()
    graph.optimize()
    graph.schema_plan(EVOLVED)
    graph.schema_apply(EVOLVED)
    graph.mutate(delete("Person", where("name", "dan")))
    graph.cleanup(keep_versions=1)
    graph.repair(confirm=True)
    graph.refresh()
    graph.sync_branch("main")
    graph.export()
    graph.snapshot()
    graph.recoveries()
    graph.branch_list()
    graph.close()
    engine.init(things, EVERYTHING)
    graph = engine.open(things)
    blobs = [node("Thing", name=f"t{number}", text="x" * 300_000, photo="base64:AAEC") for number in range(40)]
    graph.load(lines(*blobs))
    graph.read("node:Thing")
    graph.close()


def test_every_request_of_an_engine_has_a_known_role(moto_store: MotoStore) -> None:
    with Gate(moto_store.endpoint) as gate:
        port = gate.port("engine")
        with engine_behind(port, moto_store) as engine:
            everything_that_an_engine_does(engine, moto_store.fresh_root(), moto_store.fresh_root())
        unknown = [each.as_json() for each in gate.exchanges() if each.role == "other" or each.verb == "OTHER"]
    assert unknown == []
    assert gate.in_flight() == 0


def test_an_engine_that_dies_before_its_publish_is_recovered_by_the_next_one(moto_store: MotoStore) -> None:
    uri = moto_store.fresh_root()
    with Gate(moto_store.endpoint) as gate:
        port = gate.port("first")
        with engine_behind(port, moto_store) as engine:
            engine.init(uri, SOCIAL)
            graph = engine.open(uri)
            held = gate.arm(Rule("hold", owner="first", verbs=("PUT",), roles=("manifest version",), times=None))
            with ThreadPoolExecutor(1) as background:
                writing = background.submit(graph.mutate, insert("Person", name="zoe"))
                assert held.wait(WAIT_SECONDS).table == "__manifest"
                transport = engine.adapter.transport  # type: ignore[attr-defined]
                assert isinstance(transport, ProcessTransport)
                transport.kill()
                assert isinstance(writing.exception(WAIT_SECONDS), AdapterFault)
        port.close()
        assert gate.exchanges("first")[-1].outcome == "refused" and gate.in_flight() == 0
        held.disarm()
        before = gate.mark()
        with engine_behind(gate.port("second"), moto_store) as engine:
            graph = engine.open(uri)
            assert [each["recovery_kind"] for each in graph.recovered] == ["RolledForward"]
            assert [row["id"] for row in graph.read("node:Person")] == ["zoe"]
        roles = {each.role for each in gate.exchanges(since=before)}
        assert {"audit version", "audit data", "sidecar", "manifest version"} <= roles
        assert "other" not in roles
