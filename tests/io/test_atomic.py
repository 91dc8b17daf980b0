import os
import stat

import pytest

from krylow.io.atomic import write_whole


def test_writes_bytes_and_text_as_they_are(tmp_path):
    assert write_whole(tmp_path / "a", b"\x00\r\n\xff").read_bytes() == b"\x00\r\n\xff"
    assert write_whole(tmp_path / "b", "γ\r\nβ\n").read_bytes() == "γ\r\nβ\n".encode()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_replaces_what_was_there(tmp_path):
    path = tmp_path / "a"
    path.write_text("a long old text")
    write_whole(path, "new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_an_interruption_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "a"
    path.write_text("old")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, failing, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_the_data_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b)))
    write_whole(tmp_path / "a", "x")
    assert calls[:2] == ["fsync", "replace"]


@pytest.mark.skipif(os.name != "posix", reason="permissions and links as POSIX has them")
def test_permissions_and_links_are_those_of_a_plain_write(tmp_path):
    (tmp_path / "plain").write_text("x")
    write_whole(tmp_path / "whole", "x")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "whole")]
    assert modes[0] == modes[1]
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    write_whole(tmp_path / "link", "through")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plain").read_text() == "through"


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "a", "x")
