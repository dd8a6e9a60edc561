import os
import re
import subprocess
import sys

import pytest

from assay.parts import docstring_hub
from assay.parts.docstring_hub import digest, hub, sentences


@pytest.fixture(scope="module")
def table():
    return hub()


def test_the_catalogue_has_its_size(table):
    assert list(table.columns) == ["query", "id", "family", "domain", "card"]
    assert 1200 < table["id"].nunique() < 2200
    assert 8000 < len(table) < 16000
    assert table.groupby("domain")["id"].nunique().min() >= 80
    assert set(table["domain"]) == set(docstring_hub.PACKAGES)
    sizes = table.groupby("id").size()
    assert sizes.min() >= 3
    assert sizes.max() > 5 * sizes.median()  # long-tailed, as hubs are


def test_no_query_gives_its_answer_away_or_has_two(table):
    assert not table["query"].str.casefold().duplicated().any()
    assert table["query"].str.len().between(35, 260).all()
    assert (table["query"].str.split().str.len() >= 6).all()
    for query, key, card in table[["query", "id", "card"]].itertuples(index=False):
        name = key.rpartition(".")[2]
        assert not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", query, re.IGNORECASE)
        assert card.startswith(f"{name}: ")
        assert query != card.partition(": ")[2]
        assert not re.search(r"[=`{}\[\]<>]|\w\(| : |>>>", query)


def test_names_belong_together(table):
    assert (table["id"].str.rpartition(".")[0] == table["family"]).all()
    assert (table["family"].str.partition(".")[0] == table["domain"]).all()
    one_card = table.groupby("id")["card"].nunique()
    assert one_card.max() == 1


def test_well_known_entries(table):
    cards = dict(zip(table["id"], table["card"], strict=True))
    assert cards["numpy.unique"] == "unique: Find the unique elements of an array."
    assert cards["sklearn.decomposition.PCA"] == "PCA: Principal component analysis (PCA)."
    assert cards["torch.nn.CrossEntropyLoss"].startswith("CrossEntropyLoss: This criterion computes the cross entropy")
    for name in ("scipy.optimize.linprog", "pandas.to_datetime", "matplotlib.pyplot.imshow", "torch.searchsorted"):
        assert name in cards


def test_it_does_not_depend_on_what_was_imported_before(table, tmp_path):
    code = (
        "import torch.utils.data, sklearn.experimental.enable_halving_search_cv, matplotlib.animation, scipy.stats\n"
        "from assay.parts.docstring_hub import digest, hub\n"
        "print(digest(hub()))"
    )
    fresh = {**os.environ, "ASSAY_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=fresh, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest(table)


def test_options(table):
    few = hub(["numpy", "scipy"], min_queries=6, max_per_family=5)
    assert set(few["domain"]) == {"numpy", "scipy"}
    assert few.groupby("family")["id"].nunique().max() == 5
    assert few.groupby("id").size().min() >= 6
    assert digest(few) == digest(hub(["scipy", "numpy"], min_queries=6, max_per_family=5)) != digest(table)
    # More of a family are the same and some others.
    more = hub(["numpy", "scipy"], min_queries=6, max_per_family=8)
    assert set(few["id"]) < set(more["id"])


def test_the_digest_sees_each_cell(table):
    changed = table.copy()
    changed.loc[7, "query"] += "x"
    assert digest(changed) != digest(table)
    assert re.fullmatch("[0-9a-f]{16}", digest(table))


@pytest.mark.parametrize(
    "options", [{"packages": ["keras"]}, {"packages": []}, {"min_queries": 0}, {"max_per_family": 0}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        hub(**options)


DOCSTRING = """stack(a, b, /, out=None) -> Tensor

    Joins `a` and :func:`~some.other.thing` along a new axis, e.g. Time. It
    copies both of them [KNUTH]_, see `the manual <https://example.org>`_ for more.

    Parameters
    ----------
    a : array_like
        The first of the things. Must not be ``None``.

        - one thing to know;
        - another.

    .. versionadded:: 1.2
        Not before. Never.

    Examples
    --------
    These are examples. Nobody needs them.

    >>> stack(1, 2)

    Notes
    -----
    The order is kept. As in::

        stack(1, 2). Not prose.

    References
    ----------
    .. [KNUTH] The Art. Addison.
"""


def test_sentences_are_prose_without_markup():
    assert sentences(DOCSTRING) == [
        "Joins a and some.other.thing along a new axis, e.g. Time.",
        "It copies both of them, see the manual for more.",
        "a : array_like",
        "The first of the things.",
        "Must not be None.",
        "one thing to know;",
        "another.",
        "The order is kept.",
        "As in::",
    ]


def test_sentences_of_the_other_style():
    text = """Does a thing.

    Args:
        input (Tensor): the input of it
        dim (int, optional): the dimension to reduce.
            If None, all are.

    Example::

        >>> thing(1)

    Returns:
        What came of it.
    """
    assert sentences(text) == [
        "Does a thing.", "the input of it", "the dimension to reduce.", "If None, all are.", "What came of it.",
    ]  # fmt: skip
