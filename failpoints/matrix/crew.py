"""The crew: the driver processes of one sweep, and fresh places for its graphs.

Three kinds of process take part. The *builder* prepares graphs and never sees one again. An *armed* one carries a
failpoint, and is for one spot. The *judge* recovers graphs that it has never seen before. So nobody who judges can
remember what the graph was before the fault, and two processes serve all spots but for the one that dies in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from conformance.adapters import Unsupported
from conformance.adapters.hosting import as_process
from conformance.judge import Engine
from failpoints.matrix.subjects import Subject


class Crew:
    """One engine on one store. `fresh_root` gives an address at which no graph is yet."""

    def __init__(self, spec: str, env: Mapping[str, str], fresh_root: Callable[[], str]) -> None:
        self.spec = as_process(spec)
        self.env = dict(env)
        self.fresh_root = fresh_root
        self.builder = Engine.connect(self.spec, env=self.env)
        try:
            if not self.builder.supports("failpoints"):
                raise Unsupported("failpoints", f"{self.builder.hello.name} does not obey TOUCHSTONE_FAILPOINTS")
            self.judge = Engine.connect(self.spec, env=self.env)
        except BaseException:
            self.builder.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.builder.close()
        self.judge.close()

    def can_try(self, subject: Subject) -> bool:
        """Whether the engine has every operation that a subject needs."""
        return self.builder.supports(*subject.needs)

    @contextmanager
    def armed(self, points: str) -> Iterator[Engine]:
        """A driver of its own, with `name=action` armed from its start."""
        engine = Engine.connect(self.spec, env=self.env, failpoints=points)
        try:
            yield engine
        finally:
            engine.close()
