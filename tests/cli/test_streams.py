"""What befalls the streams, folders and processes of the command line."""

import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import krylow
from krylow.cli import app
from krylow.io.atomic import write_whole

pytestmark = pytest.mark.skipif(os.name != "posix", reason="streams, devices and locks as POSIX has them")
runner = CliRunner()
COMMAND = [sys.executable, "-c", "import sys; sys.argv[0] = 'krylow'; from krylow.cli import main; main()"]


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("0 1\n1 2\n2 3\n3 4\n")
    return path


def run(arguments, redirect):
    """Run a command with its streams as a shell makes them."""
    script = 'exec "$@" ' + redirect
    return subprocess.run(["sh", "-c", script, "sh", *COMMAND, *map(str, arguments)], capture_output=True, text=True)


def test_version():
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"krylow {krylow.__version__}\n")


@pytest.mark.parametrize("redirect", [">&-", "> /dev/full"])
def test_an_output_that_cannot_be_written(graph, redirect):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    out = graph.with_name("b.npz")
    done = run(["subspace", graph, "-k", 2, "-o", out], redirect)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: cannot write to the standard output")
    assert done.stderr.count("\n") == 1
    assert out.is_file()


def test_help_into_a_full_device():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    done = run(["--help"], "> /dev/full")
    assert done.returncode == 4
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    result = runner.invoke(app, ["train", "--out", str(tmp_path / "file" / "below")])
    assert result.exit_code == 2, result.output
    assert " ".join(result.stderr.split()).startswith("error: cannot read or write")


def test_max_size(graph):
    out = graph.with_name("b.npy")
    arguments = ["subspace", str(graph), "-k", "2", "-o", str(out)]
    refused = runner.invoke(app, [*arguments, "--max-size", "9"])
    assert refused.exit_code == 2
    assert "--max-size" in refused.stderr
    assert not out.exists()
    assert runner.invoke(app, [*arguments, "--max-size", "1M"]).exit_code == 0
    assert "--max-size must be a number of bytes" in runner.invoke(app, [*arguments, "--max-size", "x"]).stderr


def test_a_device_keeps_its_place(tmp_path):
    """A pipe stands for a device here: no file takes its name, and its reader gets what is written."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"]
    assert pipe.is_fifo()


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_has_is_not(tmp_path):
    script = (
        "import os, sys, time; from krylow.io.atomic import write_whole\n"
        "os.fsync = lambda descriptor: (print(flush=True), time.sleep(60))\n"
        "write_whole(sys.argv[1], 'x')"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, tmp_path / "a"], stdout=subprocess.PIPE)
    writer.stdout.readline()
    [left] = os.listdir(tmp_path)
    write_whole(tmp_path / "b", "while it lives")
    assert sorted(os.listdir(tmp_path)) == sorted([left, "b"])
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    write_whole(tmp_path / "b", "when it is dead")
    assert os.listdir(tmp_path) == ["b"]
