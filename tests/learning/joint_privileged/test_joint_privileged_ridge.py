import math

import numpy as np
import pytest
from coupled_tables import table
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from assay.errors import InputError
from assay.learning.joint_privileged import coupled_ridge

XL, WL = np.array([[0.0], [1], [2], [3]]), np.array([[1.0], [0], [2], [1]])
YL = np.array([0.0, 1, 3, 2])
XU, WU = np.array([[4.0], [5], [-1]]), np.array([[0.0], [1], [1]])
ZL, ZU = np.hstack([XL, WL]), np.hstack([XU, WU])


def loss(f, b, g, c, lam, alpha=0.0, sl=1.0, su=1.0, parts=(XL, YL, ZL, XU, ZU)):
    X, y, Z, XX, ZZ = parts
    value = np.sum(sl * (y - X @ f - b) ** 2) + np.sum(su * (ZZ @ g + c - XX @ f - b) ** 2) + alpha * f @ f
    return value + lam * (np.sum(sl * (y - Z @ g - c) ** 2) + alpha * g @ g)


# Found by a search that uses no derivatives, so that no error in the normal equations is in both.
@pytest.mark.parametrize(
    ("lam", "f", "g", "per_row"),
    [
        (0.0, (0.8, 0.3), None, None),
        (0.5, (0.768918, 0.324393), (0.789771, 0.361967, -0.002164), 0.354689),
        (2.0, (0.712211, 0.379236), (0.737224, 0.533351, -0.112964), 0.588565),
        (math.inf, (0.642857, 0.452381), (0.666667, 0.666667, -0.166667), None),
    ],
)
def test_reference_values(lam, f, g, per_row):
    coef_f, b_f, coef_g, b_g = coupled_ridge(XL, YL, ZL, XU, ZU, lam)
    assert (coef_f[0], b_f) == pytest.approx(f, abs=1e-6)
    if g is not None:
        assert (*coef_g, b_g) == pytest.approx(g, abs=1e-6)
    if per_row is not None:
        assert loss(coef_f, b_f, coef_g, b_g, lam) / 7 == pytest.approx(per_row, abs=1e-6)


@pytest.mark.parametrize(("lam", "alpha"), [(0.3, 0.0), (0.5, 0.7), (20.0, 2.0)])
def test_no_search_finds_a_lower_loss(lam, alpha):
    coef_f, b_f, coef_g, b_g = coupled_ridge(XL, YL, ZL, XU, ZU, lam, alpha)
    ours = loss(coef_f, b_f, coef_g, b_g, lam, alpha)
    found = minimize(
        lambda t: loss(t[:1], t[1], t[2:4], t[4], lam, alpha),
        np.zeros(5),
        method="Powell",
        options={"xtol": 1e-10, "ftol": 1e-14, "maxiter": 20_000},
    )
    assert ours <= found.fun + 1e-9
    np.testing.assert_allclose([coef_f[0], b_f, *coef_g, b_g], found.x, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 30.0])
def test_the_ends_are_ridge_regressions(alpha):
    X, W, y, _ = table(1)
    Z, seen = np.hstack([X, W]), ~np.isnan(y)
    parts = (X[seen], y[seen], Z[seen], X[~seen], Z[~seen])
    first = Ridge(alpha).fit(X[seen], y[seen])
    f, b, g, c = coupled_ridge(*parts, 0, alpha)
    np.testing.assert_allclose([*f, b], [*first.coef_, first.intercept_], atol=1e-8)
    np.testing.assert_allclose([*g, c], [*first.coef_, 0, 0, 0, 0, first.intercept_], atol=1e-8)
    teacher = Ridge(alpha).fit(Z[seen], y[seen])
    student = Ridge(alpha).fit(np.vstack([X[seen], X[~seen]]), np.concatenate([y[seen], teacher.predict(Z[~seen])]))
    f, b, g, c = coupled_ridge(*parts, math.inf, alpha)
    np.testing.assert_allclose([*g, c], [*teacher.coef_, teacher.intercept_], atol=1e-8)
    np.testing.assert_allclose([*f, b], [*student.coef_, student.intercept_], atol=1e-8)
    for end, near in ((0, 1e-9), (math.inf, 1e9)):
        np.testing.assert_allclose(
            coupled_ridge(*parts, near, alpha)[0], coupled_ridge(*parts, end, alpha)[0], atol=1e-6
        )


@pytest.mark.parametrize("lam", [1e-6, 0.3, 1.0, 50.0, 1e6])
def test_it_is_least_squares_on_stacked_rows(lam):
    """The same loss written as one tall system, solved by orthogonal transformations in place of normal equations."""
    X, W, y, _ = table(2, n=20, m=60)
    Z, seen, alpha = np.hstack([X, W]), ~np.isnan(y), 0.8
    rng = np.random.default_rng(0)
    sl, su = rng.uniform(0.5, 2, seen.sum()), rng.uniform(0.5, 2, (~seen).sum())
    one = np.ones((len(X), 1))
    X1, Z1 = np.hstack([X, one]), np.hstack([Z, one])
    p, q = X1.shape[1], Z1.shape[1]
    zero = np.zeros
    system = np.vstack(
        [
            np.sqrt(sl)[:, None] * np.hstack([X1[seen], zero((seen.sum(), q))]),
            np.sqrt(su)[:, None] * np.hstack([X1[~seen], -Z1[~seen]]),
            np.sqrt(lam * sl)[:, None] * np.hstack([zero((seen.sum(), p)), Z1[seen]]),
            np.sqrt(alpha) * np.hstack([np.eye(p)[:-1], zero((p - 1, q))]),
            np.sqrt(lam * alpha) * np.hstack([zero((q - 1, p)), np.eye(q)[:-1]]),
        ]
    )
    right = np.concatenate([np.sqrt(sl) * y[seen], zero((~seen).sum()), np.sqrt(lam * sl) * y[seen], zero(p + q - 2)])
    theta = np.linalg.lstsq(system, right, rcond=None)[0]
    f, b, g, c = coupled_ridge(X[seen], y[seen], Z[seen], X[~seen], Z[~seen], lam, alpha, w=(sl, su))
    np.testing.assert_allclose([*f, b], theta[:p], atol=1e-7)
    np.testing.assert_allclose([*g, c], theta[p:], atol=1e-5)


@pytest.mark.parametrize("lam", [0.2, 1.0, 5.0])
def test_in_the_population_f_is_mu_and_g_a_mixture(lam):
    """On a table that is its own population: f = E[y|x], and g = (m E[y|x] + n lam E[y|z]) / (m + n lam)."""
    x, w = np.meshgrid([-1.0, 1.0], [-1.0, 1.0])
    X, Z = x.reshape(-1, 1), np.column_stack([x.ravel(), w.ravel()])
    y = 2 * X[:, 0] + 3 * Z[:, 1] + 1
    n, m = 4, 12
    f, b, g, c = coupled_ridge(X, y, Z, np.tile(X, (3, 1)), np.tile(Z, (3, 1)), lam)
    np.testing.assert_allclose([f[0], b], [2, 1], atol=1e-10)
    np.testing.assert_allclose(g, [2, n * lam * 3 / (m + n * lam)], atol=1e-10)
    assert c == pytest.approx(1)


def test_without_unlabelled_rows_every_lam_gives_the_same_f():
    X, W, y, _ = table(3, n=30, m=0)
    Z = np.hstack([X, W])
    plain = Ridge(2.0).fit(X, y)
    for lam in (0, 0.5, 7.0, math.inf):
        f, b, _, _ = coupled_ridge(X, y, Z, X[:0], Z[:0], lam, 2.0)
        np.testing.assert_allclose([*f, b], [*plain.coef_, plain.intercept_], atol=1e-9)


def test_more_columns_than_rows_give_the_shortest_solution():
    X, W, y, _ = table(4, n=5, m=6, p=8, k=9)
    Z, seen = np.hstack([X, W]), ~np.isnan(y)
    f, *_ = coupled_ridge(X[seen], y[seen], Z[seen], X[~seen], Z[~seen], 0, 0.0)
    centred = X[seen] - X[seen].mean(axis=0)
    np.testing.assert_allclose(f, np.linalg.pinv(centred) @ (y[seen] - y[seen].mean()), atol=1e-6)
    for lam in (0.1, 3.0, math.inf):
        answer = coupled_ridge(X[seen], y[seen], Z[seen], X[~seen], Z[~seen], lam, 0.0)
        assert all(np.isfinite(part).all() for part in answer)
        assert np.abs(answer[0]).max() < 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"yL": [0, 1, 2]}, "yL must have one number for each of the 4 rows"),
        ({"XL": XL[:, 0]}, "XL must have two dimensions"),
        ({"XU": np.hstack([XU, XU])}, "XL and XU must have as many columns"),
        ({"ZU": ZU[:2]}, "XU and ZU must have as many rows"),
        ({"ZL": np.full_like(ZL, np.nan)}, "ZL must be finite"),
        ({"XL": [["a"], ["b"], ["c"], ["d"]]}, "XL must be an array of numbers"),
        ({"lam": -1}, "lam must be at least 0"),
        ({"lam": math.nan}, "lam must be at least 0"),
        ({"alpha": math.inf}, "alpha must be at least 0 and finite"),
        ({"w": (np.ones(4), -np.ones(3))}, "w must be weights"),
        ({"w": (np.ones(3), np.ones(3))}, "w must be weights"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    given = {"XL": XL, "yL": YL, "ZL": ZL, "XU": XU, "ZU": ZU, "lam": 1.0, **change}
    with pytest.raises(InputError, match=message):
        coupled_ridge(**given)
