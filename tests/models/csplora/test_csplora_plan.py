import dataclasses
import json
import math
import re
import warnings

import pandas as pd
import pytest
import torch
from csplora_models import bert, class_batches, gpt2, token_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model, inject_adapter_in_model
from torch import nn

from assay.errors import InputError
from assay.models.csplora import ModuleScores, RankPlan, RankPlanError, probe
from assay.models.csplora.targets import families


def made(scores, shapes=None):
    shapes = shapes or dict.fromkeys(scores, (64, 64))
    return ModuleScores(scores=scores, shapes=shapes, families=families(shapes), steps=1, converged=True)


def skewed():
    """Scores of a real model that differ widely, so that ranks do."""
    model = bert()
    found = probe(model, class_batches(1), min_steps=1)
    return dataclasses.replace(found, scores={name: 3.0 ** (i // 6 + i % 2) for i, name in enumerate(found.scores)})


def test_calibration_and_smoothing_by_hand():
    scores = made({"layer.0.q": 2.0, "layer.1.q": 6.0, "layer.0.k": 10.0, "layer.1.k": 30.0})
    assert scores.relative(smooth=False) == pytest.approx(
        {"layer.0.q": 0.5, "layer.1.q": 1.5, "layer.0.k": 0.5, "layer.1.k": 1.5}
    )
    assert scores.relative()["layer.1.q"] == pytest.approx(math.log(2.5))
    assert scores.relative(calibrate=False)["layer.1.k"] == pytest.approx(math.log(31))
    assert scores.relative(False, False) == dict(scores.scores)
    dead = made({"layer.0.q": 0.0, "layer.1.q": 0.0, "layer.0.k": 1.0})
    assert dead.relative()["layer.0.q"] == 0.0


def test_a_plan_by_hand():
    scores = made({"a.0.q": 1.0, "a.1.q": 3.0})  # calibrated 0.5 and 1.5; log 0.405 and 0.916
    plan = scores.plan(8)
    # 12 above the least: 2 + floor(12 · 0.3067) = 5, 2 + floor(12 · 0.6933) = 10, and the last to the second.
    assert plan.ranks == {"a.0.q": 5, "a.1.q": 11}
    assert (plan.total_rank, plan.rank, plan.trainable_parameters) == (16, 8, 16 * 128)
    assert scores.plan(total_rank=16).ranks == plan.ranks
    assert scores.plan(8, smooth=False).ranks == {"a.0.q": 5, "a.1.q": 11}
    assert scores.plan(8, r_max_factor=1.25).ranks == {"a.0.q": 6, "a.1.q": 10}
    assert scores.plan(8, r_min=7).ranks == {"a.0.q": 7, "a.1.q": 9}
    assert scores.plan().ranks == plan.ranks
    assert scores.plan(2).ranks == {"a.0.q": 1, "a.1.q": 3}  # the least is 1 below rank 4


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8), st.sampled_from([2, 4, 8, 16]))
@settings(max_examples=60, deadline=None)
def test_params_budget_is_close_from_below(values, rank):
    shapes = {f"l.{i}.m": ((32, 32), (128, 32), (32, 128))[i % 3] for i in range(len(values))}
    plan = made(dict(zip(shapes, values, strict=True)), shapes).plan(rank, budget="params")
    assert plan.trainable_parameters <= plan.uniform_parameters
    assert plan.uniform_parameters - plan.trainable_parameters < 160 or set(plan.ranks.values()) == {min(4 * rank, 32)}


def test_no_rank_above_the_matrix():
    scores = made({"a.0.m": 1.0, "b.0.n": 1.0}, {"a.0.m": (3, 64), "b.0.n": (64, 64)})
    assert scores.plan(8).ranks == {"a.0.m": 3, "b.0.n": 13}
    assert scores.plan(8, budget="params").ranks["a.0.m"] == 3
    with pytest.raises(ValueError, match=r"too large: .* is 35"):
        made({"a.0.m": 1.0, "b.0.n": 1.0}, {"a.0.m": (3, 64), "b.0.n": (32, 64)}).plan(32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 4, "total_rank": 8}, "rank or total_rank"),
        ({"total_rank": 1}, r"1 is too small: 2 modules with at least 1 each need 2"),
        ({"total_rank": 7, "r_min": 4}, r"7 is too small: 2 modules with at least 4 each need 8"),
        ({"rank": 65}, "too large"),
        ({"budget": "flops"}, "budget"),
        ({"budget": "params", "total_rank": 8}, "give rank"),
        ({"rank": 0}, "rank must be"),
        ({"rank": 2.5}, "rank must be"),
        ({"rank": True}, "rank must be"),
        ({"r_min": 0}, "r_min must be"),
        ({"r_max_factor": 0.5}, "r_max_factor"),
        ({"rho": 0.0}, "rho"),
        ({"rank": 4, "r_min": 5, "budget": "params"}, "too small|too few"),
    ],
)
def test_bad_budgets(arguments, message):
    with pytest.raises(ValueError, match=message):
        made({"a.0.q": 1.0, "a.1.q": 3.0}).plan(**arguments)


@pytest.mark.parametrize(
    "change", [{"scores": {}}, {"scores": {"a.0.q": -1.0}}, {"scores": {"a.0.q": math.nan}}, {"scores": {"b": 1.0}}]
)
def test_bad_scores(change):
    with pytest.raises(ValueError, match=r"score|empty|same modules"):
        dataclasses.replace(made({"a.0.q": 1.0}), **change)


def test_one_alpha_over_rank_or_one_alpha():
    plan = skewed().plan(4)
    for model, config, same in (
        (bert(), plan.to_lora_config(task_type="SEQ_CLS"), 2.0),
        (bert(), plan.to_lora_config(alpha=12, task_type="SEQ_CLS"), 3.0),
        (bert(), plan.to_lora_config(task_type="SEQ_CLS", use_rslora=True), 8 / math.sqrt(4)),
        (bert(), plan.to_lora_config(task_type="SEQ_CLS", use_dora=True), 2.0),
    ):
        peft_model = get_peft_model(model, config)
        plan.verify(peft_model)
        assert [m.scaling["default"] for m in layers(peft_model).values()] == [pytest.approx(same)] * 12
    source = get_peft_model(bert(), plan.to_lora_config(scaling="source", task_type="SEQ_CLS"))
    found = {name: layer.scaling["default"] for name, layer in layers(source).items()}
    assert found == {name: pytest.approx(8 / rank) for name, rank in plan.ranks.items()}


def layers(peft_model):
    base = peft_model.get_base_model()
    return {n: m for n, m in base.named_modules() if hasattr(m, "lora_A")}


def test_pissa_and_transposed_layers_obey_too():
    plan = skewed().plan(4)
    model = get_peft_model(bert(), plan.to_lora_config(init_lora_weights="pissa", task_type="SEQ_CLS"))
    plan.verify(model)
    batch = {key: value for key, value in class_batches(1)[0].items() if key != "labels"}
    with torch.no_grad():  # PiSSA takes its part from the base weights, so that nothing changes at first
        torch.testing.assert_close(model.eval()(**batch).logits, bert().eval()(**batch).logits, atol=1e-4, rtol=1e-4)
    found = probe(gpt2(), token_batches(1), min_steps=1)
    plan = found.plan(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT tells that it sets fan_in_fan_out
        plan.verify(get_peft_model(gpt2(), plan.to_lora_config(task_type="CAUSAL_LM")))
    assert plan.trainable_parameters == adapter_parameters(get_peft_model(gpt2(), plan.to_lora_config()))


def adapter_parameters(model):
    return sum(p.numel() for n, p in model.named_parameters() if "lora_" in n)


def test_parameters_are_those_of_peft():
    scores = skewed()
    for plan in (scores.plan(4), scores.plan(4, budget="params")):
        assert adapter_parameters(get_peft_model(bert(), plan.to_lora_config(task_type="SEQ_CLS"))) == (
            plan.trainable_parameters
        )
    names = list(scores.shapes)
    flat = get_peft_model(bert(), LoraConfig(r=4, target_modules=names, task_type="SEQ_CLS"))
    assert adapter_parameters(flat) == scores.plan(4).uniform_parameters


class Awkward(nn.Module):
    """Names that end alike, and layer 1 beside layer 11: keys must fit their own module only."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.block = nn.ModuleDict({"fc": nn.Linear(8, 8), "x1fc": nn.Linear(8, 8)})
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(12)])

    def forward(self, x, labels=None):
        for layer in [self.fc, *self.block.values(), *self.layers]:
            x = layer(x)
        return x


def test_keys_fit_their_own_module_only():
    torch.manual_seed(0)
    model = Awkward()
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    plan = made({name: 1.0 + i for i, name in enumerate(names)}, dict.fromkeys(names, (8, 8))).plan(4, calibrate=False)
    assert len(set(plan.ranks.values())) > 3
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a key that fits nothing
        peft_model = get_peft_model(model, plan.to_lora_config())
    plan.verify(peft_model)


def test_a_dot_in_a_key_is_a_dot():
    class Alike(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.ModuleDict({"b": nn.Linear(8, 8)})
            self.a_b = nn.Linear(8, 8)

        def forward(self, x, labels=None):
            return self.a_b(self.a["b"](x))

    names = ["a.b", "a_b"]  # as a pattern the first fits the second
    plan = made({"a.b": 1.0, "a_b": 9.0}, dict.fromkeys(names, (8, 8))).plan(4, calibrate=False)
    assert plan.ranks["a.b"] < plan.rank < plan.ranks["a_b"]
    plan.verify(get_peft_model(Alike(), plan.to_lora_config()))


def test_it_survives_saving_the_adapter(tmp_path):
    plan = skewed().plan(4)
    get_peft_model(bert(), plan.to_lora_config(task_type="SEQ_CLS")).save_pretrained(tmp_path)
    plan.verify(PeftModel.from_pretrained(bert(), tmp_path))
    plan.verify(inject_adapter_in_model(LoraConfig.from_pretrained(tmp_path), bert()))


def test_verify_says_what_did_not_obey():
    plan = skewed().plan(4)
    config = plan.to_lora_config(task_type="SEQ_CLS")
    one = next(iter(config.rank_pattern))
    config.rank_pattern.pop(one)
    name = re.sub(r"[\\^]", "", one)
    assert plan.ranks[name] != 4
    with pytest.raises(RankPlanError, match=rf"1 modules do not follow the plan: {name} has rank 4, planned"):
        plan.verify(get_peft_model(bert(), config))
    flat = LoraConfig(r=4, target_modules=["query", "pooler.dense"], task_type="SEQ_CLS")
    with pytest.raises(RankPlanError, match="no adapter"):
        plan.verify(get_peft_model(bert(), flat))
    only = dataclasses.replace(
        plan, **{f: {n: v for n, v in getattr(plan, f).items() if n.endswith("query")} for f in FIELDS}
    )
    extra = only.to_lora_config(task_type="SEQ_CLS")
    extra.target_modules = {*extra.target_modules, "bert.pooler.dense"}
    with pytest.raises(RankPlanError, match=r"bert.pooler.dense has rank 4, planned none"):
        only.verify(get_peft_model(bert(), extra))
    with pytest.raises(RankPlanError, match="planned"):
        plan.verify(bert())
    assert issubclass(RankPlanError, ValueError)


FIELDS = ("ranks", "shapes", "families", "scores")


def test_verify_looks_at_the_adapter_that_is_meant():
    plan, other = skewed().plan(4), skewed().plan(2)
    model = get_peft_model(bert(), plan.to_lora_config(task_type="SEQ_CLS"))
    model.add_adapter("second", other.to_lora_config(task_type="SEQ_CLS"))
    plan.verify(model)
    other.verify(model, "second")
    with pytest.raises(RankPlanError):
        other.verify(model)
    model.set_adapter("second")
    other.verify(model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"r": 8}, "r is set by the plan"),
        ({"lora_alpha": 8}, "give alpha"),
        ({"rank_pattern": {}}, "rank_pattern"),
        ({"target_modules": ["q"]}, "target_modules"),
        ({"exclude_modules": ["q"]}, "exclude_modules"),
        ({"layers_to_transform": [0]}, "layers_to_transform"),
        ({"layer_replication": [(0, 1)]}, "layer_replication"),
        ({"scaling": "linear"}, "scaling"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": math.inf}, "alpha"),
    ],
)
def test_options_that_would_fight_the_plan(options, message):
    with pytest.raises(ValueError, match=message):
        made({"a.0.q": 1.0}).plan(4).to_lora_config(**options)


def test_compare_and_table():
    scores = made({"a.0.q": 1.0, "a.1.q": 3.0})
    table = scores.plan(8).compare(scores.plan(8, r_min=7))
    expected = pd.DataFrame(
        {"family": ["q", "q"], "rank": [5, 11], "other": [7, 9], "difference": [-2, 2]},
        index=pd.Index(["a.0.q", "a.1.q"], name="module"),
    )
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    shown = str(scores.plan(8))
    assert shown.startswith("2 matrices, ranks 5 to 11, 16 together; 2,048 parameters, +0.0 % of LoRA with rank 8")
    assert shown.index("a.1.q") < shown.index("a.0.q")
    with pytest.raises(ValueError, match=r"different modules: 2 are in one only, such as 'a\.1\.q'"):
        scores.plan(8).compare(made({"a.0.q": 1.0, "b": 1.0}).plan(8))


def test_files_come_back(tmp_path):
    scores = probe(bert(), class_batches(2), min_steps=1)
    scores.save(tmp_path / "scores.json")
    assert ModuleScores.load(tmp_path / "scores.json") == scores
    plan = scores.plan(4, budget="params")
    plan.save(tmp_path / "plan.json")
    back = RankPlan.load(tmp_path / "plan.json")
    assert back == plan
    assert list(back.ranks) == list(plan.ranks)
    text = json.loads((tmp_path / "plan.json").read_text())
    ranks = [module["rank"] for module in text["modules"].values()]
    assert ranks == sorted(ranks, reverse=True)  # the largest first, for people
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "scores.json"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kind": "csplora plan"}', '{"kind": "csplora scores"}', "\xff"])
@pytest.mark.parametrize("kind", [RankPlan, ModuleScores])
def test_other_files_are_refused(tmp_path, content, kind):
    (tmp_path / "x.json").write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=r"x\.json"):
        kind.load(tmp_path / "x.json")


@pytest.mark.parametrize("change", [{"rank": 0}, {"rank": 10**6}, {"shape": [4]}, {"family": None, "rank": "x"}])
def test_a_spoilt_plan_is_refused(tmp_path, change):
    made({"a.0.q": 1.0, "a.1.q": 3.0}).plan(8).save(tmp_path / "x.json")
    content = json.loads((tmp_path / "x.json").read_text())
    content["modules"]["a.0.q"] |= change
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="holds no plan"):
        RankPlan.load(tmp_path / "x.json")


def test_one_probe_many_budgets():
    scores = made({f"l.{i}.q": 1.0 + i for i in range(9)})
    for rank in (3, 4, 8, 16, 32):
        plan = scores.plan(rank)
        excess, whole = plan.total_rank - plan.settings["r_min"] * 9, sum(plan.scores.values())
        for name, got in plan.ranks.items():
            assert abs(got - plan.settings["r_min"] - excess * plan.scores[name] / whole) <= 1
