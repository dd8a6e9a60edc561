"""Exact logarithms: products of rational powers of primes, as vectors of exponents."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

Log = dict[int, Fraction]

SINES: dict[int, Fraction] = {30: Fraction(1, 4), 45: Fraction(1, 2), 60: Fraction(3, 4), 90: Fraction(1)}
"""Squares of sines that are rational."""


MOST = 10**13
"""Larger numbers are not taken apart: what would need them stays underived."""


def small(value: Fraction) -> bool:
    """Whether a number can be taken apart into primes in little time."""
    return max(value.numerator, value.denominator) <= MOST


@lru_cache(maxsize=4096)
def factors(n: int) -> tuple[tuple[int, int], ...]:
    """Primes and exponents of a positive integer."""
    found, p = [], 2
    while p * p <= n:
        k = 0
        while n % p == 0:
            n //= p
            k += 1
        if k:
            found.append((p, k))
        p += 1
    return (*found, (n, 1)) if n > 1 else tuple(found)


def log(value: Fraction, power: Fraction = Fraction(1)) -> Log:
    """The logarithm of value ** power."""
    total: Log = {p: k * power for p, k in factors(value.numerator)}
    for p, k in factors(value.denominator):
        total[p] = total.get(p, Fraction(0)) - k * power
    return total


def square(of: Log) -> Fraction | None:
    """The square of what the logarithm is of, where that is rational."""
    value = Fraction(1)
    for p, k in of.items():
        if (2 * k).denominator != 1:
            return None
        value *= Fraction(p) ** int(2 * k)
    return value


def number(of: Log) -> float:
    """What the logarithm is of."""
    return math.exp(sum(float(k) * math.log(p) for p, k in of.items()))


def root(value: Fraction) -> Fraction | None:
    """The square root where it is rational."""
    if value < 0:
        return None
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    good = top * top == value.numerator and bottom * bottom == value.denominator
    return Fraction(top, bottom) if good else None
