import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from llp_flow_bags import clouds, fast
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from assay.errors import InputError
from assay.learning.llp_flow import LLPFlowClassifier
from assay.learning.llp_flow.training import BagData


def test_it_learns_single_rows_from_proportions():
    X, bags, pi, y = clouds(n=240)
    clf = LLPFlowClassifier(epochs=(15, 5), flow_steps=30, outer=1, device="cpu", random_state=0).fit(X, bags, pi)
    assert balanced_accuracy_score(y, clf.predict(X)) > 0.9  # it saw no label
    assert clf.report()["bag_error"] < 0.05
    assert clf.bag_score(X, bags, pi) == pytest.approx(clf.report()["bag_error"], abs=1e-6)
    np.testing.assert_allclose(clf.predict_proba(X).sum(axis=1), 1, rtol=1e-12)
    assert clf.anchors_.shape == (3 * 30, 32)
    assert clf.transform(X).shape == (len(X), 32)


def test_the_anchors_land_on_their_classes():
    X, bags, pi, y = clouds(n=240)
    clf = LLPFlowClassifier(epochs=(15, 5), flow_steps=30, outer=1, device="cpu", random_state=0).fit(X, bags, pi)
    Z = clf.transform(X)
    nearest = y[((clf.anchors_[:, None] - Z[None]) ** 2).sum(-1).argmin(axis=1)]
    assert (nearest == clf.anchor_labels_).mean() > 0.9


def test_without_weight_for_the_anchors_it_is_the_bag_loss_alone_bit_for_bit():
    X, bags, pi, _ = clouds()
    ours = fast(lam_anchor=0.0, outer=2, epochs=(3, 2)).fit(X, bags, pi)
    bag = fast(outer=0, epochs=(7, 0)).fit(X, bags, pi)
    np.testing.assert_array_equal(ours.predict_proba(X), bag.predict_proba(X))
    np.testing.assert_array_equal(ours.history_["bag"], bag.history_["bag"])
    assert not hasattr(ours, "anchors_")
    # The order of bags does not depend on what is drawn for anchors: until the first round all runs are the same.
    with_anchors = fast(lam_anchor=1.0, epochs=(3, 2)).fit(X, bags, pi)
    first = 3 * len(bag.history_["bag"]) // 7
    np.testing.assert_array_equal(with_anchors.history_["bag"][:first], bag.history_["bag"][:first])
    assert (with_anchors.predict_proba(X) != bag.predict_proba(X)).any()


def test_same_seed_same_result_and_no_trace():
    X, bags, pi, _ = clouds()
    torch.manual_seed(5)
    before, before_numpy = torch.get_rng_state(), np.random.mtrand._rand.get_state()[1].copy()
    first = fast().fit(X, bags, pi).predict_proba(X)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.mtrand._rand.get_state()[1], before_numpy)
    torch.manual_seed(6)
    np.testing.assert_array_equal(first, fast().fit(X, bags, pi).predict_proba(X))
    assert (first != fast(random_state=1).fit(X, bags, pi).predict_proba(X)).any()
    for seed in (np.random.default_rng(0), np.random.RandomState(0), None):
        fast(random_state=seed).fit(X, bags, pi)


def test_the_order_of_rows_in_a_bag_and_the_names_of_bags_change_nothing_but_rounding():
    X, bags, pi, _ = clouds()
    start = fast(outer=0, epochs=(3, 0)).fit(X, bags, pi).predict_proba(X)
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = fast(outer=0, epochs=(3, 0)).fit(X[order], bags[order], pi).predict_proba(X)
    np.testing.assert_allclose(start, shuffled, atol=1e-5)
    names = np.array([f"bag {b:02}" for b in range(len(pi))])
    named = fast(outer=0, epochs=(3, 0)).fit(X, names[bags], dict(zip(names, pi, strict=True))).predict_proba(X)
    np.testing.assert_array_equal(start, named)


def test_permuting_classes_permutes_the_outputs():
    """The last layer of the start is what tells classes apart; with equal starts the columns follow the classes."""
    X, bags, pi, _ = clouds()
    table = pd.DataFrame(pi, columns=["a", "b", "c"])
    one = fast().fit(X, bags, table)
    other = fast(classes=["c", "a", "b"]).fit(X, bags, table)
    assert other.classes_.tolist() == ["c", "a", "b"]
    assert set(one.predict(X)) <= {"a", "b", "c"}
    again = fast().fit(X, bags, table[["c", "a", "b"]])
    np.testing.assert_array_equal(other.predict_proba(X), again.predict_proba(X))


def permuted_start(clf, monkeypatch, order):
    """Give the network, when it is built, the last layer of another order of classes."""
    build = type(clf)._build

    def changed(self, rows, device, classes):
        X = build(self, rows, device, classes)
        last = self.network_.head[-1]
        with torch.no_grad():
            last.weight.copy_(last.weight[order].clone())
            last.bias.copy_(last.bias[order].clone())
        return X

    monkeypatch.setattr(type(clf), "_build", changed)
    return clf


def test_from_a_permuted_start_permuted_classes_give_permuted_probabilities(monkeypatch):
    X, bags, pi, _ = clouds()
    order = [2, 0, 1]
    straight = fast(lam_anchor=0.0).fit(X, bags, pi).predict_proba(X)
    permuted = permuted_start(fast(lam_anchor=0.0), monkeypatch, order).fit(X, bags, pi[:, order]).predict_proba(X)
    np.testing.assert_allclose(permuted, straight[:, order], atol=1e-5)


def test_classes_that_no_bag_has_stay_known_and_their_anchors_where_they_were():
    X, bags, pi, _ = clouds()
    wide = np.column_stack([pi, np.zeros(len(pi))])
    with pytest.warns(UserWarning, match="no bag has class 3"):
        moved = fast(flow_steps=5, outer=1).fit(X, bags, wide)
    with pytest.warns(UserWarning, match="no bag has class 3"):
        still = fast(flow_steps=0, outer=1).fit(X, bags, wide)
    assert moved.classes_.tolist() == [0, 1, 2, 3]
    same = (moved.anchors_ == still.anchors_).all(axis=1)
    assert same[moved.anchor_labels_ == 3].all()
    assert not same[moved.anchor_labels_ == 0].any()


def test_bags_of_one_row_are_labelled_rows():
    X, _, _, y = clouds(n=150)
    clf = fast(epochs=(30, 10), lr=0.01).fit(X, np.arange(len(X)), np.eye(3)[y])
    assert (clf.predict(X) == y).mean() > 0.9


def test_small_bags_take_a_step_together_and_every_row_counts_once_a_pass():
    X = torch.arange(50.0)[:, None]
    index = np.repeat(np.arange(10), 5)
    data = BagData.sort(X, index, np.full((10, 2), 0.5))
    batches = list(data.batches(np.arange(10)[::-1]))
    assert [len(rows) for rows, _, _ in batches] == [35, 15]
    assert [len(pi) for _, _, pi in batches] == [7, 3]
    assert sorted(torch.cat([rows for rows, _, _ in batches])[:, 0].tolist()) == list(range(50))
    rows, of, _ = batches[0]
    assert rows[of == 0, 0].tolist() == [45, 46, 47, 48, 49]


def test_large_bags_are_cut_for_the_transport_only(monkeypatch):
    from assay.learning.llp_flow import flow

    seen = []
    real = flow.plan_and_gradient
    monkeypatch.setattr(flow, "plan_and_gradient", lambda Z, *rest: seen.append(Z.copy()) or real(Z, *rest))
    X, bags, pi, _ = clouds(size=30)
    fast(max_rows_per_bag=7).fit(X, bags, pi)
    assert {len(Z) for Z in seen} == {7}
    assert len({Z.tobytes() for Z in seen}) == len(seen)  # drawn anew


def test_held_out_bags_choose_the_pass():
    X, bags, pi, _ = clouds(n=200)
    clf = fast(validation_bags=0.3, epochs=(6, 3), lr=0.05).fit(X, bags, pi)
    losses = clf.history_["validation"]
    assert len(losses) == 6 + 2 * 3
    # What was trained on is fewer bags than there are.
    assert len(clf.history_["bag"]) < 12 * len(pi)
    last = fast(validation_bags=0.0, epochs=(6, 3), lr=0.05).fit(X, bags, pi)
    assert len(last.history_["validation"]) == 0
    few = bags < 4
    with pytest.warns(UserWarning, match="validation_bags=0.3 is ignored: there are 4 bags, fewer than 8"):
        fast(validation_bags=0.3).fit(X[few], bags[few], pi[:4])


def test_class_weights_reach_both_losses():
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.1).astype(int)
    X = y[:, None] * 1.0 + rng.standard_normal((400, 2))
    bags = np.argsort(np.argsort(rng.random(400) + y)) // 40
    pi = np.array([y[bags == b].mean() for b in range(10)])
    share = {}
    for name, weight in (("none", None), ("balanced", "balanced"), ("dict", {1: 9.0}), ("ones", {0: 1.0, 1: 1.0})):
        clf = fast(class_weight=weight, epochs=(12, 3), lr=0.01, lam_anchor=1.0).fit(X, bags, pi)
        share[name] = clf.predict_proba(X)[:, 1].mean()
    assert share["balanced"] > share["none"] + 0.05
    assert share["dict"] > share["none"] + 0.05
    assert share["ones"] == share["none"]


@pytest.mark.parametrize(
    "parameters", [{"space": "input"}, {"anchor_start": "noise"}, {"label_cost": 10.0}, {"head_hidden": 0}]
)
def test_variants_work(parameters):
    X, bags, pi, _ = clouds()
    clf = fast(**parameters).fit(X, bags, pi)
    assert np.isfinite(clf.predict_proba(X)).all()
    assert clf.anchors_.shape == (15, 4 if parameters.get("space") else 3)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Dropout(0.5), nn.Flatten())

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("space", ["features", "input"])
def test_an_encoder_of_images_is_copied_and_trained(space):
    X, bags, pi, _ = clouds(columns=16)
    images = X.reshape(-1, 1, 4, 4)
    encoder = Images()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    clf = fast(encoder=encoder, space=space).fit(images, bags, pi)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    assert not torch.equal(clf.network_.encoder.net[0].weight, encoder.net[0].weight)
    assert clf.predict(images).shape == (len(X),)
    assert clf.anchors_.shape == (15, 8 if space == "features" else 16)
    again = fast(encoder=encoder, space=space).fit(images, bags, pi)  # dropout is seeded too
    np.testing.assert_array_equal(clf.predict_proba(images), again.predict_proba(images))


def test_frozen_parameters_stay_frozen():
    X, bags, pi, _ = clouds()
    encoder = nn.Linear(4, 5)
    encoder.weight.requires_grad_(False)
    clf = fast(encoder=encoder).fit(X, bags, pi)
    assert torch.equal(clf.network_.encoder.weight, encoder.weight)
    assert not torch.equal(clf.network_.encoder.bias, encoder.bias)
    fast(encoder=nn.Identity()).fit(X, bags, pi)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda x: x, "encoder must be a torch module"),
        (nn.Linear(3, 2), r"encoder cannot take rows of shape \(4,\)"),
        (nn.Unflatten(1, (2, 2)), "encoder must return features"),
    ],
)
def test_an_encoder_that_is_none(encoder, message):
    X, bags, pi, _ = clouds()
    with pytest.raises(InputError, match=message):
        fast(encoder=encoder).fit(X, bags, pi)


def test_pipelines_hand_bags_over_by_name():
    X, bags, pi, _ = clouds()
    direct = fast().fit(X, bags, pi)
    pipe = make_pipeline(StandardScaler(), fast())
    pipe.fit(X, llpflowclassifier__bags=bags, llpflowclassifier__proportions=pi)
    assert pipe.predict(X).shape == (len(X),)
    np.testing.assert_allclose(pipe.predict_proba(X), direct.predict_proba(X), atol=1e-4)  # standardised twice
    with config_context(enable_metadata_routing=True):
        request = fast().set_fit_request(bags=True, proportions=True)
        assert request.get_metadata_routing().fit.requests == {"bags": True, "proportions": True}
    with pytest.raises(InputError, match="bags must be given once"):
        fast().fit(X, bags, pi, bags=bags)


def test_frames_keep_their_names():
    X, bags, pi, _ = clouds()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    clf = fast().fit(frame, pd.Series(bags), pi)
    assert clf.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(clf.predict_proba(frame), clf.predict_proba(X))
    with pytest.raises(InputError, match="X has the column 'b' where 'a' was fitted"):
        clf.predict(frame[["b", "a", "c", "d"]])
    with pytest.raises(InputError, match="X has 3 columns, and 4 were fitted"):
        clf.predict(X[:, :3])
    assert not hasattr(clf.fit(X, bags, pi), "feature_names_in_")


def test_clone_pickle_joblib_and_folders(tmp_path):
    X, bags, pi, _ = clouds()
    clf = fast(class_weight="balanced").fit(X, bags, pd.DataFrame(pi, columns=["x", "y", "z"]))
    fresh = clone(clf)
    assert fresh.get_params() == clf.get_params()
    assert not hasattr(fresh, "network_")
    expected = clf.predict_proba(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).predict_proba(X), expected)
    joblib.dump(clf, tmp_path / "clf.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "clf.joblib").predict_proba(X), expected)
    clf.save(tmp_path / "model")
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == ["llp-flow.json", "llp-flow.safetensors"]
    back = LLPFlowClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict_proba(X), expected)
    assert back.predict(X).tolist() == clf.predict(X).tolist()
    assert back.report() == clf.report()
    np.testing.assert_array_equal(back.anchors_, clf.anchors_)
    np.testing.assert_array_equal(back.anchor_labels_, clf.anchor_labels_)
    with pytest.raises(InputError, match="encoder is code of yours"):
        fast(encoder=nn.Identity()).fit(X, bags, pi).save(tmp_path / "other")
    with pytest.raises(InputError, match="no folder"):
        LLPFlowClassifier.load(tmp_path / "nothing")
    file = tmp_path / "model" / "llp-flow.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(InputError, match="damaged"):
        LLPFlowClassifier.load(tmp_path / "model")


def test_nothing_before_fit():
    clf = fast()
    for ask in (clf.predict, clf.predict_proba, clf.transform):
        with pytest.raises(NotFittedError):
            ask(np.zeros((2, 4)))
    with pytest.raises(NotFittedError):
        clf.report()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden": ()}, "hidden"),
        ({"hidden": (0,)}, "hidden"),
        ({"hidden": 8}, "hidden"),
        ({"head_hidden": -1}, "head_hidden"),
        ({"anchors_per_class": 0}, "anchors_per_class"),
        ({"outer": 1.5}, "outer"),
        ({"epochs": 3}, "epochs must be two"),
        ({"epochs": (3, -1)}, r"epochs\[1\]"),
        ({"flow_steps": True}, "flow_steps"),
        ({"flow_lr": 0.0}, "flow_lr must be positive"),
        ({"lam_bag": -1.0}, "lam_bag"),
        ({"lam_anchor": np.nan}, "lam_anchor"),
        ({"class_term": "1"}, "class_term"),
        ({"label_cost": np.inf}, "label_cost"),
        ({"anchor_start": "here"}, "anchor_start"),
        ({"space": "pixels"}, "space"),
        ({"lr": 0}, "lr must be positive"),
        ({"validation_bags": 1.0}, "validation_bags must be below 1"),
        ({"class_weight": "even"}, "class_weight"),
        ({"class_weight": {7: 1.0}}, "class_weight names the class 7"),
        ({"class_weight": {0: -1.0}}, "class_weight"),
        ({"class_weight": {0: 0, 1: 0, 2: 0}}, "class_weight must be positive"),
        ({"max_rows_per_bag": 0}, "max_rows_per_bag"),
        ({"device": "abacus"}, "device"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": "x"}, "random_state"),
        ({"classes": ["a", "b"]}, "classes"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    X, bags, pi, _ = clouds()
    with pytest.raises(InputError, match=message):
        fast(**parameters).fit(X, bags, pi)


def test_one_bag_is_enough_without_anchors_only():
    X, _, _, _ = clouds()
    one = np.zeros(len(X), dtype=int)
    with pytest.raises(InputError, match="bags holds one bag only, and anchors need at least 2"):
        fast().fit(X, one, [[0.5, 0.5]])
    with pytest.warns(UserWarning, match="not identifiable: all bags have the same proportions"):
        clf = fast(lam_anchor=0).fit(X, one, [[0.5, 0.5]])
    assert not clf.report()["identifiable"]
    assert clf.report()["diversity"] == 0


def test_a_loss_that_runs_away_is_said_so():
    X, bags, pi, _ = clouds()
    with pytest.raises(InputError, match=r"lr=1e\+30 is too large"):
        fast(lr=1e30).fit(X, bags, pi)


def test_half_a_fit_does_not_answer():
    X, bags, pi, _ = clouds()
    clf = fast().fit(X, bags, pi)
    for _ in range(2):
        with pytest.raises(InputError, match="too large"):
            clf.set_params(lr=1e30).fit(X, bags, pi)
        with pytest.raises(NotFittedError):
            clf.predict(X)


@pytest.mark.parametrize("parameters", [{"flow_lr": 1e30}, {"class_term": 1e300}])
def test_a_flow_that_runs_away_is_said_so(parameters):
    X, bags, pi, _ = clouds()
    with pytest.raises(InputError, match=r"\(flow_lr\) or class_term=.* is too large"):
        fast(**parameters).fit(X, bags, pi)


def test_classes_without_weight_cost_nothing():
    """Of 60 classes only one counts, so most draws of 64 anchors hold none that does."""
    X, bags, _, _ = clouds()
    pi = np.random.default_rng(0).dirichlet(np.ones(60), size=len(np.unique(bags)))
    clf = fast(class_weight={k: float(k == 0) for k in range(60)}).fit(X, bags, pi)
    assert np.isfinite(clf.predict_proba(X)).all()
    assert (clf.history_["anchor"] == 0).any()
    wide = np.column_stack([np.ones(len(pi)), np.zeros(len(pi))])
    with pytest.raises(InputError, match="class_weight must be positive for some class that a bag has"):
        fast(class_weight={0: 0.0, 1: 1.0}, lam_anchor=0).fit(X, bags, wide)


class Odd(nn.Module):
    """Features that are infinite for rows far out."""

    def forward(self, x):
        return 1 / (x < 1e6).float() * x


def test_an_encoder_that_is_not_finite_everywhere():
    X, bags, pi, _ = clouds()
    clf = fast(encoder=Odd()).fit(X, bags, pi)
    far = X.copy()
    far[5, 0] = 1e7
    with pytest.raises(InputError, match="rows for which the encoder gives NaN or infinity"):
        clf.predict(far)
    for parameters in ({"epochs": (0, 0)}, {"epochs": (0, 0), "lam_anchor": 0.0}):
        with pytest.raises(InputError, match="rows for which the encoder gives NaN or infinity"):
            fast(encoder=Odd(), **parameters).fit(far, bags, pi)


def test_names_of_several_types_come_back_from_a_file_as_they_were(tmp_path):
    X, bags, pi, _ = clouds()
    clf = fast(classes=["a", 1, 2.5]).fit(X, bags, pi)
    clf.save(tmp_path / "model")
    assert LLPFlowClassifier.load(tmp_path / "model").classes_.tolist() == ["a", 1, 2.5]
