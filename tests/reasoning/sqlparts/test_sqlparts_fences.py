"""What stands in a database's own file, who else uses it, and how a process ends: nothing gets out, nothing is left."""

import concurrent.futures
import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from assay.errors import InputError
from assay.reasoning.sqlparts import Rows, SafeDatabase, SqlError, execution_match

PLANTED = """
CREATE TABLE t (a INTEGER, b TEXT, CHECK (b <> printf('%d', 1)));
INSERT INTO t VALUES (1, 'x'), (2, 'y');
ALTER TABLE t ADD COLUMN long TEXT GENERATED ALWAYS AS (printf('%.*c', 900000, 'x')) VIRTUAL;
ALTER TABLE t ADD COLUMN evil TEXT
  GENERATED ALWAYS AS (replace(printf('%.*c', 900000, 'a'), printf('%.*c', 400000, 'a') || 'b', '')) VIRTUAL;
CREATE TABLE log (a);
CREATE TRIGGER on_insert AFTER INSERT ON t BEGIN INSERT INTO log VALUES (1); END;
CREATE VIEW endless AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c;
CREATE VIEW counted AS SELECT count(*) AS n FROM endless;
CREATE TRIGGER on_view INSTEAD OF INSERT ON endless BEGIN DELETE FROM t; END;
CREATE VIEW loads AS SELECT load_extension('/tmp/evil.so') AS x;
CREATE VIEW pages AS SELECT * FROM sqlite_dbpage;
CREATE VIEW settings AS SELECT * FROM pragma_database_list;
CREATE VIEW orphan AS SELECT * FROM gone;
CREATE VIEW itself AS SELECT * FROM itself;
CREATE VIEW wide AS SELECT zeroblob(900000) AS z FROM endless;
CREATE TABLE "two "" quotes; DROP TABLE t" (a);
CREATE TABLE "sqlparts -- [x]" ("a b" TEXT, "c""d" INTEGER, UNIQUE ("a b"));
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    path = tmp_path_factory.mktemp("planted") / "p.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.executescript(PLANTED)
        with contextlib.suppress(sqlite3.OperationalError):  # where SQLite has these modules
            writer.execute("CREATE VIRTUAL TABLE notes USING fts5 (body)")
            writer.execute("INSERT INTO notes VALUES ('secret words')")
            writer.execute("CREATE VIEW read_notes AS SELECT body FROM notes")
            writer.execute("CREATE VIRTUAL TABLE boxes USING rtree (id, x0, x1)")
        writer.commit()
    with SafeDatabase(path, timeout=0.4, max_rows=50, max_memory=16 * 2**20) as db:
        yield db


@pytest.mark.parametrize(
    ("sql", "kinds"),
    {
        "SELECT count(*) FROM endless": ("timeout",),
        "SELECT n FROM counted": ("timeout",),
        "SELECT a, evil FROM t": ("timeout", "limit"),
        "SELECT x FROM loads": ("refused", "sql"),
        "SELECT data FROM pages": ("refused", "sql"),
        "SELECT * FROM settings": ("refused", "sql"),
        "SELECT * FROM orphan": ("sql",),
        "SELECT * FROM itself": ("sql",),
        "SELECT z FROM wide": ("limit", "timeout"),
        "SELECT * FROM notes": ("refused", "sql"),
        "SELECT count(*) FROM notes": ("refused", "sql"),
        "SELECT body FROM read_notes": ("refused", "sql"),
        "SELECT count(*) FROM boxes": ("refused", "sql"),
        "SELECT * FROM notes WHERE notes MATCH 'secret'": ("refused", "sql"),
    }.items(),
)
def test_what_is_planted_in_the_file_does_nothing(planted, sql, kinds):
    found = planted.run(sql)
    assert isinstance(found, SqlError), found
    assert found.kind in kinds, found
    assert planted.run("SELECT a, b FROM t").rows == ((1, "x"), (2, "y"))


def test_odd_names_are_quoted_in_the_schema_and_in_queries(planted):
    text = planted.schema_text()
    assert 'CREATE TABLE "two "" quotes; DROP TABLE t"' in text
    assert planted.schema().has("sqlparts -- [x]", 'c"d')
    assert "notes" not in planted.schema().tables
    assert not planted.schema().tables["itself"].columns
    assert "itself" not in text
    with contextlib.closing(sqlite3.connect(":memory:")) as again:
        again.executescript(text)  # it is SQL, and names stay names
        assert {row[0] for row in again.execute("SELECT name FROM sqlite_master")} >= {"t", "sqlparts -- [x]"}
    assert planted.run('SELECT "a b" FROM "sqlparts -- [x]"').rows == ()


def test_the_changed_copies_are_read_behind_the_same_fences(planted):
    start = time.monotonic()
    with pytest.raises(InputError, match="gold"):
        execution_match("SELECT 1", "SELECT count(*) FROM endless", planted, mode="suite")
    assert time.monotonic() - start < 5
    with pytest.raises(InputError, match=r"table t can't be read.*timeout"):  # for its generated column
        execution_match("SELECT b FROM t WHERE 1 < a", "SELECT b FROM t WHERE a > 1", planted, mode="suite")


def test_texts_that_are_no_utf_8_and_large_numbers_come_through(tmp_path):
    path = tmp_path / "odd.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE t (a, b)")
        writer.execute("INSERT INTO t VALUES (CAST(x'ff41' AS TEXT), 9223372036854775807)")
        writer.execute("INSERT INTO t VALUES ('a' || char(0) || 'b', 9e999)")
        writer.commit()
    with SafeDatabase(path) as db:
        assert db.run("SELECT a, b FROM t").rows == (("\ufffdA", 2**63 - 1), ("a\0b", float("inf")))
        assert db.run("SELECT CAST(x'ff' AS TEXT) AS x").rows == (("\ufffd",),)
        assert isinstance(db.run("SELECT 9223372036854775807 + b FROM t"), Rows)
        assert "9223372036854775807" in db.schema_text()


def test_a_table_with_many_columns_is_read(tmp_path):
    frame = pd.DataFrame({f"c{i}": [i] for i in range(1500)})
    with SafeDatabase({"t": frame}) as db:
        assert len(db.run("SELECT * FROM t").rows[0]) == 1500


@pytest.mark.parametrize("kind", ["folder", "fifo", "missing", "uri", "null", "link to a text", "link to nothing"])
def test_what_is_no_database_file_is_refused_at_once(kind, tmp_path):
    path = tmp_path / "x"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link to a text":
        (tmp_path / "text").write_text("no database, but text")
        path.symlink_to(tmp_path / "text")
    elif kind == "link to nothing":
        path.symlink_to(tmp_path / "nothing")
    source = {"uri": f"file:{path}?mode=rwc", "null": "x\0y"}.get(kind, path)
    start = time.monotonic()
    with pytest.raises(InputError, match="database"):
        SafeDatabase(source)
    assert time.monotonic() - start < 5
    assert not (tmp_path / "nothing").exists()


def simple(path: Path, rows: int = 3) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE t (a)")
        writer.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(rows)])
        writer.commit()
    return path


@pytest.mark.parametrize(
    "name", ["q?mode=rwc&x=1#y.sqlite", "per%20cent.sqlite", "a b'\";.sqlite", "ünï.sqlite", b"\xff.db"]
)
def test_odd_file_names_and_links_are_opened_and_nothing_else(name, tmp_path):
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), os.fsencode(name))))
    simple(tmp_path / "plain.sqlite").rename(path)
    (tmp_path / "link").symlink_to(path)
    before = sorted(os.listdir(tmp_path))
    for source in (path, tmp_path / "link"):
        with SafeDatabase(source) as db:
            assert db.run("SELECT count(*) FROM t").rows == ((3,),)
    assert sorted(os.listdir(tmp_path)) == before


def opened_and_counted(path: Path) -> Rows | SqlError | InputError:
    try:
        with SafeDatabase(path) as db:
            return db.run("SELECT count(*), sum(a) FROM t")
    except InputError as error:
        return error


def test_damaged_files_of_every_kind_are_refused_or_answer_with_errors(tmp_path):
    raw = simple(tmp_path / "whole.sqlite", rows=3000).read_bytes()
    damaged = {
        "half": raw[: len(raw) // 2 + 7],
        "head": raw[:16] + os.urandom(84) + raw[100:],
        "schema": raw[:100] + os.urandom(500) + raw[600:],
        "only the head": raw[:16],
        "zeros": raw[:4096] + bytes(len(raw) - 4096),
    }
    for name, content in damaged.items():
        path = tmp_path / f"{name}.sqlite"
        path.write_bytes(content)
        outcome = opened_and_counted(path)
        assert isinstance(outcome, SqlError | InputError), (name, outcome)
    (tmp_path / "empty.sqlite").touch()
    with SafeDatabase(tmp_path / "empty.sqlite") as db:
        assert db.schema_text() == ""
        assert db.run("SELECT 1").rows == ((1,),)


def test_another_program_that_writes_is_seen_and_left_alone(tmp_path):
    path = simple(tmp_path / "w.sqlite", rows=1)
    for mode in ("DELETE", "WAL"):
        with contextlib.closing(sqlite3.connect(path)) as writer, SafeDatabase(path) as db:
            writer.execute(f"PRAGMA journal_mode={mode}")
            for _ in range(4):
                writer.execute("INSERT INTO t SELECT count(*) FROM t")
                writer.commit()
                n = writer.execute("SELECT count(*) FROM t").fetchone()[0]
                assert db.run("SELECT count(*) FROM t").rows == ((n,),)
            writer.execute("BEGIN EXCLUSIVE")
            writer.execute("INSERT INTO t SELECT a FROM t")
            files = sorted(os.listdir(tmp_path))
            assert db.run("SELECT count(*) FROM t").rows == ((n,),)  # not what is not committed
            assert sorted(os.listdir(tmp_path)) == files
            writer.rollback()
    assert not left_behind()


def test_a_file_that_is_gone_or_becomes_something_else_is_refused(tmp_path):
    path = simple(tmp_path / "g.sqlite")
    with SafeDatabase(path) as db:
        path.write_text("something else, longer than a head")
        with pytest.raises(InputError, match="SQLite"):
            db.run("SELECT 1")
        path.unlink()
        with pytest.raises(InputError, match="no database"):
            db.run("SELECT 1")
        simple(path, rows=7)
        assert db.run("SELECT count(*) FROM t").rows == ((7,),)
    with pytest.raises(InputError, match="closed"):
        db.run("SELECT 1")


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    with SafeDatabase(simple(tmp_path_factory.mktemp("shared") / "s.sqlite", rows=100), timeout=1.0) as db:
        yield db


def test_many_threads_get_each_their_own_answer(db):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda i: db.run(f"SELECT {i}, count(*) FROM t WHERE a < {i}"), range(200)))
    assert [one.rows[0] for one in found] == [(i, min(i, 100)) for i in range(200)]


def test_a_program_with_many_open_files_can_run_queries(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, before[1]) if before[1] > 0 else 2048, before[1]))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1030)]
    try:
        with SafeDatabase({"t": pd.DataFrame({"a": [1, 2]})}) as db:
            assert db.run("SELECT a FROM t").rows == ((1,), (2,))
    finally:
        for file in many:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_process_that_is_killed_in_the_middle_is_an_error_and_the_next_query_runs(db):
    victim = db._worker.pid
    threading.Timer(0.2, os.kill, (victim, signal.SIGKILL)).start()
    found = db.run("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c")
    assert isinstance(found, SqlError)
    assert found.kind == "limit"
    assert db.run("SELECT count(*) FROM t").rows == ((100,),)
    os.kill(db._worker.pid, signal.SIGSTOP)  # it neither reads nor answers
    assert db.run("SELECT '" + "x" * 90_000 + "'").kind == "timeout"
    assert db.run("SELECT count(*) FROM t").rows == ((100,),)


def in_a_fork(db, pipe):
    found = db.run("SELECT count(*) FROM t")
    pipe.send((found.rows, db._worker.pid))


def test_a_fork_has_a_process_of_its_own_and_the_first_one_stays(db):
    db.run("SELECT 1")
    mine = db._worker.pid
    here, there = multiprocessing.Pipe()
    with db._lock:  # as if another thread were asking
        child = multiprocessing.get_context("fork").Process(target=in_a_fork, args=(db, there))
        child.start()
    assert here.poll(20)
    rows, other = here.recv()
    child.join(20)
    assert rows == ((100,),)
    assert other != mine
    assert db.run("SELECT count(*) FROM t").rows == ((100,),)
    assert db._worker.pid == mine
    assert gone(other)


def gone(pid: int, within: float = 10.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def left_behind() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("sqlparts-*"))


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path_factory, monkeypatch):
    """A folder for temporary files that no other process uses."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    monkeypatch.setattr(tempfile, "tempdir", folder)
    monkeypatch.setenv("TMPDIR", folder)


def test_nothing_is_left_after_closing_and_after_being_forgotten():
    frame = {"t": pd.DataFrame({"a": [1, 2]})}
    with SafeDatabase(frame) as db:
        assert not left_behind()
        pid = db._worker.pid
    assert gone(pid)
    db = SafeDatabase(frame)
    pid = db._worker.pid
    del db
    gc.collect()
    assert gone(pid)
    assert not left_behind()


PROGRAM = """
import os, sys, pandas as pd
from assay.reasoning.sqlparts import SafeDatabase
def opened():
    found = [SafeDatabase({"t": pd.DataFrame({"a": [1, 2]})}, timeout=60), SafeDatabase(sys.argv[1], timeout=60)]
    print(*(db._worker.pid for db in found), flush=True)
    return found
if os.fork() == 0:
    kept = opened()
    sys.exit()  # ends as a program does
os.wait()
if os.fork() == 0:
    kept = opened()
    os._exit(0)  # leaves at once, as the processes of multiprocessing do
os.wait()
kept = opened()
sys.stdin.read()  # and is killed
"""


def test_nothing_is_left_after_the_program_has_ended_left_or_been_killed(tmp_path):
    path = simple(tmp_path / "x.sqlite")
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("INSERT INTO t VALUES (1)")
    writer.commit()
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    ended, left, killed = ([int(pid) for pid in program.stdout.readline().split()] for _ in range(3))
    assert len(ended) == len(left) == len(killed) == 2
    assert all(psutil.pid_exists(pid) for pid in killed)
    program.kill()
    program.wait(30)
    program.stdin.close()
    program.stdout.close()
    writer.close()
    assert all(gone(pid) for pid in (*ended, *left, *killed))
    assert not left_behind()


def test_a_process_ends_itself_when_nobody_is_there_to_end_it():
    worker = Path(sys.modules[SafeDatabase.__module__].__file__).with_name("worker.py")
    with tempfile.TemporaryDirectory() as folder:
        path = simple(Path(folder) / "x.sqlite")
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(worker), str(path), "50000000", "1000000", "1000000", "0"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert "schema" in process.stdout.readline()
        step = "SELECT length(replace(printf('%.*c', 900000, 'a'), printf('%.*c', 400000, 'a') || 'b', ''))"
        process.stdin.write(f'{{"sql": "{step}", "timeout": 0.2, "max_rows": 5}}\n')
        process.stdin.flush()
        assert process.wait(10) == -signal.SIGALRM
        process.stdin.close()
        process.stdout.close()
