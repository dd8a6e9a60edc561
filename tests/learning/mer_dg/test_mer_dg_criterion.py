"""The loss over modalities: forms of input, masks, dimensions between, projection heads."""

import math

import numpy as np
import pytest
import torch

from assay.learning.mer_dg import MERLoss, mer_loss


def features(n, *shape, seed=0, dtype=torch.float64):
    return torch.randn((n, *shape), generator=torch.Generator().manual_seed(seed), dtype=dtype)


A, B = features(20, 4), features(20, 7, seed=1)


def test_tensors_sequences_and_mappings():
    loss = MERLoss(lam=0.3)
    a, b = float(mer_loss(A)), float(mer_loss(B))
    assert float(loss(A)) == pytest.approx(0.3 * a)
    assert float(loss([A, B])) == pytest.approx(0.3 * (a + b))
    assert float(loss({"video": A, "audio": B})) == pytest.approx(0.3 * (a + b))
    assert float(MERLoss(lam=0.3, reduction="mean")((A, B))) == pytest.approx(0.15 * (a + b))
    terms = loss.terms({"video": A, "audio": B})
    assert list(terms) == ["video", "audio"]
    assert [float(t) for t in terms.values()] == pytest.approx([a, b])


def test_modalities_of_one_shape_are_not_mixed_up():
    other = 0.1 * features(20, 4, seed=5)
    terms = MERLoss().terms({"a": A, "wide": B, "c": other})
    assert [float(t) for t in terms.values()] == pytest.approx([float(mer_loss(z)) for z in (A, B, other)])


def test_dtypes_may_differ():
    assert float(MERLoss(lam=1.0)([A.float(), B])) == pytest.approx(float(mer_loss(A)) + float(mer_loss(B)), rel=1e-5)


def test_absent_rows_are_left_out():
    here = torch.arange(20) % 3 != 0
    loss = MERLoss(lam=1.0)
    expected = float(mer_loss(A[here])) + float(mer_loss(B))
    spoiled = A.clone()
    spoiled[~here] = math.nan  # whatever stands there
    assert float(loss({"a": spoiled, "b": B}, present={"a": here})) == pytest.approx(expected)
    assert float(loss({"a": A, "b": B}, present={"a": here, "b": None})) == pytest.approx(expected)
    assert float(loss([A, B], present=[here, None])) == pytest.approx(expected)
    assert float(loss(A, present=here.numpy())) == pytest.approx(float(mer_loss(A[here])))
    nobody = torch.zeros(20, dtype=torch.bool)
    assert float(loss({"a": A, "b": B}, present={"a": nobody})) == pytest.approx(float(mer_loss(B)))


def test_gradient_reaches_only_rows_that_are_present():
    z = A.clone().requires_grad_()
    here = torch.arange(20) < 12
    MERLoss(lam=1.0)(z, present=here).backward()
    assert torch.equal(z.grad[~here], torch.zeros((8, 4), dtype=torch.float64))
    assert (z.grad[here] != 0).all()


def test_dimensions_between_are_averaged_or_flattened():
    z = features(20, 5, 4)
    assert float(MERLoss(lam=1.0)(z)) == pytest.approx(float(mer_loss(z.mean(dim=1))))
    assert float(MERLoss(lam=1.0, flatten=True)(z)) == pytest.approx(float(mer_loss(z.reshape(100, 4))))
    here = torch.arange(20) < 9
    assert float(MERLoss(lam=1.0, flatten=True)(z, present=here)) == pytest.approx(float(mer_loss(z[:9].flatten(0, 1))))
    deep = features(6, 2, 3, 4)
    assert float(MERLoss(lam=1.0)(deep)) == pytest.approx(float(mer_loss(deep.mean(dim=(1, 2)))))


def test_lam_zero_computes_nothing():
    loss = MERLoss(lam=0.0)
    value = loss({"a": torch.full((3, 2), math.nan, requires_grad=True)})
    assert float(value) == 0
    assert not value.requires_grad


def test_numpys_numbers_are_numbers():
    loss = MERLoss(np.float32(0.5), project=(np.int64(8), np.int32(5)), dims={"a": np.int64(4)})
    assert float(MERLoss(np.float32(0.5))(A)) == pytest.approx(0.5 * float(mer_loss(A)))
    assert loss.heads[0][2].out_features == 5


def test_lam_can_be_changed_between_steps():
    loss = MERLoss(lam=0.0)
    loss.lam = 0.2
    assert float(loss(A)) == pytest.approx(0.2 * float(mer_loss(A)))


def test_projection_heads_are_learnt_along():
    torch.manual_seed(0)
    loss = MERLoss(lam=1.0, project=(8, 5), dims={"a": 4, "items": 7}).double()
    assert sum(p.numel() for p in loss.parameters()) == (4 * 8 + 8 + 8 * 5 + 5) + (7 * 8 + 8 + 8 * 5 + 5)
    value = loss({"a": A, "items": B})
    expected = sum(float(mer_loss(head(z)).detach()) for head, z in zip(loss.heads, (A, B), strict=True))
    assert float(value.detach()) == pytest.approx(expected)
    value.backward()
    assert all(p.grad is not None for p in loss.parameters())


@pytest.mark.parametrize(
    ("features_", "present", "message"),
    [
        ({"a": A, "b": B[:10]}, None, "same number of rows.*'b': 10"),
        ({"video": torch.full((4, 2), math.nan)}, None, "'video' holds NaN"),
        (
            {"video": 1e30 * torch.eye(4), "audio": torch.ones((4, 4))},
            None,
            "'video' holds numbers up to.*too large",
        ),
        ({"a": torch.ones(5)}, None, r"'a' must have shape \(N, D\)"),
        ({"a": torch.ones((5, 2), dtype=torch.int32)}, None, "'a' must hold floating"),
        ({"a": [[1.0]]}, None, "'a' must be a torch tensor"),
        ({}, None, "empty"),
        ("ab", None, "tensor, a sequence or a mapping"),
        ([A], torch.ones((1, 20), dtype=torch.bool), "present must be a sequence"),
        ({"a": A}, {"a": "yes"}, r"present\['a'\] must be truth values, got str"),
        ({"a": A}, {"b": torch.ones(20, dtype=torch.bool)}, "present names 'b'"),
        ({"a": A}, {"a": torch.ones(19, dtype=torch.bool)}, r"present\['a'\] must be 20 truth values"),
        ({"a": A}, {"a": torch.ones(20)}, r"present\['a'\] must be 20 truth values"),
        ({"a": A}, torch.ones(20, dtype=torch.bool), "present must be a mapping"),
        ({"a": torch.ones((4, 0, 2))}, None, "nothing to average"),
    ],
)
def test_bad_input_names_the_modality(features_, present, message):
    with pytest.raises(ValueError, match=message):
        MERLoss(lam=1.0)(features_, present)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lam": -0.1}, "lam"),
        ({"lam": math.nan}, "lam"),
        ({"lam": "auto"}, "lam"),
        ({"reduction": "max"}, "reduction"),
        ({"project": (4, 2)}, "dims"),
        ({"dims": {"a": 4}}, "project"),
        ({"project": 8, "dims": {"a": 4}}, "project"),
        ({"project": (4, 0), "dims": {"a": 4}}, "positive whole numbers"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        MERLoss(**parameters)


def test_a_modality_without_a_head_is_refused():
    with pytest.raises(ValueError, match="dims names no modality 'b'"):
        MERLoss(lam=1.0, project=(4, 2), dims={"a": 4})({"b": A.float()})


def test_shapes_are_as_annotated():
    """Against the annotations, by beartype."""
    from beartype import beartype
    from jaxtyping import jaxtyped

    from assay.learning.mer_dg import closed_form, losses

    jaxtyped(typechecker=beartype)(losses.mer_loss)(A)
    values = jaxtyped(typechecker=beartype)(closed_form.entropy_losses)(torch.stack([A, A]), 1.0, 1e-4, 1.0, 1.0)
    assert values.shape == (2,)
