"""Tiny random models of the kinds that a probe meets, and batches for them."""

import hashlib

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)


def bert(layers=2, labels=3, seed=0, **options):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, num_labels=labels, **options,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def llama(seed=0):
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=32,
        )
    )


def gpt2(seed=0):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32))


def t5(seed=0):
    torch.manual_seed(seed)
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=50,
            d_model=16,
            d_kv=8,
            d_ff=24,
            num_layers=2,
            num_heads=2,
            decoder_start_token_id=0,
            pad_token_id=0,
        )
    )


def class_batches(count, size=6, length=8, labels=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "input_ids": torch.randint(5, 60, (size, length), generator=generator),
            "attention_mask": torch.ones(size, length, dtype=torch.long),
            "labels": torch.randint(0, labels, (size,), generator=generator),
        }
        for _ in range(count)
    ]


def token_batches(count, size=4, length=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(count):
        ids = torch.randint(1, 50, (size, length), generator=generator)
        labels = ids.clone()
        labels[:, :2] = -100
        batches.append({"input_ids": ids, "labels": labels})
    return batches


class Line(nn.Module):
    """One linear layer, y = Wx; its output is a prediction."""

    def __init__(self, weight):
        super().__init__()
        self.layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        self.layer.weight = nn.Parameter(weight.clone())

    def forward(self, x, labels=None):
        return self.layer(x)


def state(model):
    """Everything that a probe must leave alone, as text."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().float().numpy().tobytes())
    flags = [
        (n, p.requires_grad, None if p.grad is None else p.grad.sum().item(), str(p.device))
        for n, p in model.named_parameters()
    ]
    modes = [(n, m.training, getattr(m, "gradient_checkpointing", None)) for n, m in model.named_modules()]
    hooks = [bool(p._post_accumulate_grad_hooks) for p in model.parameters()]
    return digest.hexdigest(), flags, modes, hooks
