import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from assay.numerics.clustering import (
    balanced_assignment,
    balanced_kmeans,
    capped_quotas,
    farthest_points,
    largest_remainder,
)

SEEDS = st.integers(0, 10_000)


def optimum(scores, capacities):
    """The highest sum, by an exact solver: every column stands there as often as it has places."""
    wide = np.repeat(scores, capacities, axis=1)
    rows, columns = linear_sum_assignment(-wide)
    return wide[rows, columns].sum()


def sizes_for(n, k, rng):
    cuts = np.sort(rng.choice(np.arange(1, n), k - 1, replace=False)) if k > 1 else np.array([], dtype=int)
    return np.diff(np.concatenate([[0], cuts, [n]]))


@settings(deadline=None, max_examples=60)
@given(n=st.integers(2, 60), k=st.integers(1, 8), spherical=st.booleans(), seed=SEEDS)
def test_clusters_have_exactly_their_sizes(n, k, spherical, seed):
    k = min(k, n)
    rng = np.random.default_rng(seed)
    sizes = sizes_for(n, k, rng)
    points = np.round(rng.normal(size=(n, 3)))  # many equal rows, and rows of zeros
    labels = balanced_kmeans(points, k, sizes, spherical, seed=seed)
    assert np.bincount(labels, minlength=k).tolist() == sizes.tolist()
    default = np.bincount(balanced_kmeans(points, k, spherical=spherical), minlength=k)
    assert default.tolist() == [n // k + (j < n % k) for j in range(k)]


@settings(deadline=None, max_examples=60)
@given(n=st.integers(2, 60), k=st.integers(1, 8), seed=SEEDS)
def test_assignment_keeps_the_sizes_and_is_the_optimum_for_two(n, k, seed):
    k = min(k, n)
    rng = np.random.default_rng(seed)
    scores, sizes = rng.uniform(size=(n, k)), sizes_for(n, k, rng)
    labels = balanced_assignment(scores, sizes)
    assert np.bincount(labels, minlength=k).tolist() == sizes.tolist()
    value = scores[np.arange(n), labels].sum()
    best = optimum(scores, sizes)
    assert value <= best + 1e-9
    if k <= 2:
        assert value == pytest.approx(best)


def test_assignment_of_many_rows_is_within_a_percent_of_the_optimum():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(480, 8))
    value = scores[np.arange(480), balanced_assignment(scores, [60] * 8)].sum()
    assert value >= 0.99 * optimum(scores, [60] * 8)


@settings(deadline=None, max_examples=20)
@given(n=st.integers(4, 30), k=st.integers(2, 4), seed=SEEDS)
def test_no_exchange_of_two_rows_helps(n, k, seed):
    rng = np.random.default_rng(seed)
    scores, sizes = rng.normal(size=(n, k)), sizes_for(n, k, rng)
    labels = balanced_assignment(scores, sizes)
    for i in range(n):
        for j in range(i):
            gain = scores[i, labels[j]] + scores[j, labels[i]] - scores[i, labels[i]] - scores[j, labels[j]]
            assert gain <= 1e-9


@pytest.mark.parametrize("spherical", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finds_planted_groups_of_unequal_sizes(spherical, dtype):
    rng = np.random.default_rng(3)
    centres = 4 * rng.normal(size=(4, 20))
    truth = np.repeat(np.arange(4), [50, 30, 15, 5])
    points = (centres[truth] + rng.normal(size=(100, 20))).astype(dtype)
    labels = balanced_kmeans(points, 4, [50, 30, 15, 5], spherical)
    assert adjusted_rand_score(truth, labels) == 1


def test_spherical_ignores_lengths_and_euclidean_ignores_a_shift():
    rng = np.random.default_rng(5)
    points = rng.normal(size=(40, 3))
    labels = balanced_kmeans(points, 4)
    assert balanced_kmeans(points * rng.uniform(0.1, 9, size=(40, 1)), 4).tolist() == labels.tolist()
    labels = balanced_kmeans(points, 4, spherical=False)
    assert balanced_kmeans(points + 1e4, 4, spherical=False).tolist() == labels.tolist()
    assert balanced_kmeans(points * 1e300, 4).tolist() == balanced_kmeans(points, 4).tolist()


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e200])
def test_the_unit_of_the_numbers_changes_nothing(scale):
    points = np.random.default_rng(5).normal(size=(60, 4))
    labels = balanced_kmeans(points, 4, spherical=False)
    assert balanced_kmeans(points * scale, 4, spherical=False).tolist() == labels.tolist()
    assert balanced_assignment(points * scale, [15] * 4).tolist() == balanced_assignment(points, [15] * 4).tolist()
    for metric in ("cosine", "euclidean"):
        chosen = farthest_points(points, 30, metric=metric)
        assert farthest_points(points * scale, 30, metric=metric).tolist() == chosen.tolist()


def test_float32_beyond_its_squares():
    points = np.random.default_rng(5).normal(size=(60, 4)).astype(np.float32)
    labels, chosen = balanced_kmeans(points, 4, spherical=False), farthest_points(points, 30, metric="euclidean")
    for scale in (2.0**-80, 2.0**80):
        scaled = (points * scale).astype(np.float32)
        assert balanced_kmeans(scaled, 4, spherical=False).tolist() == labels.tolist()
        assert farthest_points(scaled, 30, metric="euclidean").tolist() == chosen.tolist()


@pytest.mark.parametrize("spherical", [True, False])
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_rows_that_are_all_equal_and_clusters_of_one_row(spherical, value):
    labels = balanced_kmeans(np.full((30, 3), value), 4, spherical=spherical)
    assert np.bincount(labels).tolist() == [8, 8, 7, 7]
    labels = balanced_kmeans(np.full((30, 3), value), 30, spherical=spherical)
    assert sorted(labels.tolist()) == list(range(30))


def test_labels_repeat_with_the_seed_and_more_starts_are_no_worse():
    points = np.random.default_rng(7).normal(size=(80, 5))
    assert balanced_kmeans(points, 8, seed=4).tolist() == balanced_kmeans(points, 8, seed=4).tolist()

    def within(labels):
        return sum(((points[labels == j] - points[labels == j].mean(axis=0)) ** 2).sum() for j in range(8))

    one, five = (balanced_kmeans(points, 8, spherical=False, seed=1, n_init=n) for n in (1, 5))
    assert within(five) <= within(one) * (1 + 1e-4)
    assert within(one) < 0.9 * within(np.random.default_rng(0).permutation(np.arange(80) % 8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be 1"),
        ({"n_clusters": 5}, "n_clusters must be 1"),
        ({"capacities": [2, 1]}, "sum to the number of rows"),
        ({"capacities": [4, 0]}, "at least 1"),
        ({"capacities": [2.0, 2.0]}, "whole numbers"),
        ({"capacities": [4]}, "2 whole numbers"),
        ({"n_init": 0}, "n_init"),
        ({"X": [[1.0], [np.nan], [0.0], [0.0]]}, "NaN"),
        ({"X": [1.0, 2.0, 3.0, 4.0]}, "shape"),
        ({"X": np.empty((0, 3))}, "shape"),
    ],
)
def test_kmeans_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        balanced_kmeans(**{"X": np.eye(4), "n_clusters": 2, **change})


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 40), metric=st.sampled_from(["cosine", "euclidean"]), seed=SEEDS)
def test_farthest_points_are_each_the_farthest_from_those_before(n, metric, seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, 3))
    points[rng.integers(n, size=n // 3)] = points[0]
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    if metric == "cosine":
        distances, spread = 1 - unit @ unit.T, unit
    else:
        distances, spread = ((points[:, None] - points) ** 2).sum(-1), points
    chosen = farthest_points(points, n, metric=metric)
    assert sorted(chosen.tolist()) == list(range(n))  # equal rows are taken too, last
    from_mean = -(spread @ spread.mean(0)) if metric == "cosine" else ((spread - spread.mean(0)) ** 2).sum(1)
    assert from_mean[chosen[0]] == pytest.approx(from_mean.min())
    for i in range(1, n):
        rest = chosen[i:]
        nearest = distances[np.ix_(rest, chosen[:i])].min(axis=1)
        assert nearest[0] == pytest.approx(nearest.max(), abs=1e-9)
    assert farthest_points(points, n // 2, metric=metric).tolist() == chosen[: n // 2].tolist()


def test_farthest_points_refuses():
    for change, message in (
        ({"n": 4}, "n must be"),
        ({"n": -1}, "n must be"),
        ({"metric": "l1"}, "metric"),
        ({"start": 3}, "start"),
        ({"X": [[np.inf]]}, "NaN or infinite"),
    ):
        with pytest.raises(ValueError, match=message):
            farthest_points(**{"X": np.eye(3), "n": 2, **change})
    assert farthest_points(np.eye(3), 0).tolist() == []
    assert farthest_points(np.eye(3), 2, start=2).tolist() == [2, 0]


@settings(deadline=None)
@given(shares=st.lists(st.floats(0, 1e300), min_size=1, max_size=20), total=st.integers(0, 1000))
def test_largest_remainder_sums_and_keeps_within_one(shares, total):
    if max(shares) == 0:
        with pytest.raises(ValueError, match="zero"):
            largest_remainder(shares, total)
        return
    got = largest_remainder(shares, total)
    exact = np.array(shares) / max(shares)
    exact = exact * total / exact.sum()
    assert got.sum() == total
    assert (np.abs(got - exact) < 1 + 1e-6).all()


def test_largest_remainder_of_the_textbook_case():
    # Hamilton's method for the populations of five parties and 100 seats.
    assert largest_remainder([47_000, 16_000, 15_800, 12_000, 6_100, 3_100], 10).tolist() == [5, 2, 1, 1, 1, 0]
    assert largest_remainder([1, 1, 1], 2).tolist() == [1, 1, 0]  # ties go to the lower index
    # Exact shares 0.75 and 1.5 by turns: all the former go up, and the first 50 of the latter.
    assert largest_remainder([1, 2] * 200, 450).tolist() == [1, 2] * 50 + [1, 1] * 150


@pytest.mark.parametrize(
    ("shares", "total"), [([], 3), ([-1.0, 2], 3), ([np.nan], 3), ([[1.0]], 1), ([1.0], -1), ([1.0], 2.5)]
)
def test_largest_remainder_refuses(shares, total):
    with pytest.raises(ValueError, match=r"shares|total"):
        largest_remainder(shares, total)


@settings(deadline=None, max_examples=200)
@given(
    counts=st.lists(st.integers(0, 5000), min_size=1, max_size=30),
    total=st.integers(0, 3000),
    power=st.sampled_from([0.0, 0.5, 1.0, 50.0, 400.0]),
)
def test_quotas_keep_sum_floor_cap_and_order(counts, total, power):
    sizes = np.array(counts)
    quotas = capped_quotas(sizes, total, power)
    assert quotas.sum() == min(total, sizes.sum())
    assert (quotas <= sizes).all()
    floor = np.floor(np.minimum(total / (2 * len(sizes)), sizes) + 1e-9)
    assert (quotas >= floor).all()
    order = np.argsort(sizes, kind="stable")
    assert (np.diff(quotas[order]) >= -1).all()  # a larger group never gets less, but for rounding


def test_quotas_of_the_reference():
    assert capped_quotas([900, 90, 10], 100).tolist() == [68, 22, 10]
    assert capped_quotas([900, 90, 10], 2000).tolist() == [900, 90, 10]
    assert capped_quotas([400, 100, 100], 40, floor=0).tolist() == [20, 10, 10]  # square roots 20 : 10 : 10
    assert capped_quotas([300, 100], 40, power=1, floor=0).tolist() == [30, 10]
    assert capped_quotas([10_000, 1], 100, floor=50).tolist() == [99, 1]
    assert capped_quotas([900, 100], 40, floor=0, caps=[12, 100]).tolist() == [12, 28]  # square roots would be 30 : 10
    assert capped_quotas([900, 100], 40, caps=[12, 5]).tolist() == [12, 5]


@pytest.mark.parametrize(
    "change",
    [{"counts": [-1]}, {"counts": [1.5]}, {"counts": []}, {"total": -1}, {"power": -1}, {"floor": 60}, {"caps": [1]}],
)
def test_quotas_refuse(change):
    with pytest.raises(ValueError, match=r"counts|total|floor|caps"):
        capped_quotas(**{"counts": [900, 90], "total": 100, **change})
