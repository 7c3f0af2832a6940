"""Names of temporary folders, which mean nothing to who reads a report somewhere else."""

from __future__ import annotations

import re
from typing import Any, Final

# Where an engine or a test is quoted. Commands and addresses stay what they were.
_QUOTES: Final = frozenset({"because", "message"})
# Folders of ours and of Python's `tempfile` end in eight characters by chance, and may lie in each other. Engines leave
# out the first slash of a path. What follows a colon or a slash is part of an address.
_FOLDERS: Final = re.compile(
    r"(?<![\w.:/-])(?:file://)?/?(?:[\w.-]+/)*(?:(?:touchstone-(?:[a-z]+-)?|tmp)[a-z0-9_]{8}(?:/|(?![\w.-])))+"
)


def without_scratch(value: Any, name: str = "") -> Any:
    """A report in which every quoted text is as it would be, had its graphs been in the working directory.

    >>> without_scratch({"because": "dev/shm/touchstone-a1b2c3d4/touchstone-_zyxwvu9/graph-7/nodes is not there"})
    {'because': 'graph-7/nodes is not there'}
    """
    if isinstance(value, str):
        return _FOLDERS.sub(_left, value) if name in _QUOTES else value
    if isinstance(value, dict):
        return {each: without_scratch(found, each) for each, found in value.items()}
    if isinstance(value, list):
        return [without_scratch(each, name) for each in value]
    return value


def _left(found: re.Match[str]) -> str:
    """Nothing before what lies in the folder; a folder that is named itself is the one that a reader is in."""
    return "" if found[0].endswith("/") else "."
