import copy

import numpy as np
import pytest
import torch
from beartype import beartype
from jaxtyping import jaxtyped
from torch import nn

from assay.errors import InputError
from assay.learning.cure import CURE, js_consistency, logit_adjusted_distillation, network
from assay.learning.cure.network import teacher_temperature


def net(n_known=3, **weights):
    torch.manual_seed(0)
    return CURE(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4)), 4, n_known, **weights)


def rows(n, seed=0):
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))


def begun(n_classes=5, **weights):
    made = net(**weights)
    Z = made.features(rows(40)).detach()
    made.begin_stage2(Z, n_classes, 0, np.r_[np.arange(3), np.full(37, -1)])
    return made


def test_stage_1_is_the_sum_of_its_terms():
    made = net(see1=0.3, supcon=0.7)
    terms = made.stage1_loss(rows(6), rows(6, 1), torch.tensor([0, 1, 2, 0, 1, 2]))
    assert set(terms) == {"loss", "ce", "supcon", "see"}
    total = terms["ce"] + 0.7 * terms["supcon"] + 0.3 * terms["see"]
    torch.testing.assert_close(terms["loss"], total)
    logits = made(torch.cat([rows(6), rows(6, 1)]))
    ce = nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0, 1, 2] * 2))
    torch.testing.assert_close(terms["ce"], ce)


def test_stage_2_is_the_sum_of_its_terms():
    made = begun(see2=0.3, sup_weight=0.2, entropy=1.5)
    y = torch.tensor([0, -1, 2, -1, -1, 1])
    terms = made.stage2_loss(rows(6), rows(6, 1), y, 0.5)
    assert set(terms) == {"loss", "ce", "js", "distill", "mean_entropy", "see"}
    without = terms["js"] + terms["distill"] - 1.5 * terms["mean_entropy"]
    torch.testing.assert_close(terms["loss"], 0.2 * terms["ce"] + 0.8 * without + 0.3 * terms["see"])
    labelled = y >= 0
    logits = torch.cat([made(rows(6))[labelled], made(rows(6, 1))[labelled]])
    torch.testing.assert_close(terms["ce"], nn.functional.cross_entropy(logits, torch.tensor([0, 2, 1] * 2)))


def test_with_nothing_else_it_is_consistency_training():
    made = begun(see1=0.0, see2=0.0, supcon=0.0, entropy=0.0, adjust=0.0, sup_weight=0.0).eval()
    a, b = made(rows(6)), made(rows(6, 1))
    even, t = torch.zeros(5), teacher_temperature(0.1)
    distil = [logit_adjusted_distillation(*pair, even, t_teacher=t) for pair in ((a, b), (b, a))]
    want = js_consistency(a, b) + sum(distil) / 2
    torch.testing.assert_close(made.stage2_loss(rows(6), rows(6, 1), torch.full((6,), -1), 0.1)["loss"], want)


def test_the_views_may_change_places():
    made = begun().eval()
    y = torch.tensor([0, -1, 2, -1, -1, 1])
    one, other = made.stage2_loss(rows(6), rows(6, 1), y, 0.2), made.stage2_loss(rows(6, 1), rows(6), y, 0.2)
    for name in one:
        torch.testing.assert_close(one[name], other[name])


def test_a_batch_without_labels_has_a_finite_loss_and_gradient():
    made = begun()
    terms = made.stage2_loss(rows(6), rows(6, 1), torch.full((6,), -1), 0.0)
    assert float(terms["ce"].detach()) == 0
    terms["loss"].backward()
    assert all(torch.isfinite(p.grad).all() for p in made.parameters())


def test_the_teacher_cools_down_and_stays():
    assert teacher_temperature(0.0) == pytest.approx(0.7)
    assert teacher_temperature(0.15) == pytest.approx(0.55)
    assert teacher_temperature(0.3) == teacher_temperature(1.0) == pytest.approx(0.4)


def test_the_prior_runs_with_the_predictions_in_training_only():
    made = begun()
    before = made.prior.clone()
    torch.testing.assert_close(before, torch.full((5,), 0.2))
    with torch.no_grad():
        p = made(torch.cat([rows(6), rows(6, 1)])).softmax(1).mean(0)
    made.eval().stage2_loss(rows(6), rows(6, 1), torch.full((6,), -1), 0.5)
    torch.testing.assert_close(made.prior, before)
    made.train().stage2_loss(rows(6), rows(6, 1), torch.full((6,), -1), 0.5)
    torch.testing.assert_close(made.prior, 0.9 * before + 0.1 * p)


def test_stage_2_keeps_known_prototypes_and_adds_new_ones_at_clusters():
    made = net()
    centres = torch.eye(4)
    noise = [torch.randn(20, 4, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    Z = torch.cat([centres[i] + 0.05 * noise[i] for i in range(4)])
    y = np.full(80, -1)
    y[[0, 20, 40]] = [0, 1, 2]
    made.place_known(Z, np.repeat([0, 1, 2, -1], 20))
    known = made.head.prototypes.detach().clone()
    clusters = made.begin_stage2(Z, 4, 0, y)
    assert clusters.tolist() == np.repeat([0, 1, 2, 3], 20).tolist()
    torch.testing.assert_close(made.head.prototypes[:3].detach(), known)
    torch.testing.assert_close(made.head.prototypes[3].detach(), centres[3], atol=0.05, rtol=0)
    torch.testing.assert_close(made.head.prototypes.norm(dim=1).detach(), torch.ones(4))
    assert made.n_classes == 4


def test_without_labels_clusters_are_matched_to_the_prototypes():
    made = net()
    centres = torch.eye(4)
    made.head.prototypes.data = 3 * centres[[2, 0, 3]]
    Z = (centres.repeat_interleave(10, dim=0) + 0.01 * torch.randn(40, 4)).numpy()
    assert made.begin_stage2(Z, 4, 0).tolist() == np.repeat([1, 3, 0, 2], 10).tolist()


def test_the_callers_encoder_keeps_its_flags_and_takes_part_in_any_loop():
    encoder = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    encoder[0].weight.requires_grad = False
    flags = [p.requires_grad for p in encoder.parameters()]
    frozen = encoder[0].weight.clone()
    made = CURE(encoder, 4, 2)
    assert made.encoder is encoder
    optimiser = torch.optim.SGD([p for p in made.parameters() if p.requires_grad], 0.05)
    y = torch.tensor([0, 1] * 10)
    first = None
    for _ in range(30):
        loss = made.stage1_loss(rows(20), rows(20), y)["loss"]
        first = float(loss.detach()) if first is None else first
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < first
    made.begin_stage2(made.features(rows(20)).detach(), 3, 0)
    optimiser = torch.optim.SGD([p for p in made.parameters() if p.requires_grad], 0.05)
    made.stage2_loss(rows(20), rows(20, 1), torch.where(y == 0, 0, -1), 0.5)["loss"].backward()
    optimiser.step()
    assert [p.requires_grad for p in encoder.parameters()] == flags
    torch.testing.assert_close(encoder[0].weight, frozen)


def test_any_whole_numbers_are_labels():
    made = begun().eval()
    y = torch.tensor([0, -1, 2, -1, -1, 1])
    want = made.stage2_loss(rows(6), rows(6, 1), y, 0.5)["loss"]
    for dtype in (torch.int8, torch.int32):
        torch.testing.assert_close(made.stage2_loss(rows(6), rows(6, 1), y.to(dtype), 0.5)["loss"], want)
        made.stage1_loss(rows(3), rows(3, 1), torch.tensor([0, 1, 2], dtype=dtype))["loss"].backward()
    gaps = np.r_[0.0, 1.0, 2.0, np.full(37, np.nan)]
    Z = made.features(rows(40)).detach()
    assert (net().begin_stage2(Z, 5, 0, gaps) == net().begin_stage2(Z.bfloat16().float(), 5, 0, gaps)).mean() > 0.9
    assert net().begin_stage2(Z.bfloat16(), 5, 0, torch.tensor(gaps)).shape == (40,)


def test_a_state_of_stage_2_loads_into_a_new_module():
    made = begun()
    made.stage2_loss(rows(6), rows(6, 1), torch.full((6,), -1), 0.5)
    fresh = net()
    fresh.load_state_dict(made.state_dict())
    assert fresh.n_classes == 5
    torch.testing.assert_close(fresh.prior, made.prior)
    torch.testing.assert_close(fresh.eval()(rows(6)), made.eval()(rows(6)))
    with pytest.raises(RuntimeError, match="size mismatch"):
        begun(7).load_state_dict(made.state_dict())


def test_half_precision_and_copies():
    made = begun()
    twin = copy.deepcopy(made)
    twin.load_state_dict(made.state_dict())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = made.stage2_loss(rows(6), rows(6, 1), torch.tensor([0, -1, 2, -1, -1, 1]), 0.5)["loss"]
    loss.backward()
    assert torch.isfinite(loss.detach())


def test_shapes_are_what_the_signatures_say():
    made = begun()
    loss = jaxtyped(typechecker=beartype)(CURE.stage2_terms)
    terms = loss(made, made(rows(6)), made(rows(6, 1)), torch.full((6,), -1), 0.5)
    assert terms["loss"].shape == ()
    for name in ("semantic_exploration_energy", "js_consistency", "mean_entropy"):
        checked = jaxtyped(typechecker=beartype)(getattr(network, name))
        assert checked(*[torch.rand(4, 3)] * (2 if name == "js_consistency" else 1)).shape == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: net(see1=-1), "see1 must be"),
        (lambda: net(sup_weight=2), "sup_weight must lie"),
        (lambda: net(n_known=0), "n_known must be"),
        (lambda: net(scale=0.0), "scale must be positive"),
        (lambda: CURE(nn.Linear(5, 3), 4, 2)(rows(2)), "encoder must give"),
        (lambda: net().stage1_loss(rows(2), rows(2), torch.tensor([0, -1])), "y of stage 1"),
        (lambda: net().stage1_loss(rows(2), rows(2), torch.tensor([0, 3])), "y of stage 1"),
        (lambda: begun().stage2_loss(rows(2), rows(2), torch.tensor([0, 3]), 0.0), "y of stage 2"),
        (lambda: begun().stage2_loss(rows(2), rows(3), torch.tensor([0, 1]), 0.0), "view_a, view_b and y"),
        (lambda: begun().stage2_loss(rows(2), rows(2), torch.tensor([0.0, 1.0]), 0.0), "y must be a tensor"),
        (lambda: net().stage1_loss(rows(2), rows(2), torch.tensor([0])), "view_a, view_b and y"),
        (lambda: net().stage1_loss(rows(2), rows(2), np.array([0, 1])), "y must be a tensor"),
        (lambda: net().begin_stage2(np.eye(4), 4, 0, [0, 1, -1, -1]), "none of 2"),
        (lambda: net().begin_stage2(np.eye(4), 4, 0, [0, 1, 2, 3]), "numbered 0 to 2"),
        (lambda: net().begin_stage2(np.eye(4), 4, 0, [0, 1, 2]), r"y must be \(4,\)"),
        (lambda: net().place_known(np.eye(4), [0, 1, 2, 7]), "numbered 0 to 2"),
        (lambda: net(see2="a"), "see2 must be"),
        (lambda: begun().stage2_loss(rows(2), rows(2), torch.tensor([0, -2]), 0.0), "y of stage 2"),
        (lambda: begun().stage2_loss(rows(2), rows(2), torch.tensor([0, 1]), 1.1), "epoch_fraction"),
        (lambda: net().begin_stage2(np.ones((5, 4)), 2), "n_classes must be from 3"),
        (lambda: net().begin_stage2(np.ones((5, 4)), 6), "n_classes must be from 3"),
        (lambda: net().begin_stage2(np.ones((5, 3)), 4), "Z must be a numeric matrix"),
        (lambda: net().begin_stage2(np.full((5, 4), np.nan), 4), "Z must be finite"),
        (lambda: begun().begin_stage2(np.ones((9, 4)), 6), "stage 2 has begun"),
        (lambda: net().place_known(np.ones((2, 4)), [0, 1]), "none of 2"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_an_encoder_must_be_a_module():
    with pytest.raises(TypeError, match="encoder must be"):
        CURE(lambda x: x, 4, 2)
