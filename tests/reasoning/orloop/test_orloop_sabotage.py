"""Errors that are put in come out again, and nothing else does."""

import numpy as np
import pytest

from assay.errors import InputError
from assay.reasoning.orloop import LinearModel, RepairEnv, generate, iis, sabotage, solve
from assay.reasoning.orloop.saboteur import ERRORS, same_objective


@pytest.fixture(scope="module")
def instances():
    return generate(9, seed=2) + generate(6, errors="ABCDFI", milp=True, seed=2)


def undone(one, but=()):
    env = RepairEnv(one, max_steps=20)
    env.reset()
    for edit in one.undo:
        if edit.target not in but and not env.done:
            env.step(str(edit))
    return env


def test_undoing_brings_the_original_back_to_the_last_digit(instances):
    for one in instances:
        score = undone(one).score()
        assert min(score.rr5, score.op5, score.exact), (one.id, score)
        assert score.diag_f1 == score.diag_precision == score.diag_recall == 1
        assert score.loyal or one.error in "EG"


def test_what_an_instance_promises(instances):
    assert {one.error for one in instances} == set(ERRORS)
    for one in instances:
        assert solve(one.model).status == "infeasible"
        solved = solve(one.original)
        assert solved.status == "optimal"
        assert same_objective(solved.objective, one.optimum)
        found = iis(one.model)
        assert found.certified
        assert one.iis_rows
        assert not one.model.same(one.original)
        assert one.culprits <= {*one.model.row_names, *one.model.col_names}
        assert 80 <= len(one.narrative.split()) <= 200
        assert not any(character.isdigit() for character in one.narrative)
    assert sum(bool(one.culprits & set(one.iis_rows)) for one in instances if one.error in "ACDI") == sum(
        one.error in "ACDI" for one in instances
    )


def test_one_undo_of_several_is_not_enough(instances):
    for one in instances:
        if one.error in "EG":
            for culprit in one.culprits:
                assert undone(one, but={culprit}).state.status == "infeasible"


def test_a_hidden_cause_is_a_column(instances):
    for one in instances:
        if one.error == "F":
            assert one.culprits <= set(one.model.col_names)
            in_conflict = {one.model.col_names[j] for r in one.iis_rows for j in one.model.A[one.model.row(r)].indices}
            assert one.culprits & in_conflict


def test_what_each_kind_of_error_promises_beside(instances):
    for one in instances:
        if one.error == "D":
            assert len(one.iis_rows) >= 2
        if one.error == "H":  # without one of the rows in conflict another conflict is left
            without = [[i for i, n in enumerate(one.model.row_names) if n != name] for name in one.iis_rows]
            assert any(solve(one.model.rows(rows)).status == "infeasible" for rows in without)
        if one.error == "I":  # somebody else's repair is feasible, and its optimum another one
            others = []
            for name in set(one.iis_rows) - one.culprits:
                rows = [i for i, n in enumerate(one.model.row_names) if n != name]
                found = solve(one.model.rows(rows))
                others += [found.objective] if found.status == "optimal" else []
            assert others
            assert max(abs(z - one.optimum) for z in others) > 1e-3


def test_names_tell_nothing(instances):
    for one in instances:
        for name in one.model.row_names:
            family, number = name.rsplit("_", 1)
            assert len(number) == 6
            assert number.isdigit()
            assert family
        if one.error == "D":  # an added row stands anywhere
            (culprit,) = one.culprits
            assert culprit in one.model.row_names
    places = [one.model.row(next(iter(one.culprits))) / one.model.shape[0] for one in generate(20, errors="D", seed=1)]
    assert 0.2 < np.mean(places) < 0.8


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    texts = []
    for turn in (0, 1):
        made = generate(4, seed=6)
        texts.append([one.model.write(tmp_path / f"{turn}.mps").read_bytes() for one in made])
    assert texts[0] == texts[1]
    assert [one.id for one in generate(4, seed=6)] != [one.id for one in generate(4, seed=7)]


def test_numbers_are_told_when_asked_for():
    (one,) = generate(1, errors="A", seed=0, narrative_numbers=True)
    assert all(name in one.narrative for name in one.original.row_names)


def test_a_users_own_model():
    one = generate(1, errors="A", domains="transport", seed=4)[0]
    found = sabotage(one.original, "D", np.random.default_rng(0))
    assert found is not None
    assert found.domain == "own"
    assert solve(found.model).status == "infeasible"


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: generate(0), "n must"),
        (lambda: generate(2.5), "n must"),
        (lambda: generate(2, domains=["cooking"]), "cooking"),
        (lambda: generate(2, errors="AZ"), "errors"),
        (lambda: generate(2, errors=""), "errors"),
    ],
)
def test_bad_requests_are_named(call, word):
    with pytest.raises(InputError, match=word):
        call()


def test_only_a_model_with_an_optimum_can_be_sabotaged():
    endless = LinearModel.from_arrays([[1.0]], [0], [np.inf], [0], [np.inf], [-1])
    with pytest.raises(InputError, match="unbounded"):
        sabotage(endless, "A", np.random.default_rng(0))
    with pytest.raises(InputError, match="error must"):
        sabotage(endless, "Q", np.random.default_rng(0))


@pytest.mark.parametrize("links", [1, 4])
def test_a_contradiction_through_definitions(links):
    base = generate(1, errors="A", domains="production", seed=4)[0].original
    one = sabotage(base, "D", np.random.default_rng(1), chain=links)
    plain = sabotage(base, "D", np.random.default_rng(1))
    (culprit,) = one.culprits
    assert len(one.iis_rows) >= len(plain.iis_rows) + links
    assert sum(name.startswith("definition") for name in one.iis_rows) == links
    assert one.model.shape[1] == base.shape[1] + links
    assert one.model.A[one.model.row(culprit)].nnz == 1
    assert solve(one.original).objective == pytest.approx(solve(base).objective)
    score = undone(one).score()
    assert score.exact
    assert score.op5
    assert score.diag_f1 == 1
    for wrong in ({"chain": -1}, {"chain": 1.5}, {"chain": True}):
        with pytest.raises(InputError, match="chain"):
            sabotage(base, "D", np.random.default_rng(1), **wrong)
    with pytest.raises(InputError, match="chain"):
        sabotage(base, "A", np.random.default_rng(1), chain=2)


@pytest.mark.parametrize("error", "BCD")
def test_a_users_model_with_names_of_its_own(error):
    rng = np.random.default_rng(8)
    n = 12
    A = np.vstack([rng.uniform(1, 5, (6, n)).round(1), rng.uniform(1, 5, (6, n)).round(1)])
    middle = A @ np.full(n, 2.0)
    lo = np.concatenate([0.9 * middle[:6], np.full(6, -np.inf)])
    up = np.concatenate([np.full(6, np.inf), 1.1 * middle[6:]])
    names = [f"need[{i}]" for i in range(6)] + [f"Room {i}" for i in range(6)]
    own = LinearModel.from_arrays(A, lo, up, [0] * n, [6] * n, rng.uniform(1, 9, n), row_names=names)
    one = next(s for s in (sabotage(own, error, np.random.default_rng(i)) for i in range(9)) if s is not None)
    assert one.optimum == pytest.approx(solve(own).objective)
    assert {name.rsplit("_", 1)[0] for name in one.model.row_names} == {"need", "row"}
    assert undone(one).score().exact
    # Less of all meets each need turned round, and more of all each limit: no direction makes this model infeasible.
    assert sabotage(own, "A", np.random.default_rng(0)) is None
