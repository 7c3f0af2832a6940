"""A driver that never says hello: nobody waits for it who ends, and it does not stay."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from conformance.adapters import AdapterFault
from failpoints.drivers import Drivers
from failpoints.gate import Gate
from fixtures.stores.moto import MotoStore

SILENT = "#!/bin/sh\necho $$ >> {pids}\nexec sleep 900\n"


@pytest.mark.s3
def test_drivers_that_are_being_started_end_with_those_that_were(moto_store: MotoStore, tmp_path: Path) -> None:
    pids, script = tmp_path / "pids", tmp_path / "silent.sh"
    pids.touch()
    script.write_text(SILENT.format(pids=pids))
    script.chmod(0o755)
    with Gate(moto_store.env["AWS_ENDPOINT_URL_S3"]) as gate:
        with Drivers(gate, f"cmd:{script}", moto_store.env, timeout_seconds=600.0) as drivers:
            while not pids.read_text().endswith("\n"):
                threading.Event().wait(0.01)
        fault = drivers._warm[0].exception()
        assert isinstance(fault, AdapterFault) and fault.reason != "silent", "it was waited for"
    assert [pid for pid in pids.read_text().split() if Path("/proc", pid).exists()] == []
