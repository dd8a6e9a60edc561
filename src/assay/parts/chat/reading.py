"""Reading what an endpoint sends: completions, whole or in pieces, and its errors. All of it is data of any kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from assay.errors import one_line
from assay.parts.chat.replies import Kind, Reply, Sample, Usage

MOST_CHOICES = 1024


@dataclass(eq=False)
class Refused(Exception):
    """An attempt that gave no reply."""

    kind: Kind
    reason: str
    status: int | None = None
    again: bool = False
    """Whether the same request may do better the next time."""
    wait: float | None = None
    """Seconds that the endpoint asks to wait."""

    def __str__(self) -> str:
        return self.reason


@dataclass
class _Choice:
    pieces: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    finish_reason: str | None = None

    def sample(self) -> Sample:
        text = "".join(self.pieces) or "".join(self.refusal)
        return Sample(clean(text), self.finish_reason)


def clean(text: str) -> str:
    """Text that can be written as UTF-8: halves of a character that stand alone are replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def whole_reply(body: bytes, where: str, kind: str) -> Reply:
    """The reply in the body of a response that came whole.

    Parameters
    ----------
    body, kind
        The bytes, and the content type that the endpoint says they have.
    where
        Its address, for errors.

    Raises
    ------
    Refused
        When they are no chat completion.
    """
    found = loaded(body)
    if found is None:
        if "html" in kind or body.lstrip()[:1] == b"<":
            raise Refused("address", f"{where} answers with a web page: {ADDRESS}")
        raise Refused("reply", f"{where} answers with what is no JSON ({kind or 'no content type'})", again=True)
    _raise_error(found, where)
    choices: dict[int, _Choice] = {}
    _take(found, choices, "message")
    if not choices:
        raise Refused("reply", f"{where} answers without a choice that has a message", again=True)
    return _reply(choices, _usage(found), _name(found))


class Pieces:
    """A reply that comes in pieces, each the data of one server-sent event.

    Parameters
    ----------
    where
        Its address, for errors.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._choices: dict[int, _Choice] = {}
        self._usage: Usage | None = None
        self._model = ""

    def add(self, data: str) -> bool:
        """Take a piece, and say whether it was the last.

        Raises
        ------
        Refused
            When it is an error, or nothing of the protocol.
        """
        if data.strip() == "[DONE]":
            return True
        found = loaded(data)
        if found is None:
            raise Refused("reply", f"{self._where} sends an event that is no JSON", again=True)
        _raise_error(found, self._where)
        _take(found, self._choices, "delta")
        self._usage = _usage(found) or self._usage
        self._model = self._model or _name(found)
        return False

    def reply(self, *, done: bool) -> Reply:
        """The whole; ``done`` says whether the endpoint said that it is.

        Raises
        ------
        Refused
            When the stream ended too early.
        """
        if not self._choices:
            raise Refused("reply", f"{self._where} ends its stream without an answer", again=True)
        if not done and any(choice.finish_reason is None for choice in self._choices.values()):
            raise Refused("cut", f"{self._where} cut its answer short", again=True)
        return _reply(self._choices, self._usage, self._model)


ADDRESS = "base_url must be what stands before /chat/completions, and mostly ends in /v1"


def error_words(body: bytes, hide: Callable[[str], str]) -> tuple[str, str]:
    """What an endpoint says of its error, as at most 200 characters on one line, and its code or type in lower case."""
    found = loaded(body)
    error = found.get("error", found) if isinstance(found, dict) else None
    if isinstance(error, dict):
        said = error.get("message", error.get("detail", ""))
        code = " ".join(str(error[key]) for key in ("code", "type") if isinstance(error.get(key), str))
    elif found is not None:
        said, code = error, ""
    else:
        text = body.decode("utf-8", "replace")
        said, code = "" if text.lstrip().startswith("<") else text, ""
    words = said if isinstance(said, str) else "" if said is None else json.dumps(said)[:1000]
    return one_line(hide(words), 200), one_line(code, 100).lower()


def loaded(body: bytes | str) -> Any:
    """The JSON in a body; None where there is none, or it is nested too deeply to be a reply."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _raise_error(found: Any, where: str) -> None:
    """Some gateways send their errors with the status 200."""
    error = found.get("error") if isinstance(found, dict) else None
    if not error:
        return
    said = error.get("message", "") if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    again = status is None or status in (408, 429) or status >= 500
    raise Refused("busy" if again else "request", f"{where} reports an error: {one_line(said, 200)}", status, again)


def _take(found: Any, choices: dict[int, _Choice], part: str) -> None:
    """Add the texts of a message or a piece of it to the choices."""
    given = found.get("choices") if isinstance(found, dict) else None
    for place, one in enumerate(given[:MOST_CHOICES] if isinstance(given, list) else ()):
        if not isinstance(one, dict):
            continue
        index = one.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < MOST_CHOICES:
            index = place
        said, reason = one.get(part), one.get("finish_reason")
        if not isinstance(said, dict) and not (part == "delta" and isinstance(reason, str)):
            continue
        choice = choices.setdefault(index, _Choice())
        if isinstance(said, dict):
            choice.pieces.append(_text(said.get("content")))
            choice.refusal.append(_text(said.get("refusal")))
        if isinstance(reason, str):
            choice.finish_reason = one_line(reason, 40)


def _text(content: Any) -> str:
    """The text of a content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "".join(part for part in parts if isinstance(part, str))


def _usage(found: Any) -> Usage | None:
    given = found.get("usage") if isinstance(found, dict) else None
    if not isinstance(given, dict):
        return None
    prompt, completion = _count(given.get("prompt_tokens")), _count(given.get("completion_tokens"))
    return None if prompt is None or completion is None else Usage(prompt, completion)


def _count(said: Any) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 2**53 else None


def _name(found: Any) -> str:
    name = found.get("model") if isinstance(found, dict) else None
    return one_line(name, 200) if isinstance(name, str) else ""


def _reply(choices: dict[int, _Choice], usage: Usage | None, model: str) -> Reply:
    return Reply(tuple(choices[index].sample() for index in sorted(choices)), usage, model)
