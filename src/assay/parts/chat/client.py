"""The client: many conversations at once, each asked again until it has its reply or a reason why not."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit

from assay.errors import EndpointError, InputError, one_line
from assay.parts.cache import cache_folder
from assay.parts.chat.replies import Failure, Reply
from assay.parts.chat.reply_cache import ReplyCache
from assay.parts.chat.requests import Message, Request, make_requests
from assay.parts.chat.sending import Connection


@dataclass(frozen=True)
class Timeouts:
    """Seconds to wait: for a connection, for the next bytes, and for a conversation with all its attempts and waits."""

    connect: float = 10.0
    read: float = 300.0
    total: float = 900.0

    def __post_init__(self) -> None:
        for name in ("connect", "read", "total"):
            _positive(f"timeouts.{name}", getattr(self, name))


class Options(TypedDict, total=False):
    """What may be set for a call; :meth:`Chat.each` says what each means."""

    n: int
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    seed: int | None
    stop: str | Sequence[str] | None
    extra: Mapping[str, Any] | None


@dataclass(frozen=True)
class Chat:
    """A model behind an endpoint that speaks the protocol of OpenAI's chat completions.

    It holds no connection and no key: it can be kept, copied and sent to other processes. The key is read from the
    environment for each call, is sent to ``base_url`` alone, and is written nowhere. What a model replies is text;
    nothing here runs it.

    Parameters
    ----------
    base_url
        What stands before ``/chat/completions``: ``http://localhost:8000/v1``.
    model
        The name by which the endpoint knows the model.
    key_env
        The name of the environment variable that holds the key; None where none is needed.
    concurrency
        How many conversations are under way at once.
    retries
        How often a conversation is asked again that failed by chance: a cut or slow connection, too many requests, an
        error of the server. Before the first reply, a server that cannot be reached is tried three times at most.
    timeouts
        See :class:`Timeouts`.
    stream
        Whether replies come in pieces. The result is the same; a slow model does not run into the time to read.
    cache
        Where replies are kept, so that no request is paid twice and an interrupted run goes on where it was: True for
        a file in the user's cache folder, the path of a file, or False for nowhere. It holds replies and digests of
        requests, no requests and no keys. With a temperature, the kept answer is the same each time: another ``seed``
        asks anew, and so does a second copy of a conversation in the same list.
    backoff
        Seconds before the first repetition, doubled for each further one and shortened by chance. Where the endpoint
        says how long to wait (Retry-After), all conversations wait for so long.
    most_bytes
        A larger reply is refused.

    Raises
    ------
    InputError, TypeError
        For arguments that are not as described.

    Examples
    --------
    >>> Chat("localhost:8000", "small")
    Traceback (most recent call last):
    assay.errors.InputError: base_url must start with http:// or https://, got localhost:8000
    """

    base_url: str
    model: str
    key_env: str | None = None
    concurrency: int = 8
    retries: int = 5
    timeouts: Timeouts = field(default_factory=Timeouts)
    stream: bool = False
    cache: bool | str | Path = True
    backoff: float = 0.5
    most_bytes: int = 16 * 2**20

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", _checked_url(self.base_url))
        if not isinstance(self.model, str) or not self.model.strip():
            raise InputError(f"model must be the name of a model, got {self.model!r}")
        if self.key_env is not None and (not isinstance(self.key_env, str) or not self.key_env):
            raise InputError("key_env must be the name of an environment variable, or None")
        for name, least in (("concurrency", 1), ("retries", 0), ("most_bytes", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
            if value < least:
                raise InputError(f"{name} must be at least {least}, got {value}")
        if not isinstance(self.timeouts, Timeouts):
            raise TypeError(f"timeouts must be Timeouts, got {type(self.timeouts).__name__}")
        _positive("backoff", self.backoff)

    def ask(self, conversation: str | Sequence[Message], **options: Unpack[Options]) -> Reply:
        """Return the reply to one conversation; the options are those of :meth:`each`.

        Raises
        ------
        EndpointError
            When there is none, for whatever reason.
        InputError, TypeError
            For arguments that are not as described.
        """
        (result,) = self.complete([conversation], **options)
        if isinstance(result, Failure):
            raise result.error()
        return result

    def complete(
        self,
        conversations: Sequence[str | Sequence[Message]],
        *,
        progress: Callable[[int, int], object] | None = None,
        **options: Unpack[Options],
    ) -> list[Reply | Failure]:
        """Return a reply or a failure for each conversation, in their order.

        ``progress`` is called with how many are done and how many there are. The options, and what is raised, are
        those of :meth:`each`. Interrupted, it raises KeyboardInterrupt; what was done by then is in the cache.
        """
        results: dict[int, Reply | Failure] = {}
        for place, result in self.each(conversations, **options):
            results[place] = result
            if progress:
                progress(len(results), len(conversations))
        return [results[place] for place in range(len(conversations))]

    def each(
        self,
        conversations: Sequence[str | Sequence[Message]],
        *,
        n: int = 1,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield the place of each conversation with its reply or failure, as soon as it is there.

        One that fails does not stop the others. Requests go on being sent while the caller works on what came;
        leaving the loop ends them.

        Parameters
        ----------
        conversations
            For each, a list of messages ``{"role": ..., "content": ...}``, or a text that the user says. A content may
            be a list of parts (texts, images as data URLs) where the model takes them.
        n
            Samples of each. Where an endpoint gives fewer at once, it is asked again for the rest, with the seed moved
            on by one for each sample that is there.
        temperature, top_p, max_tokens, seed, stop
            As in the protocol; None leaves them to the endpoint. Not every endpoint honours the seed.
        extra
            Further fields of the request, of which None takes one away:
            ``{"max_completion_tokens": 200, "reasoning_effort": "low"}``.

        Raises
        ------
        EndpointError
            When nothing works at all: the address is wrong, nothing answers there, the key is refused, there is no
            such model; in one sentence, with what to do. After the first reply these are failures like others, and
            where they do not end, the remaining conversations are not sent.
        InputError, TypeError
            For arguments that are not as described, a key that is not in the environment, and a cache that cannot be
            used.
        """
        settings = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed, "stop": stop}
        requests = make_requests(
            conversations, model=self.model, stream=self.stream, n=n, settings=settings, extra=extra
        )
        return self._each(requests, self._key(), self._cache_file())

    def _each(
        self, requests: list[Request], key: str | None, cache_file: Path | None
    ) -> Iterator[tuple[int, Reply | Failure]]:
        done: queue.SimpleQueue[tuple[int, Reply | Failure] | BaseException | None] = queue.SimpleQueue()
        loop = asyncio.new_event_loop()
        # In a thread of its own it works in a notebook too, and an interrupt reaches this one.
        work = loop.create_task(self._work(requests, key, cache_file, done.put))
        thread = threading.Thread(target=_run, args=(loop, work, done.put), name="assay-chat", daemon=True)
        thread.start()
        try:
            while (item := done.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            with suppress(RuntimeError):  # it has ended, and its loop is closed
                loop.call_soon_threadsafe(work.cancel)
            thread.join()

    async def _work(
        self,
        requests: list[Request],
        key: str | None,
        cache_file: Path | None,
        report: Callable[[tuple[int, Reply | Failure]], None],
    ) -> None:
        with ReplyCache(cache_file) if cache_file else nullcontext() as cache:
            open_requests = []
            for place, request in enumerate(requests):
                kept = cache.get(request.digest(self.base_url)) if cache else None
                if kept is None:
                    open_requests.append((place, request))
                else:
                    report((place, kept))
            if not open_requests:
                return
            waiting = iter(open_requests)
            async with Connection(self, key, worked=len(open_requests) < len(requests)) as connection:

                async def worker() -> None:
                    for place, request in waiting:
                        result = await connection.result(request)
                        if cache and isinstance(result, Reply):
                            cache.put(request.digest(self.base_url), result)
                        report((place, result))

                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self.concurrency, len(open_requests))):
                        group.create_task(worker())
                connection.raise_if_all_were_forbidden()

    def _key(self) -> str | None:
        if self.key_env is None:
            return None
        key = os.environ.get(self.key_env, "").strip()
        if not key:
            raise InputError(f"the environment variable {self.key_env}, named as key_env, is not set")
        if not (key.isascii() and key.isprintable()):
            raise InputError(f"the environment variable {self.key_env} holds no key: it has characters that no key has")
        return key

    def _cache_file(self) -> Path | None:
        if isinstance(self.cache, bool):
            return cache_folder() / "chat" / "replies.sqlite" if self.cache else None
        return Path(self.cache)


def _run(loop: asyncio.AbstractEventLoop, work: asyncio.Task[None], report: Callable[[Any], None]) -> None:
    """Run the work in this thread, and report how it ended: None, or the error."""
    asyncio.set_event_loop(loop)
    end: BaseException | None = None
    try:
        loop.run_until_complete(work)
    except asyncio.CancelledError:
        pass
    except BaseExceptionGroup as group:
        end = _first(group)
    except BaseException as error:
        end = error
    finally:
        try:
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            report(end)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, EndpointError):
        error.__cause__ = error.__context__ = None
    return error


def _checked_url(url: object) -> str:
    if not isinstance(url, str):
        raise TypeError(f"base_url must be a text, got {type(url).__name__}")
    try:
        parts = urlsplit(url.strip())
        parts.port  # noqa: B018 - raises for what is no port
    except ValueError as error:
        raise InputError(f"base_url is no address: {one_line(error, 80)}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"base_url must start with http:// or https://, got {one_line(url, 80)}")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        # Not shown: it may be a key.
        raise InputError("base_url must hold no user, password, query or fragment: a key goes into the environment")
    if not url.isascii() or any(c.isspace() for c in url.strip()):
        raise InputError(f"base_url must be plain ASCII without spaces, got {one_line(url, 80)}")
    return url.strip().rstrip("/").removesuffix("/chat/completions")


def _positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, got {type(value).__name__}")
    if not 0 < value < float("inf"):
        raise InputError(f"{name} must be positive and finite, got {value}")
