import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.models.csplora import allocate
from assay.models.csplora.allocation import allocate_parameters

SCORES = st.lists(st.floats(0, 100, allow_subnormal=False), min_size=1, max_size=12)


def named(values):
    return {f"m{i}": value for i, value in enumerate(values)}


def test_by_hand():
    assert allocate({"a": 3, "b": 1}, total_rank=8, r_min=1, r_max=8) == {"a": 6, "b": 2}
    assert allocate({"a": 1, "b": 1, "c": 1}, 7, 1, 4) == {"a": 3, "b": 2, "c": 2}
    # 12 above the least: a is due 1 + 9 but stops at 5; b 1 + 2, c 1 + 1; the other 5 go to b and c in turns.
    assert allocate({"a": 9, "b": 2, "c": 1}, 15, 1, 5) == {"a": 5, "b": 5, "c": 5}
    assert allocate({"a": 9, "b": 2, "c": 1}, 12, 1, 6) == {"a": 6, "b": 4, "c": 2}


def test_the_rest_goes_round_by_score_and_ties_by_order():
    # Shares of 1 above the least: 0.5, 0.3, 0.2, so all of the one goes to the highest, which comes last here.
    assert allocate({"c": 2, "b": 3, "a": 5}, 4, 1, 4) == {"c": 1, "b": 1, "a": 2}
    assert allocate({"a": 1, "b": 1}, 3, 1, 4) == {"a": 2, "b": 1}
    assert allocate({"b": 1, "a": 1}, 3, 1, 4) == {"b": 2, "a": 1}


def test_no_score_at_all_is_uniform():
    assert allocate(named([0, 0, 0]), 6, 1, 4) == named([2, 2, 2])


def test_rho_keeps_the_leading_modules():
    # 6/10 and 3/10 hold nine tenths; the third gets the least.
    assert allocate({"a": 6, "b": 3, "c": 1}, 12, 1, 9, rho=0.9) == {"a": 7, "b": 4, "c": 1}
    assert allocate({"a": 6, "b": 3, "c": 1}, 11, 1, 9, rho=0.5) == {"a": 9, "b": 1, "c": 1}


def test_rho_that_leaves_too_little_room_says_so():
    with pytest.raises(ValueError, match=r"most that 3 modules can take with r_max=9, rho=0.5 is 11"):
        allocate({"a": 6, "b": 3, "c": 1}, 12, 1, 9, rho=0.5)


def test_caps_free_rank_for_the_others():
    assert allocate({"a": 3, "b": 1}, 8, 1, 8, caps={"a": 2, "b": 8}) == {"a": 2, "b": 6}
    # A matrix with one row takes 1, though the least is 2.
    assert allocate({"a": 1, "b": 1}, 5, 2, 8, caps={"a": 1, "b": 8}) == {"a": 1, "b": 4}


@given(SCORES, st.integers(1, 3), st.integers(0, 5), st.floats(0, 1), st.floats(0.3, 1))
@settings(max_examples=200, deadline=None)
def test_sum_limits_and_order(values, r_min, room, where, rho):
    scores, r_max = named(values), r_min + room
    total = r_min * len(values) + int(where * room * len(values))
    ranks = allocate(scores, total, r_min, r_max)
    assert sum(ranks.values()) == total
    assert list(ranks) == list(scores)
    assert all(r_min <= rank <= r_max for rank in ranks.values())
    for a in scores:
        for b in scores:
            if scores[a] >= scores[b]:
                assert ranks[a] >= ranks[b] - 1
    held = allocate_or_none(scores, total, r_min, r_max, rho)
    assert held is None or sum(held.values()) == total


def allocate_or_none(scores, total, r_min, r_max, rho):
    try:
        return allocate(scores, total, r_min, r_max, rho)
    except ValueError as error:
        if "too large" not in str(error):
            raise
        return None


@given(SCORES, st.integers(2, 9))
@settings(max_examples=100, deadline=None)
def test_scale_does_not_matter(values, factor):
    scaled = named([value * 2.0**factor for value in values])
    total = 3 * len(values)
    assert allocate(named(values), total, 1, 9) == allocate(scaled, total, 1, 9)


@given(SCORES, st.integers(1, 8), st.data())
@settings(max_examples=100, deadline=None)
def test_parameters_are_met_from_below(values, rank, data):
    scores = named(values)
    costs = {name: data.draw(st.sampled_from([768, 1920, 30])) for name in scores}
    allowed = rank * sum(costs.values())
    ranks = allocate_parameters(scores, costs, allowed, 1, 4 * rank)
    spent = sum(ranks[name] * costs[name] for name in ranks)
    assert spent <= allowed
    assert all(1 <= r <= 4 * rank for r in ranks.values())
    # What is left would not buy one more rank of the dearest, unless all are full.
    assert allowed - spent < max(costs.values()) or set(ranks.values()) == {4 * rank}


def test_parameters_by_hand():
    # 36 parameters: 6 ranks of a at 2 and b at 10: {a: 3, b: 3} costs 36.
    assert allocate_parameters({"a": 1, "b": 1}, {"a": 2, "b": 10}, 36, 1, 9) == {"a": 3, "b": 3}
    # 7 ranks are {a: 4, b: 3} for 38; an eighth goes to b, which the 3 that are left don't buy, but one more a.
    assert allocate_parameters({"a": 1, "b": 1}, {"a": 2, "b": 10}, 41, 1, 9) == {"a": 5, "b": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"a": 1, "b": 1}, 3, 2, 4), "3 is too small: 2 modules with at least 2 each need 4"),
        (({"a": 1, "b": 1}, 9, 2, 4), "9 is too large: the most that 2 modules can take with r_max=4 is 8"),
        (({}, 3, 1, 2), "empty"),
        (({"a": -1.0}, 3, 1, 4), "score of 'a'"),
        (({"a": math.nan}, 3, 1, 4), "score of 'a'"),
        (({"a": math.inf}, 3, 1, 4), "score of 'a'"),
        (({"a": 1}, 3, 0, 4), "r_min"),
        (({"a": 1}, 3, 5, 4), "r_min"),
        (({"a": 1}, 3, 1, 4, 0.0), "rho"),
        (({"a": 1}, 3, 1, 4, 1.1), "rho"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        allocate(*arguments)


def test_caps_name_the_largest_total():
    with pytest.raises(ValueError, match="sides of their matrices is 5"):
        allocate({"a": 1, "b": 1}, 6, 1, 4, caps={"a": 1, "b": 9})


def test_too_few_parameters():
    with pytest.raises(ValueError, match="11 parameters are too few: 2 modules with r_min=1 need 12"):
        allocate_parameters({"a": 1, "b": 1}, {"a": 2, "b": 10}, 11, 1, 9)
