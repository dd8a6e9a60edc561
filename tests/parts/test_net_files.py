import json
import math

import numpy as np
import pytest
import torch

from assay.errors import InputError
from assay.parts import net_files

STATE = {
    "name": "Ünï\ud800",
    "width": 3,
    "rate": 0.1,
    "off": None,
    "layers": [64, 32],
    "classes": ["a", "b"],
    "deep": {"on": True, "penalty": math.inf},
}
TENSORS = {"net.weight": torch.arange(6.0).reshape(2, 3), "net.bias": torch.zeros(2, dtype=torch.float64)}


def test_what_is_written_comes_back(tmp_path):
    net_files.save(tmp_path / "net", "mer-dg", STATE, TENSORS)
    assert sorted(file.name for file in (tmp_path / "net").iterdir()) == ["mer-dg.json", "mer-dg.safetensors"]
    state, tensors = net_files.load(tmp_path / "net", "mer-dg")
    assert state == STATE
    assert list(tensors) == list(TENSORS) or set(tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_a_module_comes_back(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    net(torch.randn(8, 3))
    net_files.save(tmp_path / "net", "net", {}, net.state_dict())
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    other.load_state_dict(net_files.load(tmp_path / "net", "net")[1])
    x = torch.randn(5, 3)
    assert torch.equal(net.eval()(x), other.eval()(x))


def test_arrays_views_and_shared_tensors_are_written_as_they_are(tmp_path):
    weight = torch.nn.Parameter(torch.randn(4, 4))
    read_only = np.arange(5)
    read_only.flags.writeable = False
    tensors = {
        "a": weight,
        "b": weight,  # shared
        "c": weight.T[1:],  # no contiguous memory
        "d": read_only,
        "e": np.arange(5)[::-1],
        "f": np.float32(2),
        "g": torch.tensor([True, False]),
        "h": torch.tensor([1.5], dtype=torch.bfloat16),
        "i": torch.empty(0, 3),
    }
    net_files.save(tmp_path / "net", "net", {}, tensors)
    _, read = net_files.load(tmp_path / "net", "net")
    assert torch.equal(read["c"], weight.detach().T[1:])
    assert read["d"].tolist() == [0, 1, 2, 3, 4]
    assert read["e"].tolist() == [4, 3, 2, 1, 0]
    assert read["f"].item() == 2
    assert read["h"].dtype == torch.bfloat16
    assert read["i"].shape == (0, 3)
    assert not any(tensor.requires_grad for tensor in read.values())


def test_numpys_numbers_become_plain_ones(tmp_path):
    state = {"n": np.int64(3), "x": np.float32(0.5), "classes": np.array(["a", "b"]), "t": (1, 2), "b": np.bool_(True)}
    net_files.save(tmp_path / "net", "net", state, {})
    read, tensors = net_files.load(tmp_path / "net", "net")
    assert read == {"n": 3, "x": 0.5, "classes": ["a", "b"], "t": [1, 2], "b": True}
    assert tensors == {}


@pytest.mark.parametrize(
    ("state", "tensors", "error", "message"),
    [
        ({"f": len}, {}, TypeError, r"state\['f'\] is a builtin_function_or_method, which JSON does not hold"),
        ({"a": [1, {"b": {1, 2}}]}, {}, TypeError, r"state\['a'\]\[1\]\['b'\] is a set"),
        ({"a": {1: 2}}, {}, TypeError, r"state\['a'\] has the key 1, and JSON has only text for keys"),
        ({"t": torch.zeros(1)}, {}, TypeError, "is a Tensor"),
        ({}, {"w": np.array(["a"])}, TypeError, "the array 'w' must be of numbers, and is of <U1"),
        ({}, {"w": [1.0]}, TypeError, "'w' must be a tensor or an array, not list"),
        ({"long": "x" * 2**25}, {}, ValueError, "larger than 32 MiB"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(state, tensors, error, message, tmp_path):
    with pytest.raises(error, match=message):
        net_files.save(tmp_path / "net", "net", state, tensors)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["", "../x", "A", "a b", "a.b"])
def test_a_kind_is_a_plain_name(kind, tmp_path):
    with pytest.raises(ValueError, match="kind must consist of lower-case letters"):
        net_files.save(tmp_path / "net", kind, {}, {})
    with pytest.raises(ValueError, match="kind must consist of lower-case letters"):
        net_files.load(tmp_path, kind)


def test_a_folder_that_is_not_empty_stays_unless_it_may_go(tmp_path):
    net_files.save(tmp_path / "net", "net", {"n": 1}, TENSORS)
    with pytest.raises(InputError, match="is not empty"):
        net_files.save(tmp_path / "net", "net", {"n": 2}, TENSORS)
    assert net_files.load(tmp_path / "net", "net")[0] == {"n": 1}
    with pytest.raises(TypeError):
        net_files.save(tmp_path / "net", "net", {"n": len}, TENSORS, overwrite=True)
    assert net_files.load(tmp_path / "net", "net")[0] == {"n": 1}
    net_files.save(tmp_path / "net", "net", {"n": 3}, TENSORS, overwrite=True)
    assert net_files.load(tmp_path / "net", "net")[0] == {"n": 3}


def test_damage_of_any_byte_of_the_numbers_is_noticed(tmp_path):
    net_files.save(tmp_path / "net", "net", STATE, TENSORS)
    weights = tmp_path / "net" / "net.safetensors"
    whole = weights.read_bytes()
    for place in range(0, len(whole), 7):
        weights.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match=r"net\.safetensors is damaged"):
            net_files.load(tmp_path / "net", "net")
    for cut in (b"", whole[:-1], whole + b"\0"):
        weights.write_bytes(cut)
        with pytest.raises(InputError, match=r"net\.safetensors is damaged"):
            net_files.load(tmp_path / "net", "net")


def test_folders_that_are_none(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        net_files.load(tmp_path / "nowhere", "net")
    with pytest.raises(InputError, match=r"is no net folder: it has no net\.json and no net\.safetensors"):
        net_files.load(tmp_path, "net")
    net_files.save(tmp_path / "net", "net", STATE, TENSORS)
    with pytest.raises(InputError, match="is no other folder"):
        net_files.load(tmp_path / "net", "other")
    described = tmp_path / "net" / "net.json"
    whole = json.loads(described.read_text())
    for text, message in (
        ("{", "is damaged"),
        ("[" * 100_000, "is damaged"),
        ("[1]", "is damaged, or does not describe a net"),
        (json.dumps(whole | {"kind": "other"}), "does not describe a net"),
        (json.dumps(whole | {"state": 1}), "does not describe a net"),
        (json.dumps(whole | {"format": 2}), "has the format 2; this version reads 1"),
        (json.dumps({k: v for k, v in whole.items() if k != "sha256"}), "safetensors is damaged"),
    ):
        described.write_text(text)
        with pytest.raises(InputError, match=message):
            net_files.load(tmp_path / "net", "net")
    described.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is damaged"):
        net_files.load(tmp_path / "net", "net")
