"""Formulas of budgets: a ceiling and a slope per variable, written as people write them.

    33 + 2 F          thirty-three, and two for each fragment
    T                 one for each table that is touched

    T   tables that the operation touches         B   branches besides main
    H   commits of main                           R   rows that it writes
    F   fragments of the tables that it touches, and their deletion files
    C   tables of the catalog, touched or not

Pure: text and numbers in, numbers out.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

VARIABLES: Final = {
    "T": "tables touched",
    "H": "commits of main",
    "B": "branches besides main",
    "R": "rows written",
    "F": "fragments of the tables touched",
    "C": "tables of the catalog",
}
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
# More than anybody counts: who writes more has slipped.
_LARGEST: Final = 10**12
_TERM: Final = re.compile(rf"(?P<number>{_NUMBER})|(?:(?P<slope>{_NUMBER})\s*\*?\s*)?(?P<name>[A-Za-z_]\w*)")


_EXPONENT: Final = re.compile(rf"{_NUMBER}[eE][0-9]+.*")
_SHOWN_MAX: Final = 40
_DECIMALS: Final = 6


class FormulaError(ValueError):
    """A formula that nobody can compute: what is wrong with it."""


@dataclass(frozen=True)
class Formula:
    """A constant, and so much for each unit of a variable."""

    constant: float
    slopes: Mapping[str, float]

    def at(self, variables: Mapping[str, float]) -> float:
        """So much is allowed there. As binary fractions 1.15 for each of 200 would be a little less than 230."""
        exact = self.constant + sum(slope * variables[name] for name, slope in self.slopes.items())
        return round(exact, _DECIMALS)

    def __str__(self) -> str:
        terms = [f"{self.constant:g}"] if self.constant or not self.slopes else []
        terms += [name if slope == 1 else f"{slope:g} {name}" for name, slope in self.slopes.items()]
        return " + ".join(terms)


def parse_formula(text: object) -> Formula:
    """Read a formula; a number is one too."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        if not 0 <= text <= _LARGEST:
            raise FormulaError(f"{_shown(text)} cannot be counted: give a number from 0 to {_LARGEST}, none below 0")
        text = f"{text:.6f}".rstrip("0").rstrip(".") if isinstance(text, float) else str(text)
    if not isinstance(text, str) or not text.strip():
        raise FormulaError(f"{_cut(reprlib.repr(text))} is no formula; write for example 33 + 2 F")
    constant, slopes = 0.0, dict[str, float]()
    for term in text.split("+"):
        match = _TERM.fullmatch(term.strip())
        if match is None or not term.strip() or _EXPONENT.fullmatch(term.strip()):
            raise FormulaError(f"'{_cut(term.strip())}' in '{_cut(text)}' is no term: {_why_no_term(term)}")
        name, number = match["name"], match["number"] or match["slope"]
        if number is not None and float(number) > _LARGEST:
            raise FormulaError(f"'{_cut(term.strip())}' is more than anybody counts; the largest number is {_LARGEST}")
        if name is None:
            constant += float(match["number"])
        elif name not in VARIABLES:
            known = ", ".join(f"{each} ({words})" for each, words in VARIABLES.items())
            raise FormulaError(f"there is no variable '{name}'; there are {known}")
        else:
            slopes[name] = slopes.get(name, 0.0) + float(match["slope"] or 1)
    return Formula(constant, slopes)


def _why_no_term(term: str) -> str:
    if "-" in term:
        return "nothing is taken away in a formula, and no number is below 0; write for example 33 + 2 F"
    if _EXPONENT.fullmatch(term.strip()):
        return "numbers have no exponent; write for example 33 + 2 F"
    return "write for example 33 + 2 F"


def _cut(text: str) -> str:
    """As much of a text as a message needs."""
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _shown(number: int | float) -> str:
    """A number for people; a whole one may be larger than any float, and have more digits than Python prints."""
    return f"{number:g}" if isinstance(number, float) or abs(number) < 10**300 else "one of hundreds of digits"


def fitted_slope(points: list[tuple[float, float]]) -> float:
    """The slope of the straight line that is nearest to all points; 0 where there is only one place to look at."""
    if len({x for x, _ in points}) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
