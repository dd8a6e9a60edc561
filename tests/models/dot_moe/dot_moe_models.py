import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from assay.models.dot_moe import DenseFFN

VOCABULARY = 97
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2}
GATED = SIZES | {"intermediate_size": 50, "num_key_value_heads": 2, "head_dim": 8}

# d_ffn = 50 is no multiple of 4 or 8: experts differ by one neuron.
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**GATED, mlp_bias=True)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**GATED)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**GATED)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**GATED)),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**GATED)),
    "opt": lambda: OPTForCausalLM(OPTConfig(**SIZES, ffn_dim=50, word_embed_proj_dim=32)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=50, bos_token_id=1,
            eos_token_id=2,
        )
    ),
}  # fmt: skip


def model(kind="llama", seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = MODELS[kind]().eval()
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.1)
            elif "norm" not in name and "ln_" not in name:
                # So large that feed-forward layers, and what is chosen in them, change the predictions.
                torch.nn.init.normal_(parameter, std=0.15)
    return made


def tokens(rows=12, length=32, seed=0):
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def dense(d_ffn=50, d=12, gated=True, bias=False, seed=0):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g) / shape[-1] ** 0.5

    biases = {"up_bias": normal(d_ffn), "down_bias": normal(d)} if bias else {}
    if bias and gated:
        biases["gate_bias"] = normal(d_ffn)
    act = torch.nn.functional.silu if gated else torch.nn.functional.relu
    return DenseFFN(normal(d_ffn, d), normal(d_ffn, d), act, normal(d_ffn, d) if gated else None, **biases)


def inputs(n=40, d=12, seed=1):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def checkpoint_with_words(home, paragraphs=60):
    """A folder with a small model whose tokens are the words w0, w1, …, and a text of such words."""
    words = [f"w{i}" for i in range(VOCABULARY - 3)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<pad>", "<s>", "</s>", *words])}, "<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", bos_token="<s>", pad_token="<pad>")
    model().save_pretrained(home / "dense")
    tokenizer.save_pretrained(home / "dense")
    rows = torch.randint(len(words), (paragraphs, 30), generator=torch.Generator().manual_seed(0)).tolist()
    text = "\n\n".join(" ".join(words[i] for i in row) for row in rows)
    (home / "text.txt").write_text(text, encoding="utf-8")
    return home / "dense", home / "text.txt"
