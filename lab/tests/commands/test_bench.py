import pytest
from typer.testing import CliRunner

from krylow.cli import app

runner = CliRunner()


def test_bench_large_measures_and_goes_on(tmp_path):
    arguments = ["bench", "large", "--n", "1200", "--families", "sbm20", "--tol", "1e-3", "--threads", "1"]
    arguments += ["--repeats", "1", "--peers", "shift-mmd,eigsh64", "--out", str(tmp_path)]
    first = runner.invoke(app, [*arguments, "--stage", "tune"])
    assert first.exit_code == 0, first.output
    assert "--stage race goes on" in " ".join(first.output.split())
    assert list((tmp_path / "cells").glob("large-tune-*.json"))
    second = runner.invoke(app, arguments)
    assert second.exit_code == 0, second.output
    assert "SBM, 20 blocks" in second.output
    assert (tmp_path / "large.svg").is_file()
    assert len(list(tmp_path.glob("large-*.json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "many"], "numbers separated by commas"),
        (["--n", "10"], "at least 1000"),
        (["--families", "torus"], "family must be one of"),
        (["--limit", "3"], "a factor and seconds"),
        (["--stage", "final"], "stage must be one of"),
    ],
)
def test_bad_arguments_get_one_line_and_exit_code_2(arguments, message, tmp_path):
    result = runner.invoke(app, ["bench", "large", "--peers", "eigsh64", *arguments, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())
    assert "Traceback" not in result.output
