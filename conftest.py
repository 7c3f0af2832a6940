"""Fixtures that every room's tests share: stores, and an environment without anybody's AWS settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fixtures.stores import SET_ASIDE, EmptyRoot, moto
from fixtures.stores.moto import MotoStore

# The same examples in every run, and none that fails because the machine is busy: slowness is not an error here.
settings.register_profile(
    "touchstone", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("touchstone")


@pytest.fixture(scope="session", autouse=True)
def clean_aws_environment() -> Iterator[None]:
    """No test talks to a store of the person who runs it: AWS_ENDPOINT_URL_S3 would win over every option."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(autouse=True)
def nothing_set_aside() -> Iterator[None]:
    """A run in this process sets variables of an endpoint aside for those that it starts, and not for the next test."""
    yield
    for name in [name for name in os.environ if name.startswith(SET_ASIDE)]:
        del os.environ[name]


@pytest.fixture(scope="session")
def moto_store() -> Iterator[MotoStore]:
    """One S3 server for the session, or for the xdist worker. Give each test a prefix of its own."""
    try:
        with moto.running() as store:
            yield store
    except moto.StoreUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def graph_root(request: pytest.FixtureRequest, tmp_path: Path) -> EmptyRoot:
    """Runs a test on a local directory and again on S3."""
    if request.param == "local":
        return EmptyRoot(str(tmp_path / "graph"), {})
    store: MotoStore = request.getfixturevalue("moto_store")
    return EmptyRoot(store.fresh_root(), store.env)
