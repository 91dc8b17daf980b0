"""Mutated files of every format that krylow and its laboratory read: each is read right, or refused in words."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import os
import random
import struct
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas
import scipy.io
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import krylow as kl
from krylow.data import GraphFamily, read_graph, read_signals, read_tudataset
from krylow.nn import GaussianProbe, InversePolynomialProbe, RootProbe, UnrolledLanczos
from krylow.training import Recipe, train_network
from krylow_lab.records import Record, RecordError
from krylow_lab.text import glue

#: Any file may be refused by these.
REFUSALS = (kl.InputError, RecordError)
#: Pieces that readers stumble over.
WORDS = [
    *b"nan inf -inf 1e308 1e-320 1e999 -1 0 99999999999 9223372036854775807 -9223372036854775809 1.5 0x10 1_0".split(),
    *b"None true %%MatrixMarket matrix array coordinate pattern complex skew-symmetric hermitian integer".split(),
    *b"<f8 >f8 |O |S4 <U9 <c16 <V8 <i8 <f2 <M8[s] (4,4) (-1,) (99999999999,) fortran_order weight".split(),
    *b"source,target edgedefault <graph> <node/> <!DOCTYPE] &amp; &x; ]]> type F64 BF16 data_offsets".split(),
    *b"__metadata__ shape format config __class__ krylow-record-1".split(),
    *(b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b"\n\n", b",", b"\t", b'"', b"#", b" ", b"{", b"}", b"["),
]
JSON_VALUES = (None, True, -1, 0, 1, 2, 3, 10**6, 10**12, 10**30, 0.5, 1e308, "", "x", "NaN", [], {}, [[]], {"x": 1})


@dataclass(frozen=True)
class Format:
    """A kind of file: whole contents, and what reads one from a path and checks what came out."""

    suffix: str
    contents: tuple[bytes, ...]
    read: Callable[[Path], Any]


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def written(write: Callable[[Path], Any], name: str = "file") -> bytes:
    """Return what a writer writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        return path.read_bytes()


def check_graph(path: Path) -> None:
    graph = read_graph(path)
    W = graph.adjacency
    assert W.shape[0] == W.shape[1] >= 1, W.shape
    assert np.isfinite(W.data).all()
    assert W.dtype in (np.float32, np.float64), W.dtype
    assert graph.nodes is None or len(graph.nodes) == graph.n
    if graph.n <= 5000:  # its Laplacian exists, unless W is one
        A = W.toarray()
        assert np.abs(A - A.T).max() <= 1e-4 * max(np.abs(A).max(), 1e-300)
        with contextlib.suppress(kl.InputError):
            assert bool(torch.isfinite(kl.laplacian(W).diagonal()).all())


def check_ogb(path: Path, other: str) -> None:
    content = {"edge": gzip.compress(b"0,1\n1,2\n"), "num-node-list": gzip.compress(b"3\n"), other: path.read_bytes()}
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        (Path(folder) / "raw").mkdir()
        for name, data in content.items():
            (Path(folder) / "raw" / f"{name}.csv.gz").write_bytes(data)
        check_graph(Path(folder))


def check_signals(path: Path) -> None:
    table = read_signals(path)
    assert table.values.dtype in (np.float32, np.float64)
    if table.nodes is not None:
        assert len(table.nodes) == len(table.values)
    if table.columns is not None:
        assert len(table.columns) == table.values.shape[-1]


PATH = np.diag(np.ones(7), 1) + np.diag(np.ones(7), -1)


def check_network(path: Path) -> None:
    net = kl.load(path)
    assert all(bool(torch.isfinite(p).all()) for p in net.parameters())
    if net.m <= 64:
        try:
            basis = net(kl.laplacian(PATH).to(net.upsilon1.dtype)).basis
        except kl.InputError:
            return
        # A weight may be any number, and then the answer is none: but never NaN called a basis.
        assert bool(torch.isfinite(basis).all()), "a basis that is not finite"


@functools.cache
def family() -> GraphFamily:
    W = torch.stack([torch.from_numpy(PATH), torch.from_numpy(PATH) * 2, torch.from_numpy(PATH) * 3])
    return GraphFamily("paths", W, W[:1], W[:1])


RECIPE = Recipe(epochs=2, batch_size=2)


def train(folder: Path) -> Any:
    return train_network(UnrolledLanczos(2, 3, GaussianProbe(), init=0.1).double(), family(), RECIPE, folder=folder)


def check_state(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        path.rename(Path(folder) / "state.safetensors")
        trained = train(Path(folder))
        assert len(trained.validation_curve) >= 1
        assert all(bool(torch.isfinite(p).all()) for p in trained.net.parameters())


def check_record(path: Path) -> None:
    record = Record.read(path)
    assert isinstance(record.results, dict)


EDGES, INDICATOR = b"1, 2\n2, 1\n2, 3\n3, 2\n6, 7\n7, 6\n", b"1\n1\n1\n2\n2\n3\n3\n"


def check_tudataset(path: Path, other: str) -> None:
    content = {"A": EDGES, "graph_indicator": INDICATOR, other: path.read_bytes()}
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for name, text in content.items():
            (Path(folder) / f"X_{name}.txt").write_bytes(text)
        for W in read_tudataset(folder, "X"):
            assert W.shape[0] == W.shape[1]
            assert (W != W.T).nnz == 0


LINES = glue._Layout("X", ("a", "b", "label"), {"1": 1, "0": 0}, {}, {"train.tsv": 3})


def check_glue(path: Path) -> None:
    path = path.rename(path.with_name("train.tsv"))
    assert len(glue._read(path, LINES)) == 3


NAMED = networkx.relabel_nodes(networkx.path_graph(4), {0: "a", 1: "b", 2: "c", 3: "d"})
NETWORKS = {
    "gexf": lambda p: networkx.write_gexf(NAMED, p),
    "gml": lambda p: networkx.write_gml(NAMED, p),
    "pajek": lambda p: networkx.write_pajek(NAMED, p),
}


@functools.cache
def formats() -> dict[str, Format]:
    """Return every format by name, with a few whole files of each."""
    W = np.zeros((6, 6))
    for i, j, w in ((0, 1, 1.0), (1, 2, 2.5), (2, 3, 1.0), (3, 4, 0.25), (0, 4, 3.0), (5, 5, 1.5)):
        W[i, j] = W[j, i] = w
    market = {
        "general": lambda p: scipy.io.mmwrite(p, sp.coo_array(W), symmetry="general"),
        "symmetric": lambda p: scipy.io.mmwrite(p, sp.coo_array(W), symmetry="symmetric"),
        "pattern": lambda p: scipy.io.mmwrite(p, sp.coo_array((W > 0) * 1), field="pattern"),
        "array": lambda p: scipy.io.mmwrite(p, W),
        "integer": lambda p: scipy.io.mmwrite(p, sp.coo_array((W > 0) * 2), field="integer"),
    }
    matrices = {kind: sp.coo_array(W).asformat(kind) for kind in ("csr", "csc", "coo", "dia", "bsr")}
    sparse = tuple(written(lambda p, m=m: sp.save_npz(p, m), "file.npz") for m in matrices.values())
    edges = (
        b"0,1,1.0\n1,2,2.5\n2,3,1\n4,4,.5\n",
        b"source,target,weight\na,b,1\nb,c,2\n",
        b"# a comment\n0 1\n1 2\n\n2 3\n",
        b'"a x"\tb\nb\tc\n',
        b"1;2\n2;3\n",
    )
    markup = (
        b'<?xml version="1.0" encoding="UTF-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        b'<key id="d0" for="edge" attr.name="weight" attr.type="double"><default>2</default></key>'
        b'<graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c"/>'
        b'<edge source="a" target="b"><data key="d0">1.5</data></edge><edge source="b" target="c"/></graph></graphml>'
    )
    tables = (
        b"1.0,2\n3,4\n5,6\n",
        b"node,x,y\na,1,2\nb,3,4\n",
        b"x;y\n1;2\n3;4e-5\n",
        b"0.5\n1.5\n-2\n",
    )
    arrays = (npy(W), npy(W.astype(np.float32)), npy(np.asfortranarray(W)), npy(W > 0), npy((W > 0) * 1))
    named = (npz(signals=W[:, :2]), npz(x=W[:, :2], y=W), npz(a=np.arange(5)))
    nets = [
        UnrolledLanczos(2, 3, GaussianProbe()),
        UnrolledLanczos(2, 4, InversePolynomialProbe(3, 2, 4)).double(),
        UnrolledLanczos(2, 4, InversePolynomialProbe(3, 2, 4, "learned_cg"), gammas="sigmoid"),
        UnrolledLanczos(2, 4, RootProbe(4), reorthogonalize=True).double(),
    ]
    networks = {kind: written(lambda p, w=write: w(p)) for kind, write in NETWORKS.items()}
    index = torch.from_numpy(np.stack(np.nonzero(W)))
    table = pandas.DataFrame({"source": ["a", "b", "c"], "target": ["b", "c", "a"], "weight": [1.0, 2.5, 1.0]})
    rows = sp.csr_array(W)
    planetoid = {"adj_data": rows.data, "adj_indices": rows.indices, "adj_indptr": rows.indptr, "adj_shape": rows.shape}
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder))
        state = (Path(folder) / "state.safetensors").read_bytes()
    record = Path(__file__).parents[2] / "results" / "certificate"
    records = tuple(p.read_bytes() for p in sorted(record.glob("*.json"))[:1]) or (b"{}",)
    graph, signals = check_graph, check_signals
    made = {
        "mtx": Format(".mtx", tuple(written(write, "file.mtx") for write in market.values()), graph),
        "sparse npz": Format(".npz", sparse, graph),
        "dense npy": Format(".npy", arrays, graph),
        "graphml": Format(".graphml", (markup,), graph),
        "csv edges": Format(".csv", edges, graph),
        "txt edges": Format(".txt", edges, graph),
        "csv.gz edges": Format(".csv.gz", tuple(gzip.compress(text, mtime=0) for text in edges), graph),
        "mtx.gz": Format(".mtx.gz", (gzip.compress(written(market["general"], "file.mtx"), mtime=0),), graph),
        "named npz": Format(".npz", (npz(**planetoid), npz(edge_index=index.numpy(), num_nodes=np.array(6))), graph),
        "mat": Format(
            ".mat",
            tuple(
                written(lambda p, o=options: scipy.io.savemat(p, {"A": sp.csc_array(W), "B": W[:2]}, **o), "f.mat")
                for options in ({}, {"do_compression": True}, {"format": "4"})
            ),
            graph,
        ),
        "gexf": Format(".gexf", (networks["gexf"],), graph),
        "gml": Format(".gml", (networks["gml"],), graph),
        "pajek": Format(".net", (networks["pajek"],), graph),
        "METIS": Format(".graph", (b"3 2 001\n2 5\n1 5 3 1\n2 1\n", b"% c\n3 2\n2\n1 3\n2\n"), graph),
        "DIMACS": Format(
            ".col", (b"c x\np edge 3 2\ne 1 2\ne 2 3\n", b"p sp 3 4\na 1 2 5\na 2 1 5\na 2 3 1\na 3 2 1\n"), graph
        ),
        "parquet": Format(".parquet", (written(table.to_parquet),), graph),
        "pt": Format(
            ".pt",
            (
                written(lambda p: torch.save(Data(edge_index=index, num_nodes=6), p)),
                written(lambda p: torch.save({"edge_index": index}, p)),
                written(lambda p: torch.save(torch.from_numpy(W).to_sparse(), p)),
            ),
            graph,
        ),
        "OGB edges": Format(".csv.gz", (gzip.compress(b"0,1\n1,2\n", mtime=0),), lambda p: check_ogb(p, "edge")),
        "OGB counts": Format(".csv.gz", (gzip.compress(b"3\n", mtime=0),), lambda p: check_ogb(p, "num-node-list")),
        "npy signals": Format(".npy", (*arrays, npy(np.ones((2, 3, 4)))), signals),
        "npz signals": Format(".npz", named, signals),
        "csv signals": Format(".csv", tables, signals),
        "txt signals": Format(".txt", (*tables, b"1 2\n3 4\n"), signals),
        "tsv.gz signals": Format(".tsv.gz", (gzip.compress(b"a\tb\n1\t2\n", mtime=0),), signals),
        "network": Format(".safetensors", tuple(written(net.save) for net in nets), check_network),
        "training state": Format(".safetensors", (state,), check_state),
        "record": Format(".json", records, check_record),
        "TUDataset edges": Format(".txt", (EDGES,), lambda path: check_tudataset(path, "A")),
        "TUDataset graphs": Format(".txt", (INDICATOR,), lambda path: check_tudataset(path, "graph_indicator")),
        "GLUE": Format(".tsv", (b"id\ta\tb\tlabel\n1\tx y\tz\t1\n2\tp\tq\t0\n3\tr\ts\t1\n",), check_glue),
    }
    return made


# Mutations


def flip(rng: random.Random, data: bytes) -> bytes:
    i = rng.randrange(len(data))
    return data[:i] + bytes([data[i] ^ (1 << rng.randrange(8))]) + data[i + 1 :]


def overwrite(rng: random.Random, data: bytes) -> bytes:
    i = rng.randrange(len(data))
    number = rng.choice((0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 255, 65535, rng.randrange(2**32)))
    size = rng.choice((1, 2, 4, 8))
    new = (number % 256**size).to_bytes(size, rng.choice(("little", "big")))
    return data[:i] + new + data[i + size :]


def cut(rng: random.Random, data: bytes) -> bytes:
    i, j = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return rng.choice((data[:i], data[:i] + data[j:], data[j:]))


def repeat(rng: random.Random, data: bytes) -> bytes:
    i = rng.randrange(len(data))
    piece = data[i : i + rng.choice((1, 4, 16, 200))]
    return data[:i] + piece * rng.choice((2, 3, 10, 500)) + data[i:]


def word(rng: random.Random, data: bytes) -> bytes:
    i = rng.randrange(len(data) + 1)
    return data[:i] + rng.choice(WORDS) + data[i + rng.choice((0, 0, 1, 3)) :]


def number(rng: random.Random, data: bytes) -> bytes:
    """Replace a run of digits."""
    places = [i for i in range(len(data)) if 48 <= data[i] < 58]
    if not places:
        return word(rng, data)
    i = j = rng.choice(places)
    while j < len(data) and 48 <= data[j] < 58:
        j += 1
    return data[:i] + rng.choice(WORDS[:16]) + data[j:]


def swap_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def noise(rng: random.Random, data: bytes) -> bytes:
    i = rng.randrange(len(data))
    return data[:i] + rng.randbytes(rng.choice((1, 8, 64))) + data[i:]


OPERATIONS = (flip, flip, overwrite, cut, repeat, word, number, number, swap_lines, noise)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes after one to four mutations."""
    for _ in range(rng.choice((1, 1, 1, 1, 1, 2, 4))):
        data = rng.choice(OPERATIONS)(rng, data) if data else rng.choice(WORDS)
    return data


def mutated_json(rng: random.Random, value: Any) -> Any:
    """Return plain values with one of them replaced or removed."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        value = type(value)(value)
        if rng.random() < 0.15:
            del value[key]
        else:
            value[key] = mutated_json(rng, value[key])
        return value
    if isinstance(value, str) and value[:1] in "{[" and rng.random() < 0.9:  # JSON as text inside JSON
        try:
            return json.dumps(mutated_json(rng, json.loads(value)))
        except ValueError:
            pass
    return rng.choice(JSON_VALUES)


def inside(rng: random.Random, suffix: str, data: bytes) -> bytes:
    """Mutate below the outer layer: what is gzipped, a member of an archive, a header, with its length made right."""
    if suffix.endswith(".gz"):
        return gzip.compress(mutated(rng, gzip.decompress(data)), mtime=0)
    if suffix in (".npz", ".pt"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(list(members))
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for key, content in members.items():
                if key != name:
                    archive.writestr(key, content)
                elif rng.random() < 0.9:
                    change = mutated if suffix == ".pt" else mutated_array
                    archive.writestr(key if rng.random() < 0.9 else "x.npy", change(rng, content))
        return buffer.getvalue()
    if suffix == ".npy":
        return mutated_array(rng, data)
    if suffix == ".safetensors":
        size = struct.unpack("<Q", data[:8])[0]
        header = json.dumps(mutated_json(rng, json.loads(data[8 : 8 + size]))).encode()
        return struct.pack("<Q", len(header)) + header + data[8 + size :]
    if suffix == ".json":
        return json.dumps(mutated_json(rng, json.loads(data))).encode()
    return mutated(rng, data)


def mutated_array(rng: random.Random, data: bytes) -> bytes:
    """Mutate an array: its bytes, or its values, shape or dtype as numpy writes them."""
    if rng.random() < 0.5:
        return mutated(rng, data)
    array = np.load(io.BytesIO(data))
    change = rng.randrange(5)
    if change == 0 and array.size and array.dtype.kind in "fiu":
        array = array.copy()
        array.flat[rng.randrange(array.size)] = rng.choice((-1, 0, 1, 7, 127, 10**5, 2**31 - 1))
    elif change == 1 and array.dtype.kind in "fiub":
        array = array.astype(rng.choice(("f2", "f4", ">f8", "i1", "u8", "c16", "?", "g", "S8", "U8")), copy=False)
    elif change == 2:
        array = array.reshape(-1)[: rng.randrange(array.size + 1)]
    elif change == 3:
        array = array[None] if rng.random() < 0.5 else array.reshape(-1)
    else:
        array = np.concatenate([array.reshape(-1)] * 2)
    return npy(array)


def draw(seed: int) -> tuple[str, bytes]:
    """Return the format and the content of a seed's file."""
    rng = random.Random(seed)
    name = rng.choice(list(formats()))
    form = formats()[name]
    data = rng.choice(form.contents)
    chance = rng.random()
    if chance < 0.02:
        other = formats()[rng.choice(list(formats()))]
        return name, rng.choice(other.contents)
    return name, inside(rng, form.suffix, data) if chance < 0.45 else mutated(rng, data)


def judge(name: str, content: bytes, folder: Path) -> str:
    """Read a file; return "read", "refused", or what is wrong with the outcome."""
    form = formats()[name]
    path = folder / f"file{form.suffix}"
    path.write_bytes(content)
    try:
        form.read(path)
    except REFUSALS as refused:
        return "refused" if str(refused).strip() else "refused without a word"
    except AssertionError as wrong:
        return f"wrong: {wrong}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        for left in folder.iterdir():
            if left.is_file():
                os.unlink(left)
    return "read"


def run(seed: int, folder: Path) -> tuple[str, str]:
    """Return the format and the outcome of a seed's file."""
    name, content = draw(seed)
    return name, judge(name, content, folder)
