"""Language models in the loop: behind an endpoint that misbehaves, in this process, and as what a trainer rewards."""

import csv
import json

import numpy as np
import pytest
from chat_server import completion, said, serving
from typer.testing import CliRunner

from assay.errors import EndpointError, InputError
from assay.reasoning.orloop import (
    Action,
    HFAgent,
    LinearModel,
    OpenAIAgent,
    RepairEnv,
    evaluate,
    generate,
    parse_action,
    prompt,
    repair,
    reward_for,
    reward_func,
    rl_rows,
    sft_rows,
    solve,
)
from assay.reasoning.orloop.files import write_instances
from assay.reasoning.orloop.use import app


@pytest.fixture(scope="module")
def instances():
    return generate(4, errors="ABCD", seed=41)


def agent(server, **changes):
    return OpenAIAgent(server.url, "small", **({"max_retries": 1, "timeout": 5} | changes))


def knows(instances):
    """A model behind an endpoint that knows all answers: what it is shown tells it which model it has before it."""

    def answer(handler, body, count):
        shown = said(body)
        one = next(i for i in instances if all(name in shown for name in i.iis_rows))
        handler.json(completion(f"The odd one is clear.\n\n```\n{one.undo[0]}\n```"))

    return answer


def started(one):
    env = RepairEnv(one)
    env.reset()
    return env


def test_an_endpoint_repairs_a_model(instances):
    with serving(knows(instances)) as server:
        scores = evaluate(agent(server), instances)
        done = repair(instances[0].model, agent=agent(server))
        (body, *_) = server.bodies
    assert all(score.op5 and score.exact for score in scores)
    assert done.edits == instances[0].undo
    assert done.objective == pytest.approx(instances[0].optimum)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["temperature"] == 0
    assert "SET_RHS row 40" in body["messages"][0]["content"]
    assert all(name in said(body) for name in instances[0].iis_rows)


def rows_shown(body):
    return [line.split(":")[0] for line in said(body).split("Rows in conflict:\n")[1].splitlines() if ":" in line]


def test_a_server_that_recovers_is_asked_again(instances):
    def answer(handler, body, count):
        if count == 1:
            handler.json({"error": {"message": "slow down"}}, 429, Retry_After="0")
        else:
            handler.json(completion("DROP " + rows_shown(body)[0]))

    with serving(answer) as server:
        assert agent(server).act(started(instances[0])).kind == "DROP"
        assert len(server.bodies) == 2


FAULTS = {
    "429": lambda handler, body, count: handler.json({"error": {"message": "slow down"}}, 429, Retry_After="0"),
    "500": lambda handler, body, count: handler.json({"error": {"message": "broken"}}, 500),
    "401": lambda handler, body, count: handler.json({"error": {"message": "no key"}}, 401),
    "cut": lambda handler, body, count: handler.cut(),
    "no JSON": lambda handler, body, count: handler.raw(b"<html>busy</html>"),
    "half JSON": lambda handler, body, count: handler.raw(b'{"choices": [{"message"'),
    "no choices": lambda handler, body, count: handler.json({"choices": []}),
    "slow": lambda handler, body, count: handler.wait(30),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_endpoint_that_fails_is_named_and_scores_so_far_are_kept(instances, fault):
    good = knows(instances)

    def answer(handler, body, count):
        (good if count <= 2 else FAULTS[fault])(handler, body, count)

    with serving(answer) as server:
        asked = agent(server, max_retries=0, timeout=0.5)
        with pytest.raises(EndpointError) as caught:
            evaluate(asked, instances)
        assert len(caught.value.scores) == 2
        assert all(score.op5 for score in caught.value.scores)
        with pytest.raises(EndpointError) as caught:
            repair(instances[2].model, agent=asked)
    assert caught.value.report.status == "infeasible"
    assert caught.value.report.edits == ()


def test_what_was_repaired_before_the_endpoint_failed_is_kept():
    one = generate(1, errors="E", seed=5)[0]
    first = next(edit for edit in one.undo if edit.target in one.iis_rows or edit.kind == "SET_BOUNDS")

    def answer(handler, body, count):
        (handler.json(completion(str(first))) if count == 1 else handler.cut())

    with serving(answer) as server, pytest.raises(EndpointError) as caught:
        repair(one.model, agent=agent(server, max_retries=0))
    assert caught.value.report.edits == (first,)
    assert caught.value.report.status == "infeasible"


def test_nobody_listens(instances):
    with pytest.raises(EndpointError):
        OpenAIAgent("http://127.0.0.1:9/v1", "none", max_retries=0, timeout=2).act(started(instances[0]))


@pytest.mark.parametrize("text", ["", "I do not know.", "{" * 3000, "DROP nobody_1", "\ud83d\ude00 " * 500, None])
def test_a_model_that_talks_nonsense_costs_itself_only(instances, text):
    with serving(lambda handler, body, count: handler.json(completion(text))) as server:
        scores = evaluate(agent(server), instances[:1], max_steps=3)
    assert (scores[0].rr, scores[0].edits, scores[0].steps) == (False, 0, 3)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"base_url": "localhost:1"}, InputError),
        ({"model": ""}, InputError),
        ({"max_retries": -1}, InputError),
        ({"timeout": 0}, InputError),
        ({"max_retries": 1.5}, TypeError),
    ],
)
def test_bad_arguments_of_an_agent_are_named_at_once(arguments, error):
    with pytest.raises(error):
        OpenAIAgent(**({"base_url": "http://localhost:1/v1", "model": "small"} | arguments))


def test_a_grade_on_the_command_line(tmp_path, instances):
    write_instances(instances, tmp_path / "set")
    good = knows(instances)
    arguments = ["grade", str(tmp_path / "set"), "--model", "small"]
    with serving(good) as server:
        done = CliRunner().invoke(app, [*arguments, "--agent", server.url, "--out", str(tmp_path / "g")])
    assert done.exit_code == 0, done.output
    assert "| op5 | 1.000 |" in done.output
    with (tmp_path / "g" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [one.id for one in instances]
    assert {row["op5"] for row in rows} == {"1.0"}

    def breaks(handler, body, count):
        (good if count <= 3 else FAULTS["401"])(handler, body, count)

    with serving(breaks) as server:
        done = CliRunner().invoke(app, [*arguments, "--agent", server.url, "--out", str(tmp_path / "h")])
    assert isinstance(done.exception, EndpointError)
    known = json.loads((tmp_path / "h" / "grade.json").read_text())
    assert (known["instances"], known["scored"]) == (4, 3)
    assert known["broken_off"]
    assert len((tmp_path / "h" / "scores.csv").read_text().splitlines()) == 4


def test_repair_by_an_endpoint_on_the_command_line(tmp_path, instances):
    path = instances[1].model.write(tmp_path / "m.mps")
    with serving(knows(instances)) as server:
        arguments = ["repair", str(path), "--out", str(tmp_path / "f.mps"), "--agent", server.url, "--model", "small"]
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert solve(LinearModel.read(tmp_path / "f.mps")).objective == pytest.approx(instances[1].optimum)


def test_the_prompt_changes_with_the_state_and_holds_no_answer(instances):
    env = started(instances[3])
    rules, shown = prompt(env)
    assert instances[3].narrative in shown["content"]
    env.step(f"CHECK_SLACK {env.state.rows[0]}")
    assert "left side" in prompt(env)[1]["content"]
    assert prompt(env)[0] == rules
    for one in instances:
        text = prompt(started(one))[1]["content"]
        assert str(one.optimum) not in text
        assert one.error not in text.split("Status")[1].split()  # the kind of the error


# What a trainer calls.


def test_a_column_of_ids_survives_a_table_and_comes_back_as_rewards(instances):
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list(rl_rows(instances))
    score = reward_for(instances)
    assert score.__name__ == "orloop_reward"
    rows = [table[i] for i in range(len(table)) for _ in range(3)]  # each prompt is sampled three times
    by_id = {one.id: one for one in instances}
    texts = []
    for place, row in enumerate(rows):
        one = by_id[row["instance"]]
        texts.append([str(one.undo[0]), f"DROP {one.iis_rows[0]}", "no idea"][place % 3])
    given = {
        "prompts": [row["prompt"] for row in rows],
        "instance": [row["instance"] for row in rows],
        "completion_ids": [[1, 2]] * len(rows),
        "trainer_state": object(),
        "difficulty": ["hard"] * len(rows),
    }
    plain = score(completions=texts, **given)
    chats = score(completions=[[{"role": "assistant", "content": text}] for text in texts], **given)
    assert plain == chats == reward_func(given["prompts"], texts, [by_id[i] for i in given["instance"]])
    for right, dropped, nothing in np.reshape(plain, (-1, 3)):
        assert right == pytest.approx(79.8)  # 0.5 · 100 + 0.3 · 100 − 0.2 for the one step
        assert right >= dropped > nothing
    assert np.mean(np.reshape(plain, (-1, 3))[:, 1]) < 60


def test_histories_and_replies_with_thoughts_and_tools(instances):
    one = instances[0]
    good = str(one.undo[0])
    chats = [
        [{"role": "assistant", "content": f"<think>DROP {one.iis_rows[0]}?</think>\nNo.\n{good}"}],
        [
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "tool", "content": "DROP everything"},
            {"role": "assistant", "content": good},
        ],
        [{"role": "assistant", "content": [{"type": "text", "text": good}]}],
    ]
    assert len(set(reward_func(None, chats, one))) == 1
    looked = reward_func(None, [good, good], [one, one], history=[None, ["GET_IIS"]])
    assert looked[0] - looked[1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    "empty", ["", " \n", [], [{"role": "assistant", "content": None}], [{"role": "user", "content": "DROP x"}]]
)
def test_an_empty_completion_is_a_bad_action(instances, empty):
    (value,) = reward_func(None, [empty], [instances[0]])
    assert value == pytest.approx(0.5 * -50 - 2 * 0.2 - 10)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"completions": None}, "completions"),
        ({"completions": "DROP a"}, "completions"),
        ({"completions": ["a", "b"]}, "instance must have a row"),
        ({"completions": [None]}, r"completions\[0\]"),
        ({"completions": [{"content": "a"}]}, r"completions\[0\]"),
        ({"completions": [[{"role": "assistant"}]]}, r"completions\[0\]"),
        ({"instance": ["unknown"]}, "instance must hold"),
        ({"instance": [None]}, "instance must hold"),
        ({"history": ["GET_IIS"]}, "history must hold"),
        ({"history": [[], []]}, "history must have a row"),
        ({"reward": "gold"}, "reward"),
    ],
)
def test_bad_columns_are_named(instances, arguments, word):
    given = {"prompts": None, "completions": ["SUBMIT"], "instance": [instances[0]]} | arguments
    with pytest.raises(InputError, match=word):
        reward_func(**given)
    with pytest.raises(InputError, match="instances must be"):
        reward_for([])


# A model in this process.


def word_tokenizer(texts):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<end>", "<unk>", "<ask>", "<say>", *words])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>", unk_token="<unk>")
    made.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}<say> {{ m.content }} <end>"
        "{% else %}<ask> {{ m.content }} {% endif %}{% endfor %}{% if add_generation_prompt %}<say>{% endif %}"
    )
    return made


def test_a_small_model_learns_the_rows_and_repairs(instances):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    chosen = instances[:2]
    rows = sft_rows(chosen)
    tokenizer = word_tokenizer([m["content"] for row in rows for m in row["messages"]])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=1024, **size)
        )
    untrained = HFAgent(model, tokenizer, most_tokens=5).act(started(chosen[0]))
    assert isinstance(untrained, str | Action)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    whole = [
        tokenizer.apply_chat_template(row["messages"], return_tensors="pt", return_dict=True)["input_ids"]
        for row in rows
    ]
    for _ in range(25):
        for ids in whole:
            labels = ids.clone()
            labels[0, : int((ids[0] == tokenizer.convert_tokens_to_ids("<say>")).nonzero()[-1]) + 1] = -100
            adam.zero_grad()
            model(input_ids=ids, labels=labels).loss.backward()
            adam.step()
    scores = evaluate(HFAgent(model.eval(), tokenizer, most_tokens=30), chosen, max_steps=3)
    assert all(score.op5 for score in scores)
    tokenizer.chat_template = None
    with pytest.raises(InputError, match="chat template"):
        HFAgent(model, tokenizer)


def test_rows_to_learn_from_end_well(instances):
    rows = sft_rows(instances)
    assert len(rows) == sum(len(one.undo) for one in instances)
    assert all(isinstance(parse_action(row["messages"][-1]["content"]), Action) for row in rows)
    assert [m["role"] for m in rows[0]["messages"]] == ["system", "user", "assistant"]
