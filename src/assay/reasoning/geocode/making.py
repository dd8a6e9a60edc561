"""Making problems: draw a chain, place it, deduce, choose what to ask, word it, draw it, check it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Sequence

from assay.errors import InputError

from .checks import GATES, verify
from .constructions import BASES, OPS, STEPS, place, seed_of
from .deduction import Deduction, Derivation, deduce
from .figure import Construction, Coordinates, Given, Rejected, Seed, Target, edge
from .grading import Answer, answer_of
from .measure import angle, distance, error, given_error
from .problem import Problem, scene_of, solution_of, visible
from .wording import problem_text, question

KINDS = ("angle", "length", "ratio")
NEAREST = 0.055
"""Least distance of two points, as a share of the figure's diameter."""

THINNEST = 8.0
"""Least angle, in degrees, between lines that a problem speaks of."""

TRIES = 4000
"""Draws for one problem before giving up."""


def realise(seed: Seed, rng: random.Random | None = None) -> Coordinates:
    """Place a seed in the plane, turned at random, and refuse figures that are crowded or turn out otherwise.

    Parameters
    ----------
    seed
        The seed.
    rng
        For the turn; without one the first point lies at the origin and the first side along the axis.

    Raises
    ------
    Rejected
        Where a construction is impossible, points nearly fall together, or a fact or given of the seed does not hold.
    """
    if not isinstance(seed, Seed):
        raise TypeError(f"seed must be a Seed, got {type(seed).__name__}")
    coords = place(seed.constructions, math)
    _legible(coords)
    for item, off in [(f, error(f, coords)) for f in seed.facts] + [(g, given_error(g, coords)) for g in seed.givens]:
        if off > 1e-9:
            raise Rejected(f"{item.text()} turns out otherwise in this draw")
    if rng is None:
        return coords
    turn, flip = rng.uniform(0, 2 * math.pi), rng.choice((1, -1))
    c, s = math.cos(turn), math.sin(turn)
    return {name: (c * x - s * flip * y, s * x + c * flip * y) for name, (x, y) in coords.items()}


def _legible(coords: Coordinates) -> None:
    at = list(coords.values())
    if not all(math.isfinite(v) for p in at for v in p):
        raise Rejected("a point lies at infinity")
    gaps = [distance(p, q) for p, q in itertools.combinations(at, 2)]
    if min(gaps) < NEAREST * max(gaps):
        raise Rejected("two points lie too close")


def _no_accidents(seed: Seed, coords: Coordinates, known: Deduction) -> None:
    """No two drawn lines that look parallel or perpendicular and are not known to be; no accidental equal sides."""
    shown = sorted(visible(seed))
    for e, f in itertools.combinations(shown, 2):
        turn = (known.direction(e) - known.direction(f)) % 90
        off = min(turn, 90 - turn)
        if off < 1.0 and not _direction_known(known, e, f):
            raise Rejected("two lines look parallel or perpendicular by chance")
        shared = set(e) & set(f)
        if shared:
            if off < THINNEST and not _direction_known(known, e, f):
                raise Rejected("two lines are nearly one or nearly perpendicular")
            p, q = distance(coords[e[0]], coords[e[1]]), distance(coords[f[0]], coords[f[1]])
            if abs(p / q - 1) < 0.005 and known.length_space.reduce({e: 1, f: -1})[0]:
                raise Rejected("two sides look equal by chance")


def _direction_known(known: Deduction, e: tuple[str, str], f: tuple[str, str]) -> bool:
    return not known.angle_space.reduce({e: 1, f: -1})[0]


def draw_chain(rng: random.Random, n_steps: int) -> list[Construction]:
    """A base figure and constructions upon it, each using what came last with some preference."""
    letters = iter("ABCDEFGHIJKLMNPQRSTUVWXYZ")
    base = rng.choice(BASES)

    def made(op: str, args: Sequence[str]) -> Construction:
        out = tuple(next(letters) for _ in range(OPS[op].outs))
        return Construction(op, out, tuple(args), tuple(rng.randint(*bounds) for bounds in OPS[op].ranges))

    chain = [made(base, ())]
    for _ in range(n_steps):
        points = [name for step in chain for name in step.out]
        for _ in range(20):
            op = rng.choice(STEPS)
            if op in ("on_circle", "second", "tangent"):
                seed = seed_of(chain)
                pairs = [(f.points[0], a) for f in seed.facts if f.kind == "cong" for a in f.points[1:]]
                if not pairs:
                    continue
                head = list(rng.choice(pairs))
            else:
                head = []
            others = [name for name in points if name not in head]
            need = OPS[op].args - len(head)
            if len(others) < need:
                continue
            args = head + rng.sample(others, need)
            if len(chain) > 1 and not set(args) & set(chain[-1].out) and rng.random() < 0.6:
                continue
            chain.append(made(op, args))
            break
    return chain


def candidates(seed: Seed, known: Deduction, kinds: Sequence[str]) -> list[tuple[Target, Answer]]:
    """What could be asked: visible angles, sides and quotients that follow and that no given states."""
    shown, stated = visible(seed), {given.value for given in seed.givens}
    given_keys = {(g.kind, frozenset((g.points[0], g.points[-1])), g.points[1]) for g in seed.givens}
    found = []
    targets: list[Target] = []
    if "angle" in kinds:
        for b in known.coords:
            arms = sorted(next(n for n in e if n != b) for e in shown if b in e)
            targets += [Target("angle", (a, b, c)) for a, c in itertools.combinations(arms, 2)]
    sides = sorted(shown)
    if "length" in kinds:
        targets += [Target("length", e) for e in sides]
    if "ratio" in kinds:
        targets += [Target("ratio", (*e, *f)) for e, f in itertools.combinations(sides, 2) if set(e) & set(f)]
    for target in targets:
        if (target.kind, frozenset((target.points[0], target.points[-1])), target.points[1]) in given_keys:
            continue
        value = known.value(target)
        answer = None if value is None else answer_of(target.kind, value)
        if (
            answer is None
            or answer.rational.denominator > (4 if target.kind == "angle" else 30)
            or answer.radicand > 500
            or answer.rational.numerator > 500
        ):
            continue
        if target.kind == "angle" and (not THINNEST <= answer.value <= 172 or answer.rational in (60, 90)):
            continue
        # An answer that the text holds as a number could be had by saying the text again.
        if answer.radicand == 1 and (answer.rational in stated or answer.rational in (1, 2)):
            continue
        found.append((target, answer))
    return found


def pruned(seed: Seed, derivation: Derivation, target: Target) -> Seed:
    """The seed with the constructions and givens that the derivation and the target need, and no others."""
    needed = set(target.points) | {name for item in derivation.support for name in item.points}
    keep = []
    for step in reversed(seed.constructions):
        if needed & set(step.out) or OPS[step.op].base:
            keep.append(step)
            needed |= set(step.args)
    support = set(derivation.support)
    return seed_of(keep[::-1], [given for given in seed.givens if given in support])


def surplus(seed: Seed, target: Target, answer: Answer, rng: random.Random) -> list[Given]:
    """Up to two true numbers that the answer does not need and that do not give it away."""
    key = (target.kind, frozenset((target.points[0], target.points[-1])), target.points[1])
    others = [
        given
        for given in seed_of(seed.constructions).givens
        if given not in seed.givens
        and (given.kind, frozenset((given.points[0], given.points[-1])), given.points[1]) != key
        and not (answer.radicand == 1 and given.value == answer.rational)
    ]
    return rng.sample(others, min(2, len(others)))


def generate_one(
    name: str, rng: random.Random, steps: tuple[int, int], min_depth: int, kinds: Sequence[str], visual_only: float,
    skip: tuple[str, ...] = (), max_depth: int | None = None, distractors: bool = False,
) -> Problem | str:  # fmt: skip
    """One draw: a problem, or why this draw is none."""
    kind = rng.choice(list(kinds))
    try:
        seed = seed_of(draw_chain(rng, rng.randint(*steps)))
        coords = realise(seed)
        known = deduce(seed.facts, coords, seed.givens, lengths=kind != "angle")
    except Rejected as reason:
        return f"draw: {reason}"
    options = candidates(seed, known, [kind])
    found = []
    for target, answer in rng.sample(options, min(8, len(options))):
        derivation = known.solve(target)
        if derivation and min_depth <= derivation.depth <= (max_depth or 1000):
            small = pruned(seed, derivation, target)
            if len(small.constructions) > steps[0]:
                found.append((target, answer, derivation.depth, small))
    if not found:
        return "depth: nothing to ask is deep enough"
    target, answer, _, seed = rng.choices(found, [2.0**depth for _, _, depth, _ in found])[0]
    try:
        coords = realise(seed, rng)
        known = deduce(seed.facts, coords, seed.givens)
        final = known.solve(target)
        _no_accidents(seed, coords, known)
    except (Rejected, InputError) as reason:
        return f"draw: {reason}"
    if final is None or not min_depth <= final.depth <= (max_depth or 1000):
        return "depth: not deep enough once what is not needed is gone"
    stated = [given for given in seed.givens if given in final.support]
    if distractors:
        stated += surplus(seed, target, answer, rng)
    seed = dataclasses.replace(seed, givens=tuple(stated))
    marked: tuple[Given, ...] = ()
    if rng.random() < visual_only:
        marked = tuple(given for given in seed.givens if _markable(given, seed, coords))
        if not marked:
            return "visual: nothing can be marked"
        sure = rng.choice(marked)
        marked = tuple(given for given in marked if given == sure or rng.random() < 0.7)
    problem = _assembled(name, seed, coords, target, answer, final, marked)
    checks = verify(problem, skip=skip)
    if not checks.ok:
        return "; ".join(f"{gate}: {why}" for gate, why in checks.detail.items())
    return dataclasses.replace(problem, report=checks)


def _assembled(
    name: str, seed: Seed, coords: Coordinates, target: Target, answer: Answer, final: Derivation,
    marked: tuple[Given, ...],
) -> Problem:  # fmt: skip
    said = [given for given in seed.givens if given not in marked]
    scene = scene_of(seed, coords, target, marked)
    return Problem(
        name, seed, coords, target, answer, problem_text(seed.constructions, said, bool(marked)), question(target),
        scene, scene.to_matplotlib(), solution_of(final, seed, target, answer), final.depth,
    )  # fmt: skip


def pose(
    seed: Seed, target: Target, *, name: str = "own", marked: Sequence[Given] = (), turn: int | None = None
) -> Problem:
    """Make a problem of one's own seed: its words, drawing, answer and solution, with the report of the checks.

    Parameters
    ----------
    seed
        Constructions and givens, as of :func:`~assay.reasoning.geocode.seed_of`.
    target
        What is asked.
    name
        The problem's id.
    marked
        Givens that stand in the drawing in place of the text.
    turn
        A seed: the figure is turned and perhaps mirrored at random. By default its first side lies level.

    Returns
    -------
    Problem
        ``report`` says which checks it passes; a drawing may come out too crowded to be legible.

    Raises
    ------
    Rejected
        For a figure that is impossible or has points that nearly fall together.
    InputError
        For a target that does not follow from the givens, marks that are no givens of the seed, and a strange name.
    TypeError
        For a seed or target of another kind.
    """
    if not isinstance(seed, Seed) or not isinstance(target, Target):
        raise TypeError(f"seed and target must be a Seed and a Target, got {seed!r:.40} and {target!r:.40}")
    if not isinstance(name, str) or not name.replace("-", "").replace("_", "").isalnum():
        raise InputError(f"name may have letters, digits, - and _, got {name!r:.40}")
    if turn is not None:
        _whole("turn", turn, 0, 2**63)
    if not isinstance(marked, Sequence) or not all(isinstance(given, Given) for given in marked):
        raise InputError(f"marked must be a list of Given, got {marked!r:.60}")
    strange = next((given for given in marked if given not in seed.givens), None)
    if strange is not None:
        raise InputError(f"marked: {strange.text()} is no given of the seed")
    coords = realise(seed, None if turn is None else random.Random(f"turn {turn}"))
    final = deduce(seed.facts, coords, seed.givens).solve(target)
    if final is None:
        raise InputError(f"target: {target.text()} does not follow from what is given")
    answer = answer_of(target.kind, final.value)
    if answer is None:
        raise InputError(f"target: {target.text()} is no rational number times a square root")
    problem = _assembled(name, seed, coords, target, answer, final, tuple(marked))
    return dataclasses.replace(problem, report=verify(problem))


def _markable(given: Given, seed: Seed, coords: Coordinates) -> bool:
    """Whether a mark says it without doubt: nothing on the side, no line within the angle."""
    shown = visible(seed)
    if given.kind == "length":
        a, b = (coords[name] for name in given.points)
        others = [at for name, at in coords.items() if name not in given.points]
        return edge(*given.points) in shown and all(
            distance(a, p) + distance(p, b) > 1.001 * distance(a, b) for p in others
        )
    a, b, c = given.points
    size = angle(coords[a], coords[b], coords[c])
    arms = [next(n for n in e if n != b) for e in shown if b in e]
    within = [
        n
        for n in arms
        if 1 < angle(coords[a], coords[b], coords[n]) < size - 1 and angle(coords[n], coords[b], coords[c]) < size - 1
    ]
    return {edge(a, b), edge(b, c)} <= shown and size >= 20 and not within


def generate(
    n: int,
    *,
    steps: tuple[int, int] = (2, 6),
    min_depth: int = 4,
    targets: Sequence[str] = KINDS,
    visual_only: float = 0.5,
    distractors: bool = False,
    seed: int = 0,
    workers: int = 1,
) -> list[Problem]:
    """Make problems whose text, drawing, answer and solution agree.

    Parameters
    ----------
    n
        How many.
    steps
        Least and largest number of constructions upon the base figure. Those that an answer does not need are dropped,
        and at least the least number stays.
    min_depth
        Least number of facts and givens that the answer rests on.
    targets
        What may be asked: ``angle``, ``length``, ``ratio``.
    visual_only
        Share of problems in which some givens stand in the drawing alone.
    distractors
        Whether problems state up to two further numbers that the answer does not need.
    seed
        The same seed gives the same problems, whatever ``workers`` is.
    workers
        Processes.

    Returns
    -------
    list of Problem
        Each passed all five checks of :func:`verify`.

    Raises
    ------
    InputError
        For arguments out of range, and where no problem is found in 4000 draws.

    Notes
    -----
    "Synthesizing Multimodal Geometry Datasets from Scratch and Enabling Visual Alignment via Plotting Code",
    arXiv 2602.18745.

    Examples
    --------
    >>> problem = generate(1, targets=["angle"], seed=1)[0]
    >>> problem.report.ok, problem.depth >= 4
    (True, True)
    """
    _whole("n", n, 1, 1_000_000)
    if not isinstance(steps, tuple | list) or len(steps) != 2:
        raise InputError(f"steps must be two numbers, the least and the largest, got {steps!r}")
    low, high = (_whole("steps", step, 0, 12) for step in steps)
    if low > high:
        raise InputError(f"steps must be the least and the largest, got {steps!r}")
    _whole("min_depth", min_depth, 1, 30)
    _whole("workers", workers, 1, 256)
    _whole("seed", seed, 0, 2**63)
    if (
        not isinstance(targets, Sequence)
        or isinstance(targets, str)
        or not targets
        or any(k not in KINDS for k in targets)
    ):
        raise InputError(f"targets must be a list with some of {', '.join(KINDS)}, got {targets!r}")
    if isinstance(visual_only, bool) or not isinstance(visual_only, int | float) or not 0 <= visual_only <= 1:
        raise InputError(f"visual_only must be a share between 0 and 1, got {visual_only!r}")
    if not isinstance(distractors, bool):
        raise InputError(f"distractors must be True or False, got {distractors!r}")
    options = ((low, high), min_depth, tuple(k for k in KINDS if k in targets), float(visual_only), distractors)
    jobs = [(seed, i, options) for i in range(n)]
    if workers == 1:
        return [_make(*job) for job in jobs]
    from joblib import Parallel, delayed

    return list(Parallel(n_jobs=workers)(delayed(_make)(*job) for job in jobs))


def _make(seed: int, i: int, options: tuple[tuple[int, int], int, tuple[str, ...], float, bool]) -> Problem:
    rng = random.Random(f"geocode {seed} {i}")
    steps, min_depth, kinds, visual_only, distractors = options
    # Decided once: draws with marks are refused more often, and the share shall hold among those kept.
    visual = float(rng.random() < visual_only)
    reason = ""
    for _ in range(TRIES):
        made = generate_one(f"g{seed}-{i:05d}", rng, steps, min_depth, kinds, visual, distractors=distractors)
        if isinstance(made, Problem):
            return made
        reason = made
    raise InputError(f"no problem was found in {TRIES} draws with these options; the last was refused: {reason}")


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number, got {value!r}")
    if not least <= value <= most:
        raise InputError(f"{name} must be between {least} and {most}, got {value}")
    return value


__all__ = ["GATES", "candidates", "draw_chain", "generate", "generate_one", "pose", "pruned", "realise", "surplus"]
