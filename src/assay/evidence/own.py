"""What a user brings to a study: files, models, and a solution of their own as one more arm."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import InputError, one_line
from assay.evidence import warm
from assay.evidence.asking import model_asked
from assay.evidence.claim import Claim, higher, lower
from assay.evidence.fingerprint import file_fingerprint, module_fingerprint
from assay.evidence.placebo import Again
from assay.evidence.record import Record
from assay.evidence.study import Arm, Budget, Study
from assay.evidence.verdict import Outcome, Verdict

LOAD_SECONDS = 120.0  # for importing a user's module


@dataclass(frozen=True)
class UserArm:
    """A user's function as an arm: ``function(given, seed)``. Imported where it runs, never in the driver.

    ``content`` is the fingerprint of the module when the run began; empty if that does not matter.
    """

    module: str
    function: str
    folder: str
    content: str = ""

    def __call__(self, given: Any, seed: int, budget: Budget) -> Any:
        """Call the user's function."""
        return self.load()(given, seed)

    def load(self) -> Callable[[Any, int], Any]:
        """Import the module, from the folder first, and return the function.

        Raises
        ------
        InputError
            If the module has changed since the run began: its records would carry the wrong fingerprint.
        """
        if self.module not in sys.modules:
            if self.content and module_fingerprint(self.module, Path(self.folder)) != self.content:
                raise InputError(f"{self.module} changed while it was being checked; run the check again")
            self._import_top()
        module = importlib.import_module(self.module)
        function = getattr(module, self.function)
        if not callable(function):
            raise TypeError(f"{self.module}:{self.function} is a {type(function).__name__}, not a function")
        return function  # type: ignore[no-any-return]

    def _import_top(self) -> None:
        """Import the module, or the package that it is in, by its path where the folder has it.

        By its path, so that a file called test.py is not taken for the standard library's.
        """
        top = self.module.partition(".")[0]
        if self.folder not in sys.path:
            sys.path.append(self.folder)  # for what it imports from beside it
        package = Path(self.folder, top)
        file = package / "__init__.py" if (package / "__init__.py").is_file() else package.with_suffix(".py")
        if not file.is_file() or top in sys.modules:
            return
        inside = [str(package)] if file.parent == package else None
        spec = importlib.util.spec_from_file_location(top, file, submodule_search_locations=inside)
        if spec is None or spec.loader is None:
            return
        sys.modules[top] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[top])
        except BaseException:
            del sys.modules[top]
            raise


def user_arm(text: str, folder: Path) -> Arm:
    """The arm that ``NAME=module:function`` means; ``InputError`` where it cannot be imported.

    The module is imported in a process of its own, so that one that hangs or ends its process harms nothing.
    """
    parts = re.fullmatch(r"([\w.-]+)=([\w.]+):(\w+)", text)
    if parts is None:
        raise InputError(f"--with {text!r} must read NAME=module:function, e.g. --with mine=mymodule:fit")
    name, module, function = parts.groups()
    run = UserArm(module, function, str(folder), module_fingerprint(module, folder))
    process = warm.WarmProcess()
    try:
        process.call(_can_load, run, seconds=LOAD_SECONDS)
    except (RuntimeError, warm.ProcessLost) as error:
        raise InputError(f"--with {text}: cannot load {module}:{function} from {folder}: {one_line(error)}") from None
    finally:
        process.close()
    return Arm(name, run, role="baseline", what=f"yours: {module}:{function}")


def _can_load(run: UserArm) -> None:
    run.load()


def with_arms(study: Study, arms: Sequence[Arm]) -> Study:
    """The study with more arms, and for each the claim that the method beats it on the primary metric."""
    for arm in arms:
        if arm.name in {a.name for a in study.arms}:
            raise InputError(f"--with {arm.name}=…: {study.name} has an arm of that name; choose another")
    # What is asked of a user's arm is the primary metric; a control may ask for something else.
    tasks = _decisive(study)
    arms = [dataclasses.replace(arm, tasks=tasks) for arm in arms]
    return dataclasses.replace(
        study, arms=(*study.arms, *arms), claims=(*study.claims, *(decision_claim(study, arm.name) for arm in arms))
    )


def _decisive(study: Study) -> tuple[str, ...]:
    """The tasks on which one decides: all that are no controls, or all where there are only controls."""
    return tuple(t.name for t in study.tasks if not t.control) or tuple(t.name for t in study.tasks)


def decision_claim(study: Study, name: str) -> Claim:
    """That the method is better than the arm ``name`` on the primary metric, on every task that is no control."""
    tasks = _decisive(study)
    form = higher if study.better == "higher" else lower
    return form(
        study.primary, study.method.name, than=name, tasks=tasks, says=f"{study.method.name} beats {name} (yours)"
    )


def on_own(study: Study, brought: Mapping[str, Path]) -> Study:
    """The study on the user's files; ``InputError`` says what the study accepts."""
    for kind, path in brought.items():
        if study.own is None or kind not in study.accepts:
            takes = "; ".join(f"--{k}: {v}" for k, v in study.accepts.items()) or "no files of yours"
            raise InputError(f"{study.name} does not accept --{kind}; it accepts {takes}")
        if not path.exists():
            raise InputError(f"--{kind} {path}: there is no such file or folder")
        if not (path.is_file() or path.is_dir()):
            # A pipe could be read once only, and each cell reads what it needs.
            raise InputError(f"--{kind} {path} must be a file or a folder, not a pipe or a device")
    if not brought or study.own is None:
        return study
    return study.own({kind: path.resolve() for kind, path in brought.items()})  # a cluster's workers are elsewhere


def content(brought: Mapping[str, Path]) -> dict[str, str]:
    """Fingerprints of the user's files."""
    return {kind: file_fingerprint(path) for kind, path in sorted(brought.items())}


def users_function(arm: Arm) -> UserArm | None:
    """The user's function behind an arm, or ``None`` for an arm of the study."""
    run = arm.run.run if isinstance(arm.run, Again) else arm.run
    return run if isinstance(run, UserArm) else None


def arm_content(arm: Arm) -> str:
    """Fingerprint of what a user brought to an arm; empty for the study's own arms, whose code is the room's."""
    users = users_function(arm)
    return users.content + users.function if users else model_asked(arm)


def cost_ratio(records: Iterable[Record], arm: str, other: str) -> float | None:
    """How many times the CPU seconds of ``other`` the arm took: the geometric mean over pairs."""
    seconds: dict[str, dict[tuple[str, int], float]] = {arm: {}, other: {}}
    for record in records:
        if record.arm in seconds and record.status == "ok":
            total = record.cpu_seconds + sum(record.shared.values())
            seconds[record.arm][record.task, record.seed] = max(total, 1e-6)
    pairs = seconds[arm].keys() & seconds[other].keys()
    if not pairs:
        return None
    return math.exp(sum(math.log(seconds[arm][p] / seconds[other][p]) for p in pairs) / len(pairs))


def _rival(study: Study, verdict: Verdict, records: Sequence[Record]) -> str:
    """The arm of the study that does best where the decision was made, if that is not the method."""
    values: dict[str, list[float]] = {}
    for record in records:
        value = record.metrics.get(study.primary)
        if isinstance(value, int | float) and record.task in (verdict.claim.tasks or (record.task,)):
            values.setdefault(record.arm, []).append(float(value))
    sign = 1 if study.better == "higher" else -1
    contenders = [a for a in study.arms if a.name in values and a.role != "ceiling" and users_function(a) is None]
    means = {arm.name: sum(values[arm.name]) / len(values[arm.name]) for arm in contenders}
    best = max(means, key=lambda arm: sign * means[arm], default="")
    if best in ("", study.method.name) or sign * means[best] <= sign * means.get(study.method.name, math.inf * sign):
        return ""
    theirs, ours = means[best], means[study.method.name]
    role = study.arm(best).role
    return (
        f" On average {best}, a {role} arm, does better there: {theirs:.4g} against {ours:.4g} of {study.method.name}."
    )


def decision(study: Study, name: str, verdict: Verdict, records: Sequence[Record]) -> str:
    """In plain words: should the user switch from their arm to the method, at what cost, and is there a better one?"""
    method = study.method.name
    ratio = cost_ratio(records, method, name)
    cost = f" {method} takes {ratio:.2g} times the CPU time of {name}." if ratio is not None else ""
    cost += _rival(study, verdict, records)
    won = [p.task for p in verdict.parts if p.outcome == Outcome.SUPPORTED]
    lost = [p.task for p in verdict.parts if p.outcome == Outcome.NOT_SUPPORTED]
    size = f"{verdict.estimate:+.3g} {study.primary}" if verdict.estimate is not None else ""
    interval = f" (95 % interval {verdict.low:+.3g} to {verdict.high:+.3g})" if verdict.low is not None else ""
    if verdict.outcome == Outcome.SUPPORTED:
        where = "" if len(won) == 1 else f" on all {len(won)} tasks, at the least"
        return f"Switch: {method} beats {name}{where} by {size}{interval}.{cost}"
    if won and lost:
        return f"It depends: {method} beats {name} on {', '.join(won)}, and does not on {', '.join(lost)}.{cost}"
    if won:
        rest = ", ".join(p.task for p in verdict.parts if p.outcome != Outcome.SUPPORTED)
        return f"It depends: {method} beats {name} on {', '.join(won)}, but not surely on {rest}.{cost}"
    if lost and len(lost) == len(verdict.parts):
        return f"Don't switch: {method} does not beat {name}; difference {size}{interval}.{cost}"
    if lost:
        return f"Don't switch: {method} does not beat {name} on {', '.join(lost)}, and elsewhere it can't tell.{cost}"
    why = f": {verdict.reason}" if verdict.reason else f"; difference {size}{interval}" if size else ""
    more = f" About {verdict.more_seeds} more seeds would probably decide (--seeds)." if verdict.more_seeds else ""
    return f"Can't tell whether {method} beats {name}{why}.{more}{cost}"
