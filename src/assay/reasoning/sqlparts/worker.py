"""A process that runs single queries on one SQLite file and can do nothing else; the program behind SafeDatabase.

It is run by its path in an interpreter of its own and imports only the standard library. Requests and answers are JSON,
one a line. What a model wrote is met by six fences, each of which alone would stop most of it: the file is opened
read-only, an authorizer allows reading known tables and known functions, SQLite's own limits bound what a
statement may be, the heap has a hard limit, the operating system lets the process write no file and open no other,
and the process that started this one ends it when it does not answer in time.
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
    "SQLITE_LIMIT_COLUMN": 200,
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


def main(path: str, memory: int, value_bytes: int, result_bytes: int) -> None:
    """Open the file, close every other door, and answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    schema = read_schema(connection)
    close_doors(connection, {name.lower() for name in schema}, memory, value_bytes)
    answer({"schema": schema})
    for line in sys.stdin:
        request = json.loads(line)
        answer(run(connection, request["sql"], request["timeout"], request["max_rows"], result_bytes))


def read_schema(connection: sqlite3.Connection) -> dict[str, Any]:
    """Every table and view: its columns as (name, type, whether in the primary key), its foreign keys, its SQL."""
    schema: dict[str, Any] = {}
    listed = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY rowid"
    for name, kind, sql in connection.execute(listed).fetchall():
        if name.lower().startswith("sqlite_") or "virtual table" in " ".join((sql or "").lower().split())[:30]:
            continue
        quoted = '"' + name.replace('"', '""') + '"'
        columns: list[Any] = []
        keys: list[Any] = []
        with contextlib.suppress(sqlite3.Error):  # a view of a table that is gone
            columns = [[row[1], row[2], row[5]] for row in connection.execute(f"PRAGMA table_info({quoted})")]
            keys = [[row[3], row[2], row[4]] for row in connection.execute(f"PRAGMA foreign_key_list({quoted})")]
        schema[name] = {"kind": kind, "columns": columns, "foreign_keys": keys}
    return schema


def close_doors(connection: sqlite3.Connection, tables: set[str], memory: int, value_bytes: int) -> None:
    """All fences that stand before the first query."""
    for pragma in (
        f"hard_heap_limit={memory}", "query_only=ON", "trusted_schema=OFF", "cell_size_check=ON", "temp_store=MEMORY",
        "mmap_size=0", "cache_size=-16384", "threads=0",
    ):  # fmt: skip
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_bytes)
    for name, most in LIMITS.items():
        connection.setlimit(getattr(sqlite3, name), most)
    with contextlib.suppress(AttributeError, sqlite3.Error):
        connection.enable_load_extension(False)
    connection.set_authorizer(lambda action, first, second, database, source: allowed(action, first, second, tables))
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system, and the other fences stand
        import resource

        if hasattr(signal, "SIGXFSZ"):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        top = max(int(name) for name in os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 15
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, top))
        resource.setrlimit(resource.RLIMIT_AS, (2 * memory + 2**29, 2 * memory + 2**29))


def allowed(action: int, first: str | None, second: str | None, tables: set[str]) -> int:
    """Whether a statement may do this: select, read known tables, call known functions, recur. Nothing else."""
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_READ:
        name = str(first).lower()
        # Without a column it is a count of rows, also of what the statement itself defines under a name.
        unnamed = not second and not name.startswith(("pragma_", "sqlite_", "dbstat", "fts", "bytecode", "tables_used"))
        return sqlite3.SQLITE_OK if unnamed or name in tables | READABLE else sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def run(connection: sqlite3.Connection, sql: str, timeout: float, max_rows: int, result_bytes: int) -> dict[str, Any]:
    """One query: its rows, or what was wrong."""
    deadline = time.monotonic() + timeout
    late = False

    def check() -> int:
        nonlocal late
        late = time.monotonic() > deadline
        return late

    connection.set_progress_handler(check, 500)
    cursor = None
    try:
        cursor = connection.execute(sql)
        if cursor.description is None:
            return {"error": "not a query", "kind": "refused"}
        rows, size, truncated = [], 0, False
        for row in cursor:
            if len(rows) == max_rows:
                truncated = True
                break
            rows.append([{"hex": v.hex()} if isinstance(v, bytes) else v for v in row])
            size += sum(len(v) if isinstance(v, str | bytes) else 8 for v in row)
            if size > result_bytes:
                return {"error": f"the result is larger than {result_bytes} bytes", "kind": "limit"}
            if time.monotonic() > deadline:
                late = True
                raise sqlite3.OperationalError("interrupted")
        return {"columns": [d[0] for d in cursor.description], "rows": rows, "truncated": truncated}
    except MemoryError:
        return {"error": "out of memory", "kind": "limit"}
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if late:
            return {"error": f"timeout after {timeout:g} s", "kind": "timeout"}
        text = str(error)
        if "not authorized" in text or "prohibited" in text or "one statement" in text or "attempt to write" in text:
            return {"error": f"not a query that may run: {text}", "kind": "refused"}
        limit = any(word in text for word in ("too big", "too many", "too large", "maximum", "out of memory"))
        return {"error": text, "kind": "limit" if limit else "sql"}
    finally:
        connection.set_progress_handler(None, 0)
        if cursor is not None:
            with contextlib.suppress(sqlite3.Error):
                cursor.close()


def answer(what: dict[str, Any]) -> None:
    """Write one line."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], *map(int, sys.argv[2:5]))
    except (sqlite3.Error, OSError) as error:
        answer({"error": str(error)})
