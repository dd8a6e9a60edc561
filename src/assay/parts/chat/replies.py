"""What came of a request: a reply, or a failure that says why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from assay.errors import EndpointError

Kind = Literal[
    "connection",  # none could be made
    "cut",  # it was cut, before the reply or in it
    "time",  # too slow
    "busy",  # 429, 5xx: asked again as often as allowed
    "request",  # the endpoint does not take this request: too long, a wrong setting, against its rules
    "reply",  # what came is no chat completion
    "size",  # what came was too large
    "key",  # the key is missing or wrong
    "forbidden",  # the key is right and may not do this, or this request is against the rules
    "credit",  # there is no money left
    "model",  # there is no such model
    "address",  # base_url is not that of a chat endpoint
    "stopped",  # not sent, because the endpoint had stopped working
]

DEAD: frozenset[Kind] = frozenset({"connection", "key", "credit", "model", "address"})
"""Kinds of failure that the next request will meet as well."""


@dataclass(frozen=True)
class Usage:
    """Tokens that were read and written, as the endpoint counts them."""

    prompt_tokens: int
    completion_tokens: int

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens)


@dataclass(frozen=True)
class Sample:
    """One answer."""

    text: str
    finish_reason: str | None = None
    """``"stop"``, ``"length"`` where it was cut at ``max_tokens``, or another word of the endpoint."""


@dataclass(frozen=True)
class Reply:
    """The answers to one conversation."""

    samples: tuple[Sample, ...]
    """As many as were asked for."""
    usage: Usage | None = None
    """None where the endpoint does not say."""
    model: str = ""
    """The name that the endpoint gives the model."""
    attempts: int = 1
    seconds: float = 0.0
    """From the first request to the last byte, waits included; of a kept reply, what it took when it was made."""
    cached: bool = False
    ok: Literal[True] = field(default=True, init=False)

    @property
    def text(self) -> str:
        """The first answer."""
        return self.samples[0].text


@dataclass(frozen=True)
class Failure:
    """Why a conversation has no answer."""

    kind: Kind
    reason: str
    """One sentence."""
    status: int | None = None
    """The HTTP status, where one came."""
    attempts: int = 1
    seconds: float = 0.0
    samples: tuple[Sample, ...] = ()
    """Those that came before it failed, where several were asked for."""
    ok: Literal[False] = field(default=False, init=False)

    def error(self) -> EndpointError:
        """The failure as an exception."""
        return EndpointError(self.reason)


def total_usage(results: Iterable[Reply | Failure], *, cached: bool = False) -> Usage:
    """Add up the tokens of replies; those whose endpoint did not say count as 0.

    Parameters
    ----------
    results
        Replies and failures.
    cached
        Whether replies that were kept from before count as well.

    Examples
    --------
    >>> replies = [Reply((Sample("yes"),), Usage(10, 1)), Reply((Sample("no"),), Usage(12, 1), cached=True)]
    >>> total_usage(replies)
    Usage(prompt_tokens=10, completion_tokens=1)
    """
    total = Usage(0, 0)
    for result in results:
        if isinstance(result, Reply) and result.usage is not None and (cached or not result.cached):
            total += result.usage
    return total
