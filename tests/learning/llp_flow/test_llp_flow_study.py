import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from llp_flow_bags import clouds
from scipy.optimize import linprog

from assay.errors import InputError
from assay.evidence.study import Budget
from assay.learning.llp_flow import contenders, samples
from assay.learning.llp_flow.own import own_sample
from assay.learning.llp_flow.study import STUDY, Answer, Given, WithLabels, own, score

SMOKE = Budget.SMOKE


def test_tasks_depend_on_the_seed_alone_and_arms_see_no_labels():
    for name in ("digits", "blobs"):
        task = STUDY.task(name)
        given, hidden = task.load(5, SMOKE)
        again, _ = task.load(5, SMOKE)
        other, _ = task.load(6, SMOKE)
        np.testing.assert_array_equal(given.X, again.X)
        assert given.X.shape != other.X.shape or not np.array_equal(given.X, other.X)
        assert not any("y" in field.split("_") for field in vars(given))
        K = given.proportions.shape[1]
        for b in range(len(given.proportions)):
            mine = hidden.y[given.bags == b]
            np.testing.assert_allclose(given.proportions[b], np.bincount(mine, minlength=K) / len(mine))


def test_the_random_bags_hold_the_same_rows_and_are_more_alike():
    given, hidden = STUDY.task("digits").load(0, Budget.QUICK)
    assert given.even_bags is not None
    assert np.bincount(given.even_bags).tolist() == [50] * 24
    K = given.proportions.shape[1]
    for b in range(24):
        mine = hidden.y[given.even_bags == b]
        np.testing.assert_allclose(given.even_proportions[b], np.bincount(mine, minlength=K) / 50)
    assert given.even_proportions.std(axis=0).mean() < 0.5 * given.proportions.std(axis=0).mean()


@pytest.mark.parametrize("name", ["digits", "blobs"])
def test_the_order_of_rows_does_not_give_labels_away(name):
    """Handing out the classes of each bag in their order is no better than chance."""
    given, hidden = STUDY.task(name).load(3, Budget.QUICK)
    sizes = np.bincount(given.bags)
    guess = np.concatenate(
        [
            np.repeat(np.arange(len(pi)), np.round(pi * n).astype(int))
            for pi, n in zip(given.proportions, sizes, strict=True)
        ]
    )
    chance = (given.proportions**2).sum(axis=1) @ sizes / sizes.sum()
    assert (guess == hidden.y).mean() == pytest.approx(chance, abs=0.08)


def test_training_and_test_rows_are_apart():
    X = np.arange(1000.0)[:, None]
    sample = samples.deal(X, np.arange(1000) % 3, np.random.default_rng(0), 600, 300, 50, "dirichlet")
    assert not set(sample.X[:, 0]) & set(sample.X_test[:, 0])
    assert len(sample.X) == 600
    assert (sample.y == sample.X[:, 0] % 3).all()


@pytest.mark.parametrize("arm", [a.name for a in STUDY.arms if a.name not in ("flow-weak", "flow-long", "flow-source")])
def test_every_arm_answers(arm):
    given, hidden = STUDY.task("digits").load(1, SMOKE)
    output = STUDY.arm(arm).run(given, 3, SMOKE)
    metrics = score(replace(output, passes=2) if isinstance(output, WithLabels) else output, hidden)
    assert 0 <= metrics["accuracy"] <= 1
    if arm.startswith("flow"):
        assert metrics["finite"]
        assert metrics["transport_ratio"] > 0
    if arm in ("flow", "mixbag", "ot-pseudo"):
        again = STUDY.arm(arm).run(given, 3, SMOKE)
        np.testing.assert_array_equal(output.classes, again.classes)


def test_score_is_the_mean_recall_and_says_what_is_wrong():
    _, hidden = STUDY.task("blobs").load(0, SMOKE)
    assert score(hidden.y_test, hidden)["accuracy"] == 1
    one = np.zeros_like(hidden.y_test)
    assert score(one, hidden)["accuracy"] == pytest.approx(0.25)  # saying one class is worth one in four
    assert score(Answer(one, 0.5, False), hidden) == {"accuracy": 0.25, "transport_ratio": 0.5, "finite": False}
    for bad in (one[:-1], one + 0.5, None, np.full_like(one, 7), np.full_like(one, -1)):
        with pytest.raises((ValueError, TypeError), match=r"output must be|classes must be"):
            score(bad, hidden)


def test_budgets_and_seeds():
    names = {b: {t.name for t, _ in STUDY.pairs(b)} for b in Budget}
    assert names[SMOKE] == {"digits", "blobs"}
    assert names[Budget.QUICK] == {"digits", "satimage", "text-iid", "blobs"}
    assert STUDY.base_seed == 100
    assert min(STUDY.seeds.values()) >= 3
    assert {t.name for t in STUDY.tasks if t.control} == {"blobs"}
    assert pickle.loads(pickle.dumps(STUDY)).name == "llp-flow"


def test_mean_map_gives_back_the_class_means():
    X, bags, pi, y = clouds(n=600, size=40, spread=3.0)
    probs = contenders.mean_map(X, bags, pi, X)
    assert (probs.argmax(axis=1) == y).mean() > 0.9


def test_transport_labels_are_the_cheapest_that_keep_the_proportions():
    rng = np.random.default_rng(0)
    probs = torch.tensor(rng.dirichlet(np.ones(3), size=10))
    starts, pi = np.array([0, 4, 10]), np.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]])
    labels = contenders.transport_labels(probs, pi, starts)
    assert np.bincount(labels[:4], minlength=3).tolist() == [2, 1, 1]
    assert np.bincount(labels[4:], minlength=3).tolist() == [3, 3, 0]
    cost = -np.log(probs.numpy()[:4])
    rows, cols = np.kron(np.eye(4), np.ones(3)), np.kron(np.ones(4), np.eye(3))
    best = linprog(cost.ravel(), A_eq=np.vstack([rows, cols]), b_eq=[1] * 4 + [2, 1, 1]).fun
    assert cost[np.arange(4), labels[:4]].sum() == pytest.approx(best)


def test_mixbag_learns_and_differs_from_the_bag_loss():
    X, bags, pi, y = clouds(n=400, size=40)
    mixed = contenders.mixbag(X, bags, pi, X, 0, passes=15)
    trainer, standardise, _ = contenders.start(X, bags, pi, 0)
    for _ in range(15):
        trainer.one_pass()
    plain = contenders.predict(trainer.network, standardise, X)
    assert (mixed.argmax(axis=1) == y).mean() > 0.9
    assert (mixed != plain).any()


def own_table(path, n=160):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    bag = np.where(rng.random(n) < 0.7, y, 1 - y) + 2 * rng.integers(2, size=n)
    frame = pd.DataFrame(
        {"bag": [f"0{b}" for b in bag], "label": np.array(["no", "yes"])[y], "a": y + rng.normal(size=n)}
    )
    frame["word"] = np.where(rng.random(n) < 0.5, "x", "z")
    frame.to_csv(path, index=False)
    return frame


def test_own_table(tmp_path):
    frame = own_table(tmp_path / "mine.csv")
    study = own({"data": tmp_path / "mine.csv"})
    assert "160 rows in 4 bags, 2 classes" in study.tasks[0].what
    given, hidden = study.tasks[0].load(0, SMOKE)
    assert isinstance(given, Given)
    assert len(given.X) + len(given.X_test) == 160
    assert given.X.shape[1] >= 2  # words became numbers
    for b, name in enumerate(sorted(frame["bag"].unique())):
        mine = hidden.y[given.bags == b]
        assert given.proportions[b, 1] == pytest.approx(mine.mean())
        whole = (frame["bag"] == name).sum()
        assert len(mine) == whole - int(0.25 * whole)
    assert not np.array_equal(own_sample(tmp_path / "mine.csv", np.random.default_rng(1)).X, given.X)
    answer = study.arm("flow").run(given, 0, SMOKE)
    assert score(answer, hidden)["accuracy"] > 0.5
    assert {other for claim in study.claims for other in claim.others} == {"bag", "ot-pseudo", "mean-map"}
    with pytest.raises(InputError, match="takes a table"):
        own({"model": tmp_path})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="bag"), "no column 'bag'"),
        (lambda f: f.drop(columns="label"), "no column 'label'"),
        (lambda f: f[["bag", "label"]], "no columns but"),
        (lambda f: f[:30], "30 rows"),
        (lambda f: f[f["bag"] < "02"], "in 2 bags"),
        (lambda f: f.assign(label="no"), "of 1 classes"),
        (lambda f: f.assign(label=range(len(f))), "it must hold classes"),
        (lambda f: f.assign(bag=f["bag"].where(f.index > 0)), "'bag' is empty in 1 rows"),
    ],
)
def test_an_own_table_that_cannot_be_used(tmp_path, change, message):
    frame = change(own_table(tmp_path / "mine.csv"))
    frame.to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(InputError, match=message):
        own({"data": tmp_path / "bad.csv"})
