"""The fusion classifier and the encoders: shapes, absent modalities, odd names."""

import pytest
import torch
from torch import nn

from assay.learning.mer_dg import FusionClassifier
from assay.learning.mer_dg.encoders import build_encoders, feature_dims

SHAPES = {"acc": (6,), "gyr": (3, 40)}


def network(n_classes=4, **options):
    torch.manual_seed(0)
    encoders = build_encoders({"acc": "mlp", "gyr": "cnn1d"}, SHAPES, 8)
    return FusionClassifier(encoders, feature_dims(encoders, SHAPES), n_classes, **options).eval()


def rows(n=5):
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn((n, *shape), generator=generator) for name, shape in SHAPES.items()}


def test_logits_and_features():
    net, inputs = network(), rows()
    logits, features = net(inputs, return_features=True)
    assert logits.shape == (5, 4)
    assert {name: z.shape for name, z in features.items()} == {"acc": (5, 8), "gyr": (5, 8)}
    assert torch.equal(net(inputs), logits)
    assert torch.equal(net.head(torch.cat([features["acc"], features["gyr"]], dim=1)), logits)


def test_an_absent_modality_enters_as_zeros_and_is_not_encoded():
    net, inputs = network(), rows()
    here = torch.tensor([True, False, True, False, True])
    spoiled = {**inputs, "gyr": inputs["gyr"].clone()}
    spoiled["gyr"][~here] = float("nan")
    logits, features = net(spoiled, return_features=True, present={"gyr": here})
    assert torch.equal(features["gyr"][~here], torch.zeros((2, 8)))
    whole = net.features(inputs)["gyr"]
    torch.testing.assert_close(features["gyr"][here], whole[here])
    without = net({"acc": inputs["acc"]})
    torch.testing.assert_close(logits[~here], without[~here])
    none = net(spoiled, present={"gyr": torch.zeros(5, dtype=torch.bool)})
    torch.testing.assert_close(none, without)
    assert torch.isfinite(logits).all()


def test_names_that_torch_would_refuse():
    names = ["keys", "a.b", "type", "0"]
    net = FusionClassifier({name: nn.Linear(2, 3) for name in names}, dict.fromkeys(names, 3), 2)
    assert net({name: torch.ones((4, 2)) for name in names}).shape == (4, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_classes": 1}, "n_classes"),
        ({"hidden": 0}, "hidden"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": "x"}, "dropout"),
        ({"dims": {"a": 0}}, "dims"),
        ({"dims": {"b": 2}}, "same modalities"),
        ({"encoders": {}}, "same modalities"),
    ],
)
def test_bad_construction(options, message):
    usual = {"encoders": {"a": nn.Linear(2, 2)}, "dims": {"a": 2}, "n_classes": 2}
    with pytest.raises(ValueError, match=message):
        FusionClassifier(**usual | options)


def test_bad_input():
    net, inputs = network(), rows()
    with pytest.raises(ValueError, match="inputs must name some of acc, gyr"):
        net({"video": inputs["acc"]})
    with pytest.raises(ValueError, match="inputs must name some"):
        net({})
    with pytest.raises(ValueError, match="same number of rows"):
        net({"acc": inputs["acc"], "gyr": inputs["gyr"][:2]})
    wrong = FusionClassifier({"acc": nn.Linear(6, 3)}, {"acc": 2}, 4)
    with pytest.raises(ValueError, match=r"'acc' must give \(rows, 2\) by dims, it gave \(5, 3\)"):
        wrong({"acc": inputs["acc"]})
    normed = FusionClassifier({"acc": nn.Sequential(nn.Linear(6, 2), nn.BatchNorm1d(2))}, {"acc": 2}, 4)
    with pytest.raises(ValueError, match="the encoder of 'acc' refuses its rows: Expected more than 1 value"):
        normed({"acc": inputs["acc"][:1]})


@pytest.mark.parametrize(
    ("encoders", "message"),
    [
        ("rnn", "must be 'mlp', 'cnn1d' or a factory"),
        ("cnn1d", "'acc' have shape"),
        ({"acc": "mlp"}, "must name the modalities acc, gyr"),
        ({"acc": "mlp", "gyr": lambda shape: 3}, "must return a torch module"),
    ],
)
def test_bad_encoders(encoders, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build_encoders(encoders, SHAPES, 8)


def test_an_encoder_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"'acc' does not take rows of shape \(6,\)"):
        feature_dims({"acc": nn.Linear(5, 2)}, SHAPES)
    with pytest.raises(ValueError, match=r"'gyr' must give \(rows, features\)"):
        feature_dims({"gyr": nn.Conv1d(3, 2, 1)}, SHAPES)
