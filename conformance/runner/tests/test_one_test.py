"""A test that is repeated from its trace is the one that failed, whatever engine and store it failed on."""

from __future__ import annotations

import pytest

from conformance.runner.plugin import _only

THERE = [
    "test_val.py::test_rules[reference-local-core-VAL-13]",
    "test_val.py::test_rules[reference-local-core-VAL-15]",
    "test_val.py::test_other[reference-local-core-VAL-13]",
    "test_lay.py::test_alone[reference-local]",
]


@pytest.mark.parametrize(
    ("meant", "those"),
    [
        ("test_val.py::test_rules[cmd.my-driver-minio-container-core-VAL-13]", THERE[:1]),
        ("test_val.py::test_rules[reference-local-core-VAL-15]", THERE[1:2]),
        ("test_val.py::test_rules[reference-moto-core-VAL-99]", THERE[:2]),
        ("test_val.py::test_rules", THERE[:2]),
        ("test_lay.py::test_alone[mutant.x-moto]", THERE[3:]),
        ("test_val.py::test_nothing", []),
    ],
    ids=["other place", "same place", "no such axes", "no axes named", "no axes", "no such test"],
)
def test_the_axes_of_a_test_are_those_that_are_neither_engine_nor_store(meant: str, those: list[str]) -> None:
    assert _only(meant, THERE) == set(those)


def test_without_a_name_all_are_meant() -> None:
    assert _only(None, THERE) is None
