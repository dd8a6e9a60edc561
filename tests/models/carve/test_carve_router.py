import json

import numpy as np
import pandas as pd
import pytest
import torch
from carve_hubs import Letters, hub, part
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from assay.errors import InputError
from assay.models.carve import CarveRouter
from assay.models.carve.candidates import Candidates
from assay.models.carve.files import STATE, TENSORS

HUB = hub()
FAST = {"dim": 32, "n_candidates": 8, "random_state": 0, "device": "cpu"}


def learned(**parameters):
    """A router after two experiences of six ids each."""
    router = CarveRouter(**{**FAST, **parameters})
    for ids in (range(6), range(6, 12)):
        router.partial_fit(*part(HUB, ids))
    return router


@pytest.mark.parametrize("init", ["random", "prototype"])
def test_routes_old_and_new_ids(init):
    router = learned(init=init, epochs=100)
    X, ids, _, _ = hub(seed=0)
    assert router.score(X, ids) > 0.9
    assert router.score(*part(HUB, range(6))[:2]) > 0.9
    assert router.n_experiences_ == 2
    assert router.n_steps_ > 0


def test_registry_and_ids():
    router = learned()
    table = router.registry_
    assert table.columns.tolist() == ["id", "family", "domain", "experience", "n_seen", "retired"]
    assert table["id"].tolist() == router.ids_.tolist() == [f"m{i}" for i in range(12)]
    assert table["experience"].tolist() == [0] * 6 + [1] * 6
    assert table["n_seen"].tolist() == [8] * 12
    assert table["domain"].tolist() == [f"d{i % 3}" for i in range(12)]
    assert not table["retired"].any()


def test_scores_topk_and_predict_agree():
    router = learned()
    X = HUB[0]
    scores = router.decision_function(X)
    assert scores.shape == (96, 12)
    z = X / np.linalg.norm(X, axis=1, keepdims=True) @ router.projection_
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    np.testing.assert_allclose(scores, z @ router.vectors_.T / 0.07, atol=1e-4)
    ids, values = router.topk(X, k=5)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    assert ids.tolist() == router.ids_[order].tolist()
    np.testing.assert_allclose(values, np.take_along_axis(scores, order, axis=1), rtol=1e-5)
    assert router.predict(X).tolist() == ids[:, 0].tolist()
    assert router.topk(X, k=99)[0].shape == (96, 12)
    assert router.predict(X[:0]).shape == (0,)


def test_ties_go_to_the_first_id():
    router = learned()
    router.vectors_ = np.repeat(router.vectors_[:1], 12, axis=0)
    assert set(router.predict(HUB[0])) == {"m0"}
    assert router.topk(HUB[0], 3)[0].tolist() == [["m0", "m1", "m2"]] * 96


def test_the_same_seed_gives_the_same_router():
    a, b = learned(), learned()
    np.testing.assert_array_equal(a.vectors_, b.vectors_)
    np.testing.assert_array_equal(a.projection_, b.projection_)
    np.testing.assert_array_equal(a.buffer_.X, b.buffer_.X)
    assert not np.array_equal(a.vectors_, learned(random_state=1).vectors_)
    state = np.random.RandomState(3)
    assert not np.array_equal(learned(random_state=state).vectors_, learned(random_state=state).vectors_)
    assert learned(random_state=None).n_experiences_ == 2


def test_nothing_global_is_seeded():
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    before = torch.rand(1).item(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    learned()
    assert (torch.rand(1).item(), np.random.rand()) == before  # noqa: NPY002


def test_infinite_anchors_hold_exactly_and_strong_ones_nearly():
    first = CarveRouter(**FAST).partial_fit(*part(HUB, range(6)))
    moved = {}
    for strength in (0.0, 10.0, 1e4, float("inf")):
        router = CarveRouter(**FAST, lambda_emb=strength, lambda_proj=strength).partial_fit(*part(HUB, range(6)))
        np.testing.assert_array_equal(router.vectors_, first.vectors_)  # the first experience has no anchor
        router.partial_fit(*part(HUB, range(6, 12)))
        moved[strength] = np.abs(router.vectors_[:6] - first.vectors_).max()
        if strength == float("inf"):
            np.testing.assert_array_equal(router.vectors_[:6], first.vectors_)
            np.testing.assert_array_equal(router.projection_, first.projection_)
    assert moved[0.0] > moved[10.0] > moved[1e4] > moved[float("inf")] == 0


def test_partial_fit_needs_nothing_earlier():
    router = learned()
    first = part(HUB, range(6))
    copy = CarveRouter(**FAST).partial_fit(*first)
    first[0][:] = np.nan  # what was given belongs to the caller again
    first[1].clear()
    copy.partial_fit(*part(HUB, range(6, 12)))
    np.testing.assert_array_equal(copy.vectors_, router.vectors_)


def test_fit_starts_anew():
    router = learned().fit(*part(HUB, range(3)))
    assert len(router.ids_) == 3
    np.testing.assert_array_equal(router.vectors_, CarveRouter(**FAST).fit(*part(HUB, range(3))).vectors_)


def test_a_fit_that_fails_forgets_nothing():
    router = learned()
    with pytest.raises(ValueError, match="experience is empty"):
        router.fit(np.empty((0, 16)), [])
    assert router.score(*HUB[:2]) > 0.2
    assert len(router.ids_) == 12
    np.testing.assert_array_equal(router.partial_fit(*HUB).vectors_, learned().partial_fit(*HUB).vectors_)


def test_features_of_any_number_type_and_size():
    X = HUB[0].astype(np.float32)
    expected = learned().predict(X).tolist()
    assert learned().predict((X * np.float32(1e30)).astype(np.float64) * 1e200).tolist() == expected
    assert learned().predict(X.tolist()).tolist() == expected
    half = learned().predict(X.astype(np.float16))
    assert np.mean(half == expected) > 0.95


def test_an_id_that_comes_again_is_anchored_and_learns():
    router = CarveRouter(**FAST).partial_fit(*part(HUB, range(6)))
    before = router.vectors_.copy()
    router.partial_fit(*part(HUB, [0, 7]))
    assert router.ids_.tolist() == [*(f"m{i}" for i in range(6)), "m7"]
    assert router.registry_["n_seen"].tolist() == [16, 8, 8, 8, 8, 8, 8]
    assert (before * router.vectors_[:6]).sum(axis=1).min() > 0.7


@pytest.mark.parametrize("replay", [0.0, 0.1, 0.33, 1.0])
@pytest.mark.parametrize("quota", ["sqrt", "random"])
def test_the_buffer_has_exactly_its_size_and_holds_real_queries(replay, quota):
    router = CarveRouter(**FAST, replay=replay, quota=quota, epochs=1)
    seen = 0
    unit = HUB[0] / np.linalg.norm(HUB[0], axis=1, keepdims=True)
    for t, ids in enumerate((range(5), range(5, 6), range(6, 12))):
        router.partial_fit(*part(HUB, ids))
        seen += 8 * len(ids)
        kept = router.buffer_
        assert len(kept.X) == len(kept.ids) == len(kept.experience) == round(replay * seen)
        assert set(kept.experience.tolist()) <= set(range(t + 1))
        for row, name in zip(kept.X, kept.ids, strict=True):
            place = np.argmin(np.abs(unit - row).sum(axis=1))
            assert np.abs(unit[place] - row).max() < 1e-6
            assert HUB[1][place] == name


def test_the_coreset_serves_every_domain_and_max_per_id_holds():
    big, small = hub(n_ids=2, each=60, domains=1, seed=1), hub(n_ids=2, each=3, domains=1, seed=2)
    X, ids = np.concatenate([big[0], small[0]]), [*(f"b{n}" for n in big[1]), *(f"s{n}" for n in small[1])]
    domains = ["big"] * 120 + ["small"] * 6
    router = CarveRouter(**FAST, epochs=1).partial_fit(X, ids, domains)
    kept = pd.Series(router.buffer_.ids)
    assert len(kept) == 13  # by size alone the small domain would get 0 or 1 of them; its floor is 13 / 4
    assert kept.str.startswith("s").sum() == 3
    limited = CarveRouter(**FAST, epochs=1, replay=0.5, max_per_id=2).partial_fit(X, ids, domains)
    assert pd.Series(limited.buffer_.ids).value_counts().max() == 2


def test_retired_ids_are_never_returned_and_come_back():
    router = learned()
    X = HUB[0]
    vectors = router.vectors_.copy()
    router.retire(["m0", "m7"])
    assert not {"m0", "m7"} & set(router.topk(X, 10)[0].ravel())
    assert np.isneginf(router.decision_function(X)[:, [0, 7]]).all()
    assert np.isfinite(router.decision_function(X)[:, 1]).all()
    assert router.registry_["retired"].sum() == 2
    router.partial_fit(*part(hub(n_ids=15), range(12, 15)))
    np.testing.assert_array_equal(router.vectors_[[0, 7]], vectors[[0, 7]])  # nothing trains them
    assert not {"m0", "m7"} & set(router.buffer_.ids)
    assert "m0" in router.revive("m0").topk(X, 14)[0]
    router.retire(router.ids_)
    with pytest.raises(ValueError, match="all ids of this router are retired"):
        router.predict(X)
    with pytest.raises(KeyError, match="no id 'm99'"):
        router.retire("m99")
    with pytest.raises(ValueError, match="'m1' is retired; revive it"):
        router.partial_fit(*part(HUB, [1]))


def test_labels_of_any_hashable_type_keep_it():
    X = HUB[0][:16]
    for names in ([3] * 8 + [5] * 8, ["a"] * 8 + [("b", 1)] * 8, np.array([3] * 8 + [5] * 8)):
        router = CarveRouter(**FAST).fit(X, names, ["d"] * 16)
        assert set(router.predict(X).tolist()) <= set(list(names) if not isinstance(names, np.ndarray) else [3, 5])
        assert router.score(X, names) > 0.9
    assert CarveRouter(**FAST).fit(X, [3] * 8 + [5] * 8, ["d"] * 16).predict(X).dtype.kind == "i"
    assert router.score(X, ["unknown"] * 16) == 0


def test_texts_through_an_encoder_and_from_pandas():
    texts = ["aaa aab", "aab aaa", "zzy zzz", "zyz zzz"] * 4
    ids = ["first", "first", "last", "last"] * 4
    router = CarveRouter(**FAST, encoder=Letters(), init="prototype").fit(pd.Series(texts), pd.Series(ids), ["x"] * 16)
    assert router.predict(["aa", "zz"]).tolist() == ["first", "last"]
    assert router.predict(np.array(["aa"])).tolist() == ["first"]
    ready = router.predict(torch.tensor(Letters().encode(["aa", "zz"]), dtype=torch.bfloat16))
    assert ready.tolist() == ["first", "last"]
    with pytest.raises(ValueError, match="not one text"):
        router.predict("aa")
    with pytest.raises(ValueError, match=r"X\[1\] is a int"):
        router.predict(["aa", 3])


def test_starts_from_cards():
    X, ids, domains, families = part(HUB, range(6))
    cards = {f"m{i}": X[[name == f"m{i}" for name in ids]].mean(axis=0) for i in range(6)}
    router = CarveRouter(**FAST, init="card", epochs=0).fit(X, ids, domains, families, cards)
    assert router.score(X, ids) > 0.9  # good cards alone route well
    with pytest.raises(ValueError, match="'m5' has none"):
        CarveRouter(**FAST, init="card").fit(X, ids, domains, families, {k: v for k, v in cards.items() if k != "m5"})
    texts = CarveRouter(**FAST, init="card", encoder=Letters(), epochs=0)
    texts.fit(["aa", "zz"], ["first", "last"], ["x"] * 2, cards={"first": "aaa", "last": "zzz"})
    assert texts.predict(["aa", "zz"]).tolist() == ["first", "last"]


def test_prototype_without_training_is_the_class_mean_look_up():
    router = learned(init="prototype", epochs=0)
    unit = HUB[0] / np.linalg.norm(HUB[0], axis=1, keepdims=True)
    means = np.stack([unit[[n == name for n in HUB[1]]].mean(axis=0) for name in router.ids_])
    expected = np.argmax(unit @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T, axis=1)
    assert router.predict(HUB[0]).tolist() == router.ids_[expected].tolist()
    np.testing.assert_array_equal(router.projection_, np.eye(16))


def test_a_single_id_and_a_single_query():
    router = CarveRouter(**FAST).fit([[1.0, 2.0]], ["only"], ["d"])
    assert router.predict([[3.0, -1.0]]).tolist() == ["only"]
    router.partial_fit([[1.0, -2.0]], ["second"], ["e"])
    assert router.topk([[1.0, 2.0]], 2)[0].shape == (1, 2)


@pytest.mark.filterwarnings("error")
def test_without_domains_there_is_one_warning():
    router = CarveRouter(**FAST)
    X, ids, _, _ = part(HUB, range(6))
    with pytest.warns(UserWarning, match="all ids count as one domain, 'all'"):
        router.partial_fit(X, ids)
    router.partial_fit(X, ids)
    assert set(router.registry_["domain"]) == {"all"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": ["a text"] * 96}, "this router has no encoder"),
        ({"X": HUB[0][:, :3]}, "has 3 columns; this router was trained on 16"),
        ({"X": np.where(np.arange(16) == 3, np.nan, HUB[0])}, "NaN or infinity, first in row 0"),
        ({"X": np.full((96, 16), np.inf)}, "NaN or infinity"),
        ({"X": HUB[0][0]}, "the shape"),
        ({"X": HUB[0].astype(complex)}, "complex numbers"),
        ({"X": [], "ids": [], "domains": [], "families": []}, "experience is empty"),
        ({"X": [["a", 1.0]] * 96}, "array of numbers"),
        ({"ids": HUB[1][:-1]}, "X has 96 rows, and ids 95"),
        ({"domains": HUB[2][:-1]}, "domains 95"),
        ({"ids": [None, *HUB[1][1:]]}, r"ids\[0\] is missing"),
        ({"ids": [float("nan"), *HUB[1][1:]]}, r"ids\[0\] is missing"),
        ({"ids": [[], *HUB[1][1:]]}, "must be hashable"),
        ({"ids": "m" * 96}, "must be a list"),
        ({"X": np.empty((0, 16)), "ids": [], "domains": [], "families": []}, "experience is empty"),
        ({"domains": ["d9", *HUB[2][1:]]}, "'m0' has two domains"),
        ({"families": ["f9", *HUB[3][1:]]}, "'m0' has two families"),
    ],
)
def test_bad_data_is_refused_and_changes_nothing(change, message):
    router = learned()
    before = router.vectors_.copy(), router.registry_, router.buffer_.X
    data = dict(zip(("X", "ids", "domains", "families"), HUB, strict=True)) | change
    with pytest.raises(ValueError, match=message):
        router.partial_fit(**data)
    np.testing.assert_array_equal(router.vectors_, before[0])
    pd.testing.assert_frame_equal(router.registry_, before[1])
    np.testing.assert_array_equal(router.buffer_.X, before[2])
    assert router.n_experiences_ == 2


@pytest.mark.parametrize(
    "change",
    [
        {"replay": 1.1},
        {"replay": -0.1},
        {"n_candidates": 1},
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"mix": (0.5, 0.5, 0.5)},
        {"mix": (1.5, -0.5, 0.0)},
        {"mix": (0.5, 0.5)},
        {"lambda_emb": -1.0},
        {"lambda_proj": float("nan")},
        {"lr": 0.0},
        {"epochs": -1},
        {"epochs": 2.5},
        {"batch_size": 0},
        {"dim": 0},
        {"hard_every": 0},
        {"hard_pool": 0},
        {"max_per_id": 0},
        {"max_per_id": 1.5},
        {"replay": "0.1"},
        {"lr": "fast"},
        {"temperature": None},
        {"lambda_emb": "10"},
        {"mix": None},
        {"mix": ("a", "b", "c")},
        {"random_state": -1},
        {"random_state": 1.5},
        {"quota": "equal"},
        {"init": "zero"},
        {"device": "abacus"},
    ],
)
def test_bad_parameters_are_refused(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))} must"):
        CarveRouter(**{**FAST, **change}).fit(*HUB)


def test_an_interrupted_experience_changes_nothing(monkeypatch):
    router = learned()
    before = router.vectors_.copy()

    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.models.carve.router.train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        router.partial_fit(*part(hub(n_ids=15), range(12, 15)))
    monkeypatch.undo()
    np.testing.assert_array_equal(router.vectors_, before)
    assert len(router.ids_) == 12
    router.partial_fit(*part(hub(n_ids=15), range(12, 15)))
    expected = learned().partial_fit(*part(hub(n_ids=15), range(12, 15)))
    np.testing.assert_array_equal(router.vectors_, expected.vectors_)


def test_not_fitted():
    router = CarveRouter()
    for use in (router.predict, router.topk, router.decision_function):
        with pytest.raises(NotFittedError):
            use(HUB[0])
    for use in (router.retire, router.revive, router.save):
        with pytest.raises(NotFittedError):
            use("m0")
    with pytest.raises(NotFittedError):
        _ = router.buffer_


def test_is_a_scikit_learn_estimator():
    router = learned()
    copy = clone(router)
    assert copy.get_params()["dim"] == 32
    with pytest.raises(NotFittedError):
        copy.predict(HUB[0])
    assert "n_candidates=8" in repr(router)
    assert router.set_params(replay=0.5).replay == 0.5


def test_saved_and_loaded_it_is_the_same_and_goes_on_the_same(tmp_path):
    router = learned(init="prototype").retire("m3")
    router.save(tmp_path / "router")
    assert {p.name for p in (tmp_path / "router").iterdir()} == {STATE, TENSORS}
    other = CarveRouter.load(tmp_path / "router", device="cpu")
    for use in ("predict", "decision_function"):
        np.testing.assert_array_equal(getattr(other, use)(HUB[0]), getattr(router, use)(HUB[0]))
    pd.testing.assert_frame_equal(other.registry_, router.registry_)
    np.testing.assert_array_equal(other.buffer_.ids, router.buffer_.ids)
    more = part(hub(n_ids=15), range(12, 15))
    np.testing.assert_array_equal(other.partial_fit(*more).vectors_, router.partial_fit(*more).vectors_)
    with pytest.raises(InputError, match="not empty"):
        router.save(tmp_path / "router")
    router.save(tmp_path / "router", overwrite=True)
    assert len(CarveRouter.load(tmp_path / "router").ids_) == 15


def test_any_text_and_numpy_parameters_are_saved(tmp_path):
    ids = ["日本", "\ud800 half a pair"]
    router = CarveRouter(**FAST | {"dim": np.int64(8), "lr": np.float32(1e-3), "mix": np.array([0.2, 0.3, 0.5])})
    router.fit(HUB[0][:2], ids, ["d", "d"]).save(tmp_path / "router")
    assert CarveRouter.load(tmp_path / "router").ids_.tolist() == ids


def test_what_json_cannot_hold_is_not_saved(tmp_path):
    router = CarveRouter(**FAST).fit(HUB[0][:2], ["a", ("b", 1)], ["d", "d"])
    with pytest.raises(ValueError, match=r"the id \('b', 1\) is a tuple"):
        router.save(tmp_path / "router")
    assert list(tmp_path.iterdir()) == []


def test_an_own_encoder_is_given_again(tmp_path):
    texts, ids = ["aaa", "zzz"] * 4, ["first", "last"] * 4
    router = CarveRouter(**FAST, encoder=Letters(), init="prototype").fit(texts, ids, ["x"] * 8)
    router.save(tmp_path / "router")
    with pytest.raises(ValueError, match="no encoder"):
        CarveRouter.load(tmp_path / "router").predict(["aa"])
    assert CarveRouter.load(tmp_path / "router", encoder=Letters()).predict(["aa"]).tolist() == ["first"]


def test_a_folder_with_other_things_is_never_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="other things than a router"):
        learned().save(tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def _json(folder, change):
    state = json.loads((folder / STATE).read_text())
    change(state)
    (folder / STATE).write_text(json.dumps(state))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / TENSORS).unlink(), "holds no router"),
        (lambda f: (f / TENSORS).write_bytes(b"nonsense"), "damaged"),
        (lambda f: (f / STATE).write_text("{"), "damaged"),
        (lambda f: (f / STATE).write_text("[]"), "format 1"),
        (lambda f: _json(f, lambda s: s.update(format=2)), "format 1"),
        (lambda f: (f / STATE).write_text("[" * 100_000), "damaged"),
        (lambda f: _json(f, lambda s: s["registry"]["ids"].pop()), "differ in length"),
        (lambda f: _json(f, lambda s: s["registry"].update(ids=5)), "registry is no table"),
        (lambda f: _json(f, lambda s: s["registry"]["ids"].__setitem__(0, [])), "registry is no table"),
        (lambda f: _json(f, lambda s: s["registry"]["n_seen"].__setitem__(0, -1)), "registry is no table"),
        (lambda f: _json(f, lambda s: s["registry"]["retired"].__setitem__(0, "no")), "registry is no table"),
        (lambda f: _json(f, lambda s: s.update(seed="x")), "seed, counts or encoder"),
        (lambda f: _json(f, lambda s: s.update(n_experiences=-1)), "seed, counts or encoder"),
        (lambda f: _json(f, lambda s: s.update(encoder="mine")), "seed, counts or encoder"),
        (lambda f: _json(f, lambda s: [v.pop() for v in s["registry"].values()]), "do not fit"),
        (lambda f: _json(f, lambda s: s["registry"]["ids"].__setitem__(0, "m1")), "not all different"),
        (lambda f: _json(f, lambda s: s["parameters"].update(replay=7)), "replay must"),
        (lambda f: _json(f, lambda s: s["parameters"].update(colour="red")), "parameters"),
    ],
)
def test_a_damaged_router_is_refused(tmp_path, damage, message):
    learned(epochs=1).save(tmp_path / "router")
    damage(tmp_path / "router")
    with pytest.raises(InputError, match=message):
        CarveRouter.load(tmp_path / "router")


def test_routes_do_not_depend_on_the_order_of_the_registry():
    router = learned().retire("m4")
    X = HUB[0]
    ids, scores = router.topk(X, 5)
    order = np.random.default_rng(1).permutation(12)
    registry = router._registry
    for column in ("ids", "domains", "families", "experience", "n_seen", "retired"):
        values = getattr(registry, column)
        setattr(registry, column, [values[i] for i in order])
    registry.index = {name: i for i, name in enumerate(registry.ids)}
    router.vectors_ = router.vectors_[order]
    assert router.ids_.tolist() == [f"m{i}" for i in order]
    again, their_scores = router.topk(X, 5)
    assert again.tolist() == ids.tolist()
    np.testing.assert_allclose(their_scores, scores, atol=1e-5)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (["a text"], "this router has no encoder"),
        (HUB[0][:, :3], "has 3 columns; this router was trained on 16"),
        (np.full((2, 16), np.nan), "NaN or infinity, first in row 0"),
        (HUB[0][0], "the shape"),
    ],
)
def test_bad_queries_are_refused(X, message):
    router = learned(epochs=1)
    for use in (router.predict, router.topk, router.decision_function):
        with pytest.raises(ValueError, match=message):
            use(X)
    with pytest.raises(ValueError, match=message):
        router.score(X, ["m0"] * len(X))


def test_scores_need_a_router_and_as_many_ids_as_queries():
    with pytest.raises(NotFittedError):
        CarveRouter().score(*HUB[:2])
    with pytest.raises(ValueError, match="X has 96 rows, and ids 95"):
        learned(epochs=1).score(HUB[0], HUB[1][1:])
    with pytest.raises(ValueError, match="no rows to score"):
        learned(epochs=1).score(HUB[0][:0], [])


@pytest.mark.parametrize(("init", "strength", "lr"), [("random", 10.0, 3e-3), ("prototype", 100.0, 1e-3)])
def test_what_none_means(init, strength, lr):
    plain = learned(init=init)
    given = learned(init=init, lambda_emb=strength, lambda_proj=strength, lr=lr)
    np.testing.assert_array_equal(plain.vectors_, given.vectors_)
    np.testing.assert_array_equal(plain.projection_, given.projection_)
    for change in ({"lambda_emb": 1.0}, {"lambda_proj": 1.0}, {"lr": 1e-2}):
        assert not np.array_equal(plain.vectors_, learned(init=init, **change).vectors_)


def test_random_starts_have_their_variance_and_unit_length():
    X, ids, domains, _ = hub(n_ids=60, each=1, d=100)
    router = CarveRouter(**FAST | {"dim": 200}, epochs=0).fit(X, ids, domains)
    assert router.projection_.shape == (100, 200)
    assert router.projection_.std() == pytest.approx(0.1, rel=0.03)  # variance 1/d
    assert abs(router.projection_.mean()) < 0.005
    np.testing.assert_allclose(np.linalg.norm(router.vectors_, axis=1), 1, rtol=1e-5)
    cosines = router.vectors_ @ router.vectors_.T - np.eye(60)
    assert cosines.std() == pytest.approx(200**-0.5, rel=0.1)


@pytest.mark.parametrize(("every", "times"), [(1, 8), (3, 3), (8, 1)])
def test_hard_candidates_are_looked_up_anew(monkeypatch, every, times):
    looks = []
    mine = Candidates.mine

    def watch(self, *arguments):
        looks.append(1)
        return mine(self, *arguments)

    monkeypatch.setattr(Candidates, "mine", watch)
    CarveRouter(**FAST, hard_every=every).fit(*part(HUB, range(6)))
    assert len(looks) == times
