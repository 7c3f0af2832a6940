"""Names of temporary folders are left out of what is quoted, and nothing else is."""

from __future__ import annotations

import pytest

from conformance.report.scratch import without_scratch


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/dev/shm/touchstone-a1b2c3d4/touchstone-_zyxwvu9/graph-7 is gone", "graph-7 is gone"),
        ("at /tmp/touchstone-smoke-309x0a49/graph", "at graph"),
        ("'file:///tmp/tmpa1b2c3d4/g'", "'g'"),
        ("/tmp/touchstone-a1b2c3d4: gone", ".: gone"),
        ("s3://bucket/tmpabcdefgh/x", "s3://bucket/tmpabcdefgh/x"),
        ("cmd:/home/me/tmp12345678/driver", "cmd:/home/me/tmp12345678/driver"),
        ("my-touchstone-a1b2c3d4/x", "my-touchstone-a1b2c3d4/x"),
        ("tmp/graphs", "tmp/graphs"),
    ],
)
def test_only_temporary_folders_are_left_out(text: str, left: str) -> None:
    assert without_scratch({"wrong": [{"because": text}]}) == {"wrong": [{"because": left}]}


def test_a_command_stays_what_it_was() -> None:
    body = {
        "command": "touchstone run --engine cmd:x --report /tmp/tmpa1b2c3d4/r",
        "engine": {"spec": "/tmp/tmpa1b2c3d4/d"},
    }
    assert without_scratch(body) == body
