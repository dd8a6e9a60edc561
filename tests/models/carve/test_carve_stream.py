import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.models.carve import ContinualStream, forgetting, route_accuracy, route_report


def table(n_ids=6, each=6):
    rows = [
        {"query": f"query {i} {j}", "id": f"m{i}", "family": f"f{i // 2}", "domain": f"d{i % 2}", "experience": i // 2}
        for i in range(n_ids)
        for j in range(each)
    ]
    return pd.DataFrame(rows)


def test_forgetting_of_the_reference():
    assert forgetting([[0.8], [0.6, 0.9], [0.7, 0.5, 0.4]]) == pytest.approx(0.25)
    assert forgetting([[0.3]]) == 0
    assert forgetting([[0.3], [0.5, 0.1]]) == pytest.approx(-0.2)


def test_report():
    history = [
        [{"model": 0.8, "domain": 1.0}],
        [{"model": 0.6, "domain": 0.9}, {"model": 0.9, "domain": 0.9}],
        [{"model": 0.7, "domain": 0.8}, {"model": 0.5, "domain": 0.8}, {"model": 0.4, "domain": 0.5}],
    ]
    report = route_report(history)
    assert report["model"] == pytest.approx((0.7 + 0.5 + 0.4) / 3)
    assert report["model_over_time"] == pytest.approx((0.8 + 0.75 + 1.6 / 3) / 3)
    assert report["model_forgetting"] == pytest.approx(0.25)
    assert report["domain_forgetting"] == pytest.approx((0.2 + 0.1) / 2)
    assert "family" not in report
    for bad in ([], [[{"model": 1.0}, {"model": 1.0}]], [[{"colour": 1.0}]]):
        with pytest.raises(ValueError, match="history"):
            route_report(bad)


def test_accuracy_counts_levels():
    families, domains = {"a": 0, "b": 0, "c": 1}, {"a": 0, "b": 0, "c": 0}
    got = route_accuracy(["a", "a", "a", "c"], ["a", "b", "c", "c"], families, domains)
    assert got == {"model": 0.5, "family": 0.75, "domain": 1.0}
    with pytest.raises(ValueError, match="one length"):
        route_accuracy(["a"], [], families, domains)


@settings(deadline=None, max_examples=40)
@given(n_ids=st.integers(1, 8), each=st.integers(1, 9), share=st.floats(0, 0.9), seed=st.integers(0, 99))
def test_every_row_is_once_in_train_or_test_and_ids_keep_a_query(n_ids, each, share, seed):
    rows = table(n_ids, each)
    stream = ContinualStream(rows, test_frac=share, seed=seed)
    used = np.concatenate([part.index for e in stream for part in (e.train, e.test)])
    assert sorted(used) == list(range(len(rows)))
    for e in stream:
        trained = e.train.groupby("id").size()
        tested = e.test.groupby("id").size().reindex(trained.index, fill_value=0)
        assert set(trained.index) == set(rows.loc[rows["experience"] == e.name, "id"])  # everyone can be learned
        if each > 1 and share > 0:
            assert (tested == max(1, int(np.floor(each * share + 1e-9)))).all()
        else:
            assert (tested == 0).all()


def test_time_goes_in_order():
    rows = table()
    rows["month"] = rows["experience"].map({0: "2026-10", 1: "2026-02", 2: "2025-12"})
    assert [e.name for e in ContinualStream(rows, time="month")] == ["2025-12", "2026-02", "2026-10"]
    rows["n"] = rows["experience"].map({0: 10, 1: 9, 2: 11})
    assert [e.name for e in ContinualStream(rows, time="n")] == [9, 10, 11]
    rows["named"] = pd.Categorical(rows["month"], categories=["2026-10", "2025-12", "2026-02", "never"], ordered=True)
    assert [e.name for e in ContinualStream(rows, time="named")] == ["2026-10", "2025-12", "2026-02"]
    assert len(ContinualStream(rows, time=None)) == 1


def test_the_split_depends_on_the_seed_alone():
    def tested(seed, rows):
        return [e.test["query"].tolist() for e in ContinualStream(rows, seed=seed)]

    assert tested(1, table()) == tested(1, table())
    assert tested(1, table()) != tested(2, table())


def test_missing_columns_are_filled():
    stream = ContinualStream(table()[["query", "id"]], time=None)
    assert stream.families == {f"m{i}": f"m{i}" for i in range(6)}
    assert set(stream.domains.values()) == {"all"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="id"), "no column 'id'"),
        (lambda t: t.drop(columns="experience"), "no column 'experience'"),
        (lambda t: t[:0], "no rows"),
        (lambda t: t.assign(id=[None, *t["id"][1:]]), "'id' is empty in row 0"),
        (lambda t: t.assign(query=[*t["query"][:-1], " "]), "row 35 .* no text"),
        (lambda t: t.assign(query=1), "no text"),
        (lambda t: t.assign(domain=["x", *t["domain"][1:]]), "'m0' has two domains"),
        (lambda t: t.assign(family=["x", *t["family"][1:]]), "'m0' has two families"),
        (lambda t: t.assign(experience=["x", *t["experience"][1:]]), "cannot be put in order"),
    ],
)
def test_a_bad_table_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        ContinualStream(change(table()))
    with pytest.raises(ValueError, match="test_frac"):
        ContinualStream(table(), test_frac=1.0)
