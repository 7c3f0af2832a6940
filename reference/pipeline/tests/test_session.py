"""What the pipeline says where Spark cannot run, and what a task's failure looks like on the driver."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from reference.errors import BadRequest, NotFound, StorageError
from reference.pipeline import session
from reference.pipeline.session import refuse_without_spark
from reference.pipeline.tasks import Progress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_pipeline_is_imported_without_pyspark() -> None:
    """Only running something in it needs the extra; then one sentence says so, with the exit code of its kind."""
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import reference.pipeline, reference.pipeline.load, reference.pipeline.source\n"
        "from reference.cli.app import run\n"
        "sys.exit(run(['pipeline', 'load', '--mode', 'append', 'nowhere', 'nothing']))\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 2, answer.stderr
    assert answer.stderr.count("\n") == 1 and "pyspark is not installed" in answer.stderr


@pytest.mark.parametrize(("version", "words"), [(None, "no Java was found"), (11, "Java 11 is too old")])
def test_java_that_is_missing_or_too_old_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, version: int | None, words: str
) -> None:
    monkeypatch.setattr(session, "java_version", lambda: version)
    monkeypatch.setattr(session, "has_pyspark", lambda: True)
    with pytest.raises(BadRequest) as refused:
        refuse_without_spark()
    assert refused.value.code == "spark_unavailable"
    assert words in refused.value.message and "17" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_391"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("not found", None),
    ],
)
def test_the_version_of_java_is_read_from_what_it_says(said: str, version: int | None) -> None:
    assert session.major_version(said) == version


def fail(item: str) -> str:
    if item == "typed":
        raise NotFound("no such thing", code="nothing", details={"item": item})
    if item == "untyped":
        raise ZeroDivisionError("by zero")
    return item.upper()


def test_tasks_answer_in_order_and_keep_the_type_of_what_they_refuse(spark: SparkSession) -> None:
    progress = Progress()
    assert run_tasks(spark, "shouting", ["b", "a"], fail, progress=progress) == ["B", "A"]
    assert [(stage.stage, stage.tasks) for stage in progress.stages] == [("shouting", 2)]
    with pytest.raises(NotFound) as refused:
        run_tasks(spark, "shouting", ["a", "typed"], fail)
    assert (refused.value.code, refused.value.details) == ("nothing", {"item": "typed"})
    with pytest.raises(StorageError) as failed:
        run_tasks(spark, "shouting", ["untyped"], fail)
    assert failed.value.message == "the stage 'shouting' failed: ZeroDivisionError: by zero"


def test_a_master_that_is_none_is_a_wrong_request_and_says_nothing_about_a_graph() -> None:
    """An audit that could not run must not sound like one that found something."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    if session.java_version() is None:
        pytest.skip("there is no Java, so that nothing gets as far as the master")
    program = (
        "import sys\nfrom reference.cli.app import run\nsys.exit(run(['pipeline', 'audit', 'G', '--master', 'foo']))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 2, answer.stderr
    assert "Spark did not start at 'foo': Master must" in answer.stderr and "xception" not in answer.stderr


def test_a_master_that_the_running_session_is_not_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    monkeypatch.setattr(session, "refuse_without_spark", lambda: None)
    running: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: running)
    assert session.spark_session("local[2]") is session.spark_session() is running
    with pytest.raises(BadRequest) as refused:
        session.spark_session("spark://10.0.0.1:7077")
    assert refused.value.code == "another_master" and "local[2]" in refused.value.message


def test_no_items_need_no_spark() -> None:
    nobody: Any = None
    assert run_tasks(nobody, "nothing", [], fail) == []
