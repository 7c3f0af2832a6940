"""Names of temporary folders, which mean nothing to who reads a report somewhere else."""

from __future__ import annotations

import re
from typing import Any, Final

# Folders of ours and of Python's `tempfile` end in eight characters by chance, and may lie in each other. Engines leave
# out the first slash of a path.
_FOLDERS: Final = re.compile(r"/?(?:[\w.-]+/)*(?:(?:touchstone-(?:[a-z]+-)?|tmp)[a-z0-9_]{8}/)+")


def without_scratch(value: Any) -> Any:
    """A report with every text as it would be, had its graphs been in the working directory.

    >>> without_scratch({"because": ["dev/shm/touchstone-a1b2c3d4/touchstone-_zyxwvu9/graph-7/nodes is not there"]})
    {'because': ['graph-7/nodes is not there']}
    """
    if isinstance(value, str):
        return _FOLDERS.sub("", value)
    if isinstance(value, dict):
        return {name: without_scratch(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_scratch(each) for each in value]
    return value
