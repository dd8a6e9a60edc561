"""What cannot be used is refused at the door, by name."""

import numpy as np
import pandas as pd
import pytest
from lbw_targets import gaussian
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from assay.errors import InputError
from assay.statistics.lbw_cbo import LBWCBO, GaussianMeasure

EYES = np.tile(np.eye(2), (50, 1, 1))


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"n_particles": 3}, "n_particles must be at least 4"),
        ({"n_iter": 0}, "n_iter must be at least 1"),
        ({"dt": 0.0}, "dt must be positive"),
        ({"dt": np.inf}, "dt must be positive"),
        ({"drift": -1.0}, "drift must be positive"),
        ({"noise": 0.0}, "noise must be positive"),
        ({"noise_kind": "pink"}, "noise_kind must be 'anisotropic' or 'isotropic'"),
        ({"temperature": "hot"}, "temperature must be 'ess' or a positive number"),
        ({"temperature": -1.0}, "temperature must be positive"),
        ({"ess_fraction": 0.0}, "ess_fraction must be positive and at most 1"),
        ({"ess_fraction": 1.5}, "ess_fraction must be positive and at most 1"),
        ({"nodes": "grid"}, "nodes must be"),
        ({"nodes": "hermite:1"}, "nodes must be"),
        ({"nodes": "hermite:"}, "nodes must be"),
        ({"n_samples": 33}, "n_samples must be even and at least"),
        ({"n_samples": 4}, r"at least 2\(d \+ 1\) = 6"),
        ({"final_samples": 5}, "final_samples must be even"),
        ({"refresh": "never"}, "refresh must be"),
        ({"init_spread": 0.0}, "init_spread must be positive"),
        ({"init_root": -1}, "init_root must be positive"),
        ({"init_mean": [np.nan, 0]}, "init_mean must be"),
        ({"init_mean": "far"}, "init_mean must be an array of numbers, and holds words"),
        ({"init_mean": [[0, 0]]}, r"init_mean must be \(d,\)"),
        ({"init_mean": []}, r"init_mean must be \(d,\)"),
        ({"init_mean": [0, 0, 0]}, "the dimensions differ: dim has 2, init_mean has 3"),
        ({"root_bounds": (0, 1)}, r"root_bounds\[0\] must be positive"),
        ({"root_bounds": (2, 1)}, "least < largest"),
        ({"root_bounds": 1.0}, "root_bounds must be two numbers"),
        ({"tol": 0}, "tol must be positive"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"objective": "renyi:1"}, "0 < a < 1"),
        ({"objective": "renyi:x"}, "0 < a < 1"),
        ({"objective": "elbo"}, "objective must be 'kl'"),
        ({"random_state": -1}, "random_state must not be negative"),
    ],
)
def test_parameters_out_of_range(parameters, what):
    with pytest.raises(InputError, match=what):
        LBWCBO(**parameters).fit(gaussian, dim=2)


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"n_particles": 10.5}, "n_particles must be a whole number"),
        ({"n_samples": "many"}, "n_samples must be a whole number"),
        ({"dt": "0.1"}, "dt must be a number"),
        ({"noise": True}, "noise must be a number"),
        ({"temperature": np.ones(2)}, "temperature must be a number"),
        ({"restart": "no"}, "restart must be True or False"),
        ({"noise_decay": 1}, "noise_decay must be True or False"),
        ({"record": None}, "record must be True or False"),
        ({"random_state": "x"}, "random_state must be"),
        ({"objective": 3}, "objective must be a name or a function"),
    ],
)
def test_parameters_of_the_wrong_kind(parameters, what):
    with pytest.raises(TypeError, match=what):
        LBWCBO(**parameters).fit(gaussian, dim=2)


def test_hermite_points_are_for_few_dimensions():
    with pytest.raises(InputError, match="at most 3 dimensions"):
        LBWCBO(nodes="hermite:3").fit(lambda x: -np.sum(x**2, axis=1), dim=4)


def test_the_dimension_must_be_told():
    with pytest.raises(InputError, match="dim must be given"):
        LBWCBO().fit(gaussian)
    with pytest.raises(InputError, match="dim must be at least 1"):
        LBWCBO().fit(gaussian, dim=0)
    with pytest.raises(InputError, match="dim has 3, init has 2"):
        LBWCBO().fit(gaussian, dim=3, init=GaussianMeasure([0, 0], np.eye(2)))


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x, r"must return \(6400,\) for points of shape \(6400, 2\), and returned \(6400, 2\)"),
        (lambda x: 0.0, r"returned \(\)"),
        (lambda x: ["a"] * len(x), "what log_density returns must be an array of numbers, and holds words"),
        (lambda x: gaussian(x) + 0j, "holds complex128"),
        (lambda x: np.full(len(x), np.nan), "50 of the 50 first Gaussians"),
        (lambda x: np.full(len(x), np.inf), "50 of the 50 first Gaussians"),
        (lambda x: np.where(np.abs(x[:, 0]) < 1, 0.0, -np.inf), "NaN or infinite"),
    ],
)
def test_densities_that_cannot_be_used(function, what):
    with pytest.raises(InputError, match=what):
        LBWCBO(random_state=0).fit(function, dim=2)


def test_what_is_no_function():
    with pytest.raises(TypeError, match="log_density must be a function"):
        LBWCBO().fit(np.zeros((10, 2)), dim=2)
    with pytest.raises(TypeError, match="fit is given samples"):
        LBWCBO("mmd").fit(gaussian, dim=2)
    with pytest.raises(TypeError, match="must be left out"):
        LBWCBO(lambda *_: 0).fit(gaussian, dim=2)
    with pytest.raises(InputError, match=r"objective must return \(50,\) for 50 Gaussians"):
        LBWCBO(lambda *_: np.zeros(3)).fit(dim=2)
    with pytest.raises(InputError, match="or the objective given, must be a finite number"):
        LBWCBO(lambda means, *_: np.full(len(means), np.nan)).fit(dim=2)


@pytest.mark.parametrize(
    ("samples", "what"),
    [
        (np.zeros(5), r"samples must be \(n, d\)"),
        (np.full((5, 2), np.nan), "samples must be finite"),
        ([["a", "b"]], "samples must be an array of numbers"),
        ([["1", "2"]], "holds words"),
        (np.zeros((5, 2), complex), "holds complex128"),
        (pd.DataFrame({"t": pd.date_range("2020", periods=5)}), "holds dates"),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), "samples must be finite"),
        (csr_array(np.eye(3)), "dense"),
        (1e300 * np.eye(3), "too large"),
        (np.zeros((5, 2)), "median distance is zero"),
        (np.zeros((1, 2)), "median distance is zero"),
    ],
)
def test_samples_that_cannot_be_used(samples, what):
    with pytest.raises(InputError, match=what):
        LBWCBO("mmd").fit(samples)


def test_a_bandwidth_that_is_none():
    for bandwidth, what in (("wide", "bandwidth must be 'median'"), (0.0, "bandwidth must be positive")):
        with pytest.raises(InputError, match=what):
            LBWCBO("mmd", bandwidth=bandwidth).fit(np.random.default_rng(0).standard_normal((20, 2)))


@pytest.mark.parametrize(
    ("init", "what"),
    [
        ((np.zeros((50, 2)), np.zeros((49, 2, 2))), "init must be means"),
        ((np.zeros((50, 2)), EYES * np.nan), "init must be finite"),
        ((np.zeros((50, 2)), EYES + np.array([[0, 1], [0, 0]])), "the roots of init must be symmetric"),
        ((np.zeros((50, 2)), -EYES), "must be positive semidefinite"),
    ],
)
def test_starts_that_cannot_be_used(init, what):
    with pytest.raises(InputError, match=what):
        LBWCBO().fit(gaussian, init=init)


def test_a_start_of_the_wrong_kind():
    with pytest.raises(TypeError, match="init must be a GaussianMeasure or"):
        LBWCBO().fit(gaussian, init=3)


def test_densities_that_fail_now_and_then_are_counted():
    def holed(x):
        return np.where(x[:, 0] > 9, np.nan, gaussian(x))

    with pytest.warns(RuntimeWarning, match="were NaN or infinite and got no weight"):
        found = LBWCBO(random_state=0).fit(holed, dim=2)
    assert found.history_["nonfinite"].sum() > 0
    assert np.isfinite(found.measure_.mean).all()
    assert np.isfinite(found.elbo_)


def test_a_density_without_a_value_where_the_gaussian_has_mass_is_refused_in_the_end():
    def cut(x):  # too seldom to show in the search
        return np.where(x[:, 0] > 5, np.nan, gaussian(x))

    with pytest.raises(InputError, match="some of 4096 fresh points"):
        LBWCBO(n_samples=16, restart=False, random_state=0).fit(cut, dim=2)


def test_a_swarm_that_has_not_agreed_says_so():
    with pytest.warns(ConvergenceWarning, match="had not agreed after 5 iterations"):
        found = LBWCBO(n_iter=5, random_state=0).fit(gaussian, dim=2)
    assert not found.converged_


def test_a_gaussian_at_the_bounds_of_its_root_says_so():
    for scale, side in ((1e-6, "narrow"), (1e6, "wide")):
        with pytest.warns(ConvergenceWarning, match=f"as {side} as root_bounds"):
            LBWCBO(random_state=0).fit(lambda x, s=scale: -np.sum((x / s) ** 2, axis=1) / 2, dim=1)


def test_nothing_is_told_before_the_fit():
    with pytest.raises(NotFittedError):
        LBWCBO().sample(3)
    with pytest.raises(NotFittedError):
        LBWCBO().score_samples([[0.0]])
