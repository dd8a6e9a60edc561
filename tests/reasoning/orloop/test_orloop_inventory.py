"""Order decisions: known best answers, and the bias of orders."""

import numpy as np
import pytest

from assay.errors import InputError
from assay.reasoning.orloop import bias_report, eoq, newsvendor
from assay.reasoning.orloop.inventory import eoq_order, newsvendor_order


def test_known_answers():
    assert newsvendor_order(10, 4, 1, 100, 20) == pytest.approx(108.6145, abs=1e-4)
    assert newsvendor_order(10, 1, 0, 100, 20) == pytest.approx(125.6310, abs=1e-4)  # the ratio is 0.9
    assert eoq_order(1000, 50, 2) == pytest.approx(223.6068, abs=1e-4)


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
    assert np.isnan(eoq(1)[0].critical_ratio)


@pytest.mark.parametrize(
    "call",
    [
        lambda: newsvendor(0),
        lambda: newsvendor(3, cr=(0.8, 0.2)),
        lambda: newsvendor(3, cr=(0, 1)),
        lambda: eoq(-1),
        lambda: newsvendor_order(4, 10, 1, 100, 20),
        lambda: newsvendor_order(10, 4, 1, 100, 0),
        lambda: eoq_order(1000, 50, float("nan")),
        lambda: bias_report(eoq(2), [1.0]),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InputError):
        call()
