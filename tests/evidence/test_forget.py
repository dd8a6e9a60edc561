from __future__ import annotations

import datetime
import multiprocessing
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError
from assay.evidence.forget import age, choose, summary
from assay.evidence.record import Record
from assay.evidence.run import Plan
from assay.evidence.shared import free, shared, watch_shared
from assay.evidence.storage import Storage
from assay.evidence.stored_check import StoredCheck
from assay.evidence.study import Arm, Budget, Study, Task


def make(key: str, **fields: Any) -> Record:
    base: dict[str, Any] = {"study": "s", "task": "t", "arm": "a", "role": "method", "seed": 1, "budget": "smoke"}
    return Record(key=key, **(base | fields))


def store(storage: Storage, *records: Record) -> None:
    for record in records:
        assert storage.lease(record.key)
        assert storage.finish(record)


def ago(**time: float) -> str:
    return (datetime.datetime.now(datetime.UTC) - datetime.timedelta(**time)).isoformat(timespec="seconds")


# Choosing


@pytest.mark.parametrize(("text", "hours"), [("12h", 12), ("30d", 720), ("2w", 336), ("90m", 1.5), (" 1d ", 24)])
def test_an_age_is_a_number_and_a_unit(text, hours):
    assert age(text) == datetime.timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "1y", "30 days", "9999999d", "1d2h"])
def test_what_is_no_age_is_refused_in_one_line(text):
    with pytest.raises(InputError, match=r"--older-than must be .* such as 30d, got"):
        age(text)


def test_all_that_is_asked_for_must_fit():
    records = [
        make("1", arm="a", finished=ago(days=40)),
        make("2", arm="b", finished=ago(days=40), status="failed"),
        make("3", arm="b", finished=ago(days=1), status="missing"),
        make("4", study="o", arm="b", finished=ago(days=40), status="failed"),
    ]

    def keys(**wanted):
        return [record.key for record in choose(records, **wanted).records]

    assert keys(study="s") == ["1", "2", "3"]
    assert keys(arms=["b"]) == ["2", "3", "4"]
    assert keys(arms=["a", "b"], study="o") == ["4"]
    assert keys(older_than=age("30d")) == ["1", "2", "4"]
    assert keys(older_than=age("41d")) == []
    assert keys(older_than=age("999999w")) == []
    assert keys(failed=True) == ["2", "3", "4"]
    assert keys(failed=True, study="s", older_than=age("2d")) == ["2"]


def test_a_record_of_unknown_age_stays_and_is_told():
    choice = choose([make("1"), make("2", finished="gone"), make("3", finished="2020-01-01")], older_than=age("1d"))
    assert [record.key for record in choice.records] == ["3"]
    assert summary(choice) == "1 record (s 1), which took 0 CPU seconds; kept are 2 of unknown age"


def a_study() -> Study:
    task = Task("t", load=lambda seed, budget: (1, 1), score=lambda output, hidden: {"m": 1.0})
    arm = Arm("a", run=lambda given, seed, budget: 1, role="method")
    return Study(name="s", tasks=(task,), arms=(arm,), claims=(), primary="m", better="higher")


def test_stale_is_what_the_present_code_did_not_make():
    def records(code: str, seed: int, **fields: Any) -> Record:
        versions = {"numpy": "1"}
        plan = Plan(study=a_study(), budget=Budget.SMOKE, seeds=(seed,), code=code, versions=versions)
        return make(plan.cells[0].key, seed=seed, versions=versions, **fields)

    new, old = records("new", 1), records("old", 2)
    beside = records("new", 3, context="mine = m:f")  # made while the user had brought an arm
    brought = records("old", 4, context="data x.csv")
    foreign = make("f", study="elsewhere")
    gone = make("g", arm="no such arm any more")
    choice = choose([new, old, beside, brought, foreign, gone], stale={"s": (a_study(), "new")}.get)
    assert choice.records == [old, gone]
    assert choice.kept == ["1 of elsewhere whose code cannot be told", "1 of s whose code cannot be told"]


# Deleting


def a_check(*keys: str, **fields: Any) -> StoredCheck:
    return StoredCheck(**({"study": "s", "budget": "smoke", "seeds": (1, 2), "keys": keys} | fields))


def test_a_check_goes_with_its_last_record_and_not_before(url):
    with Storage(url) as storage:
        store(storage, *(make(key) for key in "abcd"))
        both, other = a_check("a", "b"), a_check("c", "d", identity="i")
        storage.keep_check(both)
        storage.keep_check(other)
        storage.keep_check(a_check("never stored", identity="j"))
        storage.look("s", "", "smoke", 3)
        read = storage.finished("abcd")
        assert storage.delete([read["a"], read["c"]]) == (2, 0)
        assert both in storage.checks()
        assert storage.delete([read["b"]]) == (1, 1)
        assert {check.identity for check in storage.checks()} == {"i", "j"}
        assert [record.key for record in storage.records()] == ["d"]
        assert storage.delete([read["b"]]) == (0, 0)
        assert storage.delete([]) == (0, 0)
        assert storage.look("s", "", "smoke", 5) == [3]


def test_what_was_written_anew_or_is_held_stays(url):
    with Storage(url) as storage, Storage(url) as running:
        store(storage, make("a", finished="2026-01-01", status="failed"), make("b"), make("c"))
        read = storage.records()
        storage.forget(["a"])  # another run tries the failed cell again
        store(running, make("a", finished="2026-01-02"))
        # A record that stands although its cell is held, as after a connection that broke during the commit.
        with running._database.transaction(write=True) as connection:
            running._register()
            connection.exec_driver_sql(f"INSERT INTO assay_lease VALUES ('b', '{running._owner.id}')")
        assert running.lease("d")
        assert storage.delete(read) == (1, 0)
        assert sorted(record.key for record in storage.records()) == ["a", "b"]
        assert running.finish(make("d"))


def test_many_at_once(url):
    with Storage(url) as storage:
        records = [make(f"k{i}", finished="2026-01-01") for i in range(1001)]
        with storage._database.transaction(write=True) as connection:
            from assay.evidence import rows, schema

            connection.execute(schema.record.insert(), [rows.to_row(record) for record in records])
        storage.keep_check(a_check(*(record.key for record in records)))
        assert storage.delete(records) == (1001, 1)
        assert storage.records() == []


# Shared work


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    return tmp_path / "shared"


def fill(folder: Path) -> None:
    (folder / "numbers").write_bytes(bytes(2**20))


def test_free_deletes_by_age_and_says_how_much(cache):
    assert free() == free(dry_run=True)  # nothing was ever made
    old, new = shared("old", fill), shared("new", fill)
    (cache / "notes.txt").write_text("not of our making")
    (cache / "folder").mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    would = free(3600, dry_run=True)
    assert (would.pieces, would.in_use) == (1, 0)
    assert would.mib == pytest.approx(1, abs=0.01)
    assert old.exists()
    assert free(3600) == would
    assert not old.exists()
    assert new.exists()
    assert free().pieces == 1
    assert sorted(path.name for path in cache.iterdir() if path.suffix != ".lock") == ["folder", "notes.txt"]
    assert shared("old", fill) == old
    assert (old / "numbers").stat().st_size == 2**20


def test_free_leaves_what_a_cell_uses_until_it_ends(cache):
    with watch_shared(""):
        folder = shared("key", fill)
        assert shared("key", fill) == folder  # others and the cell itself do not wait for its use
        assert (free().pieces, free().in_use) == (0, 1)
        assert folder.exists()
    assert free().pieces == 1
    assert not folder.exists()


def test_free_leaves_what_is_being_made_and_takes_what_a_killed_process_left(cache):
    process = multiprocessing.get_context("spawn").Process(target=_make_slowly)
    process.start()
    while not list(cache.glob("*.part/begun")):
        time.sleep(0.05)
    assert (free().pieces, free().in_use) == (0, 1)
    process.kill()
    process.join()
    assert free().pieces == 1
    assert not list(cache.glob("*.part"))


def _make_slowly() -> None:
    def make(folder: Path) -> None:
        (folder / "begun").touch()
        time.sleep(600)

    shared("key", make)


# The command


@pytest.fixture
def filled(tmp_path):
    with Storage(f"sqlite:///{tmp_path}/r.db") as storage:
        store(storage, make("1", finished=ago(days=3)), make("2", arm="b", status="failed", finished=ago(hours=1)))
        storage.keep_check(a_check("1"))
    return tmp_path / "r.db"


def left(path: Path) -> list[str]:
    return [key for (key,) in sqlite3.connect(path).execute("SELECT key FROM assay_record ORDER BY key")]


def test_forget_says_what_would_go_deletes_on_yes_and_drops_the_empty_check(assay, filled):
    done = assay("forget", "--failed", "--dry-run", "--storage", "r.db")
    assert done.stdout == "would go: 1 record (s 1), which took 0 CPU seconds\n"
    assert left(filled) == ["1", "2"]
    done = assay("forget", "--older-than", "2d", "--yes", "--storage", "r.db")
    assert done.stdout == "1 record deleted, and 1 check of which none is left\n"
    assert left(filled) == ["2"]
    assert assay("forget", "--study", "s", "--arm", "a", "--yes", "--storage", "r.db").stdout == "no record fits\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--yes"], "forget what? give --study"),
        (["--failed"], "this would delete 1 record (s 1), which took 0 CPU seconds; say so with --yes"),
        (["--older-than", "soon"], "such as 30d, got 'soon'"),
        (["--failed", "--yes", "--storage", "gone.db"], "storage gone.db: there is no such file"),
        (["--shared", "--study", "s"], "--shared is about the cache alone"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_forget_refuses_in_one_line(refused, filled, arguments, words):
    assert words in refused("forget", *arguments, *([] if "--storage" in arguments else ["--storage", "r.db"]))
    assert left(filled) == ["1", "2"]


@pytest.mark.parametrize(("answer", "code", "stay"), [("y", 0, ["1"]), ("n", 1, ["1", "2"]), ("", 1, ["1", "2"])])
def test_forget_asks_in_a_terminal(filled, answer, code, stay):
    ours, its = pty.openpty()
    command = [Path(sys.executable).with_name("assay"), "forget", "--failed", "--storage", filled]
    process = subprocess.Popen(command, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.write(ours, f"{answer}\n".encode())
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(its)
    assert process.returncode == code
    assert out.startswith("to delete: 1 record (s 1)")
    assert left(filled) == stay


def test_forget_stale_after_a_change_of_code(assay, plug_in, tmp_path):
    assay("check", "trimmed-mean", "--budget", "smoke", "--seeds", "1", "--jobs", "1", "--storage", "r.db")
    forget = ("forget", "--stale", "--yes", "--storage", "r.db")
    assert assay(*forget).stdout == "no record fits\n"
    done = assay(*forget, env={"PYTHONPATH": ""})  # the method is not installed
    assert done.stdout == "no record fits; kept are 6 of trimmed-mean whose code cannot be told\n"
    changed = shutil.copytree(plug_in, tmp_path / "changed")
    with (changed / "trimmed_mean" / "location.py").open("a") as code:
        code.write("\nCHANGED = True\n")
    done = assay(*forget, env={"PYTHONPATH": str(changed)})
    assert done.stdout == "6 records deleted, and 1 check of which none is left\n"


def test_forget_shared_frees_the_cache(assay, refused, cache, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))  # where the command looks
    folder = shared("key", fill)
    assert assay("forget", "--shared", "--dry-run").stdout == "would go: 1.0 MiB, 1 piece of shared work\n"
    assert "would delete 1.0 MiB, 1 piece of shared work; say so with --yes" in refused("forget", "--shared")
    assert folder.exists()
    done = assay("forget", "--shared", "--older-than", "1h")
    assert done.stdout == "freed: 0.0 MiB, 0 pieces of shared work\n"
    assert assay("forget", "--shared", "--yes").stdout == "freed: 1.0 MiB, 1 piece of shared work\n"
    assert not folder.exists()
