"""Paired tests between two rows that answered the same sentences with the same seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

#: Draws of the bootstrap over sentences.
DRAWS = 10_000


def paired(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    r"""Compare two rows by which answers were right.

    Three tests, since there are two sources of chance, the seed of a training and the sentences of dev:

    - *seeds*: Student's paired t test on the accuracies, seed by seed; sentences held fixed. None where there is one
      seed, or where all differences are equal.
    - *bootstrap*: over sentences, of the difference of mean accuracies, with seeds averaged first.
    - *McNemar*: exact, on the answers of the seeds' majority vote.

    Both are ``(seeds, sentences)`` booleans. ``difference`` is ours minus theirs in points of accuracy,
    ``bootstrap_95`` the interval's ends, ``bootstrap_p`` two-sided, ``mcnemar`` the
    sentences only ours and only theirs has right.

    >>> right = np.array([[True, True, False, True]] * 2)
    >>> paired(right, right)["difference"]
    0.0
    """
    per_seed = 100 * (ours.mean(1) - theirs.mean(1))
    spread = per_seed.std() if len(per_seed) > 1 else 0.0
    seeds_p = float(stats.ttest_1samp(per_seed, 0.0).pvalue) if spread > 1e-9 else None
    gain = 100 * (ours.mean(0) - theirs.mean(0))  # (sentences,)
    draw = np.random.default_rng(0)
    means = np.array([gain[draw.integers(len(gain), size=len(gain))].mean() for _ in range(DRAWS)])
    low, high = np.quantile(means, (0.025, 0.975))
    tail = min((means <= 0).mean(), (means >= 0).mean())
    a, b = (part.mean(0) > 0.5 for part in (ours, theirs))
    only_ours, only_theirs = int((a & ~b).sum()), int((b & ~a).sum())
    discordant = only_ours + only_theirs
    return {
        "difference": _short(per_seed.mean()),
        "per_seed": [_short(value) for value in per_seed],
        "seeds_p": None if seeds_p is None else _short(seeds_p),
        "bootstrap_95": [_short(low), _short(high)],
        "bootstrap_p": _short(min(1.0, 2 * tail)),
        "mcnemar": [only_ours, only_theirs],
        "mcnemar_p": _short(stats.binomtest(only_ours, discordant).pvalue) if discordant else 1.0,
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")
