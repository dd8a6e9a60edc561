import collections
import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import hostile
import numpy as np
import pytest

from assay.errors import InputError
from assay.evidence.claim import higher, holds
from assay.evidence.engine import Engine
from assay.evidence.fingerprint import stamp
from assay.evidence.record import Proportion
from assay.evidence.run import estimate_seconds, plan, run, verdicts
from assay.evidence.storage import Storage
from assay.evidence.study import Arm, Budget, Study, Task
from assay.evidence.verdict import Outcome

HERE = Path(__file__).parent


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("HOSTILE_LOG", str(path))
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    return path


@pytest.fixture
def storage(tmp_path):
    with Storage(f"sqlite:///{tmp_path}/x.db") as made:
        yield made


def test_each_cell_gives_a_record_with_costs(storage, log):
    seen = []
    planned = plan(hostile.study("slow"), "quick", seeds=3)
    records = run(planned, storage, jobs=2, on_record=seen.append)
    assert [(r.arm, r.seed) for r in records] == [(c.arm, c.seed) for c in planned.cells]
    assert {r.status for r in records} == {"ok"}
    assert {r.key for r in seen} == {r.key for r in records}
    slow = [r for r in records if r.arm == "slow"]
    assert all(r.wall_seconds >= 0.1 for r in slow)
    assert all(r.cpu_seconds < 0.1 for r in slow)
    assert all(r.machine and r.finished for r in records)


def test_what_is_stored_is_not_run_again_and_more_seeds_continue(storage, log):
    first = run(plan(hostile.study(), seeds=3), storage)
    more = run(plan(hostile.study(), seeds=5), storage)
    assert more[:3] == first
    assert sorted(log.read_text().split("\n")[:-1]) == [f"honest {seed}" for seed in range(1000, 1005)]
    run(plan(hostile.study(), seeds=5), storage, fresh=True)
    assert len(log.read_text().splitlines()) == 10


@pytest.mark.parametrize(
    "change",
    [{"code": "other"}, {"content": {"data": "other"}}, {"versions": {"numpy": "0"}}, {"budget": Budget.FULL}],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_fingerprint_runs_again(storage, log, change):
    run(plan(hostile.study(), seeds=3), storage)
    run(plan(hostile.study(), **({"budget": Budget.QUICK, "seeds": 3} | change)), storage)
    assert len(log.read_text().splitlines()) == 6


def test_every_evil_arm_becomes_a_record_and_honest_ones_finish(storage, log):
    planned = plan(hostile.study(*hostile.EVIL), seeds=2)
    records = run(planned, storage, jobs=2, seconds=4, mib=600)
    assert len(records) == len(planned.cells)
    got = {arm: {(r.status, r.reason) for r in records if r.arm == arm} for arm in ("honest", *hostile.EVIL)}
    assert got["honest"] == {("ok", "")}
    assert got["shouts"] == {("ok", "")}
    expected = {
        "raises": ("failed", "ZeroDivisionError: nothing to divide by (hostile.py:"),
        "leaves": ("failed", "SystemExit: 4"),
        "dies": ("failed", "the process died (exit code 3)"),
        "crashes": ("failed", "the process died (SIGSEGV)"),
        "hangs": ("failed", "ran past its limit of 4 s"),
        "eats": ("failed", "used more memory than its limit of 600 MiB"),
        "says-nothing": ("failed", "its output cannot be scored: TypeError"),
        "lacks": ("missing", "lacks needs tea; install it with: python -m pip install tea"),
        "offline": ("missing", "http://127.0.0.1:9 does not answer"),
    }
    for arm, (status, reason) in expected.items():
        assert all(s == status and r.startswith(reason) and "\n" not in r for s, r in got[arm]), (arm, got[arm])


def test_failed_cells_are_kept_until_retry_and_missing_ones_are_always_tried(storage, log, monkeypatch):
    planned = plan(hostile.study("raises", "lacks"), seeds=1)
    first = {r.arm: r for r in run(planned, storage)}
    assert first["lacks"].status == "missing"
    monkeypatch.setenv("HOSTILE_PART", "1")
    second = {r.arm: r for r in run(planned, storage)}
    assert second["lacks"].status == "ok"
    assert second["raises"].finished == first["raises"].finished
    count = []
    run(planned, storage, retry=True, on_record=count.append)
    assert [r.arm for r in count] == ["raises"]


def test_claims_over_failed_cells_are_inconclusive_and_over_missing_ones_untested(storage, log):
    planned = plan(hostile.study("raises", "lacks", "slow"), seeds=3)
    judged = {v.claim.others[0]: v for v in verdicts(planned, run(planned, storage))}
    assert judged["raises"].outcome is Outcome.INCONCLUSIVE
    assert "ZeroDivisionError" in judged["raises"].reason
    assert judged["lacks"].outcome is Outcome.UNTESTED
    assert "pip install tea" in judged["lacks"].reason
    assert judged["slow"].outcome is not Outcome.UNTESTED


def test_killed_three_times_it_still_runs_each_cell_once(tmp_path, log):
    url = f"sqlite:///{tmp_path}/killed.db"
    command = [sys.executable, str(HERE / "hostile.py"), url, "12", "2"]
    for wait in (1.2, 1.5, 1.8):
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["24", "24"], done.stderr
    with Storage(url) as storage:
        cells = collections.Counter((r.arm, r.seed) for r in storage.records())
    assert len(cells) == 24
    assert set(cells.values()) == {1}
    # A cell may have run once more for each kill that interrupted it, never because it was stored already.
    runs = collections.Counter(log.read_text().split("\n")[:-1])
    assert sum(runs.values()) - 24 <= 3 * 2


def test_two_drivers_at_once_run_each_cell_once(tmp_path, log):
    url = f"sqlite:///{tmp_path}/two.db"
    command = [sys.executable, str(HERE / "hostile.py"), url, "15", "2"]
    drivers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [driver.communicate(timeout=120) for driver in drivers]
    assert [out.split() for out, _ in outputs] == [["30", "30"]] * 2, outputs
    runs = collections.Counter(log.read_text().split("\n")[:-1])
    assert set(runs.values()) == {1}
    assert len(runs) == 30


def test_an_interrupted_driver_leaves_no_process_behind(tmp_path, log):
    command = [sys.executable, str(HERE / "hostile.py"), f"sqlite:///{tmp_path}/i.db", "300", "2"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not log.read_text():
        time.sleep(0.1)
    import psutil

    children = psutil.Process(driver.pid).children(recursive=True)
    driver.send_signal(signal.SIGINT)
    _, words = driver.communicate(timeout=30)
    assert "KeyboardInterrupt" in words
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert children


def test_processes_and_threads_as_workers_give_the_same_metrics(tmp_path):
    from trimmed_mean.study import STUDY

    metrics = []
    for backend in ("threading", "loky"):
        with Storage(f"sqlite:///{tmp_path}/{backend}.db") as storage:
            records = run(plan(STUDY, "smoke", seeds=3), storage, jobs=2, engine=Engine(backend))
        assert {r.status for r in records} == {"ok"}
        metrics.append([r.metrics for r in records])
    assert metrics[0] == metrics[1]


def test_shared_work_is_done_once_and_its_cost_is_recorded_apart(storage, log):
    records = run(plan(hostile.study("uses-shared", "uses-too"), seeds=2), storage, jobs=2)
    assert {r.status for r in records} == {"ok"}, records
    assert log.read_text().count("shared made") == 2
    users = [r for r in records if r.arm != "honest"]
    for record in users:
        assert len(record.shared) == 1
        assert 0.15 < next(iter(record.shared.values())) < 2
        assert record.cpu_seconds < 0.1
        assert record.wall_seconds < 0.15
    by_seed = {r.seed: r.shared for r in users}
    assert all(by_seed[r.seed] == r.shared for r in users)


def test_all_kinds_of_metrics_survive_storage(storage):
    def score_all(output, hidden):
        return {
            "whole": 3, "real": np.float32(0.5), "truth": np.bool_(True), "nan": float("nan"),
            "rate": Proportion(np.int64(1), 20), "zero-d": np.array(2.0),
        }  # fmt: skip

    study = Study(
        name="kinds", tasks=(Task("t", hostile.load, score_all),), arms=(Arm("m", hostile.honest, "method"),),
        claims=(holds("truth", "m"),), primary="real", better="lower",
    )  # fmt: skip
    (record,) = run(plan(study, seeds=1), storage)
    metrics = dict(record.metrics)
    assert np.isnan(metrics.pop("nan"))
    assert metrics == {"whole": 3, "real": 0.5, "truth": True, "rate": Proportion(1, 20), "zero-d": 2.0}
    assert metrics["truth"] is True


@pytest.mark.parametrize("bad", [{"x": "text"}, {"x": [1, 2]}, [1], {"x": Proportion(3, 2)}, {"x": None}])
def test_a_score_that_is_no_metric_is_a_failed_record(storage, bad):
    study = Study(
        name="bad", tasks=(Task("t", hostile.load, lambda o, h: bad),), arms=(Arm("m", hostile.honest, "method"),),
        claims=(), primary="x", better="lower",
    )  # fmt: skip
    (record,) = run(plan(study, seeds=1), storage)
    assert record.status == "failed"
    assert record.reason.startswith("its output cannot be scored")


def test_arms_get_one_seed_that_is_not_the_datas(storage):
    def seen(given, seed, budget):
        return seed

    study = Study(
        name="seeds", tasks=(Task("t", hostile.load, hostile.score),),
        arms=(Arm("a", seen, "method"), Arm("b", seen, "baseline")), claims=(), primary="value", better="higher",
    )  # fmt: skip
    records = run(plan(study, seeds=4), storage)
    values = {arm: [r.metrics["value"] for r in records if r.arm == arm] for arm in "ab"}
    assert values["a"] == values["b"]
    assert len(set(values["a"])) == 4
    assert not set(values["a"]) & set(range(1000, 1004))


def test_trouble_with_the_storage_ends_the_run_and_does_not_hang(storage):
    planned = plan(hostile.study("slow"), seeds=5)

    def broken(key):
        raise ConnectionError("the server has gone")

    storage.lease = broken
    with pytest.raises(ConnectionError, match="the server has gone"):
        run(planned, storage, jobs=2)


def test_cells_are_ordered_seed_by_seed():
    cells = plan(hostile.study("slow"), seeds=2).cells
    assert [(c.seed, c.arm) for c in cells] == [(1000, "honest"), (1000, "slow"), (1001, "honest"), (1001, "slow")]
    assert len({c.key for c in cells}) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "huge"}, "none of smoke, quick, full, paper"),
        ({"seeds": 0}, "at least 1"),
        ({"seeds": -2}, "at least 1"),
    ],
)
def test_bad_plans_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        plan(hostile.study(), **options)


def test_a_budget_without_cells_is_refused():
    study = hostile.study()
    empty = dataclasses.replace(study, tasks=(dataclasses.replace(study.tasks[0], budgets=(Budget.FULL,)),))
    with pytest.raises(InputError, match="nothing to run at budget quick"):
        plan(empty, "quick")


def test_the_estimate_comes_from_what_is_stored(storage, log):
    planned = plan(hostile.study("slow"), seeds=4)
    assert estimate_seconds(planned, storage, 2) == (8, None)
    run(plan(hostile.study("slow"), seeds=2), storage)
    todo, seconds = estimate_seconds(planned, storage, 1)
    assert todo == 4
    assert 0.2 <= seconds < 2
    run(planned, storage)
    assert estimate_seconds(planned, storage, 1) == (0, 0.0)


def test_a_study_must_be_consistent():
    task, arm = Task("t", hostile.load, hostile.score), Arm("m", hostile.honest, "method")
    good = {"name": "s", "tasks": (task,), "arms": (arm,), "claims": (), "primary": "value", "better": "higher"}
    Study(**good)
    for change, words in [
        ({"arms": (arm, arm)}, "twice"),
        ({"tasks": (task, task)}, "twice"),
        ({"arms": (Arm("b", hostile.honest, "baseline"),)}, "exactly one arm"),
        ({"better": "Higher"}, "better must be"),
        ({"seeds": {Budget.QUICK: 3}}, "seeds must be given for"),
        ({"arms": (arm, Arm("b", hostile.honest, "bseline"))}, "role 'bseline'"),
        ({"arms": (arm, Arm("b", hostile.honest, "baseline", tasks=("typo",)))}, "no task 'typo'"),
        ({"claims": (higher("value", "m", than="ghost"),)}, "no arm 'ghost'"),
        ({"claims": (higher("value", "m", than="m", tasks="ghost"),)}, "no task 'ghost'"),
    ]:
        with pytest.raises(ValueError, match=words):
            Study(**(good | change))


def test_cpu_seconds_count_the_processes_that_an_arm_uses(storage):
    def burn(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def in_processes(given, seed, budget):
        from joblib import Parallel, delayed

        Parallel(n_jobs=2, backend="loky")(delayed(burn)(0.5) for _ in range(2))
        return 1.0

    study = Study(
        name="cpu", tasks=(Task("t", hostile.load, hostile.score),), arms=(Arm("m", in_processes, "method"),),
        claims=(), primary="value", better="higher",
    )  # fmt: skip
    records = run(plan(study, seeds=2), storage)
    assert all(0.9 < record.cpu_seconds < 4 for record in records), records


def test_a_file_that_changes_during_a_run_ends_it_and_is_not_stored(storage, tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("1")

    def rewrite(given, seed, budget):
        if seed_number(given) == 1001:
            data.write_text("22")
        return 1.0

    def seed_number(given):
        return given["seed"]

    study = Study(
        name="changing", tasks=(Task("t", hostile.load, hostile.score),), arms=(Arm("m", rewrite, "method"),),
        claims=(), primary="value", better="higher",
    )  # fmt: skip
    planned = dataclasses.replace(plan(study, seeds=3), stamps={data: stamp(data)})
    with pytest.raises(InputError, match="changed while it was being checked"):
        run(planned, storage)
    assert [r.seed for r in storage.records()] == [1000]
