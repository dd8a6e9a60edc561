"""The contenders: what one would use instead, each ``f(X, r, seed) -> (r, d)`` unit rows."""

from __future__ import annotations

import contextlib
import io
import warnings
from functools import partial
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.utils.validation import validate_data

from assay.errors import MissingPart

FloatArray = NDArray[np.float64]

ROBPY_LINE = "python -m pip install --no-deps robpy==0.0.6 && python -m pip install statsmodels seaborn tqdm"
PYRPCA_LINE = 'python -m pip install "pyrpca>=1.0,<2"'


def pca(X: FloatArray, r: int, seed: int) -> FloatArray:
    """Plain PCA."""
    return PCA(r, svd_solver="full").fit(X).components_


def pca_drop_first(X: FloatArray, r: int, seed: int) -> FloatArray:
    """Plain PCA without its first component: the guess that the first is the shift."""
    return PCA(r + 1, svd_solver="full").fit(X).components_[1:]


def spherical(X: FloatArray, r: int, seed: int) -> FloatArray:
    """Spherical PCA (Locantore et al. 1999): rows are put on a sphere about their spatial median."""
    centred = X - spatial_median(X)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    directions = centred / np.where(norms > 0, norms, 1.0)
    return np.linalg.svd(directions, full_matrices=False)[2][:r]


def trimmed(X: FloatArray, r: int, seed: int, keep: float = 0.75) -> FloatArray:
    """PCA of the 75 % of the rows that are nearest to the coordinate-wise median."""
    distance = np.linalg.norm(X - np.median(X, axis=0), axis=1)
    return pca(X[np.argsort(distance, kind="stable")[: int(np.ceil(keep * len(X)))]], r, seed)


def gmm(X: FloatArray, r: int, seed: int) -> FloatArray:
    """Two Gaussians with one covariance on 10 principal scores, then PCA within the groups."""
    scores = PCA(min(10, *X.shape), svd_solver="full").fit_transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Without a second group the mixture may not settle; that is its answer.
        mixture = GaussianMixture(2, covariance_type="tied", n_init=5, random_state=seed)
        labels = mixture.fit_predict(scores)
    return within_groups(X, labels, r)


def within_groups(X: FloatArray, labels: NDArray[np.int64], r: int) -> FloatArray:
    """PCA of the rows, each centred by the mean of its group."""
    centred = X.copy()
    for label in np.unique(labels):
        centred[labels == label] -= X[labels == label].mean(axis=0)
    return pca(centred, r, 0)


def robpca(X: FloatArray, r: int, seed: int) -> FloatArray:
    """ROBPCA (Hubert, Rousseeuw and Vanden Branden 2005) of robpy with 10 components, the first r of them.

    Its last step, a robust covariance of the scores, is what tells a shift from a component, and needs room:
    asked for a single component, robpy leaves that step out, and ROBPCA does no better than plain PCA here.
    """
    try:
        from robpy.covariance.base import RobustCovariance
        from robpy.pca import robpca as module
    except ImportError as error:
        raise MissingPart(f"robpy, for ROBPCA, cannot be imported ({error})", ROBPY_LINE) from error
    if not hasattr(RobustCovariance, "_validate_data"):
        # robpy 0.0.6 calls a method that scikit-learn 1.7 took out of its base class; this function replaced it.
        RobustCovariance._validate_data = validate_data
    k = max(r, min(10, X.shape[1], len(X) // 5))
    # ROBPCA does not hand its seed on to the FastMCD of its last step.
    seeded = partial(module.FastMCD, random_seed=seed)
    with mock.patch.object(module, "FastMCD", seeded):
        model = module.ROBPCA(n_components=k, random_seed=seed).fit(X)
    return np.ascontiguousarray(model.components_.T[:r])


def pcp(X: FloatArray, r: int, seed: int) -> FloatArray:
    """Principal component pursuit (Candès et al. 2011) of pyrpca: PCA of the low-rank part."""
    try:
        from pyrpca import rpca_pcp_ialm
    except ImportError as error:
        raise MissingPart("pyrpca, for principal component pursuit, is not installed", PYRPCA_LINE) from error
    sparsity = 1 / np.sqrt(max(X.shape))  # The weight of Candès et al.
    with contextlib.redirect_stdout(io.StringIO()):
        low_rank, _ = rpca_pcp_ialm(X - np.median(X, axis=0), sparsity, verbose=False)
    return pca(np.asarray(low_rank), r, seed)


def spatial_median(X: FloatArray, max_iter: int = 100) -> FloatArray:
    """Return the point with the least sum of distances to the rows (Weiszfeld's iteration)."""
    centre = np.median(X, axis=0)
    for _ in range(max_iter):
        distance = np.linalg.norm(X - centre, axis=1)
        weights = 1 / np.maximum(distance, 1e-12 * distance.max(initial=1e-300))
        step = weights @ X / weights.sum() - centre
        centre = centre + step
        if np.linalg.norm(step) <= 1e-8 * distance.mean():
            break
    return centre
