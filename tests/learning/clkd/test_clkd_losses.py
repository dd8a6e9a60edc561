"""The loss for networks, and networks as students."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from clkd_cohorts import cohort, sets
from torch import nn

from assay.errors import MissingPart
from assay.learning import clkd
from assay.learning.clkd import CLKDSurvival, Components, CompositeKDLoss, composite_kd_loss, make_components
from assay.learning.clkd import networks as net
from assay.learning.clkd.partition import risk_set_partition, set_partition

X, EVENT, TIME, STRATA = cohort(0, 40, 3, ties=True, strata=True)
RISK, TEACHER = np.random.default_rng(1).normal(size=(2, 40))


def components(kind="risk_set"):
    groups = np.arange(40) // 4 if kind == "matched" else None
    strata = STRATA if kind != "matched" else None
    return make_components(EVENT, TIME, kind=kind, groups=groups, strata=strata, random_state=0)


def by_hand(found, eta):
    """Value and gradient, set by set."""
    value, gradient, total = 0.0, np.zeros(40), found.weight.sum()
    for row, w in zip(found.index, found.weight / total, strict=True):
        m = row[row >= 0]
        q, p = (np.exp(s[m]) / np.exp(s[m]).sum() for s in (RISK, TEACHER))
        first = np.eye(len(m))[0]
        target = p if np.isinf(eta) else (first + eta * p) / (1 + eta)
        value -= w * target @ np.log(q)
        gradient[m] += w * (q - target)
    return value, gradient


@pytest.mark.parametrize("kind", ["risk_set", "matched", "pairwise", "ncc"])
@pytest.mark.parametrize("eta", [0.0, 0.7, 20.0, np.inf])
def test_value_and_gradient_are_the_closed_form(kind, eta):
    found = components(kind)
    risk = torch.tensor(RISK[:, None], requires_grad=True)
    loss = composite_kd_loss(risk, found, torch.tensor(TEACHER), eta)
    loss.backward()
    value, gradient = by_hand(found, eta)
    assert loss.item() == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(risk.grad[:, 0], gradient, atol=1e-12)
    assert CompositeKDLoss(eta)(risk, found, torch.tensor(TEACHER)).item() == loss.item()


def test_gradcheck():
    found, teacher = components(), torch.tensor(TEACHER)
    risk = torch.tensor(RISK, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: composite_kd_loss(r, found, teacher, 2.0), (risk,))


def test_without_a_teacher_it_is_the_negative_log_likelihood():
    found, risk = components(), torch.tensor(RISK)
    assert composite_kd_loss(risk, found) == composite_kd_loss(risk, found, torch.tensor(TEACHER), 0.0)
    two = torch.tensor(np.column_stack([TEACHER, TEACHER]))
    torch.testing.assert_close(
        composite_kd_loss(risk, found, two, 3.0), composite_kd_loss(risk, found, torch.tensor(TEACHER), 3.0)
    )


def test_half_precision_and_large_scores():
    found = components()
    loss = composite_kd_loss(torch.tensor(RISK).to(torch.bfloat16), found, torch.tensor(TEACHER))
    assert loss.dtype == torch.float32
    risk = torch.tensor(1e4 * RISK, requires_grad=True)
    composite_kd_loss(risk, found, torch.tensor(1e4 * TEACHER)).backward()
    assert torch.isfinite(risk.grad).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"risk": torch.zeros(40, 2)}, r"risk must have shape \(n,\) or \(n, 1\)"),
        ({"risk": torch.zeros(10)}, "components must number the rows of risk, 0 to 9"),
        ({"risk": RISK}, "risk must be a tensor of floats"),
        ({"risk": torch.zeros(40, dtype=torch.long)}, "risk must be a tensor of floats"),
        ({"risk": torch.full((40,), float("nan"))}, "risk has NaN"),
        ({"teacher_risk": torch.zeros(10)}, "teacher_risk has 10 rows and risk has 40"),
        ({"teacher_risk": torch.full((40,), float("inf"))}, "teacher_risk has NaN or infinity"),
        ({"teacher_risk": torch.zeros(40, 0)}, "teacher_risk must have at least one column"),
        ({"eta": -1.0}, "eta must be"),
        ({"components": Components(np.zeros((0, 2), dtype=np.int64), np.zeros(0))}, "at least one set"),
        ({"components": Components(np.array([[-1, 2]]), np.ones(1))}, "with the case first"),
        ({"components": None}, "components must be Components"),
        ({"components": Components(np.array([[0.0, 2.0]]), np.ones(1))}, "components.index must be whole numbers"),
        ({"components": Components(np.array([[0, 2]]), np.ones(3))}, "a number for each of the 1 sets"),
        ({"components": Components(np.array([[0, 2]]), np.zeros(1))}, "components.weight must be finite.*not all zero"),
        ({"components": Components(np.array([[0, 2]]), np.array([np.nan]))}, "components.weight must be finite"),
    ],
)
def test_bad_input_is_named(arguments, message):
    full = {"risk": torch.tensor(RISK), "components": components(), "teacher_risk": torch.tensor(TEACHER), "eta": 1.0}
    with pytest.raises(ValueError, match=message):
        composite_kd_loss(**(full | arguments))


@pytest.mark.parametrize("kind", ["risk_set", "matched"])
def test_partitions_are_the_same_in_torch(kind):
    stratum = np.unique(STRATA, return_inverse=True)[1]
    v = np.random.default_rng(2).uniform(0.5, 2, 40)
    part = risk_set_partition(EVENT, TIME, stratum, v) if kind == "risk_set" else set_partition(components(kind), v)
    r = RISK[part.rows]
    risk = torch.tensor(r, requires_grad=True)
    value = net.log_partition(part, risk)
    value.backward()
    assert value.item() == pytest.approx(part.at(r).value, abs=1e-12)
    np.testing.assert_allclose(risk.grad, part.at(r).expected(), atol=1e-12)


class Logarithm(nn.Module):
    """Of a negative number: NaN."""

    def forward(self, x):
        return torch.log(-x.abs())


def line(p):
    return nn.Linear(p, 1, bias=False)


@pytest.mark.parametrize("kind", ["risk_set", "matched"])
def test_a_network_of_one_layer_comes_to_the_linear_students_fit(kind, monkeypatch):
    monkeypatch.setattr(net, "LEARNING_RATE", 0.05)
    X, event, time, _ = cohort(3, 150, 3)
    extra = {"teacher_risk": X[:, 0]}
    if kind == "matched":
        X, event, groups = sets(3, 70)
        time = np.ones(len(X))
        extra = {"groups": groups, "teacher_risk": X[:, 0]}
    before = torch.random.get_rng_state()
    deep = CLKDSurvival(components=kind, eta=1.0, alphas=(0.0,), student=line, random_state=0, device="cpu")
    deep.fit(X, (event, time), **extra)
    assert torch.equal(torch.random.get_rng_state(), before)
    linear = CLKDSurvival(components=kind, eta=1.0, alphas=(0.0,)).fit(X, (event, time), **extra)
    assert np.corrcoef(deep.predict(X), linear.predict(X))[0, 1] > 0.97
    again = copy.deepcopy(deep).fit(X, (event, time), **extra)
    np.testing.assert_array_equal(again.predict(X), deep.predict(X))
    assert deep.n_iter_ > 20
    if kind == "risk_set":
        survival = deep.predict_survival_function(X, return_array=True)
        assert ((survival >= 0) & (survival <= 1)).all()


def test_networks_are_averaged_over_eta(monkeypatch):
    monkeypatch.setattr(net, "MOST_EPOCHS", 60)

    def student(p):
        return nn.Sequential(nn.Linear(p, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))

    X, event, time, _ = cohort(4, 120, 3)
    model = CLKDSurvival({0: 1.0}, etas=(0.0, 10.0), alphas=(1e-3,), student=student, random_state=0, device="cpu").fit(
        X, (event, time)
    )
    assert len(model.students_) == 2
    assert model.eta_weights_.sum() == pytest.approx(1)
    assert np.isfinite(model.predict(X)).all()
    assert model.teacher_report()["internal_loss"] > 0
    parts = [net.network_scores(n, (X - model.mean_) / model.scale_) for n in model.students_]
    expected = sum(
        w * (s - level) for w, s, level in zip(model.student_weights_, parts, model.student_levels_, strict=True)
    )
    np.testing.assert_allclose(model.predict(X), expected)


def test_many_components_are_dealt_into_batches(monkeypatch):
    monkeypatch.setattr(net, "ONE_BATCH", 20)
    monkeypatch.setattr(net, "BATCH", 10)
    monkeypatch.setattr(net, "MOST_EPOCHS", 3)
    X, event, time, _ = cohort(5, 100, 2)
    for kind in ("risk_set", "pairwise"):
        model = CLKDSurvival(components=kind, eta=0, alphas=(0.1,), student=line, random_state=0, device="cpu")
        assert np.isfinite(model.fit(X, (event, time)).predict(X)).all()


@pytest.mark.parametrize(
    ("student", "message"),
    [
        (lambda p: 3, r"student\(3\) must be a torch.nn.Module"),
        (lambda p: nn.Linear(p, 2), r"student must map .* got \(34, 2\)|student must map"),
        (lambda p: nn.Linear(p + 1, 1), "student cannot score"),
        (lambda p: nn.Sequential(nn.Linear(p, 2), nn.Bilinear(2, 2, 1)), "student cannot score"),
        (lambda p: nn.LSTM(p, 1), "student must give a tensor of scores, got tuple"),
        (lambda p: nn.Identity(), "has no parameters"),
        (lambda p: nn.Sequential(nn.Linear(p, 1), Logarithm()), "student gives no finite scores, at eta=0"),
        (lambda p: 1 / 0, "makes no module: ZeroDivisionError"),
    ],
)
def test_students_that_cannot_be(student, message):
    with pytest.raises(ValueError, match=message):
        CLKDSurvival(eta=0, alphas=(0.1,), student=student, device="cpu").fit(X, (EVENT, TIME))


def test_without_torch_only_losses_and_networks_are_missing(monkeypatch):
    code = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
import numpy as np
from assay.errors import MissingPart
from assay.learning import clkd
X = np.arange(20.0)[:, None] % 7
y = (np.arange(20) % 2, np.arange(20) + 1.0)
clkd.CLKDSurvival({0: 1.0}, random_state=0).fit(X, y)
for get in (lambda: clkd.composite_kd_loss, lambda: clkd.CLKDSurvival(eta=0, alphas=(1,), student=abs).fit(X, y)):
    try:
        get()
    except MissingPart as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("assay[") == 2
    with pytest.raises(AttributeError, match="has no attribute"):
        _ = clkd.nothing
    assert issubclass(MissingPart, ImportError)
