"""A made-up shop with six tables, and queries on it: a second database for the study, unlike the flights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from .samples import Pool

Rng = np.random.Generator

_CITIES = ("Bern", "Graz", "Lyon", "Porto", "Turin")
_KINDS = ("book", "game", "lamp", "shoe")
_STATES = ("open", "paid", "sent")
_FUNCTIONS = ("AVG", "MAX", "MIN", "SUM")


def tables(rng: Rng, orders: int) -> dict[str, pd.DataFrame]:
    """Customers, stores, products, orders, their items, and returns; amounts are skewed, as they are in shops."""
    customers, products, stores, items = orders // 4, orders // 4, 12, 2 * orders
    returned = np.sort(rng.choice(items, items // 10, replace=False))
    return {
        "customers": pd.DataFrame(
            {
                "id": np.arange(customers),
                "city": rng.choice(_CITIES, customers),
                "age": rng.integers(18, 80, customers),
                "points": rng.geometric(0.02, customers),
            }
        ),
        "stores": pd.DataFrame(
            {"id": np.arange(stores), "city": rng.choice(_CITIES, stores), "area": 50 * rng.integers(2, 12, stores)}
        ),
        "products": pd.DataFrame(
            {
                "id": np.arange(products),
                "kind": rng.choice(_KINDS, products),
                "price": np.round(5 + rng.gamma(2, 15, products), 2),
                "stock": rng.integers(0, 60, products),
            }
        ),
        "orders": pd.DataFrame(
            {
                "id": np.arange(orders),
                "customer": rng.integers(0, customers, orders),
                "store": rng.integers(0, stores, orders),
                "month": rng.integers(1, 13, orders),
                "state": rng.choice(_STATES, orders),
            }
        ),
        "items": pd.DataFrame(
            {
                "id": np.arange(items),
                "order_id": rng.integers(0, orders, items),
                "product": rng.integers(0, products, items),
                "amount": rng.geometric(0.4, items),
                "paid": np.round(rng.gamma(2, 20, items), 2),
            }
        ),
        "returns": pd.DataFrame({"item": returned, "days": rng.integers(1, 30, len(returned))}),
    }


def _pick(rng: Rng, among: tuple[str, ...]) -> str:
    return str(rng.choice(among))


def _of_orders(rng: Rng, table: str = "") -> str:
    if rng.random() < 0.5:
        return f"{table}state = '{_pick(rng, _STATES)}'"
    low = int(rng.integers(1, 9))
    return f"{table}month BETWEEN {low} AND {low + int(rng.integers(1, 4))}"


def _of_items(rng: Rng, table: str = "") -> str:
    return (
        f"{table}amount >= {int(rng.integers(1, 5))}"
        if rng.random() < 0.5
        else f"{table}paid > {rng.integers(2, 12) * 5}"
    )


TEMPLATES: tuple[Callable[[Rng], str], ...] = (
    lambda rng: (
        f"SELECT id, city FROM customers WHERE age > {rng.integers(25, 60)} AND points < {rng.integers(2, 12) * 10}"
    ),
    lambda rng: (
        f"SELECT kind, {_pick(rng, _FUNCTIONS)}({_pick(rng, ('price', 'stock'))}) FROM products "
        f"WHERE price > {rng.integers(5, 40)} GROUP BY kind"
    ),
    lambda rng: (
        f"SELECT c.city, COUNT(DISTINCT o.id) FROM orders AS o JOIN customers AS c ON o.customer = c.id "
        f"WHERE {_of_orders(rng, 'o.')} AND c.age > {rng.integers(20, 60)} GROUP BY c.city ORDER BY c.city"
    ),
    lambda rng: (
        f"SELECT p.kind, {_pick(rng, _FUNCTIONS)}(i.{_pick(rng, ('amount', 'paid'))}) FROM items AS i JOIN products "
        f"AS p ON i.product = p.id JOIN orders AS o ON i.order_id = o.id WHERE {_of_orders(rng, 'o.')} GROUP BY p.kind "
        f"HAVING COUNT(*) > {rng.integers(5, 40)}"
    ),
    lambda rng: (
        f"SELECT id FROM items WHERE paid > (SELECT {_pick(rng, ('AVG', 'MAX'))}(paid) FROM items "
        f"WHERE {_of_items(rng)} AND product < {rng.integers(5, 200)}) AND {_of_items(rng)}"
    ),
    lambda rng: (
        f"SELECT DISTINCT s.city FROM stores AS s JOIN orders AS o ON o.store = s.id "
        f"WHERE s.area > {rng.integers(2, 9) * 50} AND {_of_orders(rng, 'o.')}"
    ),
    lambda rng: (
        f"SELECT id FROM customers WHERE id IN (SELECT customer FROM orders WHERE {_of_orders(rng)}) "
        f"AND city = '{_pick(rng, _CITIES)}' AND points > {rng.integers(0, 8) * 5}"
    ),
    lambda rng: (
        f"SELECT product FROM items WHERE {_of_items(rng)} {_pick(rng, ('INTERSECT', 'EXCEPT'))} SELECT i.product "
        f"FROM items AS i JOIN returns AS r ON r.item = i.id WHERE r.days > {rng.integers(3, 25)}"
    ),
)

_SWAPS = (("price", "stock"), ("amount", "paid"), ("age", "points"))
POOL = Pool(
    (*_CITIES, *_STATES, *_KINDS),
    {a: (b,) for pair in _SWAPS for a, b in (pair, pair[::-1])},
)
