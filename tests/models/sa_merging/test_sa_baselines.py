import pytest
import sa_merging_models as tiny
import torch

from assay.models.sa_merging import average, dare, magnitude, task_arithmetic, ties

sparsify = pytest.importorskip("mergekit.sparsify")
arithmetic = pytest.importorskip("mergekit.merge_methods.generalized_task_arithmetic")

SHAPE = (40, 25)


def stacked(seed=0):
    base, experts = tiny.states(seed, shape=SHAPE)
    return base, experts, {n: torch.stack([e[n] - base[n] for e in experts]) for n in base}


def same(found, base, update):
    for name in base:
        torch.testing.assert_close(found[name], base[name] + update[name], rtol=1e-5, atol=1e-6)


def test_average_and_task_arithmetic():
    base, experts, deltas = stacked()
    same(average(base, experts), base, {n: d.mean(0) for n, d in deltas.items()})
    same(task_arithmetic(base, experts, scale=0.4), base, {n: 0.4 * d.sum(0) for n, d in deltas.items()})


@pytest.mark.parametrize("density", [0.2, 0.5, 1.0])
def test_ties_is_mergekits(density):
    base, experts, deltas = stacked(1)
    update = {}
    for name, delta in deltas.items():
        kept = torch.stack([sparsify.magnitude(d, density) for d in delta])
        mask = arithmetic.get_mask(kept, method="sum")
        update[name] = 1.5 * (kept * mask).sum(0) / mask.sum(0).clamp_min(1)
    same(ties(base, experts, density=density, scale=1.5), base, update)


def test_magnitude_is_mergekits():
    base, experts, deltas = stacked(2)
    update = {n: sum(sparsify.magnitude(d, 0.1) for d in delta) for n, delta in deltas.items()}
    same(magnitude(base, experts, density=0.1), base, update)


def test_dare_is_mergekits_bernoulli_enlarged():
    base, experts, deltas = stacked(3)
    torch.manual_seed(7)
    update = {n: 0.3 / 0.25 * sum(sparsify.bernoulli(d, 0.25) for d in delta) for n, delta in deltas.items()}
    same(dare(base, experts, density=0.25, scale=0.3, seed=7), base, update)
    another = dare(base, experts, density=0.25, scale=0.3, seed=8)
    assert not torch.equal(another["0.weight"], base["0.weight"] + update["0.weight"])


def test_dare_leaves_the_global_generator_alone():
    base, experts, _ = stacked()
    state = torch.get_rng_state()
    dare(base, experts)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("rule", [ties, dare, magnitude])
@pytest.mark.parametrize("density", [0, 1.2, float("nan")])
def test_density_out_of_range(rule, density):
    base, experts, _ = stacked()
    with pytest.raises(ValueError, match="density must lie in"):
        rule(base, experts, density=density)


def test_unknown_arguments_and_modules():
    base, experts, _ = stacked()
    with pytest.raises(TypeError, match="unknown argument 'keep'"):
        average(base, experts, keep=1)
    model = tiny.build("bert")
    found = average(model, [tiny.expert_of(model, 1)])
    assert type(found) is type(model)


def test_folders(tmp_path):
    model = tiny.build("llama")
    expert = tiny.expert_of(model, 1)
    for name, one in (("base", model), ("expert", expert)):
        one.save_pretrained(tmp_path / name)
    out = average(tmp_path / "base", [tmp_path / "expert"], out=tmp_path / "out")
    again = type(model).from_pretrained(out)
    for a, b in zip(again.parameters(), expert.parameters(), strict=True):
        torch.testing.assert_close(a, b)
