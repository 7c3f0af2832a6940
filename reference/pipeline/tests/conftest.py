"""One Spark session for all tests of the pipeline, and words for why they are skipped where there can be none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from reference.errors import OmniError
from reference.pipeline.session import refuse_without_spark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests that need the session run in one worker: a second session would cost more than it saves."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        refuse_without_spark()
    except OmniError as reason:
        pytest.skip(str(reason))
    session = spark_session("local[2]")
    yield session
    session.stop()
