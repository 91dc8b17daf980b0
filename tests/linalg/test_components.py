"""The null space that components show, against numpy's eigenvectors."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.csgraph
import torch

import krylow as kl
from krylow.graph import as_operator
from krylow.linalg.components import null_space
from krylow.operators import DenseOperator
from krylow.testing import path, random_graph

F64 = torch.float64


def islands(sizes=(9, 1, 14, 1, 5), seed=0, signed=False):
    """Connected graphs side by side, isolated nodes among them, numbered at random."""
    W = scipy.sparse.block_diag([random_graph(n, seed=seed + n, signed=signed).numpy() for n in sizes])
    order = np.random.default_rng(seed).permutation(W.shape[0])
    return scipy.sparse.csr_array(W)[order][:, order]


def true_null_projector(dense):
    lam, U = np.linalg.eigh(dense)
    inside = U[:, np.abs(lam) <= 1e-10 * max(1.0, np.abs(lam).max())]
    return inside @ inside.T


@pytest.mark.parametrize("kind", ["combinatorial", "generalized", "normalized"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_null_space(kind, dtype):
    L = kl.laplacian(islands().astype(dtype), kind)
    found = null_space(L)
    assert (found.components, found.count, found.lowest) == (5, 5, True)
    U = found.basis()
    noise = 1e-5 if dtype == np.float32 else 1e-12
    torch.testing.assert_close(U.mT @ U, torch.eye(5, dtype=F64), rtol=0, atol=noise)
    expected = torch.from_numpy(true_null_projector(kl.laplacian(islands(), kind).to_dense().numpy()))
    torch.testing.assert_close(U @ U.mT, expected, rtol=0, atol=noise)
    assert L.products == 0


def test_a_normalised_laplacian_that_comes_as_a_matrix():
    """Without its degrees only the unweighted one's null vectors can be read off."""
    pattern = (islands() != 0).astype(float)
    L = as_operator(scipy.sparse.csgraph.laplacian(pattern, normed=True))
    found = null_space(L)
    expected = torch.from_numpy(true_null_projector(L.to_dense().numpy()))
    U = found.basis()
    torch.testing.assert_close(U @ U.mT, expected, rtol=0, atol=1e-12)
    assert found.lowest
    weighted = null_space(as_operator(scipy.sparse.csgraph.laplacian(islands(), normed=True)))
    assert weighted.count == 2  # the isolated nodes alone are sure
    assert weighted.components == 5


def test_self_loops_take_their_component_out():
    W = islands().tolil()
    labels = scipy.sparse.csgraph.connected_components(W)[1]
    looped = int(np.nonzero(np.bincount(labels)[labels] == 14)[0][0])
    W[looped, looped] = 0.3
    L = kl.laplacian(W.tocsr())
    found = null_space(L)
    assert (found.components, found.count, found.lowest) == (5, 4, True)
    U = found.basis()
    expected = torch.from_numpy(true_null_projector(L.to_dense().numpy()))
    torch.testing.assert_close(U @ U.mT, expected, rtol=0, atol=1e-12)
    assert (found.vector[found.labels >= 4] == 0).all()


def test_a_signed_graph_has_null_vectors_that_need_not_be_the_lowest():
    L = kl.laplacian(islands(signed=True))
    assert np.linalg.eigvalsh(L.to_dense().numpy())[0] < -0.1
    found = null_space(L)
    assert found.count == 5
    assert not found.lowest
    assert float(torch.linalg.norm(L @ found.basis())) < 1e-12


def test_weights_over_twelve_orders_of_magnitude():
    W = islands().tocoo()
    weight = 10.0 ** np.random.default_rng(0).uniform(-6, 6, W.nnz)
    W = scipy.sparse.csr_array((weight, (W.row, W.col)), shape=W.shape)
    L = kl.laplacian(W + W.T, "combinatorial")
    found = null_space(L)
    assert found.count == 5
    assert float(torch.linalg.norm(L @ found.basis())) <= 1e-13 * float(L.norm_bound())


def test_edges_of_weight_zero_join_nothing():
    n = 6
    row, col = np.arange(n - 1), np.arange(1, n)
    weight = np.array([1.0, 1.0, 0.0, 1.0, 1.0])
    W = scipy.sparse.csr_array((np.r_[weight, weight], (np.r_[row, col], np.r_[col, row])), shape=(n, n))
    assert null_space(kl.laplacian(W)).count == 2


def test_the_first_null_vectors_are_those_of_the_largest_components():
    found = null_space(kl.laplacian(islands()))
    sizes = (found.basis(3) != 0).sum(0)
    assert sizes.tolist() == [14, 9, 5]
    assert found.basis(3, torch.float32).dtype == torch.float32
    assert found.basis(99).shape == (30, 5)


@pytest.mark.parametrize("sizes", [(20,), (9, 1, 14, 1, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_deflation_without_a_basis(sizes, dtype):
    found = null_space(kl.laplacian(islands(sizes)))
    U = found.basis(dtype=dtype)
    X = torch.randn(sum(sizes), 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.coefficients(X), U.mT @ X)
    torch.testing.assert_close(found.remove(X), X - U @ (U.mT @ X))


def test_an_empty_graph_is_null_altogether():
    found = null_space(kl.laplacian(scipy.sparse.csr_array((4, 4))))
    torch.testing.assert_close(found.basis(), torch.eye(4, dtype=F64))


def test_a_positive_definite_matrix_has_none():
    found = null_space(as_operator(scipy.sparse.csr_array(np.diag([2.0, 3.0]) - 0.5 * np.ones((2, 2)))))
    assert found.count == 0
    X = torch.ones(2, 1, dtype=F64)
    assert torch.equal(found.remove(X), X)
    assert not found.lowest


def test_only_sparse_operators_are_looked_at():
    assert null_space(DenseOperator(torch.eye(3))) is None


@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
@pytest.mark.parametrize("parts", [1, 3])
def test_null_vectors_follow_their_nodes_to_another_order(kind, parts):
    W = scipy.sparse.block_diag([scipy.sparse.csr_array(path(size).numpy()) for size in (7, 5, 9)[:parts]])
    L = kl.laplacian(scipy.sparse.csr_array(W), kind)
    order = torch.randperm(L.n, generator=torch.Generator().manual_seed(0))
    moved = null_space(L).reordered(order)
    permuted = L.to_dense()[order][:, order]
    U = moved.basis()
    assert U.shape[1] == parts
    torch.testing.assert_close(permuted @ U, torch.zeros_like(U))
    torch.testing.assert_close(U.mT @ U, torch.eye(parts, dtype=U.dtype))


def test_the_vector_of_ones_takes_no_room_and_its_basis_has_its_own():
    n = 50
    L = kl.laplacian(scipy.sparse.diags_array([np.ones(n - 1)] * 2, offsets=[1, -1]).tocsr())
    null = null_space(L)
    assert null.vector.shape == (n,)
    assert null.vector.untyped_storage().nbytes() == 8
    basis = null.basis()
    basis[0] = 0.0  # of this row alone
    torch.testing.assert_close(basis[1:, 0], torch.full((n - 1,), n**-0.5, dtype=torch.float64))
