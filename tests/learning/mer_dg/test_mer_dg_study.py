"""The study: its data, its scores and who may see what; and the same on a user's recordings."""

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from assay.errors import InputError, MissingPart
from assay.evidence.study import Budget
from assay.learning.mer_dg import contenders, recordings, step_time
from assay.learning.mer_dg import study as room
from assay.learning.mer_dg.contenders import Answer, Given, Terms, vicreg_terms
from assay.learning.mer_dg.study import GRIDS, STUDY, own
from assay.parts import watch

SMOKE = Budget.SMOKE


@pytest.fixture(autouse=True)
def one_epoch(monkeypatch):
    monkeypatch.setattr(room, "EPOCHS", dict.fromkeys(Budget, 1))


def test_windows_are_those_of_the_recordings():
    raw, held = recordings.raw_windows(), watch.load()
    assert len(raw.y) == 2428
    assert raw.inputs["acc"].shape == raw.inputs["gyr"].shape == (2428, 3, 128)
    k = np.flatnonzero(raw.recording == 17)
    np.testing.assert_array_equal(raw.inputs["acc"][k[1]], held.X[17][96:224, :3].T)
    np.testing.assert_array_equal(raw.inputs["gyr"][k[0]], held.X[17][:128, 3:].T)
    assert (raw.y[k] == held.y[17]).all()
    assert (raw.subject[k] == held.subject[17]).all()
    summary = recordings.summary_windows().inputs["acc"][k[0]].reshape(3, 28)
    signal = held.X[17][:128, 1]
    np.testing.assert_allclose(summary[1, :4], [signal.mean(), signal.std(), signal.min(), signal.max()])
    third = np.exp(-2j * np.pi * 3 * np.arange(128) / 128)  # of the spectrum's bins
    np.testing.assert_allclose(summary[1, 4 + 2], np.log1p(abs(signal @ third)))


@pytest.mark.parametrize("task", ["watch-subject", "watch-cooccur", "watch-missing", "watch-raw"])
def test_no_person_is_in_source_and_target(task):
    given, hidden = STUDY.task(task).load(2000, SMOKE)
    again, _ = STUDY.task(task).load(2000, SMOKE)
    other, _ = STUDY.task(task).load(2001, SMOKE)
    assert len(np.unique(given.domains)) == 3
    assert len(np.unique(hidden.domains)) == 7
    assert len(given.y) + len(hidden.y) == 2428
    np.testing.assert_array_equal(given.target["acc"], again.target["acc"])
    assert given.y.shape != other.y.shape or not np.array_equal(given.y, other.y)
    assert {f.name for f in fields(given)} == {"source", "y", "domains", "target", "n_classes", "encoder"}


def test_the_shortcut_is_in_both_signals_of_the_source_and_in_none_of_the_target():
    given, hidden = STUDY.task("watch-cooccur").load(2000, SMOKE)
    plain, _ = STUDY.task("watch-subject").load(2000, SMOKE)
    np.testing.assert_array_equal(given.source["acc"][:, :84], plain.source["acc"])

    def told(rows, y):
        """Accuracy of the nearest mean of the added columns, on the other half."""
        code, half = rows[:, 84:], np.arange(len(y)) % 2 == 0
        means = np.stack([code[half & (y == k)].mean(axis=0) for k in range(7)])
        guess = np.square(code[~half, None] - means).sum(axis=2).argmin(axis=1)
        return (guess == y[~half]).mean()

    for name in ("acc", "gyr"):
        assert told(given.source[name], given.y) > 0.7
        assert told(given.target[name], hidden.y) < 0.3


def test_missing_windows_lack_one_signal_in_source_and_target_alike():
    given, _ = STUDY.task("watch-missing").load(2000, SMOKE)
    for part in (given.source, given.target):
        gone = np.stack([np.isnan(rows).all(axis=1) for rows in part.values()])
        assert not gone.all(axis=0).any()
        assert gone.any(axis=0).mean() == pytest.approx(0.3, abs=0.05)
        assert not np.isnan(part["acc"][~gone[0]]).any()


@pytest.mark.parametrize("arm", [a.name for a in STUDY.arms])
def test_every_arm_answers(arm):
    one = STUDY.arm(arm)
    for name in one.tasks or ("watch-subject",):
        if name in ("watch-raw", "watch-missing") and arm not in ("mer", "fusion", "modality-dropout"):
            continue
        task = STUDY.task(name)
        given, hidden = task.load(0, SMOKE)
        metrics = task.score(one.run(given, 0, SMOKE), hidden)
        assert 5 < metrics["accuracy"] <= 100
        if arm not in ("linear", "within-target"):
            assert 1 <= metrics["rankme"] <= 32
            assert metrics["parameters"] > 1000
            assert 0 < metrics["domain_probe"] <= 100


def test_arms_differ_in_their_term_alone(monkeypatch):
    seen = {}
    monkeypatch.setattr(room, "fused", lambda given, seed, epochs, terms: seen.setdefault("terms", terms))
    given, _ = STUDY.task("watch-subject").load(0, SMOKE)
    told = {}
    for arm in STUDY.arms:
        seen.clear()
        if arm.name not in ("linear", "within-target"):
            arm.run(given, 0, SMOKE)
            told[arm.name] = seen["terms"]
    assert told["fusion"] == Terms()
    assert told["acc-only"] == Terms(only="acc")
    for name, grid in GRIDS.items():
        assert len(grid) == 4  # the same effort for every knob
        assert told[name] in grid
    assert told["mer-projected"] == replace(told["mer"], project=(64, 128))


def test_vicregs_terms_against_their_definition():
    z = torch.randn((40, 6), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.7
    covariance = np.cov(z.numpy().T)
    floor = np.maximum(0, 1 - np.sqrt(np.diag(covariance) + 1e-4)).mean()
    off = (covariance**2).sum() - (np.diag(covariance) ** 2).sum()
    assert float(vicreg_terms(z)) == pytest.approx(floor + off / 6 / 25)


def test_score_cannot_be_gamed():
    task = STUDY.task("watch-subject")
    _, hidden = task.load(0, SMOKE)
    assert task.score(hidden.y, hidden)["accuracy"] == 100
    assert task.score(Answer(hidden.y), hidden) == {"accuracy": 100}
    for bad in (hidden.y[:-1], hidden.y[:, None], hidden.y.astype(float), np.eye(7)[hidden.y], None, "all"):
        with pytest.raises(ValueError, match="class numbers"):
            task.score(bad, hidden)
    with pytest.raises(ValueError, match="positive ratio"):
        STUDY.task("step-time").score(0.0, None)


def test_step_times_are_a_median_of_ratios(monkeypatch):
    """By a clock of our own: a slow first turn and a slow spell in the third do not count."""
    step, ran = replace(step_time.small_step(0), turns=3), []
    clock = iter([9.0, 1.0, 2.0, 3.0, 100.0, 160.0, 4.0, 5.0])

    def seconds(work):
        work()
        return next(clock)

    def loss(features):
        ran.append(sorted(features))
        return features["a"].sum() * 0

    monkeypatch.setattr(step_time, "_seconds", seconds)
    assert step_time.step_ratio(step, 0, loss) == pytest.approx(1.5)  # of 1.5, 1.6 and 1.25
    assert ran == [["a", "b"]] * 4
    monkeypatch.undo()
    assert step_time.step_ratio(step, 0) > 0
    given, hidden = STUDY.task("step-time-large").load(0, SMOKE)
    assert hidden is None
    assert given.encoder((3, 32, 32))(given.inputs["a"][:2]).shape == (2, given.dim)


def test_budgets_and_a_study_that_can_be_sent_to_a_worker():
    names = {b: {t.name for t, _ in STUDY.pairs(b)} for b in Budget}
    assert names[Budget.SMOKE] == {"watch-subject", "step-time"}
    assert {t.name for t in STUDY.tasks} - names[Budget.QUICK] == {"watch-raw", "watch-missing"}
    assert names[Budget.FULL] == {t.name for t in STUDY.tasks}
    assert {a.name for t, a in STUDY.pairs(Budget.FULL) if "step" in t.name} == {"mer"}
    assert STUDY.base_seed == 2000
    assert min(STUDY.seeds.values()) >= 3
    copy = pickle.loads(pickle.dumps(STUDY))
    given, hidden = copy.task("watch-subject").load(0, SMOKE)
    answer = pickle.loads(pickle.dumps(copy.arm("mer").run(given, 0, SMOKE)))
    assert copy.task("watch-subject").score(answer, hidden)["accuracy"] > 5


def test_missing_recordings_say_how_to_install_them(monkeypatch):
    def gone(*_, **__):
        raise MissingPart("the package seglearn is not installed", "python -m pip install 'assay[learning-study]'")

    recordings.raw_windows.cache_clear()
    recordings.summary_windows.cache_clear()
    monkeypatch.setattr(watch, "load", gone)
    with pytest.raises(MissingPart, match="learning-study"):
        STUDY.task("watch-subject").load(0, SMOKE)


def own_file(path, n=120, domains=4, **changes):
    rng = np.random.default_rng(0)
    y, domain = np.arange(n) % 3, (np.arange(n) // 3) % domains
    arrays = {
        "acc": rng.normal(size=(n, 2, 16)) + y[:, None, None],
        "temperature": rng.normal(size=(n, 3)) + y[:, None],
        "label": np.array(["a", "b", "c"])[y],
        "domain": domain,
    }
    np.savez(path, **{name: rows for name, rows in (arrays | changes).items() if rows is not None})
    return path


def test_own_recordings(tmp_path):
    study = own({"data": own_file(tmp_path / "own.npz")})
    (task,) = study.tasks
    assert "120 rows (acc (2, 16), temperature (3,)) of 3 classes and 4 domains, of which 3" in task.what
    given, hidden = task.load(0, SMOKE)
    assert given.encoder == {"acc": "cnn1d", "temperature": "mlp"}
    assert len(np.unique(given.domains)) == 3
    assert len(np.unique(hidden.domains)) == 1
    for arm in study.arms:
        metrics = task.score(arm.run(given, 0, SMOKE), hidden)
        assert 0 <= metrics["accuracy"] <= 100
        assert "domain_probe" not in metrics  # one domain cannot be told from another
    assert pickle.loads(pickle.dumps(study)).name == "mer-dg"
    assert {other for claim in study.claims for other in claim.others} == {a.name for a in study.arms} - {"mer"}
    assert all(word in STUDY.accepts["data"] for word in ("'label'", "'domain'", "at least 3"))


def test_own_knobs_are_chosen_on_a_source_domain(tmp_path, monkeypatch):
    given, _ = own({"data": own_file(tmp_path / "own.npz")}).tasks[0].load(0, SMOKE)
    seen = []

    def fake(part, seed, epochs, terms):
        seen.append((part, terms))
        truth = given.y[np.isin(given.source["acc"][:, 0, 0], part.target["acc"][:, 0, 0])]
        return Answer(truth if terms.lam == 0.1 else truth - 1)

    monkeypatch.setattr(room, "fused", fake)
    room.run_tuned(given, 0, SMOKE, "mer")
    assert [terms.lam for _, terms in seen] == [0.03, 0.1, 0.3, 1.0, 0.1]
    for part, _ in seen[:4]:
        assert len(np.unique(part.domains)) == 2
        assert len(part.y) + len(part.target["acc"]) == len(given.y)
    assert seen[-1][0] is given


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": None}, "has no array 'label'; it has acc, domain, temperature"),
        ({"domain": None}, "has no array 'domain'"),
        ({"domain": np.arange(120) % 2}, "2 domains; this study needs 3"),
        ({"label": np.zeros(120, dtype=int)}, "labels of own.npz are the same"),
        ({"label": np.zeros(50, dtype=int)}, r"'label' must have shape \(120,\)"),
        ({"label": np.full(120, np.nan)}, "'label' holds NaN"),
        ({"domain": np.zeros(120, dtype=complex)}, "'domain' must hold numbers or text"),
        ({"acc": np.zeros((50, 2, 16))}, "own.npz: the modalities of X must have the same number of rows"),
        ({"acc": None, "temperature": None}, "no modality beside"),
        ({"acc": np.array([[object()]] * 120)}, "objects|object"),
    ],
)
def test_own_recordings_that_cannot_be_used(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        own({"data": own_file(tmp_path / "own.npz", **changes)})
    with pytest.raises(InputError, match="takes recordings"):
        own({"model": tmp_path / "own.npz"})


def test_linear_is_the_logistic_regression_that_it_says():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    rows = {"a": rng.normal(size=(60, 2, 2)) + 3 * y[:, None, None], "b": np.full((60, 1), np.nan)}
    answer = contenders.linear(Given(rows, y, y * 0, rows, 2, "mlp"), 0)
    assert (answer.predicted == y).mean() > 0.95
