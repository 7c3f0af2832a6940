"""The budgets: read from TOML, checked, and each mistake said with its line.

    [insert-node]
    guards = ["COST-03", "COST-08"]           the requirements that it stands for
    tripwires = ["validates-twice"]           costly engines that must break it
    at_most = { requests = "33 + 2 F" }       what it may cost
    at_least = { reads = "1" }                what is less than that cannot be right
    after_optimize = { LIST = "6" }           what holds as well where the graph was just optimized
    bounded = ["manifest"]                    these may go up and down below their ceilings

An engine may tidy up now and then: what is bounded may go up and down, if it comes back to its floor.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conformance.registry import requirements
from cost_budgets.counters import MEASURES
from cost_budgets.formulas import VARIABLES, Formula, FormulaError, parse_formula
from cost_budgets.operations import JUST_OPTIMIZED, OPERATIONS
from cost_budgets.toml_lines import lines_of
from fixtures.mutants import MUTANTS

BUDGETS: Final = Path(__file__).with_name("budgets.toml")
_PLACE: Final = re.compile(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")
_BYTE_ORDER_MARK: Final = "\ufeff"
_FIELDS: Final = ("guards", "tripwires", "at_most", "at_least", "after_optimize", "bounded")


class BudgetError(ValueError):
    """A file of budgets that cannot be meant: which file, which line, what is wrong."""


@dataclass(frozen=True)
class Budget:
    """What one operation may cost, and must."""

    operation: str
    guards: tuple[str, ...]
    tripwires: tuple[str, ...]
    at_most: dict[str, Formula]
    at_least: dict[str, Formula]
    after_optimize: dict[str, Formula] = field(default_factory=dict)
    bounded: tuple[str, ...] = ()


def read_budgets(path: Path = BUDGETS) -> dict[str, Budget]:
    """All budgets of a file, by operation; raises `BudgetError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BudgetError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BudgetError(f"{path}: is no text in UTF-8: {error.reason} at byte {error.start}") from error
    if text.startswith(_BYTE_ORDER_MARK):
        raise BudgetError(f"{path}:1: begins with a byte order mark, which TOML has not: save it as UTF-8 without one")
    try:
        body = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BudgetError(f"{path}:{_line_of(error, text)}: is no TOML: {_PLACE.sub('', str(error))}") from error
    except RecursionError:
        raise BudgetError(f"{path}:{_deepest_line(text)}: is nested deeper than any budget is") from None
    except ValueError:
        # Python reads no whole number of more than some thousand digits.
        raise BudgetError(f"{path}:{_longest_number(text)}: a number has more digits than anybody counts to") from None
    if not body:
        raise BudgetError(f"{path}: has no budget in it; write for example [insert-node]")
    lines = lines_of(text)
    return {name: _Reader(path, lines, name).budget(table) for name, table in body.items()}


def _line_of(error: tomllib.TOMLDecodeError, text: str) -> int:
    """Where TOML cannot be read: the reader says it in its words only, and calls the last line the end."""
    said = _PLACE.search(str(error))
    return int(said["line"]) if said and said["line"] else max(1, len(text.splitlines()))


def _deepest_line(text: str) -> int:
    """The first line in which more brackets are open than in any line before it."""
    line, depth, deepest, found = 1, 0, 0, 1
    for mark in text:
        line += mark == "\n"
        depth += (mark in "[{") - (mark in "]}")
        if depth > deepest:
            deepest, found = depth, line
    return found


def _longest_number(text: str) -> int:
    """The line with the longest row of digits."""
    lengths = [max(map(len, re.findall(r"[0-9_]+", line)), default=0) for line in text.split("\n")]
    return lengths.index(max(lengths)) + 1


class _Reader:
    """Reads the budget of one operation, and knows where in the file everything is."""

    def __init__(self, path: Path, lines: Mapping[tuple[str, ...], int], operation: str) -> None:
        self._path = path
        self._lines = lines
        self._operation = operation

    def budget(self, table: Any) -> Budget:
        if self._operation not in OPERATIONS:
            raise self._wrong((), f"there is no operation '{self._operation}'; there are {', '.join(OPERATIONS)}")
        if not isinstance(table, dict):
            raise self._wrong((), f"the budget of '{self._operation}' is no table")
        for name in table:
            if name not in _FIELDS:
                raise self._wrong((name,), f"there is no '{name}' in a budget; there are {', '.join(_FIELDS)}")
        budget = Budget(
            self._operation,
            self._names(table, "guards"),
            self._names(table, "tripwires"),
            self._formulas(table, "at_most"),
            self._formulas(table, "at_least"),
            self._formulas(table, "after_optimize"),
            self._names(table, "bounded"),
        )
        known = requirements()
        for guarded in budget.guards:
            if guarded not in known:
                raise self._wrong(("guards", guarded), f"there is no requirement '{guarded}'")
        for name in budget.tripwires:
            if name not in MUTANTS or "cost" not in MUTANTS[name].caught_by:
                raise self._wrong(("tripwires", name), f"there is no costly engine '{name}'")
        for measure in budget.bounded:
            self._refuse_unknown_measure("bounded", measure)
            if measure not in budget.at_most:
                raise self._wrong(("bounded", measure), f"'{measure}' is bounded, and has no ceiling in at_most")
        self._refuse_the_impossible(budget)
        if budget.after_optimize and not set(JUST_OPTIMIZED) & set(OPERATIONS[self._operation].grounds):
            raise self._wrong(("after_optimize",), f"'{self._operation}' is not measured after an optimize")
        if not budget.guards:
            raise self._wrong(("guards",), f"the budget of '{self._operation}' names no requirement that it guards")
        if not (budget.at_most or budget.at_least or budget.after_optimize):
            given = "give at_most, at_least or after_optimize"
            raise self._wrong((), f"the budget of '{self._operation}' limits nothing: {given}")
        return budget

    def _refuse_the_impossible(self, budget: Budget) -> None:
        """A floor that is above its ceiling on small and on large graphs is a mistake."""
        operation = OPERATIONS[self._operation]
        given = {"T": float(len(operation.touches))}
        if "loads" not in operation.grounds:
            given["R"] = float(operation.rows)
        # Who touches no table has no fragments either.
        if not operation.touches:
            given["F"] = 0.0
        points = [dict.fromkeys(VARIABLES, number) | given for number in (1.0, 100.0)]
        for measure, floor in budget.at_least.items():
            for limits in (budget.at_most, budget.after_optimize):
                ceiling = limits.get(measure)
                if ceiling is not None and all(floor.at(point) > ceiling.at(point) for point in points):
                    why = f"'{measure}' must be at least {floor} and at most {ceiling}: nothing can be both"
                    raise self._wrong(("at_least", measure), why)

    def _names(self, table: Mapping[str, Any], field: str) -> tuple[str, ...]:
        names = table.get(field, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self._wrong((field,), f"'{field}' is no list of names")
        twice = [name for name, number in Counter(names).items() if number > 1]
        if twice:
            raise self._wrong((field, twice[0]), f"'{twice[0]}' stands in '{field}' twice")
        return tuple(names)

    def _formulas(self, table: Mapping[str, Any], field: str) -> dict[str, Formula]:
        given = table.get(field, {})
        if not isinstance(given, dict):
            raise self._wrong((field,), f"'{field}' is no table of formulas")
        found = {}
        for measure, text in given.items():
            self._refuse_unknown_measure(field, measure)
            try:
                found[measure] = parse_formula(text)
            except FormulaError as error:
                raise self._wrong((field, measure), str(error)) from None
        return found

    def _refuse_unknown_measure(self, field: str, measure: str) -> None:
        if measure not in MEASURES:
            known = ", ".join(MEASURES)
            raise self._wrong((field, measure), f"nothing is counted as '{measure}'; there are {known}")

    def _wrong(self, at: tuple[str, ...], why: str) -> BudgetError:
        return BudgetError(f"{self._path}:{self._line(at)}: {why}")

    def _line(self, at: tuple[str, ...]) -> int:
        """The line of the innermost of these names that stands in the file."""
        path = (self._operation, *at)
        return next((self._lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self._lines), 1)
