import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import krylow as kl
from krylow.cli import app

runner = CliRunner()


def test_help_does_not_load_torch():
    code = "import sys, krylow.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_commands_are_listed():
    text = runner.invoke(app, ["--help"]).output
    for command in ("filter", "info", "subspace", "train", "view"):
        assert command in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
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


def test_commands_of_other_distributions_are_joined_and_a_broken_one_breaks_no_other():
    code = """
import importlib.metadata as m, sys
good = m.EntryPoint("hello", "json.tool", "krylow.commands")
bad = m.EntryPoint("bad", "krylow.no_such_module", "krylow.commands")
import krylow.cli
krylow.cli.entry_points = lambda group: [bad, good] if group == "krylow.commands" else []
sys.argv = ["krylow", "info"]
try:
    krylow.cli.main()
finally:
    print("joined", "json.tool" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "krylow.no_such_module cannot be loaded" in " ".join(done.stderr.split())
    assert "joined True" in done.stdout
