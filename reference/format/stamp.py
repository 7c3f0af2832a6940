"""The stamp: which internal schema a graph was written with, and the refusal of every other one [STM].

There is no migration. A graph of another generation is refused before anything else of it is read, and is rebuilt
by export with the release that wrote it, then init and load with this one.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference.errors import BadRequest

INTERNAL_SCHEMA_VERSION = 4
STAMP_KEY = "omnigraph:internal_schema_version"
OLDEST_STAMP = 1


def read_stamp(schema_metadata: Mapping[str, str]) -> int:
    """The stamp in the schema metadata of `__manifest`; missing or unreadable means the oldest generation."""
    text = schema_metadata.get(STAMP_KEY, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else OLDEST_STAMP


def refuse_other_generations(stamp: int) -> None:
    """Let the current generation pass; refuse newer ones and older ones with what to do about each."""
    if stamp == INTERNAL_SCHEMA_VERSION:
        return
    newer = stamp > INTERNAL_SCHEMA_VERSION
    raise BadRequest(
        f"this graph has internal schema v{stamp}; this engine reads and writes v{INTERNAL_SCHEMA_VERSION} only",
        code="stamp_newer" if newer else "stamp_older",
        details={"stamp": stamp, "supported": INTERNAL_SCHEMA_VERSION},
        hint="upgrade this engine before opening the graph"
        if newer
        else "rebuild it: export with the release that wrote it, then init and load with this one; "
        "rows, vectors and blobs carry over, history and branches do not",
    )
