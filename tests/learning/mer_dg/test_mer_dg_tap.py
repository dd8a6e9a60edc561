"""The tap in training loops of one's own: plain, compiled, in parallel, with checkpoints, and never left behind."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from assay.learning.mer_dg import FeatureTap, MERLoss, mer_loss


class TwoTowers(nn.Module):
    """A model as a user has one: nothing in it knows of a tap."""

    def __init__(self, seed=0, checkpointed=None):
        super().__init__()
        torch.manual_seed(seed)
        self.video_encoder = nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 6))
        self.audio_encoder = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 6))
        self.head = nn.Linear(12, 3)
        self.checkpointed = checkpointed

    def forward(self, video, audio):
        if self.checkpointed is None:
            v = self.video_encoder(video)
        else:
            v = checkpoint(self.video_encoder, video, use_reentrant=self.checkpointed)
        return self.head(torch.cat([v, self.audio_encoder(audio)], dim=1))


MODULES = {"video": "video_encoder", "audio": "audio_encoder"}


def batches(n=6, size=24):
    generator = torch.Generator().manual_seed(7)
    for _ in range(n):
        yield (
            torch.randn((size, 10), generator=generator),
            torch.randn((size, 5), generator=generator),
            torch.randint(0, 3, (size,), generator=generator),
        )


def trained(model, tap=None):
    """An ordinary training loop; the tap is one term of its loss."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for video, audio, y in batches():
        loss = nn.functional.cross_entropy(model(video, audio), y)
        if tap is not None:
            loss = loss + tap.loss()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return [p.detach().clone() for p in model.parameters()]


def by_hand(lam):
    """The same training with the loss written into the loop."""
    model = TwoTowers()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for video, audio, y in batches():
        v, a = model.video_encoder(video), model.audio_encoder(audio)
        loss = nn.functional.cross_entropy(model.head(torch.cat([v, a], dim=1)), y)
        loss = loss + lam * (mer_loss(v) + mer_loss(a))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return [p.detach().clone() for p in model.parameters()]


def same(one, other, exactly=False):
    return all(
        torch.equal(a, b) if exactly else torch.allclose(a, b, rtol=1e-4, atol=1e-6)
        for a, b in zip(one, other, strict=True)
    )


def test_a_loop_with_a_tap_trains_as_one_with_the_loss_in_it():
    model = TwoTowers()
    with FeatureTap(model, MODULES, loss=MERLoss(lam=0.3)) as tap:
        got = trained(model, tap)
    assert same(got, by_hand(0.3))
    assert not same(got, trained(TwoTowers()))


def test_lam_zero_trains_bit_for_bit_as_without():
    model = TwoTowers()
    assert same(trained(model, FeatureTap(model, MODULES, loss=MERLoss(lam=0.0))), trained(TwoTowers()), exactly=True)


def test_hooks_go_away_and_leave_the_model_as_it_was():
    model = TwoTowers()
    tap = FeatureTap(model, MODULES)
    video, audio, _ = next(batches())
    model(video, audio)
    assert set(tap.features) == {"video", "audio"}
    tap.close()
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert tap.features == {}
    with pytest.raises(RuntimeError, match="closed"):
        tap.loss()
    tap.close()  # again is fine


def test_modules_themselves_and_names_of_wrapped_models():
    model = TwoTowers()
    video, audio, _ = next(batches())
    tap = FeatureTap(model, {"v": model.video_encoder})
    parallel = nn.DataParallel(model)
    wrapped = FeatureTap(parallel, {"v": "video_encoder"})
    full = FeatureTap(parallel, {"v": "module.video_encoder"})
    inner = FeatureTap(model, {"v": "module.video_encoder"})
    parallel(video, audio)
    for one in (tap, wrapped, full, inner):
        assert torch.equal(one.features["v"], model.video_encoder(video))
    whole = FeatureTap(model, {"all": ""})
    logits = model(video, audio)
    assert torch.equal(whole.features["all"], logits)


def test_replicas_each_give_their_share():
    """What DataParallel does on several GPUs: the replicas share the hook, and each has its rows on its device."""
    model = TwoTowers()
    tap = FeatureTap(nn.DataParallel(model), {"v": "video_encoder"})
    first, second = torch.randn(3, 6), torch.randn(2, 6)
    tap._taken["v"][torch.device("cuda", 10)] = (second, 0)
    tap._taken["v"][torch.device("cuda", 2)] = (first, 0)
    assert torch.equal(tap.features["v"], torch.cat([first, second]))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_model(fullgraph):
    torch._dynamo.reset()
    model = TwoTowers()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=fullgraph)
    tap = FeatureTap(compiled, MODULES, loss=MERLoss(lam=0.3))
    assert same(trained(compiled, tap), by_hand(0.3))


def test_a_compiled_training_step():
    torch._dynamo.reset()
    loss = MERLoss(lam=0.3)
    z = torch.randn((16, 4), generator=torch.Generator().manual_seed(0)).requires_grad_()
    compiled = torch.compile(lambda x: loss({"a": x}), backend="aot_eager")
    value = compiled(z)
    assert float(value.detach()) == pytest.approx(float(loss(z).detach()), rel=1e-4)
    (got,) = torch.autograd.grad(value, z)
    (expected,) = torch.autograd.grad(loss(z), z)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-6)


def test_checkpointed_encoders():
    model = TwoTowers(checkpointed=False)
    assert same(trained(model, FeatureTap(model, MODULES, MERLoss(lam=0.3))), by_hand(0.3))
    old = TwoTowers(checkpointed=True)
    tap = FeatureTap(old, MODULES)
    video, audio, _ = next(batches())
    old(video, audio)
    with pytest.raises(RuntimeError, match=r"'video' carry no gradient.*use_reentrant"):
        tap.loss()


def test_without_gradients_where_none_are_wanted():
    model = TwoTowers()
    tap = FeatureTap(model, MODULES)
    video, audio, _ = next(batches())
    with torch.no_grad():
        model(video, audio)
        assert not tap.loss().requires_grad
    model.video_encoder.requires_grad_(False)  # frozen on purpose
    model(video, audio)
    assert tap.loss().requires_grad
    model.eval()
    with torch.no_grad():
        model(video, audio)
    assert not tap.loss().requires_grad  # a validation loss


def test_of_several_forwards_the_last_counts():
    model = TwoTowers()
    tap = FeatureTap(model, MODULES, loss=MERLoss(lam=1.0))
    pair = list(batches(2))
    for video, audio, _ in pair:
        model(video, audio)
    video, audio, _ = pair[1]
    expected = mer_loss(model.video_encoder(video)) + mer_loss(model.audio_encoder(audio))
    model(video, audio)
    assert float(tap.loss().detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert float(tap.loss().detach()) == pytest.approx(float(expected.detach()), rel=1e-5)  # asked again


def test_encoders_called_without_the_whole_model():
    model = TwoTowers()
    tap = FeatureTap(model, MODULES, loss=MERLoss(lam=1.0))
    for video, audio, _ in batches(2):
        v, a = model.video_encoder(video), model.audio_encoder(audio)
        expected = float((mer_loss(v) + mer_loss(a)).detach())
        assert float(tap.loss().detach()) == pytest.approx(expected, rel=1e-5)


def test_a_modality_that_did_not_run_is_left_out_with_a_warning():
    model = TwoTowers()
    tap = FeatureTap(model, MODULES, loss=MERLoss(lam=1.0))
    video, audio, _ = next(batches())
    model(video, audio)
    tap.loss()
    v = model.video_encoder(video)
    with pytest.warns(UserWarning, match="'audio' did not run"):
        loss = tap.loss()
    assert float(loss.detach()) == pytest.approx(float(mer_loss(v).detach()), rel=1e-5)


class Odd(nn.Module):
    def forward(self, x):
        return {"hidden": x, "pair": (x + 1, x + 2)}


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.odd = Odd()

    def forward(self, x):
        return self.odd(x)["hidden"]


def test_features_inside_other_outputs():
    x = torch.randn(4, 3)
    model = Outer()
    for select, expected in (
        ("hidden", x),
        (lambda out: out["pair"][1], x + 2),
        ({"a": lambda out: out["pair"][0]}, x + 1),
    ):
        with FeatureTap(model, {"a": "odd"}, select=select) as tap:
            model(x)
            assert torch.equal(tap.features["a"], expected)
    pair = nn.Sequential(nn.LSTM(3, 5, batch_first=True))
    with FeatureTap(pair, {"a": "0"}, select=0) as tap:
        pair(torch.randn(4, 7, 3))
        assert tap.features["a"].shape == (4, 7, 5)
        assert float(tap.loss().detach()) > 0
    for select in (None, "nothing", 3):
        with (
            FeatureTap(model, {"a": "odd"}, select=select),
            pytest.raises(TypeError, match=r"'a' gives no tensor.*select="),
        ):
            model(x)
    with pytest.raises(ValueError, match="select names 'b'"):
        FeatureTap(model, {"a": "odd"}, select={"b": 0})


def test_copies_and_files_of_the_model_do_not_carry_the_tap():
    model = TwoTowers()
    tap = FeatureTap(model, MODULES)
    video, audio, _ = next(batches())
    model(video, audio)
    taken = tap.features["video"]
    average = copy.deepcopy(model)
    average(2 * video, audio)
    assert tap.features["video"] is taken
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    torch.load(file, weights_only=False)(2 * video, audio)
    assert tap.features["video"] is taken
    assert torch.equal(average(video, audio), model(video, audio))


def test_features_changed_in_place_are_refused():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2))
    tap = FeatureTap(model, {"a": "0"})
    model(torch.randn(8, 4))
    with pytest.raises(RuntimeError, match="'a' were changed in place"):
        tap.loss()
    with FeatureTap(model, {"a": "1"}) as after:
        model(torch.randn(8, 4))
        assert float(after.loss().detach()) != 0


def test_present_goes_to_the_loss():
    model = TwoTowers()
    tap = FeatureTap(model, MODULES, loss=MERLoss(lam=1.0))
    video, audio, _ = next(batches())
    model(video, audio)
    here = torch.arange(24) < 10
    expected = mer_loss(tap.features["video"][here]) + mer_loss(tap.features["audio"])
    assert float(tap.loss(present={"video": here}).detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_bad_use_is_refused():
    model = TwoTowers()
    with pytest.raises(KeyError, match=r"no module 'video_encodr'.*video_encoder"):
        FeatureTap(model, {"video": "video_encodr"})
    with pytest.raises(KeyError, match="not in the model"):
        FeatureTap(model, {"video": nn.Linear(2, 2)})
    with pytest.raises(ValueError, match="modules"):
        FeatureTap(model, {})
    with pytest.raises(TypeError, match="model must be"):
        FeatureTap("model", MODULES)
    with pytest.raises(TypeError, match="loss must be"):
        FeatureTap(model, MODULES, loss=0.1)
    with pytest.raises(TypeError, match="the module of 'video' must be"):
        FeatureTap(model, {"video": 3})
    # A refused tap leaves no hook.
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    tap = FeatureTap(model, MODULES)
    with pytest.raises(RuntimeError, match="run the model forward before"):
        tap.loss()
    model.video_encoder[0].weight.data.fill_(float("nan"))
    video, audio, _ = next(batches())
    model(video, audio)
    with pytest.raises(ValueError, match="'video' holds NaN"):
        tap.loss()


@pytest.mark.filterwarnings("ignore")
def test_in_the_loops_of_transformers(tmp_path):
    """The Trainer owns the loop: its compute_loss is the place."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.towers = TwoTowers()

        def forward(self, video, audio, labels=None):
            logits = self.towers(video, audio)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    class WithTap(transformers.Trainer):
        def __init__(self, *arguments, lam, **options):
            super().__init__(*arguments, **options)
            self.tap = FeatureTap(self.model, {"video": "towers.video_encoder"}, loss=MERLoss(lam=lam))

        def compute_loss(self, model, inputs, return_outputs=False, **rest):
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **rest)
            loss = loss + self.tap.loss()
            return (loss, outputs) if return_outputs else loss

    rows = [
        {"video": v, "audio": a, "labels": y}
        for video, audio, ys in batches(2)
        for v, a, y in zip(video, audio, ys, strict=True)
    ]
    found = {}
    for lam in (0.0, 1.0):
        options = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=16, report_to=[], use_cpu=True,
            disable_tqdm=True, save_strategy="no", logging_strategy="no",
        )  # fmt: skip
        model = Model()
        WithTap(model=model, args=options, train_dataset=rows, lam=lam).train()
        found[lam] = model.towers.video_encoder[0].weight.detach().clone()
    assert not torch.allclose(found[0.0], found[1.0])
