import jaxtyping
import numpy as np
import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.learning.llp_flow import bag_loss
from assay.learning.llp_flow.losses import bag_means


def test_the_reference_value():
    loss = bag_loss(torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 0]), torch.tensor([[0.75, 0.25]]))
    assert float(loss) == pytest.approx(0.5709820, abs=2e-7)


def by_hand(logits, index, pi, eps, weight):
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    losses = [-(weight * row * np.log(p[index == b].mean(axis=0) + eps)).sum() for b, row in enumerate(pi)]
    return np.mean(losses)


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_many_bags_at_once_are_each_bag_by_hand_in_whatever_order(seed, bags, classes):
    rng = np.random.default_rng(seed)
    index = np.concatenate([np.arange(bags), rng.integers(bags, size=12)])
    logits = 3 * rng.standard_normal((len(index), classes))
    pi, weight = rng.dirichlet(np.ones(classes), size=bags), rng.uniform(0.5, 2, classes)
    args = torch.tensor(logits), torch.tensor(index), torch.tensor(pi)
    loss = bag_loss(*args, eps=1e-6, class_weight=torch.tensor(weight))
    assert float(loss) == pytest.approx(by_hand(logits, index, pi, 1e-6, weight), rel=1e-10)
    order = rng.permutation(len(index))
    shuffled = bag_loss(args[0][order], args[1][order], args[2], eps=1e-6, class_weight=torch.tensor(weight))
    assert float(shuffled) == pytest.approx(float(loss), rel=1e-10)


def test_bags_of_one_row_give_the_cross_entropy_and_its_gradient():
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.standard_normal((6, 3)), requires_grad=True)
    y = torch.tensor([0, 1, 2, 2, 1, 0])
    ours = bag_loss(logits, torch.arange(6), torch.eye(3, dtype=torch.float64)[y], eps=0.0)
    theirs = torch.nn.functional.cross_entropy(logits, y)
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-12)
    torch.testing.assert_close(*torch.autograd.grad(ours, logits), *torch.autograd.grad(theirs, logits))


def test_gradient_is_right():
    logits = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    index, pi = torch.tensor([0, 1, 0, 1, 1, 0, 2]), torch.tensor([[0.2, 0.8, 0], [0.5, 0.25, 0.25], [0, 1, 0.0]])
    assert torch.autograd.gradcheck(lambda x: bag_loss(x, index, pi.double()), logits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(3)}, "logits must be"),
        ({"bag_index": torch.zeros(2, dtype=torch.int64)}, "bag_index"),
        ({"bag_index": torch.tensor([0, 1, 2])}, r"0 … 1"),
        ({"bag_index": torch.tensor([0, -1, 1])}, r"0 … 1"),
        ({"bag_index": torch.tensor([0, 0, 0])}, "bag 1 of proportions has no rows"),
        ({"proportions": torch.zeros(2, 3)}, "proportions"),
        ({"proportions": torch.zeros(0, 2)}, "at least one bag"),
        ({"proportions": torch.tensor([[0.5, 0.5], [np.nan, 0]])}, "proportions must be finite"),
        ({"proportions": torch.tensor([[1.5, -0.5], [1, 0]])}, "not negative"),
        ({"logits": torch.zeros(3, 2, dtype=torch.int64)}, "logits must be floating"),
        ({"bag_index": torch.tensor([0.0, 1, 1])}, "bag_index must be whole"),
        ({"class_weight": torch.ones(3)}, "class_weight"),
        ({"eps": -1.0}, "eps"),
    ],
)
def test_bad_input(change, message):
    good = {
        "logits": torch.zeros(3, 2),
        "bag_index": torch.tensor([0, 1, 1]),
        "proportions": torch.tensor([[0.5, 0.5], [1, 0]]),
    }
    bag_loss(**good)
    with pytest.raises(InputError, match=message):
        bag_loss(**{**good, **change})


def test_shapes_are_as_the_signature_says():
    checked = jaxtyping.jaxtyped(typechecker=beartype)(bag_means)
    assert checked(torch.ones(4, 2), torch.tensor([0, 1, 1, 0]), 2).shape == (2, 2)
    with pytest.raises(jaxtyping.TypeCheckError):
        checked(torch.ones(4, 2), torch.tensor([0, 1]), 2)


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match="logits must be a tensor, not ndarray"):
        bag_loss(np.zeros((1, 2)), torch.tensor([0]), torch.tensor([[0.5, 0.5]]))


def test_without_eps_a_class_that_is_neither_there_nor_predicted_costs_nothing():
    logits = torch.tensor([[300.0, 0.0]], requires_grad=True)
    loss = bag_loss(logits, torch.tensor([0]), torch.tensor([[1.0, 0.0]]), eps=0.0)
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad.isfinite().all()
