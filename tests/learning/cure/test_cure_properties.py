import warnings

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.learning.cure import CUREDiscovery

KINDS = ("float64", "float32", "int64", "bool", "Float64", "Int8", "constant", "huge", "tiny", "missing", "text")


@st.composite
def frames(draw):
    """A frame and labels: any dtypes, missing values, constant columns, one class, no class, no gaps."""
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns = {}
    # Half of the frames hold numbers only: what is refused at once says little of what comes later.
    kinds = KINDS if draw(st.booleans()) else KINDS[:-2]
    for j, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5))):
        values = rng.normal(size=n) * 10
        match kind:
            case "constant":
                column = pd.Series(np.full(n, 3.7))
            case "huge":
                column = pd.Series(values * 1e306)
            case "tiny":
                column = pd.Series(values * 1e-306)
            case "missing":
                column = pd.Series(np.where(rng.random(n) < 0.3, np.nan, values))
            case "text":
                column = pd.Series([f"{v:.0f}" for v in values])
            case "bool":
                column = pd.Series(values > 0)
            case _:
                column = pd.Series(values.round() if "t" in kind and "I" in kind.upper() else values).astype(kind)
        columns[f"c{j}"] = column
    names = draw(st.sampled_from([["a"], ["a", "b", "c"], [0, 1], [-7, 3], [True, False], [0.0, 1.0], ["a", 1]]))
    gaps = draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    missing = draw(st.sampled_from([None, np.nan, pd.NA, -1]))
    y = [missing if rng.random() < gaps else names[rng.integers(len(names))] for _ in range(n)]
    return pd.DataFrame(columns), y


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    frames(),
    st.sampled_from(["auto", 1, 2, 4, 9]),
    st.sampled_from(["mlp", "residual"]),
    st.integers(2, 64),
)
def test_any_frame_is_sorted_or_refused(data, n_classes, encoder, batch_size):
    X, y = data
    model = CUREDiscovery(
        n_classes, encoder=encoder, dim=3, batch_size=batch_size, pretrain_epochs=1, epochs=(1, 2), random_state=0,
        device="cpu",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y)
        except (ValueError, TypeError) as error:
            names = ("X ", "y ", "n_classes", "n_clusters", "random_state")
            if not any(name in str(error) for name in names):
                raise
            return
        assert len(model.labels_) == len(X)
        assert set(model.labels_.tolist()) <= set(model.classes_.tolist())
        proba = model.predict_proba(X)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert np.isfinite(model.transform(X)).all()
    assert model.history_.loc[:, "loss"].notna().all()
    for row in np.flatnonzero(model.given_):
        assert model.labels_[row] == y[row]  # truth values and whole floats equal the numbers that they became
