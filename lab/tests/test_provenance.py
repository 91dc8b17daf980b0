import platform
import shutil
import subprocess

import pytest
import torch

from krylow import _machine
from krylow_lab import provenance


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a package in it, of which the module believes to be a part."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "lab" / "src" / "package" / "provenance.py"
    file.parent.mkdir(parents=True)
    file.write_text("one\n")
    git(tmp_path, "init", "-q")
    monkeypatch.setattr(provenance, "__file__", str(file))
    provenance.code.cache_clear()
    yield tmp_path, file
    provenance.code.cache_clear()


def commit(root, file):
    git(root, "add", str(file))
    git(root, "commit", "-q", "-m", "x")
    return git(root, "rev-parse", "HEAD")


def test_the_commit_of_a_clean_checkout(checkout):
    root, file = checkout
    head = commit(root, file)
    (root / "outside.txt").write_text("results and notes do not change the code")
    assert provenance.code() == (head, False)


@pytest.mark.parametrize("change", ["edited", "added"])
def test_a_changed_source_is_dirty(checkout, change):
    root, file = checkout
    head = commit(root, file)
    (file if change == "edited" else file.with_name("new.py")).write_text("two\n")
    assert provenance.code() == (head, True)


def test_somebody_elses_checkout_does_not_count(checkout):
    root, _ = checkout
    (root / "other.txt").write_text("x")
    commit(root, root / "other.txt")
    assert provenance.code() == (None, None)


def test_no_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "a" / "provenance.py"))
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    provenance.code.cache_clear()
    assert provenance.code() == (None, None)
    provenance.code.cache_clear()


def test_a_hooks_environment_does_not_mislead(checkout, monkeypatch):
    root, file = checkout
    head = commit(root, file)
    monkeypatch.setenv("GIT_DIR", str(root / "nowhere"))
    assert provenance.code() == (head, False)


def test_versions():
    found = _machine.versions()
    assert set(found) == {"python", "krylow", "torch", "numpy", "scipy"}
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__


def test_the_machine_has_no_name():
    machine = _machine.machine()
    assert set(machine) == {"cpu", "cores", "threads", "memory_gib", "gpu", "system"}
    assert machine["cores"] >= 1
    assert machine["threads"] == torch.get_num_threads()
    if platform.system() == "Linux":
        assert machine["memory_gib"] > 0
