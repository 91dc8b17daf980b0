"""A short form of the fuzzer, new every day, and what it once found; the whole of it is part of ``make soak``."""

import datetime
import gzip
import io
import struct
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import scipy.sparse.linalg
import torch

import krylow as kl
from fuzz import calls, files
from fuzz.run import FINE
from krylow.nn import GaussianProbe, UnrolledLanczos

TODAY = datetime.datetime.now(datetime.UTC).date().toordinal()
BRIEF = hypothesis.settings(max_examples=120, database=None, suppress_health_check=list(hypothesis.HealthCheck))


def test_whole_files_are_read(tmp_path):
    for name, form in files.formats().items():
        for content in form.contents:
            assert files.judge(name, content, tmp_path) == "read", name


def test_mutated_files_of_today(tmp_path):
    first = TODAY * 10_000
    found = {seed: files.run(seed, tmp_path) for seed in range(first, first + 1000)}
    assert {name for name, _ in found.values()} == set(files.formats())
    assert not {seed: case for seed, case in found.items() if case[1] not in FINE}


@hypothesis.seed(TODAY)
@BRIEF
@hypothesis.given(calls.calls())
def test_calls_of_today_are_answered_rightly_or_refused(call):
    assert calls.judge(call) in FINE


@hypothesis.seed(TODAY)
@BRIEF
@hypothesis.given(calls.odd_calls())
def test_odd_arguments_are_refused_in_words(case):
    assert calls.judge_odd(case) in FINE


def test_functions_with_arguments_in_order_are_answered():
    missing = {"tudataset", "read_graph", "read_signals"}
    for name, (_, options) in calls.FUNCTIONS.items():
        assert calls.judge_odd((name, options)) == ("refused" if name in missing else "answered"), name


# Found


def test_a_view_backward_along_one_entry():
    """It is contiguous by its flags, and torch takes no negative stride."""
    one = np.zeros((2, 2))[::-2, ::-2]
    assert one.strides[0] < 0
    assert kl.laplacian(one).shape == (1, 1)
    assert kl.lowpass(kl.laplacian(one), np.ones(2)[::-2], 1) == 1


def test_a_network_on_a_product_of_numpy_has_the_gradient_of_the_matrix():
    W = np.diag(np.ones(7), 1) + np.diag(np.ones(7), -1)
    L = kl.laplacian(W)
    gradients = []
    for form in (L, scipy.sparse.linalg.aslinearoperator(L.to_dense().numpy())):
        net = UnrolledLanczos(2, 5, GaussianProbe(), init=0.1).double()
        net(form).basis[0].square().sum().backward()
        gradients.append(net.upsilon1.grad)
    torch.testing.assert_close(*gradients)


def test_the_second_frequency_of_a_signed_graph_that_is_not_connected():
    W = np.zeros((4, 4))
    W[0, 1] = W[1, 0] = W[2, 3] = W[3, 2] = -1.0
    assert kl.fiedler(kl.laplacian(W)).value == pytest.approx(-2)


def test_a_network_keeps_at_most_as_many_frequencies_as_it_has_steps():
    with pytest.raises(kl.InputError, match="m must be between k"):
        UnrolledLanczos(10**30, 25)


@pytest.mark.parametrize(
    "call",
    [
        lambda: kl.metrics.subspace_error("x", torch.eye(2)),
        lambda: kl.metrics.principal_angles(torch.full((3, 1), torch.nan), torch.eye(3)[:, :1]),
        lambda: kl.metrics.krylov_ceiling(torch.eye(2), torch.eye(2).double()),
        lambda: kl.operators.DenseOperator(np.ones((2, 3))),
        lambda: kl.laplacian(np.eye(2)).to("no device"),
        lambda: kl.laplacian(({1}, torch.ones(1))),
        lambda: kl.laplacian(torch.zeros(2, 2).bfloat16()),
        lambda: kl.data.split_family("x", 3),
        lambda: kl.data.sbm(2, 6, p_out=torch.tensor([1, 2])),
        lambda: kl.data.load_family("sbm", seed=float("nan")),
        lambda: kl.data.connected_subgraphs([np.ones((2, 2))], 1, dtype=0),
        lambda: UnrolledLanczos(2, 4, probe=1),
        lambda: kl.nn.GraphLearning(16)(torch.ones(1, 4, 8)),
        lambda: kl.nn.LowPass(1)(torch.ones(2, 1), torch.tensor([[0, 1], [1, 0]]), batch="x"),
        lambda: kl.nn.LowPassAttention(8, 2, k=2)(torch.ones(1, 4, 8), key_padding_mask=1.0),
        lambda: kl.metrics.principal_angles(torch.ones(2, 6), torch.eye(2)),
        lambda: kl.operators.FunctionOperator(lambda X: X, 3, psd=torch.tensor([1, 2])),
        lambda: kl.nn.RootProbe(3, 0.5, 2e300),
        lambda: kl.nn.InversePolynomialProbe(scaled=torch.tensor([1, 2])),
        lambda: kl.nn.UnrolledLanczos(2, 4, literal=torch.tensor([1, 2])),
        lambda: kl.responses.MexicanHat(4, adapted="no"),
        lambda: kl.metrics.subspace_error(torch.eye(2), torch.eye(2), squared="no"),
        lambda: kl.solvers.LOBPCG(lock=2j),
        lambda: kl.solvers.Chebyshev(block=torch.tensor([1, 2])),
    ],
)
def test_arguments_that_gave_another_librarys_error(call):
    with pytest.raises(kl.InputError, match=r"must|takes"):
        call()


def test_a_glue_file_of_other_bytes(tmp_path):
    assert files.judge("GLUE", b"id\ta\tb\tlabel\n1\t\xff\tz\t1\n", tmp_path) == "refused"
    assert files.judge("GLUE", b"id\ta\tb\tlabel\n1\t" + b"x" * 200_000 + b"\tz\t1\n", tmp_path) == "refused"


def test_rows_that_end_before_they_begin(tmp_path):
    """scipy's check skips them where the last row ends at 0, and its sorting then wrote beyond its arrays."""
    rows = {"data": np.ones(4), "indices": np.array([1, 0, 2, 1]), "indptr": np.array([0, 1, 3, 4, 0])}
    content = files.npz(**rows, shape=np.array([4, 4]), format=np.array(b"csr"))
    assert files.judge("sparse npz", content, tmp_path) == "refused"


def test_an_element_of_no_type_in_a_matlab_file(tmp_path):
    """scipy's reader follows a null pointer there."""
    content = bytearray(files.formats()["mat"].contents[0])
    place = content.index((5).to_bytes(4, "little") + (44).to_bytes(4, "little"))  # the indices of 11 rows
    content[place] = 0
    assert files.judge("mat", bytes(content), tmp_path) == "refused"


def test_an_archive_that_says_it_spans_two_disks(tmp_path):
    """Python's zipfile raises where it is asked if that is an archive."""
    whole = files.formats()["pt"].contents[0]
    end = whole.rindex(b"PK\5\6")
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 2)
    assert files.judge("pt", whole[:end] + locator + whole[end:], tmp_path) in FINE


def test_a_number_of_nodes_that_is_none(tmp_path):
    assert files.judge("OGB counts", gzip.compress(b"inf\n"), tmp_path) == "refused"


def test_small_numbers_of_numpy_do_not_overflow():
    x = torch.randn(4, 8)
    graphs = kl.nn.GraphLearning(8, 2, num_graphs=np.uint8(255))(x)
    assert graphs.points.shape == (255, 4, 2)
    plain, small = kl.nn.RootProbe(3, 0.5, 2.0), kl.nn.RootProbe(3, 0.5, np.float16(2.0))
    torch.testing.assert_close(plain.rho, small.rho)


def test_a_probe_of_endless_work():
    with pytest.raises(kl.InputError, match="power must be between 1 and 10000"):
        kl.nn.InversePolynomialProbe(power=10**30)


def test_an_empty_archive(tmp_path):
    assert files.judge("sparse npz", files.npz(), tmp_path) == "refused"
    assert files.judge("npz signals", io.BytesIO().getvalue(), Path(tmp_path)) == "refused"
