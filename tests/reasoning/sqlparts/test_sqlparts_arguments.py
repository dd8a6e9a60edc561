"""Arguments of another kind are refused at the door, by their name."""

import numpy as np
import pandas as pd
import pytest

from assay.errors import InputError
from assay.reasoning.sqlparts import (
    SafeDatabase,
    canonical,
    changed_copies,
    changed_tables,
    choose,
    completion_of,
    execution_match,
    mcs,
    prompt,
    reward_breakdown,
    sft_rows,
)

GOLD = "SELECT a FROM t"
TABLES = {"t": pd.DataFrame({"a": [1, 2]})}


@pytest.fixture(scope="module")
def db():
    with SafeDatabase(TABLES) as db:
        yield db


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("a", lambda db, odd: mcs(odd, canonical(GOLD))),
        ("b", lambda db, odd: mcs(canonical(GOLD), odd)),
        ("schema", lambda db, odd: canonical(GOLD, schema=odd)),
        ("db", lambda db, odd: execution_match(GOLD, GOLD, odd)),
        ("db", lambda db, odd: reward_breakdown("<sql>SELECT 1</sql>", GOLD, odd)),
        ("db", lambda db, odd: choose(["<sql>SELECT 1</sql>"], odd)),
        ("db", lambda db, odd: changed_copies(odd, GOLD)),
        ("weights", lambda db, odd: reward_breakdown("<sql>SELECT 1</sql>", GOLD, db, weights=odd)),
        ("tables", lambda db, odd: changed_tables(odd, [GOLD])),
        ("golds", lambda db, odd: changed_tables(TABLES, odd)),
        ("copies", lambda db, odd: changed_copies(db, GOLD, copies=odd)),
        ("seed", lambda db, odd: changed_copies(db, GOLD, seed=odd)),
        ("sql", lambda db, odd: completion_of(odd)),
        ("schema", lambda db, odd: prompt("?", odd)),
        ("rows", lambda db, odd: sft_rows(odd)),
        ("completions", lambda db, odd: choose(odd, db)),
    ],
)
@pytest.mark.parametrize("odd", [float("nan"), True, np.float64(2.5), object()])
def test_another_kind_is_refused_by_name(name, call, odd, db):
    with pytest.raises(TypeError, match=f"^{name} must be"):
        call(db, odd)


def test_a_text_is_no_list_of_texts_and_a_number_of_copies_is_positive(db):
    with pytest.raises(TypeError, match="completions"):
        choose("<sql>SELECT 1</sql>", db)
    with pytest.raises(TypeError, match="golds"):
        changed_tables(TABLES, GOLD)
    with pytest.raises(InputError, match="copies"):
        changed_copies(db, GOLD, copies=0)
    with pytest.raises(InputError, match="seed"):
        changed_copies(db, GOLD, seed=-1)
