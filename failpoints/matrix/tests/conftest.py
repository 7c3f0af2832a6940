"""What the tests of the matrix share: the crew of the reference on a local directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from failpoints.matrix import Crew
from fixtures.stores.catalog import Store, running


@pytest.fixture(scope="session")
def local() -> Iterator[Store]:
    with running("local") as store:
        yield store


@pytest.fixture(scope="session")
def crew(quick: Callable[[str], str], local: Store) -> Iterator[Crew]:
    with Crew(quick("reference"), {}, local.fresh_root) as found:
        yield found
