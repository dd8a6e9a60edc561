import math

import pytest
import torch
from csplora_models import Line, bert, class_batches, gpt2, llama, state, t5, token_batches
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AlbertConfig, AlbertForSequenceClassification

from assay.models.csplora import probe

QUICK = {"min_steps": 1}


def half_square(outputs, batch):
    return 0.5 * ((outputs - batch["labels"]) ** 2).sum(dim=1), None


def test_a_linear_model_by_hand():
    weight, x, y = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[3.0, 1.0, -4.0]]), torch.tensor([[2.0]])
    batch = {"x": x, "labels": y}
    scores = probe(Line(weight), [batch], loss_fn=half_square, **QUICK)
    error = abs(float(weight @ x.T - y))
    assert scores.scores == {"layer": pytest.approx(float((weight * x).abs().sum()) * error)}
    assert scores.shapes == {"layer": (1, 3)}
    assert scores.steps == 1


def reference(model, batches, weigh):
    """The scores by autograd, straight from the definition."""
    model.eval()
    targets = {n: m.weight for n, m in model.named_modules() if isinstance(m, nn.Linear) and "encoder" in n}
    sums = dict.fromkeys(targets, 0.0)
    for batch in batches:
        logits = model(**{k: v for k, v in batch.items() if k != "labels"}).logits
        loss = nn.functional.cross_entropy(logits, batch["labels"], reduction="none")
        d = 1 - torch.exp(-loss.detach())
        gradients = torch.autograd.grad((weigh(d) * loss).sum(), list(targets.values()))
        for name, gradient in zip(targets, gradients, strict=True):
            sums[name] += float((targets[name] * gradient).detach().abs().sum()) / len(batches)
    return sums


@pytest.mark.parametrize(
    ("how", "weigh"),
    [
        ({"gamma": 3.0}, lambda d: torch.softmax(3 * d, 0)),
        ({"weighting": "uniform"}, lambda d: torch.full_like(d, 1 / len(d))),
        ({"weighting": "adaptive"}, lambda d: torch.softmax((d - d.mean()) / d.std(correction=0).clamp(min=0.1), 0)),
    ],
)
def test_scores_are_the_definition(how, weigh):
    model, batches = bert(), class_batches(3)
    expected = reference(bert(), batches, weigh)
    assert probe(model, batches, **QUICK, **how).scores == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("make", [bert, llama, gpt2, t5])
def test_every_kind_of_model_is_scored_and_left_as_it_was(make):
    model = make()
    batches = class_batches(2) if make is bert else token_batches(2)
    model.train()
    list(model.modules())[3].eval()  # a mixed state must come back as well
    for i, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(i % 3 == 0)
        if i % 2 == 0:
            parameter.grad = torch.full_like(parameter, 0.5)
    before = state(model)
    scores = probe(model, batches, **QUICK)
    assert state(model) == before
    assert all(value > 0 for value in scores.scores.values())
    names = dict(model.named_modules())
    for name, (out, width) in scores.shapes.items():
        transposed = type(names[name]).__name__ == "Conv1D"
        assert tuple(names[name].weight.shape) == ((width, out) if transposed else (out, width))
    heads = ("lm_head", "classifier", "pooler")
    assert not [name for name in scores.scores if any(head in name for head in heads)]


def test_the_model_is_left_as_it_was_after_an_error_too():
    model = bert().train()
    before = state(model)
    batches = class_batches(2)
    batches[1].pop("labels")
    with pytest.raises(ValueError, match="batch 1 has no tensor 'labels'"):
        probe(model, batches, **QUICK)
    assert state(model) == before

    def interrupted():
        yield class_batches(1)[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probe(model, interrupted(), **QUICK)
    assert state(model) == before


def test_gradient_checkpointing_stays_on():
    model = llama()
    plain = probe(model, token_batches(2), **QUICK).scores
    model.gradient_checkpointing_enable()
    before = state(model)
    assert probe(model, token_batches(2), **QUICK).scores == pytest.approx(plain, rel=1e-5)
    assert state(model) == before


def test_gamma_0_is_uniform_and_the_order_of_samples_does_not_matter():
    batches = class_batches(3)
    flat = probe(bert(), batches, gamma=0.0, **QUICK).scores
    assert flat == pytest.approx(probe(bert(), batches, weighting="uniform", **QUICK).scores, rel=1e-6)
    mixed = [{key: value[torch.tensor([4, 2, 0, 1, 5, 3])] for key, value in batch.items()} for batch in batches]
    here, there = probe(bert(), batches, **QUICK).scores, probe(bert(), mixed, **QUICK).scores
    assert here == pytest.approx(there, rel=1e-5)


def test_a_steep_gamma_looks_at_the_hardest_sample():
    batch = class_batches(1)[0]
    model = bert().eval()
    nn.init.normal_(model.classifier.weight, std=3.0)  # so that confidences differ
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    hardest = logits.softmax(1)[torch.arange(6), batch["labels"]].argmin()
    alone = {key: value[hardest : hardest + 1] for key, value in batch.items()}
    steep, single = probe(model, [batch], gamma=1e6, **QUICK).scores, probe(model, [alone], **QUICK).scores
    assert steep == pytest.approx(single, rel=1e-3)
    assert steep != pytest.approx(probe(model, [batch], gamma=0.0, **QUICK).scores, rel=1e-2)


def test_ten_times_the_loss_leaves_the_plan():
    def loss(factor):
        def compute(outputs, batch):
            nll = nn.functional.cross_entropy(outputs.logits, batch["labels"], reduction="none")
            return factor * nll, torch.exp(-nll.detach())

        return compute

    one, ten = (probe(bert(), class_batches(3), loss_fn=loss(factor), **QUICK) for factor in (1, 10))
    assert ten.scores == pytest.approx({name: 10 * score for name, score in one.scores.items()}, rel=1e-4)
    assert ten.plan(4).ranks == one.plan(4).ranks
    built_in = probe(bert(), class_batches(3), **QUICK)
    assert one.scores == pytest.approx(built_in.scores, rel=1e-5)
    assert (built_in.settings["loss"], one.settings["loss"]) == ("built in", "own")


@pytest.mark.parametrize("size", [1, 5, 100])
def test_groups_change_nothing_but_memory(size):
    whole = probe(bert(), class_batches(2), **QUICK).scores
    assert probe(bert(), iter(class_batches(2)), group_size=size, **QUICK).scores == pytest.approx(whole, rel=1e-5)


def test_no_two_gradients_of_targets_are_held_after_each_other():
    """A gradient is dropped when its score is taken: at the end of backward none is left, and few lived together."""
    model, most = bert(layers=6), 0
    weights = [m.weight for n, m in model.named_modules() if isinstance(m, nn.Linear) and "encoder" in n]

    class Watched(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal most
            most = max(most, sum(weight.grad is not None for weight in weights))
            return function(*args, **(kwargs or {}))

    with Watched():
        probe(model, class_batches(1), **QUICK)
    assert 1 <= most <= 2


def test_groups_need_gradients_of_their_own_weights_only():
    seen = []
    model = bert()
    weights = {n: m.weight for n, m in model.named_modules() if isinstance(m, nn.Linear) and "encoder" in n}
    model.bert.embeddings.register_forward_hook(
        lambda *_: seen.append({name for name, weight in weights.items() if weight.requires_grad})
    )
    probe(model, class_batches(1), group_size=5, **QUICK)
    assert [len(group) for group in seen] == [5, 5, 2]
    assert set.union(*seen) == set(weights)


def test_half_precision_keeps_small_gradients():
    exact = probe(llama(), token_batches(2), **QUICK).scores
    for dtype, tolerance in ((torch.bfloat16, 0.1), (torch.float16, 0.05)):
        rough = probe(llama().to(dtype), token_batches(2), **QUICK).scores
        assert rough == pytest.approx(exact, rel=tolerance)

    def tiny(outputs, batch):  # gradients far below what fp16 holds
        nll = nn.functional.cross_entropy(outputs.logits[:, -1].float(), batch["labels"][:, -1], reduction="none")
        return 1e-4 * nll, None

    small, exact = (probe(m, token_batches(2), loss_fn=tiny, **QUICK).scores for m in (llama().half(), llama()))
    assert small == pytest.approx(exact, rel=0.1)


def test_what_is_not_finite_is_skipped_and_counted():
    def loss(outputs, batch):
        nll = nn.functional.cross_entropy(outputs.logits, batch["labels"], reduction="none")
        return nll * (math.nan if batch["labels"][0] == 0 else 1.0), None

    good, bad = class_batches(2)
    good["labels"][0], bad["labels"][0] = 1, 0
    scores = probe(bert(), [good, bad], loss_fn=loss, **QUICK)
    assert scores.weight_stats["skipped"] == len(scores.scores)
    assert scores.scores == pytest.approx(probe(bert(), [good], loss_fn=loss, **QUICK).scores)
    with pytest.raises(ValueError, match="never had a finite gradient"):
        probe(bert(), [bad], loss_fn=loss, **QUICK)


def test_a_weight_that_two_layers_share_is_scored_once():
    config = AlbertConfig(
        vocab_size=60, embedding_size=8, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=32, num_labels=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AlbertForSequenceClassification(config)
    scores = probe(model, class_batches(1), target_modules=["query"], **QUICK)
    batch = class_batches(1)[0]
    loss = nn.functional.cross_entropy(model.eval()(input_ids=batch["input_ids"]).logits, batch["labels"])
    weight = model.albert.encoder.albert_layer_groups[0].albert_layers[0].attention.query.weight
    (gradient,) = torch.autograd.grad(loss, [weight])
    assert list(scores.scores.values()) == [pytest.approx(float((weight * gradient).detach().abs().sum()), rel=0.05)]


def test_it_ends_when_the_scores_have_settled():
    same = class_batches(1) * 100
    scores = probe(bert(), same, min_steps=20, check_every=5, patience=3, weighting="uniform")
    # Looks at 20, 25 and 30 are the first three that count.
    assert (scores.steps, scores.converged) == (30, True)
    assert len(scores.history) == 6
    assert scores.history[-1] == pytest.approx(sum(scores.scores.values()))
    other = probe(bert(), class_batches(60, seed=3), min_steps=20, check_every=5, tol=1e-9)
    assert (other.steps, other.converged) == (60, False)
    short = probe(bert(), class_batches(60), min_steps=5, max_steps=12, tol=1e-9)
    assert (short.steps, short.converged) == (12, False)


def test_the_order_of_the_leaders_counts():
    """Two layers that change places keep the sum; with rank_tol=0 that is not settled."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
            nn.init.ones_(self.a.weight)
            nn.init.ones_(self.b.weight)

        def forward(self, x, labels):
            return self.a(x[:, :1]) * x[:, 1:] + self.b(x[:, :1]) * (1 - x[:, 1:])

    def linear(outputs, batch):
        return outputs[:, 0], None

    a, b = ({"x": torch.tensor([[1.0, share]]), "labels": torch.zeros(1)} for share in (0.55, 0.45))
    batches = [a, b, b, a] * 10
    options = {"loss_fn": linear, "min_steps": 1, "check_every": 1, "patience": 5}
    assert probe(Two(), batches, rank_tol=1, **options).steps == 6
    assert probe(Two(), batches, rank_tol=0, **options).steps > 6


def test_adapters_are_ignored_and_names_are_those_of_the_base():
    plain = probe(bert(), class_batches(2), **QUICK)
    adapted = get_peft_model(bert(), LoraConfig(target_modules=["query", "value"], task_type="SEQ_CLS"))
    before = state(adapted)
    scores = probe(adapted, class_batches(2), **QUICK)
    assert scores.scores == pytest.approx(plain.scores, rel=1e-5)  # an untrained adapter changes nothing
    assert scores.families == plain.families
    assert state(adapted) == before


def test_device_is_put_back(monkeypatch):
    scores = probe(bert(), class_batches(1), device="cpu", **QUICK)
    assert scores.steps == 1
    moved = []
    model = bert()
    monkeypatch.setattr(model, "to", moved.append)
    with pytest.raises((RuntimeError, NotImplementedError, ValueError)):
        probe(model, class_batches(1), device="meta", **QUICK)
    assert moved == [torch.device("meta"), torch.device("cpu")]


class FourBit(nn.Linear):
    """Weights as bytes, as the 4 bit layers of bitsandbytes keep them."""

    def __init__(self):
        super().__init__(4, 4)
        self.weight = nn.Parameter(torch.zeros(8, 1, dtype=torch.uint8), requires_grad=False)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"gamma": -1.0}, ValueError, "gamma"),
        ({"gamma": math.nan}, ValueError, "gamma"),
        ({"batches": []}, ValueError, "batches is empty"),
        (
            {"batches": [{"input_ids": torch.ones(1, 3, dtype=torch.long)}]},
            ValueError,
            "batch 0 has no tensor 'labels'",
        ),
        ({"batches": [torch.ones(3)]}, TypeError, "batch 0 must be a dictionary"),
        ({"target_modules": ["nowhere"]}, ValueError, "'nowhere' matches no module .* query"),
        ({"target_modules": ["query", "nowhere"]}, ValueError, "'nowhere' matches no module"),
        ({"target_modules": r".*\.nowhere"}, ValueError, "no target module"),
        ({"target_modules": ["LayerNorm"]}, TypeError, "is a LayerNorm"),
        ({"weighting": "hard"}, ValueError, "weighting"),
        ({"min_steps": 0}, ValueError, "min_steps"),
        ({"min_steps": 9, "max_steps": 8}, ValueError, "max_steps"),
        ({"check_every": 0}, ValueError, "check_every"),
        ({"patience": 0}, ValueError, "patience"),
        ({"top_k": 0}, ValueError, "top_k"),
        ({"tol": 0.0}, ValueError, "tol"),
        ({"rank_tol": -1}, ValueError, "rank_tol"),
        ({"group_size": 0}, ValueError, "group_size"),
    ],
)
def test_bad_input(change, error, message):
    arguments = {"batches": class_batches(1), "min_steps": 1} | change
    with pytest.raises(error, match=message):
        probe(bert(), **arguments)


def test_all_labels_ignored_names_the_batch():
    batches = token_batches(3)
    batches[2]["labels"][:] = -100
    with pytest.raises(ValueError, match="batch 2: every label is −100"):
        probe(llama(), batches, **QUICK)
    batches = token_batches(1)
    batches[0]["labels"][:, 1:] = -100  # only the first token has a label, and nothing comes before it
    batches[0]["labels"][:, 0] = 3
    with pytest.raises(ValueError, match="batch 0: every label is −100"):
        probe(llama(), batches, **QUICK)


def test_quantised_weights_are_named():
    model = bert()
    model.bert.encoder.layer[0].attention.self.query = FourBit()
    with pytest.raises(TypeError, match=r"layer\.0\.attention\.self\.query is a FourBit whose weight is torch\.uint8"):
        probe(model, class_batches(1), **QUICK)


def test_a_loss_without_the_targets_is_an_error():
    def constant(outputs, batch):
        return torch.ones(6), None

    with pytest.raises(ValueError, match="does not depend on any target"):
        probe(bert(), class_batches(1), loss_fn=constant, **QUICK)


def test_a_short_loader_warns():
    with pytest.warns(UserWarning, match="ended after 2, before min_steps=50"):
        assert probe(bert(), class_batches(2)).steps == 2


@pytest.mark.parametrize(("make", "shift"), [(llama, 1), (gpt2, 1), (t5, 0)])
def test_scores_of_language_models_are_the_definition(make, shift):
    model, batch = make().eval(), token_batches(1)[0]
    targets = {name: dict(model.named_modules())[name].weight for name in probe(model, [batch], **QUICK).scores}
    labels = batch["labels"]
    log = model(**batch).logits.log_softmax(-1)
    losses, confidences = [], []
    for row in range(len(labels)):
        places = [t for t in range(shift, labels.shape[1]) if labels[row, t] != -100]
        true = torch.stack([log[row, t - shift, labels[row, t]] for t in places])
        losses.append(-true.mean())
        confidences.append(true.detach().exp().mean())
    weights = torch.softmax(2 * (1 - torch.stack(confidences)), 0)
    gradients = torch.autograd.grad((weights * torch.stack(losses)).sum(), list(targets.values()))
    expected = {
        name: float((weight * gradient).detach().abs().sum())
        for (name, weight), gradient in zip(targets.items(), gradients, strict=True)
    }
    assert probe(make(), [batch], **QUICK).scores == pytest.approx(expected, rel=1e-4)


def test_one_matrix_without_a_finite_gradient_is_skipped_for_that_batch_alone():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
            nn.init.ones_(self.a.weight)
            nn.init.ones_(self.b.weight)

        def forward(self, x, labels):
            return self.a(x[:, :2]) + self.b(x[:, 2:])

    good = {"x": torch.tensor([[1.0, 2.0, 3.0, 4.0]]), "labels": torch.zeros(1)}
    bad = {"x": torch.tensor([[math.inf, 2.0, 5.0, 6.0]]), "labels": torch.zeros(1)}
    scores = probe(Two(), [good, bad], loss_fn=lambda outputs, batch: (outputs[:, 0], None), **QUICK)
    assert scores.weight_stats["skipped"] == 1
    assert scores.scores == pytest.approx({"a": 3.0, "b": (7 + 11) / 2})


def test_how_samples_were_weighted_is_told():
    def certain(outputs, batch):
        return outputs.logits[:, 0], torch.tensor([0.9, 0.5, 0.1])

    batch = class_batches(1, size=3)[0]
    told = probe(bert(), [batch, batch], loss_fn=certain, **QUICK).weight_stats
    weights = (0.1223, 0.2721, 0.6056)
    assert told["confidence"] == pytest.approx(0.5)
    assert told["effective_share"] == pytest.approx(1 / (3 * sum(w * w for w in weights)), rel=1e-3)
    even = probe(bert(), [batch], loss_fn=certain, weighting="uniform", **QUICK).weight_stats
    assert even["effective_share"] == pytest.approx(1)


def test_who_leads_counts_and_by_score_per_weight():
    """a has one weight and the score 1 or 1.2, b four weights and, together with a, always the same sum."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(4, 1, bias=False)
            nn.init.ones_(self.a.weight)
            nn.init.ones_(self.b.weight)

        def forward(self, x, labels):
            return self.a(x[:, :1]) + self.b(x[:, 1:].expand(-1, 4))

    def batch(a, b):
        return {"x": torch.tensor([[a, b / 4]]), "labels": torch.zeros(1)}

    options = {"loss_fn": lambda outputs, _: (outputs[:, 0], None), "min_steps": 1, "check_every": 1, "patience": 5}
    # Running means of a: above 1, below 1, above 1, …; per weight b is then below and above a by turns.
    swaps = [batch(1.1, 3.9), *([batch(0.8, 4.2), batch(1.2, 3.8)] * 20)]
    assert probe(Two(), swaps, top_k=2, rank_tol=1, **options).steps == 6
    assert probe(Two(), swaps, top_k=1, rank_tol=9, **options).steps > 6  # the leader is another each time
    # By score alone b would lead all the time, with nothing to see; and here it does per weight too.
    still = [batch(0.9, 4.1), *([batch(0.6, 4.4), batch(1.0, 4.0)] * 20)]
    assert probe(Two(), still, top_k=1, rank_tol=0, **options).steps == 6
