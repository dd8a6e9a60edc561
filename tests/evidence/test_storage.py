from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Connection, Text, inspect, text

from assay.errors import InputError, MissingPart
from assay.evidence import owner, schema
from assay.evidence import storage as storage_module
from assay.evidence.claim import higher, slope
from assay.evidence.record import Proportion, Record
from assay.evidence.storage import Storage
from assay.evidence.stored_check import ArmLine, StoredCheck, TaskLine
from assay.evidence.verdict import Outcome, Part, Verdict


def make(key: str, **fields: Any) -> Record:
    base: dict[str, Any] = {"study": "s", "task": "t", "arm": "a", "role": "method", "seed": 1000, "budget": "smoke"}
    return Record(key=key, **(base | fields))


def store(storage: Storage, *records: Record) -> None:
    for record in records:
        assert storage.lease(record.key)
        assert storage.finish(record)


def run_sql(storage: Storage, statement: str, **values: Any) -> None:
    with storage._database.transaction(write=True) as connection:
        connection.execute(text(statement), values)


def python(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    prelude = "import sys\nfrom assay.evidence.record import Record\nfrom assay.evidence.storage import Storage\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith("storage ")
    return message


@pytest.fixture
def opened(url: str) -> Iterator[Storage]:
    with Storage(url) as storage:
        yield storage


# Records

numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans())
proportions = st.integers(1, 10**6).flatmap(lambda n: st.builds(Proportion, st.integers(0, n), st.just(n)))
metrics = st.dictionaries(st.text(max_size=8), st.one_of(numbers, proportions), max_size=4)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and bool(a == b)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    metrics=metrics,
    reason=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    seconds=st.floats(),
    seed=st.integers(-(2**63), 2**63 - 1),
)
def test_a_record_comes_back_as_it_went(opened: Storage, metrics: Any, reason: str, seconds: float, seed: int) -> None:
    record = make(
        "k", metrics=metrics, reason=reason, status="failed", cpu_seconds=seconds, seed=seed, context="data.csv ü",
        shared={"activations": 2.5}, versions={"numpy": "2.4"}, machine="2 cores", finished="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    opened.forget(["k"])
    store(opened, record)
    back = opened.finished(["k", "other"])["k"]
    assert back.metrics.keys() == record.metrics.keys()
    assert all(same(record.metrics[name], back.metrics[name]) for name in metrics)
    assert same(float(seconds), back.cpu_seconds)
    for name in set(Record.__dataclass_fields__) - {"metrics", "cpu_seconds"}:
        assert getattr(back, name) == getattr(record, name)


def test_numbers_of_numpy_become_pythons(url: str) -> None:
    given = {"i": np.int64(3), "f": np.float32(0.5), "b": np.bool_(True), "zero-d": np.array(2.0),
             "p": Proportion(np.int64(1), np.int32(20))}  # fmt: skip
    with Storage(url) as storage:
        store(storage, make("k", metrics=given, seed=np.int64(7), peak_mib=np.float64(1.5)))
        back = storage.records()[0]
    assert back.metrics == {"i": 3, "f": 0.5, "b": True, "zero-d": 2.0, "p": Proportion(1, 20)}
    assert [type(back.metrics[name]) for name in "ifbp"] == [int, float, bool, Proportion]
    assert (back.seed, back.peak_mib) == (7, 1.5)


def test_a_metric_that_is_no_number_is_named(url: str) -> None:
    with Storage(url) as storage:
        assert storage.lease("k")
        with pytest.raises(TypeError, match="'error' must be a number, a truth value or a Proportion, got ndarray"):
            storage.finish(make("k", metrics={"error": np.zeros(3)}))
        assert storage.finish(make("k"))  # the lease stands


def test_text_that_no_database_takes_is_escaped(url: str) -> None:
    with Storage(url) as storage:
        store(storage, make("k", reason="bad\0name \udcff"))
        assert storage.records()[0].reason == "bad\\x00name \\udcff"


def test_records_are_chosen_by_columns_and_ordered_by_their_end(url: str) -> None:
    with Storage(url) as storage:
        store(
            storage,
            make("c", finished="2026-01-03", seed=1), make("a", finished="2026-01-02", study="other"),
            make("b", finished="2026-01-01", seed=2), make("d", finished="2026-01-01", seed=2),
        )  # fmt: skip
        assert [r.key for r in storage.records()] == ["b", "d", "a", "c"]
        assert [r.key for r in storage.records(study="s", seed=2)] == ["b", "d"]
        assert storage.records(study="none") == []
        for wrong in ("colour", "metrics"):
            with pytest.raises(InputError, match=f"cannot be chosen by '{wrong}'; choose by key, study"):
                storage.records(**{wrong: "x"})


def test_many_keys_at_once(url: str) -> None:
    keys = [f"k{i}" for i in range(1201)]
    with Storage(url) as storage, Storage(url) as other:
        store(storage, *(make(key) for key in keys[::100]))
        assert sorted(storage.finished(keys + keys)) == sorted(keys[::100])
        assert storage.finished([]) == {}
        for key in keys[1:4]:
            assert other.lease(key)
        assert storage.held_by_others(keys) == set(keys[1:4])
        assert storage.forget(keys) == 13
        assert storage.forget([]) == 0


def test_a_cell_is_stored_once(url: str) -> None:
    with Storage(url) as storage, Storage(url) as other:
        assert not storage.finish(make("k"))  # without a lease
        store(storage, make("k", seed=1))
        assert not storage.lease("k")
        assert not other.lease("k")
        assert not other.finish(make("k", seed=2))
        # A record that stands although we hold a lease, as after a connection that broke during the commit.
        run_sql(other, "INSERT INTO assay_lease VALUES ('k', :owner)", owner=other._owner.id)
        assert not other.finish(make("k", seed=2))
        assert [r.seed for r in storage.records()] == [1]
        assert storage.forget(["k"]) == 1
        store(other, make("k", seed=3))


def test_damaged_rows_are_named(url: str) -> None:
    with Storage(url) as storage:
        store(storage, make("good"), make("bad"))
        for column, value in [
            ("metrics", "{"), ("shared", "[]"), ("versions", "7"), ("metrics", '{"a": {"events": 1}}'),
            ("metrics", '{"a": {"events": null, "trials": 2}}'), ("status", "fine"),
        ]:  # fmt: skip
            run_sql(storage, f"UPDATE assay_record SET {column} = :value WHERE key = 'bad'", value=value)
            for read in (storage.records, lambda: storage.finished(["good", "bad"])):
                with pytest.raises(InputError, match=f"the record 'bad' is damaged in its column {column}") as error:
                    read()
                one_line(error)
            run_sql(storage, "UPDATE assay_record SET metrics = '{}', shared = '{}', versions = '{}', status = 'ok'")
        assert list(storage.finished(["good"])) == ["good"]


def test_looks_are_remembered(url: str) -> None:
    with Storage(url) as storage:
        assert storage.look("s", "", "quick", 5) == []
        assert storage.look("s", "", "quick", 3) == [5]
        assert storage.look("s", "", "quick", np.int64(5)) == [3, 5]
        assert storage.look("s", "x" * 10_000, "quick", 5) == []
        assert storage.look("s", "", "full", 5) == []
    with Storage(url) as storage:
        assert storage.look("s", "x" * 10_000, "quick", 9) == [5]


def a_check(**fields: Any) -> StoredCheck:
    claim = higher("hits", "a", than=["b", "<c>"], by=2, tasks="t", says="a is better")
    parts = (
        Part(task="t", other="b", outcome=Outcome.SUPPORTED, estimate=3.0, low=2.5, high=3.5, pairs=5),
        Part(task="t", other="<c>", outcome=Outcome.INCONCLUSIVE, reason="2 of 5 cells failed", pairs=3),
    )
    verdict = Verdict(claim=claim, outcome=Outcome.INCONCLUSIVE, bar=2.0, parts=parts, n_tasks=1, n_seeds=5)
    flat = Verdict(claim=slope("e", "a", on="n", between=(-0.6, -0.4)), outcome=Outcome.UNTESTED, bar=(-0.6, -0.4))
    base: dict[str, Any] = {
        "study": "s", "budget": "quick", "context": "data ü.csv", "seeds": (1, 2, 3, 4, 5), "identity": "i",
        "finished": "2026-01-01T00:00:00+00:00", "command": "assay check s", "keys": ("k1", "k2"),
        "verdicts": (verdict, flat), "tasks": (TaskLine(name="t", what="a task", control=True),),
        "arms": (ArmLine(name="a", role="method"), ArmLine(name="mine", role="baseline", yours=True)),
        "primary": "hits", "better": "higher", "metrics": {"hits": "share"}, "left_out": ("t2",),
        "earlier_looks": (3,), "decisions": ("Switch.",), "placebo": False,
    }  # fmt: skip
    return StoredCheck(**(base | fields))


def test_a_check_comes_back_as_it_went_and_a_later_one_takes_its_place(url: str) -> None:
    check = a_check()
    with Storage(url) as storage:
        storage.keep_check(a_check(command="earlier"))
        storage.keep_check(check)
        assert storage.checks() == [check]
        more = a_check(seeds=tuple(range(7)), finished="2026-01-02")
        other = a_check(study="o", budget="full", finished="2025-01-01")
        storage.keep_check(more)
        storage.keep_check(other)
        assert storage.checks() == [other, check, more]
        assert storage.checks(study="s", budget="quick") == [check, more]
        assert storage.checks(study="s", budget="full") == []


def test_a_damaged_check_is_named(url: str) -> None:
    for damage in ("{", "[]", "{}", '{"verdicts": 7}'):
        with Storage(url) as storage:
            storage.keep_check(a_check())
            run_sql(storage, "UPDATE assay_check SET data = :damage", damage=damage)
            with pytest.raises(InputError, match="the check of 's' at budget quick is damaged") as error:
                storage.checks()
            one_line(error)


# Leases


def test_leases_are_taken_given_up_and_refused(url: str) -> None:
    with Storage(url) as storage, Storage(url) as other:
        assert storage.lease("a")
        assert storage.lease("a")  # it holds it
        assert storage.lease("b")
        assert storage.lease("c")
        assert not other.lease("a")
        assert other.held_by_others(["a", "b", "z"]) == {"a", "b"}
        assert storage.held_by_others(["a", "b"]) == set()
        storage.release(["a", "z"])
        assert other.lease("a")
        other.release(["b"])  # not its own
        assert other.held_by_others(["b", "c"]) == {"b", "c"}
        storage.release()
        assert other.held_by_others(["b", "c"]) == set()
        assert storage.held_by_others(["a"]) == {"a"}
        other.close()
        assert storage.held_by_others(["a"]) == set()
        assert storage.lease("a")


def test_a_closed_storage_says_so(url: str) -> None:
    storage = Storage(url)
    assert storage.lease("k")
    storage.close()
    storage.close()
    storage.beat()  # a thread that comes late
    with pytest.raises(RuntimeError, match=r"^storage .* is closed$"):
        storage.lease("k")
    with Storage(url) as other:
        assert other.lease("k")


RACE = """
print("ready", flush=True)
sys.stdin.readline()
with Storage(sys.argv[1]) as storage:
    storage.beat()
    for i in range(200):
        if storage.lease(f"k{i}"):
            assert storage.finish(Record(key=f"k{i}", study="s", task="t", arm=sys.argv[2], role="method", seed=i,
                                         budget="smoke"))
            print(i)
"""


def test_processes_race_for_a_fresh_storage_and_its_cells(url: str) -> None:
    """Four processes create one storage at the same moment and share 200 cells: each cell once, none lost."""
    racers = [python(RACE, url, str(n)) for n in range(4)]
    for racer in racers:
        assert racer.stdout
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    done = [racer.communicate(timeout=60) for racer in racers]
    assert [(racer.returncode, err) for racer, (_, err) in zip(racers, done, strict=True)] == [(0, "")] * 4
    took = [int(line) for out, _ in done for line in out.split()]
    assert sorted(took) == list(range(200))
    with Storage(url) as storage:
        assert sorted(r.seed for r in storage.records()) == list(range(200))
        for n, (out, _) in enumerate(done):
            assert {r.seed for r in storage.records(arm=str(n))} == {int(line) for line in out.split()}


def test_threads_share_one_storage(url: str) -> None:
    errors: list[BaseException] = []
    stored: list[str] = []

    def work(storage: Storage) -> None:
        try:
            for i in range(50):
                storage.beat()
                # Two threads of one run both "hold" a cell; only one can store it.
                if storage.lease(f"k{i}") and storage.finish(make(f"k{i}")):
                    stored.append(f"k{i}")
        except BaseException as error:
            errors.append(error)

    with Storage(url) as storage:
        threads = [threading.Thread(target=work, args=(storage,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert sorted(stored) == sorted(f"k{i}" for i in range(50))
        assert len(storage.records()) == 50


HOLD = """
storage = Storage(sys.argv[1])
for key in sys.argv[2:]:
    assert storage.lease(key)
print("held", flush=True)
sys.stdin.readline()
record = Record(key=sys.argv[2], study="s", task="t", arm="late", role="method", seed=1, budget="smoke")
print(storage.finish(record), storage.finish(record), flush=True)
"""


@pytest.fixture
def holder(url: str) -> Iterator[subprocess.Popen[str]]:
    process = python(HOLD, url, "a", "b")
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_leases_of_a_killed_run_pass_on_at_once(url: str, holder: subprocess.Popen[str]) -> None:
    with Storage(url) as storage, Storage(url) as third:
        assert storage.held_by_others(["a", "b"]) == {"a", "b"}
        assert not storage.lease("a")
        holder.send_signal(signal.SIGKILL)
        while owner.process_start(holder.pid) is not None:  # a zombie, which nobody has waited for, is dead
            time.sleep(0.01)
        assert storage.held_by_others(["a", "b"]) == set()
        assert storage.lease("a")
        assert not third.lease("a")
        assert third.lease("b")
        store(storage, make("a"))


def test_a_suspended_run_wakes_without_its_lease(
    url: str, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Storage(url) as storage:
        holder.send_signal(signal.SIGSTOP)
        assert not storage.lease("a")
        time.sleep(0.02)
        monkeypatch.setattr(storage_module, "LEASE_SECONDS", 0.01)
        assert storage.lease("a")
        holder.send_signal(signal.SIGCONT)
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write("go\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "False False\n"
        assert storage.records() == []
        assert storage.finish(make("a", arm="successor"))
        assert [r.arm for r in storage.records()] == ["successor"]


def foreign(storage: Storage, key: str, host: str = "elsewhere", pid: int = 1, started: str = "1") -> str:
    """Let a run on another machine hold ``key``; return its id."""
    run = f"run-{key}"
    run_sql(storage, "INSERT INTO assay_run VALUES (:run, :host, :pid, :started, 0)", run=run, host=host, pid=pid,
            started=started)  # fmt: skip
    run_sql(storage, "INSERT INTO assay_lease VALUES (:key, :run)", key=key, run=run)
    return run


def test_a_process_id_used_again_is_another_process(url: str) -> None:
    me = os.getpid()
    with Storage(url) as storage:
        foreign(storage, "same", owner.host(), me, owner.process_start(me) or "")
        foreign(storage, "unknown", owner.host(), me, "")
        foreign(storage, "reused", owner.host(), me, "12345")
        foreign(storage, "gone", owner.host(), 2**22 + 5)
        keys = ["same", "unknown", "reused", "gone"]
        assert storage.held_by_others(keys) == {"same", "unknown"}
        assert [storage.lease(key) for key in keys] == [False, False, True, True]


def test_a_silent_run_elsewhere_is_taken_over_and_a_living_one_is_not(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_module, "LEASE_SECONDS", 0.3)
    with Storage(url) as storage, Storage(url) as other:
        foreign(storage, "silent")
        alive = foreign(storage, "alive")
        storage.beat()  # sees them for the first time
        for _ in range(8):
            time.sleep(0.05)
            run_sql(storage, "UPDATE assay_run SET beat = beat + 1 WHERE id = :run", run=alive)
            storage.beat()
        assert storage.held_by_others(["silent", "alive"]) == {"alive"}
        # Another observer has its own clock, which starts now.
        assert not other.lease("silent")
        assert not storage.lease("alive")
        assert storage.lease("silent")
        time.sleep(0.31)
        assert not other.lease("silent")  # it has passed on to one that lives
        assert storage.lease("alive")


def test_only_one_of_many_successors_takes_a_lease(url: str) -> None:
    successors = [Storage(url) for _ in range(4)]
    keys = [f"k{i}" for i in range(20)]
    for key in keys:
        foreign(successors[0], key, owner.host(), 2**22 + 5)
    took: list[str] = []
    start = threading.Barrier(4)

    def work(storage: Storage) -> None:
        start.wait()
        took.extend(key for key in keys if storage.lease(key))

    threads = [threading.Thread(target=work, args=(s,)) for s in successors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for storage in successors:
        storage.close()
    assert sorted(took) == sorted(keys)


def test_the_rows_of_dead_runs_do_not_pile_up(url: str) -> None:
    with Storage(url) as storage:
        foreign(storage, "dead", owner.host(), 2**22 + 5)
        foreign(storage, "elsewhere")
    with Storage(url) as storage:
        storage.beat()
        with storage._transaction(write=False) as connection:
            runs = set(connection.execute(text("SELECT id FROM assay_run")).scalars())
        assert runs == {"run-elsewhere", storage._owner.id}
        assert storage.lease("dead")


def test_a_run_that_was_forgotten_comes_back_with_its_next_beat(url: str) -> None:
    with Storage(url) as storage, Storage(url) as other:
        assert storage.lease("k")
        run_sql(other, "DELETE FROM assay_run")
        storage.beat()
        storage.beat()
        assert not other.lease("k")


def test_reading_leaves_no_trace(url: str) -> None:
    with Storage(url) as storage:
        storage.finished(["k"])
        storage.records()
        storage.held_by_others(["k"])
        with storage._transaction(write=False) as connection:
            assert connection.execute(text("SELECT count(*) FROM assay_run")).scalar() == 0


# Opening


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("results", "is not a database URL; give sqlite:///results.db"),
        ("", "is not a database URL"),
        ("mysql://user:geheim@host/db", "assay knows SQLite and PostgreSQL"),
        ("postgresql+asyncpg://user:geheim@host/db", "assay knows SQLite and PostgreSQL"),
        ("postgresql://user:geheim@host:port/db", "is not a database URL"),
        ("postgresql://user:ge/he@im@host:port/db?password=geheim", "is not a database URL"),
        ("sqlite://results.db", "three slashes"),
        ("sqlite:///x.db?colour=red", "take colour out of the URL"),
        ("sqlite:///no/such/folder/x.db", "there is no folder .*/no/such/folder; create it first"),
        ("/tmp", "is not a database URL"),
    ],
)
def test_a_wrong_url_is_told_in_one_line(wrong: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        Storage(wrong)
    message = one_line(error)
    assert "geheim" not in message
    assert "he@im" not in message


def test_paths_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("results.db", str(tmp_path / "results.db"), "sqlite:///results.db"):
        with Storage(url) as storage:
            storage.look("s", "", "quick", 3)
            (tmp_path / "sub").mkdir(exist_ok=True)
            monkeypatch.chdir(tmp_path / "sub")  # no connection may lead to another file now
            storage._database.engine.dispose()
            storage.look("s", "", "quick", 3)
            monkeypatch.chdir(tmp_path)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["results.db"]
    monkeypatch.setenv("HOME", str(tmp_path))
    Storage("~/home.sqlite").close()
    assert (tmp_path / "home.sqlite").exists()


def test_the_file_is_in_wal_mode(tmp_path: Path) -> None:
    with Storage(f"sqlite:///{tmp_path / 'x.db'}") as storage, storage._transaction(write=False) as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 1


def test_a_folder_is_no_storage(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    for url in (str(tmp_path / "x.db"), f"sqlite:///{tmp_path}"):
        with pytest.raises(InputError, match="is a folder; name a file in it"):
            Storage(url)


def test_a_file_that_is_no_database_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"a,b\n1,2\n" * 1000)
    with pytest.raises(InputError, match="is not an SQLite database; give") as error:
        Storage(str(path))
    one_line(error)
    assert path.read_bytes() == b"a,b\n1,2\n" * 1000
    assert list(tmp_path.iterdir()) == [path]


def test_another_programs_sqlite_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE meta (version TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"another program's tables \(meta\); name a database of assay's own"):
        Storage(str(path))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_another_programs_database_is_refused(url: str) -> None:
    with Storage(url) as storage:
        for table in schema.TABLES.tables:
            run_sql(storage, f"DROP TABLE {table}")
        run_sql(storage, "CREATE TABLE customers (id INTEGER)")
    with pytest.raises(InputError, match=r"another program's tables \(customers\)") as error:
        Storage(url)
    one_line(error)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Storage(str(path)) as storage:
        store(storage, *(make(f"k{i}", reason="x" * 500) for i in range(200)))
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(whole[:8192] + b"\xa5" * (len(whole) - 8192))
    with (
        pytest.raises(InputError, match=r"is damaged .*; restore a copy or name another storage") as error,
        Storage(str(path)) as storage,
    ):
        storage.records()
    one_line(error)
    path.write_bytes(whole[:middle])  # a copy that stopped half-way
    with pytest.raises(InputError, match="is damaged") as error, Storage(str(path)) as storage:
        storage.records()
    one_line(error)


@pytest.mark.parametrize("value", ["soon", "-1", "", "²"])
def test_a_damaged_version_is_told(url: str, value: str) -> None:
    with Storage(url) as storage:
        run_sql(storage, "UPDATE assay_meta SET value = :value", value=value)
    with pytest.raises(InputError, match="is damaged: its version is") as error:
        Storage(url)
    one_line(error)


def test_a_missing_table_is_told(url: str) -> None:
    with Storage(url) as storage:
        run_sql(storage, "DROP TABLE assay_lease")
        with pytest.raises(InputError, match=r"is damaged \(.*assay_lease"):
            storage.lease("k")
    with pytest.raises(InputError, match="it has no table assay_lease"):
        Storage(url)


def test_a_newer_storage_asks_for_an_upgrade(url: str) -> None:
    with Storage(url) as storage:
        run_sql(storage, "UPDATE assay_meta SET value = '99'")
    with pytest.raises(InputError, match=r"newer assay .*version 99.*; upgrade assay") as error:
        Storage(url)
    one_line(error)


def test_an_older_storage_is_migrated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Storage(url) as storage:
        store(storage, make("old"))
        storage.look("s", "", "quick", 3)
    calls = []

    def add_note(connection: Connection) -> None:
        calls.append(1)
        connection.execute(text("ALTER TABLE assay_look ADD COLUMN note TEXT"))

    def fill_note(connection: Connection) -> None:
        calls.append(2)
        connection.execute(text("UPDATE assay_look SET note = 'before'"))
        if len(calls) < 3:
            raise RuntimeError("power cut")

    now = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", now + 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {})
    with pytest.raises(InputError, match="too old"):
        Storage(url)
    monkeypatch.setattr(schema, "MIGRATIONS", {now: add_note, now + 1: fill_note})
    with pytest.raises(RuntimeError, match="power cut"):
        Storage(url)
    # Nothing of the first try is left, not even its new column.
    for _ in range(2):
        with Storage(url) as storage:
            assert [r.key for r in storage.records()] == ["old"]
            with storage._transaction(write=False) as connection:
                assert connection.execute(text("SELECT note FROM assay_look")).scalars().all() == ["before"]
                assert connection.execute(text("SELECT value FROM assay_meta")).scalars().all() == [str(now + 2)]
    assert calls == [1, 2, 1, 2]


def test_two_migrations_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Storage(url).close()
    calls = []

    def slow(connection: Connection) -> None:
        calls.append(1)
        connection.execute(text("ALTER TABLE assay_look ADD COLUMN note TEXT"))
        time.sleep(0.2)

    monkeypatch.setattr(schema, "MIGRATIONS", {schema.VERSION: slow})
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    opened: list[Storage] = []
    threads = [threading.Thread(target=lambda: opened.append(Storage(url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for storage in opened:
        storage.close()
    assert (len(opened), calls) == (3, [1])


def test_a_storage_without_checks_gets_their_table(url: str) -> None:
    """Version 1 had no checks: made here from this version by taking their table away."""
    with Storage(url) as storage:
        store(storage, make("old"))
        run_sql(storage, "DROP TABLE assay_check")
        run_sql(storage, "UPDATE assay_meta SET value = '1' WHERE name = 'version'")
    for _ in range(2):
        with Storage(url) as storage:
            assert [r.key for r in storage.records()] == ["old"]
            assert len(storage.checks()) <= 1
            storage.keep_check(StoredCheck(study="s", budget="quick", keys=("old",)))
            with storage._transaction(write=False) as connection:
                tables = inspect(connection)
                columns = {c["name"]: str(c["type"]) for c in tables.get_columns("assay_check")}
                assert tables.get_indexes("assay_check")[0]["name"] == "assay_check_study"
    assert columns == {column.name: "TEXT" for column in schema.check.c}


def test_tables_match_the_record() -> None:
    """A new field of ``Record`` needs a column, a new version and a migration."""
    assert [column.name for column in schema.record.c] == list(Record.__dataclass_fields__)
    assert isinstance(schema.record.c["key"], Column)
    assert isinstance(schema.record.c["metrics"].type, Text)
    assert sorted(schema.MIGRATIONS) == list(range(1, schema.VERSION))


# Files that cannot be written


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """A folder of a user who is not root; while the test runs, so are we."""
    with tempfile.TemporaryDirectory(prefix="assay-") as name:
        if os.geteuid() != 0:
            yield Path(name)
            return
        os.chown(name, 65534, 65534)
        os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


def test_a_read_only_file_can_be_read_and_says_that_it_cannot_be_written(ordinary_user: Path) -> None:
    path = ordinary_user / "x.db"
    with Storage(str(path)) as storage:
        store(storage, make("k"))
    path.chmod(0o444)
    with Storage(str(path)) as storage:
        assert [r.key for r in storage.records()] == ["k"]
        for write in (storage.beat, lambda: storage.lease("n"), lambda: storage.forget(["k"])):
            with pytest.raises(PermissionError, match="cannot be written: attempt to write a readonly") as error:
                write()
            one_line(error)
    path.chmod(0)
    with pytest.raises(OSError, match="cannot be used: unable to open database file") as error:
        Storage(str(path))
    one_line(error)
    ordinary_user.chmod(0o555)
    with pytest.raises(OSError, match="cannot be used: unable to open database file"):
        Storage(str(ordinary_user / "new.db"))
    ordinary_user.chmod(0o755)


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with Storage(str(tmp_path / "x.db")) as storage:
        assert storage.lease("k")
        with storage._transaction(write=False) as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 20")  # what a full disk answers
        with pytest.raises(OSError, match="cannot be used: database or disk is full") as error:
            storage.finish(make("k", reason="x" * 10**6))
        one_line(error)
        assert storage.finish(make("k"))  # nothing was half-written: lease and storage are as before


def test_a_locked_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    Storage(str(path)).close()
    monkeypatch.setattr("assay.evidence.database.WAIT_SECONDS", 0.1)
    other = sqlite3.connect(path, isolation_level=None)
    with Storage(str(path)) as storage:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OSError, match="is locked: another program has held it") as error:
            storage.lease("k")
        one_line(error)
        assert storage.records() == []  # reading goes on
        other.execute("ROLLBACK")
        assert storage.lease("k")
    other.close()


def test_opening_waits_for_a_transaction_on_the_new_file(tmp_path: Path) -> None:
    """SQLite itself does not wait when the mode of the file changes."""
    path = tmp_path / "x.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, other.execute, ["ROLLBACK"])
    timer.start()
    with Storage(str(path)) as storage:
        store(storage, make("k"))
    timer.join()
    other.close()


def test_a_file_that_is_removed_in_use_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Storage(str(path)) as storage:
        assert storage.lease("k")
        path.unlink()
        with pytest.raises(OSError, match="was removed or replaced while it was in use; open it again") as error:
            storage.finish(make("k"))
        one_line(error)


def test_a_storage_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("sqlite://", "sqlite:///:memory:"):
        with Storage(url) as storage:
            thread = threading.Thread(target=lambda s=storage: store(s, make("k")))  # type: ignore[misc]
            thread.start()
            thread.join()
            assert [r.key for r in storage.records()] == ["k"]


def test_it_is_fast_enough(tmp_path: Path) -> None:
    with Storage(str(tmp_path / "x.db")) as storage:
        storage.beat()
        rates = []
        for n in range(4):  # the best of four: other programs run on this machine too
            start = time.process_time()
            store(storage, *(make(f"k{n}-{i}", metrics={"error": 0.5}) for i in range(100)))
            rates.append(100 / (time.process_time() - start))
        assert max(rates) > 500


# PostgreSQL


def test_without_psycopg_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingPart, match=r"needs psycopg; install it with: python -m pip install 'psycopg\[binary\]'"):
        Storage("postgresql://user@127.0.0.1/db")


def test_a_server_that_stops_is_one_clear_error_and_can_come_back(postgres: Any) -> None:
    url = postgres.new_database()
    with Storage(url) as storage:
        store(storage, make("a"))
        assert storage.lease("b")
        assert storage.lease("c")
        postgres.stop()
        calls: list[Any] = [
            lambda: storage.finish(make("b")), storage.beat, storage.records, lambda: storage.lease("d"),
            lambda: storage.finished(["a"]), storage.release, lambda: storage.look("s", "", "quick", 3),
            lambda: storage.forget(["a"]), lambda: storage.held_by_others(["a"]), lambda: Storage(url),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(
                ConnectionError, match=r"^storage postgresql://assay@127\.0\.0\.1:\d+/postgres"
            ) as error:
                call()
            assert "cannot be reached: " in one_line(error)
            assert "geheim" not in one_line(error)
        postgres.start()
        storage.beat()
        assert storage.finish(make("b"))
        # It stops with the connection idle and starts again: the next call does not notice.
        postgres.stop()
        postgres.start()
        assert storage.finish(make("c"))
        assert [r.key for r in storage.records()] == ["a", "b", "c"]
        postgres.stop()
    # Closing a storage whose server is gone is no error.


def test_a_server_that_stops_inside_a_call(postgres: Any) -> None:
    with Storage(postgres.new_database()) as storage:
        assert storage.lease("k")

        def delete_all() -> None:
            with storage._transaction(write=True) as connection:
                connection.execute(text("DELETE FROM assay_lease"))
                postgres.stop()
                connection.execute(text("SELECT 1"))

        with pytest.raises(ConnectionError, match="cannot be reached") as error:
            delete_all()
        one_line(error)
        postgres.start()
        assert storage.finish(make("k"))  # the deletion was undone


def test_what_a_server_refuses(postgres: Any) -> None:
    url = postgres.new_database()
    for wrong, says in [
        (url.replace("geheim", "wrong"), 'refuses: password authentication failed for user "assay"'),
        (url.replace("/postgres?", "/absent?"), 'refuses: database ".*" does not exist'),
        (url.replace("assay:geheim@", "nobody:geheim@"), "refuses: password authentication failed"),
    ]:
        with pytest.raises(InputError, match=says) as error:
            Storage(wrong)
        one_line(error)
        assert "geheim" not in str(error.value)
    with Storage(url.replace("postgresql://", "postgresql+psycopg://")) as storage:
        store(storage, make("k"))
    with Storage(url + "%20-cdefault_transaction_read_only%3Don&connect_timeout=5") as storage:
        assert [r.key for r in storage.records()] == ["k"]
        with pytest.raises(PermissionError, match=r"cannot be written: .*read-only transaction") as error:
            storage.lease("n")
        one_line(error)
    with Storage(url.replace("postgresql://", "postgres://")) as storage:
        assert "geheim" not in repr(storage)
        run_sql(storage, "CREATE ROLE guest LOGIN PASSWORD 'geheim'")
    guest = url.replace("assay:", "guest:")
    with pytest.raises(InputError, match="refuses: no schema has been selected") as error:
        Storage(guest)
    one_line(error)
    for schema_url, says in [(url, "permission denied for table"), (postgres.new_database(), "permission denied for")]:
        with Storage(url) as storage:
            run_sql(storage, f"GRANT USAGE ON SCHEMA {schema_url.rpartition('%3D')[2]} TO guest")
        with pytest.raises(PermissionError, match=says) as error:
            Storage(schema_url.replace("assay:", "guest:"))
        one_line(error)
    with pytest.raises(InputError, match=r"has a wrong option in its URL: .*colour") as error:
        Storage(url + "&colour=red")
    one_line(error)


def test_a_metric_as_it_stands_in_the_database(url: str) -> None:
    """Other programs read the table: JSON with counts spelled out."""
    with Storage(url) as storage:
        store(storage, make("k", metrics={"flag": Proportion(1, 20), "x": 0.5}))
        with storage._transaction(write=False) as connection:
            stored = connection.execute(text("SELECT metrics FROM assay_record")).scalar_one()
    assert json.loads(stored) == {"flag": {"events": 1, "trials": 20}, "x": 0.5}
