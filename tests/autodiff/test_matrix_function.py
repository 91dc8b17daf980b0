import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck

from krylow.autodiff.matrix_function import apply_function
from krylow.testing import from_spectrum

F64 = torch.float64


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


SPECTRA = {
    "simple": [0.0, 1.0, 2.5, 4.0],
    "repeated": [0.0, 1.0, 1.0, 1.0],
    "clustered": [0.0, 1.0, 1.0 + 1e-12, 2.0],
    "zero": [0.0, 0.0, 0.0, 0.0],
}


@pytest.mark.parametrize("name", list(SPECTRA))
def test_value_is_the_matrix_exponential(name):
    S, b = from_spectrum(SPECTRA[name]), randn(4, 2)
    expected = torch.from_numpy(scipy.linalg.expm(-S.numpy())) @ b
    torch.testing.assert_close(apply_function(S, lambda t: torch.exp(-t), b), expected)


@pytest.mark.parametrize("name", ["simple", "repeated", "clustered"])
def test_gradcheck_where_values_meet(name):
    S, b = from_spectrum(SPECTRA[name]).requires_grad_(), randn(4, 2).requires_grad_()
    a = torch.tensor(0.7, dtype=F64, requires_grad=True)
    assert gradcheck(lambda S, b, a: apply_function((S + S.mT) / 2, lambda t: (1 + a * t) ** -2, b), (S, b, a))


def test_batch_is_the_loop():
    S = torch.stack([from_spectrum(SPECTRA["simple"], seed=s) for s in range(3)])
    b = randn(3, 4, 1)
    batch = apply_function(S, torch.exp, b)
    for i in range(3):
        torch.testing.assert_close(batch[i], apply_function(S[i], torch.exp, b[i]))
