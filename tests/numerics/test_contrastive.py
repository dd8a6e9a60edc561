import math

import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped

from assay.numerics import contrastive

info_nce = jaxtyped(typechecker=beartype)(contrastive.info_nce)
supervised = jaxtyped(typechecker=beartype)(contrastive.supervised_contrastive)


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def nt_xent(a, b, t):
    """Equation 1 of Chen et al., a pair at a time."""
    z = [row / row.norm() for row in [*a, *b]]
    n = len(a)
    total = 0.0
    for i in range(2 * n):
        j = i + n if i < n else i - n
        others = sum(math.exp(float(z[i] @ z[k]) / t) for k in range(2 * n) if k != i)
        total -= math.log(math.exp(float(z[i] @ z[j]) / t) / others)
    return total / (2 * n)


def sup_con(z, labels, t):
    """Equation 2 of Khosla et al., a pair at a time; rows that are alone in their class are left out."""
    z = [row / row.norm() for row in z]
    losses = []
    for i in range(len(z)):
        same = [p for p in range(len(z)) if p != i and labels[p] == labels[i]]
        others = sum(math.exp(float(z[i] @ z[k]) / t) for k in range(len(z)) if k != i)
        if same:
            losses.append(-sum(math.log(math.exp(float(z[i] @ z[p]) / t) / others) for p in same) / len(same))
    return sum(losses) / len(losses) if losses else 0.0


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.sampled_from([0.1, 0.5, 2.0]), st.integers(0, 1000))
def test_both_agree_with_their_equations(n, d, t, seed):
    a, b = random(n, d, seed=seed), random(n, d, seed=seed + 1)
    assert float(info_nce(a, b, t)) == pytest.approx(nt_xent(a, b, t), rel=1e-9, abs=1e-9)
    labels = torch.randint(0, 3, (n,), generator=torch.Generator().manual_seed(seed))
    assert float(supervised(a, labels, t)) == pytest.approx(sup_con(a, labels.tolist(), t), rel=1e-9, abs=1e-9)


def test_closed_forms():
    t = 0.5
    eye = torch.eye(4, dtype=torch.float64)
    expected = math.log(1 + 6 * math.exp(-1 / t))  # its other view at cosine 1, six others at 0
    assert float(info_nce(eye, eye, t)) == pytest.approx(expected)
    same = torch.ones(5, 3, dtype=torch.float64)
    assert float(info_nce(same, same, t)) == pytest.approx(math.log(9))
    assert float(supervised(same, torch.zeros(5, dtype=torch.int64), t)) == pytest.approx(math.log(4))


def test_two_labelled_views_are_the_unsupervised_loss():
    a, b = random(5, 3), random(5, 3, seed=1)
    labels = torch.arange(5).repeat(2)
    torch.testing.assert_close(supervised(torch.cat([a, b]), labels, 0.2), info_nce(a, b, 0.2))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 100))
def test_scale_order_and_names_of_classes_do_not_count(seed, scale):
    z = random(6, 3, seed=seed)
    labels = torch.tensor([0, 0, 1, 1, 2, 0])
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    expected = supervised(z, labels)
    torch.testing.assert_close(supervised(z * scale, labels), expected)
    torch.testing.assert_close(supervised(z[order], labels[order]), expected)
    torch.testing.assert_close(supervised(z, 7 - labels), expected)
    other = random(6, 3, seed=seed + 1)
    torch.testing.assert_close(info_nce(z * scale, other), info_nce(z, other))
    torch.testing.assert_close(info_nce(z[order], other[order]), info_nce(z, other))
    torch.testing.assert_close(info_nce(other, z), info_nce(z, other))


def test_gradients():
    a, b = random(4, 3).requires_grad_(), random(4, 3, seed=1).requires_grad_()
    labels = torch.tensor([0, 0, 1, 2])
    assert torch.autograd.gradcheck(lambda x, y: info_nce(x, y, 0.3), (a, b))
    assert torch.autograd.gradcheck(lambda x: supervised(x, labels, 0.3), (a,))


def test_rows_that_are_all_alone_have_no_loss_and_no_gradient():
    z = random(3, 2).requires_grad_()
    loss = supervised(z, torch.arange(3))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(z.grad, torch.zeros_like(z))
    one = random(1, 2).requires_grad_()
    supervised(one, torch.zeros(1, dtype=torch.int64)).backward()
    assert torch.equal(one.grad, torch.zeros_like(one))


def test_a_row_of_zeros_does_no_harm():
    z = random(4, 3)
    z[1] = 0
    z.requires_grad_()
    (supervised(z, torch.tensor([0, 0, 1, 1])) + info_nce(z, z)).backward()
    assert torch.isfinite(z.grad).all()


def test_low_temperatures_and_half_precision():
    z, labels = random(8, 4, dtype=torch.float32), torch.tensor([0, 1] * 4)
    for dtype in (torch.float16, torch.bfloat16):
        low = z.to(dtype)
        assert supervised(low, labels, 0.01).dtype == torch.float32
        torch.testing.assert_close(supervised(low, labels, 0.05), supervised(low.float(), labels, 0.05))
        torch.testing.assert_close(info_nce(low, low, 0.01), info_nce(low.float(), low.float(), 0.01))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = info_nce(z, z.flip(0), 0.05), supervised(z, labels, 0.05)
    assert all(loss.dtype == torch.float32 for loss in under)
    torch.testing.assert_close(under[0], info_nce(z, z.flip(0), 0.05))
    torch.testing.assert_close(under[1], supervised(z, labels, 0.05))
    assert math.isfinite(float(info_nce(z, z.flip(0), 1e-4)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: contrastive.info_nce(torch.ones(2, 2), torch.ones(3, 2)), ValueError, "the same shape"),
        (
            lambda: contrastive.info_nce(torch.ones(2), torch.ones(2)),
            ValueError,
            r"a must have rows and columns, .*\(2,",
        ),
        (lambda: contrastive.info_nce(torch.ones(0, 2), torch.ones(0, 2)), ValueError, "a must have rows"),
        (lambda: contrastive.info_nce(torch.ones(2, 2), torch.ones(2, 2).int()), TypeError, "b must be floating-point"),
        (lambda: contrastive.info_nce(torch.ones(2, 2), torch.ones(2, 2), 0.0), ValueError, "temperature must be pos"),
        (lambda: contrastive.info_nce(torch.ones(2, 2), torch.ones(2, 2), math.nan), ValueError, "temperature"),
        (
            lambda: contrastive.supervised_contrastive(torch.ones(2, 2), torch.zeros(3)),
            ValueError,
            r"labels must be one for each of 2 rows, got the shape \(3,\)",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
