"""A process that runs single queries on one SQLite file and can do nothing else; the program behind SafeDatabase.

It is run by its path in an interpreter of its own and imports only the standard library. Requests and answers are JSON,
one a line. What a model wrote is met by six fences, each of which alone would stop most of it: the file is opened
read-only, an authorizer allows reading known tables and known functions, SQLite's own limits bound what a
statement may be, the heap has a hard limit, the operating system lets the process write no file and open no other,
and both the process that started this one and an alarm end it when it does not answer in time. Where the process that
started it is gone, it ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
import time
from typing import Any

FUNCTIONS = frozenset(
    [
        "abs",
        "avg",
        "ceil",
        "ceiling",
        "changes",
        "char",
        "coalesce",
        "concat",
        "concat_ws",
        "count",
        "cume_dist",
        "date",
        "datetime",
        "degrees",
        "dense_rank",
        "exp",
        "first_value",
        "floor",
        "format",
        "glob",
        "group_concat",
        "hex",
        "if",
        "ifnull",
        "iif",
        "instr",
        "julianday",
        "lag",
        "last_value",
        "lead",
        "length",
        "like",
        "likelihood",
        "likely",
        "ln",
        "log",
        "log10",
        "log2",
        "lower",
        "ltrim",
        "max",
        "median",
        "min",
        "mod",
        "nth_value",
        "ntile",
        "nullif",
        "octet_length",
        "percent_rank",
        "pi",
        "pow",
        "power",
        "printf",
        "quote",
        "radians",
        "random",
        "rank",
        "replace",
        "round",
        "row_number",
        "rtrim",
        "sign",
        "soundex",
        "sqrt",
        "strftime",
        "string_agg",
        "substr",
        "substring",
        "sum",
        "time",
        "timediff",
        "total",
        "trim",
        "trunc",
        "typeof",
        "unhex",
        "unicode",
        "unixepoch",
        "unlikely",
        "upper",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cos",
        "cosh",
        "sin",
        "sinh",
        "tan",
        "tanh",
        "json",
        "json_array",
        "json_array_length",
        "json_each",
        "json_extract",
        "json_group_array",
        "json_group_object",
        "json_object",
        "json_quote",
        "json_tree",
        "json_type",
        "json_valid",
        "json_error_position",
        "json_insert",
        "json_replace",
        "json_set",
        "json_remove",
        "json_patch",
        "->",
        "->>",
        "match",
        "zeroblob",
        "randomblob",
    ]
)
"""What a query may call: the built-in functions that read nothing but their arguments."""

READABLE = frozenset({"sqlite_master", "sqlite_schema", "json_each", "json_tree"})
"""What a query may read beside the tables and views of the database."""

LIMITS = {
    "SQLITE_LIMIT_SQL_LENGTH": 100_000,
    "SQLITE_LIMIT_COLUMN": 2000,
    "SQLITE_LIMIT_EXPR_DEPTH": 200,
    "SQLITE_LIMIT_COMPOUND_SELECT": 50,
    "SQLITE_LIMIT_VDBE_OP": 250_000,
    "SQLITE_LIMIT_FUNCTION_ARG": 100,
    "SQLITE_LIMIT_ATTACHED": 0,
    "SQLITE_LIMIT_LIKE_PATTERN_LENGTH": 1000,
    "SQLITE_LIMIT_VARIABLE_NUMBER": 0,
    "SQLITE_LIMIT_TRIGGER_DEPTH": 1,
    "SQLITE_LIMIT_WORKER_THREADS": 0,
}


GRACE = 0.5
"""Seconds beyond its time after which the alarm ends the process; the one that started it usually does so earlier."""


def main(path: str, memory: int, value_bytes: int, result_bytes: int, unfinished: bool) -> None:
    """Open the file, close every other door, and answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, also within a step that asks nobody
    if unfinished:
        finish(path)
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    close_doors(connection, memory)
    schema, virtual = read_schema(connection)
    bound_statements(connection, {name.lower() for name in schema}, virtual, value_bytes)
    answer(json.dumps({"schema": schema}))
    for line in sys.stdin:
        request = json.loads(line)
        answer(run(connection, request["sql"], request["timeout"], request["max_rows"], result_bytes))


def finish(path: str) -> None:
    """Move into a private copy what another program had not yet moved into its file."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema=OFF").fetchall()
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()


def close_doors(connection: sqlite3.Connection, memory: int) -> None:
    """The fences that stand before anything of the file is read."""
    for pragma in (
        f"hard_heap_limit={memory}", "query_only=ON", "trusted_schema=OFF", "cell_size_check=ON", "temp_store=MEMORY",
        "mmap_size=0", "cache_size=-16384", "threads=0",
    ):  # fmt: skip
        connection.execute(f"PRAGMA {pragma}").fetchall()
    with contextlib.suppress(AttributeError, sqlite3.Error):
        connection.enable_load_extension(False)
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system, and the other fences stand
        import resource

        if hasattr(signal, "SIGXFSZ"):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        top = max(int(name) for name in os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 15
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, top))
        resource.setrlimit(resource.RLIMIT_AS, (2 * memory + 2**29, 2 * memory + 2**29))


def read_schema(connection: sqlite3.Connection) -> tuple[dict[str, Any], set[str]]:
    """Every table and view: its columns as (name, type, whether in the primary key), its foreign keys; and the names
    of what a module of SQLite stands behind, which nobody may read.
    """
    schema: dict[str, Any] = {}
    virtual = {str(row[0]).lower() for row in connection.execute("PRAGMA module_list")} - READABLE
    listed = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY rowid"
    for name, kind, sql in connection.execute(listed).fetchall():
        if not isinstance(name, str) or name.lower().startswith("sqlite_"):
            continue
        if "virtual table" in " ".join(str(sql or "").lower().split())[:30]:
            virtual.add(name.lower())
            continue
        quoted = '"' + name.replace('"', '""') + '"'
        columns: list[Any] = []
        keys: list[Any] = []
        with contextlib.suppress(sqlite3.Error, ValueError):  # a view of a table that is gone, a name of odd bytes
            columns = [[row[1], row[2], row[5]] for row in connection.execute(f"PRAGMA table_info({quoted})")]
            keys = [[row[3], row[2], row[4]] for row in connection.execute(f"PRAGMA foreign_key_list({quoted})")]
        schema[name] = {"kind": kind, "columns": columns, "foreign_keys": keys}
    return schema, virtual


def bound_statements(connection: sqlite3.Connection, tables: set[str], virtual: set[str], value_bytes: int) -> None:
    """What a statement may be and do; from here on the schema is known."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_bytes)
    for name, most in LIMITS.items():
        connection.setlimit(getattr(sqlite3, name), most)
    connection.set_authorizer(lambda action, first, second, *_: allowed(action, first, second, tables, virtual))


def allowed(action: int, first: str | None, second: str | None, tables: set[str], virtual: set[str]) -> int:
    """Whether a statement may do this: select, read known tables, call known functions, recur. Nothing else."""
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_READ:
        name = str(first).lower()
        # Without a column it is a count of rows, also of what the statement itself defines under a name.
        unnamed = not second and name not in virtual and not name.startswith(("pragma_", "sqlite_"))
        return sqlite3.SQLITE_OK if unnamed or name in tables | READABLE else sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def run(connection: sqlite3.Connection, sql: str, timeout: float, max_rows: int, result_bytes: int) -> str:
    """One query: its rows, or what was wrong, as JSON."""
    deadline = time.monotonic() + timeout
    late = False

    def check() -> int:
        nonlocal late
        late = time.monotonic() > deadline
        return late

    def wrong(why: str, kind: str) -> str:
        return json.dumps({"error": why, "kind": kind})

    connection.set_progress_handler(check, 500)
    alarm(1.1 * timeout + GRACE)
    cursor = None
    try:
        cursor = connection.execute(sql)
        if cursor.description is None:
            return wrong("not a query", "refused")
        rows: list[str] = []
        size, truncated = 0, False
        for row in cursor:
            if len(rows) == max_rows:
                truncated = True
                break
            # Counted as it is sent: a character may take six.
            rows.append(json.dumps([{"hex": v.hex()} if isinstance(v, bytes) else v for v in row]))
            size += len(rows[-1])
            if size > result_bytes:
                return wrong(f"the result is larger than {result_bytes} bytes", "limit")
            if check():
                raise sqlite3.OperationalError("interrupted")
        columns = json.dumps([d[0] for d in cursor.description])
        return f'{{"columns": {columns}, "rows": [{", ".join(rows)}], "truncated": {json.dumps(truncated)}}}'
    except MemoryError:
        return wrong("out of memory", "limit")
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if late:
            return wrong(f"timeout after {timeout:g} s", "timeout")
        text = str(error)[:1000]
        if "not authorized" in text or "prohibited" in text or "one statement" in text or "attempt to write" in text:
            return wrong(f"not a query that may run: {text}", "refused")
        limit = any(word in text for word in ("too big", "too many", "too large", "maximum", "out of memory"))
        return wrong(text, "limit" if limit else "sql")
    finally:
        connection.set_progress_handler(None, 0)
        if cursor is not None:
            with contextlib.suppress(sqlite3.Error):
                cursor.close()
        alarm(0)


def alarm(seconds: float) -> None:
    """Have the system end this process after so many seconds; 0 for never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def answer(line: str) -> None:
    """Write one line."""
    print(line, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], *map(int, sys.argv[2:5]), unfinished=sys.argv[5] == "1")
    except BrokenPipeError:
        os._exit(1)  # nobody waits for an answer any more
    except (sqlite3.Error, OSError) as error:
        answer(json.dumps({"error": str(error)}))
