import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from csplora_models import bert, class_batches
from peft import LoraConfig, get_peft_model

from assay.errors import InputError
from assay.evidence.study import Budget
from assay.models.csplora import contenders, probe
from assay.models.csplora.contenders import Trained
from assay.models.csplora.study import CLAIMS, METRICS, STUDY, own
from assay.models.csplora.training import evaluate, same_start, train

SMOKE = Budget.SMOKE


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def scores():
    return probe(bert(layers=4), class_batches(3), min_steps=1)


@pytest.fixture
def loaded():
    return STUDY.task("reuters-8").load(1, SMOKE)


def test_smoke_every_arm(loaded):
    given, hidden = loaded
    task = STUDY.task("reuters-8")
    found = {}
    for arm in STUDY.arms:
        found[arm.name] = task.score(arm.run(given, 7, SMOKE), hidden)
        assert np.isfinite(found[arm.name]["loss"])
        assert 0 <= found[arm.name]["accuracy"] <= 100
    method = found["csplora"]
    assert {claim.metric for claim in CLAIMS} <= method.keys()
    assert method.keys() <= {*METRICS, "parameters", "steps"}
    assert method["proportional"]
    assert method["size_gap"] <= 0.02
    assert all(found[name]["parameters"] <= found["uniform"]["parameters"] for name in found if name not in PEERS)
    # Equal plans are the same run; another plan is another.
    again = task.score(STUDY.arm("csplora").run(given, 7, SMOKE), hidden)
    assert again["loss"] == method["loss"]
    if found["gamma-0"]["plan_distance"] == 0:
        assert found["gamma-0"]["loss"] == method["loss"]
    assert found["shuffled"]["loss"] != method["loss"] or found["reversed"]["loss"] != method["loss"]


PEERS = ("adalora", "eva")


def test_a_users_arm(loaded):
    given, hidden = loaded
    model = given.start(3)
    metrics = STUDY.task("reuters-8").score(model, hidden)
    assert metrics.keys() == {"loss", "accuracy"}
    for bad in (None, 3, "model", {"a": 1}):
        with pytest.raises(ValueError, match="must be a model"):
            STUDY.task("reuters-8").score(bad, hidden)
    assert STUDY.task("reuters-8").score(Trained(model, {"steps": 1}), hidden)["steps"] == 1


def test_tasks_depend_on_the_seed_and_keep_their_test_rows_apart(loaded):
    given, hidden = loaded
    again, _ = STUDY.task("reuters-8").load(1, SMOKE)
    other, _ = STUDY.task("reuters-8").load(2, SMOKE)
    assert given.train == again.train != other.train
    assert given.key == again.key != other.key
    trained_on = {tuple(ids) for ids in given.train.ids}
    held = [tuple(row[: int(mask.sum())].tolist()) for b in hidden.batches for row, mask in mask_rows(b)]
    assert not trained_on & set(held)


def mask_rows(batch):
    return zip(batch["input_ids"], batch["attention_mask"], strict=True)


def test_every_arm_has_the_same_batches_and_first_weights(loaded):
    given, _ = loaded
    one, two = given.batches(3, 5), given.batches(3, 5)
    assert all(torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(one, two, strict=True))
    assert torch.equal(given.start(3).classifier.weight, given.start(3).classifier.weight)


def test_larger_ranks_only_add_rows():
    small = get_peft_model(bert(), LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS"))
    large = get_peft_model(bert(), LoraConfig(r=5, target_modules=["query"], task_type="SEQ_CLS"))
    for model in (small, large):
        same_start(model, 3)
    a, b = (m.get_base_model().bert.encoder.layer[1].attention.self.query.lora_A.default.weight for m in (small, large))
    assert torch.equal(a, b[:2])
    assert float(b.abs().max()) <= 1 / 4  # uniform to 1/√16
    first = small.get_base_model().bert.encoder.layer[0].attention.self.query.lora_A.default.weight
    assert not torch.equal(a, first)
    same_start(small, 4)
    assert not torch.equal(a[0], b[0])


def test_training_lowers_the_loss_and_evaluation_counts_all_rows():
    model = get_peft_model(
        bert(), LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"], task_type="SEQ_CLS")
    )
    batch = class_batches(1, size=12)[0]
    first = evaluate(model, [batch])
    train(model, [batch] * 60, 5e-2)
    assert evaluate(model, [batch])["loss"] < 0.8 * first["loss"]
    split = [{key: value[i : i + 5] for key, value in batch.items()} for i in (0, 5, 10)]
    whole, parts = evaluate(model, [batch]), evaluate(model, split)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_shuffled_keeps_the_multiset_and_the_size(scores):
    plan = scores.plan(4, budget="params")
    other = contenders.shuffled(plan, 0)
    assert sorted(other.ranks.values()) == sorted(plan.ranks.values())
    assert other.trainable_parameters == plan.trainable_parameters
    assert list(other.ranks) == list(plan.ranks)
    assert contenders.distance(plan, other) > 0
    assert contenders.shuffled(plan, 0) == other != contenders.shuffled(plan, 1)


def test_reversed_and_uniform(scores):
    plan, turned = scores.plan(4, budget="params"), contenders.reversed_plan(scores, 4)
    ranks, other = (list(p.ranks.values()) for p in (plan, turned))
    assert np.corrcoef(ranks, [turned.ranks[name] for name in plan.ranks])[0, 1] < -0.5
    assert sum(other) > 0
    flat = contenders.uniform(bert(layers=4), 4)
    assert set(flat.ranks.values()) == {4}
    assert flat.shapes == plan.shapes
    assert contenders.size_gap(flat) == 0
    assert contenders.size_gap(plan) == pytest.approx(1 - plan.trainable_parameters / plan.uniform_parameters)


def test_proportional_can_fail(scores, monkeypatch):
    assert contenders.proportional(scores, (4, 8))
    turned = contenders.reversed_plan(scores, 8)
    monkeypatch.setattr(type(scores), "plan", lambda self, rank: SimpleNamespace(**_parts(self, turned)))
    assert not contenders.proportional(scores, (8,))


def _parts(scores, turned):
    """The scores of one plan with the ranks of another."""
    return {
        "ranks": turned.ranks, "scores": scores.relative(), "shapes": scores.shapes, "settings": turned.settings,
        "total_rank": turned.total_rank,
    }  # fmt: skip


def test_own_rows_and_models(tmp_path):
    rows = tmp_path / "mine.jsonl"
    rows.write_text("\n".join(json.dumps({"text": f"a {w} film {i}", "label": w}) for i in range(40) for w in "xy"))
    study = own({"data": rows})
    assert [task.name for task in study.tasks] == ["mine"]
    assert study.claims == STUDY.claims
    rows.write_text("\n".join(json.dumps({"text": f"a {i}", "label": i % 2}) for i in range(20)))
    with pytest.raises(InputError, match="needs at least 60"):
        own({"data": rows})
    rows.write_text("\n".join(json.dumps({"text": f"a {i}", "label": i / 7}) for i in range(80)))
    with pytest.raises(InputError, match="numbers with fractions"):
        own({"data": rows})
    with pytest.raises(InputError, match="no folder"):
        own({"model": tmp_path / "nowhere"})


def test_the_user_s_model_on_the_user_s_rows(tmp_path):
    from test_csplora_use import WORDS
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(
        tmp_path / "m"
    )
    bert(labels=4).save_pretrained(tmp_path / "m")
    rows = [{"text": f"it was a {word} film", "label": word} for word in ("good", "bad") for _ in range(40)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    study = own({"data": tmp_path / "mine.jsonl", "model": tmp_path / "m"})
    given, hidden = study.tasks[0].load(0, SMOKE)
    assert given.labels == 2
    for name in ("csplora", "uniform"):
        assert np.isfinite(study.tasks[0].score(study.arm(name).run(given, 1, SMOKE), hidden)["loss"])
