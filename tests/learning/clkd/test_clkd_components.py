import numpy as np
import pytest
from clkd_cohorts import cohort
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.learning.clkd import Components, make_components, nested_case_control, sampling_weights

EVENT, TIME = [1, 0, 1, 1, 0], [5.0, 3.0, 3.0, 3.0, 1.0]


def members(components):
    return [sorted(row[row >= 0].tolist()) for row in components.index]


def test_risk_sets_with_ties():
    found = make_components(EVENT, TIME)
    assert found.index.dtype == np.int64
    assert found.index[:, 0].tolist() == [0, 2, 3]
    assert members(found) == [[0], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert found.weight.tolist() == [1, 1, 1]
    apart = make_components(EVENT, TIME, strata=["x", "x", "x", "y", "y"])
    assert members(apart) == [[0], [0, 1, 2], [3]]


def test_pairs_are_of_an_event_and_a_longer_time():
    found = make_components(EVENT, TIME, kind="pairwise")
    assert found.index.tolist() == [[2, 0], [3, 0]]
    _, event, time, _ = cohort(0, 50, 2, ties=True)
    every = make_components(event, time, kind="pairwise")
    expected = {(i, j) for i in np.flatnonzero(event) for j in range(50) if time[j] > time[i]}
    assert set(map(tuple, every.index.tolist())) == expected
    assert len(every) == len(expected)
    # Each event counts once, however many pairs it has.
    assert every.weight.sum() == pytest.approx(len({i for i, _ in expected}))
    some = make_components(event, time, kind="pairwise", max_pairs=40, random_state=0)
    drawn = set(map(tuple, some.index.tolist()))
    assert len(drawn) == 40  # without replacement
    assert drawn < expected


def test_matched_sets():
    case, groups = [0, 1, 0, 1, 1, 0, 0], ["b", "b", "b", "a", "a", "a", "a"]
    found = make_components(case, kind="matched", groups=groups)
    assert found.index.tolist() == [[1, 0, 2], [3, 5, 6], [4, 5, 6]]  # a set with two cases gives two
    with pytest.warns(UserWarning, match="1 sets without a case and 1 without a control"):
        found = make_components([1, 0, 0, 1, 0], kind="matched", groups=[0, 0, 1, 2, 0])
    assert found.index.tolist() == [[0, 1, 4]]
    uneven = make_components([1, 0, 1, 0, 0], kind="matched", groups=[0, 0, 1, 1, 1])
    assert uneven.index.tolist() == [[0, 1, -1], [2, 3, 4]]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(3, 30), m=st.integers(1, 5), ties=st.booleans())
def test_nested_case_control_samples(seed, n, m, ties):
    _, event, time, strata = cohort(seed, n, 1, ties, strata=True)
    try:
        rows, groups, case = nested_case_control(event, time, m, strata=strata, random_state=seed)
    except ValueError as error:
        assert "no event" in str(error)  # noqa: PT017
        return
    again = nested_case_control(event, time, m, strata=strata, random_state=seed)
    np.testing.assert_array_equal(rows, again.rows)
    for g in np.unique(groups):
        mine = rows[groups == g]
        own = mine[case[groups == g]]
        assert len(own) == 1
        assert event[own[0]]
        assert len(set(mine)) == len(mine)
        assert (time[mine] >= time[own]).all()
        assert (strata[mine] == strata[own]).all()
        others = np.sum((time >= time[own]) & (strata == strata[own])) - 1
        assert len(mine) - 1 == min(m, others)


def test_sampling_weights_are_one_over_the_chance_to_be_drawn():
    _, event, time, strata = cohort(3, 25, 1, ties=True, strata=True)
    weights = sampling_weights(event, time, 2, strata=strata)
    drawn = np.zeros(25)
    for seed in range(1000):
        drawn[np.unique(nested_case_control(event, time, 2, strata=strata, random_state=seed).rows)] += 1
    share = drawn / 1000
    np.testing.assert_array_equal(weights == 0, share == 0)
    np.testing.assert_allclose(share[weights > 0], 1 / weights[weights > 0], atol=0.06)


def test_nested_sets_as_components():
    _, event, time, _ = cohort(4, 40, 1)
    found = make_components(event, time, kind="ncc", n_controls=3, random_state=1)
    sample = nested_case_control(event, time, 3, random_state=1)
    assert isinstance(found, Components)
    np.testing.assert_array_equal(found.index[:, 0], sample.rows[sample.case])
    assert set(found.index[found.index >= 0]) == set(sample.rows)


def test_every_seed_like_thing_works():
    _, event, time, _ = cohort(5, 30, 1)
    for seed in (0, np.int64(3), np.random.RandomState(0), np.random.default_rng(0), None):
        assert len(nested_case_control(event, time, 2, random_state=seed).rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "cox"}, "kind must be one of"),
        ({"time": None}, "time is needed"),
        ({"time": [1, 2, 0, 4, 5]}, "time must be positive and finite, and 1 of 5"),
        ({"time": [1, 2, np.nan, 4, 5]}, "time must be positive and finite"),
        ({"time": [1, 2, np.inf, 4, 5]}, "time must be positive and finite"),
        ({"time": [1, 2, 3]}, "event has 5 rows and time 3"),
        ({"time": ["a"] * 5}, "time must be numbers"),
        ({"event": [0] * 5}, "no event"),
        ({"event": [2, 0, 1, 0, 1]}, "event must be true or false"),
        ({"event": [None, 0, 1, 0, 1]}, "event must be true or false"),
        ({"groups": [1] * 5}, "groups is for matched"),
        ({"strata": [1, 2]}, "strata has 2 rows"),
        ({"strata": [1, None, 2, 2, 1]}, "strata is missing in 1 of 5"),
        ({"kind": "matched"}, "groups is needed"),
        ({"kind": "matched", "groups": [1, 1, 2, 2, 2], "strata": [1] * 5}, "strata has no meaning"),
        ({"kind": "matched", "groups": [1, 2, 3, 4, 5]}, "no set with a case and a control"),
        ({"kind": "ncc", "n_controls": 0}, "n_controls must be a whole number"),
        ({"kind": "ncc", "random_state": "x"}, "random_state must be a whole number"),
        ({"kind": "pairwise", "max_pairs": 0}, "max_pairs must be a whole number"),
        ({"kind": "pairwise", "time": [5.0] * 5}, "no event has a row with a longer time"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_components(**({"event": EVENT, "time": TIME} | arguments))
