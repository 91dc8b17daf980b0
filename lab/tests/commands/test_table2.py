import os

import pytest
from typer.testing import CliRunner

from krylow.cli import app
from krylow_lab.table2 import choice, corpus, plan

runner = CliRunner()


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "sst2"], "data must be one of 'mrpc', 'qnli', 'synthetic', 'all'"),
        (["--protocol", "C"], "protocol must be one of 'A', 'B', 'R', 'L', 'all'"),
        (["--seeds", "0"], "--seeds"),
    ],
)
def test_bad_arguments_get_one_line_and_exit_code_2(arguments, message, nowhere, tmp_path):
    result = runner.invoke(app, ["reproduce", "table2", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_missing_data_offline_is_named_with_its_folder(nowhere, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def fail(*args, **kwargs):
        raise ConnectionError

    monkeypatch.setattr(datasets, "load_dataset", fail)
    result = runner.invoke(app, ["reproduce", "table2", "--data", "qnli", "--out", str(tmp_path / "out")])
    text = " ".join(result.output.split())
    assert result.exit_code == 2
    assert "train.tsv or train_rebuilt.tsv" in text
    assert str(tmp_path / "QNLI") in text


def test_quick_without_mrpc_says_so_and_shows_the_synthetic_table(nowhere, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "SYNTHETIC_SIZES", (64, 32))
    corpus._load.cache_clear()
    few = plan.Protocol("quick", ("unrolled", "kernel"), ())
    monkeypatch.setattr(choice, "QUICK", few)
    result = runner.invoke(app, ["reproduce", "table2", "--quick", "--workers", "1", "--out", str(tmp_path / "out")])
    corpus._load.cache_clear()
    assert result.exit_code == 0, result.output
    assert "MRPC is left out" in result.output
    assert "majority class" in result.output
    assert len(list((tmp_path / "out").glob("table2-*.json"))) == 1
    assert len(list((tmp_path / "out" / "logs").glob("*.csv"))) == 4


@pytest.mark.slow
@pytest.mark.data
def test_quick_end_to_end(tmp_path):
    if not os.path.isfile(os.path.join(os.environ.get("KRYLOW_DATA", ""), "MRPC", "train.tsv")):
        pytest.skip("KRYLOW_DATA does not name a folder with MRPC/train.tsv")
    result = runner.invoke(app, ["reproduce", "table2", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "the first 400 and 400 rows of MRPC official train" in " ".join(result.output.split())
    assert len(list(tmp_path.glob("table2-*.json"))) == 2
