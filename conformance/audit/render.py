"""A report for people: one row per finding, the worst first, and what was looked at."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.audit.findings import SEVERITIES, AuditReport, Severity

STYLES: Final[dict[Severity, str]] = {"error": "bold red", "warning": "yellow", "note": "dim"}


def render(report: AuditReport, console: Console) -> None:
    """Print a report."""
    if report.findings:
        console.print(_table(report))
    console.print(Text(verdict(report), style="bold green" if report.ok else "bold red"))
    checked = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in report.checked.items())
    console.print(Text(f"checked: {checked}", style="dim"))


def verdict(report: AuditReport) -> str:
    """One sentence: is what is on disk sound?"""
    counts = {severity: len(report.of(severity)) for severity in SEVERITIES}
    said = ", ".join(f"{count} {severity}{'s' * (count != 1)}" for severity, count in counts.items() if count)
    return f"{report.uri} is {'sound' if report.ok else 'not sound'}: {said or 'nothing found'}"


def _table(report: AuditReport) -> Table:
    table = Table(expand=False)
    for name in ("", "requirement", "where", "finding"):
        table.add_column(name, overflow="fold", no_wrap=name == "requirement")
    for finding in report.findings:
        style = STYLES[finding.severity]
        table.add_row(
            Text(finding.severity, style=style),
            Text(f"{finding.requirement}"),
            Text(finding.where),
            Text(f"{finding.code}: {finding.message}"),
        )
    return table
