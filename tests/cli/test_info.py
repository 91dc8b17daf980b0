import json
from importlib import metadata

import torch
from typer.testing import CliRunner

import krylow
from krylow.cli import app

runner = CliRunner()


def test_info_as_json(tmp_path, monkeypatch):
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path))
    result = runner.invoke(app, ["info", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["versions"]["krylow"] == krylow.__version__
    assert found["versions"]["torch"] == metadata.version("torch")
    assert found["threads"]["torch"] == torch.get_num_threads()
    assert found["folders"]["data"] == str(tmp_path)
    assert "sbm-k6" in found["networks"]


def test_info_in_words():
    text = runner.invoke(app, ["info"]).stdout
    for word in ("versions", "threads", "devices", "kernel", "data folder", "downloads"):
        assert word in text


def test_missing_extras_come_with_their_pip_line(monkeypatch):
    real = metadata.version

    def without_sklearn(name):
        if name == "scikit-learn":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", without_sklearn)
    assert "scikit-learn: pip install '.[sklearn]'" in runner.invoke(app, ["info"]).stdout


def test_a_wrong_data_folder_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path / "none"))
    result = runner.invoke(app, ["info"])
    assert result.exit_code == 2
    assert "KRYLOW_DATA must name a folder" in result.stderr
