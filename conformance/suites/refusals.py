"""What a refusal is to a suite: a typed answer of the right kind, and nothing that it left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.adapters import EngineError
from conformance.judge.graph import DEFINITE as DEFINITE


def refused(kind: str | tuple[str, ...], call: Callable[[], object], what: str = "the operation") -> EngineError:
    """The engine's refusal of a call, which must be of one of the kinds; anything else fails with a sentence."""
    kinds = (kind,) if isinstance(kind, str) else kind
    try:
        answer = call()
    except EngineError as error:
        assert error.kind in kinds, f"{what} must be refused as {' or '.join(kinds)}, and was as {error}"
        return error
    pytest.fail(f"{what} must be refused as {' or '.join(kinds)}, and was done: {str(answer)[:200]}")


# For what must fail, where the catalog does not say as what.
ANY_KIND = (*DEFINITE, "outcome_pending", "internal", "storage")
