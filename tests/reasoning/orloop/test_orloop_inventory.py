"""Order decisions: known best answers, what orders cost, the bias of orders, and who learns them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.stats import norm

from assay.errors import InputError
from assay.parts import net_files
from assay.reasoning.orloop import bias_report, cost_gap, curriculum, eoq, newsvendor
from assay.reasoning.orloop.inventory import Decision, eoq_order, newsvendor_order

pytest.importorskip("torch")

import torch

from assay.reasoning.orloop import OrderPolicy, fit_orders, human_orders, train_orders


def test_known_answers():
    assert newsvendor_order(10, 4, 1, 100, 20) == pytest.approx(108.6145, abs=1e-4)
    assert newsvendor_order(10, 1, 0, 100, 20) == pytest.approx(125.6310, abs=1e-4)  # the ratio is 0.9
    assert eoq_order(1000, 50, 2) == pytest.approx(223.6068, abs=1e-4)


@settings(max_examples=40)
@given(st.floats(0.02, 0.98), st.floats(1, 500), st.floats(0.01, 100), st.floats(0.1, 50))
def test_the_best_order_scales_with_demand_and_not_with_money(ratio, mu, sigma, money):
    p, s = 10.0, 1.0
    c = p - ratio * (p - s)
    best = newsvendor_order(p, c, s, mu, sigma)
    assert newsvendor_order(money * p, money * c, money * s, mu, sigma) == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert newsvendor_order(p, c, s, 3 * mu, 3 * sigma) == pytest.approx(3 * best, rel=1e-9, abs=1e-6)
    # Above the mean exactly where a lost sale costs more than a unit left over.
    assert (best > mu) == (p - c > c - s) or best == pytest.approx(mu, abs=1e-9 * sigma)


def test_what_an_order_costs_is_what_integration_says():
    decision = newsvendor(1, seed=4)[0]
    p = decision.params

    def cost(q):
        density = norm(p["mu"], p["sigma"]).pdf
        low, high = p["mu"] - 9 * p["sigma"], p["mu"] + 9 * p["sigma"]
        short = integrate.quad(lambda x: (x - q) * density(x), q, high)[0]
        left = integrate.quad(lambda x: (q - x) * density(x), low, q)[0]
        return (p["p"] - p["c"]) * short + (p["c"] - p["s"]) * left

    for order in (decision.optimal + 0.7 * p["sigma"], p["mu"], p["mu"] - p["sigma"]):
        assert cost_gap(decision, order) == pytest.approx(cost(order) - cost(decision.optimal), rel=1e-5, abs=1e-6)
    [one] = eoq(1, seed=2)
    D, K, h = (one.params[k] for k in "DKh")
    assert cost_gap(one, 2 * one.optimal) == pytest.approx(0.25 * np.sqrt(2 * D * K * h))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(-3, 3))
def test_no_order_is_better_than_the_best(seed, steps):
    for decision in (*newsvendor(1, cr=(0.05, 0.95), seed=seed), *eoq(1, seed=seed)):
        order = max(1e-3, decision.optimal * (1 + steps / 10))
        assert cost_gap(decision, order) >= -1e-7 * (1 + decision.optimal)
        assert cost_gap(decision, decision.optimal) == pytest.approx(0, abs=1e-9)


def test_the_best_orders_have_no_bias_and_the_mean_has_all_of_it():
    decisions = newsvendor(200, cr=(0.05, 0.95), seed=3)
    best = bias_report(decisions, [d.optimal for d in decisions])
    assert best.mean_abs_bias == pytest.approx(0)
    assert best.pull_to_center == pytest.approx(0)
    middle = bias_report(decisions, [d.params["mu"] for d in decisions])
    assert middle.pull_to_center == pytest.approx(1)
    assert middle.signed_low > 0 > middle.signed_high
    half = bias_report(decisions, [(d.params["mu"] + d.optimal) / 2 for d in decisions])
    assert half.pull_to_center == pytest.approx(0.5)


def test_what_is_no_order_does_not_count():
    decisions = eoq(4, seed=1)
    report = bias_report(decisions, [decisions[0].optimal * 1.5, None, float("nan"), -3])
    assert report.valid == 0.25
    assert report.mean_abs_bias == pytest.approx(0.5)


def test_ratios_lie_where_they_should_and_seeds_repeat():
    decisions = newsvendor(100, cr=(0.3, 0.4), seed=0)
    assert all(0.3 <= d.critical_ratio <= 0.4 for d in decisions)
    assert decisions == newsvendor(100, cr=(0.3, 0.4), seed=0)
    assert decisions != newsvendor(100, cr=(0.3, 0.4), seed=1)
    assert np.isnan(eoq(1)[0].critical_ratio)


def test_the_stages_of_the_curriculum():
    clear, near, every = (np.array([d.critical_ratio for d in stage]) for stage in curriculum(200, seed=1))
    assert len(clear) + len(near) + len(every) == 200
    assert np.allclose(np.minimum(abs(clear - 0.1), abs(clear - 0.9)), 0)
    assert 0.4 < (clear > 0.5).mean() < 0.6
    assert (((near > 0.149) & (near < 0.251)) | ((near > 0.749) & (near < 0.851))).all()
    assert every.min() > 0.199
    assert every.max() < 0.801
    assert curriculum(200, seed=1) == curriculum(200, seed=1)
    assert [len(stage) for stage in curriculum(3)] == [1, 1, 1]


@pytest.fixture(scope="module")
def known():
    return newsvendor(200, cr=(0.2, 0.8), seed=5)


@pytest.fixture(scope="module")
def asked():
    return newsvendor(300, cr=(0.2, 0.8), seed=6)


@pytest.fixture(scope="module", params=["ratio", "prices"])
def imitation(request, known):
    return fit_orders(known, human_orders(known, seed=7), inputs=request.param, steps=150, seed=8)


def test_the_teacher_is_half_as_bold_as_the_best(known):
    report = bias_report(known, human_orders(known, noise=0.0))
    assert report.pull_to_center == pytest.approx(0.5)
    noisy = bias_report(known, human_orders(known, slope=1.0, noise=0.3, seed=1))
    assert noisy.mean_abs_bias == pytest.approx(0.3 * np.sqrt(2 / np.pi), rel=0.2)


def test_imitation_takes_the_bias_over_and_the_reward_takes_it_away(known, asked, imitation):
    before = bias_report(asked, imitation.orders(asked))
    assert before.pull_to_center == pytest.approx(0.5, abs=0.15)
    trained = train_orders(imitation, [known], steps=100, lr=1e-2, seed=9)
    after = bias_report(asked, trained.orders(asked))
    assert after.mean_abs_bias < 0.5 * before.mean_abs_bias
    assert abs(after.pull_to_center) < 0.2


def test_prices_in_another_currency_are_another_scale_and_no_other_lesson(known):
    pounds = [
        Decision(d.prompt, {k: v * (0.8 if k in "pcs" else 1) for k, v in d.params.items()}, d.optimal) for d in known
    ]
    there = fit_orders(known, [d.optimal for d in known], inputs="prices", steps=50).orders(known)
    here = fit_orders(pounds, [d.optimal for d in known], inputs="prices", steps=50).orders(pounds)
    np.testing.assert_allclose(there, here, rtol=1e-3)


def test_the_same_seed_gives_the_same_orders(known, asked, imitation):
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    kept = imitation.orders(asked)
    stages = curriculum(30, seed=1)
    one, again, other = (
        train_orders(imitation, stages, steps=6, batch=8, group=4, seed=seed).orders(asked) for seed in (1, 1, 2)
    )
    assert one == again != other
    assert imitation.orders(asked) == kept  # the start is not changed
    assert human_orders(known, seed=3) == human_orders(known, seed=3) != human_orders(known, seed=4)
    assert torch.random.get_rng_state().equal(before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_an_order_policy_is_written_and_read(tmp_path, asked, imitation, device):
    folder = imitation.save_pretrained(tmp_path / "p")
    back = OrderPolicy.from_pretrained(folder, device=device)
    assert back.inputs == imitation.inputs
    np.testing.assert_allclose(back.orders(asked), imitation.orders(asked), rtol=1e-5)
    net_files.save(tmp_path / "q", "orloop-orders", {"inputs": "moods"}, {})
    with pytest.raises(InputError, match="no such order policy"):
        OrderPolicy.from_pretrained(tmp_path / "q")
    with pytest.raises(InputError, match="no orloop-orders folder"):
        OrderPolicy.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: newsvendor(0), "n must"),
        (lambda: newsvendor(3, cr=(0.8, 0.2)), "cr"),
        (lambda: newsvendor(3, cr=(0, 1)), "cr"),
        (lambda: eoq(-1), "n must"),
        (lambda: curriculum(2), "n must"),
        (lambda: newsvendor_order(4, 10, 1, 100, 20), "s < c < p"),
        (lambda: newsvendor_order(10, 4, 1, 100, 0), "sigma"),
        (lambda: newsvendor_order(10, 4, 1, float("inf"), 20), "mu="),
        (lambda: eoq_order(1000, 50, float("nan")), "nan"),
        (lambda: bias_report(eoq(2), [1.0]), "orders"),
        (lambda: bias_report([], []), "orders"),
        (lambda: cost_gap(newsvendor(1)[0], -1.0), "order"),
        (lambda: cost_gap(eoq(1)[0], 0.0), "order"),
        (lambda: cost_gap(newsvendor(1)[0], float("nan")), "order"),
        (lambda: human_orders([]), "decisions"),
        (lambda: human_orders(eoq(2)), "decisions"),
        (lambda: human_orders(newsvendor(2), noise=-1.0), "noise"),
        (lambda: human_orders(newsvendor(2), slope=float("nan")), "slope"),
        (lambda: OrderPolicy("weather"), "inputs"),
        (lambda: OrderPolicy().orders(eoq(2)), "decisions"),
        (lambda: fit_orders(newsvendor(2), [1.0]), "orders"),
        (lambda: fit_orders(newsvendor(2), [1.0, float("nan")]), "orders"),
        (lambda: fit_orders(newsvendor(2), [1.0, 2.0], steps=0), "steps"),
        (lambda: fit_orders(newsvendor(2), [1.0, 2.0], lr=0.0), "lr"),
        (lambda: fit_orders(newsvendor(2), [1.0, 2.0], device="abacus"), "device"),
        (lambda: train_orders(OrderPolicy(), []), "stages"),
        (lambda: train_orders(OrderPolicy(), [[]]), "decisions"),
        (lambda: train_orders(OrderPolicy(), [newsvendor(2)] * 3, steps=2), "stages"),
        (lambda: train_orders(OrderPolicy(), [newsvendor(2)], group=1), "group"),
        (lambda: train_orders(OrderPolicy(), [newsvendor(2)], batch=0), "batch"),
        (lambda: train_orders(OrderPolicy(), [newsvendor(2)], noise=0.0), "noise"),
        (lambda: train_orders(OrderPolicy(), [newsvendor(2)], device="abacus"), "device"),
    ],
)
def test_bad_input_is_refused(call, name):
    with pytest.raises(InputError, match=name):
        call()
