"""Speed of sqlparts beside sqlglot's own diff and APTED: ``python benchmarks/sqlparts.py``.

One process, one thread, the contenders in turns, medians of the runs. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import sqlglot
from apted import APTED, Config
from sqlglot.diff import diff

from assay.reasoning.sqlparts import (
    SafeDatabase,
    Tree,
    canonical,
    completion_of,
    mcs,
    mcs_score,
    reward_func,
    rewards,
    samples,
)
from assay.reasoning.sqlparts.execution import execution_match
from assay.reasoning.sqlparts.fragments import _decomposed
from assay.reasoning.sqlparts.levels import _level_of_text
from assay.reasoning.sqlparts.normal_form import _cached
from timing import line, seconds

Pair = tuple[str, str]


def pairs(n: int, seed: int = 0) -> list[Pair]:
    """Queries on flights, and each after one to four edits."""
    rng = np.random.default_rng(seed)
    golds = samples.gold_queries(rng, n)
    return [(samples.edited(gold, rng, 1 + i % 4), gold) for i, gold in enumerate(golds)]


def forget() -> None:
    """Empty what is kept of queries that were read."""
    for kept in (_cached, _decomposed, _level_of_text):
        kept.cache_clear()


def ours(given: list[Pair]) -> None:
    forget()
    for pred, gold in given:
        mcs_score(pred, gold)


def sqlglot_diff(given: list[Pair]) -> None:
    for pred, gold in given:
        diff(sqlglot.parse_one(pred, read="sqlite"), sqlglot.parse_one(gold, read="sqlite"))


class Labels(Config):  # type: ignore[misc]
    """How APTED walks a tree and what an edit costs."""

    def rename(self, a: Tree, b: Tree) -> int:
        """1 for another label."""
        return int(a.label != b.label)

    def children(self, node: Tree) -> tuple[Tree, ...]:
        """What is below."""
        return node.children


def apted(given: list[tuple[Tree, Tree]]) -> None:
    for a, b in given:
        APTED(a, b, Labels()).compute_edit_distance()


def scores() -> None:
    given = pairs(48)
    work = {"sqlparts": lambda: ours(given), "diff": lambda: sqlglot_diff(given)}
    taken = seconds(work, turns=7)
    line("a score, parsing included: time / sqlglot's diff", taken["sqlparts"] / taken["diff"], 1.0)
    print(f"{'':4}a pair takes {1000 * taken['sqlparts'] / len(given):.2f} ms and {1000 * taken['diff'] / 48:.2f} ms")
    trees = [(canonical(pred), canonical(gold)) for pred, gold in given]
    taken = seconds({"mcs": lambda: [mcs(*fresh(pair)) for pair in trees], "apted": lambda: apted(trees)}, turns=7)
    line("the match of two trees: time / APTED's tree edit distance", taken["mcs"] / taken["apted"], 1.0)


def fresh(pair: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
    """The same trees without what is kept beside them."""
    return tuple(Tree(t.label, t.children, t.unordered) for t in pair)  # type: ignore[return-value]


def kept() -> None:
    """A group of completions shares its gold query."""
    given = pairs(8)
    texts = [(completion_of(pred), gold) for pred, gold in given for _ in range(8)]

    def group(keep: bool) -> None:
        forget()
        for text, gold in texts:
            if not keep:
                forget()
            reward_func(["?"], [text], gold_sql=[gold])

    taken = seconds({"kept": lambda: group(True), "anew": lambda: group(False)}, turns=3)
    line("rewards of groups of 8, read anew each / kept: time", taken["anew"] / taken["kept"], 2.0, below=False)


def growth() -> None:
    """Pairs of queries of one shape and another size, most conditions shared."""
    rows = []
    for conditions in (5, 20, 40, 80, 170):
        plain = [f"c{i} > {i}" for i in range(conditions)]
        other = [f"c{i} > {i + (i % 7 == 0)}" for i in range(conditions)]
        queries = [f"SELECT a FROM t WHERE {' AND '.join(c)}" for c in (plain, other)]
        given = [(queries[0], queries[1])]
        taken = seconds({"sqlparts": lambda g=given: ours(g), "diff": lambda g=given: sqlglot_diff(g)}, turns=3)
        rows.append((canonical(queries[0]).size, taken["sqlparts"], taken["diff"]))
        print(f"{'':4}{rows[-1][0]:5} nodes: {1000 * rows[-1][1]:9.1f} ms, sqlglot's diff {1000 * rows[-1][2]:9.1f} ms")
    size, time_ = next((n, t) for n, t, _ in rows if n >= 500)
    line(f"a score of two queries of {size} nodes, parsing included", time_, 0.5, "s")
    slope = np.polyfit(np.log([n for n, *_ in rows[1:]]), np.log([t for _, t, _ in rows[1:]]), 1)[0]
    line("growth: time as a power of the number of nodes", float(slope), 2.2, "")


def step(rows: int, bar: float) -> None:
    """A step of GRPO, 8 questions with 8 completions each, on a table of so many flights; SQLite alone beside it.

    CPU seconds of this process and of the one that runs the queries; SQLite runs the same statements here.
    """
    from assay.parts import flights

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flights.sqlite"
        with sqlite3.connect(path) as connection:
            flights.load("flights").head(rows).to_sql("flights", connection, index=False)
            for name in ("airlines", "airports", "planes"):
                flights.load(name).to_sql(name, connection, index=False)
        connection.close()
        rng = np.random.default_rng(1)
        golds = [g for g in samples.gold_queries(rng, 40) if is_right_one(g, path)][:8]
        preds = [
            samples.edited(gold, rng, k % 3) if k % 3 else samples.rewritten(gold, rng)
            for gold in golds
            for k in range(8)
        ]
        texts = [completion_of(pred) for pred in preds]
        right = [gold for gold in golds for _ in range(8)]
        took, alone = [], []
        for _ in range(3):
            forget()
            rewards._RESULTS.clear()
            reward_func(["?"], texts[:1], gold_sql=right[:1], db_path=str(path))  # opens the database
            start = cpu()
            reward_func(["?"] * len(texts), texts, gold_sql=right, db_path=str(path))
            took.append(cpu() - start)
            start = cpu()
            with contextlib.closing(sqlite3.connect(path)) as connection:
                for sql in (*golds, *preds):
                    connection.execute(sql).fetchmany(10_000)
            alone.append(cpu() - start)
        line(f"rewards of 64 completions, all run on {rows} flights", min(took), bar, "s")
        if rows > 100_000:  # below, reading and scoring the queries takes longer than running them
            line(f"{'':4}the same / SQLite alone running the same queries", min(took) / min(alone), 1.5)
        start = cpu()
        reward_func(["?"] * len(texts), texts, gold_sql=right, db_path=str(path))
        print(f"{'':4}the same completions again: {cpu() - start:.2f} s")
        with SafeDatabase(path) as db:
            start = time.perf_counter()
            for _ in range(300):
                db.run("SELECT 1")
            print(f"{'':4}a query that does nothing: {1e3 * (time.perf_counter() - start) / 300:.2f} ms")
            start = time.perf_counter()
            execution_match(golds[0], golds[0], db, mode="suite")
            print(f"{'':4}a comparison in suite, with five copies: {time.perf_counter() - start:.2f} s")


def cpu() -> float:
    """CPU seconds of this process and of those that it has started."""
    own = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (own, *own.children()))


def is_right_one(gold: str, path: Path) -> bool:
    """Whether a query gives at most 10 000 rows, so that it can be a right one."""
    with SafeDatabase(path) as db:
        found = db.run(gold)
    return not getattr(found, "truncated", True)


def main() -> None:
    scores()
    kept()
    growth()
    step(4000, 2.0)
    step(336_776, 2.0)


if __name__ == "__main__":
    main()
