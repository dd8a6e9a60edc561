import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from assay.errors import InputError
from assay.learning.cure import (
    CosineHead,
    js_consistency,
    logit_adjusted_distillation,
    losses,
    mean_entropy,
    semantic_exploration_energy,
)

numbers = st.floats(-4, 4, width=32)


def see(prototypes, t=0.2):
    """The formula, pair by pair."""
    rows = torch.nn.functional.normalize(torch.as_tensor(prototypes, dtype=torch.float64), dim=1).tolist()
    k = len(rows)
    total = 0.0
    for i in range(k):
        dots = [sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) for j in range(k) if j != i]
        total += math.log(sum(math.exp(dot / t) for dot in dots) / (k - 1))
    return -t / k * total


def test_energy_of_known_prototypes():
    assert float(semantic_exploration_energy(torch.eye(3, dtype=torch.float64))) == pytest.approx(0, abs=1e-12)
    some = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    assert float(semantic_exploration_energy(some, 0.2)) == pytest.approx(-0.6185174, abs=5e-8)
    assert float(semantic_exploration_energy(torch.ones(1, 4))) == 0
    assert float(semantic_exploration_energy(torch.ones(5, 4))) == pytest.approx(-1, abs=1e-6)
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert float(semantic_exploration_energy(opposite)) == pytest.approx(1, abs=1e-6)


@given(arrays("float64", (5, 3), elements=st.floats(0.1, 3)), st.floats(0.05, 2), st.permutations(range(5)))
def test_energy_is_the_formula_and_knows_neither_scale_nor_order(rows, t, order):
    energy = float(semantic_exploration_energy(torch.from_numpy(rows), t))
    assert energy == pytest.approx(see(rows, t), abs=1e-9)
    assert -1 - 1e-9 <= energy <= 1 + 1e-9
    assert float(semantic_exploration_energy(7 * torch.from_numpy(rows), t)) == pytest.approx(energy, abs=1e-9)
    assert float(semantic_exploration_energy(torch.from_numpy(rows[order]), t)) == pytest.approx(energy, abs=1e-9)


def test_energy_of_very_many_prototypes_is_that_of_a_sample(monkeypatch):
    rows = torch.randn(400, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = float(semantic_exploration_energy(rows))
    monkeypatch.setattr(losses, "MOST_PROTOTYPES", 300)
    monkeypatch.setattr(losses, "NEIGHBOURS", 200)
    draws = [
        float(semantic_exploration_energy(rows, generator=torch.Generator().manual_seed(seed))) for seed in range(20)
    ]
    assert sum(draws) / 20 == pytest.approx(whole, abs=0.01)
    assert len(set(draws)) == 20
    monkeypatch.setattr(losses, "NEIGHBOURS", 400)  # a sample of all of them is all of them, each without itself
    assert float(semantic_exploration_energy(rows)) == pytest.approx(whole, abs=1e-12)


@given(arrays("float32", (3, 4), elements=numbers), arrays("float32", (3, 4), elements=numbers))
def test_views_that_agree_have_no_divergence(a, b):
    a, b = torch.from_numpy(a), torch.from_numpy(b)
    assert float(js_consistency(a, a)) == pytest.approx(0, abs=1e-6)
    js = float(js_consistency(a, b))
    assert js == pytest.approx(float(js_consistency(b, a)), abs=1e-6)
    assert -1e-6 <= js <= math.log(2) + 1e-6
    p, q = a.softmax(1).double(), b.softmax(1).double()
    entropies = [torch.special.entr(m).sum(1).mean() for m in ((p + q) / 2, p, q)]
    assert js == pytest.approx(float(entropies[0] - (entropies[1] + entropies[2]) / 2), abs=1e-5)


def test_opposite_views_are_log_two_apart():
    one, other = torch.tensor([[200.0, 0.0, 0.0]]), torch.tensor([[0.0, 200.0, 0.0]])
    assert float(js_consistency(one, other)) == pytest.approx(math.log(2), abs=1e-6)


def test_entropy_of_the_mean():
    assert float(mean_entropy(torch.eye(8))) == pytest.approx(math.log(8), abs=1e-6)
    assert float(mean_entropy(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))) == 0  # 0 · log 0 is 0


def test_distillation_is_a_cross_entropy_with_the_prior_taken_out():
    student, teacher = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_prior = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log()
    q = ((teacher - 0.5 * log_prior) / 0.4).softmax(dim=1)
    want = -(q * (student / 2).log_softmax(dim=1)).sum(dim=1).mean()
    got = logit_adjusted_distillation(student, teacher, log_prior, t_student=2.0, t_teacher=0.4, strength=0.5)
    assert float(got) == pytest.approx(float(want), abs=1e-12)
    plain = logit_adjusted_distillation(student, teacher, log_prior, strength=0.0)
    even = logit_adjusted_distillation(student, teacher, torch.full((3,), -math.log(3), dtype=torch.float64))
    assert float(plain) == pytest.approx(float(even), abs=1e-12)  # an even prior takes nothing out


def test_no_gradient_reaches_the_teacher():
    student, teacher = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    logit_adjusted_distillation(student, teacher, torch.zeros(3)).backward()
    assert teacher.grad is None
    assert float(student.grad.abs().sum()) > 0


def test_gradients_are_right():
    generator = torch.Generator().manual_seed(1)

    def wide(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(semantic_exploration_energy, (wide(4, 3),))
    assert torch.autograd.gradcheck(js_consistency, (wide(4, 3), wide(4, 3)))
    assert torch.autograd.gradcheck(lambda x: mean_entropy(x.softmax(1)), (wide(4, 3),))
    teacher, prior = wide(4, 3).detach(), torch.zeros(3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: logit_adjusted_distillation(x, teacher, prior), (wide(4, 3),))
    head = CosineHead(3, 4).double()
    assert torch.autograd.gradcheck(head, (wide(5, 3),))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: semantic_exploration_energy(torch.ones(3)), "prototypes must be"),
        (lambda: semantic_exploration_energy(torch.ones(3, 2, dtype=torch.int64)), "prototypes must be"),
        (lambda: semantic_exploration_energy(torch.ones(3, 2), 0.0), "temperature must be positive"),
        (lambda: semantic_exploration_energy(torch.ones(3, 2), math.inf), "temperature must be positive"),
        (lambda: js_consistency(torch.ones(3, 2).long(), torch.ones(3, 2).long()), "logits_a and logits_b"),
        (
            lambda: logit_adjusted_distillation(torch.ones(3, 2), torch.ones(3, 2), torch.tensor([1.0, 0.0]).log()),
            "log_prior must be finite",
        ),
        (lambda: CosineHead(3, 3, scale=math.inf), "scale must be positive"),
        (lambda: js_consistency(torch.ones(3, 2), torch.ones(2, 3)), "logits_a and logits_b"),
        (lambda: mean_entropy(torch.ones(3)), "probs must be"),
        (lambda: mean_entropy(torch.ones(0, 3)), "probs must be"),
        (
            lambda: logit_adjusted_distillation(torch.ones(3, 2), torch.ones(3, 3), torch.zeros(2)),
            "student_logits and teacher_logits",
        ),
        (
            lambda: logit_adjusted_distillation(torch.ones(3, 2), torch.ones(3, 2), torch.zeros(3)),
            "log_prior must have shape",
        ),
        (
            lambda: logit_adjusted_distillation(torch.ones(3, 2), torch.ones(3, 2), torch.zeros(2), t_teacher=0.0),
            "t_student and t_teacher",
        ),
        (lambda: CosineHead(0, 3), "dim and n_classes"),
        (lambda: CosineHead(3, 3, scale=-1), "scale must be positive"),
        (lambda: CosineHead(3, 3)(torch.ones(2, 4)), "z must have shape"),
        (lambda: CosineHead(3, 3).extend(torch.ones(2, 4)), "new_prototypes must have shape"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_head_gives_scaled_cosines_and_can_grow():
    head = CosineHead(3, 2, scale=4.0)
    z = torch.tensor([[2.0, 0.0, 0.0]])
    head.prototypes.data = torch.tensor([[5.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    assert head(z).tolist() == [[4.0, 0.0]]
    head.extend(torch.tensor([[-3.0, 0.0, 0.0]]))
    assert head(z).tolist() == [[4.0, 0.0, -4.0]]
    assert head.prototypes.requires_grad
