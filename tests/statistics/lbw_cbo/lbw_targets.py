"""Targets of the tests, with what is known of their best Gaussians."""

import numpy as np

MEAN, COV = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 1.0]])


def gaussian(x):
    """Normalised, so that the best KL is zero."""
    y = (x - MEAN) @ np.linalg.inv(np.linalg.cholesky(COV)).T
    return -np.sum(y**2, axis=1) / 2 - np.log(2 * np.pi) - np.linalg.slogdet(COV)[1] / 2


def three_peaks(x):
    """0.8, 0.1 and 0.1 of the mass, far apart: the best Gaussian is the first component, at −log 0.8."""
    parts = [(0.8, (4, 4), 1.0), (0.1, (-4, 0), 0.25), (0.1, (0, -4), 0.25)]
    logs = [np.log(w / (2 * np.pi * v)) - np.sum((x - m) ** 2, axis=1) / (2 * v) for w, m, v in parts]
    return np.logaddexp.reduce(logs)


def banana(x):
    """A polynomial of degree four: its expectation under a Gaussian is known in closed form."""
    return -0.5 * (x[:, 0] ** 2 / 4 + (x[:, 1] - x[:, 0] ** 2 / 2 + 2) ** 2 / 0.25)


def banana_energy(mean, cov):
    """KL − log Z of N(mean, cov) and the banana, in closed form."""
    (a, b), (s, c, t) = mean, (cov[0][0], cov[0][1], cov[1][1])
    square = a**2 + s
    fourth = a**4 + 6 * a**2 * s + 3 * s**2
    y_square = b**2 + t
    y_x2 = b * square + 2 * a * c
    bend = y_square + fourth / 4 + 4 - y_x2 + 4 * b - 2 * square
    return 0.5 * (square / 4 + bend / 0.25) - 0.5 * np.log(s * t - c**2) - (1 + np.log(2 * np.pi))
