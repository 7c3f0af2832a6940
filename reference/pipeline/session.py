"""The Spark session of the pipeline: found or started, with the settings that its jobs rely on.

What is missing on the machine (pyspark, Java, or a Java that is too old) is said in one sentence before anything of
Spark is started. Nothing secret is ever part of a setting.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

from reference.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN: Final = 17
_JAVA_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Without this, a data source that can push filters down fails on every read.
    "spark.sql.python.filterPushdown.enabled": "true",
    # The blocks of keys that tasks exchange are bytes of Arrow already.
    "spark.shuffle.compress": "false",
    "spark.rdd.compress": "false",
}
_LOCAL_SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def spark_session(master: str | None = None) -> SparkSession:
    """The session of this process; `master` is where it is started if there is none yet, by default this machine.

    One that runs already, somewhere else than where it is wanted, is refused: it would run there in silence.
    """
    refuse_without_spark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return _at(master, running)
    # Workers would otherwise take whichever python3 is on their PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    where = master or os.environ.get("SPARK_MASTER") or "local[*]"
    settings = dict(_SETTINGS)
    if where.startswith("local") or "://127." in where:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= _LOCAL_SETTINGS | {"spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2))}
    builder = SparkSession.builder.master(where).appName("omniref pipeline")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _quiet_start(where), warnings.catch_warnings():
        # Lance warns of every fork. Spark forks here only to become Java.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        session: SparkSession = builder.getOrCreate()
    return _at(master, session)


def _at(master: str | None, session: SparkSession) -> SparkSession:
    """The session, if it runs where it is wanted; nobody who names no master minds where."""
    found = str(session.sparkContext.master)
    if master is not None and master != found:
        raise BadRequest(
            f"a Spark session runs at '{found}' already, not at '{master}'",
            code="another_master",
            details={"master": master, "running": found},
            hint="leave the master out, or stop that session first",
        )
    return session


@contextmanager
def _quiet_start(master: str) -> Iterator[None]:
    """Keep what Java says about itself off the terminal, unless Spark does not start or somebody wants to see it.

    The process that is started here keeps this stderr for its life. What goes wrong in a task comes back as an error.
    """
    if os.environ.get("OMNIREF_DEBUG") == "1":
        yield
        return
    with tempfile.TemporaryFile() as said:
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except Exception as error:
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
            # What is an error is said in one line; those below it, which begin with white space, say from where.
            told = [line.strip() for line in lines if line[:1].strip() and ("ERROR" in line or "xception" in line)]
            cause = told[0].rpartition("Exception: ")[2][:300] if told else type(error).__name__
            raise BadRequest(
                f"Spark did not start at '{master}': {cause}",
                code="spark_start_failed",
                hint="give another --master; OMNIREF_DEBUG=1 shows all that it says",
            ) from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def refuse_without_spark() -> None:
    """Say what to install where the pipeline cannot run."""
    if not has_pyspark():
        raise _unavailable("pyspark is not installed", "pip install 'omnigraph-touchstone[spark]'")
    found = java_version()
    if found is None:
        raise _unavailable("no Java was found", f"install Java {JAVA_VERSION_MIN} or newer, or set JAVA_HOME to it")
    if found < JAVA_VERSION_MIN:
        hint = f"install Java {JAVA_VERSION_MIN} or newer, or set JAVA_HOME to it"
        raise _unavailable(f"Java {found} is too old", hint)


def has_pyspark() -> bool:
    try:
        return importlib.util.find_spec("pyspark") is not None
    except ValueError:  # What is in its place is no module.
        return False


@cache
def java_version() -> int | None:
    """The major version of the Java that Spark would start, or None where there is none."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if command is None:
        return None
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return major_version(answer.stderr + answer.stdout)


def major_version(said: str) -> int | None:
    """The major version in what `java -version` says; until Java 8 that was called 1.8."""
    matched = _JAVA_VERSION.search(said)
    if matched is None:
        return None
    return int(matched[2]) if matched[1] == "1" and matched[2] else int(matched[1])


def _unavailable(why: str, hint: str) -> BadRequest:
    return BadRequest(f"the pipeline runs on Spark, and {why}", code="spark_unavailable", hint=hint)
