"""`python -m conformance.audit URI`: is what is on disk sound?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from conformance.audit.auditor import audit
from conformance.audit.findings import GraphUnreadable
from conformance.audit.places import InvalidUri
from conformance.audit.render import render

EXIT_SOUND: Final = 0
EXIT_NOT_SOUND: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREADABLE: Final = 3
# What typer raises for a wrong command line. Its module has moved between releases; this name has not.
UsageError: Final = typer.BadParameter.__mro__[1]


def audit_command(
    uri: Annotated[str, typer.Argument(help="A directory, file:///path or s3://bucket/prefix.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
    no_data: Annotated[bool, typer.Option("--no-data", help="Do not read the rows of tables.")] = False,
) -> None:
    """Audit every branch of a graph, by what is on disk. Nothing is written.

    Exit codes: 0 sound; 1 something is wrong; 2 the request is wrong; 3 no graph can be read there.
    """
    try:
        report = audit(uri, data=not no_data)
    except InvalidUri as error:
        raise _stop(str(error), "invalid_uri", EXIT_USAGE, as_json=as_json) from error
    except GraphUnreadable as error:
        raise _stop(str(error), "unreadable", EXIT_UNREADABLE, as_json=as_json) from error
    if as_json:
        print(json.dumps(report.to_json(), indent=2, ensure_ascii=False, default=str))
    else:
        render(report, Console())
    raise typer.Exit(EXIT_SOUND if report.ok else EXIT_NOT_SOUND)


def _stop(message: str, code: str, exit_code: int, *, as_json: bool) -> typer.Exit:
    text = json.dumps({"error": {"code": code, "message": message}}) if as_json else f"error: {message}"
    print(text, file=sys.stderr)
    return typer.Exit(exit_code)


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("audit")(audit_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        code: Any = app(args=args, prog_name="python -m conformance.audit", standalone_mode=False)
    except Exception as error:
        if not isinstance(error, UsageError):
            raise
        shown: Any = error
        print(f"error: {shown.format_message()}", file=sys.stderr)
        return EXIT_USAGE
    return code if isinstance(code, int) else EXIT_SOUND
