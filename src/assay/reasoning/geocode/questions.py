"""Problems as a model that sees images is asked them, and what a model behind an endpoint says."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.parts.chat import Chat, Reply

from .image import render
from .problem import Problem

ANSWER = "Reason step by step, and end with the answer in \\boxed{}."
CODE = (
    "First write the drawing as one JSON object in a fenced block, with the keys points (name to [x, y] from 0 to 1, "
    "y upwards), segments (pairs of names), circles ([x, y, radius]) and marks ([kind, [names], text], of the kinds "
    "angle, right, length, unknown). Then reason step by step, and end with the answer in \\boxed{}."
)


@dataclass(frozen=True)
class Question:
    """What one is asked: an image as PNG, and a text."""

    image: bytes
    text: str

    def messages(self, code: bool = False) -> list[dict[str, Any]]:
        """The conversation as endpoints take it, with or without the wish for code before the answer."""
        url = "data:image/png;base64," + base64.b64encode(self.image).decode()
        words = f"{self.text} {CODE if code else ANSWER}"
        parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": words}]
        return [{"role": "user", "content": parts}]


def question_of(problem: Problem, size: int = 336) -> Question:
    """A problem without its answer, its solution and its code."""
    file = io.BytesIO()
    render(problem.scene, size).save(file, format="PNG")
    return Question(file.getvalue(), f"{problem.text} {problem.question}")


def ask(chat: Chat, questions: Sequence[Question], *, code: bool = False, seed: int | None = None) -> list[str]:
    """What the model says to each question; an empty text where a request failed.

    Parameters
    ----------
    chat
        The endpoint, with a model that sees images.
    questions
        What is asked.
    code
        Ask for the drawing code before the answer.
    seed
        Passed on to the endpoint.

    Raises
    ------
    EndpointError
        When the endpoint cannot be used at all, and when every request failed.
    """
    replies = chat.complete([question.messages(code) for question in questions], seed=seed)
    said = [reply.samples[0].text if isinstance(reply, Reply) else "" for reply in replies]
    failed = [reply for reply in replies if not isinstance(reply, Reply)]
    if failed and len(failed) == len(replies):
        raise failed[0].error()
    return said
