import pytest
import torch

from krylow.data import sbm, split_family
from krylow_lab.training.spectra import Task


@pytest.fixture
def families():
    """Return two small families, as two seeds would draw them: 12 graphs of 24 nodes each."""
    return [
        split_family(
            "tiny", sbm(12, 24, 3, 0.6, 0.1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        )
        for seed in (0, 1)
    ]


@pytest.fixture
def task(families):
    return Task.of(families, [0, 1])
