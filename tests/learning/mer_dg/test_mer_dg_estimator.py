"""The classifier: contract, choice of λ, absent modalities, files, and odd data of every kind."""

import json
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from torch import nn

from assay.learning.mer_dg import MERLoss, MultimodalDGClassifier
from assay.learning.mer_dg.fusion import FusionClassifier
from assay.learning.mer_dg.selection import choose, folds
from assay.learning.mer_dg.training import Recipe, Rows, train
from assay.learning.mer_dg.views import Scaler, checked_views


def recordings(n=90, domains=3, seed=0, classes=3):
    """Two signals that tell the class, with an offset of each person."""
    rng = np.random.default_rng(seed)
    y, person = np.arange(n) % classes, (np.arange(n) // classes) % domains
    shift = rng.normal(size=(domains, 5))
    acc = rng.normal(size=(n, 5)) + 1.5 * np.eye(classes, 5)[y] + 0.3 * shift[person]
    gyr = rng.normal(size=(n, 4)) + 1.5 * np.eye(classes, 4)[y]
    return {"acc": acc, "gyr": gyr}, np.array(["bend", "lift", "turn", "rest"])[y], person


X, Y, PERSON = recordings()


def small(**options):
    return MultimodalDGClassifier(**{"lam": 0.1, "epochs": 3, "random_state": 0, "device": "cpu"} | options)


FITTED = small(epochs=12).fit(X, Y, PERSON)


def test_it_learns():
    new, y, _ = recordings(seed=1)
    assert FITTED.score(X, Y) > 0.8
    assert FITTED.score(new, y) > 0.7
    probabilities = FITTED.predict_proba(new)
    assert probabilities.shape == (90, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert list(FITTED.classes_) == ["bend", "lift", "turn"]
    np.testing.assert_array_equal(FITTED.predict(new), FITTED.classes_[probabilities.argmax(axis=1)])
    features = FITTED.transform(new)
    assert {name: z.shape for name, z in features.items()} == {"acc": (90, 32), "gyr": (90, 32)}
    assert FITTED.modalities_ == ("acc", "gyr")
    assert FITTED.n_iter_ == len(FITTED.history_["loss"]) == 12
    assert FITTED.history_["loss"][-1] < FITTED.history_["loss"][0]


def test_what_of_scikit_learns_contract_can_hold_for_a_mapping():
    """check_estimator gives arrays, so that it does not apply; its rules on parameters and fitting do."""
    model = small(lams=(0.0, 1.0), encoders={"acc": "mlp", "gyr": "mlp"})
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert is_classifier(model)
    assert set(model.get_params()) == set(vars(model))  # __init__ stores parameters as they are, and nothing else
    assert model.set_params(lam=0.5).lam == 0.5
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(lamda=1)
    for use in (model.predict, model.predict_proba, model.transform):
        with pytest.raises(NotFittedError):
            use(X)
    with pytest.raises(NotFittedError):
        model.save("nowhere")
    before = {name: rows.copy() for name, rows in X.items()}
    parameters = dict(model.get_params())
    assert model.fit(X, Y, PERSON) is model
    assert model.get_params() == parameters
    for name, rows in X.items():
        np.testing.assert_array_equal(rows, before[name])
    assert "lam=0.5" in repr(model)


def test_the_same_seed_gives_the_same_model_and_nothing_global_is_touched():
    torch.manual_seed(123)
    before = torch.get_rng_state()
    one, other = small().fit(X, Y, PERSON), small().fit(X, Y, PERSON)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    np.testing.assert_array_equal(one.fit(X, Y, PERSON).predict_proba(X), other.predict_proba(X))
    third = small(random_state=1).fit(X, Y, PERSON)
    assert not np.array_equal(one.predict_proba(X), third.predict_proba(X))
    from_generator = small(random_state=np.random.RandomState(3)).fit(X, Y, PERSON)
    expected = small(random_state=np.random.RandomState(3)).fit(X, Y, PERSON)
    np.testing.assert_array_equal(from_generator.predict_proba(X), expected.predict_proba(X))


def fused(penalty):
    torch.manual_seed(0)
    net = FusionClassifier({"acc": nn.Linear(5, 4), "gyr": nn.Linear(4, 4)}, {"acc": 4, "gyr": 4}, 3)
    views = checked_views(X)
    rows = Rows.of(Scaler.fit(views)(views), views.present, torch.device("cpu"))
    targets = torch.from_numpy(np.unique(Y, return_inverse=True)[1])
    torch.manual_seed(1)
    train(net, rows, targets, PERSON, Recipe(epochs=3), generator=torch.Generator().manual_seed(2), penalty=penalty)
    return [p.detach() for p in net.parameters()]


def test_lam_zero_trains_bit_for_bit_as_plain_fusion():
    plain, zero, rich = fused(None), fused(MERLoss(lam=0.0)), fused(MERLoss(lam=0.1))
    assert all(torch.equal(a, b) for a, b in zip(plain, zero, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(plain, rich, strict=True))
    # And no half of it, computed and multiplied by zero, changes a bit either.
    none = fused(MERLoss(lam=1.0, w_marg=0.0, w_spec=0.0))
    assert all(torch.equal(a, b) for a, b in zip(plain, none, strict=True))


def test_the_loss_keeps_rank():
    ranks = {lam: small(lam=lam, epochs=25).fit(X, Y, PERSON).diagnose(X, Y, PERSON)["rankme"] for lam in (0.0, 0.3)}
    assert (ranks[0.3] > 1.3 * ranks[0.0]).all()


def test_auto_leaves_each_domain_out_and_never_sees_it():
    seen = []

    class Spy(MultimodalDGClassifier):
        def _trained(self, views, targets, groups, *rest):
            seen.append((rest[1], sorted(set(groups))))
            return super()._trained(views, targets, groups, *rest)

    model = Spy(lam="auto", lams=(0.3, 0.0), epochs=1, random_state=0).fit(X, Y, PERSON)
    assert sorted(seen[:-1]) == sorted((lam, pair) for lam in (0.0, 0.3) for pair in ([0, 1], [0, 2], [1, 2]))
    assert seen[-1] == (model.lam_, [0, 1, 2])
    table = model.selection_
    assert list(table.columns) == ["lam", "fold", "rows", "accuracy"]
    means = table.groupby("lam")["accuracy"].mean()
    assert model.lam_ == means.index[means == means.max()].min()
    assert not hasattr(small().fit(X, Y, PERSON), "selection_")
    assert not hasattr(model.set_params(lam=0.1).fit(X, Y, PERSON), "selection_")


def test_ties_go_to_the_smaller_lam():
    held = [np.arange(3)]
    assert choose((1.0, 0.1, 0.3), held, lambda lam, rows: 0.5)[0] == 0.1
    assert choose((1.0, 0.1, 0.3), held, lambda lam, rows: 0.5 + (lam > 0.2))[0] == 0.3
    assert choose((1.0, 0.1), held, lambda lam, rows: lam)[0] == 1.0


def test_more_domains_than_folds_are_dealt_into_groups():
    domains = np.arange(60) % 23
    held = folds(np.arange(60) // 20, domains, np.random.default_rng(0))
    assert len(held) == 10
    assert sorted(np.concatenate(held)) == list(range(60))
    for rows in held:
        assert not set(domains[rows]) & set(np.delete(domains, rows))


@pytest.mark.parametrize("domains", [None, np.zeros(90, dtype=int)])
def test_without_two_domains_auto_takes_random_folds_and_says_so(domains):
    with pytest.warns(UserWarning, match="no two source domains"):
        model = small(lam="auto", lams=(0.0, 0.1), epochs=1).fit(X, Y, domains)
    assert model.selection_["fold"].nunique() == 3
    assert model.selection_.groupby("lam")["rows"].sum().tolist() == [90, 90]


def test_absent_rows():
    present = {"gyr": np.arange(90) % 4 != 0}
    with_nan = {"acc": X["acc"], "gyr": np.where(present["gyr"][:, None], X["gyr"], np.nan)}
    one = small().fit(with_nan, Y, PERSON)
    other = small().fit(X, Y, PERSON, present=present)
    np.testing.assert_array_equal(one.predict_proba(with_nan), other.predict_proba(X, present=present))
    features = one.transform(with_nan)["gyr"]
    assert (features[::4] == 0).all()
    assert (features[1::4] != 0).any(axis=1).all()
    whole = small().fit(X, Y, PERSON)
    assert not np.array_equal(one.predict_proba(X), whole.predict_proba(X))
    table = one.diagnose(with_nan, Y, PERSON)
    assert table["rows"].tolist() == [90, 67]


def test_a_modality_wholly_missing_at_predict_is_zeros_with_a_warning():
    with pytest.warns(UserWarning, match="'gyr' is absent in every row"):
        left_out = FITTED.predict_proba({"acc": X["acc"]})
    with pytest.warns(UserWarning, match="'gyr' is absent in every row"):
        as_nan = FITTED.predict_proba({"acc": X["acc"], "gyr": np.full((90, 4), np.nan)})
    np.testing.assert_array_equal(left_out, as_nan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FITTED.predict({"gyr": X["gyr"], "acc": X["acc"]})  # the order of names does not matter


def test_order_of_modalities_and_rows_at_predict_do_not_matter():
    turned = FITTED.predict_proba({"gyr": X["gyr"][::-1], "acc": X["acc"][::-1]})
    np.testing.assert_allclose(turned[::-1], FITTED.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(
        FITTED.predict_proba({k: v[:1] for k, v in X.items()}), FITTED.predict_proba(X)[:1], atol=1e-6
    )


def test_modality_dropout_never_leaves_a_row_empty():
    from assay.learning.mer_dg.training import _some_left_out

    generator = torch.Generator().manual_seed(0)
    there = {
        "a": torch.ones(4000, dtype=torch.bool),
        "b": torch.arange(4000) % 2 == 0,
        "c": torch.arange(4000) % 2 == 1,
    }
    kept = _some_left_out(there, 0.5, generator)
    assert (kept["a"] | kept["b"] | kept["c"]).all()
    for name, mask in kept.items():
        assert not (mask & ~there[name]).any()
    # Of two modalities both stay with 1/4, and a row that would lose both keeps either one.
    assert float((kept["a"]).float().mean()) == pytest.approx(0.5 + 0.25 / 2, abs=0.03)
    assert small(modality_dropout=0.5).fit(X, Y, PERSON).score(X, Y) > 0.3


def test_batches_are_balanced_over_domains():
    from assay.learning.mer_dg.training import _batches

    domains = np.array([0] * 90 + [1] * 10)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat(list(_batches(domains, 16, generator))).numpy()
    assert np.bincount(domains[drawn]).tolist() == [50, 50]
    assert np.bincount(drawn[domains[drawn] == 1])[90:].tolist() == [5] * 10
    assert len(np.unique(drawn[domains[drawn] == 0])) == 50
    sizes = [len(batch) for batch in _batches(np.zeros(33, dtype=int), 16, generator)]
    assert sizes == [16, 17]  # none of one row


def test_early_stopping_keeps_the_best_epoch_on_source_rows():
    model = small(early_stopping=True, epochs=60, patience=3, lr=0.05, validation_fraction=0.2).fit(X, Y, PERSON)
    losses = model.history_["validation"]
    assert len(losses) < 60
    assert len(losses) == np.argmin(losses) + 1 + 3
    with pytest.raises(ValueError, match="validation_fraction"):
        small(early_stopping=True, validation_fraction=0.001).fit(X, Y, PERSON)


def test_base_loss_class_weight_and_smoothing():
    usual = small(epochs=8).fit(X, Y, PERSON).predict_proba(X)
    own = small(epochs=8, base_loss=nn.functional.cross_entropy).fit(X, Y, PERSON)
    np.testing.assert_allclose(own.predict_proba(X), usual)
    heavy = small(epochs=8, class_weight={"bend": 50.0}).fit(X, Y, PERSON).predict_proba(X)
    assert heavy[:, 0].mean() > usual[:, 0].mean() + 0.1
    few = np.r_[np.flatnonzero(Y == "bend")[:3], np.flatnonzero(Y != "bend")]
    part = {name: rows[few] for name, rows in X.items()}
    even = small(epochs=20, class_weight="balanced").fit(part, Y[few], PERSON[few]).predict_proba(X)
    plain = small(epochs=20).fit(part, Y[few], PERSON[few]).predict_proba(X)
    assert even[:, 0].mean() > plain[:, 0].mean()
    smooth = small(epochs=8, label_smoothing=0.5).fit(X, Y, PERSON).predict_proba(X)
    assert smooth.max(axis=1).mean() < usual.max(axis=1).mean()


def test_own_encoders_projection_and_raw_signals():
    signals = {"acc": np.random.default_rng(0).normal(size=(90, 3, 24)), "gyr": X["gyr"]}
    signals["acc"][Y == "bend", 0] += 2
    encoders = {"acc": "cnn1d", "gyr": lambda shape: nn.Sequential(nn.Linear(*shape, 6), nn.Tanh())}
    model = small(encoders=encoders, project=(8, 4), epochs=6).fit(signals, Y, PERSON)
    assert model.score(signals, Y) > 0.4
    assert model.transform(signals)["gyr"].shape == (90, 6)
    assert model.transform(signals)["acc"].shape == (90, 32)


def test_channels_and_columns_are_standardised_by_the_source():
    rng = np.random.default_rng(0)
    views = checked_views({"a": rng.normal(5, 3, size=(400, 4)), "s": rng.normal(-2, 7, size=(400, 2, 30))})
    scaled = Scaler.fit(views)(views)
    np.testing.assert_allclose(scaled["a"].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled["a"].std(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(scaled["s"].std(axis=(0, 2)), 1, atol=1e-5)
    raw = Scaler.fit(views, standardise=False)(views)
    np.testing.assert_allclose(raw["a"], views.arrays["a"], rtol=1e-6)
    # The scale of a column does not matter to the classifier.
    scaled_X = {"acc": X["acc"] * np.array([1, 10, 1e-3, 1e5, 1]) + 3, "gyr": X["gyr"]}
    usual = small().fit(X, Y, PERSON).predict_proba(X)
    np.testing.assert_allclose(small().fit(scaled_X, Y, PERSON).predict_proba(scaled_X), usual, atol=1e-4)


def test_diagnose_tells_classes_domains_and_rank():
    rng = np.random.default_rng(0)
    n = 240
    y, person = np.arange(n) % 2, (np.arange(n) // 2) % 3
    one_number = np.outer(rng.normal(size=n), np.ones(6)) + 0.01 * rng.normal(size=(n, 6))
    X = {
        "person": np.eye(3)[person] * 3 + 0.1 * rng.normal(size=(n, 3)),
        "class": np.eye(2)[y] * 3 + 0.1 * rng.normal(size=(n, 2)),
        "flat": one_number,
    }
    same = {name: lambda shape: nn.Identity() for name in X}
    table = small(encoders=same, epochs=1).fit(X, y, person).diagnose(X, y, person)
    assert list(table.index) == ["person", "class", "flat"]
    assert list(table.columns) == [
        "rows",
        "rankme",
        "probe_accuracy",
        "probe_chance",
        "domain_accuracy",
        "domain_chance",
    ]
    assert table.loc["person", "domain_accuracy"] > 0.95 > 0.6 > table.loc["class", "domain_accuracy"]
    assert table.loc["class", "probe_accuracy"] > 0.95 > 0.65 > table.loc["person", "probe_accuracy"]
    assert table.loc["flat", "rankme"] < 1.2
    assert table["probe_chance"].tolist() == [0.5] * 3
    assert table["domain_chance"].tolist() == pytest.approx([1 / 3] * 3)
    assert "domain_accuracy" not in small(encoders=same, epochs=1).fit(X, y, person).diagnose(X, y)


def test_files(tmp_path):
    folder = FITTED.save(tmp_path / "model")
    assert sorted(path.name for path in folder.iterdir()) == ["mer-dg.json", "mer-dg.safetensors"]
    back = MultimodalDGClassifier.load(folder)
    np.testing.assert_array_equal(back.predict_proba(X), FITTED.predict_proba(X))
    np.testing.assert_array_equal(back.classes_, FITTED.classes_)
    assert back.lam_ == FITTED.lam_
    assert back.get_params()["lams"] == FITTED.get_params()["lams"]
    with pytest.raises(ValueError, match="not empty"):
        FITTED.save(folder)
    FITTED.save(folder, overwrite=True)
    state = json.loads((folder / "mer-dg.json").read_text())
    state["state"]["parameters"]["feature_dim"] = 8
    (folder / "mer-dg.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match="does not fit"):
        MultimodalDGClassifier.load(folder)
    state["state"].pop("classes")
    (folder / "mer-dg.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match="no complete"):
        MultimodalDGClassifier.load(folder)
    with pytest.raises(ValueError, match="no folder"):
        MultimodalDGClassifier.load(tmp_path / "other")


@pytest.mark.parametrize(
    "y",
    [
        np.arange(90) % 3,
        (np.arange(90) % 2).astype(bool),
        np.arange(90) % 2 * 1.0,
        (np.arange(90) % 2).astype(object),
        pd.array(np.arange(90) % 2, dtype="Int64"),
    ],
)
def test_files_keep_the_classes_type(tmp_path, y):
    model = small(epochs=1).fit(X, y, PERSON)
    back = MultimodalDGClassifier.load(model.save(tmp_path / "model"))
    assert back.predict(X).dtype == model.predict(X).dtype
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_files_of_own_encoders_need_them_again(tmp_path):
    encoders = {"acc": lambda shape: nn.Linear(*shape, 6), "gyr": "mlp"}
    model = small(encoders=encoders).fit(X, Y, PERSON)
    folder = model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="encoders of your own"):
        MultimodalDGClassifier.load(folder)
    back = MultimodalDGClassifier.load(folder, encoders=encoders)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    mixed = small(encoders={"acc": "mlp", "gyr": "mlp"}).fit(X, Y, PERSON)
    again = MultimodalDGClassifier.load(mixed.save(tmp_path / "mixed"))
    np.testing.assert_array_equal(again.predict_proba(X), mixed.predict_proba(X))


def test_pickles_within_a_process():
    """As joblib and scikit-learn's tools need it; the project itself loads none."""
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(FITTED)).predict_proba(X), FITTED.predict_proba(X))


def test_frames_lists_tensors_and_pandas_labels():
    usual = small().fit(X, Y, PERSON).predict_proba(X)
    frames = {name: pd.DataFrame(rows) for name, rows in X.items()}
    for given_X in (frames, {k: v.tolist() for k, v in X.items()}, {k: torch.from_numpy(v) for k, v in X.items()}):
        for y in (pd.Series(Y), pd.Categorical(Y), Y.tolist(), Y.astype(object)):
            np.testing.assert_array_equal(small().fit(given_X, y, list(PERSON)).predict_proba(given_X), usual)
    with pytest.raises(ValueError, match="y and X have different indexes"):
        small().fit(frames, pd.Series(Y, index=np.arange(90)[::-1]), PERSON)


def test_gaps_of_every_kind_are_absent_rows_and_columns_of_every_kind_numbers():
    gone = np.arange(90) % 5 == 0
    usual = X | {"gyr": np.where(gone[:, None], np.nan, X["gyr"])}
    expected = small().fit(usual, Y, PERSON).predict_proba(usual)
    nullable = pd.DataFrame(X["gyr"]).astype("Float64")
    nullable[gone] = pd.NA
    objects = np.where(gone[:, None], None, X["gyr"].astype(object))
    masked = np.ma.masked_array(X["gyr"], mask=np.repeat(gone[:, None], 4, axis=1))
    for gyr in (nullable, objects, masked, np.asfortranarray(usual["gyr"])):
        given_X = X | {"gyr": gyr}
        np.testing.assert_array_equal(small().fit(given_X, Y, PERSON).predict_proba(given_X), expected)
    half = {name: torch.from_numpy(rows).bfloat16() for name, rows in X.items()}
    wide = {name: rows.float().numpy() for name, rows in half.items()}
    np.testing.assert_array_equal(
        small().fit(half, Y, PERSON).predict_proba(half), small().fit(wide, Y, PERSON).predict_proba(wide)
    )
    mixed = pd.DataFrame(
        {
            "a": pd.array(np.arange(90) % 4, dtype="Int64"),
            "b": pd.Categorical(np.arange(90) % 3 * 1.5),
            "c": Y == "bend",
        }
    )
    mixed.columns = ["same", "same", "other"]
    assert small(epochs=12).fit({"m": mixed}, Y, PERSON).score({"m": mixed}, Y) > 0.6


def test_frames_in_different_orders_are_refused():
    acc, gyr = (pd.DataFrame(X[name]) for name in ("acc", "gyr"))
    with pytest.raises(ValueError, match=r"X\['acc'\] and X\['gyr'\] have different indexes"):
        small().fit({"acc": acc, "gyr": gyr[::-1]}, Y, PERSON)
    with pytest.raises(ValueError, match="y and X have different indexes"):
        small().fit({"acc": X["acc"], "gyr": gyr[::-1]}, pd.Series(Y), PERSON)


@pytest.mark.parametrize(
    ("gyr", "message"),
    [
        (sparse.csr_matrix(X["gyr"]), r"X\['gyr'\] is sparse"),
        ([[1.0], [1.0, 2.0]] * 45, r"X\['gyr'\] is no array of real numbers"),
        (
            X["gyr"].round(2).astype(str).astype(object),
            r"X\['gyr'\] must hold real numbers, and holds values of type str",
        ),
        (pd.DataFrame({"a": X["gyr"][:, 0], "t": pd.date_range("2020", periods=90)}), r"X\['gyr'\].*Timestamp"),
    ],
)
def test_tables_that_are_no_numbers(gyr, message):
    with pytest.raises((ValueError, TypeError), match=message):
        small().fit(X | {"gyr": gyr}, Y, PERSON)
    with pytest.raises(TypeError, match="present must be a mapping"):
        small().fit(X, Y, PERSON, present=np.ones(90, dtype=bool))


def test_numpys_numbers_as_parameters_are_kept_in_files(tmp_path):
    options = {"hidden": np.int64(8), "lam": np.float32(0.1), "project": (np.int64(4), np.int64(3))}
    model = small(**options, lams=np.array([0.0, 0.1])).fit(X, Y, PERSON)
    back = MultimodalDGClassifier.load(model.save(tmp_path / "model"))
    assert (back.hidden, back.project, back.lams) == (8, (4, 3), (0.0, 0.1))
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))


def with_(name, rows, **changes):
    changed = np.array(X[name], dtype=changes.pop("dtype", float))
    changed[rows] = changes["value"]
    return X | {name: changed}


@pytest.mark.parametrize(
    ("X_", "y", "domains", "message"),
    [
        (X["acc"], Y, PERSON, "X must be a mapping"),
        ({}, Y, PERSON, "X is empty"),
        ({1: X["acc"]}, Y, PERSON, "names of modalities"),
        (X | {"gyr": X["gyr"][:50]}, Y, PERSON, "same number of rows.*'gyr': 50"),
        (X | {"gyr": X["gyr"][:, 0]}, Y, PERSON, r"X\['gyr'\] must have the shape"),
        (X | {"gyr": np.array([["a"] * 4] * 90)}, Y, PERSON, r"X\['gyr'\] must hold real numbers"),
        (X | {"gyr": np.array([["a"] * 4] * 90, dtype=object)}, Y, PERSON, r"X\['gyr'\] must hold real numbers"),
        (X | {"gyr": X["gyr"] * 1j}, Y, PERSON, r"X\['gyr'\] must hold real numbers"),
        (with_("gyr", (4, 1), value=np.nan), Y, PERSON, r"X\['gyr'\] has NaN in parts of 1 rows, the first is row 4"),
        (with_("gyr", (7, 0), value=np.inf), Y, PERSON, r"X\['gyr'\] holds infinity.*row 7"),
        (with_("gyr", (7, 0), value=-1e35), Y, PERSON, r"X\['gyr'\].*beyond 1e\+30.*row 7"),
        ({k: np.full_like(v, np.nan) for k, v in X.items()}, Y, PERSON, "90 rows of X have no modality"),
        ({k: v[:0] for k, v in X.items()}, Y[:0], PERSON[:0], "no rows"),
        (X, Y[:50], PERSON, "y must have as many rows"),
        (X, Y, PERSON[:50], "domains must have as many rows"),
        (X, np.stack([Y, Y], axis=1), PERSON, "y must have one dimension"),
        (X, np.where(np.arange(90) == 3, None, Y.astype(object)), PERSON, "y is missing in 1 rows, the first is row 3"),
        (X, np.full(90, "bend"), PERSON, "y must hold at least two classes, all of it is 'bend'"),
        (X, np.random.default_rng(0).normal(size=90), PERSON, "continuous"),
        (X, np.where(np.arange(90) % 2 == 0, 1, np.array("a", dtype=object)), PERSON, "y mixes values"),
        (X, np.where(np.arange(90) < 2, np.inf, 1.0), PERSON, "y holds infinity"),
        (X, Y, np.where(np.arange(90) == 5, np.nan, PERSON), "domains is missing in 1 rows, the first is row 5"),
        (X, Y, 3, "domains must be an array"),
    ],
)
def test_bad_data_is_refused_by_name(X_, y, domains, message):
    with pytest.raises((ValueError, TypeError), match=message):
        small().fit(X_, y, domains)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gyr": None, "video": X["gyr"]}, "X has the modality 'video'.*it had acc, gyr"),
        ({"gyr": X["gyr"][:, :3]}, r"rows of X\['gyr'\] have shape \(3,\); in fit they had \(4,\)"),
        ({"gyr": X["gyr"][:9]}, "same number of rows"),
    ],
)
def test_other_data_at_predict_is_refused(change, message):
    other = {name: rows for name, rows in (X | change).items() if rows is not None}
    for use in (FITTED.predict, FITTED.predict_proba, FITTED.transform):
        with pytest.raises(ValueError, match=message):
            use(other)
    with pytest.raises(ValueError, match="present names 'b'"):
        FITTED.predict(X, present={"b": np.ones(90, dtype=bool)})
    with pytest.raises(ValueError, match=r"present\['acc'\] must be 90 truth values"):
        FITTED.predict(X, present={"acc": np.ones(4, dtype=bool)})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lam": -1.0}, "lam"),
        ({"lam": "best"}, "lam must be 'auto'"),
        ({"lam": "auto", "lams": ()}, "lams"),
        ({"lam": "auto", "lams": 0.3}, "lams"),
        ({"lam": "auto", "lams": "ab"}, "lams"),
        ({"lam": "auto", "lams": (0.1, -1)}, "lams"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"feature_dim": 0}, "feature_dim"),
        ({"hidden": -1}, "hidden"),
        ({"lr": 0.0}, "lr"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"modality_dropout": 1.0}, "modality_dropout"),
        ({"dropout": 1.5}, "dropout"),
        ({"label_smoothing": -0.1}, "label_smoothing"),
        ({"gamma": 0.0}, "gamma"),
        ({"eps": 0.0}, "eps"),
        ({"w_spec": -1.0}, "w_spec"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"patience": 0}, "patience"),
        ({"class_weight": "even"}, "class_weight"),
        ({"class_weight": {"bend": -1.0}}, "class_weight"),
        ({"class_weight": {"bent": 1.0}}, "class_weight names 'bent'"),
        ({"base_loss": lambda logits, targets: 1.0}, "base_loss must return"),
        ({"base_loss": lambda logits, targets: logits.sum(dim=1)}, "base_loss must return"),
        ({"device": 3.5}, "device"),
        ({"base_loss": "mse"}, "base_loss"),
        ({"device": "tpu9"}, "device"),
        ({"encoders": "transformer"}, "encoder"),
        ({"encoders": "cnn1d"}, "cnn1d"),
        ({"encoders": {"acc": "mlp"}}, "encoders must name"),
        ({"project": (8,)}, "project"),
        ({"project": 8}, "project"),
        ({"random_state": "x"}, "random_state"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        small(**parameters).fit(X, Y, PERSON)


def test_training_that_diverges_says_so():
    with pytest.raises(ValueError, match=r"diverged.*lower lr|too large|holds NaN"):
        small(lr=1e30, epochs=5).fit(X, Y, PERSON)
    # One step, after which nobody looks at the loss.
    last = small(lr=1e30, epochs=1, batch_size=1000).fit(X, Y, PERSON)
    with pytest.raises(ValueError, match="no finite numbers: its training diverged"):
        last.predict_proba(X)


KINDS = ("normal", "constant", "tiny", "huge", "int", "bool", "float32", "absent rows", "copies", "one hot")
kinds = st.sampled_from(KINDS)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    n=st.integers(2, 30),
    modalities=st.lists(st.tuples(kinds, st.integers(1, 5)), min_size=1, max_size=3),
    classes=st.integers(1, 4),
    domains=st.one_of(st.none(), st.integers(1, 4)),
    lam=st.sampled_from([0.0, 0.1, "auto"]),
    seed=st.integers(0, 1000),
)
def test_any_data_works_or_is_refused_by_name(n, modalities, classes, domains, lam, seed):
    rng = np.random.default_rng(seed)
    made = {}
    for place, (kind, d) in enumerate(modalities):
        rows = rng.normal(size=(n, d))
        match kind:
            case "constant":
                rows = np.full((n, d), rng.normal())
            case "tiny":
                rows = rows * 1e-200
            case "huge":
                rows = rows * 1e28
            case "int":
                rows = rng.integers(-5, 5, size=(n, d))
            case "bool":
                rows = rng.random((n, d)) < 0.5
            case "float32":
                rows = rows.astype(np.float32)
            case "absent rows":
                rows[rng.random(n) < 0.5] = np.nan
            case "copies":
                rows = np.repeat(rows[:, :1], d, axis=1)
            case "one hot":
                rows = np.eye(d)[rng.integers(0, d, n)]
        made[f"m{place}"] = rows
    y = rng.integers(0, classes, n)
    groups = None if domains is None else rng.integers(0, domains, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = small(lam=lam, lams=(0.0, 0.3), epochs=1, batch_size=8).fit(made, y, groups)
        except (ValueError, TypeError) as error:
            told = str(error)
            known = ("y must hold at least two classes", "no modality at all", "lam='auto' cannot choose")
            assert any(words in told for words in known), told
            return
        probabilities = model.predict_proba(made)
        assert np.isfinite(probabilities).all()
        assert set(model.predict(made)) <= set(y)
        table = model.diagnose(made, y, groups)
    assert np.isfinite(table.to_numpy(dtype=float)).all()
    assert math.isfinite(model.lam_)
