"""What is asked: conversations and settings, checked at the door, as the bodies of requests."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.errors import InputError, one_line

Message = Mapping[str, Any]
"""A message of a conversation: its ``role`` and its ``content``, a text or a list of parts (texts, images)."""

_OWN = ("model", "messages", "n", "stream")


@dataclass(frozen=True)
class Request:
    """One conversation to be continued."""

    body: Mapping[str, Any]
    """What is sent, without the number of samples."""
    n: int
    copy: int = 0
    """How often the same request stands before it in the same list."""

    def sent(self, n: int, done: int) -> bytes:
        """The body that asks for ``n`` samples after the ``done`` that are there already.

        A seed moves on by one for each of them: the same one would give the same answers again.
        """
        body = dict(self.body)
        if n > 1:
            body["n"] = n
        if done and isinstance(body.get("seed"), int):
            body["seed"] += done
        return json.dumps(body).encode()

    def digest(self, base_url: str) -> str:
        """By which its reply is found. Whether it comes in pieces makes no difference."""
        body = {name: value for name, value in self.body.items() if name not in ("stream", "stream_options")}
        whole = {"version": 1, "at": base_url, "body": body, "n": self.n, "copy": self.copy}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def make_requests(
    conversations: Sequence[str | Sequence[Message]],
    *,
    model: str,
    stream: bool,
    n: int,
    settings: Mapping[str, Any],
    extra: Mapping[str, Any] | None,
) -> list[Request]:
    """Return a request for each conversation.

    Raises
    ------
    InputError, TypeError
        For what is no conversation or no setting, with its place.
    """
    if isinstance(conversations, str) or not isinstance(conversations, Sequence):
        raise TypeError(f"conversations must be a list of lists of messages, got {type(conversations).__name__}")
    _whole("n", n, 1)
    common: dict[str, Any] = {"model": model}
    common |= {name: value for name, value in _checked(settings).items() if value is not None}
    if stream:
        common |= {"stream": True, "stream_options": {"include_usage": True}}
    for name, value in (extra or {}).items():
        if name in _OWN:
            raise InputError(f"extra must not hold {name!r}, which is set otherwise")
        common[name] = value
        if value is None:
            del common[name]
    _jsonable("extra", common)

    seen: dict[str, int] = {}
    requests = []
    for place, conversation in enumerate(conversations):
        body = common | {"messages": _messages(conversation, f"conversations[{place}]")}
        request = Request(body, n)
        same = request.digest("")
        requests.append(replace(request, copy=seen.get(same, 0)))
        seen[same] = seen.get(same, 0) + 1
    return requests


def _messages(conversation: str | Sequence[Message], where: str) -> list[dict[str, Any]]:
    """A conversation as the protocol has it; a text alone is what the user says."""
    if isinstance(conversation, str):
        return [{"role": "user", "content": conversation}]
    if not isinstance(conversation, list | tuple):
        raise TypeError(f"{where} must be a text or a list of messages, got {type(conversation).__name__}")
    if not conversation:
        raise InputError(f"{where} must have at least one message")
    for place, message in enumerate(conversation):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(f"{where}[{place}] must be a message with a role, got {one_line(message, 80)}")
        content = message.get("content")
        if not isinstance(content, str | list) and not (content is None and "tool_calls" in message):
            raise InputError(
                f"{where}[{place}] must have a text or a list of parts as content, got {type(content).__name__}"
            )
    messages = [dict(message) for message in conversation]
    _jsonable(where, messages)
    return messages


def _checked(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, least in (("max_tokens", 1), ("seed", None)):
        if settings[name] is not None:
            _whole(name, settings[name], least)
    for name, most in (("temperature", math.inf), ("top_p", 1)):
        value = settings[name]
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} must be a number, got {type(value).__name__}")
        if not 0 <= value <= most or math.isinf(value):
            raise InputError(f"{name} must be at least 0{f' and at most {most}' if most == 1 else ''}, got {value}")
    stop = settings["stop"]
    if stop is not None and not (
        isinstance(stop, str) or (isinstance(stop, list | tuple) and all(isinstance(s, str) for s in stop))
    ):
        raise TypeError(f"stop must be a text or a list of texts, got {one_line(stop, 80)}")
    return settings


def _whole(name: str, value: object, least: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if least is not None and value < least:
        raise InputError(f"{name} must be at least {least}, got {value}")


def _jsonable(where: str, value: object) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where} cannot be written as JSON: {one_line(error, 120)}") from error
