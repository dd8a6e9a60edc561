import math

import numpy as np
import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from torch.nn.functional import normalize

from assay.models.carve import candidates as candidates_file
from assay.models.carve import coreset, training
from assay.models.carve.baselines import fisher
from assay.models.carve.candidates import Candidates
from assay.models.carve.registry import Registry

MIX = (1 / 3, 1 / 3, 1 / 3)

route_loss = jaxtyped(candidates_file.route_loss, typechecker=beartype)
candidate_scores = jaxtyped(candidates_file.candidate_scores, typechecker=beartype)
train = jaxtyped(training.train, typechecker=beartype)


def test_route_loss_of_the_reference():
    scores = torch.tensor([[1.0, 0.0, 0.0]])
    assert route_loss(scores, 0.5).item() == pytest.approx(-math.log(math.e**2 / (math.e**2 + 2)))
    assert route_loss(scores, 0.5).item() == pytest.approx(0.2395, abs=5e-5)


@pytest.mark.parametrize("k", [2, 5, 64])
def test_loss_of_equal_scores_is_log_k(k):
    assert route_loss(torch.full((3, k), 0.4), 0.07).item() == pytest.approx(math.log(k), rel=1e-6)


def test_candidate_scores_are_the_same_either_way():
    generator = torch.Generator().manual_seed(0)
    queries, vectors = torch.randn(5, 7, generator=generator), torch.randn(100, 7, generator=generator)
    drawn = torch.randint(100, (5, 3), generator=generator)
    expected = torch.stack([vectors[drawn[i]] @ queries[i] for i in range(5)])
    torch.testing.assert_close(candidate_scores(queries, vectors, drawn), expected)  # picks rows
    few = drawn % 20
    expected = torch.stack([vectors[few[i]] @ queries[i] for i in range(5)])
    torch.testing.assert_close(candidate_scores(queries, vectors[:20], few), expected)  # scores the whole table


@settings(deadline=None, max_examples=80)
@given(
    n_ids=st.integers(1, 60),
    domains=st.integers(1, 6),
    size=st.integers(2, 20),
    pool=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_candidates_hold_the_true_id_once_and_have_their_shares(n_ids, domains, size, pool, seed):
    rng = np.random.default_rng(seed)
    ids = rng.permutation(100)[:n_ids].astype(np.int64)  # numbers with gaps: some ids are retired
    domain = rng.integers(0, domains, n_ids)
    drawer = Candidates(ids, domain, size, MIX, pool, rng)
    targets = rng.choice(ids, 30)
    queries, vectors = (normalize(torch.tensor(rng.normal(size=(n, 4)), dtype=torch.float32)) for n in (30, 100))
    drawer.mine(queries, vectors, targets)
    drawn = drawer.draw(np.arange(30), targets)
    assert drawn.shape == (30, min(size, n_ids))
    assert (drawn[:, 0] == targets).all()
    assert not (drawn[:, 1:] == targets[:, None]).any()
    assert set(drawn.ravel()) <= set(ids)
    if n_ids <= size:
        assert all(sorted(row) == sorted(ids) for row in drawn)
        return
    of = dict(zip(ids.tolist(), domain.tolist(), strict=True))
    wrong = size - 1
    n_hard = min(round(wrong / 3), pool, n_ids - 1)
    scores = (queries @ vectors.T).numpy()
    for i, row in enumerate(drawn):
        others = np.array([m for m in ids if m != targets[i]])
        best = others[np.argsort(-scores[i, others])[: min(pool, n_ids - 1)]]
        hard = row[1 : 1 + n_hard]
        assert set(hard) <= set(best)
        assert len(set(hard)) == n_hard
        semantic = row[1 + n_hard : 1 + n_hard + round(wrong / 3)]
        same = [m for m in others if of[m] == of[targets[i]]]
        if same:
            assert set(semantic) <= set(same)
        far = row[1 + n_hard + round(wrong / 3) :]
        elsewhere = [m for m in others if of[m] != of[targets[i]]]
        if elsewhere:
            assert set(far) <= set(elsewhere)


def test_semantic_and_far_draws_are_uniform():
    ids = np.arange(40)
    domain = np.repeat([0, 1, 2, 3], 10)
    drawer = Candidates(ids, domain, 31, (0.0, 0.5, 0.5), 5, np.random.default_rng(0))
    drawn = drawer.draw(np.arange(20_000), np.full(20_000, 13))
    counts = np.bincount(drawn[:, 1:].ravel(), minlength=40) / 20_000
    assert counts[13] == 0
    same = np.delete(np.arange(10, 20), 3)
    np.testing.assert_allclose(counts[same], 15 / 9, rtol=0.03)
    np.testing.assert_allclose(np.delete(counts, np.arange(10, 20)), 15 / 30, rtol=0.05)


def test_a_training_step_is_that_of_adam_on_the_whole_loss():
    """Against torch.optim.Adam and autograd, with every id among the candidates of each step."""
    rng = np.random.default_rng(0)
    X = normalize(torch.tensor(rng.normal(size=(24, 6)), dtype=torch.float32))
    targets = rng.integers(0, 5, 24)
    start_v = normalize(torch.tensor(rng.normal(size=(5, 4)), dtype=torch.float32))
    start_w = torch.tensor(rng.normal(size=(6, 4)), dtype=torch.float32)
    old = torch.tensor([True, True, True, False, False])
    anchor = training.Anchor(old, start_v.clone(), start_w.clone(), 3.0, 2.0)
    ours_v, ours_w = start_v.clone(), start_w.clone()
    steps = train(
        ours_v,
        ours_w,
        X,
        targets,
        Candidates(np.arange(5), np.zeros(5, dtype=np.int64), 8, MIX, 8, np.random.default_rng(1)),
        temperature=0.5,
        epochs=3,
        lr=0.01,
        batch_size=10,
        hard_every=2,
        rng=np.random.default_rng(2),
        anchor=anchor,
    )
    assert steps == 9
    v, w = start_v.clone().requires_grad_(), start_w.clone().requires_grad_()
    adam = torch.optim.Adam([v, w], lr=0.01)
    order_rng = np.random.default_rng(2)
    for _ in range(3):
        order = order_rng.permutation(24)
        for batch in (order[:10], order[10:20], order[20:]):
            scores = normalize(X[batch] @ w) @ normalize(v).T / 0.5
            loss = torch.nn.functional.cross_entropy(scores, torch.tensor(targets[batch]))
            loss = loss + 3.0 * (1 - torch.cosine_similarity(v[:3], start_v[:3])).mean()
            loss = loss + 2.0 * 6 * ((w - start_w) ** 2).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
    torch.testing.assert_close(ours_v, v.detach(), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(ours_w, w.detach(), rtol=1e-3, atol=1e-5)


def test_rows_that_no_step_names_stay_and_waiting_rows_are_anchored_for_all_the_steps():
    values = torch.ones(4, 2)
    adam = training.RowAdam(values, 0.1)
    adam.step(torch.tensor([1]), torch.ones(1, 2), 1)
    assert values[[0, 2, 3]].eq(1).all()
    torch.testing.assert_close(values[1], torch.full((2,), 0.9))  # the first step of Adam has the length lr


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 80), ids=st.integers(1, 10), share=st.floats(0, 1.2), seed=st.integers(0, 1000))
def test_coreset_has_its_size_and_spreads(n, ids, share, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    owner = rng.integers(0, ids, n)
    domain = owner % 3
    seen = {int(g): int((domain == g).sum()) * 2 for g in range(3)}
    size = min(round(share * n), n)
    chosen = coreset.choose(X, owner, domain, seen, size)
    assert len(chosen) == size
    assert len(set(chosen.tolist())) == size
    assert (np.diff(chosen) > 0).all()
    for g in np.unique(domain):
        inside = owner[chosen[domain[chosen] == g]]
        counts = np.bincount(inside, minlength=ids)
        available = np.bincount(owner[domain == g], minlength=ids)
        # Nobody has two more than another who could have given more, but for what the last round leaves out.
        if len(inside):
            assert counts.max() <= min(c for c in range(1, n + 1) if np.minimum(available, c).sum() >= len(inside))


def test_coreset_of_the_reference_quotas_takes_the_far_ones():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 5)).astype(np.float32)
    domain = np.repeat([0, 1, 2], [900, 90, 10])
    chosen = coreset.choose(X, np.arange(1000) % 7 + 10 * domain, domain, {0: 900, 1: 90, 2: 10}, 100)
    assert np.bincount(domain[chosen]).tolist() == [68, 22, 10]
    # Two tight bunches of one id: one of each is kept.
    bunch = np.concatenate([np.tile([1.0, 0.0], (50, 1)), np.tile([0.0, 1.0], (2, 1))]).astype(np.float32)
    kept = coreset.choose(bunch, np.zeros(52, dtype=int), np.zeros(52, dtype=int), {0: 52}, 2)
    assert (kept >= 50).sum() == 1


def test_fisher_information_is_the_mean_of_squared_gradients():
    rng = np.random.default_rng(0)
    X = normalize(torch.tensor(rng.normal(size=(7, 5)), dtype=torch.float32))
    vectors = normalize(torch.tensor(rng.normal(size=(4, 3)), dtype=torch.float32))
    w = torch.tensor(rng.normal(size=(5, 3)), dtype=torch.float32)
    targets = torch.tensor(rng.integers(0, 4, 7))
    of_w, of_v = fisher(vectors, w, X, targets, 0.3)
    expected_w, expected_v = torch.zeros_like(w), torch.zeros_like(vectors)
    for i in range(7):
        v_, w_ = vectors.clone().requires_grad_(), w.clone().requires_grad_()
        scores = normalize(X[i : i + 1] @ w_) @ normalize(v_).T / 0.3
        torch.nn.functional.cross_entropy(scores, targets[i : i + 1]).backward()
        expected_w += w_.grad**2 / 7
        expected_v += v_.grad**2 / 7
    torch.testing.assert_close(of_w, expected_w, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(of_v, expected_v, rtol=1e-4, atol=1e-6)


def test_a_registry_can_be_copied():
    registry = Registry()
    registry.add(["a"], ["x"], None, 0)
    copy = registry.copy()
    copy.add(["b", "a"], ["x", "x"], ["f", "g"], 1)
    assert registry.ids == ["a"]
    assert registry.index == {"a": 0}
    assert registry.families == [None]
    assert copy.families == ["g", "f"]
    assert copy.n_seen == [2, 1]
