import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from cure_rows import FAST, separate
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from torch import nn

from assay.errors import InputError
from assay.learning.cure import CUREDiscovery, gcd_accuracy
from assay.learning.cure.training import Watch


@pytest.fixture(scope="module")
def data():
    return separate()


@pytest.fixture(scope="module")
def fitted(data):
    X, _, y = data
    return CUREDiscovery(4, **FAST).fit(X, y)


def right(model, y):
    return gcd_accuracy(y, model.labels_, [0, 1])["all"]


def test_separate_classes_are_found_and_predicted(data, fitted):
    X, true, y = data
    assert right(fitted, true) > 0.97
    assert fitted.labels_[y >= 0].tolist() == y[y >= 0].tolist()
    assert fitted.classes_.tolist() == [0, 1, 2, 3]
    assert fitted.known_classes_.tolist() == [0, 1]
    assert fitted.empty_classes_.tolist() == []
    assert (fitted.predict(X) == fitted.labels_)[y < 0].all()
    proba = fitted.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert (fitted.classes_[proba.argmax(axis=1)] == fitted.predict(X)).all()
    Z = fitted.transform(X)
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-5)
    assert (fitted.classes_[(Z @ fitted.prototypes_.T).argmax(axis=1)] == fitted.predict(X)).all()
    fresh = separate(seed=5)
    assert gcd_accuracy(fresh[1], fitted.predict(fresh[0]), [0, 1])["all"] > 0.95


def test_history_tells_every_pass(fitted):
    history = fitted.history_
    assert history["stage"].value_counts().to_dict() == {"all": 12, "pretrain": 10, "known": 1}
    assert history.loc[history["stage"] == "all", ["js", "distill", "mean_entropy", "see", "ce"]].notna().all(axis=None)
    assert history["loss"].notna().all()


def test_the_same_seed_gives_the_same_and_leaves_no_trace(data, fitted):
    X, _, y = data
    torch.manual_seed(7)
    state, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    again = CUREDiscovery(4, **FAST).fit(X, y)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpys).all()  # noqa: NPY002
    np.testing.assert_array_equal(again.prototypes_, fitted.prototypes_)
    other = CUREDiscovery(4, **FAST | {"random_state": 1}).fit(X, y)
    assert not np.array_equal(other.prototypes_, fitted.prototypes_)


def test_kinds_of_labels(data, fitted):
    X, _, y = data
    names = np.array(["tea", "coffee"])

    def labels_of(column):
        return CUREDiscovery(4, **FAST).fit(X, column)

    words = labels_of([names[1 - k] if k >= 0 else None for k in y])  # coffee is 0 and tea 1: the order is kept
    assert words.classes_.tolist() == ["coffee", "tea", "new-0", "new-1"]
    assert (words.codes_ == fitted.codes_).all()
    for column in (
        pd.Series(y).astype("Int64").mask(y < 0),
        pd.Series(y).where(y >= 0).astype("float64"),
        pd.Series(pd.Categorical.from_codes(y, [0, 1])),
        [int(k) if k >= 0 else None for k in y],
    ):
        assert labels_of(column).labels_.tolist() == fitted.labels_.tolist()
    moved = labels_of(np.where(y >= 0, 10 * y + 5, -1))
    assert moved.classes_.tolist() == [5, 15, 16, 17]
    truth = labels_of([None if k < 0 else bool(k) for k in y])
    assert truth.classes_.tolist() == [0, 1, 2, 3]
    taken = labels_of(["new-0" if k == 0 else "old" if k == 1 else None for k in y])
    assert taken.classes_.tolist() == ["new-0", "old", "new-1", "new-2"]


def test_names_of_classes_and_order_of_rows_change_nothing_else(data):
    """The classes lie so far apart that other draws of views and starts lead to the same classes."""
    X, true, y = data
    model = CUREDiscovery(4, encoder="residual", **FAST)
    assert right(model.fit(X, y), true) == 1
    swapped = clone(model).fit(X, np.where(y >= 0, 1 - y, -1))
    assert (swapped.labels_[true < 2] == 1 - true[true < 2]).all()
    assert right(swapped, true) == 1
    order = np.random.default_rng(0).permutation(len(X))
    moved = clone(model).fit(X[order], y[order])
    assert (moved.labels_[true[order] < 2] == true[order][true[order] < 2]).all()
    assert right(moved, true[order]) == 1


def test_the_number_of_classes_is_estimated(data):
    X, true, _ = data
    y = np.where((true < 3) & (np.arange(len(true)) % 2 == 0), true, -1)
    model = CUREDiscovery("auto", **FAST).fit(X, y)
    assert model.n_classes_ == 4
    assert model.k_scores_["k"].is_monotonic_increasing


def test_without_gaps_it_is_a_classifier(data):
    X, true, _ = data
    model = CUREDiscovery("auto", **FAST).fit(X, true)
    assert model.n_classes_ == 4
    assert model.score(X, true) > 0.95
    assert model.labels_.tolist() == true.tolist()


def test_frames_lists_and_tensors(data, fitted):
    X, _, y = data
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(6)])
    model = CUREDiscovery(4, **FAST).fit(frame, pd.Series(y))
    np.testing.assert_array_equal(model.prototypes_, fitted.prototypes_)
    assert (model.predict(frame) == fitted.predict(X)).all()
    assert model.feature_names_in_.tolist() == list(frame)
    with pytest.raises(InputError, match="columns of fit in their order; 'other'"):
        model.predict(frame.rename(columns={"c0": "other"}))
    with pytest.raises(InputError, match="columns of fit in their order"):
        model.predict(frame[frame.columns[::-1]])
    assert (fitted.predict(X.tolist()) == fitted.predict(torch.from_numpy(X))).all()


def test_units_of_the_columns_do_not_count(data, fitted):
    X, _, y = data
    units = 10.0 ** np.arange(-150, 150, 50)
    model = CUREDiscovery(4, **FAST).fit((X + 3) * units, y)
    assert (model.labels_ == fitted.labels_).mean() > 0.97
    np.testing.assert_allclose(model.predict_proba((X + 3) * units), fitted.predict_proba(X), atol=0.02)


def test_images_get_the_views_of_images():
    from assay.learning.cure.views import image_view, tabular_view, view_by_name

    assert view_by_name("auto", 3) is view_by_name("auto", 4) is image_view
    assert view_by_name("auto", 2) is tabular_view
    rng = np.random.default_rng(0)
    X = rng.random((60, 6, 8)) * 0.2
    X[:20, :3] += 1
    X[20:40, 3:] += 1
    X[40:, :, :4] += 1
    y = np.where(np.arange(60) % 2, -1, np.repeat([0, 1, -1], 20))
    model = CUREDiscovery(3, **FAST | {"pretrain_epochs": 20}).fit(X, y)
    assert gcd_accuracy(np.repeat([0, 1, 2], 20), model.labels_, [0, 1])["all"] > 0.9
    colour = CUREDiscovery(3, **FAST).fit(np.stack([X] * 3, axis=1), y)
    assert colour.transform(np.stack([X] * 3, axis=1)).shape == (60, 64)
    with pytest.raises(InputError, match="rows of shape"):
        model.predict(X[:, :5])


def test_views_of_images_keep_what_is_there():
    from assay.learning.cure.views import image_view

    image = torch.zeros(200, 1, 9, 9)
    image[:, :, 3:6, 3:6] = 1.0
    view = image_view(image, torch.Generator().manual_seed(0))
    assert view.shape == image.shape
    inside = view.mean(dim=0)[0]
    assert float(inside[4, 4]) > 0.9
    assert abs(float(inside[0, 0])) < 0.05  # from outside comes 0
    assert float(view.sum(dim=(1, 2, 3)).mean()) == pytest.approx(9, rel=0.1)
    torch.testing.assert_close(view, image_view(image, torch.Generator().manual_seed(0)))


def test_views_of_tables_swap_features_of_the_same_column():
    from assay.learning.cure.views import tabular_view

    batch = torch.arange(500.0)[:, None] + 1e4 * torch.arange(3.0)
    view = tabular_view(batch, torch.Generator().manual_seed(0))
    changed = (view - batch).abs() > 0.6
    assert 0.12 < float(changed.float().mean()) < 0.18
    assert ((view - 1e4 * torch.arange(3.0)) > -1).all()
    assert ((view - 1e4 * torch.arange(3.0)) < 501).all()


def test_an_encoder_of_ones_own_is_copied(data):
    X, true, y = data
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 5)).eval()
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    model = CUREDiscovery(4, encoder=mine, dim=5, **FAST).fit(X, y)
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())
    assert not mine.training
    assert right(model, true) > 0.9
    assert model.get_params()["encoder"] is mine
    state = torch.get_rng_state()
    again = clone(model).set_params(encoder=mine).fit(X, y)  # dropout draws by the same seed too
    np.testing.assert_array_equal(again.prototypes_, model.prototypes_)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_works_in_place_changes_no_row(data):
    X, _, y = data
    rows = X.astype(np.float32)
    before = rows.copy()
    rows.flags.writeable = False
    mine = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 5))
    views = []

    def noisy(batch, generator):
        views.append(batch.add_(torch.randn(batch.shape, generator=generator)))
        return batch

    model = CUREDiscovery(4, encoder=mine, dim=5, augment=noisy, **FAST)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # also torch's of arrays that cannot be written
        first = model.fit(rows, y).predict_proba(rows)
    assert (rows == before).all()
    np.testing.assert_array_equal(model.predict_proba(rows), first)
    assert not torch.equal(views[0], views[1])


def test_divergence_is_said(data):
    X, _, y = data
    for more in ({"lr": 1e30}, {"entropy": 1e300}):
        with pytest.raises(InputError, match="diverged"):
            CUREDiscovery(4, **FAST | {"epochs": (1, 3)}, **more).fit(X, y)

    class Logarithm(nn.Module):
        def forward(self, x):
            return torch.log(x)

    idle = {"augment": lambda batch, _: batch, "epochs": (0, 0)}
    model = CUREDiscovery(4, encoder=Logarithm(), dim=6, **FAST | idle).fit(np.abs(X) + 1, y)
    with pytest.raises(InputError, match="X has rows for which the encoder gives NaN"):
        model.predict(-np.abs(X))
    with pytest.raises(InputError, match="encoder gave NaN"):
        clone(model).fit(-np.abs(X), y)


def test_features_of_another_network_start_as_they_are(data):
    X, true, y = data
    idle = CUREDiscovery(4, encoder="residual", **FAST | {"epochs": (0, 0)}).fit(X, y)
    scaled = (X - X.mean(0)) / X.std(0)
    Z = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    np.testing.assert_allclose(idle.transform(X) @ idle.transform(X).T, Z @ Z.T, atol=1e-5)
    assert right(CUREDiscovery(4, encoder="residual", **FAST).fit(X, y), true) == 1
    narrow = CUREDiscovery(4, encoder="residual", dim=2, **FAST).fit(X, y)
    assert narrow.transform(X).shape == (120, 2)


def test_training_ends_when_no_row_changes_class(data):
    X, _, y = data
    model = CUREDiscovery(4, **FAST | {"epochs": (1, 40)}, encoder="residual", patience=2).fit(X, y)
    passes = model.history_[model.history_["stage"] == "all"]
    assert len(passes) < 40
    assert (passes["changed"].iloc[-2:] <= 1e-3).all()
    assert len(passes) > 0.3 * 40  # not while the teacher cools down
    never = CUREDiscovery(4, **FAST | {"epochs": (1, 15)}, patience=None).fit(X, y)
    assert (never.history_["stage"] == "all").sum() == 15


def test_a_collapse_is_said(data):
    X, _, y = data
    watch = Watch(np.ones(10, bool), 0.0, None)
    for _ in range(2):
        watch.look(np.zeros(10, int), False)
    with pytest.warns(ConvergenceWarning, match="raise entropy"):
        watch.look(np.zeros(10, int), False)
    model = CUREDiscovery(3, **FAST)
    with pytest.warns(ConvergenceWarning, match="raise entropy"):
        model.fit(np.ones_like(X), y)
    assert (model.history_["largest"].dropna() == 1).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spread = Watch(np.ones(10, bool), 0.0, None)
        for _ in range(9):
            spread.look(np.r_[np.zeros(9, int), 1], False)


def test_new_classes_without_rows_are_listed(data):
    X, _, y = data
    flat = np.ones_like(X)
    model = CUREDiscovery(6, **FAST)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(flat, y)
    assert any("n_classes may be too large" in str(w.message) for w in caught)
    assert len(model.empty_classes_) >= 3
    assert not set(model.empty_classes_) & set(model.labels_.tolist())


def test_bars_are_for_the_error_output_only(data, capsys):
    X, _, y = data
    CUREDiscovery(4, **FAST | {"epochs": (1, 1), "pretrain_epochs": 1}, verbose=True).fit(X, y)
    assert capsys.readouterr().out == ""
    CUREDiscovery(4, **FAST | {"epochs": (1, 1), "pretrain_epochs": 1}).fit(X, y)
    assert capsys.readouterr().err == ""


def test_a_fitted_one_is_saved_and_read(data, fitted, tmp_path):
    X, _, y = data
    fitted.save(tmp_path / "m")
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["cure.json", "cure.safetensors"]
    again = CUREDiscovery.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.labels_.tolist() == fitted.labels_.tolist()
    assert again.get_params() == fitted.get_params() | {"device": "auto"}
    pd.testing.assert_frame_equal(again.history_, fitted.history_, check_dtype=False)
    with pytest.raises(InputError, match="not empty"):
        fitted.save(tmp_path / "m")
    with pytest.raises(InputError, match="give none"):
        CUREDiscovery.load(tmp_path / "m", encoder=nn.Linear(2, 2))
    words = CUREDiscovery(4, encoder="residual", **FAST).fit(X, ["a" if k == 0 else None for k in y])
    words.save(tmp_path / "w")
    assert CUREDiscovery.load(tmp_path / "w").labels_.tolist() == words.labels_.tolist()


def test_an_encoder_of_ones_own_is_given_again(data, tmp_path):
    X, _, y = data
    model = CUREDiscovery(4, encoder=nn.Linear(6, 5), dim=5, augment=lambda batch, _: 1.0 * batch, **FAST).fit(X, y)
    model.save(tmp_path / "m")
    with pytest.raises(InputError, match="encoder of your own"):
        CUREDiscovery.load(tmp_path / "m")
    with pytest.raises(InputError, match="does not fit the encoder"):
        CUREDiscovery.load(tmp_path / "m", encoder=nn.Linear(6, 4))
    again = CUREDiscovery.load(tmp_path / "m", encoder=nn.Linear(6, 5))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_a_damaged_folder_is_refused(fitted, tmp_path):
    folder = fitted.save(tmp_path / "m")
    text = (folder / "cure.json").read_text()
    for bad in (text[:50], text.replace('"n_known": 2', '"n_known": 9'), text.replace('"classes"', '"klasses"')):
        (folder / "cure.json").write_text(bad)
        with pytest.raises(InputError):
            CUREDiscovery.load(folder)
    with pytest.raises(InputError, match="no folder"):
        CUREDiscovery.load(tmp_path / "nothing")


def test_it_is_an_estimator(data, fitted):
    X, _, _ = data
    assert clone(fitted).get_params() == fitted.get_params()
    twin = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(twin.predict(X), fitted.predict(X))
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)
    with pytest.raises(NotFittedError):
        clone(fitted).save("x")


@pytest.mark.parametrize(
    ("parameters", "change", "message"),
    [
        ({}, lambda X, y: (X, np.full(len(y), -1)), "y has no label"),
        ({"n_classes": "auto"}, lambda X, y: (X, np.where(y == 0, 0, -1)), "at least two known classes"),
        ({"n_classes": 1}, lambda X, y: (X, y), "n_classes must be at least 2"),
        ({"n_classes": 121}, lambda X, y: (X, y), "n_classes must be at most 120"),
        ({"n_classes": 100}, lambda X, y: (X, y), "asks for 98 new classes"),
        ({"n_classes": "many"}, lambda X, y: (X, y), "n_classes must be 'auto'"),
        ({"n_classes": 3.0}, lambda X, y: (X, y), "n_classes must be a whole number"),
        ({}, lambda X, y: (np.where(X > 14, np.nan, X), y), "X must be finite: nan stands in row"),
        ({}, lambda X, y: (np.where(X > 14, np.inf, X), y), "X must be finite: inf"),
        ({}, lambda X, y: (X[:, :0], y), "no empty axis"),
        ({}, lambda X, y: (X[0], y), "X must have rows and columns"),
        ({}, lambda X, y: (X + 1j, y), "real numbers"),
        ({}, lambda X, y: (X.astype(str), y), "real numbers"),
        ({}, lambda X, y: (pd.DataFrame({"a": ["x"] * len(y)}), y), "the column 'a' does not"),
        ({}, lambda X, y: (pd.DataFrame(X + 1j), y), "the column '0' does not"),
        ({"n_classes": np.array([4, 4])}, lambda X, y: (X, y), "n_classes must be a whole number"),
        ({}, lambda X, y: (X, y[:-1]), "y must have as many rows"),
        ({}, lambda X, y: (X, y[:, None]), "y must have one dimension"),
        ({}, lambda X, y: (X, np.where(y >= 0, y + 0.5, np.nan)), "something else"),
        ({}, lambda X, y: (X, ["a" if k == 0 else 3 if k == 1 else None for k in y]), "not both"),
        ({"batch_size": 1}, lambda X, y: (X, y), "batch_size must be"),
        ({"batch_size": 2.5}, lambda X, y: (X, y), "batch_size must be"),
        ({"dim": 0}, lambda X, y: (X, y), "dim must be"),
        ({"epochs": 3}, lambda X, y: (X, y), "epochs must be two numbers"),
        ({"epochs": (1, -1)}, lambda X, y: (X, y), "epochs must be a whole number"),
        ({"lr": 0.0}, lambda X, y: (X, y), "lr must be"),
        ({"entropy": -1.0}, lambda X, y: (X, y), "entropy must be"),
        ({"see2": float("nan")}, lambda X, y: (X, y), "see2 must be"),
        ({"sup_weight": 1.5}, lambda X, y: (X, y), "sup_weight must lie"),
        ({"patience": 0}, lambda X, y: (X, y), "patience must be"),
        ({"encoder": "vit"}, lambda X, y: (X, y), "encoder must be"),
        ({"encoder": nn.Linear(6, 3), "dim": 4}, lambda X, y: (X, y), "encoder must give"),
        ({"augment": "image"}, lambda X, y: (X, y), "augment must be"),
        ({"encoder": nn.Flatten()}, lambda X, y: (X[:, :, None, None, None], y), "augment must be"),
        ({"augment": lambda batch, _: batch[:, :2]}, lambda X, y: (X, y), "augment must return"),
        ({"augment": lambda batch, _: None}, lambda X, y: (X, y), "augment must return"),
        ({"random_state": -1}, lambda X, y: (X, y), "random_state must lie"),
    ],
)
def test_bad_input_is_named(data, parameters, change, message):
    X, _, y = data
    with pytest.raises(InputError, match=message):
        CUREDiscovery(**{"n_classes": 4, **FAST, **parameters}).fit(*change(X, y))


def test_what_is_no_table_is_named(data):
    from scipy import sparse

    X, _, y = data
    with pytest.raises(TypeError, match="X is sparse"):
        CUREDiscovery(4, **FAST).fit(sparse.csr_array(X), y)
    with pytest.raises(TypeError, match="X must be"):
        CUREDiscovery(4, **FAST).fit(None, y)
    with pytest.raises(TypeError, match="y must be"):
        CUREDiscovery(4, **FAST).fit(X, None)
