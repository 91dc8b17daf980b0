"""Calls of the public functions with graphs and options of every kind: a right answer, or a clear refusal.

A case is drawn by hypothesis: a small graph whose Laplacian is known, a form in which it is given, perhaps spoiled, and
options, perhaps odd ones. What is in order must be answered; whatever is answered must be right; nothing but an
``InputError`` (or Python's own TypeError for arguments that a function has not) may come out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import networkx
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
import torch
from hypothesis import strategies as st
from torch_geometric.data import Data

import krylow as kl
from krylow.api import SIGNAL_METHODS
from krylow.integrations.sklearn import LowPassEmbedding, LowPassFilter
from krylow.nn import UnrolledLanczos
from krylow.solvers import METHODS
from krylow.training import Recipe

Forms = dict[str, Callable[[np.ndarray], Any]]


def edge_index(W: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack(np.nonzero(W)))


def strided(A: np.ndarray, step: int) -> np.ndarray:
    """Return the same matrix as every second entry of another, forward or backward."""
    big = np.full((2 * A.shape[0], 2 * A.shape[1]), np.nan)
    view = big[::2, ::2] if step > 0 else big[::-2, ::-2]
    view[...] = A
    return view


def read_only(A: np.ndarray) -> np.ndarray:
    A = A.copy()
    A.flags.writeable = False
    return A


def quiet(make: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


#: Forms that hold the matrix exactly; the weights are multiples of 1/4, which float16 holds too.
MATRICES: Forms = {
    "float64": lambda A: A,
    "float32": lambda A: A.astype(np.float32),
    "big-endian": lambda A: A.astype(">f8"),
    "Fortran": np.asfortranarray,
    "every second": lambda A: strided(A, 2),
    "backward": lambda A: strided(A, -2),
    "read-only": read_only,
    "torch": torch.from_numpy,
    "torch float32": lambda A: torch.from_numpy(A).float(),
    "torch strided": lambda A: torch.from_numpy(strided(A, 2)),
    "torch with a gradient": lambda A: torch.from_numpy(A.copy()).requires_grad_(),
    "torch COO": lambda A: torch.from_numpy(A).to_sparse(),
    "torch CSR": lambda A: quiet(lambda: torch.from_numpy(A).to_sparse_csr()),
    "torch CSC": lambda A: quiet(lambda: torch.from_numpy(A).to_sparse_csc()),
    "csr": sp.csr_array,
    "csr matrix": sp.csr_matrix,
    "csc": sp.csc_array,
    "coo": sp.coo_array,
    "coo twice": lambda A: twice(sp.coo_array(A)),
    "csr unsorted": lambda A: unsorted(sp.csr_array(A)),
    "csr float32": lambda A: sp.csr_array(A.astype(np.float32)),
    "lil": sp.lil_array,
    "dok": sp.dok_array,
    "dia": sp.dia_array,
    "bsr": sp.bsr_array,
}
#: Forms that may be refused, but must be right if they are taken.
ODD_MATRICES: Forms = {
    "list": lambda A: A.tolist(),
    "tuple": lambda A: tuple(map(tuple, A.tolist())),
    "float16": lambda A: A.astype(np.float16),
    "long double": lambda A: A.astype(np.longdouble),
    "complex": lambda A: A.astype(complex),
    "object": lambda A: A.astype(object),
    "text": lambda A: A.astype(str),
    "matrix": lambda A: quiet(lambda: np.matrix(A)),
    "masked": lambda A: np.ma.masked_array(A, A == 0),
    "torch half": lambda A: torch.from_numpy(A).half(),
    "torch bfloat16": lambda A: torch.from_numpy(A).bfloat16(),
    "batch of one": lambda A: A[None],
    "list of one": lambda A: [A],
    "csr complex": lambda A: sp.csr_array(A.astype(complex)),
    "csr float16 torch": lambda A: torch.from_numpy(A).half().to_sparse(),
    "LinearOperator": scipy.sparse.linalg.aslinearoperator,
    "torch expanded": lambda A: torch.from_numpy(A).expand(2, -1, -1),
    "generator": iter,
    "bytes": lambda A: A.tobytes(),
}
GRAPHS: Forms = {
    "networkx": networkx.from_numpy_array,
    "PyG": lambda W: Data(edge_index=edge_index(W), edge_weight=torch.from_numpy(W[np.nonzero(W)]), num_nodes=len(W)),
}


def twice(A: Any) -> Any:
    """Return a matrix whose entries are listed in two halves."""
    return sp.coo_array((np.r_[A.data, A.data] / 2, (np.r_[A.row, A.row], np.r_[A.col, A.col])), shape=A.shape)


def unsorted(A: Any) -> Any:
    """Return rows whose entries are in descending order."""
    order = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in zip(A.indptr, A.indptr[1:], strict=False)] or [[]])
    return sp.csr_array((A.data[order.astype(int)], A.indices[order.astype(int)], A.indptr), shape=A.shape)


def spoil(how: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return what makes a matrix one that must be refused."""

    def at(value: float) -> Callable[[np.ndarray], np.ndarray]:
        def change(A: np.ndarray) -> np.ndarray:
            A = A.copy()
            A[0, -1] = A[-1, 0] = value
            return A

        return change

    def lopsided(A: np.ndarray) -> np.ndarray:
        A = A.copy()
        A[0, -1] += 1.0
        return A

    return {
        "NaN": at(np.nan),
        "infinite": at(np.inf),
        "asymmetric": lopsided,
        "not square": lambda A: A[:, :-1],
        "one dimension": lambda A: A[0],
        "no nodes": lambda A: A[:0, :0],
        "no rows": lambda A: A[:0],
    }[how]


SPOILS = ("NaN", "infinite", "asymmetric", "not square", "one dimension", "no nodes", "no rows")
ODD = st.sampled_from(
    [
        *(
            None,
            True,
            -1,
            0,
            1,
            2,
            10**30,
            1.5,
            2.0,
            float("nan"),
            float("inf"),
            -0.0,
            1e-300,
            "2",
            "exact",
            b"x",
            "ünï",
        ),
        *([], [1], (), {}, {1}, object(), 2j, int, print, slice(2), ..., np.int8(2), np.uint8(255), np.float32(2)),
        *(np.array(2), np.array([1, 2]), torch.tensor(2), torch.tensor([1, 2]), torch.tensor(float("nan"))),
        torch.Generator(),
    ]
)


@dataclass
class Call:
    """A call, and what is known of the outcome: whether it must be answered (True), refused (False) or either."""

    name: str
    form: str
    kind: str | None
    W: np.ndarray
    given: Any = field(repr=False)
    options: dict[str, Any]
    must: bool | None

    def __repr__(self) -> str:
        return f"{self.name}({self.form} of {self.W.tolist()}, kind={self.kind!r}, {self.options!r}), must={self.must}"


def laplacian_of(W: np.ndarray, kind: str | None) -> np.ndarray:
    """Return the dense Laplacian, by its definition."""
    loops = np.diagonal(W)
    kind = kind or ("generalized" if loops.any() else "combinatorial")
    L = np.diag(W.sum(1)) - W
    if kind == "generalized":
        return L + np.diag(loops)
    if kind == "combinatorial":
        return L
    size = np.abs(W).sum(1)
    scale = np.where(size > 0, 1 / np.sqrt(np.where(size > 0, size, 1)), 0)
    return scale[:, None] * L * scale


@st.composite
def adjacencies(draw: Any) -> np.ndarray:
    n = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    W = np.triu(rng.random((n, n)) < draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])), 1).astype(float)
    weights = draw(st.sampled_from(["unit", "unit", "quarters", "signed"]))
    if weights == "quarters":
        W *= rng.integers(1, 12, W.shape) / 4
    elif weights == "signed":
        W *= rng.choice([-1, 1, 2], W.shape)
    loops = np.diag(rng.random(n) < 0.4) if draw(st.integers(0, 5)) == 0 else 0
    return W + W.T + loops


KINDS = st.sampled_from([None, None, "combinatorial", "generalized", "normalized", "normalised"])
NAMES = ("laplacian", "subspace", "subspace", "lowpass", "fiedler", "partition", "effective_resistance", "network")


@st.composite
def calls(draw: Any) -> Call:
    """Draw a call."""
    W, name, kind, must = draw(adjacencies()), draw(st.sampled_from(NAMES)), draw(KINDS), True
    odd_kind = name == "laplacian" and draw(st.integers(0, 9)) == 0
    if odd_kind:
        kind, must = draw(ODD), None
    if (W < 0).any() and W.diagonal().any():
        must = None  # such an adjacency may be a Laplacian itself
    plain = kind.replace("ised", "ized") if isinstance(kind, str) else None
    where = draw(st.sampled_from(["operator", "operator", "matrix", "graph"])) if name != "laplacian" else "adjacency"
    matrix = laplacian_of(W, plain) if where == "matrix" and not odd_kind else W
    forms = {"exact": MATRICES, "odd": ODD_MATRICES, "graph": GRAPHS}
    group = draw(st.sampled_from(["exact", "exact", "exact", "odd", "graph"]))
    if where == "graph" or (where == "matrix" and group == "graph"):
        group = "graph" if where == "graph" else "exact"
    form = draw(st.sampled_from(sorted(forms[group])))
    if where == "graph" or (where == "matrix" and plain == "normalized" and (W < 0).any()):
        plain, must = (None if where == "graph" else plain), must if where == "graph" else None
    if where == "matrix" and ((W < 0).any() or not W.any()):
        must = None  # signed Laplacians, and the zero matrix, may be taken for adjacencies
    if where == "matrix" and plain == "normalized" and "32" in form:
        must = None
    if group == "odd":
        must = None
    spoiled = draw(st.sampled_from([*SPOILS] + [None] * 14))
    if spoiled is not None and group == "exact" and (len(W) > 1 or spoiled in ("NaN", "infinite", "no nodes")):
        matrix, must, form = spoil(spoiled)(matrix), False, f"{form}, {spoiled}"
    try:
        given = forms[group][form.split(", ")[0]](matrix)
    except (TypeError, ValueError, IndexError, RuntimeError, networkx.NetworkXError):  # it has no such form
        given, must = matrix, False if must is False else None
    options, fine = draw(arguments(name, W))
    lone, signed = name == "fiedler" and len(W) == 1, plain == "normalized" or (W < 0).any()
    if lone or (name == "effective_resistance" and signed):
        must = must if must is False else None
    must = must if fine or must is False else None
    return Call(f"{name} of {where}", form, plain if where != "graph" else None, W, given, options, must)


@st.composite
def arguments(draw: Any, name: str, W: np.ndarray) -> tuple[dict[str, Any], bool]:
    """Draw options, and whether all are in order."""
    n, fine, options = len(W), True, {}
    if name in ("subspace", "lowpass"):
        options["k"] = draw(st.integers(1, n))
        options["tol"] = draw(st.sampled_from([1e-2, 1e-3, 1e-6]))
        if draw(st.integers(0, 2)) == 0:
            methods = (*METHODS, *SIGNAL_METHODS) if name == "lowpass" else METHODS
            options["method"], fine = draw(st.sampled_from(methods)), False
        if draw(st.integers(0, 4)) == 0:
            options["seed"] = draw(st.integers(0, 2**40))
        if draw(st.integers(0, 4)) == 0:
            del options["k"]
            options["cutoff"] = draw(st.sampled_from([0.0, 0.3, 1.0, 5.0, 100.0]))
        if draw(st.integers(0, 9)) == 0:
            options["m"] = draw(st.integers(1, 40))
        if draw(st.integers(0, 9)) == 0:
            options["max_products"], fine = draw(st.integers(1, 100)), False
        if draw(st.integers(0, 9)) == 0:
            options["start"] = np.random.default_rng(0).standard_normal((n, 2))
            fine = False
    elif name == "partition":
        options["parts"] = draw(st.integers(1, n))
        options["method"] = draw(st.sampled_from(["bisection", "kmeans"]))
    elif name == "effective_resistance":
        options["pairs"] = np.random.default_rng(0).integers(0, n, (3, 2))
    elif name == "network":
        options |= {"k": draw(st.integers(1, n)), "m": draw(st.integers(1, 30))}
        fine = options["m"] >= options["k"]
    if name == "lowpass":
        shape = draw(st.sampled_from([(n,), (n, 1), (n, 3)]))
        x = np.random.default_rng(draw(st.integers(0, 99))).integers(-4, 5, shape).astype(float)
        forms = ["float64", "float32", "torch", "torch float32", "Fortran", "read-only", "list", "big-endian"]
        options["x"] = {**MATRICES, **ODD_MATRICES}[draw(st.sampled_from(forms))](x)
        if draw(st.integers(0, 9)) == 0:
            options["x"], fine = (
                draw(st.sampled_from([x[:-1], x * np.nan, x.astype(complex), x[None], "x", x > 0])),
                False,
            )
    if options and draw(st.integers(0, 5)) == 0:
        options[draw(st.sampled_from(sorted(options)))], fine = draw(ODD), False
    return options, fine


def execute(call: Call) -> Any:
    """Return what the call returns, and the operator it was about."""
    name, _, where = call.name.partition(" of ")
    given, options = call.given, dict(call.options)
    if where == "adjacency":
        return kl.laplacian(given, call.kind)
    L = kl.laplacian(given, call.kind) if where == "operator" else given
    if name == "network":
        return UnrolledLanczos(**options).double()(L)
    if name == "lowpass":
        return kl.lowpass(L, options.pop("x"), **options)
    if name == "effective_resistance":
        return kl.effective_resistance(L, **options)
    return getattr(kl, name)(L, **options)


def judge(call: Call) -> str:
    """Run a call; return "answered", "refused", or what is wrong with the outcome."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            answer = execute(call)
            CHECKS[call.name.partition(" of ")[0]](call, answer)
    except kl.InputError as refused:
        if call.must:
            return f"refused: {refused}"[:300]
        return "refused" if str(refused).strip() else "refused without a word"
    except AssertionError as wrong:
        return f"wrong: {wrong}"[:300]
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "answered" if call.must is not False else "taken, although it is none"


def numpy_of(x: Any) -> np.ndarray:
    return x.detach().double().numpy() if isinstance(x, torch.Tensor) else np.asarray(x, dtype=float)


def truth(call: Call) -> tuple[np.ndarray, np.ndarray, float]:
    """Return eigenvalues and vectors of the Laplacian, and the rounding of what was given, relative to its size."""
    values, vectors = np.linalg.eigh(laplacian_of(call.W, call.kind))
    single = any(word in call.form for word in ("32", "16", "half", "list", "tuple"))
    return values, vectors, 1e-4 if single else 1e-9


def check_laplacian(call: Call, L: Any) -> None:
    expected = laplacian_of(call.W, call.kind)
    found = numpy_of(L.to_dense())
    found = found.reshape(-1, *found.shape[-2:])[0]
    assert found.shape == expected.shape, f"shape {found.shape}"
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6), f"another Laplacian: {found.tolist()}"


def check_subspace(call: Call, sub: Any) -> None:
    values, vectors, eps = truth(call)
    V = numpy_of(sub.basis)
    V = V.reshape(-1, *V.shape[-2:])[0]
    status, bound, proved = sub.status.name, float(sub.error_bound.max()), sub.certificate.proved
    assert np.isfinite(V).all(), "a basis that is not finite"
    used = np.linalg.norm(V, axis=0) > 0
    k = V.shape[1] if sub.kept is None else int(sub.kept.reshape(-1)[0])
    V = V[:, used][:, :k]
    assert np.abs(V.T @ V - np.eye(V.shape[1])).max(initial=0) < eps, "a basis that is not orthonormal"
    assert not np.isnan(bound), "a bound that is NaN"
    if not 0 < k < len(values):
        return
    size = max(np.abs(values).max(), 1e-300)
    gap = values[k] - values[k - 1]
    if status == "CONVERGED" and gap > 1e-3 * size:
        error = (k - np.linalg.norm(vectors[:, :k].T @ V) ** 2) / k
        assert error <= 10 * sub.tol + eps, f"a false claim: {error:.2g} for {sub.tol:.2g}"
        assert not proved or error <= bound + eps, f"a proved bound {bound:.2g} below {error:.2g}"
    if call.options.get("cutoff") is not None and sub.cutoff is not None and call.options.get("method") == "exact":
        near = np.abs(values - sub.cutoff) <= eps * size
        assert k == (values <= sub.cutoff).sum() or near.any(), f"{k} frequencies up to {sub.cutoff}"


def check_lowpass(call: Call, y: Any) -> None:
    values, vectors, eps = truth(call)
    x = numpy_of(call.options["x"])
    y = numpy_of(y)
    assert y.shape == x.shape or y.size == x.size or y.ndim > x.ndim, f"shape {y.shape} of {x.shape}"
    assert np.isfinite(y).all(), "a signal that is not finite"
    k = call.options.get("k")
    if type(k) is not int or call.options.get("method", "auto") not in ("auto", "exact") or not 0 < k < len(values):
        return
    if values[k] - values[k - 1] > 1e-3 * max(np.abs(values).max(), 1e-300) and y.shape == x.shape:
        U = vectors[:, :k]
        single = getattr(call.options["x"], "dtype", None) in (np.float32, torch.float32, np.float16)
        near = (1e-3 if single or eps > 1e-5 else 1e-7) + np.sqrt(10 * k * 1e-9)
        off = np.abs(y - U @ (U.T @ x)).max(initial=0)
        assert off <= near * max(np.abs(x).max(initial=0), 1), f"another signal, off by {off:.2g}"


def check_fiedler(call: Call, found: Any) -> None:
    values, _, eps = truth(call)
    value, vector = (numpy_of(part) for part in found)
    assert np.isfinite(vector).all(), "a vector that is not finite"
    size = max(np.abs(values).max(), 1e-300)
    assert abs(float(value.reshape(-1)[0]) - values[1]) <= (1e-4 + eps) * size, f"lambda_2 = {value}, not {values[1]}"


def check_partition(call: Call, found: Any) -> None:
    labels = np.asarray(found.labels)
    assert labels.shape[-1] == len(call.W), "a label for each node"
    assert labels.min() >= 0, "a part below 0"
    assert labels.max() < int(call.options["parts"]), "a part too many"
    if np.array_equal(np.asarray(found.labels).reshape(-1), labels.reshape(-1)) and labels.ndim == 1:
        off = labels[:, None] != labels[None]
        assert np.isfinite(float(found.cut)), "a cut that is not finite"
        if call.kind in ("combinatorial", None):
            assert abs(float(found.cut) - call.W[off].sum() / 2) < 1e-4 * max(np.abs(call.W).sum(), 1), "another cut"


def check_resistance(call: Call, found: Any) -> None:
    assert not np.isnan(numpy_of(found)).any(), "a resistance that is NaN"


CHECKS: dict[str, Callable[[Call, Any], None]] = {
    "laplacian": check_laplacian,
    "subspace": check_subspace,
    "network": check_subspace,
    "lowpass": check_lowpass,
    "fiedler": check_fiedler,
    "partition": check_partition,
    "effective_resistance": check_resistance,
}


# Anything in the place of any argument


def small() -> tuple[Any, Any, np.ndarray]:
    """Return a Laplacian, a subspace of it, and its adjacency."""
    W = np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)
    L = kl.laplacian(W)
    return L, kl.subspace(L, 2), W


def functions() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Return functions by name, each with arguments that are in order."""
    L, sub, W = small()
    V, x = sub.basis, torch.ones(1, 6, 8)
    adjacency = torch.from_numpy(W)
    attention = {"embed_dim": 8, "num_heads": 2, "k": 2, "m": 4, "filter": "lanczos", "block_size": 2}
    layer = {"k": 2, "kind": None, "method": "auto", "tol": 1e-3}
    edges, weight = edge_index(W), torch.ones(10, dtype=torch.float64)
    samples = np.random.default_rng(0).standard_normal((12, 3))
    graph = {"n_components": 2, "n_neighbors": 3}
    return {
        "project": (sub.project, {"x": np.ones(6)}),
        "gft": (sub.gft, {"x": np.ones((6, 2))}),
        "inverse_gft": (sub.inverse_gft, {"c": np.ones(2)}),
        "product": (lambda x: L @ x, {"x": np.ones((6, 1))}),
        "conversion": (lambda x: L.to(x), {"x": torch.float32}),
        "subspace_error": (kl.metrics.subspace_error, {"U_hat": V, "U": V}),
        "principal_angles": (kl.metrics.principal_angles, {"U_hat": V, "U": V}),
        "orthogonality_loss": (kl.metrics.orthogonality_loss, {"V": V}),
        "krylov_ceiling": (kl.metrics.krylov_ceiling, {"V": V, "U": V}),
        "DenseOperator": (kl.operators.DenseOperator, {"matrix": adjacency}),
        "DiagonalOperator": (kl.operators.DiagonalOperator, {"eigenvalues": torch.ones(3)}),
        "FunctionOperator": (
            lambda **o: kl.subspace(kl.operators.FunctionOperator(**o), 1),
            {"multiply": lambda X: X, "n": 3, "dtype": torch.float64, "psd": True},
        ),
        "laplacian of a pair": (lambda i, w, n: kl.laplacian((i, w), num_nodes=n), {"i": edges, "w": weight, "n": 6}),
        "laplacian of edges": (lambda i, n: kl.laplacian(i, num_nodes=n), {"i": edges, "n": 6}),
        "laplacian of a list": (lambda a, b: kl.laplacian([a, b]), {"a": W, "b": W[:3, :3]}),
        "sbm": (kl.data.sbm, {"num_graphs": 2, "n": 6, "communities": 2, "p_in": 0.5, "p_out": 0.1, "dtype": None}),
        "sbm_labels": (kl.data.sbm_labels, {"n": 6, "communities": 2}),
        "connected_subgraphs": (
            kl.data.connected_subgraphs,
            {"graphs": [W], "size": 3, "root": "first", "generator": None, "dtype": None},
        ),
        "split_family": (kl.data.split_family, {"name": "x", "graphs": adjacency.expand(4, 6, 6), "generator": None}),
        "load_family": (
            kl.data.load_family,
            {"source": "sbm", "seed": 0, "n": 10, "num_graphs": 5, "communities": 2, "dtype": None, "download": False},
        ),
        "tudataset": (lambda name: kl.data.tudataset(name, download=False), {"name": "none"}),
        "read_graph": (kl.data.read_graph, {"path": "none.csv", "num_nodes": 3, "add_up": False, "max_size": None}),
        "read_signals": (kl.data.read_signals, {"path": "none.csv", "max_size": "1M"}),
        "load": (kl.load, {"name": "sbm-k6"}),
        "InversePolynomialProbe": (
            lambda **o: UnrolledLanczos(2, 4, kl.nn.InversePolynomialProbe(**o)).double()(L),
            {"degree": 3, "power": 2, "cg_steps": 3, "solver": "cg", "scaled": True},
        ),
        "RootProbe": (
            lambda **o: UnrolledLanczos(2, 4, kl.nn.RootProbe(**o), reorthogonalize=True).double()(L),
            {"count": 3, "low": 0.5, "high": 2.0},
        ),
        "UnrolledLanczos": (
            lambda **o: UnrolledLanczos(**o).double()(L),
            {"k": 2, "m": 4, "probe": None, "init": None, "gammas": "square", "reorthogonalize": False},
        ),
        "LowPassAttention": (lambda **o: kl.nn.LowPassAttention(**o)(x), attention),
        "attention of": (kl.nn.LowPassAttention(**attention), {"x": x, "key_padding_mask": None}),
        "GraphLearning": (lambda **o: kl.nn.GraphLearning(**o)(x), {"embed_dim": 8, "num_graphs": 1}),
        "LowPass": (lambda **o: kl.nn.LowPass(**o)(torch.ones(6, 1).double(), L), layer),
        "LowPass of": (kl.nn.LowPass(2), {"x": torch.ones(6, 1), "graph": edges, "edge_weight": None, "batch": None}),
        "Recipe": (Recipe, {"loss": "subspace", "lr": 1e-3, "weight": 0.1, "epochs": 2, "clip": 1.0, "patience": 2}),
        "LowPassEmbedding": (lambda **o: LowPassEmbedding(**o).fit(samples).embedding_, graph | {"kind": "normalized"}),
        "embedding of": (lambda X: LowPassEmbedding(**graph).fit_transform(X), {"X": samples}),
        "LowPassFilter": (lambda **o: LowPassFilter(**o).fit_transform(samples), graph | {"cutoff": None}),
    } | {
        f"solver {kind.__name__}": (lambda kind=kind, **o: kl.subspace(L, 2, method=kind(**o)), dict.fromkeys(own, 3))
        for kind, own in SOLVERS.items()
    }


SOLVERS = {
    kl.solvers.Lanczos: ("m",),
    kl.solvers.ThickRestart: ("basis_size",),
    kl.solvers.Chebyshev: ("block",),
    kl.solvers.Multilevel: ("block", "degree", "cycles"),
    kl.solvers.Davidson: ("block",),
    kl.solvers.LOBPCG: ("block", "lock", "most_iterations"),
    kl.solvers.ShiftInvert: ("basis_size", "max_fill"),
}
FUNCTIONS = functions()


@st.composite
def odd_calls(draw: Any) -> tuple[str, dict[str, Any]]:
    """Draw a function, and its arguments with one or two of them odd."""
    name = draw(st.sampled_from(sorted(FUNCTIONS)))
    options = dict(FUNCTIONS[name][1])
    for key in draw(st.lists(st.sampled_from(sorted(options)), min_size=1, max_size=2)):
        odd_array = st.sampled_from(sorted(ODD_ARRAYS))
        options[key] = draw(ODD) if draw(st.booleans()) else ODD_ARRAYS[draw(odd_array)](options[key])
    return name, options


def other(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what changes an array or a tensor, and leaves the rest."""

    def changed(value: Any) -> Any:
        try:
            return change(value)
        except Exception:  # it is of another kind
            return value

    return changed


ODD_ARRAYS = {
    "empty": other(lambda x: x[:0]),
    "shorter": other(lambda x: x[:-1]),
    "one more dimension": other(lambda x: x[None]),
    "one less": other(lambda x: x[0]),
    "NaN": other(lambda x: x * float("nan")),
    "huge": other(lambda x: x * 1e300),
    "negative": other(lambda x: -x),
    "complex": other(lambda x: x * 1j),
    "single": other(lambda x: x.float() if isinstance(x, torch.Tensor) else x.astype(np.float32)),
    "half": other(lambda x: x.half() if isinstance(x, torch.Tensor) else x.astype(np.float16)),
    "whole": other(lambda x: x.long() if isinstance(x, torch.Tensor) else x.astype(int)),
    "list": other(lambda x: x.tolist()),
    "other kind": other(lambda x: x.numpy() if isinstance(x, torch.Tensor) else torch.from_numpy(x)),
    "transposed": other(lambda x: x.swapaxes(-1, -2)),
}


def judge_odd(case: tuple[str, dict[str, Any]]) -> str:
    """Run a function; return "answered", "refused", or what is wrong with the outcome."""
    function = FUNCTIONS[case[0]][0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = function(**case[1])
    except (kl.InputError, TypeError, ValueError, kl.data.DataNotFoundError) as refused:
        return "refused" if str(refused).strip() else "refused without a word"
    except MemoryError:
        return "refused"  # what was asked for is that large
    except Exception as error:
        return "refused" if "alloc" in str(error) else f"{type(error).__name__}: {error}"[:300]
    basis = getattr(answer, "basis", answer)
    asked = [value for value in case[1].values() if isinstance(value, (torch.Tensor, np.ndarray, float, list))]
    asked = [value for value in asked if np.asarray(value).dtype.kind in "fiubc"]
    given = all(np.abs(numpy_of(value)).max(initial=0) < 1e100 for value in asked if not np.iscomplexobj(value))
    if isinstance(basis, (torch.Tensor, np.ndarray)) and given and np.isnan(numpy_of(basis)).any():
        return "wrong: NaN"
    return "answered"
