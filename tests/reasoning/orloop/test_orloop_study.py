"""The study: what arms see, what counts, and a user's own model."""

import pytest

from assay.errors import InputError
from assay.evidence.study import Budget
from assay.reasoning.orloop import LinearModel, generate, solve
from assay.reasoning.orloop.study import STUDY, own, score, without_names


@pytest.fixture(scope="module")
def hidden():
    return generate(6, errors="ABCDFI", seed=41)


def test_the_true_undo_is_the_ceiling(hidden):
    for known in (hidden, [without_names(one) for one in hidden]):
        metrics = score([list(one.undo) for one in known], known)
        assert metrics["op5"] == metrics["rr5"] == metrics["diag_f1"] == metrics["exact"] == 1


def test_doing_nothing_is_worth_nothing(hidden):
    metrics = score([["SUBMIT"]] * len(hidden), hidden)
    assert metrics["op5"] == metrics["rr5"] == metrics["diag_f1"] == 0
    with pytest.raises(ValueError, match="6 models"):
        score([], hidden)


def test_names_are_gone(hidden):
    for one in hidden:
        bare = without_names(one)
        assert not set(bare.model.row_names) & set(one.model.row_names)
        assert set(bare.model.family) == {"r"}
        assert solve(bare.original).objective == pytest.approx(one.optimum)


def test_arms_see_no_culprits(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    given, hidden = STUDY.task("lp").load(5, Budget.SMOKE)
    assert len(given.models) == len(hidden) == 9
    assert all(isinstance(model, LinearModel) for model in given.models)
    arm = STUDY.arm("outlier").run(given, 5, Budget.SMOKE)
    metrics = STUDY.task("lp").score(arm, hidden)
    assert metrics["rr5"] > 0.8
    assert metrics["op5"] > 0.5


def test_a_users_model(tmp_path, hidden, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    path = hidden[0].original.write(tmp_path / "m.mps")
    study = own({"data": path})
    given, known = study.tasks[0].load(3, Budget.SMOKE)
    assert len(given.models) == len(known) > 0
    with pytest.raises(InputError, match="infeasible"):
        own({"data": hidden[0].model.write(tmp_path / "bad.mps")})
    with pytest.raises(InputError, match="as data"):
        own({"model": path})
