import dataclasses
import itertools
import math
import random
from fractions import Fraction

import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.reasoning.geocode import (
    Construction,
    Fact,
    Given,
    InconsistentSeed,
    Problem,
    Rejected,
    Scene,
    Target,
    deduce,
    generate,
    realise,
    seed_of,
)
from assay.reasoning.geocode.checks import oracle
from assay.reasoning.geocode.constructions import OPS, place
from assay.reasoning.geocode.grading import answer_of
from assay.reasoning.geocode.linear import Reduced, exact_weights, sparsest
from assay.reasoning.geocode.making import candidates, draw_chain, pruned
from assay.reasoning.geocode.measure import error, given_error, measured


def chain(*steps):
    return [Construction(op, tuple(out), tuple(args), tuple(param)) for op, out, args, param in steps]


TRIANGLE = ("triangle", "ABC", "", (50, 70, 10))


def answers(*steps, givens=None):
    seed = seed_of(chain(*steps), givens)
    coords = realise(seed)
    known = deduce(seed.facts, coords, seed.givens)

    def answer(kind, names):
        derivation = known.solve(Target(kind, tuple(names)))
        return None if derivation is None else answer_of(kind, derivation.value).text()

    return answer, known


@pytest.mark.parametrize(
    ("steps", "kind", "names", "right"),
    [
        ([TRIANGLE], "angle", "BCA", "60°"),
        ([TRIANGLE, ("incentre", "I", "ABC", ())], "angle", "BIC", "115°"),
        ([TRIANGLE, ("circumcentre", "O", "ABC", ())], "angle", "BOC", "100°"),
        ([TRIANGLE, ("circumcentre", "O", "ABC", ())], "angle", "OBC", "40°"),
        ([TRIANGLE, ("foot", "H", "CAB", ())], "angle", "HCB", "20°"),
        ([("cyclic", "ABCD", "", (95, 80, 30, 7))], "angle", "ADC", "100°"),
        ([("right", "CAB", "", (6, 8))], "length", "AB", "10"),
        ([("right", "CAB", "", (6, 8)), ("foot", "H", "CAB", ())], "length", "CH", "24/5"),
        ([("right", "CAB", "", (6, 8)), ("circumcentre", "O", "CAB", ())], "length", "CO", "5"),
        ([("right", "CAB", "", (6, 8)), ("midpoint", "M", "AB", ())], "length", "CM", "5"),
        ([("equilateral", "ABC", "", (10,)), ("midpoint", "M", "BC", ())], "length", "AM", "5√3"),
        ([("isosceles", "ABC", "", (40, 5))], "angle", "ABC", "70°"),
        ([("parallelogram", "ABCD", "", (70, 5, 7))], "angle", "ABC", "110°"),
        ([("right", "CAB", "", (6, 8)), ("bisector", "D", "ACB", ())], "ratio", "ADDB", "3/4"),
        ([("triangle_sas", "ABC", "", (60, 5, 8))], "length", "BC", "7"),
        ([("triangle", "ABC", "", (50, 80, 10))], "length", "BC", "10"),
    ],
)  # fmt: skip
def test_reference_values(steps, kind, names, right):
    assert answers(*steps)[0](kind, names) == right


def test_equal_angles_give_equal_sides():
    _, known = answers(("triangle", "ABC", "", (50, 80, 10)))
    assert known.solve(Target("length", tuple("BC"))).rules == ("equal angles at A and C, so BA = BC",)


def test_a_length_that_does_not_hold_says_how_far_it_is_off():
    at = {"A": (0.0, 0.0), "B": (2.0, 0.0), "C": (0.0, 2.2)}
    with pytest.raises(InconsistentSeed, match=r"AB = AC does not hold in the figure: a length is off by 0\.0909"):
        deduce([Fact("eqlen", tuple("ABAC"))], at, [])


def test_third_angle_is_not_deep():
    _, known = answers(TRIANGLE)
    assert known.solve(Target("angle", tuple("BCA"))).depth <= 3


def test_area_of_the_equilateral_triangle_in_exact_coordinates():
    at = place(chain(("equilateral", "ABC", "", (10,))), sympy)
    (ax, ay), (bx, by), (cx, cy) = at["A"], at["B"], at["C"]
    area = sympy.simplify(abs((bx - ax) * (cy - ay) - (by - ay) * (cx - ax)) / 2)
    assert area == 25 * sympy.sqrt(3)


def test_exact_coordinates_agree_with_deduced_answers():
    steps = chain(
        ("right", "CAB", "", (6, 8)),
        ("foot", "H", "CAB", ()),
        ("midpoint", "M", "CH", ()),
        ("reflection", "P", "MAB", ()),
    )
    seed = seed_of(steps)
    exact = place(steps, sympy)
    known = deduce(seed.facts, realise(seed), seed.givens)
    for a, b in ("CH", "HB", "CM", "AH"):
        (ax, ay), (bx, by) = exact[a], exact[b]
        length = sympy.sqrt((ax - bx) ** 2 + (ay - by) ** 2)
        derived = answer_of("length", known.solve(Target("length", (a, b))).value).exact
        assert sympy.simplify(length - derived) == 0


@pytest.mark.parametrize("seed", [11])
def test_a_second_derivation_finds_every_answer(seed):
    """Figures placed anew with 40 digits, everything unstated moved: no deduction, no coordinates of the maker."""
    for problem in generate(3, seed=seed):
        assert oracle(problem) == ""
        wrong = dataclasses.replace(
            problem, answer=dataclasses.replace(problem.answer, rational=problem.answer.rational + 1)
        )
        assert "measures" in oracle(wrong)


def test_the_oracle_sees_an_answer_that_the_givens_do_not_determine():
    problem = next(p for p in generate(3, seed=3) if p.seed.givens)
    loose = dataclasses.replace(problem, seed=dataclasses.replace(problem.seed, givens=problem.seed.givens[1:]))
    assert oracle(loose)


def test_nothing_is_guessed_where_givens_are_missing():
    seed = seed_of(chain(TRIANGLE), [Given("angle", tuple("BAC"), Fraction(50))])
    known = deduce(seed.facts, realise(seed), seed.givens)
    assert known.solve(Target("angle", tuple("BCA"))) is None
    assert known.value(Target("length", tuple("BC"))) is None


def test_all_derived_values_are_those_measured():
    """Random chains, every angle and length that is derived."""
    from assay.reasoning.geocode import logs

    rng, checked = random.Random(5), 0
    for _ in range(60):
        try:
            seed = seed_of(draw_chain(rng, 4))
            coords = realise(seed, rng)
        except Rejected:
            continue
        known = deduce(seed.facts, coords, seed.givens)
        for target, answer in candidates(seed, known, ["angle", "length", "ratio"]):
            assert answer.value == pytest.approx(measured(target, coords), rel=1e-8)
            checked += 1
    assert checked > 100
    assert logs.number(logs.log(Fraction(12))) == pytest.approx(12)


@pytest.mark.parametrize("op", [op for op in OPS if not OPS[op].base])
def test_every_construction_fulfils_its_facts(op):
    base = chain(("cyclic", "ABCD", "", (95, 80, 30, 7)), ("circumcentre", "O", "ABC", ()), ("midpoint", "M", "BC", ()))
    args = {
        "on_circle": "OA", "second": "OAM", "tangent": "OABC", "parallel": "OABCD", "perpendicular": "OABCD",
        "meet": "ACBD",
        "reflection": "OAB", "equal": "ABC",
    }.get(op, "BCDA"[: OPS[op].args])  # fmt: skip
    step = Construction(op, tuple("PQ"[: OPS[op].outs]), tuple(args), tuple(low for low, _ in OPS[op].ranges))
    seed = seed_of([*base, step])
    coords = place(seed.constructions, math)
    assert all(error(fact, coords) < 1e-9 for fact in seed.facts)
    assert all(given_error(g, coords) < 1e-9 for g in seed.givens)


@pytest.mark.parametrize("kind", ["coll", "perp", "para", "cong", "eqlen", "bis", "cyc", "mid", "ratio"])
def test_measures_see_facts_that_are_false(kind):
    at = {"A": (0.0, 0.0), "B": (3.0, 0.2), "C": (3.7, 2.0), "D": (-0.5, 2.9)}
    names = {"coll": "ABC", "cong": "ABC", "mid": "ABC"}.get(kind, "ABCD")
    assert error(Fact(kind, tuple(names), Fraction(3) if kind == "ratio" else None), at) > 1e-3


def test_equal_lengths_on_one_line_are_measured():
    """The angle equation is empty there, so that only lengths can show it."""
    at = {"O": (0.0, 0.0), "A": (1.0, 0.0), "B": (-2.0, 0.0)}
    assert error(Fact("cong", ("O", "A", "B")), at) > 0.4


def test_inconsistent_input_is_named():
    seed = seed_of(chain(TRIANGLE))
    coords = realise(seed)
    with pytest.raises(InconsistentSeed, match=r"∠BCA = 61° .*off by"):
        deduce(seed.facts, coords, [*seed.givens, Given("angle", tuple("BCA"), Fraction(61))])
    with pytest.raises(InconsistentSeed, match="AB ⊥ BC"):
        deduce([Fact("perp", tuple("ABBC"))], coords, [])
    with pytest.raises(InconsistentSeed, match="AB = AC"):
        deduce([Fact("cong", tuple("ABC"))], coords, [])
    with pytest.raises(InconsistentSeed, match="AB = 11"):
        deduce([], coords, [Given("length", tuple("AB"), Fraction(11))])


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Fact("near", ("A", "B")), "fact.kind"),
        (lambda: Fact("coll", ("A", "B")), "fact.points"),
        (lambda: Fact("ratio", tuple("ABCD")), "fact.value"),
        (lambda: Given("angle", tuple("ABC"), Fraction(180)), "below 180"),
        (lambda: Given("length", tuple("AA"), Fraction(1)), "given.points"),
        (lambda: Given("area", tuple("AB"), Fraction(1)), "given.kind"),
        (lambda: Target("area", tuple("ABC")), "target.kind"),
        (lambda: Target("angle", tuple("AB")), "target.points"),
        (lambda: seed_of([]), "at least a base figure"),
        (lambda: seed_of(chain(("midpoint", "M", "AB", ()))), "base figure"),
        (lambda: seed_of(chain(TRIANGLE, ("square", "M", "AB", ()))), r"constructions\[1\].op"),
        (lambda: seed_of(chain(TRIANGLE, ("midpoint", "M", "AX", ()))), "no point 'X'"),
        (lambda: seed_of(chain(TRIANGLE, ("midpoint", "A", "BC", ()))), r"constructions\[1\].out"),
        (lambda: seed_of(chain(TRIANGLE, ("midpoint", "M", "ABC", ()))), r"constructions\[1\].args"),
        (lambda: seed_of(chain(("triangle", "ABC", "", (50,)))), r"constructions\[0\].param"),
        (lambda: deduce([], {"A": (0, math.nan)}, []), "finite"),
        (lambda: deduce([], {"A": "here"}, []), "two numbers"),
        (lambda: deduce([Fact("coll", tuple("ABZ"))], {"A": (0, 0), "B": (1, 1)}, []), "no point 'Z'"),
        (lambda: deduce([], {"A": (0, 0), "B": (1, 1)}, []).solve(Target("length", ("A", "Z"))), "no point 'Z'"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(make, match):
    with pytest.raises(InputError, match=match):
        make()


def test_parallel_lines_do_not_meet():
    seed = seed_of(chain(("parallelogram", "ABCD", "", (70, 5, 7)), ("meet", "X", "ABCD", ())))
    with pytest.raises(Rejected, match="parallel"):
        realise(seed)


@settings(max_examples=40, deadline=None)
@given(st.integers(25, 100), st.integers(25, 70), st.floats(0.1, 6), st.booleans())
def test_angles_do_not_depend_on_how_the_figure_lies(a, b, turn, flip):
    assume((a, b) != (60, 60))  # there incentre and circumcentre are one point
    seed = seed_of(
        chain(("triangle", "ABC", "", (a, b, 5)), ("incentre", "I", "ABC", ()), ("circumcentre", "O", "ABC", ()))
    )
    at = place(seed.constructions, math)
    c, s, f = math.cos(turn), math.sin(turn), -1 if flip else 1
    turned = {n: (c * x - s * f * y, s * x + c * f * y) for n, (x, y) in at.items()}
    target = Target("angle", tuple("BIC"))
    assert deduce(seed.facts, turned, seed.givens, lengths=False).value(target) == {1: Fraction(90) + Fraction(a, 2)}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(-2, 2), min_size=4, max_size=4), min_size=2, max_size=6), st.data())
def test_weights_of_rows_are_exact(rows, data):
    rows = [{i: Fraction(c) for i, c in enumerate(row) if c} for row in rows]
    factors = data.draw(st.lists(st.integers(-2, 2), min_size=len(rows), max_size=len(rows)))
    target = {}
    for row, factor in zip(rows, factors, strict=True):
        for key, c in row.items():
            target[key] = target.get(key, Fraction(0)) + factor * c
    target = {key: c for key, c in target.items() if c}
    weights = sparsest(rows, target) if target else {}
    total = {}
    for k, w in weights.items():
        for key, c in rows[k].items():
            total[key] = total.get(key, Fraction(0)) + w * c
    assert {key: c for key, c in total.items() if c} == target
    reduced = Reduced()
    for row in rows:
        reduced.add(row, {})
    assert reduced.reduce(target)[0] == {}
    assert exact_weights(rows, {9: Fraction(1)}, range(len(rows))) is None


def test_the_leg_opposite_any_name_follows_from_hypotenuse_and_leg():
    for right, long, leg in itertools.permutations("ABC"):
        at = {right: (0.0, 0.0), long: (4.0, 0.0), leg: (0.0, 3.0)}
        facts = [Fact("perp", (right, long, right, leg))]
        givens = [Given("length", (long, leg), Fraction(5)), Given("length", (right, leg), Fraction(3))]
        known = deduce(facts, at, givens)
        assert known.value(Target("length", (right, long))) == {2: Fraction(2)}
        assert known.solve(Target("length", (right, long))).depth == 3


@pytest.mark.parametrize("turn", [0, 1e-12, 45, 90, 90 + 1e-12, 135, 179.9999999, 180, 270, 359.9999999])
@pytest.mark.parametrize(("a", "b"), [(30, 60), (45, 45), (60, 30), (50, 70), (25, 100)])
def test_directions_at_the_seam_of_the_half_turn(a, b, turn):
    """A side along the axis, and a right triangle, whose circumcentre lies on a side."""
    seed = seed_of(
        chain(("triangle", "ABC", "", (a, b, 5)), ("circumcentre", "O", "ABC", ()), ("midpoint", "M", "AB", ()))
    )
    at = place(seed.constructions, math)
    if a + b == 90:
        seed = seed_of(seed.constructions[:2])
        del at["M"]  # it is O
    c, s = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    for flip in (1, -1):
        turned = {n: (c * x - s * flip * y, s * x + c * flip * y) for n, (x, y) in at.items()}
        known = deduce(seed.facts, turned, seed.givens)
        assert known.value(Target("angle", tuple("BCA"))) == {1: 180 - a - b}
        gamma = 2 * (180 - a - b)
        if a + b != 90:
            assert known.value(Target("angle", tuple("AOB"))) == {1: min(gamma, 360 - gamma)}
        assert known.value(Target("angle", tuple("OCB"))) == {1: abs(90 - a)}


def test_points_that_fall_together_are_named():
    with pytest.raises(InputError, match="B and D fall together"):
        deduce([], {"A": (0, 0), "B": (5, 1), "C": (1, 9), "D": (5 + 1e-9, 1)}, [])
    with pytest.raises(InputError, match="A and B fall together"):
        deduce([], {"A": (0, 0), "B": (0, 0)}, [])


def test_givens_that_contradict_each_other_are_named():
    at = {"A": (0.0, 0.0), "B": (4.0, 0.0), "C": (0.0, 3.0)}
    with pytest.raises(InconsistentSeed, match=r"AC = 5 .*off by 0\.4 of itself|AC = 5 contradicts"):
        deduce([], at, [Given("length", ("A", "C"), Fraction(3)), Given("length", ("A", "C"), Fraction(5))])


def spoken_seed(rng):
    """A random chain and its figure."""
    while True:
        try:
            seed = seed_of(draw_chain(rng, rng.randint(1, 5)))
            return seed, realise(seed, rng)
        except Rejected:
            continue


def test_a_second_derivation_of_hundreds_of_answers():
    """Each with the givens it needs and no others; all else is moved, and the figure placed with 40 digits."""
    rng, used, asked = random.Random(8), set(), 0
    while asked < 300:
        seed, coords = spoken_seed(rng)
        known = deduce(seed.facts, coords, seed.givens)
        options = candidates(seed, known, ["angle", "length", "ratio"])
        for target, answer in rng.sample(options, min(4, len(options))):
            small = pruned(seed, known.solve(target), target)
            there = {name: coords[name] for name in small.points}
            problem = Problem(
                f"p{asked}", small, there, target, answer, "", "", Scene({}), "", (), 0
            )  # only what the oracle looks at
            assert oracle(problem) == "", (small, target, answer)
            used |= {step.op for step in small.constructions}
            asked += 1
    assert used == set(OPS)


def test_what_is_under_determined_stays_open():
    """Without one of the givens that it rests on, an answer is not derived."""
    rng, tried, open_ = random.Random(9), 0, 0
    while tried < 25:
        seed, coords = spoken_seed(rng)
        options = candidates(seed, deduce(seed.facts, coords, seed.givens), ["angle", "length"])
        if not options:
            continue
        target, _ = rng.choice(options)
        derivation = deduce(seed.facts, coords, seed.givens).solve(target)
        needed = [item for item in derivation.support if isinstance(item, Given)]
        if not needed:
            continue
        tried += 1
        fewer = [given for given in seed.givens if given not in needed]
        open_ += deduce(seed.facts, coords, fewer).solve(target) is None
    assert open_ >= 20  # some follow in another way


def test_facts_about_the_way_round_say_nothing_of_sizes():
    at = {"A": (0.0, 0.0), "B": (4.0, 0.0), "C": (0.0, 3.0)}
    assert error(Fact("turn", tuple("ABC")), at) == 0
    assert error(Fact("turn", tuple("ACB")), at) == 1
    assert deduce([Fact("turn", tuple("ABC"))], at, []).equations == []


def test_a_length_that_is_written_as_a_float_is_what_is_written():
    assert Given("length", ("A", "B"), 3.1).value == Fraction(31, 10)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "x", None, True, 0, -1, 10**18 + 9])
def test_givens_need_a_number(value):
    with pytest.raises(InputError, match=r"given.value must be"):
        Given("length", ("A", "B"), value)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: deduce(None, {}, []), InputError, "facts must be"),
        (lambda: deduce([], None, []), InputError, "coords must"),
        (lambda: deduce([], {"A": (0, 0)}, [1]), InputError, "givens must be"),
        (lambda: deduce([], {"A": (0, 0), "B": (1, 1)}, []).solve(None), TypeError, "target must be"),
        (
            lambda: deduce([], {"A": (0, 0), "B": (1, 1)}, []).value(Target("length", ("A", "Z"))),
            InputError,
            "point 'Z'",
        ),
        (lambda: Target("angle", ("A", "A", "B")), InputError, "3 different names"),
        (lambda: seed_of([None]), InputError, r"constructions\[0\] must be"),
        (lambda: seed_of([Construction("triangle", ("A", "B", "C"), (), ("a", 70, 5))]), InputError, "param must be"),
        (lambda: seed_of([Construction("triangle", (1, 2, 3), (), (50, 70, 5))]), InputError, "must be 3 names"),
        (lambda: seed_of([Construction("triangle", ("é", "B", "C"), (), (50, 70, 5))]), InputError, "letter A to Z"),
        (lambda: realise(None), TypeError, "seed must be"),
    ],
)
def test_strange_arguments_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()
