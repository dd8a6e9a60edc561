import math

import numpy as np
import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped

from assay.numerics import logdet

logdet_gram = jaxtyped(typechecker=beartype)(logdet.logdet_gram)


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain(A, eps):
    """The d × d matrix as it is written, by LU."""
    return torch.linalg.slogdet(eps * torch.eye(A.shape[1], dtype=A.dtype) + A.T @ A)[1]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.sampled_from([1e-6, 1e-2, 1.0, 10.0]), st.integers(0, 1000))
def test_value_and_gradient_are_those_of_the_plain_form(n, d, eps, seed):
    A = random(n, d, seed=seed).requires_grad_()
    B = A.detach().clone().requires_grad_()
    value, expected = logdet_gram(A, eps), plain(B, eps)
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-8)
    value.backward()
    expected.backward()
    torch.testing.assert_close(A.grad, B.grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 6), (6, 3), (4, 4), (1, 3), (3, 1), (1, 1)])
def test_gradients(shape):
    A = random(*shape).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: logdet_gram(x, 0.1), (A,))
    assert torch.autograd.gradgradcheck(lambda x: logdet_gram(x, 0.1), (A,))


def test_closed_forms():
    assert float(logdet_gram(torch.tensor([[3.0, 4.0]]), 1.0)) == pytest.approx(math.log(26))
    assert float(logdet_gram(torch.zeros(2, 5), 0.1)) == pytest.approx(5 * math.log(0.1))
    assert float(logdet_gram(torch.zeros(7, 5), 0.1)) == pytest.approx(5 * math.log(0.1))
    assert float(logdet_gram(torch.zeros(0, 5), 0.1)) == pytest.approx(5 * math.log(0.1))
    assert float(logdet_gram(torch.zeros(5, 0), 0.1)) == 0
    A = random(5, 3)
    eigenvalues = np.linalg.svd(A.numpy(), compute_uv=False) ** 2
    assert float(logdet_gram(A, 0.3)) == pytest.approx(np.log(0.3 + eigenvalues).sum())


@pytest.mark.parametrize("shape", [(20, 6), (4, 6)])
def test_constant_and_equal_columns_have_finite_gradients(shape):
    A = random(*shape, dtype=torch.float32)
    A[:, 1] = 0
    A[:, 2] = A[:, 3]
    A.requires_grad_()
    value = logdet_gram(A, 1e-4)
    value.backward()
    torch.testing.assert_close(value.double(), plain(A.detach().double(), 1e-4), rtol=1e-3, atol=1e-3)
    assert torch.isfinite(A.grad).all()
    assert torch.equal(A.grad[:, 1], torch.zeros(shape[0]))


@pytest.mark.parametrize("shape", [(50, 8), (8, 50)])
def test_what_rounding_makes_indefinite_is_still_finite(shape):
    A = 1e4 * torch.ones(shape) * random(shape[0], 1, dtype=torch.float32)  # rank 1, eps far below its rounding
    A.requires_grad_()
    gram = A @ A.T if shape[0] < shape[1] else A.T @ A
    assert int(torch.linalg.cholesky_ex(gram + 1e-4 * torch.eye(8))[1]) > 0  # so Cholesky fails here
    value = logdet_gram(A, 1e-4)
    value.backward()
    assert torch.isfinite(A.grad).all()
    floor = max(shape) if shape[0] < shape[1] else 8
    assert value.item() >= (floor - 1) * math.log(1e-4)


def test_half_precision_and_autocast_count_in_float32():
    A = random(6, 4, dtype=torch.float32)
    for dtype in (torch.float16, torch.bfloat16):
        low = A.to(dtype)
        assert logdet_gram(low, 1e-2).dtype == torch.float32
        torch.testing.assert_close(logdet_gram(low, 1e-2), logdet_gram(low.float(), 1e-2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = logdet_gram(A, 1e-2)
    assert torch.equal(under, logdet_gram(A, 1e-2))
    assert logdet_gram(A.double(), 1e-2).dtype == torch.float64


def test_the_dual_form_holds_no_matrix_of_the_longer_side():
    A = random(4, 20_000, dtype=torch.float32).requires_grad_()  # 20 000 × 20 000 would be 1.6 GB
    largest = 0

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in torch.utils._pytree.tree_leaves(out):
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return out

    with Watching():
        logdet.logdet_gram(A, 1e-2).backward()
    assert largest <= A.numel()


@pytest.mark.parametrize(
    ("A", "eps", "error", "message"),
    [
        (torch.ones(2, 2, dtype=torch.int64), 1.0, TypeError, "A must be floating-point numbers"),
        (torch.ones(2), 1.0, ValueError, r"A must have rows and columns, got the shape \(2,\)"),
        (torch.ones(2, 2), 0.0, ValueError, "eps must be positive"),
        (torch.ones(2, 2), math.nan, ValueError, "eps must be positive"),
        (torch.tensor([[1.0, math.nan]]), 1.0, ValueError, "A must be finite"),
        (torch.tensor([[1.0], [math.inf]]), 1.0, ValueError, "A must be finite"),
        (torch.full((3, 2), 1e30), 1.0, ValueError, "or is too large"),
    ],
)
def test_bad_input(A, eps, error, message):
    with pytest.raises(error, match=message):
        logdet.logdet_gram(A, eps)
