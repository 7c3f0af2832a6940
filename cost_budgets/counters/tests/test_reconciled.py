"""Two counters of one thing: what the gate sees of Lance's requests is what Lance says that it sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.judge import Engine, Handle
from cost_budgets.counters import Tally, lance_counts
from cost_budgets.preparing import SCHEMA
from failpoints.gate import Exchange, Gate
from failpoints.writers import delete, insert, update
from fixtures.stores.catalog import Store, running

# What Lance calls the requests that the gate names by what S3 calls them.
NAMES = {
    "GET": "get",
    "HEAD": "head",
    "LIST": "list",
    "PUT": "put",
    "COPY": "copy",
    "DELETE": "delete",
    "bulk delete": "delete",
}


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running("moto") as found:
        yield found


def is_lances(exchange: Exchange) -> bool:
    """Datasets are Lance's. The engine's own are the schema, the sidecars, and its looks at a branch's ref and at the
    version that would come next."""
    if exchange.role in ("schema file", "sidecar", "graph root") or exchange.prefix.rstrip("/").endswith("__recovery"):
        return False
    looked_ahead = exchange.role == "table version" and exchange.answered == 404
    return not (exchange.verb == "HEAD" and (looked_ahead or exchange.role == "manifest ref"))


def test_on_a_local_directory_lance_itself_counts(tmp_path: Path) -> None:
    engine = Engine.connect("reference", env={})
    uri = str(tmp_path / "graph")
    engine.init(uri, SCHEMA)
    handle = engine.open(uri)
    handle.mutate(insert("Person", name="ann"))
    handle.read("node:Person")
    with lance_counts() as insertion:
        handle.mutate(insert("Person", name="bob"))
    with lance_counts() as nothing:
        pass
    assert insertion.operations["put"] >= 6, "a table's and the manifest's data, transaction and version"
    assert nothing.requests == 0


@pytest.mark.s3
def test_no_request_of_lance_is_missed_or_counted_twice_by_the_gate(store: Store) -> None:
    with Gate(store.env["AWS_ENDPOINT_URL_S3"]) as gate:
        port = gate.port("engine")
        engine = Engine.connect("reference", env=port.environment(store.env))
        uri = store.fresh_root()
        engine.init(uri, SCHEMA)
        handle = engine.open(uri)
        for what, act in STEPS.items():
            mark = gate.mark()
            with lance_counts() as counted:
                act(handle)
            gate.settle()
            exchanges = gate.exchanges(since=mark)
            tally = Tally.of(exchanges)
            assert tally.unclassified == (), what
            seen = Counter(NAMES[each.verb] for each in exchanges if is_lances(each))
            assert seen == counted.operations, what
        port.close()


def _insert(handle: Handle) -> object:
    return handle.mutate(insert("Person", name="ann", email="ann@x"), insert("Company", name="acme"))


STEPS: dict[str, Callable[[Handle], object]] = {
    "a first insert": _insert,
    "an insert": lambda handle: handle.mutate(insert("Person", name="bob")),
    "an update": lambda handle: handle.mutate(update("Person", "ann", age=3)),
    "a delete": lambda handle: handle.mutate(delete("Person", "bob")),
    "a read": lambda handle: handle.read("node:Person"),
    "optimize": lambda handle: handle.optimize(),
}
