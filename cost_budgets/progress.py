"""How far a long measurement is: a bar on stderr, where somebody looks at one; nothing in a file or a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(what: str, total: int, console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """A bar of so many steps. It is told the name of each step as that begins: the one before it is over then."""
    on = Console(stderr=True) if console is None else console
    columns = (
        SpinnerColumn(),
        TextColumn(f"{what}: {{task.description}}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    begun = 0
    with Progress(*columns, console=on, transient=True, disable=not on.is_terminal) as progress:
        task = progress.add_task("starting", total=total)

        def told(name: str) -> None:
            nonlocal begun
            # What is measured a second time was not among the steps that were foreseen.
            progress.update(task, description=name, completed=begun, total=max(total, begun + 1))
            begun += 1

        yield told
