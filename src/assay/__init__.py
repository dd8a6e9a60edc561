"""assay: new machine-learning methods, usable in one call, with claims that run on your machine.

Importing this package is cheap: it loads neither torch nor scikit-learn. Each method lives in
``assay.<field>.<method>``, for instance ``assay.statistics.knockoff_pca``.
"""

__version__ = "0.1.0"
