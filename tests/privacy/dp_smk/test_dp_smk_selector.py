import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.errors import InputError
from assay.privacy.dp_smk import DPKnapsackFeatureSelector
from assay.privacy.dp_smk.selector import binned


@parametrize_with_checks([DPKnapsackFeatureSelector(random_state=0)])
def test_it_is_a_scikit_learn_selector(estimator, check):
    check(estimator)


def table(n=3000):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((n, 5)), columns=list("abcde"))
    y = np.where(X["b"] + X["d"] + 0.1 * rng.standard_normal(n) > 1, "yes", "no")
    return X, y


def test_it_finds_what_tells_the_class_and_keeps_to_the_budget():
    X, y = table()
    selector = DPKnapsackFeatureSelector([1, 1, 1, 5, 1], 2, 2.0, random_state=0).fit(X, y)
    assert "b" in selector.get_feature_names_out()
    assert "d" not in selector.get_feature_names_out()  # too dear
    assert selector.result_.cost <= 2
    assert selector.transform(X).shape == (3000, 2)
    assert selector.result_.epsilon == 2.0
    free = DPKnapsackFeatureSelector(budget=2, epsilon=2.0, random_state=0).fit(X, y)
    assert set(free.get_feature_names_out()) == {"b", "d"}


def test_bins_are_public():
    X = np.array([[-5.0, 0.0], [0.5, 10.0], [2.0, 19.9]])
    np.testing.assert_array_equal(binned(X, [[0, 1], [0, 20]], 4), [[0, 0], [2, 2], [3, 3]])
    with pytest.raises(InputError, match="bounds must have low < high"):
        binned(X, (1, 1), 4)
    with pytest.raises(InputError, match="a finite width"):
        binned(X, (-1e308, 1e308), 4)
    with pytest.raises(InputError, match="bounds must be"):
        binned(X, (0, 1, 2), 4)
    with pytest.raises(InputError, match="n_bins must be"):
        binned(X, (0, 1), 1)


def test_bad_classes():
    X, y = table(50)
    with pytest.raises(InputError, match="only classes named"):
        DPKnapsackFeatureSelector(classes=["maybe", "no"]).fit(X, y)
    with pytest.raises(ValueError, match="class"):
        DPKnapsackFeatureSelector().fit(X, np.ones(50, dtype=int))
    both = DPKnapsackFeatureSelector(classes=["maybe", "no", "yes"], random_state=0).fit(X, y)
    assert len(both.classes_) == 3
