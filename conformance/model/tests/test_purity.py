"""The model shares no code with an engine and touches nothing outside of memory."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

MODULES = sorted((Path(__file__).parents[1]).glob("*.py"))
TOUCH_THE_WORLD = {"os", "io", "pathlib", "socket", "subprocess", "tempfile", "time", "random"}


def test_the_model_imports_only_itself_and_what_is_pure() -> None:
    assert len(MODULES) > 8
    for path in MODULES:
        for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            top = name.partition(".")[0]
            own = name.startswith("conformance.model")
            assert own or (top in sys.stdlib_module_names and top not in TOUCH_THE_WORLD), f"{path.name} imports {name}"


def imports(tree: ast.AST) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append("." * node.level + (node.module or ""))
    return found
