"""One pass over the rows, compiled and not, beside the dense matrix."""

import numpy as np
import pytest
import scipy.sparse

from krylow.operators import row_passes

EPS = np.finfo(float).eps


@pytest.fixture(params=["compiled", "scipy"], autouse=True)
def either(request, monkeypatch):
    if request.param == "scipy":
        monkeypatch.setattr("krylow._kernels.available", lambda: False)


def parts(dense):
    L = scipy.sparse.csr_array(dense)
    return L.indptr.astype(np.int32), L.indices.astype(np.int32), L.data


def test_bounds_are_gershgorins():
    dense = np.array([[3.0, -1.0, 0.5], [-1.0, 2.0, 0.0], [0.5, 0.0, -4.0]])
    low, high, flat, positive = row_passes.look(*parts(dense), EPS)
    assert not flat.any()
    assert positive
    assert (low, high) == (-4.5, 4.5)
    lam = np.linalg.eigvalsh(dense)
    assert lam[0] >= -4.5
    assert lam[-1] <= 4.5


def test_rows_that_are_null_but_for_rounding():
    W = np.array([[0.0, 0.1, 0.2, 0.0], [0.1, 0.0, 0.7, 0.0], [0.2, 0.7, 0.0, 0.3], [0.0, 0.0, 0.3, 0.0]])
    L = np.diag(W.sum(1)) - W
    within, positive = row_passes.null_rows(*parts(L), np.ones(4), EPS)
    assert within.all()
    assert not positive
    L[1, 1] += 1e-9
    within, _ = row_passes.null_rows(*parts(L), np.ones(4), EPS)
    assert within.tolist() == [True, False, True, True]
    L[0, 3] = L[3, 0] = 1e-30
    assert row_passes.null_rows(*parts(L), np.ones(4), EPS)[1]
    within, positive = row_passes.null_rows(*parts(L), np.ones(4), EPS)
    seen = row_passes.look(*parts(L), EPS)
    assert (seen.flat == within).all()
    assert seen.positive == positive
    scale = np.array([1.0, 2.0, 3.0, 4.0])
    within, positive = row_passes.null_rows(*parts(L / scale), scale, EPS)
    assert within.tolist() == [True, False, True, True]


def test_entries_at_the_same_place_stay_where_they_are():
    crow, col = np.array([0, 2, 3], np.int32), np.array([0, 0, 1], np.int32)
    assert row_passes.look(crow, col, np.array([60.0, 60.0, 1.0]), EPS).high == 120
    assert col.tolist() == [0, 0, 1]
