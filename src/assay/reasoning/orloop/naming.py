"""Instances whose names of rows and columns tell less: how much a repair leans on names."""

from __future__ import annotations

from dataclasses import replace

from .model import LinearModel
from .saboteur import Instance

SECTIONS = {
    "origin": ("supply", "minimum", "fleet"),
    "place": ("demand", "dock"),
    "shop": ("machine", "load"),
    "item": ("contract", "market"),
    "recipe": ("batch", "octane", "sulphur"),
    "goods": ("stock", "drum"),
    "month": ("balance", "plant", "store", "work", "crew"),
    "client": ("assign",),
    "site": ("room", "throughput", "share"),
    "hour": ("cover", "desks"),
    "people": ("pool", "wages"),
}
"""What rows are about, where names do not tell what they say: as planners name them who go through their plants."""
SECTION_OF = {family: section for section, families in SECTIONS.items() for family in families}


def renamed(one: Instance, names: str) -> Instance:
    """The same instance with names that tell less.

    Parameters
    ----------
    one
        With rows named for what they say, like ``demand_123456``.
    names
        ``"kinds"``: as they are; ``"sections"``: rows named for what they are about, so that upper and lower limits
        stand in one family; ``"numbers"``: rows and columns are only numbered.
    """
    if names == "kinds":
        return one
    every = dict.fromkeys([*one.model.row_names, *one.original.row_names])
    rows = {name: f"{_section(name) if names == 'sections' else 'r'}_{i + 1}" for i, name in enumerate(every)}
    cols = {name: name if names == "sections" else f"c_{i + 1}" for i, name in enumerate(one.model.col_names)}
    both = rows | cols

    def new(model: LinearModel) -> LinearModel:
        return replace(
            model,
            row_names=tuple(rows[name] for name in model.row_names),
            col_names=tuple(cols[name] for name in model.col_names),
            family=tuple(rows[name].rsplit("_", 1)[0] for name in model.row_names),
        )

    undo = tuple(
        replace(
            action, target=both.get(action.target, action.target), names=tuple(both.get(n, n) for n in action.names)
        )
        for action in one.undo
    )
    return replace(
        one,
        model=new(one.model),
        original=new(one.original),
        culprits=frozenset(both[name] for name in one.culprits),
        undo=undo,
        iis_rows=tuple(rows[name] for name in one.iis_rows),
    )


def _section(name: str) -> str:
    family = name.rsplit("_", 1)[0]
    return SECTION_OF.get(family, family)
