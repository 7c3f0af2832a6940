"""What tests of several instruments share: drivers of this project that start at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from conformance.adapters.hosting import as_process
from failpoints.nursery import nursery


@pytest.fixture(scope="session")
def quick() -> Iterator[Callable[[str], str]]:
    """Drivers of the reference and of its mutants that start at once."""
    with nursery("reference.driver", "fixtures.mutants") as through:
        yield lambda spec: through(as_process(spec))
