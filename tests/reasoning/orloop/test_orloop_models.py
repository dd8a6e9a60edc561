"""Models in and out, and what is refused."""

import numpy as np
import pytest

from assay.errors import InputError
from assay.reasoning.orloop import LinearModel, generate, solve

INF = np.inf


def small(**changes):
    given = {
        "A": [[1.0, 2.0]], "row_lo": [-INF], "row_up": [4.0], "col_lo": [0, 0], "col_up": [3, 3], "cost": [-1, -1],
    }  # fmt: skip
    return LinearModel.from_arrays(**(given | changes))


@pytest.fixture(scope="module")
def made():
    return [one for milp in (False, True) for one in generate(3, errors="ABD", milp=milp, seed=3)]


@pytest.mark.parametrize("suffix", [".mps", ".lp"])
def test_what_is_written_is_read(tmp_path, suffix, made):
    for one in made:
        path = one.model.write(tmp_path / f"m{suffix}")
        back = LinearModel.read(path)
        assert set(back.row_names) == set(one.model.row_names)
        assert set(back.col_names) == set(one.model.col_names)
        assert solve(back).status == "infeasible"
        original = LinearModel.read(one.original.write(tmp_path / f"o{suffix}"))
        assert solve(original).objective == pytest.approx(one.optimum, rel=1e-6)


def test_mps_keeps_every_number(tmp_path):
    one = generate(1, errors="C", seed=9)[0]
    assert LinearModel.read(one.model.write(tmp_path / "m.mps")).same(one.model)


def test_known_optimum():
    solved = solve(small())
    assert solved.status == "optimal"
    assert solved.objective == pytest.approx(-3.5)
    assert solve(small(sense="max", cost=[1, 1])).objective == pytest.approx(3.5)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"A": [[np.nan, 1]]}, "'x1' in row 'r1'"),
        ({"A": [[1, np.inf]]}, "'x2' in row 'r1'"),
        ({"row_lo": [5.0]}, "row 'r1' has the lower side 5"),
        ({"row_lo": [np.nan]}, "lower bound of row 'r1'"),
        ({"col_up": [np.nan, 1]}, "upper bound of column 'x1'"),
        ({"col_lo": [INF, 0]}, "lower bound of column 'x1'"),
        ({"cost": [np.nan, 1]}, "cost of column 'x1'"),
        ({"cost": [1]}, "cost must have shape"),
        ({"cost": ["a", "b"]}, "cost must be numbers"),
        ({"integer": [True]}, "integer"),
        ({"sense": "most"}, "sense"),
        ({"col_names": ["a", "a"]}, "'a' twice"),
        ({"row_names": [" "]}, "empty name"),
        ({"row_names": ["a", "b"]}, "row_names must hold 1"),
    ],
)
def test_bad_arrays_are_named(changes, word):
    with pytest.raises(InputError, match=word):
        small(**changes)


NAN_MPS = """NAME t
ROWS
 N cost
 L r1
COLUMNS
 x cost 1 r1 nan
RHS
 R r1 4
ENDATA
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.mps", "no model at all"), ("a.mps", ""), ("a.lp", "min: what is this"), ("a.mps", NAN_MPS),
     ("a.mps", NAN_MPS.replace("nan", "2").replace(" L r1\n", " L r1\n L r1\n")), ("a.xlsx", "x")],
)  # fmt: skip
def test_bad_files_are_refused(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=r"a\.(mps|lp|xlsx)"):
        LinearModel.read(path)
    with pytest.raises(InputError, match="there is no file"):
        LinearModel.read(tmp_path / "nowhere.mps")


def test_a_quadratic_objective_is_refused(tmp_path):
    path = tmp_path / "q.lp"
    path.write_text("minimize\n obj: x + [ 2 x^2 ] / 2\nsubject to\n c1: x >= 1\nbounds\n x <= 4\nend\n")
    with pytest.raises(InputError, match="quadratic"):
        LinearModel.read(path)


def test_a_model_of_pulp():
    pulp = pytest.importorskip("pulp")
    prob = pulp.LpProblem("p", pulp.LpMaximize)
    x, y = pulp.LpVariable("x", 0, 4), pulp.LpVariable("y", 0, 9, cat="Integer")
    prob += x + 2 * y + 3
    prob += x + y <= 6.5, "cap_1"
    prob += x - y >= -3, "gap_1"
    model = LinearModel.from_pulp(prob)
    assert model.row_names == ("cap_1", "gap_1")
    assert model.integer.tolist() == [False, True]
    assert solve(model).objective == pytest.approx(3 + 2.5 + 2 * 4)
    with pytest.raises(InputError, match=r"pulp\.LpProblem"):
        LinearModel.from_pulp("a problem")


def test_time_limits_are_checked():
    for wrong in (0, -1, True, "long", float("nan")):
        with pytest.raises(InputError, match="time_limit"):
            solve(small(), time_limit=wrong)
