from pathlib import Path

import pytest
import torch

import krylow as kl
from krylow.nn import RootProbe
from krylow.nn.unrolled import SHIPPED
from krylow_lab.records import find
from krylow_lab.table1.assemble import KIND
from krylow_lab.table1.weights import MAKERS

RESULTS = Path(__file__).parents[3] / "results" / "table1"
NAMES = sorted(path.stem for path in SHIPPED.glob("*.safetensors"))


def test_the_paper_settings_on_sbm_are_shipped():
    for k in (6, 8, 10):
        assert {f"sbm-k{k}", f"proteins-k{k}", f"roots-sbm-k{k}", f"roots-proteins-k{k}"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_network_loads_and_says_what_it_is(name):
    net = kl.load(name)
    assert (SHIPPED / f"{name}.safetensors").stat().st_size < 8000
    assert net.m == 2 * net.k == net.card["basis_vectors"]
    probe = net.probe
    rooted = isinstance(probe, RootProbe)
    assert rooted == net.reorthogonalize == name.startswith("roots-")
    spent = probe.count if rooted else probe.power * probe.cg_steps * probe.degree
    assert net.card["products"] == spent + net.m
    assert 0 < net.card["test_error"] < 1


@pytest.mark.parametrize("name", ["sbm", "roots-sbm"])
@pytest.mark.parametrize("k", [6, 8, 10])
def test_a_shipped_network_does_on_fresh_graphs_what_its_card_says(name, k):
    net = kl.load(f"{name}-k{k}")
    W = kl.data.sbm(12, generator=torch.Generator().manual_seed(1234), dtype=torch.float64)
    L = kl.laplacian(W)
    U = torch.linalg.eigh(L.to_dense())[1][..., :k]
    with torch.no_grad():
        error = kl.metrics.subspace_error(net(L, generator=torch.Generator().manual_seed(0)).basis, U).mean().item()
    mean, std = net.card["test_error_all_seeds"]
    assert error == pytest.approx(mean, abs=3 * std + 0.03)


@pytest.mark.skipif(not RESULTS.is_dir(), reason="the records are part of a checkout, not of an installation")
def test_shipped_networks_are_those_of_the_records():
    by_name = {record.file_name: record for record in find(RESULTS, kind=KIND)}
    for name in NAMES:
        net = kl.load(name)
        again, card = MAKERS["roots-" if name.startswith("roots-") else ""](by_name[net.card["record"]])
        assert card == net.card
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
