"""Sending requests: time-outs, repetitions, and what the answers of a server mean."""

from __future__ import annotations

import asyncio
import functools
import random
import ssl
import time
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assay.errors import EndpointError, MissingPart, one_line
from assay.parts.chat import reading
from assay.parts.chat.reading import Refused
from assay.parts.chat.replies import DEAD, Failure, Reply, Sample, Usage
from assay.parts.chat.requests import Request
from assay.parts.chat.waits import asked_wait, backoff

try:
    import httpx2
except ModuleNotFoundError as error:
    raise MissingPart(
        f"the client of chat endpoints needs {error.name}", "python -m pip install 'assay[endpoint]'"
    ) from error

if TYPE_CHECKING:
    from assay.parts.chat.client import Chat

_TRIES_AT_FIRST = 3  # to reach a server that has not answered yet
_ENOUGH = 8  # conversations in a row that find the endpoint dead, before the others are not sent
_MOST_ERROR = 64 * 2**10  # bytes of an error that are read
_SAFE_TO_HIDE = 16  # a shorter key ("EMPTY") may well be a word of an answer
_HERE = {"localhost", "127.0.0.1", "::1"}


class Connection:
    """The connections to one endpoint during one call, and what is known of its state.

    Parameters
    ----------
    chat
        The endpoint, and how to treat it.
    key
        Its key.
    worked
        Whether a reply of this call is there already.
    """

    def __init__(self, chat: Chat, key: str | None, *, worked: bool) -> None:
        self._chat = chat
        self._key = key
        self._worked = worked
        self._where = f"{chat.base_url}/chat/completions"
        self._one_at_a_time = False  # whether the endpoint refuses n > 1
        self._not_before = 0.0
        self._dead_in_a_row = 0
        self._forbidden: list[Failure] = []
        self._answered = 0
        self._chance = random.Random()

    async def __aenter__(self) -> Connection:
        # Compressed replies would have an unknown size. Proxies are for the way to other machines.
        headers = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        seconds = self._chat.timeouts
        self._client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(seconds.read, connect=seconds.connect, pool=None),
            limits=httpx2.Limits(max_connections=self._chat.concurrency, keepalive_expiry=5.0),
            follow_redirects=False,
            verify=_trusted(),
            trust_env=urlsplit(self._chat.base_url).hostname not in _HERE,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def result(self, request: Request) -> Reply | Failure:
        """The reply to a request, or why there is none.

        Raises
        ------
        EndpointError
            When nothing has worked in this call, and nothing will.
        """
        if self._dead_in_a_row >= max(_ENOUGH, self._chat.concurrency):
            return Failure("stopped", f"not sent: {self._chat.base_url} had stopped working", attempts=0)
        start = time.monotonic()
        samples: list[Sample] = []
        usages: list[Usage | None] = []
        tries = _Tries()
        model = ""
        try:
            async with asyncio.timeout(self._chat.timeouts.total):
                while len(samples) < request.n:
                    reply = await self._more(request, len(samples), tries, start)
                    samples += reply.samples[: request.n - len(samples)]
                    usages.append(reply.usage)
                    model = reply.model
        except TimeoutError:
            said = f"{self._where} gave no reply within {self._chat.timeouts.total:g} s in all"
            refused = Refused("time", said if tries.last is None else f"{said}; before: {tries.last}")
        except Refused as error:
            refused = error
        else:
            self._worked, self._dead_in_a_row = True, 0
            self._answered += 1
            known = [usage for usage in usages if usage is not None]
            usage = functools.reduce(Usage.__add__, known) if len(known) == len(usages) else None
            samples = [self._hidden(sample) for sample in samples]
            return Reply(tuple(samples), usage, model, tries.count, time.monotonic() - start)
        if refused.kind in DEAD and not self._worked:
            await self._raise(refused)
        self._dead_in_a_row = self._dead_in_a_row + 1 if refused.kind in DEAD else 0
        failure = Failure(
            refused.kind, self._without_key(refused.reason), refused.status, tries.count, time.monotonic() - start,
            tuple(map(self._hidden, samples)),
        )  # fmt: skip
        if refused.kind == "forbidden":
            self._forbidden.append(failure)
        self._answered += 1
        return failure

    def raise_if_all_were_forbidden(self) -> None:
        """One conversation may be against an endpoint's rules; when all are, it is the key that is."""
        if self._forbidden and len(self._forbidden) == self._answered and not self._worked:
            raise self._forbidden[0].error()

    async def _raise(self, refused: Refused) -> None:
        reason = refused.reason
        if refused.kind == "model":
            names = await self._models()
            reason += f"; it has {', '.join(names)}" if names else "; ask its owner for the names of its models"
        raise EndpointError(self._without_key(reason))

    async def _more(self, request: Request, done: int, tries: _Tries, start: float) -> Reply:
        """A reply with at least one more sample."""
        wanted = 1 if self._one_at_a_time else request.n - done
        try:
            return await self._patiently(request.sent(wanted, done), tries, start)
        except Refused as refused:
            if wanted == 1 or refused.kind != "request":
                raise
        reply = await self._patiently(request.sent(1, done), tries, start)
        self._one_at_a_time = True  # n was what it did not take
        return reply

    async def _patiently(self, body: bytes, tries: _Tries, start: float) -> Reply:
        """One request, repeated while that may help."""
        attempt = 0
        while True:
            attempt += 1
            tries.count += 1
            pause = self._not_before - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            try:
                return await self._once(body)
            except Refused as refused:
                tries.last = refused
                unreached = refused.kind == "connection" and not self._worked
                if not refused.again or attempt > self._chat.retries or (unreached and attempt >= _TRIES_AT_FIRST):
                    raise
                wait = backoff(attempt, self._chat.backoff, self._chance)
                if refused.wait is not None:
                    wait = refused.wait
                    left = self._chat.timeouts.total - (time.monotonic() - start)
                    if wait > left:
                        refused.reason += f"; it asks to wait {wait:.0f} s, longer than timeouts.total allows"
                        raise
                    self._not_before = max(self._not_before, time.monotonic() + wait)
            await asyncio.sleep(wait)

    async def _once(self, body: bytes) -> Reply:
        """One attempt."""
        where, seconds = self._where, self._chat.timeouts
        try:
            headers = {"Content-Type": "application/json"}
            async with self._client.stream("POST", where, content=body, headers=headers) as response:
                if response.status_code != 200:
                    raise self._meaning(response, await self._error_body(response))
                kind = one_line(response.headers.get("content-type", "").partition(";")[0], 60).lower()
                if response.headers.get("content-encoding", "identity").lower() != "identity":
                    raise Refused("reply", f"{where} answers in a compressed form that was not asked for")
                if kind == "text/event-stream":
                    return await self._in_pieces(response)
                return reading.whole_reply(await self._whole(response), where, kind)
        except httpx2.ConnectTimeout:
            raise Refused("connection", self._unreached(f"nothing within {seconds.connect:g} s"), again=True) from None
        except httpx2.TimeoutException:
            raise Refused("time", f"{where} sent nothing for {seconds.read:g} s", again=True) from None
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            raise Refused("connection", self._unreached(one_line(error, 120)), again=True) from None
        except httpx2.SSEError:
            raise Refused("size", self._too_large()) from None
        except httpx2.TransportError as error:
            said = one_line(error, 120) or type(error).__name__
            raise Refused("cut", f"{where} cut the connection ({said})", again=True) from None
        except httpx2.InvalidURL as error:
            raise Refused("address", f"{where} is no address ({one_line(error, 120)}): look at base_url") from None

    async def _whole(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._chat.most_bytes:
                raise Refused("size", self._too_large())
        return bytes(body)

    async def _in_pieces(self, response: httpx2.Response) -> Reply:
        pieces = reading.Pieces(self._where)
        done = False
        async for event in httpx2.EventSource(response, max_event_size=self._chat.most_bytes):
            if response.num_bytes_downloaded > self._chat.most_bytes:
                raise Refused("size", self._too_large())
            done = pieces.add(event.data)
            if done:
                break
        return pieces.reply(done=done)

    async def _error_body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MOST_ERROR:
                break
        return bytes(body[:_MOST_ERROR])

    def _meaning(self, response: httpx2.Response, body: bytes) -> Refused:
        """What a status other than 200 says, and what to do."""
        status, chat = response.status_code, self._chat
        words, code = reading.error_words(body, self._without_key)
        said = f"{status}: {words}" if words else str(status)
        if status == 401:
            todo = (
                f"put a valid key into the environment variable {chat.key_env}" if chat.key_env
                else "name the environment variable that holds the key as key_env"
            )  # fmt: skip
            return Refused("key", f"{chat.base_url} refuses the key ({said}): {todo}", status)
        if status == 403:
            return Refused("forbidden", f"{chat.base_url} forbids the request ({said})", status)
        if status == 402 or "insufficient_quota" in code:
            return Refused("credit", f"{chat.base_url} wants to be paid first ({said}): look at the account", status)
        if "model_not_found" in code or (status == 404 and "model" in words.lower()):
            return Refused("model", f"{chat.base_url} knows no model {one_line(chat.model, 80)} ({said})", status)
        if status in (404, 405):
            return Refused("address", f"{self._where} is not there ({said}): {reading.ADDRESS}", status)
        if 300 <= status < 400:
            to = one_line(response.headers.get("location", ""), 120)
            return Refused(
                "address", f"{self._where} sends on ({status}) to {to}: give that server as base_url", status
            )
        if status in (408, 409, 425, 429) or (status >= 500 and status != 501):
            wait = asked_wait(response.headers)
            return Refused("busy", f"{self._where} is busy or broken ({said})", status, again=True, wait=wait)
        return Refused("request", f"{self._where} does not take the request ({said})", status)

    async def _models(self) -> list[str]:
        """Names of some models that the endpoint has, where it says so soon."""
        try:
            async with asyncio.timeout(5), self._client.stream("GET", f"{self._chat.base_url}/models") as response:
                found = reading.loaded(await self._error_body(response))
        except (TimeoutError, httpx2.HTTPError):
            return []
        given = found.get("data") if isinstance(found, Mapping) else None
        ids = [one.get("id") for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
        return sorted(one_line(name, 60) for name in ids[:1000] if isinstance(name, str))[:6]

    def _unreached(self, detail: str) -> str:
        return f"{self._chat.base_url} cannot be reached ({detail}): check base_url, and that the server runs"

    def _too_large(self) -> str:
        return f"{self._where} sends more than most_bytes = {self._chat.most_bytes} bytes for one reply"

    def _without_key(self, text: str) -> str:
        """A server may repeat the key in its errors."""
        return text.replace(self._key, "***") if self._key else text

    def _hidden(self, sample: Sample) -> Sample:
        if not self._key or len(self._key) < _SAFE_TO_HIDE:
            return sample
        return replace(sample, text=self._without_key(sample.text))


class _Tries:
    """How often a conversation was sent, and what came of it the last time."""

    def __init__(self) -> None:
        self.count = 0
        self.last: Refused | None = None


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates of this machine; they are read once, since that is slow."""
    return httpx2.create_ssl_context()
