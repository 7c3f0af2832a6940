"""A sequence in words: one numbered line per step, short enough to be read."""

from __future__ import annotations

import json
from collections.abc import Sequence

from conformance.sequences.player import Step

LONGEST_LINE = 400


def line_of(step: Step) -> str:
    """A step as one line: what is done, through which handle, with what."""
    rest = {name: value for name, value in step.items() if name not in ("do", "handle") and value is not None}
    through = f" (handle {step['handle']})" if step.get("handle") else ""
    args = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in rest.items())
    line = f"{step['do']}{through} {args}".rstrip()
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def script_of(steps: Sequence[Step]) -> str:
    """All steps, numbered."""
    return "\n".join(f"{number:>3}. {line_of(step)}" for number, step in enumerate(steps, 1))
