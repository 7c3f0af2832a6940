"""Where the protocol can be made to stop: `fire` stands in its gaps and costs nothing while nothing is armed."""

from __future__ import annotations

from failpoints import registry
from reference.errors import InjectedFailure


def fire(name: str) -> None:
    """Reach a named failpoint. Armed with `error`, it fails the operation as a typed error."""
    try:
        registry.fire(name)
    except registry.FailpointReached as reached:
        raise InjectedFailure(reached.name) from None
