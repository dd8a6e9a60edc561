import dataclasses
import os
import re

import pytest

from assay.errors import InputError
from assay.evidence.own import UserArm, cost_ratio, decision, on_own, user_arm, with_arms
from assay.evidence.record import Record
from assay.evidence.study import Arm, Budget, Study, Task
from assay.evidence.verdict import judge

SEEDS = range(1000, 1006)


def nothing(*arguments):
    raise AssertionError("not run here")


def study(better="higher", tasks=("A", "B")):
    return Study(
        name="s",
        tasks=(*(Task(name, nothing, nothing) for name in tasks), Task("C", nothing, nothing, control=True)),
        arms=(Arm("m", nothing, "method"), Arm("b", nothing, "baseline")),
        claims=(),
        primary="quality",
        better=better,
    )


def records(method, mine, seconds=(2.0, 1.0)):
    """Records whose metric is a task's level plus a wiggle that differs between seeds."""
    return [
        Record(
            key=f"{task}{arm}{seed}", study="s", task=task, arm=arm, role="method", seed=seed, budget="quick",
            metrics={"quality": level + wiggle * ((seed * (7 if arm == "m" else 3)) % 5 - 2)},
            cpu_seconds=seconds[arm == "mine"], shared={"common": 1.0} if arm == "m" else {},
        )
        for arm, levels in (("m", method), ("mine", mine))
        for task, (level, wiggle) in levels.items()
        for seed in SEEDS
    ]  # fmt: skip


def words(method, mine, better="higher", drop=0):
    extended = with_arms(study(better, tuple(method)), [Arm("mine", nothing, "baseline", "yours: x:f")])
    made = records(method, mine)[: None if not drop else -drop]
    (claim,) = extended.claims
    return decision(extended, "mine", judge(claim, extended, made, Budget.QUICK, SEEDS), made)


@pytest.mark.parametrize(
    ("method", "mine", "better", "expected"),
    [
        ({"A": (9, 0.1)}, {"A": (1, 0.1)}, "higher", "Switch: m beats mine by +8"),
        ({"A": (1, 0.1)}, {"A": (9, 0.1)}, "higher", "Don't switch: m does not beat mine; difference -8"),
        ({"A": (1, 0.1)}, {"A": (9, 0.1)}, "lower", "Switch: m beats mine by -8"),
        ({"A": (9, 0.1)}, {"A": (1, 0.1)}, "lower", "Don't switch"),
        ({"A": (5, 0)}, {"A": (5, 0)}, "higher", "Don't switch"),
        ({"A": (1, 1)}, {"A": (1, 2)}, "higher", "Can't tell whether m beats mine"),
        ({"A": (9, 0.1), "B": (9, 0.1)}, {"A": (1, 0.1), "B": (1, 0.1)}, "higher", "Switch: m beats mine on all 2"),
        (
            {"A": (9, 0.1), "B": (1, 0.1)},
            {"A": (1, 0.1), "B": (9, 0.1)},
            "higher",
            "It depends: m beats mine on A",
        ),
        (
            {"A": (1, 0.1), "B": (1, 1)},
            {"A": (9, 0.1), "B": (1, 2)},
            "higher",
            "Don't switch: m does not beat mine on",
        ),
    ],
)
def test_the_last_line_says_what_the_verdict_says(method, mine, better, expected):
    assert words(method, mine, better).startswith(expected)


def test_the_cost_ratio_counts_shared_work():
    # (2 + 1 shared) / 1
    assert cost_ratio(records({"A": (1, 0)}, {"A": (1, 0)}), "m", "mine") == pytest.approx(3)
    assert words({"A": (9, 0.1)}, {"A": (1, 0.1)}).endswith("m takes 3 times the CPU time of mine.")


def test_a_better_arm_of_the_study_is_named():
    extended = with_arms(
        dataclasses.replace(study(tasks=("A",)), arms=(*study().arms, Arm("top", nothing, "ceiling"))),
        [Arm("mine", UserArm("x", "f", "/"), "baseline", "yours: x:f")],
    )
    made = records({"A": (9, 0.1)}, {"A": (1, 0.1)})
    for arm, level in (("b", 9.5), ("top", 12.0)):
        made += [dataclasses.replace(r, key=arm + r.key, arm=arm, metrics={"quality": level}) for r in made[:6]]
    (claim,) = extended.claims
    line = decision(extended, "mine", judge(claim, extended, made, Budget.QUICK, SEEDS), made)
    assert line.startswith("Switch: m beats mine")
    assert re.search(r"On average b, a baseline arm, does better there: 9\.5 against [\d.]+ of m\.$", line)


def test_failed_cells_leave_it_open():
    line = words({"A": (9, 0.1)}, {"A": (1, 0.1)}, drop=1)
    assert line.startswith("Can't tell whether m beats mine: 1 of 12 cells is missing")


def test_controls_do_not_count_unless_there_is_nothing_else():
    mine = [Arm("mine", nothing, "baseline")]
    assert with_arms(study(), mine).claims[0].tasks == ("A", "B")
    only = dataclasses.replace(study(), tasks=study().tasks[2:])
    assert with_arms(only, mine).claims[0].tasks == ("C",)


@pytest.mark.parametrize("text", ["mine", "mine=module", "=m:f", "mine=m:f:g", "mi ne=m:f", "mine=m:"])
def test_a_bad_with_is_refused(text, tmp_path):
    with pytest.raises(InputError, match="NAME=module:function"):
        user_arm(text, tmp_path)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("raise RuntimeError('at import')", "at import"),
        ("def fit(:", "SyntaxError"),
        ("import sys; sys.exit(2)", "SystemExit: 2"),
        ("fit = 3", "is a int, not a function"),
        ("", "has no attribute 'fit'"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_one_line(tmp_path, body, reason):
    (tmp_path / "mine.py").write_text(body)
    with pytest.raises(InputError, match=reason) as error:
        user_arm("x=mine:fit", tmp_path)
    assert "\n" not in str(error.value)


def test_a_module_that_hangs_at_import_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("assay.evidence.own.LOAD_SECONDS", 1.0)
    (tmp_path / "mine.py").write_text("import time\ntime.sleep(600)")
    with pytest.raises(InputError, match="ran past its limit of 1 s"):
        user_arm("x=mine:fit", tmp_path)


def test_packages_and_dotted_modules_are_found(tmp_path):
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "__init__.py").write_text("")
    (tmp_path / "kit" / "sub.py").write_text("from kit.low import f\n")
    (tmp_path / "kit" / "low.py").write_text("def f(given, seed):\n    return given + seed\n")
    assert user_arm("x=kit.sub:f", tmp_path).what == "yours: kit.sub:f"
    assert UserArm("operator", "add", str(tmp_path))(2, 3, Budget.QUICK) == 5


def test_only_what_a_study_accepts_can_be_brought(tmp_path):
    with pytest.raises(InputError, match="does not accept --data; it accepts no files of yours"):
        on_own(study(), {"data": tmp_path})
    accepting = dataclasses.replace(study(), accepts={"data": "a table"}, own=lambda paths: study("lower"))
    assert on_own(accepting, {"data": tmp_path}).better == "lower"
    with pytest.raises(InputError, match="there is no such file"):
        on_own(accepting, {"data": tmp_path / "gone"})
    with pytest.raises(InputError, match="it accepts --data: a table"):
        on_own(accepting, {"model": tmp_path})


def test_a_pipe_cannot_be_brought(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    accepting = dataclasses.replace(study(), accepts={"data": "a table"}, own=lambda paths: study("lower"))
    with pytest.raises(InputError, match="must be a file or a folder, not a pipe"):
        on_own(accepting, {"data": tmp_path / "pipe"})
