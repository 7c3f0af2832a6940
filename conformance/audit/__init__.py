"""The auditor: reads the bytes that an engine left, by the specification alone.

    report = audit("s3://bucket/graph")
    report.ok, report.findings, report.checked

It runs on any graph, whoever wrote it, and never writes. It shares no code with any engine: names, rows, sidecars and
schema files are decoded here a second time, on purpose. Each finding names the requirement that is broken.

    places, datasets         how objects and Lance datasets are read
    names, manifest, schema  what they mean
    layout, lineage, pins, sidecars, recoveries, rules, rows   what must hold
    auditor                  the order of all that
"""

from __future__ import annotations

from conformance.audit.auditor import audit
from conformance.audit.findings import CODES, AuditReport, Finding, GraphUnreadable
from conformance.audit.places import InvalidUri

__all__ = ["CODES", "AuditReport", "Finding", "GraphUnreadable", "InvalidUri", "audit"]
