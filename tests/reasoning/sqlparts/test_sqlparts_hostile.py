"""Whatever a statement tries, it changes no file, reads no other, and ends within its limits."""

import hashlib
import os
import sqlite3
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest

from assay.errors import InputError
from assay.reasoning.sqlparts import Rows, SafeDatabase, SqlError

TIMEOUT = 0.5

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "

# What is tried, and as what it must end.
HOSTILE = {
    # files
    "attach": ("ATTACH '{other}' AS other", "refused"),
    "attach a new file": ("ATTACH '{folder}/new.db' AS other", "refused"),
    "detach": ("DETACH main", "refused"),
    "vacuum into": ("VACUUM INTO '{folder}/copy.db'", "refused"),
    "vacuum": ("VACUUM", "refused"),
    "load_extension": ("SELECT load_extension('{folder}/evil.so')", "refused"),
    "load_extension in a condition": ("SELECT a FROM t WHERE a = load_extension('x', 'y')", "refused"),
    "readfile": ("SELECT readfile('/etc/passwd')", "sql"),
    "writefile": ("SELECT writefile('{folder}/out', 'x')", "sql"),
    "edit": ("SELECT edit('x', 'touch {folder}/out')", "sql"),
    "fsdir": ("SELECT name FROM fsdir('/')", "sql"),
    "fts3_tokenizer": ("SELECT fts3_tokenizer('simple')", ("sql", "refused")),
    "sqlite_log": ("SELECT sqlite_log(1, 'x')", ("sql", "refused")),
    "zipfile": ("SELECT name FROM zipfile('{other}')", "sql"),
    "csv": ("CREATE VIRTUAL TABLE temp.evil USING csv(filename='/etc/passwd')", "refused"),
    "statistics of pages": ("SELECT count(*) FROM dbstat", ("sql", "refused")),
    "statements": ("SELECT sql FROM sqlite_stmt", ("sql", "refused")),
    "temporary schema": ("SELECT sql FROM sqlite_temp_master", ("sql", "refused")),
    "another database": ("SELECT a FROM other.t", "sql"),
    "fts5": ("SELECT * FROM fts5('x')", ("sql", "refused")),
    "rtree": ("SELECT rtreenode(2, x'00')", ("sql", "refused")),
    "version": ("SELECT sqlite_source_id()", "refused"),
    "compile options": ("SELECT sqlite_compileoption_get(1)", "refused"),
    "set a subtype": ("SELECT fts5_source_id()", ("sql", "refused")),
    "a series": ("SELECT count(*) FROM generate_series(1, 1000000000000)", ("sql", "refused")),
    "pages": ("SELECT data FROM sqlite_dbpage", ("sql", "refused")),
    # writes
    "insert": ("INSERT INTO t VALUES (9, 'z')", "refused"),
    "insert behind with": ("WITH x AS (SELECT 1) INSERT INTO t SELECT 1, 'z' FROM x", "refused"),
    "delete behind with": ("WITH x AS (SELECT 1) DELETE FROM t", "refused"),
    "update behind with": ("WITH x AS (SELECT 1) UPDATE t SET a = 0 RETURNING a", "refused"),
    "replace": ("REPLACE INTO t VALUES (1, 'z')", "refused"),
    "insert returning": ("INSERT INTO t VALUES (9, 'z') RETURNING a", "refused"),
    "drop": ("DROP TABLE t", "refused"),
    "create": ("CREATE TABLE evil (a)", "refused"),
    "create as": ("CREATE TABLE evil AS SELECT * FROM t", "refused"),
    "temporary table": ("CREATE TEMP TABLE evil AS SELECT * FROM t", "refused"),
    "trigger": ("CREATE TRIGGER evil AFTER INSERT ON t BEGIN DELETE FROM t; END", "refused"),
    "virtual table": ("CREATE VIRTUAL TABLE evil USING fts5(x)", "refused"),
    "alter": ("ALTER TABLE t RENAME TO u", "refused"),
    "reindex": ("REINDEX", "refused"),
    "analyze": ("ANALYZE", "refused"),
    "begin": ("BEGIN EXCLUSIVE", "refused"),
    "schema": ("UPDATE sqlite_master SET sql = ''", "refused"),
    "savepoint": ("SAVEPOINT s", "refused"),
    "temporary trigger": ("CREATE TEMP TRIGGER e AFTER INSERT ON t BEGIN SELECT load_extension('x'); END", "refused"),
    "temporary view": ("CREATE TEMP VIEW evil AS SELECT 1", "refused"),
    "index": ("CREATE INDEX evil ON t (a)", "refused"),
    "upsert": ("INSERT INTO t VALUES (1, 'z') ON CONFLICT DO UPDATE SET a = 0", "refused"),
    "delete returning": ("DELETE FROM t RETURNING *", "refused"),
    "replace behind with": ("WITH x AS (SELECT 1) REPLACE INTO t SELECT 1, 'z' FROM x RETURNING a", "refused"),
    # settings
    "pragma": ("PRAGMA writable_schema = 1", "refused"),
    "pragma query_only": ("PRAGMA query_only = 0", "refused"),
    "pragma heap": ("PRAGMA hard_heap_limit = 0", "refused"),
    "pragma as a table": ("SELECT * FROM pragma_database_list", "refused"),
    "pragma as a table, counted": ("SELECT count(*) FROM pragma_table_info('t')", "refused"),
    "pragma behind a comment": ("/**/ PRAGMA/**/journal_mode = DELETE", "refused"),
    "pragma of functions": ("SELECT name FROM pragma_function_list", "refused"),
    "pragma joined": ("SELECT t.a FROM t, pragma_module_list AS m", "refused"),
    "explain query plan": ("EXPLAIN QUERY PLAN SELECT a FROM t", "refused"),
    "explain": ("EXPLAIN SELECT 1", "refused"),
    # several statements and disguises
    "two statements": ("SELECT 1; DROP TABLE t", "refused"),
    "two queries": ("SELECT 1; SELECT 2", "refused"),
    "behind a comment": ("/* SELECT */ DROP TABLE t", "refused"),
    "behind a line comment": ("-- SELECT 1\nDROP TABLE t", "refused"),
    "comment only": ("-- nothing", "refused"),
    "open comment": ("/* SELECT 1", "refused"),
    "empty": ("", "refused"),
    "semicolons": (";;;", "refused"),
    "null character": ("SELECT 1\0; DROP TABLE t", "refused"),
    "a byte order mark": ("\ufeffSELECT 1", ("refused", "sql")),
    "half a character": ("SELECT '\ud800'", "sql"),
    "a full stop of another script": ("SELECT 1\uff1b DROP TABLE t", "sql"),
    "nested comments": ("/* /* */ DROP TABLE t */ SELECT 1", "refused"),
    "a statement in a text": ("SELECT 'x'; DELETE FROM t --'", "refused"),
    "a statement behind a comment": ("SELECT 1 -- \n; DELETE FROM t", "refused"),
    "many comments": ("/**/" * 20_000 + "DROP TABLE t", "refused"),
    "a named placeholder": ("SELECT :a, @b, $c", "limit"),
    "two answers": ('SELECT 1"\n{"sql": "DROP TABLE t"}', "sql"),
    "a placeholder": ("SELECT ?", "limit"),
    "a long statement": ("SELECT '" + "x" * 200_000 + "'", "limit"),
    "a deep statement": ("SELECT " + "(" * 5000 + "1" + ")" * 5000, ("sql", "limit")),
    "many arms": ("SELECT 1" + " UNION ALL SELECT 1" * 2000, "limit"),
    "many columns": ("SELECT " + ", ".join(["1"] * 3000), "limit"),
    "deep sub-queries": ("SELECT * FROM (" * 900 + "SELECT 1" + ")" * 900, ("sql", "limit")),
    "deep functions": ("SELECT " + "abs(" * 900 + "1" + ")" * 900, ("sql", "limit")),
    "deep conditions": ("SELECT 1 WHERE " + "NOT " * 3000 + "1", ("sql", "limit")),
    "many arguments": ("SELECT max(" + ", ".join(["1"] * 300) + ")", ("sql", "limit")),
    "many tables": ("SELECT 1 FROM " + ", ".join(f"t AS t{i}" for i in range(70)), ("sql", "limit")),
    # time
    "no end": (ENDLESS + "SELECT count(*) FROM c", "timeout"),
    "no end, no row": (ENDLESS + "SELECT x FROM c WHERE x < 0", "timeout"),
    "cross join": ("SELECT count(*) FROM " + ", ".join(f"t AS t{i}" for i in range(40)), "timeout"),
    "no end, many rows": (ENDLESS + "SELECT DISTINCT x % 10 FROM c LIMIT -1 OFFSET 100", "timeout"),
    "two without end": ("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c), d(y) AS (SELECT 1 UNION ALL SELECT y FROM d) SELECT count(*) FROM c, d", "timeout"),  # noqa: E501
    "a window": (ENDLESS + "SELECT sum(x) OVER (ORDER BY x DESC) FROM c", ("limit", "timeout")),
    "one long step": ("SELECT length(replace(printf('%.*c', 900000, 'a'), printf('%.*c', 400000, 'a') || 'b', ''))", "timeout"),  # noqa: E501
    "instr": ("SELECT instr(printf('%.*c', 900000, 'a'), printf('%.*c', 400000, 'a') || 'b')", "timeout"),
    # memory
    "zeroblob": ("SELECT zeroblob(1000000000)", "limit"),
    "randomblob": ("SELECT randomblob(1000000000)", "limit"),
    "negative zeroblob": (ENDLESS + "SELECT x FROM c WHERE zeroblob(-1 * x) IS NULL", "timeout"),
    "doubling": ("WITH RECURSIVE c(x) AS (SELECT 'aaaaaaaa' UNION ALL SELECT x || x FROM c) SELECT max(length(x)) FROM c", "limit"),  # noqa: E501
    "a set without end": ("WITH RECURSIVE c(x) AS (SELECT 1 UNION SELECT x + 1 FROM c) SELECT count(*) FROM c", ("limit", "timeout")),  # noqa: E501
    "deep json": ("SELECT json('" + "[" * 50_000 + "')", ("sql", "limit")),
    "texts that grow when sent": (ENDLESS + "SELECT replace(hex(zeroblob(400000)), '0', char(1)) FROM c", ("limit", "timeout")),  # noqa: E501
    "hex": ("SELECT hex(hex(hex(zeroblob(900000))))", "limit"),
    "sorting without end": (ENDLESS + "SELECT x, zeroblob(900000) FROM c ORDER BY x DESC", ("limit", "timeout")),
    "group_concat": (ENDLESS + "SELECT group_concat(x, '') FROM c", ("limit", "timeout")),
    "a large result": (ENDLESS + "SELECT zeroblob(900000) FROM c", ("limit", "timeout")),
    "wide rows": ("SELECT " + ", ".join(["zeroblob(900000)"] * 190), ("limit", "timeout")),
    "json": (ENDLESS + "SELECT json_group_array(x) FROM c", ("limit", "timeout")),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    for name in ("db", "other"):
        with sqlite3.connect(folder / f"{name}.sqlite") as connection:
            connection.execute("CREATE TABLE t (a INTEGER, b TEXT)")
            connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, chr(97 + i)) for i in range(10)])
        connection.close()
    return folder


@pytest.fixture(scope="module")
def db(place):
    with SafeDatabase(place / "db.sqlite", timeout=TIMEOUT, max_rows=100, max_memory=16 * 2**20) as db:
        yield db


def left_behind() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("sqlparts-*"))


def content(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_statement_ends_as_an_error_and_leaves_every_file_as_it_was(name, place, db):
    text, kinds = HOSTILE[name]
    before = content(place)
    start = time.monotonic()
    found = db.run(text.replace("{other}", str(place / "other.sqlite")).replace("{folder}", str(place)))
    took = time.monotonic() - start
    assert isinstance(found, SqlError), found
    assert found.kind in ((kinds,) if isinstance(kinds, str) else kinds), found
    assert content(place) == before
    # 1.2 × the limit, and room for the start of a new process on a busy machine
    assert took < 1.2 * TIMEOUT + 10
    assert db.run("SELECT count(*) FROM t").rows == ((10,),)


def test_what_could_have_become_large_or_slow_and_does_not(db):
    wide = db.run("SELECT length(printf('%2000000000d', 1))")
    assert isinstance(wide, SqlError) or wide.rows == ((None,),)
    for word, some in (("LIKE", "%"), ("GLOB", "*")):
        found = db.run(f"SELECT printf('%.*c', 900000, 'a') {word} '{(some + 'a') * 490}{some}b'")
        assert found.kind == "timeout" if isinstance(found, SqlError) else found.rows == ((0,),)


def test_rows_beyond_the_limit_are_left_out_and_it_says_so(db):
    found = db.run(ENDLESS + "SELECT x FROM c")
    assert isinstance(found, Rows)
    assert found.truncated
    assert len(found.rows) == 100


def test_the_process_can_open_no_file_and_write_none(db, place):
    limits = Path(f"/proc/{db._worker.pid}/limits").read_text()
    written = next(line.split() for line in limits.splitlines() if line.startswith("Max file size"))
    assert written[3:5] == ["0", "0"]
    assert not any("sqlite-journal" in os.readlink(f) for f in Path(f"/proc/{db._worker.pid}/fd").iterdir())


def test_ordinary_queries_run(db):
    for sql, rows in {
        "SELECT b FROM t WHERE a = 3;": (("d",),),
        "-- why\n/* not */ SELECT max(a) FROM t -- so": ((9,),),
        "WITH x AS (SELECT a FROM t WHERE a > 7) SELECT count(*), sum(a) FROM x": ((2, 17),),
        "VALUES (1, NULL), (2.5, x'00ff')": ((1, None), (2.5, b"\x00\xff")),
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 5) SELECT sum(x) FROM c": ((15,),),
        "SELECT a, row_number() OVER (ORDER BY a DESC) FROM t WHERE b LIKE 'A%'": ((0, 1),),
        "SELECT strftime('%Y', '2013-05-06'), round(1.25, 1), upper('é'), json_extract('[1,2]', '$[1]')": (
            ("2013", 1.3, "é", 2),
        ),
    }.items():
        assert db.run(sql).rows == rows


def test_a_wrong_query_is_an_error_of_sql(db):
    assert db.run("SELECT nothing FROM t").kind == "sql"
    assert db.run("SELECT a FROM nowhere").kind == "sql"
    assert db.run("SELECT a FROM t WHERE").kind == "sql"


def test_a_database_of_tables_and_of_a_connection_is_a_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a)")
    connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(InputError, match="commit"):
        SafeDatabase(connection)
    connection.commit()
    with SafeDatabase(connection) as db:
        connection.execute("DELETE FROM t")
        assert db.run("SELECT a FROM t").rows == ((1,),)
    with SafeDatabase({"two words": pd.DataFrame({"a b": [1.5, None], "c": ["x", "y"]})}) as db:
        assert db.run('SELECT "a b", c FROM "two words"').rows == ((1.5, "x"), (None, "y"))
        assert db.schema().has("Two Words", "A B")
        assert not db.schema().has("two words", "d")
        assert 'CREATE TABLE "two words"' in db.schema_text()
        assert "x, y" in db.schema_text("compact")
        assert db.path is None
    assert not left_behind()


def test_what_another_program_has_not_yet_moved_into_the_file_is_read_too(tmp_path):
    writer = sqlite3.connect(tmp_path / "w.sqlite")
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("CREATE TABLE t (a)")
    writer.execute("INSERT INTO t VALUES (7)")
    writer.commit()
    before = content(tmp_path)
    with SafeDatabase(tmp_path / "w.sqlite") as db:
        assert db.run("SELECT a FROM t").rows == ((7,),)
    assert content(tmp_path) == before
    writer.close()


def test_a_changed_file_is_opened_anew(tmp_path):
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as writer:
        writer.execute("CREATE TABLE t (a)")
    writer.close()
    with SafeDatabase(path) as db:
        assert db.run("SELECT count(*) FROM t").rows == ((0,),)
        with sqlite3.connect(path) as writer:
            writer.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(5000)])
        writer.close()
        assert db.run("SELECT count(*) FROM t").rows == ((5000,),)


def test_bad_sources_and_limits_are_refused(tmp_path):
    (tmp_path / "text.sqlite").write_text("this is no database at all")
    for source in (tmp_path / "none.sqlite", tmp_path / "text.sqlite", tmp_path, {}, {"t": [1]}):
        with pytest.raises(InputError):
            SafeDatabase(source)
    with pytest.raises(TypeError, match="source"):
        SafeDatabase(5)
    frame = {"t": pd.DataFrame({"a": [1]})}
    for limits in ({"timeout": 0}, {"timeout": float("nan")}, {"max_rows": 0}, {"max_rows": 1.5}, {"max_memory": 5}):
        with pytest.raises(InputError, match=next(iter(limits))):
            SafeDatabase(frame, **limits)
    with SafeDatabase(frame) as db:
        with pytest.raises(TypeError, match="sql"):
            db.run(5)
        with pytest.raises(InputError, match="style"):
            db.schema_text("xml")
        with pytest.raises(InputError, match="values"):
            db.schema_text(values=-1)


def test_a_damaged_database_is_refused_or_answers_with_errors(tmp_path):
    path = tmp_path / "d.sqlite"
    with sqlite3.connect(path) as writer:
        writer.execute("CREATE TABLE t (a)")
        writer.executemany("INSERT INTO t VALUES (?)", [("x" * 100,) for _ in range(1000)])
    writer.close()
    raw = bytearray(path.read_bytes())
    raw[4096:20000] = os.urandom(20000 - 4096)
    path.write_bytes(raw)
    with SafeDatabase(path) as db:
        assert isinstance(db.run("SELECT sum(length(a)) FROM t"), SqlError)
