import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from assay.errors import InputError
from assay.reasoning.geocode import GeoEnv, Mark, Scene, generate, reward_func


@pytest.fixture(scope="module")
def problems():
    return generate(4, seed=51, visual_only=1.0)


@pytest.fixture
def env(problems):
    return GeoEnv(problems, size=128, render_mode="rgb_array")


def said(scene, answer):
    return f"```json\n{scene.to_json()}\n```\nThe answer is \\boxed{{{answer}}}"


def honest(problem):
    """Places a little off, one mark missing, the answer right."""
    old = problem.scene
    points = {n: (round(x + 0.008 * (-1) ** k, 3), y) for k, (n, (x, y)) in enumerate(old.points.items())}
    return said(Scene(points, old.segments, old.circles, old.marks[1:]), problem.answer.text())


def test_gymnasium_accepts_it(env):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*render modes.*")
        warnings.filterwarnings("error", category=UserWarning, message=".*(?!render)")
        check_env(env, skip_render_check=True)


def test_an_episode_is_one_answer(env, problems):
    seen, info = env.reset(seed=3, options={"index": 2})
    assert info["id"] == problems[2].id
    assert seen["text"] == f"{problems[2].text} {problems[2].question}"
    assert seen["image"].shape == (128, 128)
    assert np.asarray(env.render()).shape == (128, 128, 3)
    _, reward, over, cut, info = env.step(said(problems[2].scene, problems[2].answer.text()))
    assert (reward, over, cut, info["right"], info["code"]) == (1.0, True, False, True, 1.0)
    with pytest.raises(InputError, match="call reset first"):
        env.step("")
    env.reset(options={"index": 0})
    assert env.step("")[1] == 0


def test_the_same_seed_shows_the_same_problems(problems):
    runs = []
    for _ in range(2):
        env = GeoEnv(problems, size=64)
        runs.append([env.reset(seed=5)[1]["id"], *(env.reset()[1]["id"] for _ in range(5))])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1


@pytest.mark.parametrize(
    ("change", "match"),
    [({"problems": []}, "problems"), ({"problems": ["p"]}, "problems"), ({"size": 3}, "size"),
     ({"weights": (0, 0, 0)}, "weights"), ({"render_mode": "human"}, "render_mode")],
)  # fmt: skip
def test_bad_environments(problems, change, match):
    with pytest.raises(InputError, match=match):
        GeoEnv(**{"problems": problems, **change})


def test_bad_steps(env):
    for index in (4, -1, "a", True):
        with pytest.raises(InputError, match="index"):
            env.reset(options={"index": index})
    env.reset()
    with pytest.raises(TypeError, match="action must be a text"):
        env.step(3)


def test_no_trick_earns_what_honest_work_earns(env, problems):
    """Saying everything, the question again, junk, another's work, many answers, and endless output."""
    for i, problem in enumerate(problems):
        gold = problem.scene
        names = list(gold.points)
        grid = {f"{chr(65 + a)}{b}": (a / 7, b / 7) for a in range(8) for b in range(8)}
        every_segment = tuple((a, b) for k, a in enumerate(names) for b in names[:k])
        every_mark = tuple(
            Mark("right", (a, b, c)) for b in names for k, a in enumerate(names) for c in names[:k] if b not in (a, c)
        )[:64]
        question = f"{problem.text} {problem.question}"
        numbers = [str(given.value) for given in problem.seed.givens] + ["60", "90", "1", "2"]
        tricks = {
            "echo": question,
            "echo in a box": f"\\boxed{{{question}}}",
            "all segments of a grid": said(Scene(grid, tuple(zip(list(grid)[:-1], list(grid)[1:], strict=True))), "1"),
            # these two even see the true points, and have no answer
            "all segments": said(Scene(gold.points, every_segment, gold.circles), "0"),
            "all marks": said(Scene(gold.points, every_segment, gold.circles, every_mark), "0"),
            "another drawing": said(problems[i - 1].scene, "0"),
            "junk": "```python\nimport os\nos.system('true')\n```\n\\boxed{1}",
            "answers in rows": " ".join(f"\\boxed{{{n}}}" for n in range(1, 180)),
            "the right answer among others": f"\\boxed{{{problem.answer.text()}}} or \\boxed{{1}}",
            "endless": "\\boxed{" * 30_000 + "{" * 30_000,
            "endless code": "```json\n" + "[" * 200_000 + "\n```",
            "endless lines": '{"points":\n' * 20_000,
        } | {f"number {n}": f"\\boxed{{{n}}}" for n in numbers}
        earned = {}
        for name, trick in tricks.items():
            env.reset(options={"index": i})
            earned[name] = env.step(trick)[1]
        env.reset(options={"index": i})
        honest_work = env.step(honest(problem))[1]
        assert honest_work > 0.85
        assert max(earned.values()) < 0.5, earned


def test_rewards_for_texts_and_conversations(problems):
    one = problems[0]
    right = f"\\boxed{{{one.answer.text()}}}"
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": right}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": right}]}]
    silent = [{"role": "assistant", "content": None}]
    given = [right, chat, parts, silent, [], ""]
    rewards = reward_func(
        prompts=["?"] * 6,
        completions=given,
        answer=[one.answer.text()] * 6,
        completion_ids=[[1]] * 6,
        trainer_state=None,
    )
    assert rewards == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert reward_func([], [], []) == []
    columns = {"answer": [one.answer.text()], "scene": [one.scene.to_json()]}
    assert reward_func(None, [said(one.scene, one.answer.text())], **columns) == [1.0]


@pytest.mark.parametrize(
    ("completions", "match"),
    [(None, "completions must be"), ("text", "completions must be"), ([None], r"completions\[0\]"),
     ([3], r"completions\[0\]"), ([[{"role": "assistant"}]], r"completions\[0\]"),
     (["1", "2"], "answer must have a row")],
)  # fmt: skip
def test_completions_that_are_none(completions, match):
    with pytest.raises(InputError, match=match):
        reward_func(None, completions, ["1"])
