"""Graphs to audit: one sound graph is written per session, and each test damages a copy of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.audit.tests.forge import SCHEMA, Forgery, copy_of, write_graph
from reference.graph import Graph


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Forgery:
    return write_graph(tmp_path_factory.mktemp("audit") / "graph")


@pytest.fixture(scope="session")
def empty_template(tmp_path_factory: pytest.TempPathFactory) -> Forgery:
    path = tmp_path_factory.mktemp("audit") / "empty"
    Graph.init(str(path), SCHEMA)
    return Forgery(path)


@pytest.fixture
def forgery(template: Forgery, tmp_path: Path) -> Forgery:
    """A copy of the sound graph, main only, to be damaged."""
    return copy_of(template, tmp_path / "graph")


@pytest.fixture
def empty(empty_template: Forgery, tmp_path: Path) -> Forgery:
    """A copy of a graph that was only initialized."""
    return copy_of(empty_template, tmp_path / "graph")


@pytest.fixture
def branched(tmp_path: Path) -> Forgery:
    """A sound graph with a branch `feature` that has written its people, and a branch `child` of it that has not."""
    forgery = write_graph(tmp_path / "graph")
    graph = forgery.graph()
    graph.branch_create("feature", "main")
    graph.mutate([{"op": "insert", "type": "Person", "data": {"handle": "dan"}}], branch="feature")
    graph.branch_create("child", "feature")
    return forgery
