import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import krylow as kl
from krylow import InputError
from krylow.nn import GaussianProbe, InversePolynomialProbe, RootProbe, UnrolledLanczos
from krylow.nn.unrolled import FORMAT
from krylow.testing import random_graph

NETWORKS = {
    "default": lambda: UnrolledLanczos(3),
    "gaussian": lambda: UnrolledLanczos(2, 7, GaussianProbe()),
    "polynomial": lambda: UnrolledLanczos(2, 5, InversePolynomialProbe(4, 2, 6, "cg")),
    "learned steps": lambda: UnrolledLanczos(2, 5, InversePolynomialProbe(4, 2, 6, "learned_cg"), gammas="sigmoid"),
    "roots": lambda: UnrolledLanczos(2, 5, RootProbe(4)),
    "double": lambda: UnrolledLanczos(3).double(),
    "literal": lambda: UnrolledLanczos(3, literal=True),
}


def randomised(net):
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(torch.rand(p.shape, generator=torch.Generator().manual_seed(i), dtype=torch.float64))
    return net


@pytest.mark.parametrize("name", list(NETWORKS))
def test_round_trip_is_exact(name, tmp_path):
    net = randomised(NETWORKS[name]())
    file = tmp_path / "net.safetensors"
    net.save(file, card={"data": "sbm", "error": 0.25})
    for again in (kl.load(file), kl.load(str(file))):
        assert again.config() == net.config()
        assert again.card == {"data": "sbm", "error": 0.25}
        assert again.state_dict().keys() == net.state_dict().keys()
        for key, value in net.state_dict().items():
            assert again.state_dict()[key].dtype == value.dtype
            assert torch.equal(again.state_dict()[key], value)
        L = kl.laplacian(random_graph(12, seed=0))
        assert torch.equal(again(L).basis, net(L).basis)


def test_a_file_that_does_not_say_is_literal(tmp_path):
    """So were the networks that were written before there was another way."""
    net = randomised(UnrolledLanczos(2, 5, literal=True))
    config = {key: value for key, value in net.config().items() if key != "literal"}
    header = {"format": FORMAT, "config": json.dumps(config)}
    save_file(dict(net.state_dict()), tmp_path / "net", metadata=header)
    assert kl.load(tmp_path / "net").literal
    assert kl.load("sbm-k6").literal


def test_no_card_is_an_empty_one(tmp_path):
    UnrolledLanczos(2).save(tmp_path / "net")
    assert kl.load(tmp_path / "net").card == {}


def test_saving_over_a_file_replaces_it(tmp_path):
    file = tmp_path / "net"
    UnrolledLanczos(2).save(file)
    UnrolledLanczos(5).save(file)
    assert kl.load(file).k == 5
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


@pytest.mark.parametrize("part", [0, 4, 100, -1, -8])
def test_truncated_file(tmp_path, part):
    file = tmp_path / "net"
    UnrolledLanczos(2).save(file)
    file.write_bytes(file.read_bytes()[:part])
    with pytest.raises(InputError, match=r"not a whole safetensors file .*save the network again"):
        kl.load(file)


def test_damaged_header(tmp_path):
    file = tmp_path / "net"
    UnrolledLanczos(2).save(file)
    data = bytearray(file.read_bytes())
    data[8:20] = b"\xff" * 12
    file.write_bytes(data)
    with pytest.raises(InputError, match="not a whole safetensors file"):
        kl.load(file)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04" + b"\0" * 100])
def test_foreign_file(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match="not a whole safetensors file"):
        kl.load(tmp_path / "file")


def test_foreign_safetensors(tmp_path):
    save_file({"weight": torch.ones(3)}, tmp_path / "other", metadata={"format": "pt"})
    with pytest.raises(InputError, match=rf"must hold a krylow network \({FORMAT}\), got format 'pt'.*net\.save"):
        kl.load(tmp_path / "other")
    save_file({"weight": torch.ones(3)}, tmp_path / "bare")
    with pytest.raises(InputError, match="got format None"):
        kl.load(tmp_path / "bare")


def good_header(net):
    return {"format": FORMAT, "config": json.dumps(net.config()), "card": "{}"}


@pytest.mark.parametrize(
    "change",
    [
        {"config": "not json"},
        {"config": "[]"},
        {"config": "{}"},
        {"config": json.dumps({"k": 2, "m": 4})},
        {"config": json.dumps({"k": 2, "m": 99, "probe": {"type": "GaussianProbe"}})},
        {"config": json.dumps({"k": 0, "m": 4, "probe": {"type": "GaussianProbe"}})},
        {"config": json.dumps({"k": 2, "m": 4, "probe": {"type": "Module"}})},
        {"config": json.dumps({"k": 2, "m": 4, "probe": {"type": "GaussianProbe", "extra": 1}})},
        {"config": json.dumps({"k": 2, "m": 4, "probe": 3})},
        {"config": json.dumps({"k": 2, "m": 4, "probe": {"type": ["GaussianProbe"]}})},
        {"card": "not json"},
    ],
)
def test_a_header_that_does_not_fit(tmp_path, change):
    net = UnrolledLanczos(2, 4, GaussianProbe())
    file = tmp_path / "net"
    save_file(dict(net.state_dict()), file, metadata={**good_header(net), **change})
    with pytest.raises(InputError, match="does not fit"):
        kl.load(file)


def test_missing_and_superfluous_tensors(tmp_path):
    net = UnrolledLanczos(2, 4, GaussianProbe())
    file = tmp_path / "net"
    for tensors in ({"upsilon1": torch.zeros(4)}, {"other": torch.zeros(4)}, {**net.state_dict(), "x": torch.ones(1)}):
        save_file(tensors, file, metadata=good_header(net))
        with pytest.raises(InputError, match="does not fit its parameters"):
            kl.load(file)


def test_no_such_network(tmp_path):
    for name in ("sbm-k1000", tmp_path / "nothing", tmp_path):
        with pytest.raises(InputError, match=r"no trained network and no file is called .*Shipped networks:"):
            kl.load(name)


def test_the_file_is_plain_safetensors(tmp_path):
    net = UnrolledLanczos(2, 4)
    net.save(tmp_path / "net")
    assert load_file(tmp_path / "net").keys() == net.state_dict().keys()
