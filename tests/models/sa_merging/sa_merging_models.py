"""Tiny random models and experts for the tests."""

from __future__ import annotations

import copy

import torch
import transformers as hf
from torch import nn

SMALL = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50,
}  # fmt: skip
GROUPED = SMALL | {"num_key_value_heads": 2}


def build(kind: str, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return MODELS[kind]().eval()


MODELS = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED)),
    "tied-llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED, tie_word_embeddings=True)),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**GROUPED, head_dim=4)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**GROUPED)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**GROUPED, head_dim=4)),
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**GROUPED, head_dim=4)),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=50, n_positions=20, bos_token_id=0, eos_token_id=0)
    ),
    "opt": lambda: hf.OPTForCausalLM(
        hf.OPTConfig(
            hidden_size=16, word_embed_proj_dim=16, ffn_dim=24, num_hidden_layers=2, num_attention_heads=4,
            vocab_size=50, max_position_embeddings=20,
        )
    ),
    "bert": lambda: hf.BertModel(hf.BertConfig(**SMALL)),
    "bert-classifier": lambda: hf.BertForSequenceClassification(hf.BertConfig(**SMALL)),
    "vit": lambda: hf.ViTForImageClassification(
        hf.ViTConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=8,
            patch_size=4,
        )
    ),
}  # fmt: skip

OFF_THE_WAY = {
    "llama": {"model.embed_tokens.weight", "lm_head.weight"},
    "mistral": {"model.embed_tokens.weight", "lm_head.weight"},
    "qwen2": {"model.embed_tokens.weight", "lm_head.weight"},
    "qwen3": {"model.embed_tokens.weight", "lm_head.weight"},
    "gemma2": {"model.embed_tokens.weight"},
    "gpt2": {"transformer.wte.weight", "transformer.wpe.weight"},
    "opt": {"model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight"},
    "bert": {
        "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight",
        "embeddings.token_type_embeddings.weight", "pooler.dense.weight", "pooler.dense.bias",
    },
    "vit": {
        "vit.embeddings.cls_token", "vit.embeddings.position_embeddings", "classifier.weight", "classifier.bias",
    },
}  # fmt: skip


def expert_of(model: nn.Module, seed: int, size: float = 0.05) -> nn.Module:
    """The same model with every parameter moved."""
    generator = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return other


def states(seed: int = 0, experts: int = 3, shape: tuple[int, ...] = (6, 5)) -> tuple[dict, list[dict]]:
    """A chain of two matrices with biases, and experts."""
    g = torch.Generator().manual_seed(seed)
    base = {
        "0.weight": torch.randn(shape, generator=g), "0.bias": torch.randn(shape[0], generator=g),
        "2.weight": torch.randn(4, shape[0], generator=g), "2.bias": torch.randn(4, generator=g),
    }  # fmt: skip
    return base, [
        {name: t + 0.3 * torch.randn(t.shape, generator=g) for name, t in base.items()} for _ in range(experts)
    ]
