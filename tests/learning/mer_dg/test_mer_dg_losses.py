"""The losses against independent references, and what must hold for any features."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.learning.mer_dg import (
    MERLoss,
    marginal_entropy_loss,
    mer_loss,
    rankme,
    spectral_entropy_loss,
)

EPS = 1e-4
Z = [[1, 2, 0], [3, 4, 1], [5, 0, -1], [-1, 1, 0.5]]
WIDE = [[0.1, 0.2, 0, 1], [-0.1, 0.3, 0.2, 0]]

numbers = st.floats(-50, 50, width=32)


def features(n, d, seed=0, scale=1.0):
    return scale * torch.randn((n, d), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_eigenvalues(z, gamma=1.0, eps=EPS):
    """Both losses by the definition, in NumPy, with the full D × D matrix."""
    z = np.asarray(z, dtype=np.float64)
    n, d = z.shape
    marginal = np.maximum(0, gamma - np.sqrt(z.var(axis=0, ddof=1) + eps)).mean()
    unit = (z - z.mean(axis=0)) / (z.std(axis=0) + eps)
    correlation = unit.T @ unit / (n - 1) + eps * np.eye(d)
    return marginal, -np.log(np.linalg.eigvalsh(correlation).clip(eps)).sum() / d


@pytest.mark.parametrize(("z", "marginal", "spectral"), [(Z, 0.0486763, 0.4999530), (WIDE, 0.7344648, 6.3884162)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reference_values(z, marginal, spectral, dtype):
    z = torch.tensor(z, dtype=dtype)
    near = 2e-4 if dtype is torch.float32 else 1e-7
    assert float(marginal_entropy_loss(z)) == pytest.approx(marginal, abs=6e-8, rel=near)
    assert float(spectral_entropy_loss(z)) == pytest.approx(spectral, rel=near)
    assert float(mer_loss(z, w_marg=2, w_spec=3)) == pytest.approx(2 * marginal + 3 * spectral, rel=near)
    # The closed form, which the module uses, is exact in float32 too.
    assert float(MERLoss(lam=1.0)(z)) == pytest.approx(marginal + spectral, rel=2e-6)


@pytest.mark.parametrize("shape", [(64, 32), (10, 32), (2, 5), (5, 1), (32, 32), (33, 32), (500, 3)])
def test_the_definition_with_eigenvalues(shape):
    z = features(*shape, scale=0.7)
    marginal, spectral = by_eigenvalues(z.numpy(), gamma=0.8)
    assert float(marginal_entropy_loss(z, gamma=0.8)) == pytest.approx(marginal, rel=1e-9)
    assert float(spectral_entropy_loss(z)) == pytest.approx(spectral, rel=1e-7)
    loss = MERLoss(lam=0.5, gamma=0.8, w_marg=2.0, w_spec=0.3)
    assert float(loss(z)) == pytest.approx(0.5 * (2 * marginal + 0.3 * spectral), rel=1e-7)


@pytest.mark.parametrize("shape", [(64, 32), (10, 32), (2, 5), (4, 3), (5, 1), (16, 16)])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.5, 2.0)])
def test_the_closed_form_has_the_plain_formulas_value_and_gradient(shape, weights):
    plain, closed = (features(*shape, seed=3, scale=0.8).requires_grad_() for _ in range(2))
    w_marg, w_spec = weights
    expected = mer_loss(plain, w_marg=w_marg, w_spec=w_spec)
    got = MERLoss(lam=1.0, w_marg=w_marg, w_spec=w_spec)(closed)
    assert float(got.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    expected.backward()
    got.backward()
    assert torch.allclose(closed.grad, plain.grad, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("shape", [(6, 3), (3, 5), (4, 4)])
def test_gradients_by_finite_differences(shape):
    z = features(*shape, seed=1, scale=0.6).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: marginal_entropy_loss(x), z)
    assert torch.autograd.gradcheck(lambda x: spectral_entropy_loss(x), z, atol=1e-4)
    assert torch.autograd.gradcheck(lambda x: MERLoss(lam=0.7)(x), z, atol=1e-4)
    assert torch.autograd.gradgradcheck(lambda x: marginal_entropy_loss(x), z)


@pytest.mark.parametrize("shape", [(6, 3), (3, 5)])
def test_gradients_of_gradients(shape):
    """For gradient penalties and the like."""
    plain, closed = (features(*shape, seed=2, scale=0.6).requires_grad_() for _ in range(2))
    seconds = []
    for z, loss in ((plain, mer_loss), (closed, MERLoss(lam=1.0))):
        (first,) = torch.autograd.grad(loss(z), z, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), z)[0])
    torch.testing.assert_close(seconds[1], seconds[0], rtol=1e-6, atol=1e-8)
    assert float(seconds[0].abs().max()) > 0


@pytest.mark.parametrize("n", [64, 20])
def test_one_large_matrix_in_float32(n):
    """Against float64, with more columns than rows: eigenvalues of ε beside large ones."""
    z = features(n, 300, scale=2.0)
    exact = sum(by_eigenvalues(z.numpy()))
    assert float(MERLoss(lam=1.0)(z.float())) == pytest.approx(exact, rel=1e-5)
    assert float(mer_loss(z.float())) == pytest.approx(exact, rel=1e-3)


def test_a_matrix_that_rounding_makes_singular():
    """Copies of one column, where Cholesky may fail: the eigenvalues are taken, none below ε."""
    column = features(40, 1)
    z = (column @ torch.ones((1, 400), dtype=torch.float64)).float().requires_grad_()
    for eps in (1e-4, 1e-9):
        loss = MERLoss(lam=1.0, eps=eps)(z)
        loss.backward()
        assert math.isfinite(float(loss.detach()))
        assert torch.isfinite(z.grad).all()
        assert float(loss.detach()) == pytest.approx(-math.log(eps), rel=0.15)


def test_shift_scale_and_order_of_rows_do_not_matter_to_the_spectral_half():
    z = features(50, 6)
    base = float(spectral_entropy_loss(z))
    assert float(spectral_entropy_loss(z + torch.arange(6) * 100.0)) == pytest.approx(base, rel=1e-6)
    assert float(spectral_entropy_loss(z[torch.randperm(50, generator=torch.Generator().manual_seed(0))])) == (
        pytest.approx(base, rel=1e-9)
    )
    scaled = z * torch.tensor([1.0, 2, 5, 10, 3, 7], dtype=torch.float64)
    assert float(spectral_entropy_loss(scaled)) == pytest.approx(base, abs=1e-3)


def test_the_floor_is_a_floor():
    z = features(200, 4)
    z = (z - z.mean(0)) / z.std(0)
    assert float(marginal_entropy_loss(1.01 * z)) == 0
    assert float(marginal_entropy_loss(100 * z)) == 0
    assert float(marginal_entropy_loss(0.5 * z)) == pytest.approx(1 - math.sqrt(0.25 + EPS))
    assert float(marginal_entropy_loss(0.5 * z, gamma=2)) == pytest.approx(2 - math.sqrt(0.25 + EPS))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 12), d=st.integers(1, 9), data=st.data(), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_any_features_give_finite_losses_within_their_bounds(n, d, data, dtype):
    """Constant and equal columns, equal rows and zeros among them."""
    rows = data.draw(st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=n, max_size=n))
    z = torch.tensor(rows, dtype=dtype).requires_grad_()
    marginal, spectral = marginal_entropy_loss(z), spectral_entropy_loss(z)
    assert 0 <= float(marginal.detach()) <= 1
    least = -math.log(n / (n - 1) + EPS)
    assert float(spectral.detach()) >= least - 1e-4
    assert float(spectral.detach()) <= -math.log(EPS) + 0.2
    (marginal + spectral).backward()
    assert torch.isfinite(z.grad).all()
    closed = z.detach().clone().requires_grad_()
    loss = MERLoss(lam=1.0)(closed)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert torch.isfinite(closed.grad).all()
    if dtype is torch.float64:
        assert float(loss.detach()) == pytest.approx(float((marginal + spectral).detach()), rel=1e-6, abs=1e-6)


def test_a_copy_of_a_column_costs_log_of_one_over_eps():
    z = features(400, 8)
    copied = torch.cat([z[:, :7], z[:, :1]], dim=1)
    more = float(spectral_entropy_loss(copied)) - float(spectral_entropy_loss(z))
    assert more == pytest.approx(math.log(1 / EPS) / 8, rel=0.1)


def test_a_constant_column_has_no_gradient_and_spoils_no_other():
    z = features(16, 3)
    z[:, 1] = 0.3
    z.requires_grad_()
    mer_loss(z).backward()
    assert torch.isfinite(z.grad).all()
    assert float(z.grad[:, 1].abs().max()) < 1e-6
    assert float(z.grad[:, 0].abs().max()) > 0


@pytest.mark.parametrize("shape", [(1, 4), (0, 4), (5, 0)])
def test_nothing_to_say_is_zero_with_its_graph(shape):
    z = torch.zeros(shape, requires_grad=True)
    for loss in (marginal_entropy_loss, spectral_entropy_loss, mer_loss, MERLoss(lam=1.0)):
        value = loss(z)
        assert float(value.detach()) == 0
        value.backward()
        assert torch.equal(z.grad, torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    z = features(64, 16).to(dtype).requires_grad_()
    expected = float(mer_loss(z.detach().float()))
    for loss in (mer_loss, MERLoss(lam=1.0)):
        value = loss(z)
        assert value.dtype == torch.float32
        assert float(value.detach()) == pytest.approx(expected, rel=1e-5)
        (gradient,) = torch.autograd.grad(value, z)
        assert gradient.dtype == dtype


def test_autocast_does_not_reach_inside():
    z = features(64, 16).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = [float(spectral_entropy_loss(z)), float(MERLoss(lam=1.0)(z))]
    assert inside == [float(spectral_entropy_loss(z)), float(MERLoss(lam=1.0)(z))]


def test_minimising_it_alone_raises_the_rank_at_every_step():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((256, 20), generator=generator, dtype=torch.float64)
    # One direction, and hardly anything beside it.
    start = torch.randn((20, 1), generator=generator, dtype=torch.float64) @ torch.randn(
        (1, 12), generator=generator, dtype=torch.float64
    )
    weight = (start + 1e-3 * torch.randn((20, 12), generator=generator, dtype=torch.float64)).requires_grad_()
    optimiser = torch.optim.Adam([weight], lr=0.01)
    loss, ranks = MERLoss(lam=1.0), [rankme(x @ weight)]
    for _ in range(50):
        optimiser.zero_grad()
        loss(x @ weight).backward()
        optimiser.step()
        ranks.append(rankme(x @ weight))
    assert ranks[0] < 1.1
    assert ranks[-1] > 2 * ranks[0]
    assert np.all(np.diff(ranks) > 0)


def test_rankme_is_the_shannon_rank_of_singular_values():
    z = features(30, 5)
    singular = np.linalg.svd(z.numpy(), compute_uv=False)
    share = singular / singular.sum()
    assert rankme(z) == pytest.approx(np.exp(-(share * np.log(share)).sum()), rel=1e-6)
    assert rankme(z.float().requires_grad_()) == pytest.approx(rankme(z.numpy()), rel=1e-5)
    for bad, message in (
        (np.zeros(3), "matrix"),
        (np.full((2, 2), np.nan), "NaN"),
        (np.zeros((0, 2)), "matrix"),
        ([["a"]], "real"),
        ([[1j]], "real"),
    ):
        with pytest.raises(ValueError, match=message):
            rankme(bad)


@pytest.mark.parametrize("loss", [marginal_entropy_loss, spectral_entropy_loss, mer_loss])
@pytest.mark.parametrize(
    ("z", "message"),
    [
        (torch.ones((3, 2), dtype=torch.int64), "floating"),
        (torch.ones((3, 2), dtype=torch.complex64), "floating"),
        (torch.tensor([[1.0, math.nan], [2.0, 3.0]]), "NaN or infinity"),
        (torch.tensor([[1.0, math.inf], [2.0, 3.0]]), "NaN or infinity"),
        (torch.full((3, 2), 1e20), "too large"),
        (torch.ones(3), "two dimensions"),
        (torch.ones((3, 2, 2)), "two dimensions"),
        ([[1.0, 2.0]], "torch tensor"),
    ],
)
def test_bad_features_are_refused(loss, z, message):
    with pytest.raises(ValueError, match=message):
        loss(z)


@pytest.mark.parametrize(
    "parameters",
    [{"gamma": 0}, {"gamma": -1.0}, {"eps": 0.0}, {"eps": math.nan}, {"w_marg": -1.0}, {"w_spec": math.inf}],
)
def test_bad_parameters_are_refused_by_name(parameters):
    (name,) = parameters
    with pytest.raises(ValueError, match=name):
        mer_loss(torch.ones((3, 2)), **parameters)
    with pytest.raises(ValueError, match=name):
        MERLoss(**parameters)
