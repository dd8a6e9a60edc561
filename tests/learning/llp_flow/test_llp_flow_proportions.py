import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.learning.llp_flow import BagKFold, make_bags, proportions_from_counts
from assay.learning.llp_flow.proportions import checked_bags, diversity, gap, identifiable, warn_of_weak

X4 = np.zeros((4, 1))
TABLE = pd.DataFrame({"no": [0.25, 1.0], "yes": [0.75, 0.0]}, index=["north", "south"])


def test_a_table_is_matched_by_bag_id_and_not_by_order():
    own = checked_bags(X4, ["south", "north", "south", "north"], TABLE)
    assert own.classes.tolist() == ["no", "yes"]
    assert [own.ids[i] for i in own.index] == ["south", "north", "south", "north"]
    np.testing.assert_array_equal(own.proportions[own.index[1]], [0.25, 0.75])
    again = checked_bags(X4, ["south", "north", "south", "north"], TABLE[::-1])
    np.testing.assert_array_equal(own.proportions, again.proportions)


@pytest.mark.parametrize(
    "proportions",
    [
        {"north": 0.75, "south": 0.0},
        {"north": [0.25, 0.75], "south": [1.0, 0.0]},
        pd.Series({"north": 0.75, "south": 0.0}),
        TABLE.set_axis([0, 1], axis=1),
    ],
)
def test_other_forms_say_the_same(proportions):
    own = checked_bags(X4, ["south", "north", "south", "north"], proportions)
    np.testing.assert_array_equal(own.proportions[own.index[1]], [0.25, 0.75])
    assert own.classes.tolist() == [0, 1]


def test_rows_of_an_array_are_the_bags_0_1():
    own = checked_bags(X4, [1, 0, 1, 0], [[0.25, 0.75], [1, 0]])
    np.testing.assert_array_equal(own.proportions[own.index], [[1, 0], [0.25, 0.75]] * 2)
    shares = checked_bags(X4, [1, 0, 1, 0], np.array([0.75, 0.0]), classes=["no", "yes"])
    np.testing.assert_array_equal(shares.proportions, own.proportions)
    assert shares.classes.tolist() == ["no", "yes"]


def test_classes_give_the_order_of_columns():
    own = checked_bags(X4, ["south", "north", "south", "north"], TABLE, classes=["yes", "no"])
    np.testing.assert_array_equal(own.proportions[own.index[1]], [0.75, 0.25])


def test_what_sums_nearly_to_one_is_made_to():
    own = checked_bags(X4, [0, 0, 1, 1], [[0.5, 0.5004], [0.3, 0.7]])
    np.testing.assert_allclose(own.proportions.sum(axis=1), 1, rtol=1e-15)


@pytest.mark.parametrize(
    ("bags", "proportions", "message"),
    [
        (None, TABLE, "bags must be given"),
        (["north"] * 3, TABLE, "bags must have as many rows as X, 4; it has 3"),
        (np.zeros((4, 2)), TABLE, "one id for each row"),
        (["north", None, "north", "south"], TABLE, "bags has no id in 1 row"),
        ([0.0, np.nan, 0, 0], {0: 0.5}, "bags has no id in 1 row"),
        (["north", "west", "north", "south"], TABLE, "without a row in proportions, the first is 'west'"),
        (["north"] * 4, None, "proportions must be given"),
        ([0] * 4, [[0.5, 0.6]], "proportions of bag 0 .* sum to 1"),
        ([0] * 4, [[1.5, -0.5]], "proportions of bag 0 must be finite, not negative"),
        ([0] * 4, [[np.nan, 1.0]], "proportions of bag 0 must be finite"),
        ([0] * 4, [[3, 5]], "proportions_from_counts"),
        ([0] * 4, [[1.0]], "at least 2 classes"),
        ([0] * 4, {0: ["a", "b"]}, "proportions must be numbers"),
        ([0] * 4, {0: [0.5, 0.5], 1: [1.0]}, "proportions must be numbers, as many for each bag"),
        ([0] * 4, [], "proportions must be"),
        ([0] * 4, 0.5, "proportions must be"),
        ([0] * 4, np.array([[0.5 + 0j, 0.5]]), "proportions must be numbers"),
        ([{}] * 4, TABLE, "bags must hold numbers or words"),
        (["north"] * 4, TABLE[["yes"]], "share of the positive class alone goes in as a Series"),
        (["north"] * 4, TABLE.stack(), "several levels.*unstack"),
        (["north"] * 4, TABLE.set_axis(pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]), axis=1), "several levels"),
        (["north"] * 4, pd.concat([TABLE, TABLE]), "has bag 'north' twice"),
        (["north"] * 4, TABLE.set_axis(["no", "no"], axis=1), "classes must be different"),
    ],
)
def test_bad_input_names_the_argument_and_the_bag(bags, proportions, message):
    with pytest.raises(InputError, match=message):
        checked_bags(X4, bags, proportions)


def test_bad_classes():
    with pytest.raises(InputError, match="classes must be the columns of proportions"):
        checked_bags(X4, ["north"] * 4, TABLE, classes=["no", "maybe"])
    with pytest.raises(InputError, match="has 2 classes, and classes names 3"):
        checked_bags(X4, [0] * 4, [[0.5, 0.5]], classes=["a", "b", "c"])
    with pytest.raises(InputError, match="at least 2 classes"):
        checked_bags(X4, [0] * 4, [[0.5, 0.5]], classes=["a"])
    with pytest.raises(InputError, match="classes must be a list of names, got 3"):
        checked_bags(X4, [0] * 4, [[0.5, 0.5]], classes=3)


def test_rows_and_ids_with_different_indexes_are_refused():
    frame = pd.DataFrame(X4, index=[3, 2, 1, 0])
    with pytest.raises(InputError, match="different indexes"):
        checked_bags(frame, pd.Series(["north"] * 4), TABLE)


def test_proportions_without_rows_are_ignored_with_a_warning():
    with pytest.warns(UserWarning, match=r"1 bag\(s\) without rows are ignored, the first is 'south'"):
        own = checked_bags(X4, ["north"] * 4, TABLE)
    assert len(own.proportions) == 1


def test_counts():
    counts = pd.DataFrame({"a": [1, 0], "b": [3, 2]}, index=["x", "y"])
    np.testing.assert_array_equal(proportions_from_counts(counts), [[0.25, 0.75], [0, 1]])
    assert proportions_from_counts(counts).index.tolist() == ["x", "y"]
    for bad in ([[0, 0]], [[-1, 2]], [[np.nan, 1]], [[np.inf, 1]], [[1e308, 1e308]]):
        with pytest.raises(InputError, match="counts of bag 0"):
            proportions_from_counts(bad)
    with pytest.raises(InputError, match="counts must be numbers"):
        proportions_from_counts([["a", "b"]])
    with pytest.raises(InputError, match="counts must have rows"):
        proportions_from_counts(np.zeros((0, 2)))
    for flat in ([1, 2], 5, None, pd.Series([1, 2])):
        with pytest.raises(InputError, match=r"counts must have rows .* and columns"):
            proportions_from_counts(flat)
    with pytest.raises(InputError, match="at least 2"):
        proportions_from_counts({"north": 3, "south": 4})


def test_diversity_and_gap_of_known_tables():
    pure = np.array([[1.0, 0], [0, 1]])
    # About the mean (½, ½) the rows are ±(½, −½): one singular value, √(4·¼) = 1.
    assert diversity(pure) == pytest.approx(1 / np.sqrt(2))
    assert gap(pure) == 1
    assert identifiable(pure)
    same = np.array([[0.2, 0.8], [0.2, 0.8]])
    assert diversity(same) == pytest.approx(0, abs=1e-12)
    assert gap(same) == pytest.approx(0.6)
    assert not identifiable(same)
    # The first two classes always in the ratio 1 to 1: no bag tells them apart.
    linked = np.array([[0.4, 0.4, 0.2], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])
    assert diversity(linked) == pytest.approx(0, abs=1e-12)
    assert diversity(np.eye(3)[:1]) == 0  # one bag
    rng = np.random.default_rng(0)
    assert diversity(rng.dirichlet(np.full(4, 0.2), 50)) > diversity(rng.dirichlet(np.full(4, 20), 50))


def warned(pi):
    own = checked_bags(np.zeros((len(pi), 1)), np.arange(len(pi)), pi)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_weak(own)
    return [str(w.message) for w in caught]


def test_warnings_of_bags_that_teach_nothing():
    assert warned([[1.0, 0], [0, 1]]) == []
    assert ["not identifiable" in text for text in warned([[0.3, 0.7]] * 3)] == [True]
    (text,) = warned([[0.3, 0.7], [0.31, 0.69]])
    assert "hardly identifiable: the diversity of the proportions is 0.0071" in text
    assert any("no bag has class 2" in text for text in warned([[1.0, 0, 0], [0, 1, 0]]))
    assert any("the gap of the proportions" in text for text in warned([[0.5, 0.5], [0.495, 0.505]]))


@given(st.integers(0, 300), st.integers(1, 40), st.sampled_from(["iid", "dirichlet"]))
@settings(max_examples=40, deadline=None)
def test_bags_hold_each_row_at_most_once(seed, size, kind):
    rng = np.random.default_rng(seed)
    y = rng.integers(rng.integers(1, 6), size=rng.integers(size, 80 + size))
    bags = make_bags(y, size, kind, random_state=seed)
    rows = np.concatenate(bags)
    assert len(set(rows.tolist())) == len(rows) >= len(y) - 1
    assert all(len(bag) == size for bag in bags[:-1])
    again = make_bags(y, size, kind, random_state=seed)
    assert all((a == b).all() for a, b in zip(bags, again, strict=True))


def test_dirichlet_bags_are_more_diverse_than_random_ones():
    y = np.arange(1000) % 5
    spread = {}
    for kind in ("iid", "dirichlet"):
        bags = make_bags(y, 50, kind, random_state=0)
        spread[kind] = np.std([np.mean(y[bag] == 0) for bag in bags])
    # By the binomial law 50 rows at random have a deviation of √(0.2 · 0.8 / 50).
    assert spread["iid"] == pytest.approx(np.sqrt(0.16 / 50), rel=0.5)
    assert spread["dirichlet"] > 3 * spread["iid"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be 1 … 4"),
        ({"size": 5}, "size must be 1 … 4"),
        ({"size": 2.0}, "size must be 1 … 4"),
        ({"size": 2, "alpha": "1"}, "alpha must be positive"),
        ({"size": 2, "kind": "odd"}, "kind must be"),
        ({"size": 2, "kind": "dirichlet", "alpha": 0}, "alpha must be positive"),
    ],
)
def test_bags_that_cannot_be_made(arguments, message):
    with pytest.raises(InputError, match=message):
        make_bags([0, 1, 0, 1], **arguments)


def test_folds_keep_bags_whole_and_hold_each_out_once():
    bags = np.repeat(np.arange(7), [3, 9, 1, 4, 4, 2, 6])
    held = []
    for train, test in BagKFold(3, random_state=1).split(bags, groups=bags):
        assert not set(bags[train]) & set(bags[test])
        held += sorted(set(bags[test].tolist()))
    assert sorted(held) == list(range(7))
    first, other = (next(BagKFold(3, random_state=s).split(bags, groups=bags))[1].tolist() for s in (1, 2))
    assert first != other


def test_the_order_of_rows_in_a_bag_says_nothing_of_their_classes():
    y = np.arange(2000) % 2
    bags = make_bags(y, 50, "dirichlet", alpha=5.0, random_state=0)
    first = np.mean([y[bag[: len(bag) // 2]].mean() for bag in bags])
    last = np.mean([y[bag[len(bag) // 2 :]].mean() for bag in bags])
    assert abs(first - last) < 0.1  # class after class it would be near 1


@pytest.mark.parametrize("y", [None, np.zeros((4, 2)), [0.0, np.nan, 1.0], ["a", None, "b"]])
def test_classes_that_cannot_be_dealt(y):
    with pytest.raises(InputError, match="y must be"):
        make_bags(y, 1)
