"""Intervals against numbers worked out by other means."""

from __future__ import annotations

import math
import warnings
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from assay.evidence.intervals import mean_interval, more_seeds, more_seeds_for_rate, proportion_interval


def test_student_by_hand() -> None:
    # mean 3, s = sqrt(2.5) = 1.5811, t(.975, 4) = 2.7764; half = 2.7764 * 1.5811 / sqrt(5) = 1.9633
    assert mean_interval([1, 2, 3, 4, 5]) == pytest.approx((1.0367, 4.9633), abs=1e-4)
    # two values: mean 1, s = sqrt(2), t(.975, 1) = 12.7062; half = 12.7062
    assert mean_interval([0, 2]) == pytest.approx((-11.7062, 13.7062), abs=1e-4)


def test_student_up_to_nine_values() -> None:
    # 1..9: mean 5, s = sqrt(7.5) = 2.7386, t(.975, 8) = 2.3060; half = 2.1051
    assert mean_interval(range(1, 10)) == pytest.approx((2.8949, 7.1051), abs=1e-4)


def _efron(x: np.ndarray, tail: float, resamples: int) -> tuple[float, float]:
    """BCa from Efron (1987): equations 2.3, 4.6 (jackknife form of the acceleration) and percentiles."""
    normal = NormalDist()
    rng = np.random.default_rng(987)
    boot = np.sort([x[rng.integers(0, len(x), len(x))].mean() for _ in range(resamples)])
    z0 = normal.inv_cdf((np.sum(boot < x.mean()) + np.sum(boot == x.mean()) / 2) / resamples)
    jack = np.array([np.delete(x, i).mean() for i in range(len(x))])
    off = jack.mean() - jack
    a = np.sum(off**3) / (6 * np.sum(off**2) ** 1.5)
    ends = []
    for z in (normal.inv_cdf(tail), normal.inv_cdf(1 - tail)):
        ends.append(np.quantile(boot, normal.cdf(z0 + (z0 + z) / (1 - a * (z0 + z)))))
    return ends[0], ends[1]


SKEWED = np.array([0.1, 0.2, 0.2, 0.3, 0.5, 0.6, 0.8, 1.1, 1.3, 1.9, 2.8, 4.7])


def test_each_end_is_the_farther_of_efrons_and_students() -> None:
    low, high = mean_interval(SKEWED)
    efron = _efron(SKEWED, 0.025, 100_000)
    error = SKEWED.std() / math.sqrt(12)
    # mean 1.2083, s = 1.3601, t(.975, 11) = 2.2010: 1.2083 -+ 2.2010 * 1.3601 / sqrt(12) = 0.3442, 2.0725
    assert low == pytest.approx(0.3442, abs=1e-4)
    assert low < efron[0] - 0.1 * error
    # 9999 resamples leave the end in the long tail uncertain by about 0.1 standard errors.
    assert high == pytest.approx(efron[1], abs=0.3 * error)
    assert high > 2.0725 + 0.1 * error
    assert mean_interval(-SKEWED) == pytest.approx((-high, -low), abs=0.3 * error)


def test_bca_of_many_symmetric_values_is_the_normal_interval() -> None:
    x = stats.norm.ppf((np.arange(400) + 0.5) / 400)
    half = 1.96 * x.std() / 20
    assert mean_interval(x) == pytest.approx((-half, half), abs=0.05 * half)


def test_the_same_values_give_the_same_interval() -> None:
    assert mean_interval(SKEWED) == mean_interval(SKEWED.copy())


def test_constants_are_points() -> None:
    assert mean_interval([0.1] * 3) == (0.1, 0.1)
    assert mean_interval([0.1] * 30) == (0.1, 0.1)
    assert mean_interval([-0.0] * 30) == (0, 0)


def test_ties() -> None:
    # Eleven zeros and a one: the mean of a resample is Binomial(12, 1/12)/12, and none can fall below 0.
    # Student: 1/12 - 2.2010 / 12 = -0.1001.
    low, high = mean_interval([0] * 11 + [1])
    assert low == pytest.approx(-0.1001, abs=1e-4)
    assert 1 / 12 < high <= 7 / 12


def test_very_small_and_nearly_constant_numbers() -> None:
    low, high = mean_interval(SKEWED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.multiply(mean_interval(SKEWED * 1e-200), 1e200) == pytest.approx((low, high), rel=1e-9)
        assert np.subtract(mean_interval(SKEWED + 2**20), 2**20) == pytest.approx((low, high), rel=1e-6)


def test_rounding_does_not_part_ties() -> None:
    # The means of many resamples are those of the sample; in logarithms each has a rounding of its own.
    for scale in (1.0, 0.1, 3.0, 7e5):
        x = np.log(scale * np.array([1.0] * 7 + [0.5, 0.5, 1 / 3])) - math.log(scale)
        assert mean_interval(x) == pytest.approx(mean_interval(np.log([1.0] * 7 + [0.5, 0.5, 1 / 3])), abs=1e-9)


def test_student_where_bca_is_undefined(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = SimpleNamespace(confidence_interval=SimpleNamespace(low=math.nan, high=math.nan))
    monkeypatch.setattr(stats, "bootstrap", lambda *args, **more: nothing)
    # 0..11: mean 5.5, s = sqrt(13) = 3.6056, t(.975, 11) = 2.2010; half = 2.2909
    assert mean_interval(range(12)) == pytest.approx((3.2091, 7.7909), abs=1e-4)


@pytest.mark.parametrize("x", [[], [1.0], [1.0, math.nan, 2.0], [1.0, math.inf, 2.0]])
def test_undefined(x: list[float]) -> None:
    assert all(map(math.isnan, mean_interval(x)))


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [  # published tables of the Clopper–Pearson interval
        (0, 10, 0.0, 0.3085),
        (1, 10, 0.0025, 0.4450),
        (5, 10, 0.1871, 0.8129),
        (10, 10, 0.6915, 1.0),
        (0, 30, 0.0, 0.1157),
        (15, 100, 0.0865, 0.2353),
    ],
)
def test_clopper_pearson(k: int, n: int, low: float, high: float) -> None:
    assert proportion_interval(k, n) == pytest.approx((low, high), abs=1e-4)


def test_no_trials_say_nothing() -> None:
    assert proportion_interval(0, 0) == (0, 1)


def test_more_seeds_by_hand() -> None:
    # mean 1, s = 2 (deviations −2, 0, 0, 0, 2 give s = sqrt(2); times sqrt(2))
    x = 1 + math.sqrt(2) * np.array([-2, 0, 0, 0, 2])
    assert x.std(ddof=1) == pytest.approx(2)
    # t(.975, n−1) * 2 / sqrt(n) <= 1: n = 17: 2.1199 * 2 / 4.1231 = 1.0283; n = 18: 2.1098 * 2 / 4.2426 = 0.9946
    assert more_seeds(x, [0.0]) == 13
    assert more_seeds(x, [-5.0, 0.0, 9.0]) == 13
    # Three values a seed: 8, 11, 14, 17, 20 pairs
    assert more_seeds(x, [0.0], per_seed=3) == 5


def test_more_seeds_has_an_end() -> None:
    x = [-1.0, 0.0, 1.0]
    assert more_seeds(x, [0.0]) is None
    # n = 1003: t * 1 / sqrt(1003) = 1.9623 / 31.670 = 0.061961; n = 1002 needs 0.06199
    assert more_seeds(x, [0.061962]) == 1000
    assert more_seeds(x, [0.061950]) is None


def test_more_seeds_for_a_rate() -> None:
    # No event in 10 trials a seed: 1 − .025^(1/n) < 0.02 needs n > ln .025 / ln .98 = 182.6, so 19 seeds of 10
    assert more_seeds_for_rate(0, 50, 0.02, seeds=5) == 14
    # All of one trial a seed: .025^(1/n) > 0.9 needs n > ln .025 / ln .9 = 35.01
    assert more_seeds_for_rate(5, 5, 0.9, seeds=5) == 31
    assert more_seeds_for_rate(1, 10, 0.1, seeds=5) is None
    assert more_seeds_for_rate(0, 0, 0.1, seeds=5) is None


def test_more_seeds_for_a_rate_agrees_with_the_exact_interval() -> None:
    # 2 of 20 a seed against 0.2: the first number of seeds at which 10 % lies wholly below
    more = more_seeds_for_rate(6, 60, 0.2, seeds=3)
    assert more is not None
    decided = [proportion_interval(2 * seeds, 20 * seeds)[1] < 0.2 for seeds in range(4, 4 + more)]
    assert decided == [False] * (more - 1) + [True]


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=9))
def test_student_contains_the_mean_and_moves_with_the_values(x: list[int]) -> None:
    low, high = mean_interval(x)
    assert low <= np.mean(x) + 1e-9
    assert high >= np.mean(x) - 1e-9
    assert mean_interval([v + 7 for v in x]) == pytest.approx((low + 7, high + 7), abs=1e-6)
    assert mean_interval([-v for v in x]) == pytest.approx((-high, -low), abs=1e-6)
