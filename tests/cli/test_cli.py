import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import krylow as kl
import krylow.data
from krylow.cli import app

runner = CliRunner()


def test_help_does_not_load_torch():
    code = "import sys, krylow.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_commands_are_listed():
    text = runner.invoke(app, ["--help"]).output
    assert "reproduce" in text
    assert "train" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "table1", "--k", "60"], "k must be at most n / 2 = 50"),
        (["reproduce", "table1", "--data", "proteins"], "did you mean 'PROTEINS'"),
        (["reproduce", "table1", "--data", "no/such/folder"], "does not exist"),
        (["reproduce", "table1", "--k", "six"], "numbers separated by commas"),
        (["reproduce", "table1", "--seeds", "0"], "--seeds"),
        (["reproduce", "table1", "--seed-base", "-1"], "--seed-base"),
        (["train", "--k", "51"], "k must be at most n / 2 = 50"),
        (["train", "--probe", "magic"], "probe must be one of"),
        (["train", "--loss", "mse"], "loss must be one of"),
    ],
)
def test_bad_arguments_get_one_line_and_exit_code_2(arguments, message, tmp_path):
    result = runner.invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_missing_data_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys.modules["krylow.data.tudataset"], "_download", lambda name, files: None)
    result = runner.invoke(app, ["reproduce", "table1", "--data", "PROTEINS", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "KRYLOW_DATA" in result.output


def test_train_writes_a_network_that_loads(tmp_path):
    out = tmp_path / "net"
    arguments = ["train", "--k", "3", "--roots", "4", "--epochs", "1", "--out", str(out)]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    net = kl.load(out / "network.safetensors")
    assert (net.k, net.m, net.card["products"]) == (3, 6, 10)
    card = json.loads(result.output[result.output.index("{") : result.output.rindex("}") + 1])
    assert card == net.card


def test_learned_steps_are_trained_to_the_last_epoch(tmp_path):
    """They begin so flat that a validation error that stands still is no reason to stop."""
    small = ["--k", "2", "--power", "1", "--degree", "1", "--cg-steps", "2", "--lr", "1e-100"]
    arguments = ["train", "--probe", "learned_cg", "--loss", "theory_mean", "--weight", "1", "--epochs", "25", *small]
    result = runner.invoke(app, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    curves = (tmp_path / "curves.csv").read_text().splitlines()
    assert int(curves[-1].split(",")[0]) == 25
    net = kl.load(tmp_path / "network.safetensors")
    assert (net.probe.solver, net.gammas, net.card["loss"], net.card["weight"]) == (
        "learned_cg",
        "sigmoid",
        "theory_mean",
        1,
    )
    assert net.card["products"] == 1 * (2 - 1) * 1 + 4


@pytest.mark.slow
def test_reproduce_table1_end_to_end(tmp_path):
    arguments = ["--k", "6", "--seeds", "2", "--seed-base", "3", "--out", str(tmp_path)]
    result = runner.invoke(app, ["reproduce", "table1", *arguments])
    assert result.exit_code == 0, result.output
    assert "the paper: unrolled Lanczos" in result.output
    assert "The grid is reduced" in result.output
    (path,) = tmp_path.glob("table1-*.json")
    assert json.loads(path.read_text())["config"]["seeds"] == [3, 4]
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 5
