"""What an argument must be, said at the door and by its name."""

from __future__ import annotations

from typing import Any


def must_be(name: str, value: Any, kinds: type | tuple[type, ...], what: str) -> None:
    """Refuse a value of another type; True and False are no numbers.

    Raises
    ------
    TypeError
        When it is one.
    """
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"{name} must be {what}, got {type(value).__name__}")
