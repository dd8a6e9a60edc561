"""Whatever frame comes: it works, or one line says which argument cannot be used."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llp_flow_bags import clouds, fast
from scipy import sparse

from assay.errors import InputError

COLUMNS = (
    *("float64", "float32", "int64", "bool", "Float64", "Int64", "numbers as objects", "category"),
    *("constant", "huge", "tiny", "words", "missing", "gap", "dates"),
)


@st.composite
def frames(draw):
    n = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    data = {}
    for j, kind in enumerate(draw(st.lists(st.sampled_from(COLUMNS), min_size=0, max_size=4))):
        column = rng.standard_normal(n)
        data[f"c{j}"] = {
            "float64": lambda c=column: c,
            "float32": lambda c=column: c.astype(np.float32),
            "int64": lambda c=column: (10 * c).astype(int),
            "bool": lambda c=column: c > 0,
            "Float64": lambda c=column: pd.array(c, dtype="Float64"),
            "Int64": lambda c=column: pd.array((10 * c).astype(int), dtype="Int64"),
            "constant": lambda c=column: np.full(n, 0.1),
            "huge": lambda c=column: 1.5e308 * np.sign(c),
            "tiny": lambda c=column: 1e-300 * c,
            "words": lambda c=column: np.where(c > 0, "a", "b"),
            "numbers as objects": lambda c=column: c.astype(object),
            "category": lambda c=column: pd.Categorical(c > 0),
            "gap": lambda c=column: pd.array([None, *c[1:]], dtype="Float64"),
            "dates": lambda: pd.date_range("2020-01-01", periods=n),
            "missing": lambda c=column: np.where(np.arange(n) == 0, np.nan, c),
        }[kind]()
    ids = draw(st.sampled_from(["one", "each", "few", "words", "mixed", "missing"]))
    bags = {
        "one": np.zeros(n, dtype=int),
        "each": np.arange(n),
        "few": rng.integers(3, size=n),
        "words": np.array(["a", "b"])[rng.integers(2, size=n)],
        "mixed": np.array([0, "b", 2.5], dtype=object)[rng.integers(3, size=n)],
        "missing": pd.array(np.where(np.arange(n) == 0, "x", "y"), dtype=object),
    }[ids]
    if ids == "missing":
        bags[0] = None
    K = draw(st.integers(1, 3))
    known = list(dict.fromkeys(b for b in bags if b is not None))
    pi = rng.dirichlet(np.ones(K), size=len(known)) if draw(st.booleans()) else np.tile(np.eye(K)[0], (len(known), 1))
    table = pd.DataFrame(pi, index=pd.Index(known, dtype=object if ids == "mixed" else None))
    return pd.DataFrame(data, index=range(n)), pd.Series(bags), table


@given(frames(), st.sampled_from([{}, {"lam_anchor": 0.0}, {"class_weight": "balanced"}, {"validation_bags": 0.5}]))
@settings(max_examples=40, deadline=None)
def test_any_frame_works_or_is_refused_by_name(given_frame, parameters):
    X, bags, table = given_frame
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        clf, refused = fast(epochs=(1, 1), flow_steps=2, **parameters), ""
        try:
            clf.fit(X, bags, table)
        except (InputError, TypeError) as error:
            refused = str(error)
    if refused:
        assert refused.startswith(("X must", "bags ", "proportions ", "there must be at least 2 classes")), refused
        return
    probs = clf.predict_proba(X)
    assert np.isfinite(probs).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-9)
    assert set(clf.predict(X)) <= set(clf.classes_)
    assert all(np.isfinite(losses).all() for losses in clf.history_.values())
    if hasattr(clf, "anchors_"):
        assert np.isfinite(clf.anchors_).all()
    assert np.isfinite(list(clf.report().values())).all()


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (sparse.eye(120, 4, format="csr"), TypeError, "X is sparse"),
        (None, TypeError, "X must be an array"),
        ("rows", TypeError, "X must be an array"),
        (np.zeros(120), InputError, r"X must be \(n, d\)"),
        (np.zeros((120, 0)), InputError, "d ≥ 1"),
        (np.zeros((0, 4)), InputError, "n ≥ 1"),
        (np.full((120, 4), "a"), InputError, "X must be numbers; encode words first"),
        (np.ones((120, 4), dtype=complex), InputError, "complex"),
        (np.zeros((120, 4), dtype="M8[ns]"), InputError, "turn times into numbers"),
        (pd.DataFrame({"at": pd.date_range("2020-01-01", periods=120)}), InputError, "the column 'at' is datetime64"),
        (np.ma.masked_less(np.zeros((120, 4)), 1.0), InputError, "NaN or infinity"),
        (
            np.where(np.arange(480).reshape(120, 4) == 13, np.nan, 1.0),
            InputError,
            "NaN or infinity, the first row 3, of bag 0",
        ),
        (np.where(np.arange(480).reshape(120, 4) == 13, np.inf, 1.0), InputError, "NaN or infinity"),
    ],
)
def test_rows_that_cannot_be_used(rows, error, message):
    _, bags, pi, _ = clouds()
    with pytest.raises(error, match=message):
        fast().fit(rows, bags, pi)


def test_columns_at_the_ends_of_the_floats_are_standardised():
    X, bags, pi, _ = clouds()
    plain = fast().fit(X, bags, pi).predict_proba(X)
    scaled = X * np.array([1e-290, 1e290, 1.0, 1e10])
    np.testing.assert_allclose(fast().fit(scaled, bags, pi).predict_proba(scaled), plain, atol=1e-3)
    wild = X.copy()
    wild[0] = 1e9  # an outlier is cut off
    assert np.isfinite(fast().fit(wild, bags, pi).predict_proba(wild)).all()


def test_nothing_that_is_given_is_changed_and_the_layout_of_memory_does_not_matter():
    X, bags, pi, _ = clouds()
    plain = fast().fit(X, bags, pi).predict_proba(X)
    for layout in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2]):
        locked = [given.view() for given in (layout, bags, pi)]
        for given_view in locked:
            given_view.setflags(write=False)
        np.testing.assert_array_equal(fast().fit(*locked).predict_proba(locked[0]), plain)
    frame, table = pd.DataFrame(X), pd.DataFrame(pi)
    before, shares = frame.copy(), table.copy()
    fast().fit(frame, bags, table).predict(frame)
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(table, shares)
