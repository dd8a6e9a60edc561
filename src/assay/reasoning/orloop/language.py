"""Language models in the loop: rows to learn from, a reward for trainers, and a client that acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.parts.trl import completion_text

from .actions import Action, ParseError, parse_action
from .environment import RepairEnv, prompt
from .saboteur import Instance


def sft_rows(instances: Sequence[Instance], policy: Any = None) -> list[dict[str, Any]]:
    """Return chat rows to learn from: a state, and the action that a policy takes there, or the true undo.

    Parameters
    ----------
    instances
        To walk through.
    policy
        Anything with ``act(env)``; by default the edits that take the error back.
    """
    rows = []
    for instance in instances:
        env = RepairEnv(instance, max_steps=10)
        env.reset()
        undo = iter(instance.undo)
        while not env.done:
            action = policy.act(env) if policy is not None else next(undo, Action("SUBMIT"))
            rows.append({"messages": [*prompt(env), {"role": "assistant", "content": str(action)}]})
            env.step(action)
    return rows


def reward_func(
    prompts: Sequence[Any] | None,
    completions: Sequence[Any],
    instance: Sequence[Instance],
    history: Sequence[Sequence[str]] | None = None,
    reward: str = "op",
    **columns: Any,
) -> list[float]:
    """Return the reward of each completion as the next action, in the signature of TRL's GRPO trainer.

    Parameters
    ----------
    prompts
        Not looked at.
    completions
        Texts or chat messages; the last valid action in each counts, and the first SUBMIT after it is implied.
    instance
        For each completion, its instance.
    history
        For each completion, the actions that came before.
    reward
        As in :class:`RepairEnv`.
    columns
        Other columns, not looked at.
    """
    out = []
    for i, completion in enumerate(completions):
        env = RepairEnv(instance[i], reward=reward)
        env.reset()
        total = 0.0
        for action in [*(history[i] if history is not None else ()), completion_text(completion), Action("SUBMIT")]:
            if not env.done:
                total += env.step(action)[1]
        out.append(float(total))
    return out


@dataclass(frozen=True)
class OpenAIAgent:
    """A model behind an endpoint that speaks OpenAI's chat completions, as an agent.

    Parameters
    ----------
    base_url, model
        As in :class:`assay.parts.chat.Chat`.
    key_env
        The environment variable that holds the key; None for none.
    temperature
        0 for the likeliest reply.
    max_retries
        Attempts after a failure.
    timeout
        Seconds a reply.
    """

    base_url: str
    model: str
    key_env: str | None = None
    temperature: float = 0.0
    max_retries: int = 2
    timeout: float = 60.0

    def act(self, env: RepairEnv) -> Action | str:
        """Return the model's next action, or its text where that holds none; EndpointError where none comes."""
        from assay.parts.chat import Chat, Timeouts

        chat = Chat(
            self.base_url,
            self.model,
            key_env=self.key_env,
            retries=self.max_retries,
            timeouts=Timeouts(read=self.timeout, total=3 * self.timeout),
            cache=False,
        )
        text = chat.ask(prompt(env), temperature=self.temperature).samples[0].text
        action = parse_action(text)
        return text if isinstance(action, ParseError) else action


@dataclass(frozen=True)
class HFAgent:
    """A Hugging Face model with a chat template, as an agent.

    Parameters
    ----------
    model, tokenizer
        As loaded by transformers.
    most_tokens
        Of a reply.
    """

    model: Any
    tokenizer: Any
    most_tokens: int = 64

    def act(self, env: RepairEnv) -> Action | str:
        """Return the model's next action, or its text where that holds none."""
        inputs = self.tokenizer.apply_chat_template(
            prompt(env), add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to(self.model.device)
        out = self.model.generate(**inputs, max_new_tokens=self.most_tokens, do_sample=False)
        text = self.tokenizer.decode(out[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        action = parse_action(text)
        return text if isinstance(action, ParseError) else action
