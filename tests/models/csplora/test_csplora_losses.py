import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from beartype import beartype
from csplora_models import bert, llama, t5
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from torch import nn
from transformers import BertForMaskedLM, BertForTokenClassification

from assay.models.csplora import losses
from assay.models.csplora.losses import checked, predicts_next

sample_weights = jaxtyped(typechecker=beartype)(losses.sample_weights)
sample_losses = jaxtyped(typechecker=beartype)(losses.sample_losses)
token_losses = jaxtyped(typechecker=beartype)(losses.token_losses)


def test_weights_by_hand():
    confidence = torch.tensor([0.9, 0.5, 0.1])
    torch.testing.assert_close(
        sample_weights(confidence, "fixed", 2.0), torch.tensor([0.1223, 0.2721, 0.6056]), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        sample_weights(confidence, "adaptive"), torch.tensor([0.0626, 0.2129, 0.7245]), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(sample_weights(confidence, "uniform"), torch.full((3,), 1 / 3))


def test_adaptive_has_ends():
    # Nearly equal difficulties would give an endless γ: below 1e-4 they are equal, above it γ is at most 10.
    torch.testing.assert_close(sample_weights(torch.tensor([0.5, 0.50001]), "adaptive"), torch.full((2,), 0.5))
    weights = sample_weights(torch.tensor([0.5, 0.52]), "adaptive")
    assert float(weights[0] / weights[1]) == pytest.approx(math.exp(10 * 0.02), rel=1e-4)


@pytest.mark.parametrize("weighting", ["fixed", "adaptive", "uniform"])
def test_one_sample_has_weight_one(weighting):
    assert sample_weights(torch.tensor([0.3]), weighting).tolist() == [1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.sampled_from(["fixed", "adaptive"]))
@settings(max_examples=60, deadline=None)
def test_weights_sum_to_one_and_hard_samples_count_more(confidence, weighting):
    c = torch.tensor(confidence)
    weights = sample_weights(c, weighting, 2.0)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-5)
    order = torch.argsort(c)
    assert (weights[order].diff() <= 1e-6).all()
    torch.testing.assert_close(sample_weights(c, "fixed", 0.0), sample_weights(c, "uniform"), atol=1e-6, rtol=0)


def outputs(logits):
    return SimpleNamespace(logits=logits)


def test_classes():
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    loss, confidence = sample_losses(bert(), outputs(logits.requires_grad_()), {"labels": labels})
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels, reduction="none"))
    torch.testing.assert_close(confidence, logits.softmax(1)[torch.arange(4), labels].detach())
    assert loss.requires_grad
    assert not confidence.requires_grad
    some, _ = sample_losses(bert(), outputs(logits), {"labels": torch.tensor([0, -100, 1, -100])})
    torch.testing.assert_close(some, loss[[0, 2]])


def test_next_tokens_are_shifted_and_the_ignored_do_not_count():
    logits, labels = torch.randn(2, 5, 7), torch.tensor([[-100, 3, 4, -100, 6], [-100, -100, -100, -100, 2]])
    loss, confidence = sample_losses(llama(), outputs(logits), {"labels": labels})
    log = logits.log_softmax(-1)
    # The logits at position t are for the token at t + 1.
    first = [log[0, 0, 3], log[0, 1, 4], log[0, 3, 6]]
    assert float(loss[0]) == pytest.approx(-float(sum(first)) / 3, rel=1e-5)
    assert float(confidence[0]) == pytest.approx(sum(float(x.exp()) for x in first) / 3, rel=1e-5)
    assert float(loss[1]) == pytest.approx(-float(log[1, 3, 2]), rel=1e-5)


def test_a_row_without_tokens_is_left_out():
    logits, labels = torch.randn(2, 3, 7), torch.tensor([[1, 2, 3], [-100, -100, -100]])
    loss, confidence = sample_losses(llama(), outputs(logits), {"labels": labels})
    assert loss.shape == confidence.shape == (1,)
    _, _, tokens = token_losses(logits, labels)
    assert tokens.tolist() == [3, 0]


def test_encoder_decoders_and_taggers_are_not_shifted():
    logits, labels = torch.randn(1, 3, 7), torch.tensor([[1, -100, 3]])
    log = logits.log_softmax(-1)
    expected = -float(log[0, 0, 1] + log[0, 2, 3]) / 2
    loss, _ = sample_losses(t5(), outputs(logits), {"labels": labels})
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert not predicts_next(BertForTokenClassification(bert().config))
    assert not predicts_next(BertForMaskedLM(bert().config))
    assert predicts_next(llama())
    assert predicts_next(nn.Linear(2, 2))


def test_regression_and_several_labels():
    logits, labels = torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 5.0])
    loss, confidence = sample_losses(bert(labels=1), outputs(logits), {"labels": labels})
    assert loss.tolist() == [1.0, 4.0]
    assert confidence is None
    several = bert(labels=2, problem_type="multi_label_classification")
    logits, labels = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    loss, confidence = sample_losses(several, outputs(logits), {"labels": labels})
    p = 1 / (1 + math.exp(-2))
    assert float(loss) == pytest.approx((math.log(2) - math.log(1 - p)) / 2, rel=1e-5)
    assert float(confidence) == pytest.approx((0.5 + 1 - p) / 2, rel=1e-5)


def test_unknown_tasks_are_named():
    with pytest.raises(ValueError, match="has no logits"):
        sample_losses(bert(), SimpleNamespace(start_logits=1), {"labels": torch.tensor([1])})
    with pytest.raises(ValueError, match=r"\(2, 3, 4, 5\)"):
        sample_losses(bert(), outputs(torch.zeros(2, 3, 4, 5)), {"labels": torch.zeros(2, dtype=torch.long)})
    with pytest.raises(ValueError, match="−100"):
        sample_losses(llama(), outputs(torch.zeros(1, 3, 5)), {"labels": torch.tensor([[4, -100, -100]])})


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((torch.tensor(1.0), None), "one loss a sample"),
        ((3.0, None), "float"),
        ((torch.ones(2), torch.ones(3)), r"shape \(2,\)"),
        ((torch.ones(2), torch.tensor([0.5, 1.5])), "between 0 and 1"),
        ((torch.ones(2), torch.tensor([0.5, math.nan])), "between 0 and 1"),
    ],
)
def test_what_a_users_loss_returns_is_checked(returned, message):
    with pytest.raises(ValueError, match=message):
        checked(*returned)
