"""Fixtures for all tests of the pipeline: one Spark session, and nobody in its place."""

from __future__ import annotations

import pytest

from reference.pipeline.tests.no_spark import nobody
from reference.pipeline.tests.spark_fixture import spark

__all__ = ["nobody", "spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests that need the session run in one worker: a second session would cost more than it saves."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
