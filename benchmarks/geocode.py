"""Speed of geocode, side by side with sympy and matplotlib: ``python benchmarks/geocode.py``.

One process, one thread, the contenders in turns, CPU seconds. sympy reduces the same equations over the rationals and
does no more; making them, holding each against the figure, finding points on one line and keeping where each came from
is in our time alone. matplotlib draws the same lines.
"""

from __future__ import annotations

import random
import statistics
import time
from fractions import Fraction
from typing import Any

import sympy
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from assay.reasoning.geocode import Rejected, Scene, deduce, generate, realise, render, score_code, seed_of
from assay.reasoning.geocode.layout import strokes_of, texts
from assay.reasoning.geocode.making import draw_chain
from timing import line, seconds


def figures(points: int, many: int) -> list[Any]:
    """Random chains with so many points that can be placed."""
    rng, found = random.Random(points), []
    while len(found) < many:
        chain = draw_chain(rng, points)
        while sum(len(step.out) for step in chain) > points:
            chain.pop()
        if sum(len(step.out) for step in chain) != points:
            continue
        try:
            seed = seed_of(chain)
            found.append((seed, realise(seed, rng)))
        except Rejected:
            continue
    return found


def angles(seed: Any, coords: Any) -> Any:
    return deduce(seed.facts, coords, seed.givens, lengths=False)


def with_sympy(equations: Any) -> object:
    """The same equations as a matrix, reduced by sympy over the rationals."""
    edges = sorted({edge for equation in equations for edge in equation.row})
    place = {edge: i for i, edge in enumerate(edges)}
    rows = []
    for equation in equations:
        row = [sympy.Integer(0)] * (len(edges) + 1)
        for edge, c in equation.row.items():
            row[place[edge]] = sympy.Rational(c.numerator, c.denominator)
        right = equation.right.get(1, Fraction(0))
        row[-1] = sympy.Rational(right.numerator, right.denominator)
        rows.append(row)
    return sympy.polys.matrices.DomainMatrix.from_Matrix(sympy.Matrix(rows)).to_field().rref()


def angle_engine() -> None:
    costs = {}
    for points in (6, 8, 10, 12):
        chosen = figures(points, 8)
        systems = [angles(*one).equations for one in chosen]
        taken = seconds(
            {
                "geocode": lambda chosen=chosen: [angles(*one) for one in chosen],
                "sympy": lambda systems=systems: [with_sympy(one) for one in systems],
            },
            turns=5,
        )
        costs[points] = taken["geocode"] / len(chosen)
        if points == 10:
            line("angle engine at 10 points, 45 directions", costs[points], 0.1, "s")
            # Described, not judged: sympy gets the equations ready made and does less.
            print(f"  its time / reduction of its equations by sympy: {taken['geocode'] / taken['sympy']:.2f} (no bar)")
    line("  growth from 6 to 12 points (directions grow 4.4-fold)", costs[12] / costs[6], 4.4**2, "×")


def with_matplotlib(scene: Scene) -> bytes:
    figure = Figure(figsize=(3.36, 3.36), dpi=100)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    for a, b in scene.segments:
        axes.plot(*zip(scene.points[a], scene.points[b], strict=True), "k-", linewidth=1)
    for x, y in scene.points.values():
        axes.plot([x], [y], "ko", markersize=3)
    for x, y, r in scene.circles:
        axes.add_patch(Circle((x, y), r, fill=False))
    for mark in scene.marks:
        for xs, ys in strokes_of(scene, mark):
            axes.plot(xs, ys, "k-", linewidth=0.7)
    for text in texts(scene):
        axes.text(*text.at, text.text, ha="center", va="center")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    canvas.draw()
    return bytes(canvas.buffer_rgba())


def drawing() -> None:
    problems = generate(12, seed=91)
    scenes = [problem.scene for problem in problems]
    taken = seconds(
        {
            "geocode": lambda: [render(scene, 336) for scene in scenes],
            "matplotlib": lambda: [with_matplotlib(scene) for scene in scenes],
            "both, letters placed": lambda: [texts(scene) for scene in scenes],
        },
        turns=5,
    )
    line("render at 336 pixels", 1000 * taken["geocode"] / len(scenes), 30, "ms")
    line("  its time / drawing with matplotlib", taken["geocode"] / taken["matplotlib"], 1)
    rng = random.Random(0)
    names = [chr(65 + i) for i in range(20)]
    points = {name: (rng.randint(0, 999) / 1000, rng.randint(0, 999) / 1000) for name in names}
    gold = Scene(points, tuple((a, b) for a, b in zip(names, names[3:] + names[:3], strict=True)))
    code = gold.to_matplotlib()
    taken = seconds(
        {
            "scene": lambda: [score_code(gold, gold) for _ in range(20)],
            "script": lambda: [score_code(code, gold) for _ in range(20)],
            "compile": lambda: [compile(code, "script", "exec") for _ in range(20)],
        },
        turns=5,
    )
    line("score_code at 20 points, of a scene", 1000 * taken["scene"] / 20, 5, "ms")
    line("score_code at 20 points, of a script, read first", 1000 * taken["script"] / 20, 5, "ms")
    line("  its time / compiling the script in Python", taken["script"] / taken["compile"], 10)


def generation() -> None:
    costs = []
    for seed in range(5):
        start = time.process_time()
        generate(12, seed=100 + seed)
        costs.append((time.process_time() - start) / 12)
    line("generation with all checks, a kept problem (median of 5 × 12)", statistics.median(costs), 0.25, "s")


if __name__ == "__main__":
    angle_engine()
    drawing()
    generation()
