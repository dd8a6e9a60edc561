"""Random tables: each is fitted, with finite answers, or refused by an error that says what is wrong."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.learning.joint_privileged import CoupledClassifier, CoupledRegressor, LabelledKFold, coupled_ridge

MANY = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SOUND = ["plain", "plain", "plain", "constant", "large", "tiny", "copy"]
ODD = ["gaps", "infinite", "words"]
DTYPES = ["float64", "float32", "int64", "bool", "Float64", "Int64"]


@st.composite
def columns(draw, n, odd, most=4):
    """A frame of numbers of several types, with constant columns, gaps and large values now and then."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    out = {}
    for j in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(SOUND + ODD if odd else SOUND))
        values = rng.standard_normal(n)
        dtype = draw(st.sampled_from(DTYPES)) if kind in ("plain", "constant") else "float64"
        if kind == "constant":
            values[:] = draw(st.sampled_from([0.0, 1.0, 1e6]))
        values *= {"large": 1e120, "tiny": 1e-120}.get(kind, 1.0)
        if kind == "copy" and out:
            values = pd.to_numeric(next(iter(out.values())), errors="coerce").to_numpy(dtype=float, na_value=np.nan)
        if kind == "gaps":
            values[rng.random(n) < 0.3] = np.nan
        if kind == "infinite":
            values[0] = np.inf
        series = pd.Series(values)
        if kind == "words":
            series = pd.Series(rng.choice(["a", "b"], n))
        elif dtype in ("int64", "Int64"):
            series = (10 * series).round().astype("int64").astype(dtype)
        else:
            series = series.astype("float64" if kind == "copy" else dtype)
        out[f"{draw(st.sampled_from('xyz'))}{j}"] = series
    return pd.DataFrame(out)


@st.composite
def problems(draw, classes):
    n = draw(st.integers(2, 60))
    odd = draw(st.integers(0, 5)) == 0
    X, W = draw(columns(n, odd)), draw(columns(n, odd)).add_prefix("w_")
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.1, 0.3, 0.5, 0.7, 1.0]))
    if classes:
        y = rng.integers(0, draw(st.sampled_from([1, 2, 2, 3, 3])), n).astype(object)
        names = draw(st.sampled_from([None, {0: "no", 1: "yes", 2: "other"}]))
        y = y if names is None else np.array([names[c] for c in y], dtype=object)
        missing = draw(st.sampled_from([None, np.nan])) if names else -1
        y[rng.random(n) >= share] = missing
    else:
        y = rng.standard_normal(n) * draw(st.sampled_from([1.0, 1e-9, 1e9, 0.0]))
        y[rng.random(n) >= share] = np.nan
    if draw(st.booleans()):
        W = (
            W.apply(pd.to_numeric, errors="coerce")
            .astype("float64")
            .mask(np.repeat(rng.random((n, 1)) < 0.3, W.shape[1], axis=1))
        )
    weight = draw(st.sampled_from([None, rng.integers(0, 3, n), rng.random(n)]))
    parameters = {
        "lam": draw(st.sampled_from(["aggregate", "cv", 0.0, 1.0, math.inf])),
        "alphas": draw(st.sampled_from([(1.0,), (0.3, 30.0), (0.0,)])),
        "lams": (0.0, 1.0, math.inf),
        "standardize": draw(st.booleans()),
        "random_state": 0,
    }
    return X, W, y, weight, parameters


def works_or_says_why(cls, problem, **more):
    X, W, y, weight, parameters = problem
    model = cls(**parameters, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y, W=W, sample_weight=weight)
        except (ValueError, TypeError) as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            assert any(word in refused for word in ("X", "W", "y ", "label", "class", "ample", "lam"))
            return
        said = model.predict_proba(X) if cls is CoupledClassifier else model.predict(X)
    assert np.isfinite(said).all()
    assert np.isfinite(model.objective_path_).all()
    if hasattr(model, "cv_results_"):
        assert np.isfinite(model.cv_results_["loss"]).all()
        assert all(value is None or math.isfinite(value) for value in model.value_report().values())
    assert sum(model.lam_weights_.values()) == pytest.approx(1)


@MANY
@given(problems(classes=False))
def test_any_regression_works_or_says_why(problem):
    works_or_says_why(CoupledRegressor, problem)


@MANY
@given(problems(classes=True))
def test_any_classification_works_or_says_why(problem):
    works_or_says_why(CoupledClassifier, problem)


@MANY
@given(problems(classes=False))
def test_any_greedy_regression_works_or_says_why(problem):
    works_or_says_why(CoupledRegressor, problem, solver="greedy", n_atoms=[1, 3])


@MANY
@given(
    seed=st.integers(0, 1000),
    n=st.integers(2, 15),
    m=st.integers(1, 30),
    lam=st.floats(1e-3, 1e3),
    alpha=st.floats(0.01, 100),
)
def test_the_solution_is_a_minimum_and_lies_between_its_ends(seed, n, m, lam, alpha):
    rng = np.random.default_rng(seed)
    X, W, y = rng.standard_normal((n + m, 2)), rng.standard_normal((n + m, 3)), rng.standard_normal(n)
    Z = np.hstack([X, W])
    parts = (X[:n], y, Z[:n], X[n:], Z[n:])

    def loss(f, b, g, c):
        on_labels = np.sum((y - X[:n] @ f - b) ** 2) + alpha * f @ f
        apart = np.sum((Z[n:] @ g + c - X[n:] @ f - b) ** 2)
        return on_labels + apart + lam * (np.sum((y - Z[:n] @ g - c) ** 2) + alpha * g @ g)

    best = coupled_ridge(*parts, lam, alpha)
    least = loss(*best)
    for _ in range(5):
        step = [1e-3 * rng.standard_normal(np.shape(part)) for part in best]
        assert loss(*(part + move for part, move in zip(best, step, strict=True))) >= least - 1e-9 * abs(least)
    for end in (0.0, math.inf):
        assert loss(*coupled_ridge(*parts, end, alpha)) >= least - 1e-9 * abs(least)


@MANY
@given(st.lists(st.sampled_from([0, 1, 2, -1]), min_size=1, max_size=40), st.integers(2, 6), st.booleans())
def test_folds_split_the_labelled_rows_evenly(labels, k, shuffle):
    y = np.array(labels)
    splitter = LabelledKFold(k, shuffle=shuffle, random_state=0 if shuffle else None)
    if (y >= 0).sum() < k:
        with pytest.raises(ValueError, match="n_splits"):
            list(splitter.split(None, y))
        return
    tests = [test for _, test in splitter.split(None, y)]
    assert sorted(np.concatenate(tests)) == np.flatnonzero(y >= 0).tolist()
    assert max(map(len, tests)) - min(map(len, tests)) <= 1
    for c in range(3):
        counts = [(y[test] == c).sum() for test in tests]
        assert max(counts) - min(counts) <= 1
