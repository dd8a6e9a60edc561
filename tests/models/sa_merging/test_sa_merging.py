import json
import warnings
from itertools import pairwise

import pytest
import sa_merging_models as tiny
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintParamViolation
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from safetensors.torch import load_file, save_file
from torch import nn

from assay.models.sa_merging import ShapeMismatchError, merge, saliency, sensitivity, task_arithmetic
from assay.models.sa_merging.masks import BitMasks, keep_top, kept_count

CHAIN = {"connectivity": "chain", "combine": "sum", "device": "cpu"}
SEEDS = st.integers(0, 50)
MODES = st.sampled_from(["signed", "agree", "abs"])


def by_hand(base, experts, keep, rounds, mode, weights):
    """The method written out with dense masks and sorts, in float64."""
    base = {n: t.double() for n, t in base.items()}
    taus = [{n: e[n].double() - base[n] for n in base} for e in experts]
    alive = [{n: torch.ones_like(t, dtype=torch.bool) for n, t in base.items()} for _ in experts]
    for t in range(1, rounds + 1):
        consensus = {n: sum(w * tau[n] for w, tau in zip(weights, taus, strict=True)) for n in base}
        for tau, mask in zip(taus, alive, strict=True):
            at = {n: base[n] + tau[n] for n in base}
            g = sensitivity("chain", at)
            for n in base:
                sign = {"signed": at[n].sign(), "agree": tau[n].sign(), "abs": consensus[n].sign()}[mode]
                score = (g[n] * sign * consensus[n]).reshape(-1)
                score[~mask[n].reshape(-1)] = -torch.inf
                count = round(keep ** (t / rounds) * score.numel())
                order = sorted(range(score.numel()), key=lambda i: (-float(score[i]), i))[:count]
                new = torch.zeros(score.numel(), dtype=torch.bool)
                new[order] = True
                mask[n] = new.reshape(mask[n].shape) & mask[n]
        for tau, mask in zip(taus, alive, strict=True):
            for n in tau:
                tau[n] = tau[n] * mask[n]
    return {n: base[n] + sum(w * tau[n] for w, tau in zip(weights, taus, strict=True)) for n in base}


@settings(max_examples=15, deadline=None)
@given(SEEDS, MODES, st.sampled_from([(0.1, 10), (0.3, 1), (0.5, 3)]))
def test_against_the_method_written_out(seed, mode, keep_rounds):
    base, experts = tiny.states(seed)
    keep, rounds = keep_rounds
    weights = [1.0, 0.5, 2.0]
    found = merge(base, experts, keep=keep, rounds=rounds, mode=mode, weights=weights, dtype=torch.float64, **CHAIN)
    expected = by_hand(base, experts, keep, rounds, mode, weights)
    for name in base:
        torch.testing.assert_close(found[name].double(), expected[name], rtol=1e-5, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.sampled_from([1.0, 0.3, -0.5]), st.integers(1, 4))
def test_keeping_all_is_task_arithmetic_bit_for_bit(seed, scale, experts):
    base, experts = tiny.states(seed, experts=experts)
    found = merge(base, experts, keep=1, scale=scale, **CHAIN)
    expected = task_arithmetic(base, experts, scale=scale, device="cpu")
    assert all(torch.equal(found[name], expected[name]) for name in base)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_copies_of_the_base_give_the_base_bit_for_bit(dtype):
    base = {n: t.to(dtype) for n, t in tiny.states()[0].items()}
    base["0.weight"][0, 0] = -0.0
    found = merge(base, [dict(base), dict(base)], **CHAIN)
    assert all(found[n].dtype == dtype for n in base)
    assert all(torch.equal(found[n].view(torch.uint8), t.view(torch.uint8)) for n, t in base.items())


@settings(max_examples=15, deadline=None)
@given(SEEDS, MODES, st.permutations([0, 1, 2]))
def test_the_order_of_experts_does_not_matter(seed, mode, order):
    base, experts = tiny.states(seed)
    a = merge(base, experts, mode=mode, **CHAIN)
    b = merge(base, [experts[i] for i in order], mode=mode, **CHAIN)
    assert all(torch.allclose(a[n], b[n], rtol=0, atol=1e-6) for n in base)


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.floats(0.01, 100), MODES)
def test_the_scale_of_a_layers_sensitivity_does_not_matter(seed, factor, mode):
    base, experts = tiny.states(seed)
    factors = {"0.weight": factor, "2.bias": 1 / factor}

    def scaled(state):
        return {n: g * factors.get(n, 1.0) for n, g in sensitivity("chain", state).items()}

    a = merge(base, experts, mode=mode, dtype=torch.float64, **CHAIN)
    b = merge(base, experts, mode=mode, dtype=torch.float64, connectivity=scaled, combine="sum", device="cpu")
    assert all(torch.equal(a[n], b[n]) for n in base)


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.floats(0.02, 0.99), st.integers(1, 6))
def test_the_share_kept_is_the_share_asked_for(seed, keep, rounds):
    base, experts = tiny.states(seed)
    _, report = merge(base, experts, keep=keep, rounds=rounds, report=True, **CHAIN)
    for tensor in report.tensors:
        assert tensor.kept == pytest.approx([round(keep * tensor.numel) / tensor.numel] * 3)


def test_masks_are_nested_over_rounds():
    base, experts = tiny.states(3)
    kept = []
    for rounds in (1, 2, 3):  # the first rounds of a longer run with the same drop a round
        found = merge(base, experts[:1], keep=0.6**rounds, rounds=rounds, **CHAIN)
        kept.append({n: found[n] != base[n] for n in base})
    assert all(not bool((later[n] & ~earlier[n]).any()) for earlier, later in pairwise(kept) for n in base)
    assert sum(int(m.sum()) for m in kept[0].values()) > sum(int(m.sum()) for m in kept[2].values()) > 0


def test_deterministic_and_inputs_are_left_alone():
    base, experts = tiny.states(1)
    before = [{n: t.clone() for n, t in state.items()} for state in (base, *experts)]
    a, b = merge(base, experts, **CHAIN), merge(base, experts, **CHAIN)
    assert all(torch.equal(a[n], b[n]) for n in base)
    for state, copy in zip((base, *experts), before, strict=True):
        assert all(torch.equal(state[n], copy[n]) for n in base)


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.sampled_from([[1.0, 1.0, 1.0], [2.0, -1.0, 0.5]]))
def test_a_capped_update_is_no_longer_than_the_experts_own(seed, weights):
    base, experts = tiny.states(seed)
    options = CHAIN | {"keep": 0.5, "weights": weights, "dtype": torch.float64}
    capped = merge(base, experts, **(options | {"combine": "capped"}))
    summed = merge(base, experts, **options)
    for name in base:
        total, found = summed[name] - base[name], capped[name] - base[name]
        most = sum(abs(w) * (e[name] - base[name]).norm() for w, e in zip(weights, experts, strict=True)) / 3
        torch.testing.assert_close(found, total * min(1.0, float(most / total.norm())), rtol=1e-4, atol=1e-5)


def test_one_expert_is_pruned():
    base, experts = tiny.states()
    found = merge(base, experts[:1], keep=0.3, **CHAIN)
    changed = found["0.weight"] != base["0.weight"]
    assert int(changed.sum()) == 9
    torch.testing.assert_close(found["0.weight"][changed], experts[0]["0.weight"][changed])


def test_saliency_is_what_merge_ranks_by():
    base, experts = tiny.states(2)
    vectors = [{n: e[n] - base[n] for n in base} for e in experts]
    scores = saliency(vectors, base, connectivity="chain")
    consensus = sum(v["0.weight"] for v in vectors)
    expected = sensitivity("chain", experts[1])["0.weight"].float() * experts[1]["0.weight"].sign() * consensus
    ratio = scores[1]["0.weight"] / expected
    torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio))
    with pytest.raises(KeyError, match="task vector 1 has 'x'"):
        saliency([{"x": torch.ones(1)}], base)


def test_drop_of_a_round():
    counts = [kept_count(10**6, 0.1, t, 10) for t in range(11)]
    assert 1 - counts[1] / counts[0] == pytest.approx(0.2057, abs=1e-4)
    assert counts[10] == 10**5


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.data())
def test_the_highest_are_kept_and_ties_go_by_index(values, data):
    alive = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    count = data.draw(st.integers(0, len(values)))
    found = keep_top(torch.tensor(values, dtype=torch.float32), count, alive)
    order = sorted((i for i in range(len(values)) if alive[i]), key=lambda i: (-values[i], i))[:count]
    assert found.nonzero().flatten().tolist() == sorted(order)


@pytest.mark.parametrize("kind", ["random", "sorted", "periodic", "constant", "few values"])
def test_large_tensors_are_cut_exactly(kind):
    g = torch.Generator().manual_seed(0)
    n = 700_000
    scores = {
        "random": torch.randn(n, generator=g), "sorted": torch.linspace(-1, 1, n), "constant": torch.ones(n),
        "periodic": (torch.arange(n) % 10 == 0).float() + torch.rand(n, generator=g) / 10,
        "few values": torch.randint(3, (n,), generator=g).float(),
    }[kind]  # fmt: skip
    for count in (1, 70_000, n - 1):
        mask = keep_top(scores, count)
        assert int(mask.sum()) == count
        assert float(scores[mask].min()) >= float(scores[~mask].max())
        ties = scores == scores[mask].min()  # of equal ones the first are kept
        assert not bool((ties & ~mask)[: int((ties & mask).nonzero().max())].any())


def test_large_tensors_are_cut_exactly_among_what_is_alive():
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(200_000, generator=g)
    alive = torch.rand(200_000, generator=g) < 0.3
    order = torch.where(alive, scores, -torch.inf).argsort(descending=True)
    for count in (1, 20_000, int(alive.sum()) - 1, int(alive.sum()) + 5):
        found = keep_top(scores, count, alive).nonzero().flatten()
        assert found.tolist() == sorted(order[: min(count, int(alive.sum()))].tolist())


def test_masks_are_bits():
    masks = BitMasks({"a": 13, "b": 8}, 2)
    assert masks.read(0, "a") is None
    mask = torch.arange(13) % 3 == 0
    masks.write(1, "a", mask)
    masks.write(1, "b", torch.ones(8, dtype=torch.bool))
    assert torch.equal(masks.read(1, "a"), mask)
    assert masks.read(0, "a") is None
    assert masks._file.seek(0, 2) == 2 * (2 + 1)
    masks.close()


def test_shapes_are_checked_in_signatures():
    checked = jaxtyped(typechecker=beartype)(keep_top)
    assert checked(torch.ones(3), 1).tolist() == [True, False, False]
    with pytest.raises((BeartypeCallHintParamViolation, TypeError)):
        checked(torch.ones(3, 3), 1)


def test_include_and_exclude():
    base, experts = tiny.states()
    found = merge(base, experts, include="*.weight", exclude=["2.*"], **CHAIN)
    assert [n for n in base if not torch.equal(found[n], base[n])] == ["0.weight"]
    with pytest.raises(ValueError, match="include: no tensor is named like 'x\\*'"):
        merge(base, experts, include="x*", **CHAIN)
    with pytest.raises(ValueError, match="no tensor is left"):
        merge(base, experts, exclude="*", **CHAIN)


def test_the_report():
    base, experts = tiny.states(0, experts=2)
    experts[1] = {n: 2 * base[n] - t for n, t in experts[0].items()}  # the opposite update
    _, report = merge(base, experts, keep=0.5, mode="agree", report=True, **CHAIN)
    assert all(t.conflicts_before == 1 for t in report.tensors)
    assert all(t.norm_after[0] < t.norm_before[0] == pytest.approx(t.norm_before[1], rel=1e-4) for t in report.tensors)
    assert report.overlap[0][0] == 1
    text = report.markdown()
    assert "in opposite directions: 100.0% before" in text
    assert "expert 2" in text
    assert json.loads(json.dumps(report.as_dict()))["settings"]["keep"] == 0.5


# ---- bad input


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"keep": 0}, r"keep must lie in \(0, 1\], got 0"),
        ({"keep": 1.5}, "keep must lie in"),
        ({"keep": float("nan")}, "keep must lie in"),
        ({"rounds": 0}, "rounds must be a whole number, 1 or more, got 0"),
        ({"rounds": 2.5}, "rounds must be"),
        ({"combine": "mean"}, "combine must be 'capped' or 'sum'"),
        ({"mode": "sum"}, "mode must be one of signed, agree, abs"),
        ({"scale": float("inf")}, "scale must be a finite"),
        ({"weights": [1.0]}, "one number an expert: 1 for 3"),
        ({"weights": [1.0, 1.0, float("nan")]}, "weights must be finite"),
        ({"dtype": torch.float16}, "dtype must be float32 or float64"),
        ({"connectivity": "graph"}, "connectivity must be"),
        ({"out": "x"}, "out needs base and experts that are folders"),
        ({"device": "nowhere"}, "device must be"),
    ],
)
def test_values_out_of_range(change, says):
    base, experts = tiny.states()
    with pytest.raises(ValueError, match=says):
        merge(base, experts, **(CHAIN | change))


def test_no_expert_and_no_list():
    base, experts = tiny.states()
    with pytest.raises(ValueError, match="at least one expert"):
        merge(base, [], **CHAIN)
    with pytest.raises(TypeError, match="sequence of models"):
        merge(base, experts[0], **CHAIN)
    with pytest.raises(TypeError, match="expert 1 must be a module"):
        merge(base, [3], **CHAIN)
    with pytest.raises(TypeError, match=r"'0\.weight' is a list"):
        merge({"0.weight": [1.0]}, experts, **CHAIN)


def test_other_shapes_are_all_named():
    base, experts = tiny.states()
    experts[1]["0.weight"] = torch.ones(6, 7)
    experts[2]["2.bias"] = torch.ones(5)
    with pytest.raises(
        ShapeMismatchError, match=r"0\.weight: \[6, 7\] in expert 2, \[6, 5\] in the base; 2\.bias: \[5\] in expert 3"
    ):
        merge(base, experts, **CHAIN)


def test_missing_and_extra_tensors_are_named():
    base, experts = tiny.states()
    del experts[0]["2.bias"]
    experts[0]["head"] = torch.ones(1)
    with pytest.raises(KeyError, match=r"expert 1 lacks 2\.bias; it has, and the base has not, head"):
        merge(base, experts, **CHAIN)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none(value):
    base, experts = tiny.states()
    experts[1]["2.weight"][0, 0] = value
    with pytest.raises(ValueError, match=r"2\.weight of expert 2 holds NaN or infinity"):
        merge(base, experts, **CHAIN)
    with pytest.raises(ValueError, match=r"2\.weight of the base holds NaN"):
        merge(experts[1], [base], **CHAIN)


def test_integer_buffers_that_differ():
    base, experts = tiny.states(experts=1)
    base["step"], experts[0]["step"] = torch.tensor([3]), torch.tensor([4])
    with pytest.warns(UserWarning, match=r"step \(torch.int64\) differs in expert 1"):
        found = merge(base, experts, **CHAIN)
    assert found["step"].tolist() == [3]


def test_an_unknown_network_is_merged_with_a_warning_and_a_note():
    base = {"q": torch.ones(2, 2), "k": torch.ones(3, 5)}
    expert = {n: t + torch.arange(t.numel()).reshape(t.shape) for n, t in base.items()}
    with pytest.warns(UserWarning, match="every sensitivity is 1: no chain"):
        found, report = merge(base, [expert], keep=0.4, rounds=2, report=True, device="cpu")
    assert "every sensitivity is 1" in report.notes[0]
    assert (found["k"] != base["k"]).flatten().nonzero().flatten().tolist() == list(range(9, 15))
    with pytest.raises(ValueError, match="connectivity='chain': no chain"):
        merge(base, [expert], **CHAIN)


# ---- modules and folders


@pytest.mark.parametrize("kind", ["llama", "tied-llama", "gpt2", "bert-classifier", "vit"])
def test_modules_and_folders_give_the_same(kind, tmp_path):
    base = tiny.build(kind)
    experts = [tiny.expert_of(base, n) for n in (1, 2)]
    found = merge(base, experts, device="cpu")
    assert type(found) is type(base)
    assert found is not base
    folders = []
    for n, model in enumerate((base, *experts)):
        model.save_pretrained(tmp_path / str(n))
        folders.append(tmp_path / str(n))
    (folders[0] / "tokenizer_config.json").write_text("{}")
    out = merge(folders[0], folders[1:], out=tmp_path / "merged", report=True, device="cpu")[0]
    again = type(base).from_pretrained(out)
    for (name, a), (_, b) in zip(found.named_parameters(), again.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=name)
    assert (out / "tokenizer_config.json").is_file()
    assert json.loads((out / "merge_report.json").read_text())["tensors"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1", "2", "merged"]


def test_sharded_folders_keep_their_shards(tmp_path):
    base = tiny.build("llama")
    expert = tiny.expert_of(base, 1).to(torch.bfloat16)
    base = base.to(torch.bfloat16)
    for n, model in enumerate((base, expert)):
        model.save_pretrained(tmp_path / str(n), max_shard_size="4KB")
    shards = sorted(p.name for p in (tmp_path / "0").glob("*.safetensors"))
    assert len(shards) > 2
    out = merge(tmp_path / "0", [tmp_path / "1"], out=tmp_path / "out", keep=1, device="cpu")
    assert sorted(p.name for p in out.glob("*.safetensors")) == shards
    again = type(base).from_pretrained(out, dtype="auto")
    for a, b in zip(again.parameters(), expert.parameters(), strict=True):
        assert a.dtype == torch.bfloat16
        torch.testing.assert_close(a, b)


def test_a_tied_tensor_is_merged_once():
    base = tiny.build("tied-llama")
    found, report = merge(base, [tiny.expert_of(base, 1)], report=True, device="cpu")
    assert found.lm_head.weight is found.model.embed_tokens.weight
    assert not [t for t in report.tensors if t.name == "lm_head.weight"]


def folders(tmp_path, **changed):
    """A base and an expert on disk, with what is changed in the expert's config.json."""
    base = tiny.build("llama")
    for name, model in (("base", base), ("expert", tiny.expert_of(base, 1))):
        model.save_pretrained(tmp_path / name)
    config = json.loads((tmp_path / "expert" / "config.json").read_text())
    (tmp_path / "expert" / "config.json").write_text(json.dumps(config | changed))
    return tmp_path / "base", tmp_path / "expert"


def refused(tmp_path, base, expert, says, error=ValueError):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=says):
            merge(base, [expert], out=tmp_path / "out", device="cpu")
    assert not [p for p in tmp_path.iterdir() if p.name not in ("base", "expert")]  # nothing was written


def test_other_architectures(tmp_path):
    base, expert = folders(tmp_path, architectures=["MistralForCausalLM"])
    refused(tmp_path, base, expert, r"architectures is \['MistralForCausalLM'\]")


def test_another_vocabulary(tmp_path):
    base, expert = folders(tmp_path, vocab_size=51)
    refused(tmp_path, base, expert, "vocab_size is 51, and 50 in")


def test_another_tokenizer(tmp_path):
    base, expert = folders(tmp_path)
    for folder, words in ((base, {"a": 0, "b": 1}), (expert, {"a": 1, "b": 0})):
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": []}))
    refused(tmp_path, base, expert, "tokenizer differs from that of .* in 2 words \\('a', 'b'\\)")


def test_another_shape_on_disk(tmp_path):
    base, expert = folders(tmp_path)
    state = load_file(expert / "model.safetensors")
    state["model.norm.weight"] = torch.ones(17)
    save_file(state, expert / "model.safetensors")
    refused(tmp_path, base, expert, r"model\.norm\.weight: \[17\] in .*expert, \[16\] in", ShapeMismatchError)


def test_folders_that_are_none(tmp_path):
    base, expert = folders(tmp_path)
    refused(tmp_path, base, tmp_path / "nowhere", "nowhere is no folder")
    (expert / "model.safetensors").write_bytes(b"not safe")
    refused(tmp_path, base, expert, "no whole file of safetensors")
    (expert / "model.safetensors").unlink()
    (expert / "pytorch_model.bin").write_bytes(b"")
    refused(tmp_path, base, expert, "pickled weights are not read")
    (expert / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../base/model.safetensors"}}')
    refused(tmp_path, base, expert, "names a file outside its folder")
    (expert / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    refused(tmp_path, base, expert, "gone.safetensors, which is not there")
    (expert / "model.safetensors.index.json").write_text("[")
    refused(tmp_path, base, expert, "is no index of safetensors")


def test_what_is_there_is_not_overwritten(tmp_path):
    base, expert = folders(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(ValueError, match="out"):
        merge(base, [expert], out=tmp_path / "out", device="cpu")
    assert (tmp_path / "out" / "mine").read_text() == "x"


def test_a_plain_network_by_its_own_layers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4))
    experts = [tiny.expert_of(net, n) for n in (1, 2)]
    found = merge(net, experts, combine="sum", device="cpu")
    as_chain = merge(net.state_dict(), [e.state_dict() for e in experts], **CHAIN)
    assert all(torch.equal(found.state_dict()[n], t) for n, t in as_chain.items())


def test_one_round_is_one_shot():
    base, experts = tiny.states(4)
    found = merge(base, experts, keep=0.25, rounds=1, dtype=torch.float64, **CHAIN)
    scores = saliency(
        [{n: e[n].double() - base[n].double() for n in base} for e in experts], base, connectivity="chain",
        dtype=torch.float64,
    )  # fmt: skip
    for name, tensor in base.items():
        total = torch.zeros(tensor.shape, dtype=torch.float64)
        for expert, score in zip(experts, scores, strict=True):
            best = score[name].flatten().argsort(descending=True, stable=True)[: round(0.25 * tensor.numel())]
            mask = torch.zeros(tensor.numel(), dtype=torch.bool)
            mask[best] = True
            total += (expert[name].double() - tensor.double()) * mask.reshape(tensor.shape)
        torch.testing.assert_close(found[name].double(), tensor.double() + total, rtol=1e-6, atol=1e-6)


def test_what_the_report_says_after_dropping():
    """Three updates of four entries, in a tensor that no signal reaches: the scores are |sum of the updates|."""
    base = {"t": torch.zeros(4)}
    updates = [[5.0, -1.0, 3.0, 0.5], [4.0, 3.0, 1.0, -0.5], [3.0, 3.0, -8.0, 0.1]]  # sums 12, 5, -4, 0.1
    experts = [{"t": torch.tensor(update)} for update in updates]
    options = {"mode": "abs", "connectivity": "none", "combine": "sum", "device": "cpu"}
    found, report = merge(base, experts, keep=0.5, rounds=1, report=True, **options)
    assert found["t"].tolist() == [12, 5, 0, 0]
    (tensor,) = report.tensors
    assert tensor.kept == [0.5] * 3
    assert (tensor.conflicts_before, tensor.conflicts_after) == (0.75, 0.25)
    assert tensor.norm_before == pytest.approx([35.25**0.5, 26.25**0.5, 82.01**0.5])
    assert tensor.norm_after == pytest.approx([26**0.5, 5.0, 18**0.5])
    assert tensor.overlap == [[2] * 3] * 3
    assert report.overlap == [[1.0] * 3] * 3
    own, report = merge(base, experts, keep=0.25, rounds=1, report=True, **(options | {"mode": "agree"}))
    # The sums' signs times each one's own: the best of the third is entry 0 too, with 12; without weight on it, not.
    assert own["t"].tolist() == [12, 0, 0, 0]
    _, report = merge(
        base, experts, keep=0.25, rounds=1, weights=[1.0, 0.0, 0.0], report=True, **(options | {"mode": "agree"})
    )
    assert report.overlap == [[1.0] * 3] * 3
    _, report = merge(
        base, experts, keep=0.5, rounds=1, weights=[1.0, 0.0, 0.0], report=True, **(options | {"mode": "agree"})
    )
    # Sums 5, -1, 3, 0.5. The first keeps 0 and 2, the second too, the third 0 and 3: -1 and -3 are against it.
    assert report.overlap == [[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]]


def test_embeddings_and_heads_count_by_the_summed_update_alone():
    base = tiny.build("llama")
    experts = [tiny.expert_of(base, n) for n in (1, 2)]
    start, states = base.state_dict(), [e.state_dict() for e in experts]
    vectors = [{n: state[n] - start[n] for n in start} for state in states]
    scores = saliency(vectors, base)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        consensus = vectors[0][name] + vectors[1][name]
        for state, score in zip(states, scores, strict=True):
            torch.testing.assert_close(score[name], consensus * state[name].sign())
    name = "model.layers.0.mlp.up_proj.weight"
    with_signal = vectors[0][name] + vectors[1][name]
    assert not torch.allclose(scores[0][name], with_signal * states[0][name].sign())


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_numbers_that_are_none_on_disk(tmp_path, value):
    base, expert = folders(tmp_path)
    state = load_file(expert / "model.safetensors")
    state["model.norm.weight"][3] = value
    save_file(state, expert / "model.safetensors", {"format": "pt"})
    refused(tmp_path, base, expert, r"model\.norm\.weight of .*expert holds NaN or infinity")
    refused(tmp_path, expert, base, r"model\.norm\.weight of .*expert holds NaN or infinity")


def test_missing_and_extra_tensors_on_disk(tmp_path):
    base, expert = folders(tmp_path)
    state = load_file(expert / "model.safetensors")
    state["extra"] = state.pop("model.norm.weight")
    save_file(state, expert / "model.safetensors", {"format": "pt"})
    refused(tmp_path, base, expert, r"expert lacks model\.norm\.weight; it has, .* not, extra", KeyError)


def test_boolean_buffers_that_differ():
    base, experts = tiny.states(experts=1)
    base["mask"], experts[0]["mask"] = torch.tensor([True, False]), torch.tensor([True, True])
    with pytest.warns(UserWarning, match=r"mask \(torch.bool\) differs in expert 1"):
        found = merge(base, experts, **CHAIN)
    assert found["mask"].tolist() == [True, False]


def test_the_sign_of_a_gain_is_that_of_what_it_multiplies_by():
    base = tiny.build("gemma2")  # stores its gains less one
    experts = [tiny.expert_of(base, n, size=1.0) for n in (1, 2)]
    start, states = (dict(base.named_parameters()), [dict(e.named_parameters()) for e in experts])
    vectors = [{n: (state[n] - start[n]).detach() for n in start} for state in states]
    name = "model.layers.0.input_layernorm.weight"
    consensus = vectors[0][name] + vectors[1][name]
    for state, scores in zip(states, saliency(vectors, base), strict=True):
        assert bool((state[name].sign() != (1 + state[name]).sign()).any())
        assert torch.equal(scores[name].sign(), (1 + state[name]).sign() * consensus.sign())
