import pytest

from krylow._checks import InputError
from krylow.data.tudataset import cache_folder, data_folder, find_folder


@pytest.fixture
def roots(tmp_path, monkeypatch):
    own, cache = tmp_path / "own", tmp_path / "cache"
    own.mkdir()
    monkeypatch.setenv("KRYLOW_DATA", str(own))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return own, cache / "krylow"


def put(folder, *files):
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).write_text("")


def test_the_folders_follow_the_environment(roots, monkeypatch, tmp_path):
    assert (data_folder(), cache_folder()) == roots
    monkeypatch.delenv("KRYLOW_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() is None
    assert cache_folder() == tmp_path / ".cache" / "krylow"


def test_the_users_own_copy_comes_before_the_cache(roots):
    own, cache = roots
    assert find_folder("D", ("a", "b")) is None
    put(cache / "D", "a", "b")
    assert find_folder("D", ("a", "b")) == cache / "D"
    put(own / "D" / "raw", "a", "b")
    assert find_folder("D", ("a", "b")) == own / "D" / "raw"


def test_a_partial_copy_is_not_taken(roots):
    own, cache = roots
    put(own / "D", "a")
    put(cache / "D", "a", "b")
    assert find_folder("D", ("a", "b")) == cache / "D"


def test_a_wrong_folder_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path / "none"))
    with pytest.raises(InputError, match="KRYLOW_DATA must name a folder of data sets"):
        data_folder()
