"""Formulas: what people write, what it comes to, and what is refused."""

from __future__ import annotations

import pytest

from cost_budgets.formulas import FormulaError, fitted_slope, parse_formula

POINT = {"T": 2.0, "H": 100.0, "B": 4.0, "R": 64.0, "F": 10.0}


@pytest.mark.parametrize(
    ("text", "number", "shown"),
    [
        ("33", 33, "33"),
        (33, 33, "33"),
        ("33 + 2 F", 53, "33 + 2 F"),
        ("33 + 2*F", 53, "33 + 2 F"),
        ("T", 2, "T"),
        ("0", 0, "0"),
        ("1 + 0.5 H + B", 55, "1 + 0.5 H + B"),
        ("F + F", 20, "2 F"),
        ("R + 1", 65, "1 + R"),
    ],
)
def test_a_formula_is_a_ceiling_and_slopes(text: object, number: float, shown: str) -> None:
    assert parse_formula(text).at(POINT) == number
    assert str(parse_formula(text)) == shown


@pytest.mark.parametrize(("text", "depth", "number"), [("1.15 H", 200, 230), ("0.29 H", 100, 29), ("1.1 H", 50, 55)])
def test_what_is_allowed_is_no_fraction_less_or_more_than_written(text: str, depth: int, number: int) -> None:
    assert parse_formula(text).at({**POINT, "H": float(depth)}) == number


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("33 + 2 Q", "there is no variable 'Q'; there are T (tables touched)"),
        ("", "is no formula"),
        ("3 +", "is no term"),
        ("*", "is no term"),
        ("5 *", "is no term"),
        ("2 ^ H", "is no term"),
        ("-3", "'-3' in '-3' is no term: nothing is taken away in a formula, and no number is below 0"),
        ("88 - 0.5 F", "nothing is taken away in a formula"),
        ("1e4", "numbers have no exponent"),
        ("9" * 400 + "?", f"'{'9' * 40}…' in '{'9' * 40}…' is no term: "),
        (True, "is no formula"),
        ([], "is no formula"),
    ],
)
def test_what_cannot_be_computed_is_refused(text: object, why: str) -> None:
    with pytest.raises(FormulaError) as refused:
        parse_formula(text)
    assert why in str(refused.value)


def test_a_slope_is_fitted_over_all_points() -> None:
    """First against last would say that nothing grows."""
    assert fitted_slope([(0, 10), (10, 30), (20, 50)]) == 2
    assert fitted_slope([(0, 10), (10, 40), (20, 40), (30, 10)]) == 0
    assert fitted_slope([(0, 10), (10, 10), (20, 40), (30, 10)]) > 0
    assert fitted_slope([(5, 10), (5, 30)]) == 0
    assert fitted_slope([]) == 0
