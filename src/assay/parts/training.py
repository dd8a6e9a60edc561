"""What every training loop needs: a seeded generator, batches, a halt before over-fitting, a bar."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from assay.errors import InputError
from assay.parts.packages import need

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

T = TypeVar("T")
_WHY = "training a network"


class EarlyStopping:
    """Says when a loss has stopped falling, and keeps the module as it was at its best.

    Parameters
    ----------
    patience
        After so many steps in a row without a new best it is time to stop; at least 1.
    min_delta
        A loss is a new best when it is lower than the best by more than this.

    Attributes
    ----------
    best
        The lowest loss so far, infinite before the first.
    best_step
        At which step that was, counted from 0; -1 before the first.
    steps
        How many there were.

    Examples
    --------
    >>> stopping = EarlyStopping(patience=2)
    >>> [stopping.step(loss, None) for loss in (3.0, 2.0, 2.5, 2.0)]
    [False, False, False, True]
    >>> stopping.best, stopping.best_step
    (2.0, 1)
    """

    def __init__(self, patience: int, min_delta: float = 0.0) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int | np.integer) or patience < 1:
            raise InputError(f"patience must be a whole number of at least 1, not {patience!r}")
        if not 0 <= min_delta < math.inf:
            raise InputError(f"min_delta must be finite and not negative, not {min_delta!r}")
        self.patience, self.min_delta = int(patience), float(min_delta)
        self.best, self.best_step, self.steps = math.inf, -1, 0
        self._state: dict[str, Any] | None = None

    def step(self, loss: float | Tensor, module: nn.Module | None) -> bool:
        """Take note of a loss, that of a validation set as a rule, and say whether to stop.

        A loss that is NaN is no new best. The module's state is copied to the CPU at each new best; None keeps none.
        """
        value = float(loss)
        if value < self.best - self.min_delta:
            self.best, self.best_step = value, self.steps
            self._state = None if module is None else _copied(module.state_dict())
        self.steps += 1
        return self.steps - 1 - self.best_step >= self.patience

    def restore(self, module: nn.Module) -> None:
        """Give the module the state that it had at the best loss.

        Raises
        ------
        RuntimeError
            When no step had a loss that is a number: there is nothing to go back to.
        """
        if self._state is None:
            raise RuntimeError(f"none of {self.steps} steps kept a state: no loss was a finite number")
        module.load_state_dict(self._state)


def progress(iterable: Iterable[T], total: int | None, what: str, show: bool) -> Iterator[T]:
    """What ``iterable`` yields, with a bar on the error output while it lasts, when ``show`` is true.

    There is no bar where the error output is no terminal.

    Parameters
    ----------
    iterable
        Anything; it is taken one by one.
    total
        How many it will yield, None where nobody knows.
    what
        What is being done, before the bar.
    show
        Whether there is a bar; without it nothing is written and nothing imported.
    """
    if not show:
        yield from iterable
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        yield from bars.track(iterable, total=total, description=what)


def generator(
    random_state: int | np.integer[Any] | np.random.RandomState | np.random.Generator | torch.Generator | None,
    device: str | torch.device = "cpu",
) -> torch.Generator:
    """A torch generator that is seeded as ``random_state`` says, and no other state is touched.

    Parameters
    ----------
    random_state
        A whole number from 0 to 2^63 - 1: always the same numbers; a NumPy generator or RandomState: seeded by a draw
        from it; None: new ones each time; a torch generator: itself.
    device
        Where it draws; the name of a torch device.

    Raises
    ------
    TypeError
        When it is none of these.
    ValueError
        When the number is out of range.
    """
    torch = need("torch", _WHY)
    if isinstance(random_state, torch.Generator):
        return random_state  # type: ignore[no-any-return]
    new = torch.Generator(device)
    if random_state is None:
        new.seed()
        return new  # type: ignore[no-any-return]
    if isinstance(random_state, np.random.RandomState):
        seed = int(random_state.randint(np.iinfo(np.int32).max))
    elif isinstance(random_state, np.random.Generator):
        seed = int(random_state.integers(2**63 - 1))
    elif isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        seed = int(random_state)
        if not 0 <= seed < 2**63:
            raise InputError(f"random_state must lie between 0 and 2^63 - 1, not {seed}")
    else:
        raise TypeError(f"random_state must be None, a whole number or a generator, not {random_state!r}")
    return new.manual_seed(seed)  # type: ignore[no-any-return]


def minibatches(n: int, size: int, generator: torch.Generator, drop_last: bool = False) -> Iterator[Tensor]:
    """One pass over ``n`` rows in random order, as batches of row numbers.

    Parameters
    ----------
    n
        How many rows, at least 1.
    size
        Rows of a batch, at least 1; all rows are one batch where there are fewer.
    generator
        Draws the order; the batches are on its device.
    drop_last
        Leave out a last batch that is smaller, unless it is the only one.

    Yields
    ------
    Tensor
        (size,) int64.
    """
    torch = need("torch", _WHY)
    if n < 1 or size < 1:
        raise ValueError(f"n and size must be at least 1, got {n} and {size}")
    order = torch.randperm(n, generator=generator, device=generator.device)
    end = n - n % size if drop_last and n >= size else n
    for start in range(0, end, size):
        yield order[start : start + size]


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """A copy that later training does not change, on the CPU."""
    torch = need("torch", _WHY)
    return {
        name: value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else copy.deepcopy(value)
        for name, value in state.items()
    }
