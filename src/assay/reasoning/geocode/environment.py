"""Problems as a Gymnasium environment of one step: see the drawing, read the problem, answer, get the reward."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from assay.errors import InputError

from .grading import code_in, grade, reward_func
from .image import render
from .problem import Problem
from .score import score_code

CHARACTERS = frozenset(string.printable + "∠°√·×−∥⊥")


class GeoEnv(gymnasium.Env[dict[str, Any], str]):
    r"""One problem an episode, and one answer.

    The observation is the image (grey levels, size × size) and the text with its question; the action is a text with
    drawing code in a fence and the answer in ``\boxed{}``. The reward is that of :func:`reward_func`, 0 to 1.

    Parameters
    ----------
    problems
        At least one.
    size
        Pixels of the image.
    weights
        Of format, answer and code in the reward.

    Raises
    ------
    InputError
        For no problems, and weights or sizes that are none.

    Examples
    --------
    >>> from .making import generate
    >>> env = GeoEnv(generate(1, seed=3))
    >>> observation, _ = env.reset(seed=0)
    >>> _, reward, over, _, info = env.step(f"\\boxed{{{env.problem.answer.text()}}}")
    >>> round(reward, 2), over, info["right"]
    (0.7, True, True)
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        size: int = 336,
        weights: tuple[float, float, float] = (0.1, 0.6, 0.3),
        render_mode: str | None = None,
    ) -> None:
        self.problems = list(problems) if isinstance(problems, Sequence) else []
        if not self.problems or not all(isinstance(problem, Problem) for problem in self.problems):
            raise InputError("problems must be a list of at least one Problem")
        if render_mode not in (None, "rgb_array"):
            raise InputError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        render(self.problems[0].scene, size)  # refuses a size that is none
        reward_func(None, [""], ["1"], weights=weights)
        self.size, self.weights, self.render_mode = size, weights, render_mode
        longest = max(len(_said(problem)) for problem in self.problems)
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (size, size), np.uint8),
                "text": spaces.Text(longest, charset=CHARACTERS),
            }
        )
        self.action_space = spaces.Text(20_000, min_length=0, charset=CHARACTERS)
        self.problem = self.problems[0]
        self._open = False

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Show a problem: one at random, or that of ``options={"index": …}``.

        Raises
        ------
        InputError
            For an index that no problem has.
        """
        super().reset(seed=seed)
        index = (options or {}).get("index")
        if index is None:
            index = int(self.np_random.integers(len(self.problems)))
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(self.problems):
            raise InputError(f"options['index'] must be between 0 and {len(self.problems) - 1}, got {index!r}")
        self.problem, self._open = self.problems[index], True
        return self._seen(), {"id": self.problem.id, "depth": self.problem.depth}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Grade an answer; the episode ends.

        Raises
        ------
        TypeError, InputError
            For an action that is no text, and before :meth:`reset`.
        """
        if not self._open:
            raise InputError("step needs a problem: call reset first")
        if not isinstance(action, str):
            raise TypeError(f"action must be a text, got {type(action).__name__}")
        self._open = False
        problem = self.problem
        (reward,) = reward_func(None, [action], [problem.answer], scene=[problem.scene], weights=self.weights)
        info = {
            "right": grade(action, problem.answer),
            "code": score_code(code_in(action), problem.scene).total,
            "answer": problem.answer.text(),
        }
        return self._seen(), reward, True, False, info

    def render(self) -> np.ndarray | None:
        """The drawing in three colour channels where ``render_mode`` asks for it."""
        if self.render_mode is None:
            return None
        return np.repeat(self._seen()["image"][:, :, None], 3, axis=2)

    def _seen(self) -> dict[str, Any]:
        return {"image": np.asarray(render(self.problem.scene, self.size), np.uint8), "text": _said(self.problem)}


def _said(problem: Problem) -> str:
    return f"{problem.text} {problem.question}"
