"""How long to wait before a request is sent again."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

LONGEST = 60.0
"""Seconds between two attempts, unless the endpoint asks for more."""


def backoff(attempt: int, base: float, chance: random.Random) -> float:
    """Seconds to wait after the given attempt, counted from 1: doubled each time, and shortened by up to a half.

    The chance keeps those who failed together from coming back together.
    """
    return min(LONGEST, base * 2.0 ** min(attempt - 1, 30)) * chance.uniform(0.5, 1.0)


def asked_wait(headers: Mapping[str, str], now: datetime.datetime | None = None) -> float | None:
    """Seconds that the endpoint asks to wait, from the header Retry-After; None where it says nothing of use.

    Examples
    --------
    >>> asked_wait({"retry-after": "2"}), asked_wait({"retry-after-ms": "250"}), asked_wait({"retry-after": "soon"})
    (2.0, 0.25, None)
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is not None or not said:
        return seconds
    try:
        until = parsedate_to_datetime(said)
    except (ValueError, TypeError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=datetime.UTC)
    return max(0.0, (until - (now or datetime.datetime.now(datetime.UTC))).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
