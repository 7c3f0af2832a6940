"""The judge: an engine under test and the model on the same operations, and the auditor on what is left.

    broken    how a broken requirement is said, and the steps at which a test proves one
    engine    an engine under test: one method per operation, each call recorded
    graph     one graph, twice: every operation goes to the engine and to the model, and the answers are compared

Nothing in here trusts the engine: what it answers is held against what the model means, and what it wrote is read by
the auditor from the bytes.
"""

from __future__ import annotations

from conformance.judge.broken import Case, RequirementBroken, current_case, proving
from conformance.judge.engine import Engine, Handle, Hello
from conformance.judge.graph import JudgedGraph

__all__ = ["Case", "Engine", "Handle", "Hello", "JudgedGraph", "RequirementBroken", "current_case", "proving"]
