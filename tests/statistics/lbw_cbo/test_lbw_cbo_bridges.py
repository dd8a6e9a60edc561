"""Log densities of torch functions and Pyro models: the same numbers, and what cannot be taken is refused."""

import builtins

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from scipy.stats import beta, norm

from assay.errors import InputError, MissingPart
from assay.statistics.lbw_cbo import LBWCBO, log_density_from_pyro, log_density_from_torch

DATA = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)


def normal_model(y):
    mu = pyro.sample("mu", dist.Normal(torch.zeros(2, dtype=torch.float64), 2.0).to_event(1))
    sd = pyro.sample("sd", dist.HalfNormal(torch.tensor(3.0, dtype=torch.float64)))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mu[0] + mu[1], sd), obs=y)


def test_a_model_is_its_log_joint_with_the_jacobian():
    log_density, dim, unflatten = log_density_from_pyro(normal_model, DATA)
    assert dim == 3
    x = np.random.default_rng(0).standard_normal((4, 3))
    sites = unflatten(x)
    assert sites["mu"].shape == (4, 2)
    assert sites["sd"].shape == (4,)
    order = list(sites)
    mu, sd = (x[:, :2], x[:, 2]) if order[0] == "mu" else (x[:, 1:], x[:, 0])
    np.testing.assert_allclose(sites["mu"], mu)
    np.testing.assert_allclose(sites["sd"], np.exp(sd))
    direct = norm(0, 2).logpdf(mu).sum(axis=1) + np.log(2) + norm(0, 3).logpdf(np.exp(sd)) + sd
    direct += norm(mu.sum(axis=1)[:, None], np.exp(sd)[:, None]).logpdf(DATA.numpy()).sum(axis=1)
    np.testing.assert_allclose(log_density(x), direct, rtol=1e-9)
    calls = []
    counted, _, _ = log_density_from_pyro(lambda y: (calls.append(1), normal_model(y)), DATA)
    before = len(calls)
    np.testing.assert_allclose(counted(x), direct, rtol=1e-9)
    assert len(calls) == before + 1  # all rows in one call
    np.testing.assert_allclose(unflatten(x[0])["mu"], mu[0])


def test_it_is_pyros_own_potential():
    log_density, _, unflatten = log_density_from_pyro(normal_model, DATA)
    _, potential, _, _ = initialize_model(normal_model, (DATA,))
    x = np.array([[0.3, -1.0, 0.2]])
    first = next(iter(unflatten(x)))
    mu, sd = (x[0, :2], x[0, 2]) if first == "mu" else (x[0, 1:], x[0, 0])
    theirs = potential({"mu": torch.from_numpy(mu), "sd": torch.tensor(sd)})
    assert log_density(x)[0] == pytest.approx(-float(theirs), rel=1e-12)


def test_a_constrained_posterior_is_found():
    def coin(heads, tails):
        p = pyro.sample("p", dist.Beta(torch.tensor(1.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)))
        pyro.factor("data", heads * p.log() + tails * (-p).log1p())

    log_density, dim, unflatten = log_density_from_pyro(coin, 70, 30)
    found = LBWCBO(random_state=0, n_particles=20, n_iter=80).fit(log_density, dim=dim)
    p = unflatten(found.sample(4000, random_state=1))["p"]
    exact = beta(71, 31)
    assert p.mean() == pytest.approx(exact.mean(), abs=0.01)
    assert p.std() == pytest.approx(exact.std(), rel=0.1)


def test_a_model_with_control_flow_is_evaluated_row_by_row():
    def branching():
        x = pyro.sample("x", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        pyro.factor("f", -x if float(x) > 0 else x)

    log_density, dim, _ = log_density_from_pyro(branching)
    x = np.array([[1.0], [-2.0]])
    np.testing.assert_allclose(log_density(x), norm.logpdf(x[:, 0]) - np.abs(x[:, 0]))
    assert dim == 1


def test_nothing_global_is_left_behind():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    stored = dict(pyro.get_param_store().items())
    log_density, dim, _ = log_density_from_pyro(normal_model, DATA)
    log_density(np.zeros((2, dim)))
    assert torch.equal(before, torch.random.get_rng_state())
    assert dict(pyro.get_param_store().items()) == stored


def test_models_that_cannot_be_taken():
    with pytest.raises(InputError, match="no latent site"):
        log_density_from_pyro(lambda: pyro.sample("y", dist.Normal(0.0, 1.0), obs=torch.tensor(0.0)))
    with pytest.raises(InputError, match="'k' of model is discrete"):
        log_density_from_pyro(lambda: pyro.sample("k", dist.Bernoulli(0.5)))
    with pytest.raises(TypeError, match="model must be a Pyro model"):
        log_density_from_pyro(3)
    _, _, unflatten = log_density_from_pyro(normal_model, DATA)
    with pytest.raises(InputError, match=r"points must be \(n, 3\)"):
        unflatten(np.zeros((2, 2)))


def test_without_pyro_the_line_that_installs_it_is_named(monkeypatch):
    there = builtins.__import__

    def absent(name, *arguments, **named):
        if name == "pyro":
            raise ModuleNotFoundError("No module named 'pyro'", name="pyro")
        return there(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingPart) as raised:
        log_density_from_pyro(normal_model, DATA)
    assert raised.value.install == "python -m pip install 'assay[statistics]'"


def test_a_function_of_tensors_is_taken_in_pieces():
    asked = []

    def of_tensors(x):
        asked.append(len(x))
        assert x.dtype == torch.float64
        return -(x**2).sum(dim=1) / 2

    log_density = log_density_from_torch(of_tensors, device="cpu", batch_rows=4)
    x = np.random.default_rng(0).standard_normal((10, 2))
    np.testing.assert_allclose(log_density(x), -np.sum(x**2, axis=1) / 2)
    assert asked == [4, 4, 2]
    with pytest.raises(InputError, match="device must be"):
        log_density_from_torch(of_tensors, device="abacus")
    with pytest.raises(InputError, match="batch_rows must be"):
        log_density_from_torch(of_tensors, batch_rows=0)
    with pytest.raises(TypeError, match="function must be a function of tensors"):
        log_density_from_torch(3)
    assert log_density(np.empty((0, 2))).shape == (0,)
    for wrong, got in ((lambda x: x, r"\(3, 2\)"), (lambda x: 1.0, "float")):
        with pytest.raises(InputError, match=rf"must return a tensor \(3,\) for 3 rows, got {got}"):
            log_density_from_torch(wrong, device="cpu")(np.zeros((3, 2)))


def test_a_tensor_may_come_back_from_a_density_of_arrays():
    found = LBWCBO(random_state=0, n_particles=20, n_iter=60, restart=False).fit(
        lambda x: -(torch.from_numpy(x - 1) ** 2).sum(dim=1).requires_grad_() / 2, dim=1
    )
    assert found.measure_.mean[0] == pytest.approx(1, abs=0.05)
