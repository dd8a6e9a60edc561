import json
import os
import stat
import sys

import pytest
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from assay.errors import InputError, MissingPart
from assay.parts.checkpoints import (
    load_config,
    load_model,
    load_tokenizer,
    new_file,
    new_folder,
    pick_device,
    without_bars,
)


def tiny(tie=True):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=tie,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


@pytest.fixture
def folder(tmp_path):
    tiny().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_model_comes_back_as_it_was_saved(folder):
    model = load_model(folder, device="cpu")
    assert isinstance(model, transformers.LlamaForCausalLM)
    assert not model.training
    want = tiny().state_dict()
    assert all(torch.equal(want[key], value) for key, value in model.state_dict().items())
    assert torch.equal(load_model(str(folder), device="cpu").lm_head.weight, model.lm_head.weight)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_dtypes(folder, name):
    dtype = getattr(torch, name)
    assert load_model(folder, name).dtype == load_model(folder, dtype).dtype == dtype


def test_the_checkpoints_own_dtype_is_the_default(folder):
    tiny().to(torch.bfloat16).save_pretrained(folder)
    for dtype in (None, "auto"):
        assert load_model(folder, dtype).dtype == torch.bfloat16


def test_other_kinds(folder, tmp_path):
    base = load_model(folder, kind="base")
    assert isinstance(base, transformers.LlamaModel)
    assert torch.equal(base.embed_tokens.weight, tiny().model.embed_tokens.weight)
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=3
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "classifier")
    classifier = load_model(tmp_path / "classifier", kind="sequence-classification")
    assert classifier.num_labels == 3
    # A bare network without its pooler is whole for what it is used for.
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "masked")
    assert isinstance(load_model(tmp_path / "masked", kind="base"), transformers.BertModel)


def break_config(folder):
    (folder / "config.json").write_text("{")


def list_config(folder):
    (folder / "config.json").write_text("[]")


def adapter(folder):
    (folder / "config.json").rename(folder / "adapter_config.json")


def pickled(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def gguf(folder):
    (folder / "model.safetensors").rename(folder / "model.gguf")


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def without_layer(folder):
    weights = load_file(folder / "model.safetensors")
    kept = {key: value for key, value in weights.items() if "layers.1." not in key}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def shards(folder):
    """Save the model again in several files."""
    (folder / "model.safetensors").unlink()
    tiny().save_pretrained(folder, max_shard_size="2KB")
    return sorted(folder.glob("*.safetensors"))


def test_a_checkpoint_in_several_files(folder):
    assert len(shards(folder)) > 2
    assert torch.equal(load_model(folder).lm_head.weight, tiny().lm_head.weight)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "config.json").unlink(), r"holds no config\.json"),
        (adapter, r"is an adapter, not a model: .*merge_and_unload"),
        (break_config, r"config\.json is no JSON"),
        (list_config, r"config\.json must hold a JSON object, not a list"),
        (lambda f: edit_config(f, model_type="frob"), r"does not know the architecture 'frob'"),
        (
            lambda f: edit_config(f, model_type="frob", auto_map={"AutoModelForCausalLM": "x.Frob"}),
            "the code that comes with it is not run",
        ),
        (lambda f: edit_config(f, model_type=None), "does not know the architecture None"),
        (
            lambda f: edit_config(f, quantization_config={"quant_method": "gptq", "bits": 4}),
            r"quantised weights \(gptq\)",
        ),
        (
            lambda f: edit_config(f, hidden_size=18),
            r"shape \[32, 16\], and by its config\.json it should be \[32, 18\]",
        ),
        (lambda f: edit_config(f, num_attention_heads=0), "cannot be loaded"),
        (lambda f: edit_config(f, num_hidden_layers="two"), "cannot be loaded.*expected int, got str"),
        (
            lambda f: edit_config(f, vocab_size=33),
            r"model\.embed_tokens\.weight has the shape \[32, 16\], and by its config\.json it should be \[33, 16\]",
        ),
        (lambda f: edit_config(f, tie_word_embeddings=False), r"no weights for lm_head\.weight$"),
        (lambda f: (f / "adapter_config.json").write_text("{}"), r"a model and an adapter \(adapter_config\.json\)"),
        (lambda f: shards(f)[1].unlink(), r"cannot be loaded: .*model-00002-of-"),
        (lambda f: shards(f)[1].write_bytes(b""), "cannot be loaded"),
        (lambda f: (shards(f), (f / "model.safetensors.index.json").unlink()), "cannot be loaded"),
        (pickled, r"pickled weights only.*use_safetensors=False\)\.save_pretrained"),
        (gguf, "GGUF weights only"),
        (lambda f: (f / "model.safetensors").unlink(), r"holds no weights \(\*\.safetensors\)"),
        (cut, "cannot be loaded"),
        (without_layer, r"no causal-lm checkpoint: it has no weights for model\.layers\.1\..* and \d+ more"),
    ],
)
def test_a_spoilt_folder_is_refused_with_the_reason(folder, spoil, message):
    spoil(folder)
    with pytest.raises(InputError, match=message) as raised:
        load_model(folder, device="cpu")
    assert str(folder) in str(raised.value)


def test_the_wrong_kind_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match=r"no sequence-classification checkpoint: it has no weights for score\.weight"):
        load_model(folder, kind="sequence-classification")
    tiny(tie=False).model.save_pretrained(tmp_path / "bare")
    with pytest.raises(InputError, match=r"no causal-lm checkpoint: it has no weights for lm_head\.weight"):
        load_model(tmp_path / "bare")
    transformers.T5Config(vocab_size=32, d_model=16, num_layers=1).save_pretrained(tmp_path / "bare")
    with pytest.raises(InputError, match="is a t5: that architecture has no causal-lm model"):
        load_model(tmp_path / "bare")
    with pytest.raises(InputError, match="kind must be one of causal-lm, sequence-classification, base, not 'chat'"):
        load_model(folder, kind="chat")


@pytest.mark.parametrize("source", ["/no/such/folder", "./no", "~/no-such-folder", "a/b/c", "no/such/folder/"])
def test_no_such_folder(source):
    for load in (load_model, load_config, load_tokenizer):
        with pytest.raises(InputError, match="there is no folder"):
            load(source)


def test_an_empty_name():
    with pytest.raises(InputError, match="name of the model's folder is empty"):
        load_model("")


def test_a_hub_id_that_cannot_be_had(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for load in (load_model, load_tokenizer):
        with pytest.raises(
            InputError, match="there is no folder assay/no-such-model, nor can a model of that id be loaded"
        ):
            load("assay/no-such-model")


def test_a_file_is_no_checkpoint(folder):
    with pytest.raises(InputError, match="is a file; a checkpoint is a folder"):
        load_model(folder / "model.safetensors")


def test_code_that_comes_with_a_checkpoint_is_not_run(folder):
    (folder / "x.py").write_text("raise SystemExit('its code ran')")
    edit_config(folder, model_type="frob", auto_map={"AutoConfig": "x.C", "AutoModelForCausalLM": "x.M"})
    with pytest.raises(InputError):
        load_model(folder)


@pytest.mark.parametrize(
    ("module", "load"),
    [("torch", load_model), ("transformers", load_model), ("torch", load_tokenizer), ("transformers", load_config)],
)
def test_what_is_missing_comes_with_its_line(module, load, folder, monkeypatch):
    (folder / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPart, match=f"loading a checkpoint needs {module}; install it with: "):
        load(folder)


def test_no_tokenizer(folder):
    with pytest.raises(InputError, match="holds no tokenizer"):
        load_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(folder)


@pytest.mark.parametrize("name", ["LlamaTokenizer", "GPT2Tokenizer", "BertTokenizer", "T5Tokenizer"])
def test_a_tokenizer_without_its_vocabulary(folder, name):
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    with pytest.raises(InputError, match=r"no vocabulary for its tokenizer: a file like tokenizer\.json is missing"):
        load_tokenizer(folder)


def test_a_tokenizer_of_bytes_needs_no_file(folder):
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}))
    assert load_tokenizer(folder)("é", add_special_tokens=False)["input_ids"] == [0xC3 + 3, 0xA9 + 3]


@pytest.mark.parametrize("dtype", ["float64", "int8", torch.float64, "half precision"])
def test_bad_dtype(folder, dtype):
    with pytest.raises(InputError, match="dtype must be one of auto, float32, bfloat16, float16, not"):
        load_model(folder, dtype)


def test_devices(monkeypatch):
    assert pick_device("cpu") == pick_device(torch.device("cpu")) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")
    for name in ("gpu", "cuda:99"):
        with pytest.raises(InputError, match=f"device must be 'auto' or .*{name}"):
            pick_device(name)


def test_running_out_of_memory_is_not_taken_for_a_bad_checkpoint(folder, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", full)
    with pytest.raises(torch.OutOfMemoryError):
        load_model(folder)


def test_bars_come_back():
    logging = transformers.utils.logging
    logging.enable_progress_bar()
    with without_bars():
        assert not logging.is_progress_bar_enabled()
    assert logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    with without_bars():
        pass
    assert not logging.is_progress_bar_enabled()
    logging.enable_progress_bar()


def write(block, name, error=None):
    """Write a file inside a block, and fail there if asked to."""
    with block as path:
        (path / name if name else path).write_text("1")
        if error:
            raise error


class TestNewFolder:
    def test_it_appears_whole_and_alone(self, tmp_path):
        with new_folder(tmp_path / "a" / "out") as folder:
            (folder / "x").write_text("1")
            assert not (tmp_path / "a" / "out").exists()
            assert folder.parent.parent == tmp_path / "a"  # one rename away, on the same disk
        assert [p.name for p in (tmp_path / "a").iterdir()] == ["out"]
        assert (tmp_path / "a" / "out" / "x").read_text() == "1"
        (tmp_path / "plain").mkdir()
        assert (tmp_path / "a" / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode

    @pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
    def test_nothing_is_left_of_a_failure(self, tmp_path, error):
        with pytest.raises(error):
            write(new_folder(tmp_path / "out"), "x", error("no"))
        assert list(tmp_path.iterdir()) == []

    def test_an_empty_folder_is_taken(self, tmp_path):
        (tmp_path / "out").mkdir()
        with new_folder(tmp_path / "out") as folder:
            (folder / "x").write_text("1")
        assert [p.name for p in (tmp_path / "out").iterdir()] == ["x"]

    def test_what_is_there_is_not_lost(self, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "old").write_text("old")
        with pytest.raises(InputError, match="exists and is not empty"), new_folder(tmp_path / "out"):
            raise AssertionError("not reached")
        with pytest.raises(OSError, match="no"):
            write(new_folder(tmp_path / "out", overwrite=True), "x", OSError("no"))
        assert [p.name for p in (tmp_path / "out").iterdir()] == ["old"]
        write(new_folder(tmp_path / "out", overwrite=True), "x")
        assert [p.name for p in (tmp_path / "out").iterdir()] == ["x"]
        assert [p.name for p in tmp_path.iterdir()] == ["out"]

    def test_what_came_meanwhile_is_not_lost(self, tmp_path):
        block = new_folder(tmp_path / "out")
        block.__enter__()
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "other").write_text("other")
        with pytest.raises(InputError, match="not empty"):
            block.__exit__(None, None, None)
        assert [p.name for p in (tmp_path / "out").iterdir()] == ["other"]
        assert [p.name for p in tmp_path.iterdir()] == ["out"]

    def test_the_old_one_comes_back_where_the_new_one_cannot_be_put(self, tmp_path, monkeypatch):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "old").write_text("old")
        rename = os.rename

        def fail(source, target):
            if os.path.basename(source) == "new":
                raise OSError("disk broken")
            rename(source, target)

        monkeypatch.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="disk broken"), new_folder(tmp_path / "out", overwrite=True):
            pass
        assert (tmp_path / "out" / "old").read_text() == "old"

    def test_a_link_stays_and_what_it_leads_to_is_made(self, tmp_path):
        (tmp_path / "disk").mkdir()
        (tmp_path / "out").symlink_to(tmp_path / "disk" / "out")  # not there yet
        for _ in range(2):
            write(new_folder(tmp_path / "out", overwrite=True), "x")
            assert (tmp_path / "out").is_symlink()
            assert (tmp_path / "disk" / "out" / "x").read_text() == "1"

    def test_what_cannot_be_replaced_is_said_before_the_work(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for out in (".", "/", tmp_path):
            with pytest.raises(InputError, match="give "), new_folder(out, overwrite=True):
                raise AssertionError("not reached")

    def test_a_file_is_in_the_way(self, tmp_path):
        (tmp_path / "out").write_text("a file")
        with pytest.raises(InputError, match="is a file"), new_folder(tmp_path / "out", overwrite=True):
            raise AssertionError("not reached")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no disk that is always full")
@pytest.mark.parametrize("block", [new_folder, new_file])
def test_a_full_disk_is_named(tmp_path, block):
    def save(path):
        with open("/dev/full", "w") as file:
            file.write("x" * 10**6)

    def save_tensors(path):
        # What safetensors raises there; it maps files of its own choice, and /dev/full is none.
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    for fill in (save, save_tensors):
        with pytest.raises(OSError, match=r"/out cannot be written: .*No space left"), block(tmp_path / "out") as path:
            fill(path)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(SafetensorError, match="header"), block(tmp_path / "out"):
        raise SafetensorError("header too small")


class TestNewFile:
    def test_it_appears_whole_and_replaces(self, tmp_path):
        (tmp_path / "x.json").write_text("old")
        with new_file(tmp_path / "x.json") as path:
            path.write_text("new")
            assert (tmp_path / "x.json").read_text() == "old"
            assert path.suffix == ".json"
        assert (tmp_path / "x.json").read_text() == "new"
        assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
        assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) & 0o400

    def test_a_link_stays(self, tmp_path):
        (tmp_path / "x.json").symlink_to(tmp_path / "real.json")
        write(new_file(tmp_path / "x.json"), "")
        assert (tmp_path / "x.json").is_symlink()
        assert (tmp_path / "real.json").read_text() == "1"

    def test_a_failure_leaves_the_old_one(self, tmp_path):
        (tmp_path / "x.json").write_text("old")
        with pytest.raises(OSError, match="no"):
            write(new_file(tmp_path / "x.json"), "", OSError("no"))
        assert (tmp_path / "x.json").read_text() == "old"
        assert [p.name for p in tmp_path.iterdir()] == ["x.json"]

    def test_a_folder_is_in_the_way(self, tmp_path):
        with pytest.raises(InputError, match="is a folder"), new_file(tmp_path):
            raise AssertionError("not reached")
