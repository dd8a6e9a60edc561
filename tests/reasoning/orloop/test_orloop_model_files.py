"""Files of other programs and of people: what they mean is read, and what would be misread is refused."""

import gzip

import numpy as np
import pytest

from assay.errors import InputError
from assay.reasoning.orloop import LinearModel, generate, iis, solve
from assay.reasoning.orloop.environment import row_text

INF = np.inf

ODD_LP = """\\ a comment at the head
MAXIMIZE
 profit: 3 x1 + 2 x2 - 1.5e0 x3 + 4 n[1,a] + b1 + 100
SUBJECT TO
 \\ a row with two sides
 rng_1: 2 <= x1 + x2 <= 8
 rng_2: -x1 - x2 >= -40
 -5 <= x3 - x1 <= 1.5
 12 >= x1 +
   x2 + x3
   >= -3e1
 "the last one": x3 - x2 <= -1  \\ in quotes
 a#odd.name(1): x1 + 2 n[1,a] =< 20
 cap[1,a]: x1 + n[1,a] < 25
BOUNDS
 x1 <= 40
 0 <= x2 <= 30
 x3 free
 -3 <= n[1,a] <= 9
GENERALS
 n[1,a]
BINARIES
 b1
END
"""


def saved(folder, name, text):
    path = folder / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["odd.lp", "ODD.LP", "odd.lp.gz", "Odd.LP.GZ"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_an_lp_file_written_by_hand(tmp_path, name, ends):
    model = LinearModel.read(saved(tmp_path, name, ODD_LP.replace("\n", ends)))
    assert (model.sense, model.offset) == ("max", 100)
    assert model.col_names == ("x1", "x2", "x3", "n[1,a]", "b1")
    assert model.cost.tolist() == [3, 2, -1.5, 4, 1]
    assert model.integer.tolist() == [False, False, False, True, True]
    assert model.col_lo.tolist() == [0, 0, -INF, -3, 0]
    assert model.col_up.tolist() == [40, 30, INF, 9, 1]
    assert [row_text(model, one) for one in model.row_names] == [
        "rng_1: 2 <= x1 + x2 <= 8",
        "rng_2: - x1 - x2 >= -40",
        "range_2: -5 <= - x1 + x3 <= 1.5",
        "range_3: -30 <= x1 + x2 + x3 <= 12",
        "the last one: - x2 + x3 <= -1",
        "a#odd.name(1): x1 + 2 n[1,a] <= 20",
        "cap[1,a]: x1 + n[1,a] <= 25",
    ]
    assert model.family[:2] == ("rng", "rng")
    assert model.family[-1] == "cap"
    # By hand: x1 + x2 = 8 and x3 = x1 - 5 leave 23.5 - 0.5 x1, so x1 = 0, and then n may be 9.
    assert solve(model).objective == pytest.approx(23.5 + 4 * 9 + 1 + 100)


def diet(pulp):
    prob = pulp.LpProblem("diet_plan", pulp.LpMinimize)
    food = {name: prob.add_variable(f"buy_{name}", 0, 10) for name in ("bread", "milk", "oat-meal", "2%cream")}
    packs, opened = prob.add_variable("packs", 0, 5, cat="Integer"), prob.add_variable("open", cat="Binary")
    spare = prob.add_variable("free")
    prob += 2 * food["bread"] + 3 * food["milk"] + food["oat-meal"] + packs + 5 * opened + 0.1 * spare
    prob += food["bread"] + food["milk"] >= 4, "kcal_1"
    prob += food["bread"] + food["oat-meal"] >= 3, "kcal_2"
    prob += food["bread"] + food["milk"] <= 2, "budget_1"
    prob += spare + packs == -3.5, "balance"
    prob += packs - 5 * opened <= 0, "link"
    return prob


@pytest.mark.parametrize("suffix", [".mps", ".lp"])
def test_what_pulp_writes(tmp_path, suffix):
    pulp = pytest.importorskip("pulp")
    prob, path = diet(pulp), tmp_path / f"diet{suffix}"
    (prob.writeMPS if suffix == ".mps" else prob.writeLP)(str(path))
    read, direct = LinearModel.read(path), LinearModel.from_pulp(prob)
    assert set(read.col_names) == set(direct.col_names)
    if suffix == ".mps":  # the .lp file orders columns in its own way
        for name in ("kcal_2", "link", "balance"):
            assert row_text(read, name) == row_text(direct, name)
    assert set(iis(read).rows) == {"kcal_1", "budget_1"}
    assert read.col_lo[read.col("free")] == -INF
    assert read.integer.sum() == 2
    mended = read.with_sides(read.row("budget_1"), -INF, 20)
    assert solve(mended).objective == pytest.approx(4 * 2 - 0.35)  # bread alone, and no packs


RANGES_MPS = """* a comment
NAME          test
OBJSENSE
    MAX
ROWS
 N  COST
 N  OTHER
 L  LIM1
 G  LIM2
 E  MYEQN
COLUMNS
    MARKER                 'MARKER'                 'INTORG'
    X         COST         1.0   LIM1         1.0
    X         LIM2         1.0
    MARKER                 'MARKER'                 'INTEND'
    Y         COST         2.0   LIM1         1.0
    Y         MYEQN       -1.0   OTHER        3.0
    Z         COST        -1.0   MYEQN        1.0
RHS
    RHS       COST         -5.0
    RHS       LIM1         4.0   LIM2         7.0
    RHS       MYEQN        7.0
RANGES
    RNG       LIM1         2.5   LIM2         2.0
    RNG       MYEQN       -3.0
BOUNDS
 UP BND       X            4.0
 LO BND       Y           -1.0
 UP BND       Y            1.0
 MI BND       Z
ENDATA
"""


@pytest.mark.parametrize("name", ["a.mps", "A.MPS", "a.mps.gz", "A.MPS.GZ"])
def test_an_mps_file_with_all_its_sections(tmp_path, name):
    model = LinearModel.read(saved(tmp_path, name, RANGES_MPS.replace("\n", "\r\n")))
    assert [row_text(model, one) for one in model.row_names] == [
        "LIM1: 1.5 <= X + Y <= 4", "LIM2: 7 <= X <= 9", "MYEQN: 4 <= - Y + Z <= 7",
    ]  # fmt: skip
    assert (model.sense, model.offset) == ("max", 5)
    assert model.integer.tolist() == [True, False, False]
    assert model.col_lo.tolist() == [0, -1, -INF]
    assert iis(model).rows == ("LIM2",)


def test_names_with_blanks_in_columns_of_text(tmp_path):
    text = (
        "NAME          t\nROWS\n N  cost\n L  my row\nCOLUMNS\n"
        "    my x      cost               1.0   my row             1.0\n"
        "RHS\n    RHS       my row             4.0\nENDATA\n"
    )
    model = LinearModel.read(saved(tmp_path, "a.mps", text))
    assert (model.row_names, model.col_names) == (("my row",), ("my x",))
    assert LinearModel.read(model.write(tmp_path / "b.mps")).row_names == ("my_row",)


def test_other_alphabets(tmp_path):
    text = "min\n obj: größe + y\nst\n büro_1: größe + y >= 2\nend\n"
    for content in (text.encode(), text.encode("latin-1"), text.encode("utf-8-sig")):
        model = LinearModel.read(saved(tmp_path, "a.lp", content))
        assert (model.row_names, model.col_names) == (("büro_1",), ("größe", "y"))


HEAD = "Minimize\n obj: x + y\nSubject To\n c1: x + y >= 2\n"
MPS = "NAME t\nROWS\n N cost\n L r1\n G r2\nCOLUMNS\n x cost 1 r1 1\n"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("a.lp", HEAD + " c1: x - y <= 1\nEnd\n", "'c1' twice"),
        ("a.lp", HEAD + "Bounds\n x <= 3\nSOS\n s1: S1:: x:1 y:2\nEnd\n", "SOS"),
        ("a.lp", HEAD + "Bounds\n x <= 3\nSemi-continuous\n x\nEnd\n", "'x' is semi-continuous"),
        ("a.lp", HEAD + " i1: y = 1 -> x <= 3\nBinary\n y\nEnd\n", "line 5: indicator"),
        ("a.lp", HEAD + " c2: x >= 2 + y\nEnd\n", "line 5"),
        ("a.lp", HEAD + " c2: x + 3 >= 2\nEnd\n", "line 5: a constant on the left-hand side"),
        ("a.lp", HEAD + " c2: 5 <= x + y <= 3\nEnd\n", "'c2' has the lower side 5"),
        ("a.lp", HEAD + " 2 <= x\n x + y <= 8\nEnd\n", "line 5"),
        ("a.lp", HEAD + "Lazy Constraints\n l1: x - y <= 1\nEnd\n", "line 5"),
        ("a.lp", HEAD + " c[1]: x + ? >= 1 z\nEnd\n", "line 5"),
        ("a.lp", HEAD, "line 4: expected `end`"),
        ("a.lp.gz", b"", "empty"),
        ("a.mps", "NAME t\n\0\0\0 binary", "no text file"),
        ("a.mps", MPS + " y r1 1\n x r2 1\nRHS\n R r1 4\nENDATA\n", 'same name "x"'),
        ("a.mps", MPS + " x r1 2\nRHS\n R r1 4\nENDATA\n", "duplicate nonzero"),
        ("a.mps", MPS + " x r9 2\nRHS\n R r1 4\nENDATA\n", "line 8: there is no row 'r9'"),
        ("a.mps", MPS + " x r2 2\nRHS\n R r8 4\nENDATA\n", '"r8" in RHS'),
        ("a.mps", MPS + " x r2 2\nRHS\n R r1 4\nSOS\n S1 s1\n  s1 x 1\nENDATA\n", "SOS"),
        ("a.mps", MPS + " x r2 2\nRHS\n R r1 4\nBOUNDS\n SC B x 4\nENDATA\n", "semi-continuous"),
        ("a.mps", MPS + " x r2 2\nRHS\n R r1 4\nBOUNDS\n BV B x\nINDICATORS\n IF r1 x 1\nENDATA\n", "INDICATORS"),
        ("a.mps", MPS + " x r2 2\nRHS\n R r1 4\nQUADOBJ\n x x 2\nENDATA\n", "quadratic"),
        ("a.mps", MPS + " x r2 2\nRHS\n R r1 4\n", "too early"),
    ],
)
def test_what_would_be_misread_is_refused(tmp_path, name, text, word):
    with pytest.raises(InputError, match=word) as caught:
        LinearModel.read(saved(tmp_path, name, text))
    assert name in str(caught.value)
    assert "assay_name" not in str(caught.value)


def test_a_file_that_is_not_packed_though_it_says_so(tmp_path):
    path = tmp_path / "a.mps.gz"
    path.write_text(RANGES_MPS)
    with pytest.raises(InputError, match=r"a\.mps\.gz cannot be read"):
        LinearModel.read(path)
    path.write_bytes(gzip.compress(RANGES_MPS.encode())[:60])
    with pytest.raises(InputError, match=r"a\.mps\.gz cannot be read"):
        LinearModel.read(path)


def test_crossing_bounds_in_a_file_are_a_conflict(tmp_path):
    for name, text in {
        "a.lp": HEAD + "Bounds\n x >= 5\n x <= 3\nEnd\n",
        "a.mps": MPS + " x r2 2\nRHS\n R r1 9\nBOUNDS\n UP B x 3\n LO B x 5\nENDATA\n",
    }.items():
        model = LinearModel.read(saved(tmp_path, name, text))
        assert solve(model).status == "infeasible"
        assert iis(model).col_bounds == (("x", "lower"), ("x", "upper"))


def test_mps_keeps_every_number_packed_or_not(tmp_path):
    model = LinearModel.from_arrays(
        [[1 / 3, 2e-7, 1e14 / 7]], [-INF], [1e9 / 7], [-INF, -3, 0], [INF, 9, 1], [1, 2 / 3, 0], [False, True, True],
        "max", ["a[1,2]"], offset=0.1 + 0.2,
    )  # fmt: skip
    for name in ("a.mps", "a.mps.gz"):
        back = LinearModel.read(model.write(tmp_path / name))
        assert back.same(model)
        assert (back.offset, back.sense) == (model.offset, "max")
    for one in generate(4, errors="ABCF", seed=31):
        assert LinearModel.read(one.model.write(tmp_path / "b.mps")).same(one.model)


def test_names_that_a_format_cannot_hold_are_refused(tmp_path):
    for name in ("two words", "a[1]", "3x", "a+b"):
        model = LinearModel.from_arrays([[1.0]], [0], [1], [0], [1], [1], col_names=[name])
        if name == "two words":
            assert LinearModel.read(model.write(tmp_path / "w.lp")).col_names == ("two_words",)
        else:
            with pytest.raises(InputError, match="cannot hold all names"):
                model.write(tmp_path / "a.lp")
    twins = LinearModel.from_arrays([[1.0, 1.0]], [0], [1], [0, 0], [1, 1], [1, 1], col_names=["a b", "a_b"])
    with pytest.raises(InputError, match="'a_b' twice"):
        twins.write(tmp_path / "a.mps")
    with pytest.raises(InputError, match="must end with"):
        model.write(tmp_path / "a.txt")


def test_a_coefficient_that_no_solver_takes():
    with pytest.raises(InputError, match="1e15"):
        solve(LinearModel.from_arrays([[1e16]], [0], [1], [0], [1], [1]))
