import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from cure_rows import separate

from assay.errors import InputError
from assay.evidence.study import Budget
from assay.learning.cure import study
from assay.learning.cure.baselines import Answer, simgcd
from assay.learning.cure.study import STUDY, load, own, problem_of, score
from assay.parts import minilm

SMOKE = Budget.SMOKE


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def loaded():
    return STUDY.task("digits").load(1, SMOKE)


def test_every_arm_answers_and_beats_chance(loaded):
    given, hidden = loaded
    for arm in STUDY.arms:
        metrics = score(arm.run(given, 3, SMOKE), hidden)
        assert metrics["all"] > 15, arm.name
        assert 0 <= metrics["novel"] <= 100
        assert metrics["gap"] == pytest.approx(metrics["known"] - metrics["novel"])
        assert metrics.keys() <= {*study.METRICS, "parameters", "steps"}
        assert (metrics["steps"] > 0) == (arm.role != "trivial")


def test_the_method_is_the_estimator_and_its_ablations_are_it_step_by_step(loaded):
    given, hidden = loaded
    model = score(STUDY.arm("cure").run(given, 3, SMOKE), hidden)
    steps = score(study.run_discover(given, 3, SMOKE), hidden)
    assert steps["parameters"] == model["parameters"]
    assert steps["steps"] == model["steps"]
    assert steps["all"] == pytest.approx(model["all"], abs=10)  # other draws, the same procedure


def test_every_arm_starts_at_the_same_weights(loaded):
    given, _ = loaded
    one, two = given.start(), given.start()
    assert one is not two
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    before = {name: value.clone() for name, value in one.state_dict().items()}
    STUDY.arm("simgcd").run(given, 0, SMOKE)
    assert all(torch.equal(value, before[name]) for name, value in given.start().state_dict().items())


def test_labels_are_hidden_by_the_seed(loaded):
    given, hidden = loaded
    assert (given.y[hidden.labelled] == hidden.y[hidden.labelled]).all()
    assert (given.y[~hidden.labelled] == -1).all()
    assert set(given.y) == {-1, 0, 1, 2, 3, 4}
    assert 0.4 < hidden.labelled[hidden.y < 5].mean() < 0.6
    assert set(hidden.y) == set(range(10))
    again, other = STUDY.task("digits").load(1, SMOKE), STUDY.task("digits").load(2, SMOKE)
    assert (again[0].y == given.y).all()
    assert (other[1].y != hidden.y).any()
    assert "y" not in {name for name in vars(given) if vars(given)[name] is hidden.y}


def test_score_is_one_matching_over_the_rows_without_labels(loaded):
    _, hidden = loaded
    n = len(hidden.y)
    best = score(hidden.y, hidden)
    assert best["all"] == best["known"] == best["novel"] == 100
    assert best["k_error"] == 0
    assert best["rows"] == (~hidden.labelled).sum()
    renamed = (hidden.y + 3) % 10
    assert score(renamed, hidden)["all"] == 100
    wrong_only_where_told = np.where(hidden.labelled, 9 - hidden.y, hidden.y)
    assert score(wrong_only_where_told, hidden)["all"] == 100
    assert score(np.zeros(n, int), hidden)["all"] < 20
    assert score(np.arange(n), hidden)["all"] < 10  # a class for each row is no answer
    assert score(Answer(hidden.y, 7, 3), hidden)["steps"] == 3
    for bad in (None, hidden.y[:-1], hidden.y / 2, "class"):
        with pytest.raises(ValueError, match="whole numbers, a class for each row"):
            score(bad, hidden)


def test_simgcd_has_what_its_authors_say(loaded, monkeypatch):
    """Contrastive terms at their temperatures; without them no projection is trained."""
    from assay.learning.cure import baselines

    given, _ = loaded
    seen = {"info": [], "sup": []}
    info, sup = baselines.info_nce, baselines.supervised_contrastive
    monkeypatch.setattr(
        baselines, "info_nce", lambda a, b, temperature: seen["info"].append(temperature) or info(a, b, temperature)
    )
    monkeypatch.setattr(
        baselines,
        "supervised_contrastive",
        lambda z, y, temperature: seen["sup"].append(temperature) or sup(z, y, temperature),
    )
    whole = simgcd(problem_of(given, 0), 0, epochs=1)
    assert set(seen["info"]) == {1.0}
    assert set(seen["sup"]) == {0.07}
    seen["info"].clear()
    without = simgcd(problem_of(given, 0), 0, epochs=1, contrast=0.0)
    assert seen["info"] == []
    assert without.parameters < whole.parameters
    assert without.steps == whole.steps


def test_the_number_of_classes_can_be_unknown(loaded):
    given, hidden = STUDY.task("digits-autoK").load(1, SMOKE)
    assert given.n_classes is None
    problem = problem_of(given, 0)
    assert 5 <= problem.n_classes <= 30
    assert score(STUDY.arm("cure").run(given, 0, SMOKE), hidden)["k_error"] <= abs(problem.n_classes - 10) + 3


def test_other_tasks_load(monkeypatch):
    monkeypatch.setattr(study, "NEWS_EACH", 4)
    monkeypatch.setattr(study, "MNIST_EACH", 5)
    monkeypatch.setattr(
        minilm, "encode", lambda texts: np.random.default_rng(0).normal(size=(len(texts), 384)).astype(np.float32)
    )
    given, hidden = STUDY.task("news").load(1, SMOKE)
    assert given.X.shape == (80, 384)
    assert given.views == "tabular"
    assert given.n_classes == 20
    assert score(STUDY.arm("seeded-kmeans").run(given, 0, SMOKE), hidden)["all"] > 5
    given, hidden = STUDY.task("mnist5k").load(1, SMOKE)
    assert given.X.shape == (50, 28, 28)
    assert given.X.max() <= 1
    assert set(hidden.y) == set(range(10))


def test_budgets():
    arms = {b: {a.name for _, a in STUDY.pairs(b)} for b in Budget}
    assert {"cure", "simgcd", "simgcd-no-uniformity", "cure-no-see", "cure+infonce", "kmeans"} <= arms[SMOKE]
    assert arms[SMOKE] < arms[Budget.QUICK] < arms[Budget.FULL] == {a.name for a in STUDY.arms}
    assert {t.name for t, _ in STUDY.pairs(SMOKE)} == {"digits"}
    assert {t.name for t, _ in STUDY.pairs(Budget.QUICK)} == {"digits", "news"}
    assert {t.name for t, _ in STUDY.pairs(Budget.FULL)} == {"digits", "news", "mnist5k", "digits-autoK"}
    assert STUDY.base_seed == 100
    assert (STUDY.seeds[SMOKE], STUDY.seeds[Budget.QUICK], STUDY.seeds[Budget.FULL]) == (3, 8, 20)
    assert {a.name for a in STUDY.arms if a.role == "trivial"} == {"kmeans", "seeded-kmeans"}
    pickle.loads(pickle.dumps(STUDY))


def test_own_rows(tmp_path):
    X, y, _ = separate(each=60)
    y[:5] = -1  # not labelled: left out
    np.savez(tmp_path / "mine.npz", X=X, y=y)
    mine = own({"data": tmp_path / "mine.npz"})
    assert "235 rows of 4 classes; 2 known" in mine.tasks[0].what
    mine = pickle.loads(pickle.dumps(mine))
    given, hidden = mine.tasks[0].load(100, SMOKE)
    assert given.X.shape == (235, 6)
    assert set(given.y) == {-1, 0, 1}
    for arm in mine.arms:
        assert score(arm.run(given, 0, SMOKE), hidden)["all"] > 40
    assert {c.others[0] for c in mine.claims} <= {a.name for a in mine.arms}
    frame = pd.DataFrame(X).add_prefix("c").assign(y=[None if k < 0 else f"class {k}" for k in y])
    frame.to_csv(tmp_path / "mine.csv", index=False)
    again, _ = own({"data": tmp_path / "mine.csv"}).tasks[0].load(100, SMOKE)
    np.testing.assert_allclose(again.X, given.X, atol=1e-5)
    assert (again.y == given.y).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: {"X": X}, "no array 'y'"),
        (lambda X, y: {"X": X, "y": y % 2}, "has 2 classes in 240 labelled rows"),
        (lambda X, y: {"X": X[::3], "y": y[::3]}, "in 80 labelled rows; this study needs"),
        (lambda X, y: {"X": X, "y": np.where(np.arange(len(y)) < 2, 9, y)}, "a class with 2 rows"),
        (lambda X, y: {"X": np.where(X > 14, np.nan, X), "y": y}, "X must be finite"),
    ],
)
def test_a_bad_own_file_is_refused(tmp_path, change, message):
    X, y, _ = separate(each=60)
    np.savez(tmp_path / "mine.npz", **change(X, y))
    with pytest.raises(InputError, match=message):
        own({"data": tmp_path / "mine.npz"})
    with pytest.raises(InputError, match="takes labelled rows"):
        own({"model": tmp_path})


def test_load_gives_each_known_class_a_label():
    def few(seed, budget):
        X, y, _ = separate(each=3)
        return X.astype(np.float32), y

    for seed in range(20):
        given, _ = load(seed, SMOKE, few, "few", True, "residual")
        assert set(given.y) == {-1, 0, 1}
