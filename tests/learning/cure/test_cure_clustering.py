import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from assay.errors import InputError
from assay.learning.cure import estimate_n_classes, estimation, gcd_accuracy, seeded_kmeans
from assay.learning.cure.clustering import matched_first
from assay.learning.cure.estimation import chosen


def blobs(n_blobs, each, d=6, noise=0.15, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_blobs, d))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    y = np.repeat(np.arange(n_blobs), each)
    return (centres[y] + noise * rng.normal(size=(len(y), d))).astype(np.float32), y


def test_without_labels_it_is_k_means_on_the_sphere():
    Z, _ = blobs(7, 40, noise=0.3)
    rows = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    ours = seeded_kmeans(Z, 7, np.full(len(Z), -1), n_init=20, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(ours.centroids, axis=1), 1, atol=1e-5)
    assert (ours.labels == (rows @ ours.centroids.T).argmax(axis=1)).all()
    assert ours.inertia == pytest.approx(2 * len(Z) - 2 * (rows * ours.centroids[ours.labels]).sum(), rel=1e-4)

    def cosines(labels):
        """The most that unit centroids can reach for these clusters: the lengths of their sums."""
        return sum(np.linalg.norm(rows[labels == k].sum(axis=0)) for k in range(7))

    peer = KMeans(7, n_init=20, random_state=0).fit(rows)
    assert cosines(ours.labels) >= cosines(peer.labels_) * 0.999
    assert (rows * ours.centroids[ours.labels]).sum() == pytest.approx(cosines(ours.labels), rel=1e-3)


def test_labelled_rows_stay_in_the_cluster_of_their_class():
    Z, y = blobs(6, 30, noise=0.6, seed=1)
    labels = np.where((y < 3) & (np.arange(len(y)) % 2 == 0), y, -1)
    found = seeded_kmeans(Z, 6, labels, random_state=0)
    assert (found.labels[labels >= 0] == labels[labels >= 0]).all()
    assert set(found.labels) == set(range(6))
    free = labels < 0
    nearest = (Z[free] @ found.centroids.T).argmax(axis=1)
    assert (found.labels[free] == nearest).all()


def test_labels_decide_where_clusters_alone_cannot():
    """Two classes in one heap: k-means would halve it anywhere, labelled rows say which half is whose."""
    rng = np.random.default_rng(0)
    heap = np.eye(3)[[0] * 60] + rng.normal(size=(60, 3)) * [0, 0.5, 0.05]
    Z = np.concatenate([heap, np.eye(3)[[2] * 10] * 4])
    y = np.r_[np.where(Z[:60, 2] > 0, 0, 1), np.full(10, -1)]
    y[1:60:3] = -1
    found = seeded_kmeans(Z, 3, y, random_state=0)
    assert (found.labels[60:] == 2).all()
    assert (found.labels[:60][y[:60] >= 0] == y[:60][y[:60] >= 0]).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(1, 12), st.integers(0, 3), st.integers(0, 10))
def test_any_rows_are_clustered_or_refused(n, k, n_known, seed):
    rng = np.random.default_rng(seed)
    Z = np.round(rng.normal(size=(n, 3)), int(rng.integers(0, 2))).astype(np.float32)  # many equal rows
    labels = np.full(n, -1)
    labels[: min(n, n_known)] = np.arange(min(n, n_known))
    known = min(n, n_known)
    if k < max(1, known) or k - known > n - known:
        with pytest.raises(InputError, match="n_clusters"):
            seeded_kmeans(Z, k, labels, random_state=0)
        return
    found = seeded_kmeans(Z, k, labels, random_state=0)
    assert found.labels.shape == (n,)
    assert 0 <= found.labels.min() <= found.labels.max() < k
    assert np.isfinite(found.centroids).all()
    again = seeded_kmeans(Z, k, labels, random_state=0)
    assert (found.labels == again.labels).all()


def test_size_of_rows_does_not_count():
    Z, y = blobs(4, 20)
    labels = np.where(y < 2, y, -1)
    plain = seeded_kmeans(Z, 4, labels, random_state=0)
    before = Z.copy()
    for size in (1e-200, 1e-30, 1e30, 1e200):
        found = seeded_kmeans(Z.astype(float) * size, 4, labels, random_state=0)
        assert (found.labels == plain.labels).all()
        np.testing.assert_allclose(found.centroids, plain.centroids, atol=1e-5)
    assert (before == Z).all()


@pytest.mark.parametrize(
    ("Z", "y", "more", "message"),
    [
        (np.full((4, 2), np.nan), [0, 1, -1, -1], {}, "Z must be finite"),
        (np.ones(4), [0, 1, -1, -1], {}, "Z must be a numeric matrix"),
        ([[1.0], [1.0, 2.0]], [0, 1], {}, "Z must have rows of the same length"),
        (np.eye(4), [0, 1, -1], {}, r"y must be \(4,\)"),
        (np.eye(4), [0, 0.5, -1, -1], {}, "y must be whole numbers"),
        (np.eye(4), [0, -2, -1, -1], {}, "y must hold classes"),
        (np.eye(4), [0, 2, -1, -1], {}, "none of 1"),
        (np.eye(4), [0, 1, -1, -1], {"n_init": 0}, "n_init must be"),
        (np.eye(4), [0, 1, -1, -1], {"max_iter": 0}, "max_iter must be"),
    ],
)
def test_bad_input_to_the_clustering_is_named(Z, y, more, message):
    with pytest.raises(InputError, match=message):
        seeded_kmeans(Z, 3, y, **more)


def test_rare_classes_survive_the_sample(monkeypatch):
    monkeypatch.setattr(estimation, "MOST_ROWS", 60)
    Z, y = blobs(4, 100)
    labels = np.full(len(y), -1)
    labels[[0, 100, 200]] = [0, 1, 2]
    for seed in range(5):
        found, _ = estimate_n_classes(Z, labels, k_max=5, random_state=seed)
        assert 3 <= found <= 5


def test_clusters_are_numbered_by_the_prototypes_that_they_fit():
    centroids = np.eye(3, dtype=np.float32)
    labels, moved = matched_first(np.array([0, 1, 2, 2]), centroids, centroids[[2, 0]])
    assert labels.tolist() == [1, 2, 0, 0]
    assert moved.tolist() == centroids[[2, 0, 1]].tolist()


def test_the_number_of_separate_clusters_is_found():
    for k in (6, 9):
        Z, y = blobs(k, 60, d=16, noise=0.1, seed=k)
        labels = np.where((y < 3) & (np.arange(len(y)) % 2 == 0), y, -1)
        found, scores = estimate_n_classes(Z, labels, random_state=0)
        assert found == k
        assert list(scores) == ["k", "accuracy", "silhouette"]
        assert scores["k"].is_monotonic_increasing
        assert {k - 1, k, k + 1} <= set(scores["k"])


def test_of_good_numbers_the_largest_is_chosen():
    assert chosen({4: (0.9, 0.2), 6: (0.88, 0.3), 8: (0.86, 0.29), 10: (0.7, 0.4)}) == 8
    assert chosen({4: (0.9, 0.4), 6: (0.88, 0.3), 8: (0.86, 0.29)}) == 4  # others are no clusters
    assert chosen({4: (0.5, -0.02), 6: (0.5, -0.0205)}) == 6


def test_the_range_of_the_number_is_kept():
    Z, y = blobs(4, 20)
    labels = np.where(y < 3, y, -1)
    found, scores = estimate_n_classes(Z, labels, k_max=3, random_state=0)
    assert found == 3
    assert scores["k"].tolist() == [3]
    _, scores = estimate_n_classes(Z, labels, random_state=0)
    assert scores["k"].max() <= max(4, len(Z) // 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Z, y: (Z, np.where(y == 0, 0, -1), {}), "at least two known classes"),
        (lambda Z, y: (Z, y + 1, {}), "numbered 0 to C - 1"),
        (lambda Z, y: (Z[:-1], y, {}), "y must be"),
        (lambda Z, y: (np.where(Z > 1, np.nan, Z), y, {}), "Z must be finite"),
        (lambda Z, y: (Z.astype(str), y, {}), "Z must be a numeric matrix"),
        (lambda Z, y: (Z, np.where(y == 0, -2, y - 1), {}), "y must hold classes numbered"),
        (lambda Z, y: (Z, y, {"k_max": 5.5}), "k_max must be a whole number"),
        (lambda Z, y: (Z, y, {"k_max": 1}), "k_max must be at least"),
    ],
)
def test_bad_input_to_the_estimate_is_named(change, message):
    Z, y = blobs(3, 20, noise=1.0)
    Z, y, more = change(Z, y)
    with pytest.raises(InputError, match=message):
        estimate_n_classes(Z, y, **more)


def test_accuracy_by_one_matching():
    found = gcd_accuracy([0, 0, 1, 1, 2, 2], [5, 5, 3, 3, 3, 4], known_classes=[0, 1])
    assert found == pytest.approx({"all": 5 / 6, "known": 1, "novel": 1 / 2, "gap": 1 / 2})
    # A matching for each group apart would give cluster 3 to class 1 and to class 2 as well.
    found = gcd_accuracy([1, 1, 2, 2, 2], [3, 3, 3, 3, 3], known_classes=[1])
    assert found["known"] == 0
    assert found["novel"] == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), min_size=1), st.permutations(range(6)))
def test_accuracy_knows_no_names_of_clusters(rows, names):
    true, pred = zip(*rows, strict=True)
    one = gcd_accuracy(true, pred, ["a"])
    other = gcd_accuracy(true, [f"cluster {names[p]}" for p in pred], ["a"])
    assert one["all"] == other["all"]
    share = max(np.unique(true, return_counts=True)[1]) / len(true)
    assert gcd_accuracy(true, [0] * len(true), ["a"])["all"] == pytest.approx(share)
    assert gcd_accuracy(true, true, ["a"])["all"] == 1
    if "a" not in true:
        assert np.isnan(one["known"])


def test_bad_input_to_the_accuracy_is_named():
    with pytest.raises(InputError, match="y_true and y_pred"):
        gcd_accuracy([0, 1], [0], [0])
    with pytest.raises(InputError, match="y_true and y_pred"):
        gcd_accuracy([], [], [0])
    with pytest.raises(InputError, match="y_true must not have missing"):
        gcd_accuracy(["a", None], [0, 1], ["a"])
    with pytest.raises(InputError, match="known_classes must be a list"):
        gcd_accuracy(["a", "b"], [0, 1], "ab")
    with pytest.raises(InputError, match="y_true and y_pred"):
        gcd_accuracy([[0], [1, 2]], [0, 1], [0])
    mixed = np.array(["a", 1], dtype=object)
    assert gcd_accuracy(mixed, [0, 1], ["a"]) == {"all": 1, "known": 1, "novel": 1, "gap": 0}
