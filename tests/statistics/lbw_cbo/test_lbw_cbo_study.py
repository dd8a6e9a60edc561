"""The study: targets that are what they say, optima that nothing beats, arms that answer, a user's own target."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from assay.errors import InputError, MissingPart
from assay.evidence.study import Budget
from assay.parts import statsmodels_data
from assay.statistics.lbw_cbo import GaussianMeasure, baselines, targets
from assay.statistics.lbw_cbo.cbx_swarm import cbx
from assay.statistics.lbw_cbo.objectives import Density
from assay.statistics.lbw_cbo.optimum import best_gaussian
from assay.statistics.lbw_cbo.study import STUDY, own

SMOKE = Budget.SMOKE
RNG = np.random.default_rng(0)
TARGETS = {
    "mixture": targets.random_mixture(np.random.default_rng(3)),
    "sunspots": targets.sunspots(),
    "logistic": targets.tumours(np.random.default_rng(3), 80),
}


@pytest.mark.parametrize("name", TARGETS)
def test_gradients_are_those_of_finite_differences(name):
    target = TARGETS[name]
    x, h = np.random.default_rng(1).standard_normal((6, target.dim)), 1e-6
    steps = h * np.eye(target.dim)
    numeric = np.stack([(target.log_density(x + e) - target.log_density(x - e)) / (2 * h) for e in steps], axis=1)
    np.testing.assert_allclose(target.gradient(x), numeric, rtol=1e-5, atol=1e-5 * np.abs(numeric).max())


def test_the_mixture_is_a_mixture():
    t = TARGETS["mixture"]
    x = np.random.default_rng(2).uniform(-4, 4, (5, 2))
    parts = [w * multivariate_normal(m, s**2).pdf(x) for w, m, s in zip(t.weights, t.means, t.scales, strict=True)]
    np.testing.assert_allclose(t.log_density(x), np.log(np.sum(parts, axis=0)))


def test_the_sunspots_likelihood_is_the_marginal_of_the_model():
    y = statsmodels_data.load("sunspots")["sunactivity"].to_numpy(float)
    y, t = (y - y.mean()) / y.std(), np.arange(len(y))
    for u, v in [(0.4, -0.3), (-2.0, 1.0), (3.0, 0.0)]:
        f, var = np.exp(0.25 * u - 2.5), np.exp(v)
        X = np.stack([np.cos(2 * np.pi * f * t), np.sin(2 * np.pi * f * t)], axis=1)
        direct = multivariate_normal(np.zeros(len(y)), var * np.eye(len(y)) + X @ X.T).logpdf(y)
        direct += len(y) / 2 * np.log(2 * np.pi) - (u**2 + v**2) / 2
        assert TARGETS["sunspots"].log_density(np.array([[u, v]]))[0] == pytest.approx(direct, abs=1e-6)


@pytest.mark.filterwarnings("error")
def test_the_sunspots_have_a_value_everywhere():
    far = np.array([[-4000.0, -4000.0], [4000.0, 50.0], [0.0, -900.0], [-200.0, -60.0]])
    assert (TARGETS["sunspots"].log_density(far) < 0).all()


def test_no_noise_is_no_refuge():
    # Near the frequencies 0 and 1/2 all sines vanish: rounding must not make a perfect fit of that.
    for f in (1e-14, 1.5e-10, 1e-8, 0.5 - 1e-12, 0.5, 1 + 1e-11, 2**30):
        u = 4 * (np.log(f) + 2.5)
        for v in (-5.0, -20.0, -100.0, -400.0):
            assert TARGETS["sunspots"].log_density(np.array([[u, v]]))[0] < -116


def test_the_best_gaussian_of_the_sunspots_is_the_known_one():
    mean, cov = best_gaussian(TARGETS["sunspots"])
    nodes = baselines.draw_nodes("sobol", 4096, 2, np.random.default_rng(5))
    energy = baselines.energies(
        Density(TARGETS["sunspots"].log_density), mean[None], np.linalg.cholesky(cov)[None], nodes
    )[0]
    assert energy == pytest.approx(115.929, abs=2e-3)
    assert 1 / TARGETS["sunspots"].frequency(mean[0]) == pytest.approx(11.0, abs=0.01)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), [0.0070, 0.0804], atol=2e-4)


def test_the_best_gaussian_of_a_mixture_is_its_heavy_component_where_they_lie_apart():
    far = targets.Mixture(np.array([[0.0, 0], [30, 0], [0, 30]]), np.array([1.0, 0.5, 0.3]), np.array([0.2, 0.5, 0.3]))
    mean, cov = best_gaussian(far)
    np.testing.assert_allclose(mean, [30, 0], atol=1e-3)
    np.testing.assert_allclose(cov, 0.25 * np.eye(2), atol=1e-3)


@pytest.mark.parametrize("task", ["mixtures", "sunspots", "logistic"])
def test_every_arm_answers_and_none_beats_the_optimum(task):
    for _, arm in [pair for pair in STUDY.pairs(SMOKE) if pair[0].name == task]:
        given, hidden = STUDY.task(task).load(11, SMOKE)
        answer = arm.run(given, 5, SMOKE)
        metrics = STUDY.task(task).score(answer, hidden)
        assert metrics["gap"] > -0.01, arm.name
        assert metrics["success"] in (0.0, 1.0)
        limit = (given.gaussians + given.n_particles) * given.n_samples + 11 * baselines.FINAL_SAMPLES
        assert 0 < metrics["rows"] <= limit + (4 * given.n_particles * given.n_samples), arm.name
        again, _ = STUDY.task(task).load(11, SMOKE)
        np.testing.assert_array_equal(arm.run(again, 5, SMOKE).mean, answer.mean)


def test_advi_answers_and_leaves_torch_alone():
    import torch

    before = torch.random.get_rng_state()
    given, hidden = STUDY.task("mixtures").load(0, SMOKE)
    metrics = STUDY.task("mixtures").score(STUDY.arm("advi").run(given, 1, SMOKE), hidden)
    assert np.isfinite(metrics["gap"])
    assert torch.equal(before, torch.random.get_rng_state())


def test_an_arm_of_a_user_may_return_mean_and_covariance():
    task = STUDY.task("mixtures")
    given, hidden = task.load(0, SMOKE)
    given.density(np.zeros((7, 2)))
    metrics = task.score((np.zeros(2), np.eye(2)), hidden)
    assert metrics["rows"] == 7
    assert metrics["gap"] > 0
    assert metrics["parameters"] == 5
    for wrong in (3.0, (np.zeros(2), -np.eye(2))):
        with pytest.raises(ValueError, match=r"output must be|positive semidefinite"):
            task.score(wrong, hidden)


def test_the_solar_cycle_must_be_the_right_one():
    task = STUDY.task("sunspots")
    _, hidden = task.load(0, SMOKE)
    mean, cov = best_gaussian(TARGETS["sunspots"])
    assert task.score((mean, cov), hidden)["found_cycle"]
    assert not task.score((mean + np.array([0.5, 0]), cov), hidden)["found_cycle"]


def test_coordinates_go_there_and_back():
    rng = np.random.default_rng(0)
    roots = np.stack(
        [GaussianMeasure.from_cov(np.zeros(3), (A := rng.standard_normal((3, 3))) @ A.T).root for _ in "ab"]
    )
    lowers = np.linalg.cholesky(roots @ roots)
    means, back = baselines.from_numbers(baselines.to_numbers(np.ones((2, 3)), lowers), 3)
    np.testing.assert_allclose(back, lowers, atol=1e-9)
    np.testing.assert_array_equal(means, 1)


def test_without_cma_its_cells_are_missing(monkeypatch):
    def gone(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", gone)
    given, _ = STUDY.task("mixtures").load(0, SMOKE)
    with pytest.raises(MissingPart, match="cma-bipop needs cma"):
        baselines.cma_bipop(given, 0)
    with pytest.raises(MissingPart, match="cbx needs cbx"):
        cbx(given, 0)


def test_cbxpy_finds_a_gaussian_with_its_budget_and_leaves_numpy_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    density = Density(multivariate_normal([1.0, -2.0], [[2.0, 0.6], [0.6, 1.0]]).logpdf)
    given = baselines.Problem(density, None, 2, 3.0, 1.0, 40, 150, 32)
    found = cbx(given, 0)
    np.testing.assert_allclose(found.mean, [1, -2], atol=0.02)
    np.testing.assert_allclose(found.cov, [[2, 0.6], [0.6, 1]], atol=0.05)
    assert density.rows - (given.gaussians * 32) <= 16 * baselines.FINAL_SAMPLES
    assert density.rows >= 0.75 * given.gaussians * 32  # swarm after swarm
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_a_users_target_is_a_study(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import numpy as np\nDIM = 2\ndef log_density(x):\n    return -np.sum(x**2, axis=1)\n")
    study = own({"data": path})
    assert [arm.name for arm in study.arms] == ["lbw-cbo", "cbo-cholesky", "cma-bipop", "cbx", "random"]
    given, hidden = study.tasks[0].load(0, SMOKE)
    metrics = study.tasks[0].score(study.method.run(given, 0, SMOKE), hidden)
    assert metrics["energy"] == pytest.approx(-np.log(np.pi), abs=0.1)  # −log Z
    path.write_text(path.read_text() + "def gradient(x):\n    return -2 * x\n")
    assert "bw-gd-multi" in [arm.name for arm in own({"data": path}).arms]
    with pytest.raises(InputError, match="takes a target as data"):
        own({"model": path})
