import pickle

import pytest
import torch
from dot_moe_models import checkpoint_with_words, dense, inputs, model, tokens

from assay.errors import InputError
from assay.evidence.study import Budget
from assay.models.dot_moe import DotMoEFFN, study
from assay.models.dot_moe.baselines import best_neurons
from assay.models.dot_moe.samples import keep_layers, kept_inputs, kept_layer
from assay.models.dot_moe.study import STUDY, Hidden, score_layer

SMOKE = Budget.SMOKE
MADE_UP = STUDY.task("made-up")


def errors(*arms, seed=0):
    given, hidden = MADE_UP.load(seed, SMOKE)
    return [score_layer(STUDY.arm(arm).run(given, 3, SMOKE), hidden)["error"] for arm in arms]


@pytest.mark.parametrize("arm", [a.name for a in STUDY.arms])
def test_every_arm_answers(arm):
    given, hidden = MADE_UP.load(0, SMOKE)
    metrics = score_layer(STUDY.arm(arm).run(given, 3, SMOKE), hidden)
    assert 0 < metrics["error"] < 1
    # No arm uses more of the layer for a token than any other, but for its router and the odd neuron.
    assert metrics["parameters"] == pytest.approx(3 * 16 * 32 + 8 * 32, abs=8 * 32)
    if arm not in ("best-neurons", "prune"):
        assert 1 <= metrics["load"] <= 8


def test_what_the_study_shows_at_a_glance():
    floor, method, random, plain = errors("best-neurons", "dot-moe", "random", "dot-plain")
    assert floor < method < random < plain


def test_given_and_hidden_depend_on_the_seed_alone_and_differ():
    given, hidden = MADE_UP.load(5, SMOKE)
    again, _ = MADE_UP.load(5, SMOKE)
    other, _ = MADE_UP.load(6, SMOKE)
    assert torch.equal(given.x, again.x)
    assert not torch.equal(given.x, other.x)
    assert torch.cdist(hidden.x, given.x).min() > 0.1


def test_score_is_the_relative_error():
    source, x = dense(d_ffn=64), inputs(20)
    ffn = DotMoEFFN(source, 8, 2)
    ffn.set_cut(torch.arange(8).repeat_interleave(8))
    with torch.no_grad():
        y, guess = source.output(x), ffn.eval()(x)
    ffn.reset_load()
    metrics = score_layer(ffn, Hidden(x, source))
    assert metrics["error"] == pytest.approx(float(((guess - y).norm(dim=1) / y.norm(dim=1)).square().mean()))
    best = score_layer(study.BestNeurons(), Hidden(x, source))["error"]
    assert best == pytest.approx(float(((best_neurons(source, x, 16) - y).norm(dim=1) / y.norm(dim=1)).square().mean()))


def test_a_users_cut_is_scored_like_the_methods():
    given, hidden = MADE_UP.load(0, SMOKE)
    ffn = STUDY.arm("dot-moe").run(given, 3, SMOKE)
    order = torch.argsort(ffn.assignment, stable=True)

    def as_before(rows):
        return torch.empty_like(rows).index_copy_(0, order, rows)

    mine = {"assignment": ffn.assignment, "router": ffn.router.weight.detach()}
    mine |= {name: as_before(getattr(ffn, name).detach()) for name in ("up", "gate", "down")}
    theirs = score_layer(ffn, hidden)
    assert score_layer(mine, hidden)["error"] == pytest.approx(theirs["error"], rel=1e-4)
    arrays = {name: tensor.numpy() for name, tensor in mine.items()}
    assert score_layer(arrays, hidden)["error"] == pytest.approx(theirs["error"], rel=1e-4)


def gaming(given, **changes):
    good = {"assignment": torch.arange(8).repeat_interleave(8), "router": torch.zeros(8, 32)}
    return good | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"assignment": torch.zeros(64, dtype=torch.int64)}, "the assignment gives them"),  # all neurons in one expert
        ({"router": torch.zeros(6, 32)}, "router must have shape"),  # two shared, none routed
        ({"router": torch.zeros(8, 31)}, "router must have shape"),
        ({"up": torch.zeros(128, 32)}, "up must have shape"),
        ({"bias": torch.zeros(32)}, "must have assignment and router"),
        ({"down": torch.full((64, 32), torch.nan)}, "NaN or infinity"),
    ],
)
def test_a_cut_that_uses_more_than_it_may_or_is_none_is_refused(changes, message):
    given, hidden = MADE_UP.load(0, SMOKE)
    with pytest.raises(ValueError, match=message):
        score_layer(gaming(given, **changes), hidden)


def test_other_outputs_are_refused():
    given, hidden = MADE_UP.load(0, SMOKE)
    with pytest.raises(TypeError, match="must be a DotMoEFFN or a dictionary, got DenseFFN"):
        score_layer(given.dense, hidden)
    everything = DotMoEFFN(given.dense, 8, 8)
    with pytest.raises(ValueError, match="a token may use 16 neurons; 8 experts of 8 are 64"):
        score_layer(everything, hidden)
    unfinished = DotMoEFFN(given.dense, 8, 2)
    unfinished.learn_cut(torch.zeros(64, 8))
    with pytest.raises(ValueError, match="must be frozen"):
        score_layer(unfinished, hidden)


def test_budgets_keep_to_their_tasks():
    names = {b: {(t.name, a.name) for t, a in STUDY.pairs(b)} for b in Budget}
    assert {t for t, _ in names[Budget.SMOKE]} == {"made-up"}
    assert {t for t, _ in names[Budget.QUICK]} == {"layer-2", "layer-14", "layer-26"}
    assert {t for t, _ in names[Budget.FULL]} == {"layer-2", "layer-14", "layer-26", "long-14", "long-26", "model"}
    assert {a for t, a in names[Budget.FULL] if t == "model"} == {"dot-shared", "cmoe-shared", "prune"}
    assert {a for _, a in names[Budget.QUICK]} == {
        "dot-moe", "dot-shared", "dot-plain", "act-kmeans", "random", "prune", "best-neurons",
    }  # fmt: skip
    assert STUDY.base_seed == 1000
    assert min(STUDY.seeds.values()) >= 3


def test_a_study_can_be_sent_to_a_worker():
    copy = pickle.loads(pickle.dumps(STUDY))
    given, hidden = copy.task("made-up").load(0, SMOKE)
    assert copy.task("made-up").score(copy.arm("prune").run(given, 1, SMOKE), hidden)["error"] > 0


def test_kept_layers_are_those_of_the_model(tmp_path):
    net, ids = model(), tokens(6, 16)
    keep_layers(net, [1], ids[:4], ids[4:], tmp_path)
    mlp = net.model.layers[1].mlp
    layer = kept_layer(tmp_path, 1, mlp.act_fn)
    seen = []
    mlp.register_forward_hook(lambda m, a, y: seen.append((a[0].reshape(-1, 32), y.reshape(-1, 32))))
    with torch.no_grad():
        net(ids[:4])
        torch.testing.assert_close(layer.output(seen[0][0]), seen[0][1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(kept_inputs(tmp_path / "train", 1), seen[0][0], atol=1e-2, rtol=1e-2)
    rows = torch.tensor([2, 0])
    some = kept_inputs(tmp_path / "train", 1, rows, 16)
    torch.testing.assert_close(some, seen[0][0].view(4, 16, 32)[rows].reshape(-1, 32), atol=1e-2, rtol=1e-2)
    assert kept_inputs(tmp_path / "test", 1).shape == (32, 32)


def test_own_model_and_text(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    folder, text = checkpoint_with_words(tmp_path, paragraphs=340)
    mine = study.own({"model": folder, "data": text})
    assert [t.name for t in mine.tasks] == ["layer-0", "layer-1"]
    assert all(claim.tasks is None for claim in mine.claims)
    assert [SMOKE in t.budgets for t in mine.tasks] == [False, True]  # one layer is enough to see that it runs
    assert pickle.loads(pickle.dumps(mine)).name == "dot-moe"
    given, hidden = mine.tasks[1].load(1000, SMOKE)
    assert given.x.shape == (42 * 128, 32)
    assert hidden.x.shape == (14 * 128, 32)
    torch.testing.assert_close(given.up, model().model.layers[1].mlp.up_proj.weight)
    x = hidden.x[:5]
    torch.testing.assert_close(hidden.dense.output(x), model().model.layers[1].mlp(x), atol=1e-5, rtol=1e-5)
    other, same = mine.tasks[1].load(1001, SMOKE)
    assert not torch.equal(other.x, given.x)
    assert torch.equal(same.x, hidden.x)
    text.write_text("w1 w2 w3 w4")
    with pytest.raises(InputError, match="less than one row"):
        study.own({"data": text, "model": folder})
    text.write_text("w1 w2 w3 w4 " * 200)
    with pytest.raises(InputError, match="this study needs 9856"):
        study.own({"data": text, "model": folder})
