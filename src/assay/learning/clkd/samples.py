"""Data of the study: a large external study that trains a teacher, a small one of one's own, and rows to test on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.parts import survset

from .components import nested_case_control
from .estimator import CLKDSurvival

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

N_EXTERNAL = 1500
N_TEST = 1500
N_CONTROLS = 2


@dataclass(frozen=True)
class Rows:
    """Rows of a cohort: features (n, p), event and time (n,), and the teacher's log risk (n,)."""

    X: FloatArray
    event: BoolArray
    time: FloatArray
    teacher: FloatArray

    def __getitem__(self, rows: Any) -> Rows:
        return Rows(self.X[rows], self.event[rows], self.time[rows], self.teacher[rows])

    def __len__(self) -> int:
        return len(self.event)


@dataclass(frozen=True)
class Draw:
    """External rows (whose teacher is zero), rows of the small study, and test rows."""

    external: Rows
    study: Rows
    test: Rows


@dataclass(frozen=True)
class Source:
    """A cohort of SurvSet and how it is split.

    Attributes
    ----------
    name
        Of the table.
    hidden
        Columns that the teacher does not see: what the small study measured besides.
    n_study
        Rows of the small study.
    n_external, n_test
        Rows that train the teacher, and test rows at most.
    dropped
        Columns that are no features.
    by
        ``(column, external value, study value)``: the two studies have different values there.
    """

    name: str
    hidden: tuple[str, ...]
    n_study: int
    n_external: int = N_EXTERNAL
    n_test: int = N_TEST
    dropped: tuple[str, ...] = ()
    by: tuple[str, str, str] | None = None


SOURCES = {
    "smarto": Source("smarto", ("num_imt", "num_homoc", "num_hdl", "num_ldl", "num_creat"), 300),
    "nwtco": Source("nwtco", ("fac_histol",), 250),
    "Framingham": Source("Framingham", ("num_scl", "num_bmi"), 250, by=("fac_sex", "1", "2")),
    # Without what an analyst would leave out by hand: a second coding of the stage, the label of a random subcohort,
    # the month of the examination.
    "nwtco-lean": Source("nwtco", ("fac_histol",), 250, dropped=("fac_stage", "fac_in_subcohort")),
    "Framingham-lean": Source(
        "Framingham", ("num_scl", "num_bmi"), 250, dropped=("fac_month",), by=("fac_sex", "1", "2")
    ),
    "prostateSurvival": Source("prostateSurvival", ("fac_grade",), 600),
    "actg": Source("actg", ("num_cd4",), 300, n_external=450),
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Features (n, p) with names, event and time, and which rows may be external and which of the small study."""

    X: FloatArray
    columns: tuple[str, ...]
    event: BoolArray
    time: FloatArray
    external: BoolArray
    own: BoolArray


@lru_cache(maxsize=2)
def table(source: Source) -> Table:
    """Factors one-hot less their first level, medians for missing numbers; a time of 0 becomes half a unit."""
    frame = survset.load(source.name)
    event = frame["event"].to_numpy() == 1
    time = frame["time"].to_numpy(dtype=np.float64)
    if (time <= 0).any():
        time = time + 0.5
    external = own = np.ones(len(frame), dtype=bool)
    dropped = [*source.dropped]
    if source.by is not None:
        column, there, here = source.by
        external, own = (frame[column] == there).to_numpy(), (frame[column] == here).to_numpy()
        dropped.append(column)
    frame = frame.drop(columns=["pid", "event", "time", *dropped])
    frame = frame.fillna(frame.median(numeric_only=True))
    words = [name for name in frame if str(name).startswith("fac_")]
    frame = pd.get_dummies(frame, columns=words, drop_first=True, dtype=float)
    return Table(frame.to_numpy(dtype=np.float64), tuple(map(str, frame.columns)), event, time, external, own)


def draw(seed: int, source: Source) -> Draw:
    """Deal the rows of a cohort out anew, and train the teacher: a Cox model on the columns that it sees."""
    whole = table(source)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(whole.event))
    there = order[whole.external[order]][: source.n_external]
    left = order[whole.own[order] & ~np.isin(order, there)]
    here, test = left[: source.n_study], left[source.n_study :][: source.n_test]
    sees = [j for j, name in enumerate(whole.columns) if not name.startswith(source.hidden)]
    model = CLKDSurvival(eta=0, alphas=(1e-3,))
    used = [j for j in sees if np.ptp(whole.X[there, j]) > 0]
    model.fit(whole.X[np.ix_(there, used)], (whole.event[there], whole.time[there]))
    teacher = model.predict(whole.X[:, used])
    rows = Rows(whole.X, whole.event, whole.time, teacher)
    external = rows[there]
    return Draw(replace(external, teacher=np.zeros(len(external))), rows[here], rows[test])


def rotated(seed: int, degrees: float) -> Draw:
    """A made cohort of 6 features, the teacher knowing 4 of them: its coefficients are the true ones, turned.

    About a quarter of the 200 rows of the small study have an event.
    """
    rng = np.random.default_rng(seed)
    truth = np.array([0.6, -0.5, 0.4, 0.3, 0.5, -0.4])
    known = truth[:4]
    away = rng.normal(size=4)
    away -= known * (away @ known) / (known @ known)
    away *= np.linalg.norm(known) / np.linalg.norm(away)
    angle = np.deg2rad(degrees)
    teacher = np.cos(angle) * known + np.sin(angle) * away
    X = rng.normal(size=(N_EXTERNAL + 200 + N_TEST, 6))
    time = (rng.exponential(size=len(X)) * np.exp(-X @ truth)) ** 0.7
    censored = rng.uniform(0, 0.6, len(X))
    rows = Rows(X, time <= censored, np.minimum(time, censored) + 1e-9, X[:, :4] @ teacher)
    return Draw(rows[:N_EXTERNAL], rows[N_EXTERNAL : N_EXTERNAL + 200], rows[N_EXTERNAL + 200 :])


def case_control(rows: Rows, rng: np.random.Generator) -> tuple[Rows, NDArray[np.int64]]:
    """The nested case-control sample of a small study, ``event`` being its cases, and the set of each row."""
    sample = nested_case_control(rows.event, rows.time, N_CONTROLS, random_state=rng)
    return replace(rows[sample.rows], event=sample.case), sample.groups
