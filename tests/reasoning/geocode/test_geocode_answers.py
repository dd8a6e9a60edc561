from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.reasoning.geocode import Answer, generate, grade, reward_func


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("x = 5\\sqrt{3}", "5√3", True),
        ("8.66", "5√3", True),
        ("8.6", "5√3", False),
        ("\\boxed{5\\sqrt{3}}", "5√3", True),
        ("So the angle is \\boxed{115^\\circ}.", "115°", True),
        ("\\boxed{115^{\\circ}}", "115°", True),
        ("\\boxed{\\frac{7}{2}}", "7/2", True),
        ("\\boxed{\\dfrac72}", "7/2", True),
        ("\\boxed{\\frac{5\\sqrt{3}}{2}}", "5√3/2", True),
        ("The answer is 35 degrees.", "35°", True),
        ("Answer: 35°", "35°", True),
        ("∠BIC = 115°", "115°", True),
        ("35", 35.0, True),
        ("$3.5$", Answer("ratio", Fraction(7, 2)), True),
        ("2 * 5", "10", True),
        ("\\boxed{10 cm}", "10", True),
        ("\\boxed{34} or \\boxed{35}", "35", False),
        ("34 or 35", "35", False),
        ("34, 35", "35", False),
        ("34 35", "35", False),
        ("\\boxed{34, 35}", "35", False),
        ("\\boxed{}", "35", False),
        ("\\boxed{35", "35", False),
        ("", "35", False),
        ("9**9**9**9", "35", False),
        ("\\boxed{2^{2^{2^{99}}}}", "35", False),
        ("\\boxed{1/0}", "35", False),
        ("\\boxed{√(-1)}", "35", False),
        ("((((" * 1000, "35", False),
        ("nan", "35", False),
        ("inf", "35", False),
        ("__import__('os')", "35", False),
        # as people write it
        ("35˚", "35°", True),
        ("\\(35^\\circ\\)", "35°", True),
        ("The answer is **35°**.", "35°", True),
        ("\\boxed{\\text{35}}", "35°", True),
        ("∠ABC = 180° − 145° = 35°", "35°", True),
        ("∠ABC is 35°", "35°", True),
        ("35°30'", "35.5°", True),
        ("35,5°", "35.5°", True),
        ("5⋅√3", "5√3", True),
        ("5*3**0.5", "5√3", True),
        ("AB = 5\\sqrt{3} \\approx 8.66", "5√3", True),
        ("5√3 ≈ 8.7", "5√3", True),
        ("≈ 8.66", "5√3", True),
        ("8.66 m", "5√3", True),
        ("3 1/2", "7/2", True),
        ("3½", "7/2", True),
        ("3\\frac{1}{2}", "7/2", True),
        ("3\\frac{1}{2}", "3/2", False),
        ("AB : BC = 7 : 2", "7/2", True),
        # several answers, sides that disagree, and what is no answer
        ("x = 1, x = 35", "35", False),
        ("\\boxed{x=1,x=35}", "35", False),
        ("\\boxed{x=30 x=35}", "35", False),
        ("\\boxed{40 = 35}", "35", False),
        ("8.6 ≈ 8.66", "5√3", False),
        ("x ≠ 35", "35", False),
        ("x != 35", "35", False),
        ("\\boxed{x = y - 1, z = 35}", "35", False),
        ("x < 35", "35", False),
        ("∠ABC is not 35°", "35°", False),
        ("2x = 35", "35", False),
        ("5 cm^2", "25", False),
        ("1,234", "1.234", False),
        ("\\boxed{" + "9" * 110 + "^8}", "35", False),
    ],
)  # fmt: skip
def test_grades(text, answer, right):
    assert grade(text, answer) is right


@pytest.mark.parametrize("answer", ["", "about 5", float("nan"), None, float("inf")])
def test_right_answers_must_be_numbers(answer):
    with pytest.raises(InputError, match="answer must be"):
        grade("5", answer)


def test_texts_must_be_texts():
    with pytest.raises(TypeError, match="text must be"):
        grade(5, "5")


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 30), st.sampled_from([1, 2, 3, 5, 6, 7, 10]))
def test_every_answer_is_graded_right_as_it_is_written(top, bottom, radicand):
    answer = Answer("length", Fraction(top, bottom), radicand)
    assert grade(answer.text(), answer)
    assert grade(f"\\boxed{{{answer.text()}}}", answer.text())
    assert grade(f"{answer.value:.5g}", answer)
    assert not grade(f"{answer.value * 1.01:.6g}", answer)
    assert float(answer.exact) == pytest.approx(answer.value)


@pytest.fixture(scope="module")
def problems():
    return generate(4, seed=33)


def test_gaming_answers_earn_nothing(problems):
    for problem in problems:
        said = f"{problem.text} {problem.question}"
        numbers = [g.value for g in problem.seed.givens]
        tricks = [
            said,  # the prompt again
            f"\\boxed{{{said}}}",
            " ".join(f"\\boxed{{{n}}}" for n in range(1, 180)),  # every number
            " ".join(map(str, range(1, 180))),
            f"The answer is {', '.join(map(str, range(1, 180)))}",
            *(f"\\boxed{{{n}}}" for n in numbers),  # a number of the text
            "\\boxed{x}",
            f"\\boxed{{{problem.target.text()}}}",
            problem.scene.to_json(),
            problem.code,
        ]
        assert not any(grade(trick, problem.answer) for trick in tricks)
        rewards = reward_func([said] * len(tricks), tricks, [problem.answer.text()] * len(tricks))
        assert max(rewards) <= 0.1 / 0.7 + 1e-9
        assert reward_func([said], [f"\\boxed{{{problem.answer.text()}}}"], [problem.answer.text()]) == [1.0]


@pytest.mark.parametrize(
    ("change", "match"),
    [({"weights": (0, 0, 0)}, "weights"), ({"weights": (1, -1, 1)}, "weights"), ({"answer": ["1", "2"]}, "answer"),
     ({"scene": []}, "scene")],
)  # fmt: skip
def test_bad_rewards(change, match):
    with pytest.raises(InputError, match=match):
        reward_func(None, ["1"], **{"answer": ["1"], **change})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"answer": None}, "answer must be a list"),
        ({"answer": ["1", "2"]}, "answer must have a row"),
        ({"scene": ["x"]}, r"scene\[0\]: the code is no JSON"),
        ({"scene": [None]}, r"scene\[0\] must be a Scene"),
        ({"weights": None}, "weights must be three"),
        ({"weights": (float("nan"), 1, 1)}, "weights must be three"),
        ({"weights": ("a", 1, 1)}, "weights must be three"),
    ],
)
def test_rewards_need_columns_and_weights(change, match):
    with pytest.raises(InputError, match=match):
        reward_func(None, ["1"], **{"answer": ["1"], **change})


@pytest.mark.parametrize(
    ("change", "match"),
    [({"kind": "area"}, "answer.kind"), ({"rational": None}, "answer.rational"), ({"radicand": -3}, "answer.radicand"),
     ({"kind": "angle", "radicand": 3}, "answer.radicand"), ({"rational": Fraction(10) ** 400}, "at most 30 digits")],
)  # fmt: skip
def test_answers_are_checked(change, match):
    with pytest.raises(InputError, match=match):
        Answer(**{"kind": "length", "rational": Fraction(1), "radicand": 2, **change})
