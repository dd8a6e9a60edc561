"""Language models in the loop: rows to learn from, a reward for trainers, and a client that acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import InputError, one_line
from assay.parts.trl import RewardFunction, trl_reward

from .actions import Action, ParseError, parse_action
from .environment import RepairEnv, prompt
from .saboteur import Instance, instances_of
from .scoring import RewardSpec, reward_spec


def sft_rows(instances: Sequence[Instance], policy: Any = None) -> list[dict[str, Any]]:
    """Return chat rows to learn from: a state, and the action that a policy takes there, or the true undo.

    Parameters
    ----------
    instances
        To walk through.
    policy
        Anything with ``act(env)``; by default the edits that take the error back.
    """
    if policy is not None and not callable(getattr(policy, "act", None)):
        raise TypeError(f"policy must have a method act(env), and {type(policy).__name__} has none")
    rows = []
    for instance in instances_of(instances):
        env = RepairEnv(instance, max_steps=10)
        env.reset()
        undo = iter(instance.undo)
        while not env.done:
            action = policy.act(env) if policy is not None else next(undo, Action("SUBMIT"))
            rows.append({"messages": [*prompt(env), {"role": "assistant", "content": str(action)}]})
            env.step(action)
    return rows


def rl_rows(instances: Sequence[Instance]) -> list[dict[str, Any]]:
    """Return rows for a trainer that samples replies: the prompt of each first state, and the instance's id.

    Parameters
    ----------
    instances
        To learn from; :func:`reward_for` turns their ids back into them.
    """
    rows = []
    for instance in instances_of(instances):
        env = RepairEnv(instance)
        env.reset()
        rows.append({"prompt": prompt(env), "instance": instance.id})
    return rows


def reward_func(
    prompts: Sequence[Any] | None,
    completions: Sequence[Any],
    instance: Sequence[Instance] | Instance,
    history: Sequence[Sequence[str] | None] | None = None,
    reward: str | RewardSpec = "op",
    **columns: Any,
) -> list[float]:
    """Return the reward of each completion as the next action, in the signature of TRL's GRPO trainer.

    Parameters
    ----------
    prompts
        Not looked at.
    completions
        Texts or chat messages; the last valid action in each counts, and a SUBMIT after it is implied. An empty one is
        a bad action.
    instance
        For each completion, its instance; or one for all.
    history
        For each completion, the actions that came before, or None.
    reward
        As in :class:`RepairEnv`.
    columns
        Other columns, not looked at.

    Raises
    ------
    InputError
        For columns of other lengths, completions that are neither texts nor messages, and instances that are none.
    """
    return _rewards(prompts, completions, instance, history, reward, {})


def reward_for(instances: Sequence[Instance], *, reward: str | RewardSpec = "op") -> RewardFunction:
    """Return :func:`reward_func` for a data set that holds the ids of instances: a table cannot hold models.

    Parameters
    ----------
    instances
        All that the data set names.
    reward
        As in :class:`RepairEnv`.

    Examples
    --------
    >>> from assay.reasoning.orloop import generate
    >>> made = generate(1, errors="A", domains="transport", seed=4)
    >>> score = reward_for(made)
    >>> right, wrong = score(["", ""], [str(made[0].undo[0]), "no idea"], instance=[made[0].id] * 2)
    >>> right, wrong < 0
    (79.8, True)
    """
    given = instances_of(instances)
    known = {one.id: one for one in given}
    if len(known) < len(given):
        raise InputError("instances must have different ids")
    spec = reward_spec(reward)

    def orloop_reward(
        prompts: Sequence[Any] | None,
        completions: Sequence[Any],
        instance: Any,
        history: Sequence[Sequence[str] | None] | None = None,
        **columns: Any,
    ) -> list[float]:
        return _rewards(prompts, completions, instance, history, spec, known)

    return orloop_reward  # type: ignore[return-value]


def _rewards(
    prompts: Sequence[Any] | None,
    completions: Sequence[Any],
    instance: Any,
    history: Any,
    reward: str | RewardSpec,
    known: dict[str, Instance],
) -> list[float]:
    spec, cache = reward_spec(reward), {}  # type: ignore[var-annotated]

    def orloop(prompt: str, completion: str, instance: Any, history: Any = None) -> float:
        one = known.get(instance, instance) if isinstance(instance, str) else instance
        if not isinstance(one, Instance):
            raise InputError(f"instance must hold instances or ids that are known, got {one_line(repr(one), 60)}")
        if isinstance(history, str):
            raise InputError("history must hold, for each completion, a list of actions or None; got a text")
        env = RepairEnv(one, reward=spec, cache=cache)
        env.reset()
        total = 0.0
        for action in [*(history or ()), completion, Action("SUBMIT")]:
            if not env.done:
                total += env.step(action)[1]
        return float(total)

    return trl_reward(orloop)(prompts, completions, instance=instance, history=history)  # type: ignore[return-value]


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
    most_tokens
        Of a reply; None for what the endpoint gives.

    Raises
    ------
    InputError, TypeError
        For arguments that are not as described.
    """

    base_url: str
    model: str
    key_env: str | None = None
    temperature: float = 0.0
    max_retries: int = 2
    timeout: float = 60.0
    most_tokens: int | None = None

    def __post_init__(self) -> None:
        self._chat()

    def act(self, env: RepairEnv) -> Action | str:
        """Return the model's next action, or its text where that holds none; EndpointError where none comes."""
        reply = self._chat().ask(prompt(env), temperature=self.temperature, max_tokens=self.most_tokens)
        return _action_or_text(reply.samples[0].text)

    def _chat(self) -> Any:
        from assay.parts.chat import Chat, Timeouts  # needs a package of its own

        return Chat(
            self.base_url,
            self.model,
            key_env=self.key_env,
            retries=self.max_retries,
            timeouts=Timeouts(connect=min(10.0, self.timeout), read=self.timeout, total=3 * self.timeout),
            cache=False,
        )


@dataclass(frozen=True)
class HFAgent:
    """A Hugging Face model with a chat template, as an agent.

    Parameters
    ----------
    model, tokenizer
        As loaded by transformers: a causal language model, and a tokenizer with a chat template.
    most_tokens
        Of a reply.

    Raises
    ------
    InputError
        For a tokenizer without a chat template.

    Notes
    -----
    ::

        model = AutoModelForCausalLM.from_pretrained(folder)
        agent = HFAgent(model, AutoTokenizer.from_pretrained(folder))
        scores = evaluate(agent, instances)
    """

    model: Any
    tokenizer: Any
    most_tokens: int = 64

    def __post_init__(self) -> None:
        if not getattr(self.tokenizer, "chat_template", None):
            raise InputError("tokenizer has no chat template: set tokenizer.chat_template")

    def act(self, env: RepairEnv) -> Action | str:
        """Return the model's next action, or its text where that holds none."""
        inputs = self.tokenizer.apply_chat_template(
            prompt(env), add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to(self.model.device)
        # A model's list may name the end of a turn, and its tokenizer the end of a text: either ends a reply.
        ends = self.model.generation_config.eos_token_id
        ends = [*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id]
        ends = list(dict.fromkeys(end for end in ends if end is not None))
        padding = self.tokenizer.pad_token_id
        out = self.model.generate(
            **inputs,
            max_new_tokens=self.most_tokens,
            do_sample=False,
            eos_token_id=ends or None,
            pad_token_id=next(iter(ends), None) if padding is None else padding,
        )
        return _action_or_text(self.tokenizer.decode(out[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True))


def _action_or_text(text: str) -> Action | str:
    action = parse_action(text)
    return text if isinstance(action, ParseError) else action
