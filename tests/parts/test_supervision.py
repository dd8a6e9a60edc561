import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.parts.supervision import aligned, as_numbers, unlabelled

NAN = float("nan")


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.array([0, -1, 2]), [0, 1, 0]),
        (np.array([0, -1, 2], dtype=np.int8), [0, 1, 0]),
        (np.array([0, 255], dtype=np.uint8), [0, 0]),
        ([1, -1], [0, 1]),
        ([1, None], [0, 1]),
        ([1, -1, None], [0, 1, 1]),
        ([1.0, NAN, -1.0], [0, 1, 0]),  # floats use NaN, and -1.0 is a class
        ([True, False], [0, 0]),
        ([True, None], [0, 1]),
        (["a", None, NAN, pd.NA, "-1", ""], [0, 1, 1, 1, 0, 0]),
        (pd.Series(["a", None, "b"]), [0, 1, 0]),
        (pd.Series(["a", None, "b"], dtype="string"), [0, 1, 0]),
        (pd.Series(["a", None, "b"], dtype="category"), [0, 1, 0]),
        (pd.Series([2, -1, 2], dtype="category"), [0, 1, 0]),
        (pd.Series([2, -1, None], dtype="Int64"), [0, 1, 1]),
        (pd.Series([True, None], dtype="boolean"), [0, 1]),
        (pd.Series([2.0, None], dtype="Float64"), [0, 1]),
        (pd.Series([3, -1], index=[7, 5]), [0, 1]),
        ((0, -1), [0, 1]),
    ],
)
def test_missing_classes(y, expected):
    mask = unlabelled(y, task="classification")
    assert mask.dtype == bool
    assert mask.tolist() == [bool(e) for e in expected]


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([1, -1], [0, 0]),
        ([0.5, NAN], [0, 1]),
        ([0.5, None, pd.NA], [0, 1, 1]),
        (pd.Series([1, None], dtype="Int64"), [0, 1]),
        (pd.Series([1.5, None], dtype="Float32"), [0, 1]),
        (np.array([1, 2], dtype=np.float32), [0, 0]),
        ([True, False], [0, 0]),
    ],
)
def test_missing_numbers(y, expected):
    assert unlabelled(y, task="regression").tolist() == [bool(e) for e in expected]


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        ([[1], [2]], "classification", r"y must have one dimension, not the shape \(2, 1\)"),
        (["a", 1.0], "regression", "y must be numbers, and holds 'a'"),
        (np.array(["a"]), "regression", "y must be numbers, and is of the type <U1"),
        ([1j], "regression", "y must be numbers"),
        ([np.inf, 1.0], "regression", "y must be finite, or NaN where it is missing; 1 are infinite"),
        ([[1, 2], [3]], "regression", "y must have rows of the same length"),
        ([1], "ranking", "task must be 'classification' or 'regression', not 'ranking'"),
        (pd.to_datetime(pd.Series(["2020-01-01"])), "regression", "y must be numbers"),
    ],
)
def test_bad_targets(y, task, message):
    with pytest.raises(ValueError, match=message):
        unlabelled(y, task=task)


@pytest.mark.parametrize("y", [None, "abc", 3, {1: 2}, {1, 2}])
def test_what_is_no_column_at_all(y):
    with pytest.raises(TypeError, match="y must be an array, a list, a Series or a frame, not"):
        unlabelled(y, task="classification")


def test_numbers_keep_their_values():
    assert as_numbers("w", pd.Series([1, None, 3], dtype="Int64")).tolist()[::2] == [1.0, 3.0]
    assert as_numbers("w", [1, np.float32(0.5), True]).tolist() == [1.0, 0.5, 1.0]


@given(st.lists(st.one_of(st.none(), st.just(NAN), st.integers(-3, 3), st.text(max_size=2), st.booleans()), min_size=1))
def test_any_list_of_labels_has_a_mask_of_its_length(y):
    mask = unlabelled(y, task="classification")
    assert mask.shape == (len(y),)
    for value, missing in zip(y, mask, strict=True):
        if value is None:
            assert missing
        elif isinstance(value, str | bool):
            assert not missing


def test_side_data_keeps_its_values_and_is_taken_by_position():
    X = np.zeros((3, 2))
    assert aligned("groups", [1, 2, 3], X).tolist() == [1, 2, 3]
    assert aligned("groups", pd.Series(["a", "b", "a"], index=[9, 8, 7]), X).tolist() == ["a", "b", "a"]
    assert aligned("W", [[1, 2], [3, 4], [5, 6]], X).shape == (3, 2)
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=[5, 6, 7])
    assert aligned("W", frame, X) is frame
    assert aligned("W", frame, pd.DataFrame(X, index=[5, 6, 7])) is frame
    assert aligned("groups", [None, "b", "a"], X).tolist() == [None, "b", "a"]
    assert len(aligned("groups", [1, 2], [[1], [2]])) == 2  # X may be a list


@pytest.mark.parametrize(
    ("side", "X", "error", "message"),
    [
        ([1, 2], np.zeros((3, 1)), InputError, "bags must have as many rows as X, 3; it has 2"),
        (np.zeros((3, 1, 1)), np.zeros((3, 1)), InputError, "bags must have one or two dimensions"),
        (np.float64(3), np.zeros((1, 1)), TypeError, "bags must be an array"),
        ("abc", np.zeros((3, 1)), TypeError, "bags must be an array"),
        ([[1], [1, 2]], np.zeros((2, 1)), InputError, "bags must have rows of the same length"),
        (
            pd.Series([1, 2], index=[1, 0]),
            pd.DataFrame({"x": [1, 2]}),
            InputError,
            r"bags and X have different indexes, .* bags\.loc\[X\.index\], or drop both indexes with reset_index",
        ),
        (pd.DataFrame({"a": [1, 2]}, index=[1, 2]), pd.DataFrame({"x": [1, 2]}), InputError, "different indexes"),
    ],
)
def test_side_data_that_does_not_fit(side, X, error, message):
    with pytest.raises(error, match=message):
        aligned("bags", side, X)


def test_sparse_side_data_is_refused():
    from scipy import sparse

    with pytest.raises(TypeError, match="W is sparse; give it dense"):
        aligned("W", sparse.eye(3).tocsr(), np.zeros((3, 1)))
