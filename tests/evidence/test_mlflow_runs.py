"""What `assay export --format mlflow` writes, read back by MLflow's own client."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlflow")

from assay.errors import InputError
from assay.evidence import mlflow_runs
from assay.evidence.mlflow_runs import write_runs
from assay.evidence.record import Proportion, Record
from assay.evidence.storage import Storage


def make(key: str, **fields: Any) -> Record:
    base: dict[str, Any] = {
        "study": "s", "task": "t", "arm": "a", "role": "method", "seed": 1000, "budget": "smoke", "machine": "here",
        "finished": "2026-01-01T00:00:10+00:00", "versions": {"numpy": "2.4.6"},
    }  # fmt: skip
    return Record(key=key, **(base | fields))


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    """An MLflow database with its tables, which take a second to make; copied for each test."""
    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    write_runs([make("k", study="other")], f"sqlite:///{path}")
    return path


@pytest.fixture
def uri(empty, tmp_path):
    (tmp_path / "mlflow.db").write_bytes(empty.read_bytes())
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def runs(uri: str, study: str = "s", query: str = "") -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    return list(client.search_runs([client.get_experiment_by_name(f"assay/{study}").experiment_id], query))


def test_a_record_is_a_run_with_its_numbers_words_and_times(uri):
    record = make(
        "k1", metrics={"error": 0.5, "ok": True, "n": 2**60, "hits": Proportion(3, 12), "bad": math.nan},
        cpu_seconds=1.5, wall_seconds=2.25, peak_mib=30.0, shared={"x": 4.0, "y": 1.0}, context="data ü.csv",
    )  # fmt: skip
    assert write_runs([record], uri) == f"1 run written, 0 there already, to {uri}"
    (run,) = runs(uri)
    metrics = run.data.metrics
    assert math.isnan(metrics.pop("bad"))
    assert metrics == {
        "error": 0.5, "ok": 1.0, "n": 2.0**60, "hits": 0.25, "hits.events": 3.0, "hits.trials": 12.0,
        "cost.cpu_seconds": 1.5, "cost.wall_seconds": 2.25, "cost.peak_mib": 30.0, "cost.shared_cpu_seconds": 5.0,
    }  # fmt: skip
    assert run.data.params == {
        "task": "t",
        "arm": "a",
        "role": "method",
        "seed": "1000",
        "budget": "smoke",
        "context": "data ü.csv",
    }
    tags = run.data.tags
    assert (tags["assay.key"], tags["assay.machine"], tags["assay.version.numpy"]) == ("k1", "here", "2.4.6")
    assert (tags["assay.status"], tags["mlflow.source.name"]) == ("ok", "assay")
    assert (run.info.status, run.info.run_name) == ("FINISHED", "a · t · seed 1000")
    assert (run.info.start_time, run.info.end_time) == (1767225607750, 1767225610000)


def test_failed_and_missing_cells_are_failed_runs_with_the_reason(uri):
    write_runs([make("k1", status="failed", reason="out of luck"), make("k2", status="missing", reason="no X")], uri)
    got = {(r.info.status, r.data.tags["assay.status"], r.data.tags["assay.reason"]) for r in runs(uri)}
    assert got == {("FAILED", "failed", "out of luck"), ("FAILED", "missing", "no X")}


def test_writing_twice_writes_once_and_a_cell_that_ran_again_takes_its_place(uri, monkeypatch):
    monkeypatch.setattr(mlflow_runs, "_AT_ONCE", 2)  # answers come in several pages
    records = [make(f"k{i}", seed=i, metrics={"m": i}) for i in range(5)]
    write_runs(records[:3], uri)
    assert write_runs(records, uri).startswith("2 runs written, 3 there already")
    assert write_runs(records, uri).startswith("0 runs written, 5 there already")
    again = dataclasses.replace(records[0], finished="2026-02-01T00:00:00+00:00", metrics={"m": 9.0})
    assert write_runs([again], uri).startswith("1 run written, 1 of them in place of earlier ones, 0 there already")
    assert write_runs([records[0]], uri).startswith("0 runs written, 1 there")  # an older copy does not come back
    elsewhere = dataclasses.replace(records[1], machine="there", finished="2026-03-01T00:00:00+00:00")
    write_runs([elsewhere], uri)
    assert sorted(r.data.metrics["m"] for r in runs(uri)) == [1, 1, 2, 3, 4, 9]
    assert [r.data.params["seed"] for r in runs(uri, query="metrics.m > 3.5 and metrics.m < 5")] == ["4"]


def test_a_run_left_half_written_is_written_whole(uri):
    from mlflow import MlflowClient

    write_runs([make("k1", metrics={"m": 1.0})], uri)
    client = MlflowClient(tracking_uri=uri)
    (run,) = runs(uri)
    client.update_run(run.info.run_id, status="RUNNING")
    assert write_runs([make("k1", metrics={"m": 1.0})], uri).startswith("1 run written, 0")
    (whole,) = runs(uri)
    assert (whole.info.status, whole.info.run_id == run.info.run_id) == ("FINISHED", False)


def test_names_that_mlflow_does_not_take_are_changed_and_stay_apart(uri):
    names = ["R²", "R%", "R_", "a/b", "../up", "/root", "a//b", "", ".", "cost.cpu_seconds", "x" * 300, "x" * 299, "é"]
    write_runs([make("k", metrics={name: float(i) for i, name in enumerate(names)})], uri)
    (run,) = runs(uri)
    values = run.data.metrics
    assert len(values) == len(names) + 4
    assert sorted(values.values())[-12:] == [float(i) for i in range(1, 13)]
    assert (values["R_"], values["R__2"], values["R__3"], values["a/b"]) == (0.0, 1.0, 2.0, 3.0)


def test_a_folder_where_mlflow_allows_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^MLflow at mlruns refuses: .*MLFLOW_ALLOW_FILE_STORE=true is set"):
        write_runs([make("k")], "mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for words in ("1 run written", "0 runs written"):
        assert write_runs([make("k", metrics={"m": 1.5})], str(tmp_path / "mlruns")).startswith(words)
    (run,) = runs(str(tmp_path / "mlruns"))
    assert (run.data.metrics["m"], run.data.params["context"]) == (1.5, "")


def test_what_goes_wrong_is_one_line_without_a_password(uri, tmp_path):
    from mlflow import MlflowClient

    with pytest.raises(ConnectionError, match=r"^MLflow at http://me@127.0.0.1:9 cannot be reached$"):
        write_runs([make("k")], "http://me:geheim@127.0.0.1:9")
    with pytest.raises(InputError, match=r"^MLflow at foo://x refuses: .*unsupported URI"):
        write_runs([make("k")], "foo://x")
    client = MlflowClient(tracking_uri=uri)
    client.delete_experiment(client.get_experiment_by_name("assay/other").experiment_id)
    with pytest.raises(InputError, match="'assay/other' is deleted; restore it"):
        write_runs([make("k", study="other")], uri)


def test_it_leaves_the_environment_as_it_was(uri):
    before = dict(os.environ)
    write_runs([make("k")], uri)
    assert dict(os.environ) == before


def test_without_mlflow_the_line_that_installs_it_is_told(tmp_path):
    code = """
import sys
sys.modules[sys.argv[1]] = None
from assay.evidence.mlflow_runs import write_runs
try:
    write_runs([], "sqlite:///x.db")
except ImportError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code, "mlflow"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == (
        "MissingPart export to MLflow needs its client; install it with: "
        "python -m pip install 'mlflow-skinny>=3,<4' 'alembic>=1.13,<2'\n"
    )


def test_the_command(assay, refused, uri, tmp_path: Path):
    with Storage(f"sqlite:///{tmp_path}/r.db") as storage:
        for record in (make("k1"), make("k2", study="o")):
            assert storage.lease(record.key)
            assert storage.finish(record)
    export = ("export", "--format", "mlflow", "--storage", "r.db")
    done = assay(*export, "--uri", uri, "--study", "s")
    assert (done.stdout, done.stderr) == ("", f"1 run written, 0 there already, to {uri}\n")
    assert len(runs(uri)) == 1
    for arguments, words in [
        ((*export,), "--uri is for --format mlflow, which needs it"),
        (("export", "--uri", uri, "--storage", "r.db"), "--uri is for --format mlflow"),
        ((*export, "--uri", uri, "-o", "x"), "writes to --uri, not to --out"),
        ((*export, "--uri", f"sqlite:///{tmp_path}/r.db"), "is the storage itself; name another database"),
    ]:
        assert words in refused(*arguments)
    assert not (tmp_path / "mlruns").exists()
