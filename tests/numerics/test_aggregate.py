import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from assay.numerics.aggregate import exp_weights

LOSSES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20)


def test_closed_forms():
    np.testing.assert_allclose(exp_weights([1.0, 1.0 + np.log(3)]), [0.75, 0.25])
    assert exp_weights([5.0]).tolist() == [1.0]
    assert exp_weights([np.inf, 3.0, np.inf]).tolist() == [0.0, 1.0, 0.0]
    np.testing.assert_allclose(exp_weights([1e9, 1e9 + 1]), softmax([0.0, -1.0]))
    assert exp_weights([0.0, 1e6]).tolist() == [1.0, 0.0]


@given(LOSSES)
def test_agrees_with_scipy(losses):
    weights = exp_weights(losses)
    np.testing.assert_allclose(weights, softmax(-np.array(losses)), atol=1e-15)
    assert weights.sum() == pytest.approx(1.0)


@given(LOSSES, st.floats(-100, 100))
def test_only_differences_count(losses, shift):
    rounded = np.round(losses)
    np.testing.assert_allclose(exp_weights(rounded + np.round(shift)), exp_weights(rounded))


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([], r"one loss for each model, got the shape \(0,\)"),
        ([[1.0]], "one loss for each model"),
        (1.0, "one loss for each model"),
        ([1.0, np.nan], "no NaN and no -inf, and the model at 1 has one"),
        ([-np.inf, 1.0], "the model at 0 has one"),
        ([np.inf, np.inf], "infinite for every model"),
    ],
)
def test_bad_losses(losses, message):
    with pytest.raises(ValueError, match=message):
        exp_weights(losses)
