"""A gate in front of moto, and a port of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from failpoints.gate import Gate, Port
from fixtures.stores.moto import MotoStore


@pytest.fixture
def gate(moto_store: MotoStore) -> Iterator[Gate]:
    with Gate(moto_store.endpoint) as opened:
        yield opened


@pytest.fixture
def port(gate: Gate) -> Port:
    return gate.port("engine")
