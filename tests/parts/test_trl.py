import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.parts.trl import completion_text, prompt_text, trl_reward


def user(text):
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def assistant(text):
    return [{"role": "assistant", "content": text}]


def as_trainer_calls_it(reward, inputs, completions):
    """What GRPOTrainer does with a reward function: a list for each column, and things of its own that are no lists."""
    columns = {key: [row[key] for row in inputs] for key in inputs[0] if key not in ("prompt", "completion")}
    return reward(
        prompts=[row["prompt"] for row in inputs],
        completions=completions,
        completion_ids=[[1, 2]] * len(inputs),
        trainer_state=object(),
        log_extra=print,
        **columns,
    )


def exact(prompt, completion, answer):
    """Whether the answer is right."""
    return float(completion == answer)


def test_a_scorer_gets_its_columns_row_by_row_and_no_others():
    inputs = [{"prompt": "1+1?", "answer": "2", "level": 1}, {"prompt": "1+2?", "answer": "3", "level": 2}]
    assert as_trainer_calls_it(trl_reward(exact), inputs, ["2", "2"]) == [1.0, 0.0]


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=5))
def test_texts_and_conversations_give_the_same(rows):
    seen = []
    reward = trl_reward(lambda prompt, completion: seen.append((prompt, completion)) or len(prompt) - len(completion))
    plain = reward([p for p, _ in rows], [c for _, c in rows])
    assert plain == [len(p) - len(c) for p, c in rows]
    assert reward([user(p) for p, _ in rows], [assistant(c) for _, c in rows]) == plain
    assert seen == rows * 2


def test_a_scorer_that_takes_all_gets_all():
    rows = []
    reward = trl_reward(lambda prompt, completion, **columns: rows.append(columns) or 0.0)
    state = object()
    reward(["a", "b"], ["c", "d"], answer=["x", "y"], pair=[[1, 2], [3, 4]], trainer_state=state, weights=None)
    assert rows == [
        {"answer": "x", "pair": [1, 2], "trainer_state": state, "weights": None},
        {"answer": "y", "pair": [3, 4], "trainer_state": state, "weights": None},
    ]


def test_a_scorer_with_defaults_does_without_the_column():
    reward = trl_reward(lambda prompt, completion, *, bonus=0.5: bonus)
    assert reward(["a"], ["b"]) == [0.5]
    assert reward(["a"], ["b"], bonus=[2]) == [2.0]


def test_a_scorer_may_have_the_messages_themselves():
    reward = trl_reward(lambda prompt, completion: len(prompt) + len(completion), messages=True)
    assert reward([user("a")], [assistant("b")]) == [3.0]


@pytest.mark.parametrize(
    ("score", "reward"),
    [
        (1, 1.0),
        (True, 1.0),
        (0.25, 0.25),
        (None, None),
        (np.float32(0.5), 0.5),
        (torch.tensor(2.0), 2.0),
        (np.int64(3), 3.0),
    ],
)
def test_numbers_of_all_kinds_become_floats_and_none_stays(score, reward):
    (got,) = trl_reward(lambda prompt, completion: score)(["a"], ["b"])
    assert got == reward
    assert got is None or type(got) is float


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "1", [1.0, 2.0], {}, torch.ones(2), object()])
def test_what_is_no_finite_number_is_an_error_that_names_the_row(score):
    reward = trl_reward(lambda prompt, completion: 1.0 if prompt == "a" else score, name="mine", on_error="none")
    with pytest.raises(InputError, match=r"mine .*finite number.*row 1"):
        reward(["a", "b"], ["c", "d"])


def test_what_a_scorer_raises_names_the_row_or_becomes_none():
    def scorer(prompt, completion):
        return 1 / len(completion)

    with pytest.raises(ZeroDivisionError) as caught:
        trl_reward(scorer)(["a", "b"], ["c", ""])
    assert caught.value.__notes__ == ["scorer was scoring the row 1 of 2"]
    with pytest.warns(RuntimeWarning, match="scorer could not score a row.*ZeroDivisionError"):
        assert trl_reward(scorer, on_error="none")(["a", "b"], ["c", ""]) == [1.0, None]


def test_the_name_is_what_the_trainer_logs():
    assert trl_reward(exact).__name__ == "exact"
    assert trl_reward(exact).__doc__ == "Whether the answer is right."
    assert trl_reward(exact, name="mine").__name__ == "mine"

    class Scorer:
        def __call__(self, prompt, completion, answer):
            return float(answer)

    assert trl_reward(Scorer()).__name__ == "Scorer"
    assert trl_reward(Scorer())(["a"], ["b"], answer=[3]) == [3.0]
    assert trl_reward(functools.partial(exact, answer="b"))(["a"], ["b"]) == [1.0]


def test_texts_in_conversations():
    call = {"role": "assistant", "content": None, "tool_calls": [{}]}
    talk = [call, {"role": "tool", "content": "2"}, {"role": "assistant", "content": "It is 2."}]
    assert completion_text(talk) == "It is 2."
    assert completion_text(talk[:2]) == ""
    assert completion_text([]) == ""
    assert completion_text([{"content": "no role"}]) == "no role"
    assert prompt_text([*user("first"), *assistant("and?"), {"role": "user", "content": "last"}]) == "last"
    picture = [
        {"type": "image", "image": object()},
        {"type": "text", "text": "What "},
        {"type": "text", "text": "is it?"},
    ]
    assert prompt_text([{"role": "user", "content": picture}]) == "What is it?"
    assert prompt_text([{"role": "system", "content": "x"}]) == ""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"prompts": ["a"], "completions": ["b", "c"], "answer": ["x", "y"]}, "prompts must have a row"),
        ({"prompts": ["a"], "completions": ["b"], "answer": ["x", "y"]}, "answer must have a row .*2 rows"),
        ({"prompts": ["a"], "completions": ["b"]}, "needs the column answer"),
        ({"prompts": ["a"], "completions": ["b"], "Answer": ["x"]}, "needs the column answer.*Answer"),
        ({"prompts": ["a"], "answer": ["x"]}, "needs completions"),
        ({"prompts": ["a"], "completions": "b", "answer": ["x"]}, "needs completions"),
        ({"prompts": "a", "completions": ["b"], "answer": ["x"]}, "prompts must"),
        ({"prompts": [3], "completions": ["b"], "answer": ["x"]}, r"prompts\[0\] must be a text.*int"),
        ({"prompts": ["a"], "completions": [{"content": "b"}], "answer": ["x"]}, r"completions\[0\] must be .*dict"),
        ({"prompts": ["a"], "completions": [["b"]], "answer": ["x"]}, r"completions\[0\] must hold messages"),
        ({"prompts": ["a"], "completions": [[{"role": "assistant"}]], "answer": ["x"]}, r"completions\[0\] must hold"),
        ({"prompts": ["a"], "completions": [assistant(3)], "answer": ["x"]}, r"completions\[0\] must have a text.*int"),
    ],
)  # fmt: skip
def test_wrong_calls_name_what_is_wrong(call, said):
    with pytest.raises(InputError, match=f"exact.*{said}"):
        trl_reward(exact)(**call)


def test_prompts_may_be_absent():
    assert trl_reward(exact)(completions=["2"], answer=["2"]) == [1.0]


def test_what_is_no_scorer_is_refused():
    with pytest.raises(TypeError, match="scorer"):
        trl_reward(3)
    with pytest.raises(TypeError, match="prompt and a completion"):
        trl_reward(lambda prompt: 0.0)
    with pytest.raises(ValueError, match="on_error"):
        trl_reward(exact, on_error="zero")
