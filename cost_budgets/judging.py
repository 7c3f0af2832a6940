"""The verdict: what was measured, held against what was budgeted. Pure.

A budget is broken at a point that costs more than its formula allows there, or less than it must; or by growth: when
the line through all points climbs with what the graph varies (history, branches, rows, tables) faster than the formula
does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from cost_budgets.budgets import Budget
from cost_budgets.formulas import Formula, fitted_slope
from cost_budgets.measuring import Measured, Point
from cost_budgets.operations import JUST_OPTIMIZED, VARIED, Ground

Verdict = Literal["ok", "over", "under", "grows"]
# A line through whole numbers is never quite flat: it grows if it climbs by more requests than that over all depths,
# or, of keys and bytes, by more than such a part of what is allowed.
RISE_TOLERANCE: Final = 5.0
SIZE_TOLERANCE: Final = 0.1
# What is bounded goes up and down, so a line says little of it. But it comes back to its floor: the least of the deeper
# half of the points is near the least of the other half, within such a part of the ceiling. Where there are too few
# points for that, none need be near the floor, and all may lie on a line: but not up to half of the ceiling.
FLOOR_TOLERANCE: Final = 0.25
BOUNDED_TOLERANCE: Final = 0.5
FLOOR_POINTS_MIN: Final = 4
_SIZES: Final = ("listed keys", "bytes read", "bytes fetched", "bytes written")


@dataclass(frozen=True)
class Line:
    """One measure of one operation on one graph: what it was at each point, and what it may be."""

    operation: str
    ground: Ground
    measure: str
    formula: Formula
    values: tuple[int, ...]
    limits: tuple[float, ...]
    variables: tuple[Mapping[str, float], ...]
    along: str
    slope: float
    slope_limit: float
    verdict: Verdict
    bound: Literal["at_most", "at_least"] = "at_most"
    # By how much the slope may be above its limit: a line through whole numbers is never quite flat.
    slope_tolerance: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "ground": self.ground,
            "measure": self.measure,
            "bound": self.bound,
            "formula": str(self.formula),
            "points": [
                {**{name: int(number) for name, number in variables.items()}, "measured": value, "limit": limit}
                for variables, value, limit in zip(self.variables, self.values, self.limits, strict=True)
            ],
            "along": self.along,
            "slope": round(self.slope, 4),
            "slope_limit": round(self.slope_limit, 4),
            "slope_tolerance": round(self.slope_tolerance, 4),
            "verdict": self.verdict,
        }


def judge(measured: Measured, budgets: Mapping[str, Budget]) -> list[Line]:
    """A line for each measure that is budgeted, in the order of the measurements."""
    lines = []
    for (operation, ground), points in measured.points.items():
        if operation in budgets:
            lines += list(_lines(budgets[operation], ground, points))
    return lines


def _lines(budget: Budget, ground: Ground, points: Sequence[Point]) -> Iterator[Line]:
    variables = tuple(point.variables for point in points)
    is_optimized = ground in JUST_OPTIMIZED
    bounded = () if is_optimized else budget.bounded
    along = VARIED.get(ground, "H")
    span = max(each[along] for each in variables) - min(each[along] for each in variables)
    for measure, formula in _ceilings(budget, variables) if is_optimized else budget.at_most.items():
        values = tuple(point.tally.measure(measure) for point in points)
        limits = tuple(formula.at(each) for each in variables)
        slope = fitted_slope([(each[along], value) for each, value in zip(variables, values, strict=True)])
        slope_limit = fitted_slope([(each[along], limit) for each, limit in zip(variables, limits, strict=True)])
        tolerance = _tolerance(measure, limits, is_bounded=measure in bounded)
        rise = (slope - slope_limit) * span
        if measure in bounded and len(points) >= FLOOR_POINTS_MIN:
            # What a formula allows to grow is no growth.
            beyond = zip((each[along] for each in variables), values, limits, strict=True)
            rise = _rise_of_the_floor([(at, value - limit) for at, value, limit in beyond])
        verdict: Verdict = "ok"
        if any(value > limit for value, limit in zip(values, limits, strict=True)):
            verdict = "over"
        elif rise > tolerance:
            verdict = "grows"
        yield Line(
            operation=budget.operation,
            ground=ground,
            measure=measure,
            formula=formula,
            values=values,
            limits=limits,
            variables=variables,
            along=along,
            slope=slope,
            slope_limit=slope_limit,
            verdict=verdict,
            slope_tolerance=tolerance / span if span else 0.0,
        )
    for measure, formula in budget.at_least.items():
        values = tuple(point.tally.measure(measure) for point in points)
        limits = tuple(formula.at(each) for each in variables)
        less = any(value < limit for value, limit in zip(values, limits, strict=True))
        yield Line(
            operation=budget.operation,
            ground=ground,
            measure=measure,
            formula=formula,
            values=values,
            limits=limits,
            variables=variables,
            along=along,
            slope=0.0,
            slope_limit=0.0,
            verdict="under" if less else "ok",
            bound="at_least",
        )


def _ceilings(budget: Budget, variables: Sequence[Mapping[str, float]]) -> list[tuple[str, Formula]]:
    """What holds after an optimize: of a measure that has two ceilings the second one, and both where that is not
    the lower one."""
    both = [(name, usual, budget.after_optimize.get(name)) for name, usual in budget.at_most.items()]
    is_needed = [(name, usual) for name, usual, then in both if then is None or _is_above(then, usual, variables)]
    return [*is_needed, *budget.after_optimize.items()]


def _is_above(one: Formula, other: Formula, variables: Sequence[Mapping[str, float]]) -> bool:
    return any(one.at(each) > other.at(each) for each in variables)


def _tolerance(measure: str, limits: Sequence[float], *, is_bounded: bool) -> float:
    usual = SIZE_TOLERANCE * max(limits) if measure in _SIZES else RISE_TOLERANCE
    if not is_bounded:
        return usual
    part = FLOOR_TOLERANCE if len(limits) >= FLOOR_POINTS_MIN else BOUNDED_TOLERANCE
    return max(usual, part * max(limits))


def _rise_of_the_floor(points: Sequence[tuple[float, float]]) -> float:
    """How far the least of the deeper half of the points is above the least of the other half."""
    in_order = [value for _, value in sorted(points)]
    half = len(in_order) // 2
    return min(in_order[half:]) - min(in_order[:half])
