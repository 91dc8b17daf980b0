import json
import sys

import pytest
from typer.testing import CliRunner

from krylow.cli import app

runner = CliRunner()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "table1", "--k", "60"], "k must be at most n / 2 = 50"),
        (["reproduce", "table1", "--data", "proteins"], "did you mean 'PROTEINS'"),
        (["reproduce", "table1", "--data", "no/such/folder"], "does not exist"),
        (["reproduce", "table1", "--k", "six"], "numbers separated by commas"),
        (["reproduce", "table1", "--seeds", "0"], "--seeds"),
        (["reproduce", "table1", "--seed-base", "-1"], "--seed-base"),
    ],
)
def test_bad_arguments_get_one_line_and_exit_code_2(arguments, message, tmp_path):
    result = runner.invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", [["reproduce", "table1"], ["bench", "large"]])
def test_a_folder_that_cannot_be_made(command, tmp_path):
    (tmp_path / "file").write_text("")
    result = runner.invoke(app, [*command, "--out", str(tmp_path / "file" / "below")])
    assert result.exit_code == 2, result.output
    assert " ".join(result.stderr.split()).startswith("error: cannot read or write")


def test_missing_data_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    import krylow.data  # noqa: F401

    monkeypatch.setattr(sys.modules["krylow.data.tudataset"], "_download", lambda name, files: None)
    result = runner.invoke(app, ["reproduce", "table1", "--data", "PROTEINS", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "KRYLOW_DATA" in result.output


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
