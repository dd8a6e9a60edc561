"""A small network that chooses among candidate edits, and its training by group-relative policy gradients."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import InputError, MissingPart
from assay.parts.checkpoints import new_folder, pick_device

from .actions import Action
from .candidates import FEATURES
from .environment import RepairEnv, State
from .saboteur import Instance
from .scoring import RewardSpec

try:
    import torch
    from jaxtyping import Float
    from safetensors.torch import load_file, save_file
    from torch import Tensor

    from assay.numerics.policy_gradient import group_advantages
except ModuleNotFoundError as error:
    raise MissingPart(f"a repair policy needs {error.name}", "python -m pip install 'assay[torch]'") from error

HIDDEN = 48


class RepairPolicy(torch.nn.Module):
    """Scores candidate edits by their 24 features: 24-48-48-1 with tanh; a softmax over candidates chooses.

    Parameters
    ----------
    seed
        Of the first weights.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        layers = [torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Linear(HIDDEN, 1)]
        generator = torch.Generator().manual_seed(seed)
        for layer in layers:
            bound = layer.in_features**-0.5
            with torch.no_grad():
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.zero_()
        self.net = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.Tanh(), layers[2])

    def forward(self, features: Float[Tensor, "candidates 24"]) -> Float[Tensor, " candidates"]:
        """Return one score a candidate."""
        return self.net(features).squeeze(-1)

    def act(self, env: RepairEnv, greedy: bool = True, generator: torch.Generator | None = None) -> Action:
        """Return the best candidate, or one drawn by its probability; SUBMIT where there is none."""
        options = env.candidates()
        if not options:
            return Action("SUBMIT")
        with torch.no_grad():
            scores = self(torch.from_numpy(env.features(options)).to(next(self.parameters()).device)).cpu()
        if greedy:
            return options[int(scores.argmax())]
        return options[int(torch.multinomial(scores.softmax(0), 1, generator=generator))]

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the weights as safetensors with JSON beside them; return the folder."""
        with new_folder(folder) as fresh:
            save_file({k: v.contiguous().cpu() for k, v in self.state_dict().items()}, fresh / "model.safetensors")
            text = json.dumps({"model_type": "orloop-policy", "features": FEATURES, "hidden": HIDDEN}, indent=2)
            (fresh / "config.json").write_text(text)
        return Path(folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: str = "auto") -> RepairPolicy:
        """Read what :meth:`save_pretrained` wrote; InputError for another folder."""
        path = Path(folder)
        try:
            config = json.loads((path / "config.json").read_text())
            weights = load_file(path / "model.safetensors")
        except Exception as error:
            raise InputError(f"{folder} holds no repair policy (config.json and model.safetensors)") from error
        if not isinstance(config, dict) or config.get("model_type") != "orloop-policy":
            raise InputError(f"{folder} holds no repair policy: model_type in config.json must be orloop-policy")
        policy = cls()
        try:
            policy.load_state_dict(weights)
        except RuntimeError as error:
            raise InputError(f"{folder}: the weights are not those of a repair policy") from error
        return policy.to(pick_device(device))


def train_policy(
    instances: Sequence[Instance],
    *,
    reward: str | RewardSpec = "op",
    steps: int = 60,
    batch: int = 8,
    group: int = 8,
    lr: float = 3e-3,
    most_actions: int = 6,
    seed: int = 0,
    device: str = "cpu",
) -> RepairPolicy:
    """Train a policy by group-relative policy optimisation on instances with known culprits.

    Parameters
    ----------
    instances
        To learn from.
    reward
        As in :class:`RepairEnv`.
    steps, batch, group
        Updates; instances an update; episodes an instance, among which rewards are compared.
    lr
        Of Adam.
    most_actions
        An episode's longest length.
    seed
        Same seed, same policy on one machine.
    device
        Where the network is trained; it is so small that the CPU is the quickest. ``"auto"`` takes a GPU.

    Raises
    ------
    InputError
        For no instances, or numbers that are not positive.

    Notes
    -----
    Clipped ratio in [0.8, 1.28], two passes a batch, no divergence term, as in the source.
    """
    for name, value in {"steps": steps, "batch": batch, "group": group, "most_actions": most_actions}.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a positive whole number, got {value!r}")
    cache: dict[Any, State] = {}
    env = RepairEnv(instances, max_steps=most_actions, reward=reward, cache=cache)
    place = pick_device(device)
    policy = RepairPolicy(seed).to(place)
    optimiser = torch.optim.Adam(policy.parameters(), lr)
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = rng.choice(len(env.instances), min(batch, len(env.instances)), replace=False)
        rewards, decisions = [], []
        for index in chosen:
            for _ in range(group):
                total, path = _episode(env, policy, int(index), generator)
                rewards.append(total)
                decisions.append(path)
        advantages = group_advantages(torch.tensor(rewards), group, eps=1e-6, unbiased=False)
        _update(policy, optimiser, decisions, advantages, place)
    return policy


def _episode(
    env: RepairEnv, policy: RepairPolicy, index: int, generator: torch.Generator
) -> tuple[float, list[tuple[np.ndarray, int]]]:
    env.reset(options={"instance": index})
    total, path = 0.0, []
    while not env.done:
        options = env.candidates()
        if not options:
            total += env.step(Action("SUBMIT"))[1]
            break
        features = env.features(options)
        with torch.no_grad():
            scores = policy(torch.from_numpy(features).to(next(policy.parameters()).device)).cpu()
        picked = int(torch.multinomial(scores.softmax(0), 1, generator=generator))
        path.append((features, picked))
        total += env.step(options[picked])[1]
    return total, path


def _update(
    policy: RepairPolicy,
    optimiser: torch.optim.Optimizer,
    decisions: list[list[tuple[np.ndarray, int]]],
    advantages: Tensor,
    place: torch.device,
) -> None:
    """Two passes over all decisions, padded to one tensor."""
    flat = [(f, a, float(w)) for path, w in zip(decisions, advantages, strict=True) for f, a in path if w != 0]
    if not flat:
        return
    widest = max(len(f) for f, _, _ in flat)
    features = torch.zeros(len(flat), widest, FEATURES)
    there = torch.zeros(len(flat), widest, dtype=torch.bool)
    for i, (f, _, _) in enumerate(flat):
        features[i, : len(f)] = torch.from_numpy(f)
        there[i, : len(f)] = True
    features, there = features.to(place), there.to(place)
    picked = torch.tensor([a for _, a, _ in flat], device=place)[:, None]
    weight = torch.tensor([w for _, _, w in flat], device=place)
    old: Tensor | None = None
    for _ in range(2):
        scores = policy(features.flatten(0, 1)).view(len(flat), widest).masked_fill(~there, -torch.inf)
        logp = scores.log_softmax(-1).gather(1, picked).squeeze(1)
        old = logp.detach() if old is None else old
        ratio = (logp - old).exp()
        loss = -torch.minimum(ratio * weight, ratio.clamp(0.8, 1.28) * weight).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
