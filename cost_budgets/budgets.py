"""The budgets: read from TOML, checked, and each mistake said with its line.

    [insert-node]
    guards = ["COST-03", "COST-08"]           the requirements that it stands for
    tripwires = ["validates-twice"]           costly engines that must break it
    at_most = { requests = "33 + 2 F" }       what it may cost
    at_least = { reads = "1" }                what is less than that cannot be right
    after_optimize = { LIST = "6" }           what holds as well where the graph was just optimized
    bounded = ["manifest"]                    these may go up and down below their ceilings

An engine may tidy up now and then: what is bounded may climb by half of its ceiling before it counts as growth.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conformance.registry import requirements
from cost_budgets.counters import MEASURES
from cost_budgets.formulas import Formula, FormulaError, parse_formula
from cost_budgets.operations import OPERATIONS
from fixtures.mutants import MUTANTS

BUDGETS: Final = Path(__file__).with_name("budgets.toml")
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
    except (OSError, UnicodeDecodeError) as error:
        raise BudgetError(f"{path}: cannot be read: {error}") from error
    try:
        body = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BudgetError(f"{path}: is no TOML: {error}") from error
    return {name: _Reader(path, text, name).budget(table) for name, table in body.items()}


class _Reader:
    """Reads the budget of one operation, and knows where in the file everything is."""

    def __init__(self, path: Path, text: str, operation: str) -> None:
        self._path = path
        # Where a name stands in a comment it says nothing. No name of a budget has a hash in it.
        self._lines = [line.partition("#")[0] for line in text.splitlines()]
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
                raise self._wrong(("guards",), f"there is no requirement '{guarded}'")
        for name in budget.tripwires:
            if name not in MUTANTS or "cost" not in MUTANTS[name].caught_by:
                raise self._wrong(("tripwires",), f"there is no costly engine '{name}'")
        for measure in budget.bounded:
            if measure not in budget.at_most:
                raise self._wrong(("bounded",), f"'{measure}' is bounded, and has no ceiling in at_most")
        if budget.after_optimize and "optimized" not in OPERATIONS[self._operation].grounds:
            raise self._wrong(("after_optimize",), f"'{self._operation}' is not measured after an optimize")
        if not budget.guards:
            raise self._wrong(("guards",), f"the budget of '{self._operation}' names no requirement that it guards")
        if not budget.at_most and not budget.at_least:
            raise self._wrong((), f"the budget of '{self._operation}' limits nothing: give at_most")
        return budget

    def _names(self, table: Mapping[str, Any], field: str) -> tuple[str, ...]:
        names = table.get(field, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self._wrong((field,), f"'{field}' is no list of names")
        return tuple(names)

    def _formulas(self, table: Mapping[str, Any], field: str) -> dict[str, Formula]:
        given = table.get(field, {})
        if not isinstance(given, dict):
            raise self._wrong((field,), f"'{field}' is no table of formulas")
        found = {}
        for measure, text in given.items():
            if measure not in MEASURES:
                known = ", ".join(MEASURES)
                raise self._wrong((field, measure), f"nothing is counted as '{measure}'; there are {known}")
            try:
                found[measure] = parse_formula(text)
            except FormulaError as error:
                raise self._wrong((field, measure), str(error)) from None
        return found

    def _wrong(self, at: tuple[str, ...], why: str) -> BudgetError:
        return BudgetError(f"{self._path}:{self._line(at)}: {why}")

    def _line(self, at: tuple[str, ...]) -> int:
        """The line of a field: the last of its names that is found below the operation's header."""
        header = re.compile(rf"\s*\[\s*[\"']?{re.escape(self._operation)}[\"']?\s*[.\]]")
        start = next((number for number, line in enumerate(self._lines, 1) if header.match(line)), 1)
        found = start
        for name in at:
            word = re.compile(rf"(^|[\s{{,.\[])[\"']?{re.escape(name)}[\"']?\s*(=|\])")
            for number, line in enumerate(self._lines[found - 1 :], found):
                if number > start and line.lstrip().startswith("[") and not header.match(line):
                    break
                if word.search(line):
                    found = number
                    break
        return found
