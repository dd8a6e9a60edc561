"""The page on adapters, with fewer steps and sentences than it shows."""

from pathlib import Path

import pages
import torch
from safetensors.torch import load_file

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def test_probe_plan_train_twice_and_merge(tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    small = page.replace("STEPS, BATCH, TEST = 24, 8, 128", "STEPS, BATCH, TEST = 3, 4, 16")
    assert small != page
    made = pages.run(small, tmp_path, lambda *_: None)

    table = made["table"]
    assert list(table) == [
        "no adapter", "movie adapter", "products adapter", "merged, 50% kept", "merged, 100% kept"
    ]  # fmt: skip
    assert all(0 <= share <= 1 for row in table.values() for share in row.values())
    assert made["model"].get_submodule("model.layers.0.mlp.up_proj").__class__ is torch.nn.Linear  # all is unloaded

    plan = made["plan"]
    uniform = sum(4 * (out + in_) for out, in_ in plan.shapes.values())
    assert 0.98 * uniform <= plan.trainable_parameters <= uniform
    assert len(set(plan.ranks.values())) > 2  # the probe tells the matrices apart

    one, two, both, half = (
        load_file(tmp_path / folder / "adapter_model.safetensors")
        for folder in ("movie-adapter", "products-adapter", "merged-1.0", "merged-0.5")
    )
    for module in ("layers.0.mlp.down_proj", "layers.29.self_attn.q_proj"):
        a, b = (f"base_model.model.model.{module}.lora_{side}.weight" for side in "AB")
        separate = 2 * (one[b] @ one[a] + two[b] @ two[a])  # alpha is twice the rank
        torch.testing.assert_close(both[b] @ both[a], separate, atol=1e-6, rtol=1e-4)
        assert half[a].shape[0] < both[a].shape[0] == 2 * plan.ranks[f"model.{module}"]
