"""A survival model for a small study that learns from its own outcomes and from a published risk score."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from assay.errors import InputError, MissingPart
from assay.parts.packages import install_line
from assay.parts.supervision import aligned

from . import grid
from .components import KINDS, generator, matched, refuse_groups, refuse_strata
from .concordance import concordance, concordant_members
from .hazard import BaselineHazard, step_functions
from .outcome import codes, number, read_weights, split_outcome, whole
from .problem import canonical, make_problem, usable_folds
from .tables import column_names, features, scales
from .teachers import teacher_scores, teacher_shares, warn_constant

FloatArray = NDArray[np.float64]

ETAS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
ALPHAS = (1e-3, 1e-2, 1e-1, 1.0)

WIDEST = 1e4
"""Between the largest and the least log risk of a teacher: more is no log risk."""

BOUNDLESS = 30.0
"""Coefficients of scaled features beyond this come from cases that the features separate."""


class CLKDSurvival(BaseEstimator):
    """Proportional hazards or matched sets, fitted to the outcomes and to what a teacher expects of them.

    The composite likelihood asks, of each risk set (or matched set, or pair): which member is the case? A teacher's
    risk score answers the same question with a distribution p_k over the members, and the model with q_k. Minimised
    is the mean over the components of [−log q_k(case) + eta · KL(p_k ‖ q_k)] / (1 + eta), plus alpha/2 |b|². The
    teacher's rows are not needed, nor its baseline hazard.

    Parameters
    ----------
    teacher
        What tells log risks of rows: a fitted model with ``predict_log_partial_hazard`` or ``predict`` (lifelines,
        scikit-survival), a mapping from columns to log hazard ratios, a function of X, or a list of these. The scale
        of the scores counts, their level does not. None: the scores are given to ``fit`` as ``teacher_risk``, or there
        is no teacher, and this is a ridge-penalised Cox or conditional logistic model.
    components
        ``"risk_set"`` (Cox, Breslow's ties), ``"matched"`` (one case and the controls of its set; a set with c cases
        is c components), ``"pairwise"`` (an event and a row with a longer time) or ``"ncc"`` (an event and
        ``n_controls`` rows drawn from those at risk).
    eta
        How much the teacher counts: a number from 0 (not at all) to ``inf`` (alone); ``"cv"`` for the best of
        ``etas`` by cross-validation; ``"aggregate"`` for the average of the coefficients over all ``etas`` and
        ``alphas``, with weights that fall exponentially with the summed held-out loss. Without a teacher only the
        alphas are chosen or averaged; None means 0.
    etas, alphas
        What is tried. ``alphas`` are ridge penalties in units of the mean loss and of scaled features; where ``eta`` is
        a number, the best of several alphas is chosen by cross-validation.
    teacher_columns
        The columns that teachers see; None means all.
    teacher_weights
        (T,) how much each of several teachers counts; equal by default. They are scaled to sum to 1.
    standardize
        Whether features are divided by their standard deviation, so that the penalty treats them alike.
    student
        ``"linear"``, or a function p -> ``torch.nn.Module`` that maps (n, p) float32 to (n,) or (n, 1) scores; it is
        fitted by Adam with weight decay alpha.
    cv
        Folds of rows (``"risk_set"``), sets (``"matched"``, ``"ncc"``) or cases (``"pairwise"``), with the cases dealt
        out evenly.
    criterion
        What ``"cv"`` goes by: ``"loss"`` (held-out −log q of the cases) or ``"cindex"`` (held-out concordance).
    n_controls
        Controls a case, for ``components="ncc"``.
    max_pairs
        Most pairs, for ``components="pairwise"``; more are sampled.
    max_iter, tol
        Newton steps at most; they end when one promises less than ``tol`` (1 + |objective|).
    device
        Where a network is fitted: ``"auto"``, ``"cpu"``, ``"cuda"`` …
    random_state
        Of folds, sampled pairs and controls, and networks.

    Attributes
    ----------
    coef_
        (p,) log hazard ratios per unit of each column; 0 for a column that does not vary. Linear students only.
    eta_, alpha_
        Those used. For an average: eta whose share eta / (1 + eta) is the average share, and the average alpha.
    eta_weights_
        (E,) the weight of each of ``cv_results_["eta"]``'s distinct values, in their order.
    cv_results_
        Lists ``eta``, ``alpha``, ``loss`` (mean held-out −log q a case), ``cindex`` (for that criterion) and
        ``weight``; None where nothing was chosen.
    n_components_
        How many components there are.
    n_iter_, converged_
        Newton steps of the fit on all data (the most, of several), and whether they sufficed.
    cum_baseline_hazard_
        ``components="risk_set"`` only: mapping from stratum (0 without strata) to an array (2, m) of times and
        Breslow's cumulative hazard at the mean of the features.
    unique_times_
        Sorted distinct times, ``components="risk_set"`` only.
    mean_, scale_
        (p,) what is taken from features, and what they are divided by.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Source: "Component-Wise Composite Likelihood Distillation for Censored Time-to-Event Data", ICML 2026; the same
    idea for the Cox model: Wang et al. 2023, arXiv 2302.11123. For ``"risk_set"`` the memory is O(np), for the others
    that of the listed components.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 3))
    >>> time = rng.exponential(np.exp(-X[:, 0] - X[:, 2]))  # the teacher knows of the first column only
    >>> model = CLKDSurvival({0: 1.0}, random_state=0).fit(X, (time < 1, np.minimum(time, 1)))
    >>> model.coef_.round(1)
    array([ 0.9, -0.3,  0.8])
    """

    def __init__(
        self,
        teacher: Any = None,
        *,
        components: Literal["risk_set", "matched", "pairwise", "ncc"] = "risk_set",
        eta: float | Literal["cv", "aggregate"] | None = "aggregate",
        etas: Sequence[float] = ETAS,
        alphas: Sequence[float] = ALPHAS,
        teacher_columns: Sequence[Any] | None = None,
        teacher_weights: ArrayLike | None = None,
        standardize: bool = True,
        student: Any = "linear",
        cv: int = 5,
        criterion: Literal["loss", "cindex"] = "loss",
        n_controls: int = 2,
        max_pairs: int | None = 200_000,
        max_iter: int = 100,
        tol: float = 1e-9,
        device: str = "auto",
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
    ) -> None:
        self.teacher = teacher
        self.components = components
        self.eta = eta
        self.etas = etas
        self.alphas = alphas
        self.teacher_columns = teacher_columns
        self.teacher_weights = teacher_weights
        self.standardize = standardize
        self.student = student
        self.cv = cv
        self.criterion = criterion
        self.n_controls = n_controls
        self.max_pairs = max_pairs
        self.max_iter = max_iter
        self.tol = tol
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: Any,
        *,
        teacher_risk: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X
            (n, p) numbers, without missing values.
        y
            Event and time: a structured array (scikit-survival), a frame with the columns event and time, an array
            (n, 2) or a pair of arrays in that order. For ``components="matched"`` a vector of 0 and 1 will do.
        teacher_risk
            (n,) or (n, T) log risks of the rows, in place of ``teacher``.
        groups
            (n,) the set of each row, for ``components="matched"``.
        strata
            (n,) rows of different strata never meet in a component; each has a baseline hazard of its own.
        sample_weight
            (n,) weights of the rows: of a component by its case, and of members within it.

        Raises
        ------
        InputError
            When an argument cannot be used; the message says which and why.
        """
        etas, alphas = self._check_parameters()
        array = features(self, X, reset=True)
        n = len(array)
        event, time = split_outcome(y, need_time=self.components != "matched")
        if len(event) != n:
            raise InputError(f"y has {len(event)} rows and X has {n}; they must agree")
        if self.components == "matched":
            refuse_strata(strata)
            if groups is None:
                raise InputError("groups is needed for components='matched': the set of each row")
        else:
            refuse_groups(groups, self.components)
        for name, side in (
            ("groups", groups), ("strata", strata), ("sample_weight", sample_weight), ("teacher_risk", teacher_risk)
        ):  # fmt: skip
            if hasattr(side, "index") and hasattr(X, "index"):
                aligned(name, side, X)
        group = None if groups is None else codes(groups, n, "groups")
        stratum, labels = codes(strata, n, "strata", ordered=True), strata
        v = read_weights(sample_weight, n)
        scores = teacher_scores(self.teacher, X, self.teacher_columns, teacher_risk, n)
        shares = teacher_shares(self.teacher_weights if scores.shape[1] else None, scores.shape[1])
        etas = self._etas_without_teacher(etas) if scores.shape[1] == 0 else etas
        warn_constant(scores)

        order = canonical(array, event, time, stratum, group, v, scores)
        event, stratum, v, scores, array = event[order], stratum[order], v[order], _centred(scores[order]), array[order]
        time = None if time is None else time[order]
        group = None if group is None else group[order]
        if not event.any():
            raise InputError("sample_weight is zero for every event")
        rng = generator(self.random_state)
        problem = make_problem(
            self.components, event, time, v, group=group, stratum=stratum, n_controls=self.n_controls,
            max_pairs=self.max_pairs, random_state=rng,
        )  # fmt: skip
        rows = problem.partition().rows
        self.mean_, self.scale_, varies = scales(array[rows], v[rows], self.standardize)
        self._warn_dropped(varies)
        Z = np.where(varies, (array - self.mean_) / self.scale_, 0.0)
        data = grid.Data(problem, Z, scores, shares)
        if self.student == "linear":
            self._fit_linear(data, etas, alphas, varies, rng)
        else:
            self._fit_network(data, etas, alphas, varies, rng)
        self.n_components_ = problem.n_components
        if self.components == "risk_set":
            names = _stratum_names(labels, stratum, order, n)
            assert time is not None
            baseline = BaselineHazard.fitted(event, time, stratum, v, self._scores(Z, varies), names)
            self.cum_baseline_hazard_, self.unique_times_ = baseline.table, np.unique(time)
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Return log risks (m,) of rows ``X`` (m, p); a larger one means an earlier event."""
        check_is_fitted(self, "scale_")
        array = features(self, X, reset=False)
        if self.student == "linear":
            return (array - self.mean_) @ self.coef_
        varies = self.varies_
        return self._scores(np.where(varies, (array - self.mean_) / self.scale_, 0.0), varies)

    def score(self, X: ArrayLike, y: Any, *, groups: ArrayLike | None = None) -> float:
        """Return Harrell's C of the predicted risks, within the sets ``groups`` where these are given.

        With a vector of 0 and 1 for ``y`` each case is compared with the controls (of its set).
        """
        risk = self.predict(X)
        event, time = split_outcome(y, need_time=False) if groups is not None else _either(y)
        if len(event) != len(risk):
            raise InputError(f"y has {len(event)} rows and X has {len(risk)}; they must agree")
        if groups is not None or time is None:
            sets = matched(event, codes(groups, len(event), "groups"))[0]
            concordant, comparable = concordant_members(sets, risk)
            return concordant / comparable
        return concordance(event, time, risk)

    def predict_cumulative_hazard_function(
        self, X: ArrayLike, *, strata: ArrayLike | None = None, return_array: bool = False
    ) -> NDArray[Any]:
        """Return the cumulative hazard of each row as scikit-survival's step functions (m,).

        With ``return_array``: an array (m, len(unique_times_)). ``strata`` (m,) is needed where the fit had any.

        Raises
        ------
        AttributeError
            For components other than ``"risk_set"``: sets and pairs say nothing of a baseline hazard.
        MissingPart
            When scikit-survival is not installed; ``return_array=True`` does without.
        """
        hazards = self._hazards(X, strata)
        return hazards if return_array else step_functions(self.unique_times_, hazards, 0.0)

    def predict_survival_function(
        self, X: ArrayLike, *, strata: ArrayLike | None = None, return_array: bool = False
    ) -> NDArray[Any]:
        """Return the survival function of each row, in the forms and with the errors of the cumulative hazard."""
        survival = np.exp(-self._hazards(X, strata))
        return survival if return_array else step_functions(self.unique_times_, survival, 1.0)

    def teacher_report(self) -> dict[str, Any]:
        """Return how much the teacher counted and how well it, the model, and the model without it foretell cases.

        Returns
        -------
        dict
            ``eta``; ``weights`` (of each eta tried); ``internal_loss``, ``teacher_loss`` and ``student_loss``: mean
            −log q of a case, of the best fit without teacher, of the teacher and of this model, or None where
            there is none; ``held_out``: whether the cases were held out (they are where eta or alpha was chosen by
            cross-validation; the student's averaging weights were found on the same folds).
        """
        check_is_fitted(self, "report_")
        return dict(self.report_)

    def _fit_linear(
        self, data: grid.Data, etas: list[float], alphas: list[float], varies: NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        narrow = grid.Data(data.problem, np.ascontiguousarray(data.Z[:, varies]), data.scores, data.shares)
        held = None
        if len(etas) * len(alphas) > 1:
            cv = usable_folds(data.problem, self.cv, "choosing eta and alpha")
            held = grid.cross_validate(
                narrow, etas, alphas, cv, rng, self.max_iter, self.tol, with_cindex=self.criterion == "cindex"
            )
        weights = self._weights(held, (len(etas), len(alphas)))
        whole_part = data.problem.partition()
        kept = weights > grid.NEGLIGIBLE
        used = np.where(kept, weights, 0.0) / weights[kept].sum()
        which = (np.flatnonzero(kept.any(axis=1)), np.flatnonzero(kept.any(axis=0)))
        fits = grid.path(
            whole_part, narrow, [etas[i] for i in which[0]], [alphas[j] for j in which[1]], self.max_iter, self.tol
        )
        b = np.tensordot(used[np.ix_(*which)], fits.coef, 2)
        self.coef_ = np.zeros(len(varies))
        self.coef_[varies] = b / self.scale_[varies]
        mine = kept[np.ix_(*which)]
        self.n_iter_, self.converged_ = int(fits.steps[mine].max()), bool(fits.converged[mine].all())
        if not self.converged_:
            warnings.warn(f"no minimum in max_iter={self.max_iter} steps", ConvergenceWarning, stacklevel=3)
        elif len(b) and np.abs(b).max() > BOUNDLESS:
            warnings.warn(
                "coefficients grow without bound: the features separate cases from the rest; use larger alphas",
                ConvergenceWarning,
                stacklevel=3,
            )
        self._keep_choice(etas, alphas, weights, held)
        internal = teacher = None
        if held is not None:
            student = grid.held_out_loss(narrow, held, weights)
            internal = float(held.loss[etas.index(0.0)].min()) if 0.0 in etas else None
            teacher = grid.teachers_loss(narrow, held.parts) if data.scores.shape[1] else None
        else:
            student = grid.loss(whole_part, narrow.Z @ b)
            internal = student if etas == [0.0] else None
            teacher = grid.teachers_loss(narrow, [whole_part]) if data.scores.shape[1] else None
        self._report(internal, teacher, student, held is not None)

    def _fit_network(
        self, data: grid.Data, etas: list[float], alphas: list[float], varies: NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        try:
            from .networks import fit_networks
        except ModuleNotFoundError as error:
            raise MissingPart(f"a network as student needs {error.name}", install_line("torch")) from error

        usable_folds(data.problem, 2, "fitting a network, which stops by a held-out loss,")
        self.varies_ = varies
        narrow = grid.Data(data.problem, np.ascontiguousarray(data.Z[:, varies]), data.scores, data.shares)
        fitted = fit_networks(self.student, narrow, etas, alphas, rng, self.device)
        weights = self._weights(fitted.held, (len(etas), len(alphas)))
        self.students_ = [fitted.networks[i][j] for i, j in zip(*np.nonzero(weights > 0), strict=True)]
        self.student_weights_ = weights[weights > 0]
        self.student_levels_ = fitted.levels[weights > 0]
        self.n_iter_, self.converged_ = fitted.epochs, True
        self._keep_choice(etas, alphas, weights, fitted.held if weights.size > 1 else None)
        part = fitted.held.parts[0]
        student = grid.loss(part, self._scores(data.Z, varies))
        internal = float(fitted.held.loss[etas.index(0.0)].min()) if 0.0 in etas else None
        teacher = grid.teachers_loss(narrow, [part]) if data.scores.shape[1] else None
        self._report(internal, teacher, student, True)

    def _scores(self, Z: FloatArray, varies: NDArray[np.bool_]) -> FloatArray:
        if self.student == "linear":
            return Z[:, varies] @ (self.coef_ * self.scale_)[varies]
        from .networks import network_scores

        scores = [
            w * (network_scores(net, Z[:, varies]) - level)
            for net, w, level in zip(self.students_, self.student_weights_, self.student_levels_, strict=True)
        ]
        return np.sum(scores, axis=0)

    def _weights(self, held: grid.Held | None, shape: tuple[int, int]) -> FloatArray:
        if held is None:
            return np.ones(shape)
        if self.eta == "aggregate":
            return grid.averaging_weights(held)
        weights = np.zeros(shape)
        place = grid.chosen(held.loss) if self.criterion == "loss" else grid.chosen(-held.cindex)
        weights[place] = 1.0
        return weights

    def _keep_choice(self, etas: list[float], alphas: list[float], weights: FloatArray, held: grid.Held | None) -> None:
        self.eta_weights_ = weights.sum(axis=1)
        share = float(self.eta_weights_ @ [1.0 if math.isinf(eta) else eta / (1 + eta) for eta in etas])
        single = np.count_nonzero(self.eta_weights_) == 1
        self.eta_ = (
            float(etas[int(np.argmax(self.eta_weights_))]) if single else share / (1 - share) if share < 1 else math.inf
        )
        self.alpha_ = float(weights.sum(axis=0) @ alphas)
        self.cv_results_ = None
        if held is not None:
            at = [(eta, alpha) for eta in etas for alpha in alphas]
            self.cv_results_ = {
                "eta": [eta for eta, _ in at],
                "alpha": [alpha for _, alpha in at],
                "loss": held.loss.ravel().tolist(),
                "cindex": None if held.cindex is None else held.cindex.ravel().tolist(),
                "weight": weights.ravel().tolist(),
            }
        self.etas_ = np.array(etas)

    def _report(self, internal: float | None, teacher: float | None, student: float, held_out: bool) -> None:
        self.report_ = {
            "eta": self.eta_,
            "weights": {float(e): float(w) for e, w in zip(self.etas_, self.eta_weights_, strict=True)},
            "internal_loss": internal,
            "teacher_loss": teacher,
            "student_loss": student,
            "held_out": held_out,
        }

    def _hazards(self, X: ArrayLike, strata: ArrayLike | None) -> FloatArray:
        check_is_fitted(self, "scale_")
        if self.components != "risk_set":
            raise AttributeError(
                f"components={self.components!r} fits no baseline hazard: matched sets and pairs compare rows and say "
                "nothing of how fast events come. Fit with components='risk_set' to the cohort"
            )
        return BaselineHazard(self.cum_baseline_hazard_).cumulative(self.predict(X), self.unique_times_, strata)

    def _check_parameters(self) -> tuple[list[float], list[float]]:
        if self.components not in KINDS:
            raise InputError(f"components must be one of {', '.join(KINDS)}, got {self.components!r}")
        if self.criterion not in ("loss", "cindex"):
            raise InputError(f"criterion must be 'loss' or 'cindex', got {self.criterion!r}")
        if not (isinstance(self.student, str) and self.student == "linear") and not callable(self.student):
            raise InputError(f"student must be 'linear' or a function p -> torch.nn.Module, got {self.student!r}")
        if not isinstance(self.standardize, bool | np.bool_):
            raise InputError(f"standardize must be True or False, got {self.standardize!r}")
        for name, least in (("cv", 2), ("max_iter", 1), ("n_controls", 1)):
            whole(name, getattr(self, name), least)
        if self.max_pairs is not None:
            whole("max_pairs", self.max_pairs, 1)
        number("tol", self.tol, 0, open_=True)
        alphas = _sorted_numbers("alphas", self.alphas)
        if not isinstance(self.eta, str):
            if self.eta is not None:
                number("eta", self.eta, 0, infinite=True)
            return [float(self.eta or 0.0)], alphas
        if self.eta not in ("cv", "aggregate"):
            raise InputError(f"eta must be a number of at least 0, 'cv' or 'aggregate', got {self.eta!r}")
        if self.eta == "aggregate" and self.criterion == "cindex":
            raise InputError("criterion='cindex' is for eta='cv': the weights of an average come from losses")
        return _sorted_numbers("etas", self.etas, infinite=True), alphas

    def _etas_without_teacher(self, etas: list[float]) -> list[float]:
        if not isinstance(self.eta, str) and etas != [0.0]:
            raise InputError(
                f"eta={self.eta!r} needs a teacher, or teacher_risk in fit; without one eta must be 0 or None"
            )
        return [0.0]

    def _warn_dropped(self, varies: NDArray[np.bool_]) -> None:
        if varies.all():
            return
        names = [name for name, ok in zip(column_names(self, len(varies)), varies, strict=True) if not ok]
        shown = ", ".join(map(str, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        warnings.warn(f"columns that do not vary were dropped: {shown}", UserWarning, stacklevel=3)

    def __sklearn_clone__(self) -> Self:
        # A teacher is knowledge, not a part to be fitted anew, so it goes along as it is.
        parameters = self.get_params(deep=False)
        copies = {name: clone(value, safe=False) for name, value in parameters.items() if name != "teacher"}
        new = type(self)(teacher=parameters["teacher"], **copies)
        # What set_fit_request and set_score_request asked for goes along, as scikit-learn's own clone has it.
        if hasattr(self, "_metadata_request"):
            new._metadata_request = deepcopy(self._metadata_request)
        return new

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _sorted_numbers(name: str, values: Any, infinite: bool = False) -> list[float]:
    try:
        listed = list(values)
    except TypeError:
        raise InputError(f"{name} must be a list of numbers, got {values!r}") from None
    if not listed:
        raise InputError(f"{name} must hold at least one number")
    for value in listed:
        number(name, value, 0, infinite=infinite)
    return sorted({float(value) for value in listed})


def _either(y: Any) -> tuple[NDArray[np.bool_], FloatArray | None]:
    event, time = split_outcome(y, need_time=False)
    if time is not None and not event.any():
        raise InputError("y has no event: no two rows can be compared")
    return event, time


def _centred(scores: FloatArray) -> FloatArray:
    """A level changes nothing; taken away, the fit does not depend on it in the last digits either."""
    middle = scores.mean(axis=0) if len(scores) else 0.0
    wide = np.ptp(scores, axis=0) > WIDEST if len(scores) else np.zeros(0, dtype=bool)
    if wide.any():
        raise InputError(
            f"the scores of teacher number {int(np.argmax(wide)) + 1} differ by more than {WIDEST:g}; they must be log "
            "risks, like a linear predictor"
        )
    return scores - middle


def _stratum_names(labels: Any, stratum: NDArray[np.int64], order: NDArray[np.int64], n: int) -> dict[int, Any]:
    if labels is None:
        return {0: 0}
    array = np.asarray(labels).ravel()[order]
    names = {int(s): array[int(np.argmax(stratum == s))] for s in np.unique(stratum)}
    return {s: name.item() if isinstance(name, np.generic) else name for s, name in names.items()}
