import pytest
import torch
from csplora_models import bert, class_batches, llama, state
from torch import nn
from transformers import BertModel, LlamaForSequenceClassification

from assay.errors import InputError
from assay.models.csplora.heads import fit_head, head_parameters, load_classifier


def test_the_head_alone_is_trained():
    model = bert().train()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    _, flags, modes, hooks = state(model)
    fit_head(model, class_batches(5))
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert state(model)[1:] == (flags, modes, hooks)


def test_the_head_learns():
    model, batch = bert(), class_batches(1, size=12)[0]

    def loss():
        with torch.no_grad():
            return float(model.eval()(**batch).loss)

    first = loss()
    fit_head(model, [batch] * 100, lr=0.1)
    assert loss() < 0.8 * first


def test_which_parameters_are_the_head():
    score = LlamaForSequenceClassification(llama().config)
    assert [p.shape for p in head_parameters(score)] == [(2, 16)]
    with pytest.raises(ValueError, match="no body"):
        head_parameters(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="no head"):
        head_parameters(HeadLess())


class HeadLess(nn.Module):
    base_model_prefix = "body"

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2)


def test_a_new_head_or_the_checkpoints_own(tmp_path):
    own = bert(labels=3)
    own.save_pretrained(tmp_path / "own")
    model, new = load_classifier(tmp_path / "own", 3)
    assert not new
    torch.testing.assert_close(model.classifier.weight.cpu(), own.classifier.weight)
    other, new = load_classifier(tmp_path / "own", 5, seed=1)
    assert new
    assert other.classifier.weight.shape == (5, 16)
    torch.testing.assert_close(
        other.bert.encoder.layer[0].attention.self.key.weight.cpu(), own.bert.encoder.layer[0].attention.self.key.weight
    )
    BertModel(own.config).save_pretrained(tmp_path / "bare")
    torch.manual_seed(5)
    draw = torch.rand(1)
    torch.manual_seed(5)
    (one, _), (same, _), (another, _) = (load_classifier(tmp_path / "bare", 2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.classifier.weight, same.classifier.weight)
    assert not torch.equal(one.classifier.weight, another.classifier.weight)
    assert torch.equal(torch.rand(1), draw)  # nothing is seeded globally
    number, _ = load_classifier(tmp_path / "bare", 1, regression=True)
    assert number.config.problem_type == "regression"


def test_no_such_checkpoint(tmp_path):
    with pytest.raises(InputError):
        load_classifier(tmp_path / "nowhere", 2)
    bert().save_pretrained(tmp_path / "x")
    (tmp_path / "x" / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be made a classifier"):
        load_classifier(tmp_path / "x", 2)


def test_a_body_that_lacks_weights(tmp_path):
    from safetensors.torch import load_file, save_file

    bert(labels=3).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("bert.encoder.layer.1.attention.self.key.weight")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="lacks weights of 1 parts of its body"):
        load_classifier(tmp_path, 5)
