"""Records as runs of MLflow: an experiment a study, a run a cell.

The runs are flat: MLflow groups them by any parameter or tag (task, arm, …) by itself, and a parent run of each group
would be a row without metrics in every search.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import math
import os
import posixpath
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from assay.errors import InputError, MissingPart, one_line
from assay.evidence.database import without_password
from assay.evidence.record import Proportion, Record, as_number

if TYPE_CHECKING:
    from mlflow import MlflowClient

_INSTALL = "python -m pip install 'mlflow-skinny>=3,<4' 'alembic>=1.13,<2'"
_AT_ONCE = 1000  # runs in one answer to a search
_LONGEST_NAME = 250
# What holds while MLflow works for us, where the user has not said otherwise: no reports to its makers, no talk about
# its tables, and no minutes of trying to reach a server that is not there.
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # it would hold a password, too
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
}
_NOTE = "Cells of the study of {study}, written by `assay export --format mlflow`: one run a cell."


def write_runs(records: Sequence[Record], uri: str) -> str:
    """Write each record as a run, once; return in words what was done.

    The experiment is called ``assay/STUDY``. A run has the cell as parameters (task, arm, role, seed, budget,
    context), the metrics and costs, the status and what else the record holds as tags, and the time when the cell
    ran. A proportion gives its share under its name, and ``NAME.events`` and ``NAME.trials``. A record is known by
    its key and machine: what is there already is left alone, and where its cell was run again the later record takes
    the place of the earlier one.

    Parameters
    ----------
    records
        What to write.
    uri
        MLflow's tracking URI: ``sqlite:///mlflow.db``, another database, or a server. A local folder works where
        MLflow itself is told to allow it (``MLFLOW_ALLOW_FILE_STORE=true``).

    Raises
    ------
    MissingPart
        Without MLflow.
    InputError, ConnectionError
        If MLflow refuses, or cannot be reached.
    """
    shown = without_password(uri)
    with _settings():
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
            from sqlalchemy.exc import SQLAlchemyError

            logging.getLogger("alembic").setLevel(logging.WARNING)
            client = MlflowClient(tracking_uri=uri)
            return f"{_write(records, client)} to {shown}"
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in ("mlflow", "alembic"):
                raise
            raise MissingPart("export to MLflow needs its client", _INSTALL) from None
        except (MlflowException, SQLAlchemyError) as error:
            why = one_line(error).replace(uri, shown)
            if "Max retries exceeded" in why:
                raise ConnectionError(f"MLflow at {shown} cannot be reached") from None
            if "MLFLOW_ALLOW_FILE_STORE" in str(error):
                why = (
                    "it writes to folders only where MLFLOW_ALLOW_FILE_STORE=true is set; give sqlite:///mlflow.db or "
                    "a server"
                )
            raise InputError(f"MLflow at {shown} refuses: {why}") from None


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    ours = {name: value for name, value in _SETTINGS.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _write(records: Sequence[Record], client: MlflowClient) -> str:
    from rich.console import Console
    from rich.progress import track

    written = replaced = 0
    there = {study: _runs(client, _experiment(client, study)) for study in {record.study for record in records}}
    console = Console(stderr=True)
    for record in track(records, "runs", console=console, disable=not console.is_terminal, transient=True):
        experiment, runs = there[record.study]
        known = runs.get((record.key, record.machine))
        if known is not None:
            whole, end, run = known
            if whole and end >= record.finished:
                continue
            replaced += whole
            client.delete_run(run)  # half written, or of an earlier run of the cell
        _write_run(client, experiment, record)
        written += 1
    already = len(records) - written
    again = f", {replaced} of them in place of earlier ones" if replaced else ""
    return f"{written} run{'s' if written != 1 else ''} written{again}, {already} there already,"


def _experiment(client: MlflowClient, study: str) -> str:
    name = f"assay/{study}"
    found = client.get_experiment_by_name(name)
    if found is None:
        return str(client.create_experiment(name, tags={"mlflow.note.content": _NOTE.format(study=study)}))
    if found.lifecycle_stage != "active":
        raise InputError(f"MLflow's experiment {name!r} is deleted; restore it (experiment {found.experiment_id})")
    return str(found.experiment_id)


def _runs(client: MlflowClient, experiment: str) -> tuple[str, dict[tuple[str, str], tuple[bool, str, str]]]:
    """The experiment, and for each key and machine: whether the run is whole, when its cell ended, and its id."""
    runs: dict[tuple[str, str], tuple[bool, str, str]] = {}
    page: str | None = None
    while True:
        found = client.search_runs([experiment], "tags.`assay.key` != ''", max_results=_AT_ONCE, page_token=page)
        for run in found:
            tags, whole = run.data.tags, run.info.status != "RUNNING"
            name = tags["assay.key"], tags.get("assay.machine", "")
            runs[name] = max(runs.get(name, (False, "", "")), (whole, tags.get("assay.finished", ""), run.info.run_id))
        page = found.token
        if not page:
            return experiment, runs


def _write_run(client: MlflowClient, experiment: str, record: Record) -> None:
    from mlflow.entities import Metric, Param, RunTag

    end = _milliseconds(record.finished)
    wall = record.wall_seconds if math.isfinite(record.wall_seconds) else 0.0
    run = client.create_run(
        experiment,
        start_time=end - round(1000 * wall),
        run_name=f"{record.arm} · {record.task} · seed {record.seed}",
        tags={"assay.key": record.key, "assay.machine": record.machine, "assay.finished": record.finished},
    ).info.run_id
    params = {name: str(getattr(record, name)) for name in ("task", "arm", "role", "seed", "budget", "context")}
    tags = {"mlflow.source.name": "assay", "assay.status": record.status, "assay.reason": record.reason}
    tags |= {f"assay.version.{name}": version for name, version in record.versions.items()}
    client.log_batch(
        run,
        metrics=[Metric(name, value, end, 0) for name, value in _numbers(record).items()],
        params=[Param(name, value) for name, value in params.items()],
        tags=[RunTag(_name(name), value) for name, value in tags.items()],
    )
    client.set_terminated(run, "FINISHED" if record.status == "ok" else "FAILED", end)


def _milliseconds(finished: str) -> int:
    try:
        end = datetime.datetime.fromisoformat(finished)
    except ValueError:
        return round(1000 * time.time())
    return round(1000 * (end if end.tzinfo else end.replace(tzinfo=datetime.UTC)).timestamp())


def _numbers(record: Record) -> Mapping[str, float]:
    """Metrics and costs by names that MLflow takes; two that would become one keep apart."""
    numbers: list[tuple[str, float]] = []
    for name, value in record.metrics.items():
        numbers.append((name, as_number(value)))
        if isinstance(value, Proportion):
            numbers += [(f"{name}.events", float(value.events)), (f"{name}.trials", float(value.trials))]
    numbers += [(f"cost.{name}", getattr(record, name)) for name in ("cpu_seconds", "wall_seconds", "peak_mib")]
    numbers.append(("cost.shared_cpu_seconds", float(sum(record.shared.values()))))
    named: dict[str, float] = {}
    for name, value in numbers:
        taken, count = _name(name), 2
        while taken in named:
            taken, count = f"{_name(name)[: _LONGEST_NAME - 4]}_{count}", count + 1
        named[taken] = value
    return named


def _name(name: str) -> str:
    """A name as MLflow takes it: letters, digits, spaces and ``_-./:``, in the form of a path that stays below."""
    name = re.sub(r"[^\w.\- :/]", "_", name, flags=re.ASCII)[:_LONGEST_NAME]
    unfit = posixpath.normpath(name) != name or name.startswith(("/", "..")) or name == "."
    return re.sub(r"[./]", "_", name) or "_" if unfit else name
