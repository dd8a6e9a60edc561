"""The exact distribution of a solver's answer: every branch of its draws, with its probability."""

from collections import defaultdict
from unittest import mock

import numpy as np

from assay.numerics.dp import exponential_probabilities
from assay.privacy.dp_smk import choice


def distribution(solve, tamper=1.0):
    """Output → probability, by walking the tree of draws; ``tamper`` multiplies every ε0 behind the ledger's back."""
    answers, path = defaultdict(float), []
    while True:
        walk = Walk(path, tamper)
        with mock.patch.object(choice, "exponential_mechanism", walk.draw):
            answers[solve()] += np.exp(walk.log_p)
        while path and path[-1] + 1 == walk.widths[len(path) - 1]:
            path.pop()
        if not path:
            return dict(answers)
        path[-1] += 1


class Walk:
    """One way down the tree: along ``path``, then always the first branch, which is added to it."""

    def __init__(self, path, tamper):
        self.path, self.tamper, self.log_p, self.widths = path, tamper, 0.0, []

    def draw(self, scores, eps0, spread, rng):
        p = exponential_probabilities(scores, self.tamper * eps0, spread)
        if len(self.widths) == len(self.path):
            self.path.append(0)
        pick = self.path[len(self.widths)]
        self.widths.append(len(p))
        self.log_p += np.log(p[pick])
        return pick


def largest_log_ratio(p, q):
    assert p.keys() == q.keys()
    return max(abs(np.log(p[o]) - np.log(q[o])) for o in p)


def renyi(p, q, a):
    logs = [(a * np.log(p[o]) - (a - 1) * np.log(q[o])) for o in p]
    return np.log(np.sum(np.exp(logs))) / (a - 1)
