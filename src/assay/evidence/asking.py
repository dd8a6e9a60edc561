"""Arms that ask a language model behind an endpoint, which only the user can bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from assay.errors import EndpointError, InputError
from assay.evidence.study import Arm, Budget, Study
from assay.parts.chat import Chat


@dataclass(frozen=True)
class Asking:
    """The ``run`` of an arm that asks a language model: ``ask(chat, given, seed, budget)``.

    Without a model the arm's cells are missing one, and the claims about it stay untested.
    """

    ask: Callable[[Chat, Any, int, Budget], Any]
    chat: Chat | None = None

    def __call__(self, given: Any, seed: int, budget: Budget) -> Any:
        """Ask the user's model."""
        if self.chat is None:
            raise EndpointError("needs a language model: --endpoint URL --llm NAME")
        return self.ask(self.chat, given, seed, budget)


def with_endpoint(study: Study, chat: Chat) -> Study:
    """The study with the user's language model in the arms that ask one; ``InputError`` where none does."""
    arms = tuple(
        dataclasses.replace(arm, run=dataclasses.replace(arm.run, chat=chat)) if isinstance(arm.run, Asking) else arm
        for arm in study.arms
    )
    if arms == study.arms:
        raise InputError(f"{study.name} does not accept --endpoint; no arm of it asks a language model")
    return dataclasses.replace(study, arms=arms)


def model_asked(arm: Arm) -> str:
    """The model that an arm asks and where, in words; empty for an arm that asks none."""
    run = getattr(arm.run, "run", arm.run)  # a placebo's arm has another around it
    return f"{run.chat.model} at {run.chat.base_url}" if isinstance(run, Asking) and run.chat else ""
