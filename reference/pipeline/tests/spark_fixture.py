"""The one Spark session of a test run: for the tests of the pipeline, and for its benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

from reference.errors import OmniError
from reference.pipeline.session import refuse_without_spark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local[2]"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine. Where there can be none, its tests are skipped, with the reason."""
    try:
        refuse_without_spark()
    except OmniError as reason:
        pytest.skip(str(reason))
    session = spark_session(MASTER)
    yield session
    session.stop()
