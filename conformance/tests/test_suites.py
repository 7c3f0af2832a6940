"""The suites keep themselves honest: every requirement has a test, every test a requirement, and both are known."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from conformance.coverage import OTHER_SURFACES, UNSEEN_FROM_OUTSIDE
from conformance.listing import Listed, by_requirement, listed_tests
from conformance.registry import requirements
from conformance.runner.plugin import SUITES


def test_every_must_has_a_test() -> None:
    bare = [each.id for each, names in by_requirement().items() if each.level == "must" and not names]

    assert bare == [], f"no test stands behind {', '.join(bare)}"


def test_every_should_that_an_engine_can_be_asked_for_has_a_test() -> None:
    bare = [
        each.id
        for each, names in by_requirement().items()
        if each.level == "should" and each.group not in OTHER_SURFACES and not names
    ]

    assert set(bare) <= UNSEEN_FROM_OUTSIDE.keys(), f"no test stands behind {', '.join(bare)}"
    assert sorted(bare) == sorted(UNSEEN_FROM_OUTSIDE), "what has a test now can be seen from outside after all"


def test_a_gap_is_never_asserted() -> None:
    asserted = {each for test in listed_tests() for each in test.requirements if requirements()[each].level == "gap"}

    assert asserted == set()


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.py")), ids=lambda path: path.stem)
def test_no_suite_knows_the_reference(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}

    assert not [name for name in imported if name.split(".")[0] == "reference"]


def test_a_test_is_listed_with_what_it_names() -> None:
    listed = Listed("test_lay_layout.py::test_a_graph_is_a_manifest_and_one_table_per_type", ("LAY-01", "LAY-02"))

    assert listed in listed_tests()
