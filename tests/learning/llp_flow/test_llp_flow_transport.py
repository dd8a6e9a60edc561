import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from assay.errors import InputError
from assay.learning.llp_flow import AnchorFlow, transport_to_bag
from assay.numerics.transport import exact_plan

ROWS, ANCHORS, LABELS = [[0.0], [1.0]], [[-1.0], [0.2], [0.8], [3.0]], [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("pi", "cost", "grad"),
    [((0.5, 0.5), 1.27, [-0.5, 0.1, -0.1, 1.0]), ((1, 0), 0.82, [-1.0, -0.8, 0, 0])],
)
def test_reference_values(pi, cost, grad):
    for kind in (list, np.asarray, torch.tensor):
        found, pull = transport_to_bag(kind(ROWS), kind(ANCHORS), LABELS, pi)
        assert found == pytest.approx(cost, abs=1e-6)
        np.testing.assert_allclose(pull.ravel(), grad, atol=1e-6)


def problem(seed, n=6, per_class=3, classes=3, d=2):
    rng = np.random.default_rng(seed)
    Z, anchors = rng.standard_normal((n, d)), rng.standard_normal((classes * per_class, d))
    pi = rng.dirichlet(np.ones(classes))
    if seed % 3 == 0:
        pi[rng.integers(classes)] = 0
        pi /= pi.sum()
    return Z, anchors, np.repeat(np.arange(classes), per_class), pi, rng.integers(classes, size=n)


@given(st.integers(0, 500))
@settings(max_examples=25, deadline=None)
def test_cost_is_that_of_the_linear_program(seed):
    Z, anchors, labels, pi, guess = problem(seed)
    cost, grad = transport_to_bag(Z, anchors, labels, pi, 2.0, guess, scale=1.7)
    M = ((Z[:, None] - anchors) ** 2).sum(-1) / 1.7**2 + 2.0 * (guess[:, None] != labels)
    n, m = M.shape
    rows, cols = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    b = np.concatenate([np.full(n, 1 / n), pi[labels] / 3])
    solved = linprog(M.ravel(), A_eq=np.vstack([rows, cols])[:-1], b_eq=b[:-1])
    assert cost == pytest.approx(solved.fun, abs=1e-8)
    assert (grad[pi[labels] == 0] == 0).all()


@given(st.integers(0, 500))
@settings(max_examples=25, deadline=None)
def test_the_masses_of_rows_and_anchors_are_moved_exactly(seed):
    """A shift of all rows pulls the anchors by their masses, and of each row's mass nothing is lost."""
    Z, anchors, labels, pi, _ = problem(seed)
    plan = exact_plan(((Z[:, None] - anchors) ** 2).sum(-1), np.full(len(Z), 1 / len(Z)), pi[labels] / 3)
    np.testing.assert_allclose(plan.sum(axis=1), 1 / len(Z), atol=1e-12)
    np.testing.assert_allclose(plan.sum(axis=0), pi[labels] / 3, atol=1e-12)
    # Summed over anchors the gradient is 2 (Σ b_j a_j − mean of the rows).
    _, grad = transport_to_bag(Z, anchors, labels, pi)
    expected = 2 * ((pi[labels] / 3) @ anchors - Z.mean(axis=0))
    np.testing.assert_allclose(grad.sum(axis=0), expected, atol=1e-12)


def test_gradient_is_that_of_the_cost():
    Z, anchors, labels, pi, _ = problem(4)
    _, grad = transport_to_bag(Z, anchors, labels, pi, scale=1.3)
    for j in range(len(anchors)):
        for k in range(2):
            ends = []
            for sign in (1, -1):
                moved = anchors.copy()
                moved[j, k] += sign * 1e-6
                ends.append(transport_to_bag(Z, moved, labels, pi, scale=1.3)[0])
            assert grad[j, k] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)


def test_anchors_on_the_rows_of_their_class_stay():
    Z = np.array([[0.0, 0], [1, 0], [0, 1], [5, 5]])
    cost, grad = transport_to_bag(Z, Z, [0, 0, 0, 1], [0.75, 0.25])
    assert cost == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(grad, 0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Z": [[0.0, 1.0]]}, "Z and anchors"),
        ({"Z": np.zeros((0, 1))}, "n ≥ 1"),
        ({"Z": [["a"]]}, "Z must be numbers"),
        ({"Z": [[np.nan]]}, "Z must be finite"),
        ({"anchors": [[np.inf]] * 4}, "anchors must be finite"),
        ({"anchor_labels": [0, 0, 1]}, "anchor_labels"),
        ({"anchor_labels": [0, 0, 1, 2]}, "anchor_labels"),
        ({"proportion": [0.5, 0.4]}, "sum to 1"),
        ({"proportion": [1.5, -0.5]}, "negative"),
        ({"proportion": [0.2, 0.3, 0.5]}, "class 2 has a share of the bag and no anchor"),
        ({"label_cost": 1.0}, "z_labels"),
        ({"label_cost": 1.0, "z_labels": [0]}, "z_labels"),
        ({"scale": 0.0}, "scale"),
        ({"scale": np.inf}, "scale"),
        ({"scale": "1"}, "scale"),
        ({"label_cost": -1.0}, "label_cost"),
        ({"label_cost": np.nan}, "label_cost"),
        ({"anchor_labels": [0, 0.5, 1, 1]}, "anchor_labels must be whole"),
        ({"anchor_labels": list("aabb")}, "anchor_labels must be whole"),
        ({"anchors": np.zeros((0, 1)), "anchor_labels": []}, "no anchor"),
        ({"Z": [[0.0], [1e200]]}, "overflow"),
    ],
)
def test_bad_input(change, message):
    good = {"Z": ROWS, "anchors": ANCHORS, "anchor_labels": LABELS, "proportion": [0.5, 0.5]}
    with pytest.raises(InputError, match=message):
        transport_to_bag(**{**good, **change})


def line(seed=0):
    """Two classes on a line, at 0 and at 10, in two bags, and anchors far off."""
    rng = np.random.default_rng(seed)
    Z = [np.r_[rng.normal(0, 1, 30), rng.normal(10, 1, 10)], np.r_[rng.normal(0, 1, 10), rng.normal(10, 1, 30)]]
    return [z[:, None] for z in Z], [np.array([0.75, 0.25]), np.array([0.25, 0.75])]


def test_the_flow_finds_the_classes_from_proportions_alone():
    bags, pi = line()
    flow = AnchorFlow(2, 10, 1, class_term=0.0, random_state=0)
    flow.init_from(np.concatenate(bags), np.full((80, 2), 0.5))  # the classes look the same at the start
    steps = [flow.step(bags[t % 2], pi[t % 2], torch.nn.Identity()) for t in range(300)]
    anchors = flow.anchors.numpy()[:, 0].reshape(2, 10)
    assert (anchors[0] < 5).mean() >= 0.7
    assert (anchors[1] > 5).mean() >= 0.7
    cost = np.array([step["transport"] for step in steps])
    assert cost[-20:].mean() < 0.5 * cost[:20].mean()


def test_anchors_start_on_rows_that_are_predicted_theirs_and_absent_classes_never_move():
    Z = np.array([[0.0], [1.0], [2.0]])
    flow = AnchorFlow(3, 4, 1, random_state=0).init_from(Z, np.eye(3), present=np.array([True, True, False]))
    np.testing.assert_array_equal(flow.anchors.numpy()[:, 0], np.repeat([0.0, 1, 2], 4))
    for _ in range(5):
        flow.step(Z[:2] + 1, [0.5, 0.5, 0], lambda a: torch.cat([-a, a, a], dim=1))
    assert (flow.anchors[8:] == 2).all()
    assert (flow.anchors[:8, 0].numpy() != np.repeat([0.0, 1], 4)).all()
    assert set(flow.draw(100)[1].tolist()) == {0, 1}


def test_the_class_term_pushes_anchors_to_where_the_classifier_agrees():
    Z, pi = np.array([[0.0], [0.0]]), [0.5, 0.5]
    flow = AnchorFlow(2, 3, 1, random_state=0).init_from(Z, np.full((2, 2), 0.5))
    step = flow.step(Z, pi, lambda a: torch.cat([-a, a], dim=1))
    assert step["class"] == pytest.approx(np.log(2))
    assert (flow.anchors[:3] < 0).all()
    assert (flow.anchors[3:] > 0).all()


def test_the_flow_does_not_depend_on_the_unit_of_the_features():
    bags, pi = line()
    results = []
    for unit in (1.0, 1000.0):
        flow = AnchorFlow(2, 5, 1, class_term=0.0, random_state=3)
        flow.init_from(unit * np.concatenate(bags), np.full((80, 2), 0.5))
        for t in range(20):
            flow.step(unit * bags[t % 2], pi[t % 2], torch.nn.Identity())
        results.append(flow.anchors.numpy() / unit)
    np.testing.assert_allclose(*results, rtol=1e-3)


@pytest.mark.parametrize("name", ["n_classes", "per_class", "dim"])
def test_a_flow_needs_something_to_move(name):
    with pytest.raises(InputError, match=name):
        AnchorFlow(**{"n_classes": 2, "per_class": 2, "dim": 2, name: 0})


@pytest.mark.parametrize(
    ("Z", "probs", "message"),
    [
        (np.zeros((3, 2)), np.ones((3, 2)), "must be"),
        (np.zeros((3, 1)), np.ones((3, 3)), "must be"),
        (np.full((3, 1), np.nan), np.ones((3, 2)), "finite"),
        (np.zeros((3, 1)), -np.ones((3, 2)), "not negative"),
    ],
)
def test_a_flow_starts_on_rows_only(Z, probs, message):
    with pytest.raises(InputError, match=message):
        AnchorFlow(2, 2, 1).init_from(Z, probs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Z_bag": [[0.0, 1.0]]}, "Z_bag must be"),
        ({"Z_bag": [[np.nan]]}, "Z_bag must be finite"),
        ({"Z_bag": np.zeros((0, 1))}, "Z_bag must be"),
        ({"Z_bag": [["a"]]}, "must be numbers"),
        ({"proportion": [0.2, 0.3, 0.5]}, "proportion must be 2 shares"),
        ({"proportion": [np.nan, 1]}, "proportion must be"),
        ({"proportion": [0.5, 0.9]}, "sum to 1"),
        ({"proportion": [-0.5, 1.5]}, "proportion must be"),
        ({"z_labels": [0, 1, 1]}, "z_labels must be 2 classes"),
        ({"z_labels": None}, "label_cost needs z_labels"),
        ({"head": lambda a: a[:2]}, "head must return"),
        ({"head": lambda a: torch.cat([a, a], dim=1) * np.nan}, "no longer finite"),
    ],
)
def test_a_step_that_cannot_be_taken(change, message):
    good = {"Z_bag": ROWS, "proportion": [0.5, 0.5], "z_labels": [0, 1], "head": lambda a: torch.cat([-a, a], dim=1)}
    flow = AnchorFlow(2, 3, 1, label_cost=1.0, random_state=0).init_from(ROWS, np.full((2, 2), 0.5))
    flow.step(**good)
    with pytest.raises(InputError, match=message):
        flow.step(**{**good, **change})


@pytest.mark.parametrize("change", [{"lr": -1.0}, {"lr": np.nan}, {"class_term": -1.0}, {"label_cost": np.inf}])
def test_a_flow_needs_numbers(change):
    with pytest.raises(InputError, match=next(iter(change))):
        AnchorFlow(2, 2, 1, **change)
    with pytest.raises(InputError, match="present must be 2 times"):
        AnchorFlow(2, 2, 1).init_noise(np.zeros((3, 1)), np.array([False, False]))
