"""A small network that chooses among candidate edits, and its training by group-relative policy gradients."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from assay.errors import InputError, MissingPart, one_line
from assay.parts import net_files
from assay.parts.checkpoints import pick_device

from .actions import Action
from .candidates import FEATURES
from .environment import RepairEnv
from .saboteur import Instance
from .scoring import RewardSpec

try:
    import torch
    from jaxtyping import Float
    from torch import Tensor

    from assay.numerics.policy_gradient import clipped_policy_loss, group_advantages
except ModuleNotFoundError as error:
    raise MissingPart(f"a repair policy needs {error.name}", "python -m pip install 'assay[torch]'") from error

KIND = "orloop-policy"
HIDDEN = 48
CLIP, PASSES = (0.2, 0.28), 2
"""As in the source: the range of the ratio below and above 1, and how often a batch is gone over."""
MOST_EDITS = 6
"""Actions of an episode in training."""


class RepairPolicy(torch.nn.Module):
    """Scores candidate edits by their 24 features: 24-48-48-1 with tanh; a softmax over candidates chooses.

    Parameters
    ----------
    seed
        Of the first weights.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        # Linear's own first weights would take numbers from the global source of chance.
        sizes = ((FEATURES, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1))
        layers = [torch.nn.utils.skip_init(torch.nn.Linear, *size) for size in sizes]
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
        options = untried(env)
        if not options:
            return Action("SUBMIT")
        with torch.no_grad():
            scores = self(torch.from_numpy(env.features(options)).to(next(self.parameters()).device)).cpu()
        if greedy:
            return options[int(scores.argmax())]
        return options[int(torch.multinomial(scores.softmax(0), 1, generator=generator))]

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the weights as safetensors with JSON beside them; return the folder."""
        net_files.save(folder, KIND, {"features": FEATURES, "hidden": HIDDEN}, self.state_dict())
        return Path(folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: str = "auto") -> RepairPolicy:
        """Read what :meth:`save_pretrained` wrote; InputError for another folder."""
        _, weights = net_files.load(folder, KIND)
        try:
            policy = cls()
            policy.load_state_dict(weights)
        except RuntimeError as error:
            raise InputError(f"{folder} holds no such repair policy: {one_line(error, 100)}") from None
        return policy.to(pick_device(device))


def untried(env: RepairEnv) -> list[Action]:
    """The candidates without edits of a kind and row that were made before: flipping twice is no repair."""
    made = {(edit.kind, edit.target) for edit in env.edits}
    return [option for option in env.candidates() if (option.kind, option.target) not in made]


def train_policy(
    instances: Sequence[Instance],
    *,
    start: RepairPolicy | None = None,
    reward: str | RewardSpec = "op",
    steps: int = 60,
    batch: int = 8,
    group: int = 8,
    lr: float = 3e-3,
    most_actions: int = MOST_EDITS,
    seed: int = 0,
    device: str = "cpu",
) -> RepairPolicy:
    """Train a policy by group-relative policy optimisation on instances with known culprits.

    Parameters
    ----------
    instances
        To learn from.
    start
        A policy to begin with, such as :func:`fit_policy` gives; it is not changed. By default fresh weights.
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
    _check_counts(steps=steps, batch=batch, group=group, most_actions=most_actions)
    _check_rate(lr)
    env = RepairEnv(instances, max_steps=most_actions, reward=reward)
    place = pick_device(device)
    if start is not None and not isinstance(start, RepairPolicy):
        raise InputError(f"start must be a RepairPolicy, not {type(start).__name__}")
    policy = (RepairPolicy(seed) if start is None else copy.deepcopy(start)).to(place)
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


def fit_policy(
    instances: Sequence[Instance], *, steps: int = 200, lr: float = 3e-3, seed: int = 0, device: str = "cpu"
) -> RepairPolicy:
    """Fit a policy to the true repairs of instances, shown one edit after the other, without any loop.

    Parameters
    ----------
    instances
        To learn from. True edits that are no candidates are passed over.
    steps, lr
        Of Adam, on all edits at once.
    seed
        Of the first weights; same seed, same policy on one machine.
    device
        Where the network is fitted; ``"auto"`` takes a GPU.

    Raises
    ------
    InputError
        For no instances, numbers that are not positive, or instances none of whose true edits is a candidate.
    """
    _check_counts(steps=steps)
    _check_rate(lr)
    env = RepairEnv(instances, max_steps=MOST_EDITS)
    shown = [pair for index in range(len(env.instances)) for pair in _shown(env, index)]
    if not shown:
        raise InputError("instances hold no true edit that is a candidate")
    place = pick_device(device)
    policy = RepairPolicy(seed).to(place)
    optimiser = torch.optim.Adam(policy.parameters(), lr)
    features, there, picked = _padded(shown, place)
    for _ in range(steps):
        loss = -_log_chances(policy, features, there, picked).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return policy


def _shown(env: RepairEnv, index: int) -> list[tuple[np.ndarray, int]]:
    """The states on the way of the true repair, each with the candidate that is true there."""
    env.reset(options={"instance": index})
    left, path = list(env.instance.undo), []
    while left and not env.done:
        options = untried(env)
        pairs = [(i, edit) for i, option in enumerate(options) for edit in left if _same(option, edit)]
        if not pairs:
            break
        picked, edit = pairs[0]
        path.append((env.features(options), picked))
        left.remove(edit)
        env.step(options[picked])
    return path


def _same(a: Action, b: Action) -> bool:
    if (a.kind, a.target) != (b.kind, b.target):
        return False
    if a.kind == "SET_COEF":
        theirs = dict(zip(b.names, b.values, strict=True))
        return all(
            name in theirs and np.isclose(value, theirs[name]) for name, value in zip(a.names, a.values, strict=True)
        )
    return len(a.values) == len(b.values) and bool(np.allclose(a.values, b.values))


def _check_counts(**numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a positive whole number, got {value!r}")


def _check_rate(lr: float) -> None:
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not 0 < lr < float("inf"):
        raise InputError(f"lr must be a positive number, got {lr!r}")


def _episode(
    env: RepairEnv, policy: RepairPolicy, index: int, generator: torch.Generator
) -> tuple[float, list[tuple[np.ndarray, int]]]:
    env.reset(options={"instance": index})
    total, path = 0.0, []
    while not env.done:
        options = untried(env)
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
    """Go over all decisions, padded to one tensor."""
    flat = [(f, a, float(w)) for path, w in zip(decisions, advantages, strict=True) for f, a in path if w != 0]
    if not flat:
        return
    features, there, picked = _padded([(f, a) for f, a, _ in flat], place)
    weight = torch.tensor([w for _, _, w in flat], device=place)
    counts = torch.ones(len(flat), 1, dtype=torch.bool, device=place)  # an action is an answer of one token
    old: Tensor | None = None
    for _ in range(PASSES):
        logp = _log_chances(policy, features, there, picked)[:, None]
        old = logp.detach() if old is None else old
        loss = clipped_policy_loss(logp, old, weight, counts, clip=CLIP).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def _padded(pairs: Sequence[tuple[np.ndarray, int]], place: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Features of all decisions, which candidates are there, and which was picked."""
    widest = max(len(f) for f, _ in pairs)
    features = torch.zeros(len(pairs), widest, FEATURES)
    there = torch.zeros(len(pairs), widest, dtype=torch.bool)
    for i, (f, _) in enumerate(pairs):
        features[i, : len(f)] = torch.from_numpy(f)
        there[i, : len(f)] = True
    return features.to(place), there.to(place), torch.tensor([a for _, a in pairs], device=place)


def _log_chances(policy: RepairPolicy, features: Tensor, there: Tensor, picked: Tensor) -> Tensor:
    """Log probability of each picked candidate."""
    scores = policy(features.flatten(0, 1)).view(there.shape).masked_fill(~there, -torch.inf)
    return scores.log_softmax(-1).gather(1, picked[:, None]).squeeze(1)
