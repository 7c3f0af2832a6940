"""What the gate costs: operations of pylance on an S3 store, through the gate against straight to the store.

    pytest cost_budgets/benchmarks/test_gate.py --benchmark-only

Both ways are taken in turns in one run, each on tables of its own. Only the ratio means anything.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import lance
import pyarrow as pa
import pytest

from cost_budgets.benchmarks.conftest import Ratios
from failpoints.gate import Gate
from fixtures.stores import moto, seaweedfs
from fixtures.stores.s3_server import S3Server, StoreUnavailable

ROUNDS: Final = 60
WARM_ROUNDS: Final = 5
BUDGET: Final = 1.2
ROWS: Final = pa.table({"id": [f"row-{number}" for number in range(100)], "value": list(range(100))})

SERVERS: Final[dict[str, Callable[[], AbstractContextManager[S3Server]]]] = {
    "moto": moto.running,
    "seaweedfs": seaweedfs.running,
}


@pytest.fixture(scope="module", params=list(SERVERS))
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, S3Server]]:
    try:
        with SERVERS[request.param]() as store:
            yield request.param, store
    except StoreUnavailable as reason:
        pytest.skip(str(reason))


def append(uri: str, options: dict[str, str]) -> None:
    lance.write_dataset(ROWS, uri, mode="append", storage_options=options)


def merge_insert(uri: str, options: dict[str, str]) -> None:
    table = lance.dataset(uri, storage_options=options)
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(ROWS)


def open_and_scan(uri: str, options: dict[str, str]) -> None:
    lance.dataset(uri, storage_options=options).to_table()


def create(uri: str, options: dict[str, str]) -> None:
    lance.write_dataset(ROWS, uri, storage_options=options)


@pytest.mark.parametrize(
    "operation",
    [create, append, merge_insert, open_and_scan],
    ids=["create", "append", "merge_insert", "open and scan"],
)
def test_the_gate_against_the_store_itself(
    operation: Callable[[str, dict[str, str]], None], server: tuple[str, S3Server], benchmark: Any, ratios: Ratios
) -> None:
    name, store = server
    with Gate(store.endpoint) as gate:
        ways = (store.storage_options, store.storage_options_at(gate.port("benchmark").endpoint))
        seconds: tuple[list[float], list[float]] = ([], [])
        for number in range(WARM_ROUNDS + ROUNDS):
            # Both ways begin from the same table, and who goes first changes: the second finds a warmer store.
            for way in (0, 1) if number % 2 else (1, 0):
                taken = _timed(operation, store, ways[way])
                if number >= WARM_ROUNDS:
                    seconds[way].append(taken)
        direct, through = (statistics.median(each) for each in seconds)
        title = f"{operation.__name__.replace('_', ' ')} on {name} through the gate"
        ratios.add(title, through / direct, budget=BUDGET, of="the same without it")
        benchmark.pedantic(lambda: _timed(operation, store, ways[1]), rounds=5)
        assert gate.in_flight() == 0 and gate.mark() > 0


def _timed(operation: Callable[[str, dict[str, str]], None], store: S3Server, options: dict[str, str]) -> float:
    uri = f"{store.fresh_root()}/table.lance"
    if operation is not create:
        create(uri, options)  # By the same way: what a client keeps open from it helps both alike.
    started = time.perf_counter()
    operation(uri, options)
    return time.perf_counter() - started
