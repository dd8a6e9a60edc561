"""A plain scorer as a reward function for the trainers of TRL (GRPO, RLOO); TRL itself is not needed."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from assay.errors import InputError, one_line

Scorer = Callable[..., float | None]
"""``scorer(prompt, completion, **columns)``: how good a completion is, or None where it cannot be judged."""

RewardFunction = Callable[..., list[float | None]]
"""``reward(prompts, completions, **columns)``: one reward for each completion, as TRL calls it."""


def trl_reward(
    scorer: Scorer,
    *,
    name: str | None = None,
    messages: bool = False,
    on_error: Literal["raise", "none"] = "raise",
) -> RewardFunction:
    """Return a function that a trainer of TRL takes in ``reward_funcs``.

    The trainer calls it with lists: the prompts, the completions and every other column of the data set. The scorer
    gets one row of them: the columns that it names, or all where it takes ``**kwargs``. What is no list, such as the
    trainer's state, it gets as it is.

    Parameters
    ----------
    scorer
        ``scorer(prompt, completion, **columns)``, with a number or None as its result; None leaves the completion out
        of this reward.
    name
        Under which the trainer logs the reward; by default that of the scorer.
    messages
        Whether the scorer gets prompts and completions as they are. By default it gets texts, and where the data set
        is one of conversations, what :func:`prompt_text` and :func:`completion_text` find in them: it need not know
        which of the two kinds it is.
    on_error
        ``"raise"``: what the scorer raises ends the training, with a note on the row. ``"none"``: it is a warning, and
        the reward is None. A result that is no finite number always raises.

    Raises
    ------
    TypeError, ValueError
        Here, for a scorer that cannot be called and an unknown ``on_error``. When called: InputError, a ValueError,
        for lists of different lengths, a column that the scorer needs and the data set lacks, messages that are none,
        and results that are no finite number.

    Notes
    -----
    The signature is that of the custom reward functions of TRL's GRPOTrainer.

    Examples
    --------
    >>> reward = trl_reward(lambda prompt, completion, answer: float(completion == answer), name="exact")
    >>> reward(["1+1?", "1+2?"], ["2", "4"], answer=["2", "3"], completion_ids=[[5], [7]])
    [1.0, 0.0]
    >>> reward([[{"role": "user", "content": "1+1?"}]], [[{"role": "assistant", "content": "2"}]], answer=["2"])
    [1.0]
    """
    if not callable(scorer):
        raise TypeError(f"scorer must be a function, got {type(scorer).__name__}")
    if on_error not in ("raise", "none"):
        raise ValueError(f"on_error must be 'raise' or 'none', got {on_error!r}")
    named = str(name or getattr(scorer, "__name__", type(scorer).__name__))
    needed, known, takes_all = _columns_of(scorer)

    def reward(
        prompts: Sequence[Any] | None = None, completions: Sequence[Any] | None = None, **columns: Any
    ) -> list[float | None]:
        rows = _row_count(named, prompts, completions, columns)
        given = {column: value for column, value in columns.items() if takes_all or column in known}
        missing = [column for column in needed if column not in given]
        if missing:
            have = ", ".join(sorted(columns)) or "none"
            raise InputError(f"{named} needs the column {missing[0]}, and the data set has {have}")
        rewards: list[float | None] = []
        for row in range(rows):
            prompt, completion = prompts[row] if prompts is not None else "", completions[row]  # type: ignore[index]
            if not messages:
                prompt = _in_row(prompt_text, prompt, named, "prompts", row)
                completion = _in_row(completion_text, completion, named, "completions", row)
            own = {column: value[row] if _is_column(value) else value for column, value in given.items()}
            try:
                score = scorer(prompt, completion, **own)
            except Exception as error:
                if on_error == "none":
                    warnings.warn(
                        f"{named} could not score a row: {one_line(repr(error))}", RuntimeWarning, stacklevel=2
                    )
                    rewards.append(None)
                    continue
                error.add_note(f"{named} was scoring the row {row} of {rows}")
                raise
            rewards.append(_number(score, named, row))
        return rewards

    reward.__name__ = reward.__qualname__ = named
    reward.__doc__ = inspect.getdoc(scorer)
    return reward


def prompt_text(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """Return a prompt's text: itself, or what the user said last in a conversation.

    Raises
    ------
    InputError
        For what is neither a text nor a list of messages.

    Examples
    --------
    >>> prompt_text([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}])
    '1+1?'
    """
    return _said_last(prompt, "user")


def completion_text(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """Return a completion's text: itself, or the last message of the assistant; "" where it said nothing.

    Raises
    ------
    InputError
        For what is neither a text nor a list of messages.

    Examples
    --------
    >>> calls = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "2"}]
    >>> completion_text([*calls, {"role": "assistant", "content": "It is 2."}])
    'It is 2.'
    """
    return _said_last(completion, "assistant")


def _said_last(given: Any, role: str) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, Mapping) or not isinstance(given, Sequence):
        raise InputError(f"must be a text or a list of messages, got {type(given).__name__}")
    found = ""
    for message in given:
        if not isinstance(message, Mapping) or "content" not in message:
            raise InputError(f"must hold messages with a role and a content, got {one_line(message, 80)}")
        if message.get("role", role) == role:  # TRL's own examples leave the role out
            found = _text(message["content"])
    return found


def _text(content: Any) -> str:
    """The text of a content, which may be a list of texts and images."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(text for text in texts if isinstance(text, str))
    raise InputError(f"must have a text or a list of parts as content, got {type(content).__name__}")


def _columns_of(scorer: Scorer) -> tuple[list[str], set[str], bool]:
    """The columns that a scorer must have, those that it may have, and whether it takes any."""
    try:
        parameters = list(inspect.signature(scorer).parameters.values())
    except (TypeError, ValueError):  # some functions written in C
        return [], set(), False
    given_by_place = 2
    needed, known, takes_all = [], set(), False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_all = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            given_by_place = 0
        elif given_by_place and parameter.kind is not parameter.KEYWORD_ONLY:
            given_by_place -= 1  # the prompt and the completion
        elif parameter.kind is not parameter.POSITIONAL_ONLY:
            known.add(parameter.name)
            if parameter.default is parameter.empty:
                needed.append(parameter.name)
    if given_by_place:
        raise TypeError("scorer must take a prompt and a completion as its first two arguments")
    return needed, known, takes_all


def _row_count(
    named: str, prompts: Sequence[Any] | None, completions: Sequence[Any] | None, columns: Mapping[str, Any]
) -> int:
    if completions is None or not _is_column(completions):
        raise InputError(f"{named} needs completions, a list of texts or of conversations")
    lists = {"prompts": prompts} | {column: value for column, value in columns.items() if _is_column(value)}
    for column, value in lists.items():
        if value is not None and (not _is_column(value) or len(value) != len(completions)):
            size = f"{len(value)} rows" if _is_column(value) else f"a {type(value).__name__}"
            raise InputError(
                f"{named}: {column} must have a row for each of {len(completions)} completions, got {size}"
            )
    return len(completions)


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _in_row(text: Callable[[Any], str], value: Any, named: str, column: str, row: int) -> str:
    try:
        return text(value)
    except InputError as error:
        raise InputError(f"{named}: {column}[{row}] {error}") from None


def _number(score: Any, named: str, row: int) -> float | None:
    if score is None:
        return None
    try:
        number = float(score)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(score, str) or not math.isfinite(number):
        raise InputError(
            f"{named} must give a finite number or None, and gave {one_line(repr(score), 80)} for row {row}"
        )
    return number
