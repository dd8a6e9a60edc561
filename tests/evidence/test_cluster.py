"""The same cells on a real Dask scheduler with two workers, and on a real Ray instance, both on this machine."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import hostile
import psutil
import pytest
from trimmed_mean.study import STUDY

from assay.errors import InputError
from assay.evidence import engine as engines
from assay.evidence.check import prepare
from assay.evidence.engine import connect
from assay.evidence.run import plan, run
from assay.evidence.storage import Storage

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(tmp_path):
    """Workers must find what the driver finds, the tests' modules too."""
    paths = [str(HERE), str(HERE.parent / "plugin" / "src")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HOSTILE_LOG": str(tmp_path / "log")}


def end(processes):
    for process in processes:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            child.kill()
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def dask(folder):
    address = f"tcp://127.0.0.1:{free_port()}"
    quiet = {"cwd": folder, "env": environment(folder), "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = [
        BIN / "dask",
        "scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        address.rpartition(":")[2],
        "--no-dashboard",
    ]
    worker = [BIN / "dask", "worker", address, "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"]
    processes = [subprocess.Popen(scheduler, **quiet), *(subprocess.Popen(worker, **quiet) for _ in range(2))]
    wait_for(lambda: cores("dask", address) == 2)
    yield address
    end(processes)


@pytest.fixture(scope="module")
def ray(folder):
    """The address at which Ray starts an instance of its own, with its scheduler and workers as processes."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(folder).items():
            patch.setenv(name, value)
        yield "local"


def cores(name, address):
    try:
        with connect(name, address) as engine:
            return engine.cores
    except ConnectionError:
        return 0


def wait_for(holds, seconds=60):
    end_of_wait = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end_of_wait
        time.sleep(0.5)


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_the_same_seeds_give_the_same_metrics_as_here(name, request, tmp_path):
    planned = plan(STUDY, "smoke", seeds=3)
    with Storage(f"sqlite:///{tmp_path}/local.db") as storage:
        here = run(planned, storage, jobs=2)
    with Storage(f"sqlite:///{tmp_path}/there.db") as storage, connect(name, request.getfixturevalue(name)) as engine:
        there = run(planned, storage, jobs=2, engine=engine)
        again = []
        run(planned, storage, jobs=2, engine=engine, on_record=again.append)
    assert {r.status for r in there} == {"ok"}, there
    assert [(r.key, r.metrics) for r in there] == [(r.key, r.metrics) for r in here]
    assert again == []


def test_a_file_of_yours_is_found_by_workers_in_another_folder(dask, tmp_path, monkeypatch):
    numbers = "\n".join(f"{i % 7},{i % 5}" for i in range(60))
    (tmp_path / "mine.csv").write_text(f"a,b\n{numbers}\n")
    monkeypatch.chdir(tmp_path)
    planned = prepare(STUDY, card_module="trimmed_mean", budget="smoke", seeds=1, brought={"data": Path("mine.csv")})
    with Storage(f"sqlite:///{tmp_path}/x.db") as storage, connect("dask", dask) as engine:
        records = run(planned, storage, jobs=2, engine=engine)
    assert {r.status for r in records} == {"ok"}, records


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_evil_cells_are_failed_records_there_too(name, request, tmp_path):
    planned = plan(hostile.study("raises", "dies", "hangs"), seeds=2)
    with Storage(f"sqlite:///{tmp_path}/x.db") as storage, connect(name, request.getfixturevalue(name)) as engine:
        records = run(planned, storage, jobs=2, seconds=3, engine=engine)
    reasons = {r.arm: r.reason for r in records}
    assert {r.arm for r in records if r.status == "ok"} == {"honest"}
    assert reasons["raises"].startswith("ZeroDivisionError")
    assert "exit code 3" in reasons["dies"]
    assert "limit of 3 s" in reasons["hangs"]


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_killed_worker_costs_only_its_cells(name, request, tmp_path, folder):
    address = request.getfixturevalue(name)
    planned = plan(hostile.study("slow"), seeds=20)
    log = folder / "log"
    log.write_text("")
    killed = []

    def kill_one():
        while len(log.read_text().splitlines()) < 8:
            time.sleep(0.05)
        serving = [p for p in psutil.process_iter(["cmdline"]) if is_worker(p, name)]
        victim = psutil.Process(serving[0].pid).parent()
        killed.append(victim.pid)
        victim.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with Storage(f"sqlite:///{tmp_path}/x.db") as storage, connect(name, address) as engine:
        records = run(planned, storage, jobs=2, engine=engine)
    killer.join(60)
    assert len(killed) == 1
    assert len(records) == 40
    assert {r.status for r in records} == {"ok"}, [r.reason for r in records if r.status != "ok"]
    runs = log.read_text().splitlines()
    assert len(set(runs)) == 40
    assert len(runs) <= 40 + 4  # what was under way on the workers, and no more, ran again


def is_worker(process, name):
    """Whether it is a warm process whose owner is a worker of the cluster."""
    try:
        command = " ".join(process.info["cmdline"] or [])
        if "assay.evidence.serve" not in command:
            return False
        owner = process.parent()
        text = " ".join([*owner.cmdline(), *(p for a in owner.parents() for p in a.cmdline())])
    except psutil.Error:
        return False
    return name in text


@pytest.mark.parametrize(
    ("name", "address", "words"),
    [
        ("slurm", "", "none of local, dask, ray"),
        ("dask", "", "needs --address"),
        ("ray", "", "needs --address"),
        ("local", "tcp://127.0.0.1:1", "this machine"),
    ],
)
def test_a_wrong_engine_is_refused(name, address, words):
    with pytest.raises(InputError, match=words), connect(name, address):
        pass


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_cluster_that_does_not_answer_is_one_line(name):
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionError, match=f"answers at .*{address}") as error, connect(name, address):
        pass
    assert "\n" not in str(error.value)


def test_only_lost_workers_are_run_again():
    from distributed.scheduler import KilledWorker
    from ray.exceptions import WorkerCrashedError

    assert engines.worker_died(KilledWorker("task", None, []))
    assert engines.worker_died(WorkerCrashedError())
    assert not engines.worker_died(ValueError())
