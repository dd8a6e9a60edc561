import warnings

import numpy as np
import pandas as pd
import pytest
from cprd_rows import rows_of
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from assay.alignment.cprd import BradleyTerryRanker, Comparisons, fit_bt


def test_it_can_be_cloned_and_set():
    ranker = BradleyTerryRanker(context="prompt", ridge=0.5, n_boot=3)
    again = clone(ranker)
    assert again.get_params() == ranker.get_params()
    assert again.set_params(ridge=0.1).ridge == 0.1
    assert clone(BradleyTerryRanker().fit(rows_of(0))).get_params() == BradleyTerryRanker().get_params()
    assert "ridge=0.5" in repr(ranker)


def test_it_is_the_fit_with_its_reports():
    rows = rows_of(0)
    ranker = BradleyTerryRanker(n_boot=20).fit(rows)
    fit = fit_bt(Comparisons.from_triplets(rows))
    pd.testing.assert_series_equal(ranker.scores_, fit.scores)
    assert set(ranker.report_) == {"representability", "efficiency"}
    assert ranker.report_["representability"].n_boot == 20
    assert len(ranker.suggest(3)) == 3
    assert ranker.report_["efficiency"].rows == 400


def test_probabilities_of_pairs():
    rows = rows_of(0)
    ranker = BradleyTerryRanker(n_boot=0).fit(rows)
    pairs = rows.drop_duplicates().head(20)
    p = ranker.predict_proba(pairs)
    assert p.shape == (20, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    d = ranker.scores_[pairs["chosen"]].to_numpy() - ranker.scores_[pairs["rejected"]].to_numpy()
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-d)))
    assert (ranker.predict(pairs) == (d > 0)).all()
    with pytest.raises(KeyError, match="no comparisons of 'nobody'"):
        ranker.predict_proba(pd.DataFrame({"chosen": ["nobody"], "rejected": ["item 0"]}))
    with pytest.raises(KeyError, match="no column 'rejected'"):
        ranker.predict_proba(pairs[["chosen"]])


def test_columns_may_have_other_names():
    rows = rows_of(0).rename(columns={"chosen": "better", "rejected": "worse"}).assign(prompt="p")
    ranker = BradleyTerryRanker(context="prompt", chosen="better", rejected="worse", n_boot=0).fit(rows)
    assert list(ranker.scores_.index.names) == ["context", "item"]
    assert ranker.predict_proba(rows.head(2)).shape == (2, 2)


def test_what_is_not_compared_has_no_probability():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker = BradleyTerryRanker(n_boot=0).fit(pd.DataFrame({"chosen": ["a", "c"], "rejected": ["b", "d"]}))
    assert np.isnan(ranker.predict_proba(pd.DataFrame({"chosen": ["a"], "rejected": ["d"]}))).all()
    assert ranker.predict(pd.DataFrame({"chosen": ["a"], "rejected": ["d"]})).tolist() == [0.5]


def test_unfitted():
    for call in (lambda r: r.suggest(1), lambda r: r.predict_proba(rows_of(0))):
        with pytest.raises(NotFittedError):
            call(BradleyTerryRanker())
    with pytest.raises(ValueError, match="ridge must be"):
        BradleyTerryRanker(ridge=-1).fit(rows_of(0))
