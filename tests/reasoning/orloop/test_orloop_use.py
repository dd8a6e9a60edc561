"""``assay use orloop``: what people and programs read from the files that it writes."""

import csv
import json
import re
import struct

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from assay.errors import InputError
from assay.reasoning.orloop import LinearModel, generate, iis, repair, rl_rows, solve
from assay.reasoning.orloop.environment import row_text
from assay.reasoning.orloop.files import read_instances, write_instances
from assay.reasoning.orloop.use import app


@pytest.fixture(scope="module")
def one():
    return generate(1, errors="A", domains="transport", seed=11)[0]


def call(*arguments):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_the_conflict_is_written(tmp_path, one):
    path = one.model.write(tmp_path / "m.mps")
    said = call("iis", path, "--out", tmp_path / "c")
    known = json.loads((tmp_path / "c" / "iis.json").read_text())
    assert known["certified"] is True
    assert known["status"] == "infeasible"
    assert all(name in said for name in known["rows"])
    with (tmp_path / "c" / "iis.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == known["rows"]
    report = (tmp_path / "c" / "report.md").read_text()
    assert all(name in report for name in known["rows"])
    if "relaxations.png" in report:
        assert (tmp_path / "c" / "relaxations.png").read_bytes()[:4] == b"\x89PNG"


def test_the_repair_is_written_and_right(tmp_path, one):
    path = one.model.write(tmp_path / "m.mps")
    call("repair", path, "--out", tmp_path / "f")
    fixed = LinearModel.read(tmp_path / "f" / "fixed.mps")
    assert solve(fixed).objective == pytest.approx(one.optimum)
    known = json.loads((tmp_path / "f" / "repair.json").read_text())
    assert known["status"] == "optimal"
    assert {edit["edit"].split()[1] for edit in known["edits"]} == set(one.culprits)


def test_a_feasible_model_is_left_alone(tmp_path, one):
    path = one.original.write(tmp_path / "m.mps")
    assert "nothing conflicts" in call("iis", path, "--out", tmp_path / "c")
    assert "already feasible" in call("repair", path, "--out", tmp_path / "f")
    assert LinearModel.read(tmp_path / "f" / "fixed.mps").same(one.original)
    endless = LinearModel.from_arrays([[1.0]], [0], [np.inf], [0], [np.inf], [-1])
    assert repair(endless).status == "unbounded"


def test_made_models_come_back(tmp_path):
    call("make", "--n", 3, "--errors", "ABD", "--seed", 5, "--out", tmp_path / "made")
    back, fresh = read_instances(tmp_path / "made"), generate(3, errors="ABD", seed=5)
    for a, b in zip(back, fresh, strict=True):
        assert a.model.same(b.model)
        assert a.original.same(b.original)
        assert (a.id, a.culprits, a.undo, a.iis_rows, a.optimum) == (b.id, b.culprits, b.undo, b.iis_rows, b.optimum)


def test_bad_files_are_named(tmp_path, one):
    with pytest.raises(InputError, match="there is no file"):
        call("iis", tmp_path / "none.mps", "--out", tmp_path / "c")
    path = one.model.write(tmp_path / "m.mps")
    with pytest.raises(InputError, match="belong together"):
        call("repair", path, "--out", tmp_path / "f", "--agent", "http://localhost:1/v1")
    write_instances([one], tmp_path / "set")
    table = tmp_path / "set" / "instances.jsonl"
    table.write_text(table.read_text().replace("models/00000.mps", "../m.mps"))
    with pytest.raises(InputError, match="must lie in"):
        read_instances(tmp_path / "set")
    table.write_text("{}\n")
    with pytest.raises(InputError, match="line 1"):
        read_instances(tmp_path / "set")
    with pytest.raises(InputError, match=r"instances\.jsonl"):
        read_instances(tmp_path)


def test_a_file_as_out_gets_its_report_beside_it(tmp_path, one):
    path = one.model.write(tmp_path / "m.mps")
    said = call("repair", path, "--out", tmp_path / "fixed.lp.gz")
    assert "fixed.report" in said
    assert solve(LinearModel.read(tmp_path / "fixed.lp.gz")).objective == pytest.approx(one.optimum)
    report = tmp_path / "fixed.report"
    text = (report / "report.md").read_text()
    (edit,) = one.undo
    assert f"## 1. `{edit}`" in text
    assert "fixed.lp.gz" in text
    with (report / "choices.csv").open() as file:
        tried = {row["edit"]: row for row in csv.DictReader(file)}
    assert float(tried[str(edit)]["objective"]) == pytest.approx(one.optimum)
    assert {row["status"] for row in tried.values()} <= {"optimal", "infeasible", "unbounded"}
    for name in re.findall(r"\]\((\S+\.png)\)", text):
        width, height = struct.unpack(">II", (report / name).read_bytes()[16:24])
        assert width > 800
        assert height > 200
    assert len(re.findall(r"\.png", text)) == len(list(report.glob("*.png"))) > 0
    with pytest.raises(InputError, match="exists"):
        call("repair", path, "--out", tmp_path / "fixed.lp.gz")


def test_without_out_the_conflict_is_printed(tmp_path, one):
    path = one.model.write(tmp_path / "m.mps")
    said = call("iis", path)
    assert all(row_text(one.model, name, 30) in said for name in one.iis_rows)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.mps"]
    soft = call("iis", path, "--bounds", "soft")
    assert "bound" in soft or "rows." in soft
    hard = call("iis", path, "--hard-rows", one.iis_rows[0])
    assert f"\n{one.iis_rows[0]}:" not in hard
    with pytest.raises(InputError, match="hard_rows"):
        call("iis", path, "--hard-rows", "nobody")
    with pytest.raises(InputError, match="time_limit"):
        call("iis", path, "--time-limit", "0")


def test_crossing_bounds_are_said_to_be_what_is_wrong(tmp_path):
    model = LinearModel.from_arrays([[1.0]], [0], [9], [3], [2], [1])
    done = repair(model)
    assert (done.status, done.edits) == ("infeasible", ())
    assert "lower bound of x1, upper bound of x1" in done.why[0]
    path = model.write(tmp_path / "m.mps")
    assert "bounds of columns conflict" in call("repair", path, "--out", tmp_path / "f")
    assert "x1 >= 3" in call("iis", path)


def network(customers, rng, wrong):
    """A transport model of a real size, in which the limit of one customer's dock lost a digit."""
    suppliers = 30
    demand = rng.uniform(20, 50, customers).round()
    lanes = [(i, j) for j in range(customers) for i in rng.choice(suppliers, 6, replace=False)]
    rows, lo, up, names = [], [], [], []
    for i in range(suppliers):
        rows.append([c for c, lane in enumerate(lanes) if lane[0] == i])
        names.append(f"supply_{i}")
        lo.append(-np.inf)
        up.append(round(demand.sum() * 2 / suppliers))
    for kind in ("demand", "dock"):
        for j in range(customers):
            rows.append(range(6 * j, 6 * j + 6))
            names.append(f"{kind}_{j}")
            lo.append(demand[j] if kind == "demand" else -np.inf)
            up.append(np.inf if kind == "demand" else round(1.2 * demand[j] * (0.1 if wrong == j else 1), 2))
    at = [(r, c) for r, row in enumerate(rows) for c in row]
    A = sp.csr_matrix((np.ones(len(at)), tuple(zip(*at, strict=True))), shape=(len(rows), len(lanes)))
    n = len(lanes)
    cols = [f"ship_{i}_{j}" for i, j in lanes]
    return LinearModel.from_arrays(
        A, lo, up, [0] * n, [60] * n, rng.integers(2, 20, n), row_names=names, col_names=cols
    )


def test_a_model_of_thousands_of_rows(tmp_path):
    good, bad = (network(1000, np.random.default_rng(3), wrong) for wrong in (None, 77))
    assert bad.shape == (2030, 6000)
    path = bad.write(tmp_path / "big.mps.gz")
    call("iis", path, "--out", tmp_path / "c")
    assert json.loads((tmp_path / "c" / "iis.json").read_text())["rows"] == ["demand_77", "dock_77"]
    call("repair", path, "--out", tmp_path / "fixed.mps")
    assert solve(LinearModel.read(tmp_path / "fixed.mps")).objective == pytest.approx(solve(good).objective)


def knapsack(n):
    """Easy to satisfy, and hard to prove the optimum of."""
    rng = np.random.default_rng(0)
    A = rng.integers(10_000, 99_999, (4, n)).astype(float)
    return LinearModel.from_arrays(
        A, [-np.inf] * 4, A.sum(axis=1) / 2, [0] * n, [1] * n, A.sum(axis=0) + rng.integers(1, 99, n), [True] * n, "max"
    )


def test_a_model_whose_optimum_takes_too_long_is_known_to_be_feasible():
    model = knapsack(60)
    solved = solve(model, time_limit=0.3)
    assert solved.status == "limit"
    assert solved.x is not None
    assert (model.A @ solved.x <= model.row_up + 1e-6).all()
    done = repair(model, time_limit=0.3)
    assert done.edits == ()
    assert "feasible, though" in done.why[0]


def test_what_time_does_not_allow_is_said_so(tmp_path):
    # A market split: the relaxation is feasible, and to refute the integer model takes far longer than it gets here.
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 100, (4, 30))
    sides = weights.sum(axis=1) // 2
    hard = LinearModel.from_arrays(weights, sides, sides, [0] * 30, [1] * 30, [1] * 30, [True] * 30)
    path = hard.write(tmp_path / "split.mps")
    for text in (
        call("iis", path, "--time-limit", "0.2"),
        call("iis", path, "--time-limit", "0.2", "--out", tmp_path / "c"),
    ):
        assert "whether anything conflicts is not known" in text
        assert "longer --time-limit" in text
    text = call("repair", path, "--time-limit", "0.2", "--out", tmp_path / "r")
    assert "longer --time-limit" in text
    assert "neither solved nor refuted" in (tmp_path / "r" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("wrong", [None, 3, "plan.mps", [], object()])
def test_what_is_no_model_or_agent_is_named(one, wrong):
    for call_it in (solve, iis, repair):
        with pytest.raises(TypeError, match="model must be a LinearModel"):
            call_it(wrong)
    if wrong is not None:
        for what in ("agent", "policy"):
            with pytest.raises(TypeError, match=f"{what} must have a method"):
                repair(one.model, **{what: wrong})
    with pytest.raises(InputError, match="instances must be"):
        rl_rows(wrong)
