"""The reference engine on every store that is here, against bare pylance on the same store.

    pytest cost_budgets/benchmarks/test_stores.py --benchmark-only
    pytest cost_budgets/benchmarks/test_stores.py --benchmark-only -k minio

Nothing here fails for being slow: ratios are printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from conformance.judge import Engine
from cost_budgets.benching import Place, in_turns, ratio_of
from cost_budgets.benchmarks.conftest import Ratios
from fixtures.stores.catalog import STORES, Store, StoreUnavailable, running

ROUNDS: Final = 12
# What is taken on a local directory, with no network in it; on S3 requests are counted (`touchstone cost`).
BUDGET: Final = 15.0


@pytest.fixture(scope="module", params=[name for name in STORES if name != "endpoint"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    reason = STORES[request.param].missing()
    if reason is not None:
        pytest.skip(f"the store '{request.param}' cannot run here: {reason}")
    try:
        with running(request.param) as found:
            yield found
    except StoreUnavailable as refusal:
        pytest.skip(str(refusal))


def test_the_engine_against_bare_lance(store: Store, benchmark: Any, ratios: Ratios) -> None:
    with closing(Engine.connect("reference", env=store.env)) as engine:
        place = Place(engine, store)
        for title, ours, bare in place.pairs():
            found = ratio_of(title, *in_turns(ROUNDS, ours, ours, bare))
            ratios.add(f"{title} on {store.name}", found.ratio, budget=BUDGET, of="bare pylance")
        insert = place.pairs()[0][1]
        benchmark.pedantic(insert, rounds=ROUNDS)
