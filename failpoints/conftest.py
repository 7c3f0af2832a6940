"""What tests of several instruments share: drivers of this project that start at once, and an S3 store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from conformance.adapters.hosting import as_process
from failpoints.nursery import nursery
from fixtures.stores.catalog import S3, Store
from fixtures.stores.moto import MotoStore


@pytest.fixture
def place(moto_store: MotoStore) -> Store:
    """The S3 server of the session, as a store in which a test has graphs of its own."""
    return Store("moto", moto_store.env, moto_store.fresh_root, lambda uri: None, frozenset({S3}))


@pytest.fixture(scope="session")
def quick() -> Iterator[Callable[[str], str]]:
    """Drivers of the reference and of its mutants that start at once."""
    with nursery("reference.driver", "fixtures.mutants") as through:
        yield lambda spec: through(as_process(spec))
