from datetime import UTC, datetime

import pytest

from krylow._checks import InputError
from krylow_lab.records import RecordError
from krylow_lab.report.sources import gather


def test_folders_are_searched_whole_and_other_files_left_alone(records):
    (records / "notes.json").write_text("{}")
    kinds = sorted(source.record.kind for source in gather([records]))
    assert kinds == ["attention", "batch", "crossover", "large", "methods", "table1", "table1", "table1"]


def test_of_two_copies_the_newest_is_taken(build, tmp_path):
    for year, value in ((2027, "new"), (2026, "old")):
        build.record(tmp_path / value, "batch", {"k": 1}, {"a": value}, started=datetime(year, 1, 1, tzinfo=UTC))
    for order in (("new", "old"), ("old", "new")):
        (source,) = gather([tmp_path / name for name in order])
        assert source.results == {"a": "new"}


def test_a_record_is_named_below_the_working_folder_and_never_by_a_whole_path(records, tmp_path, monkeypatch):
    monkeypatch.chdir(records.parent)
    assert all(source.name.startswith("records/") for source in gather([records]))
    monkeypatch.chdir(tmp_path)
    (source,) = gather([next((records / "b").iterdir())])
    assert source.name.startswith("b/batch-")


def test_nothing_to_read(tmp_path):
    with pytest.raises(InputError, match="no records in"):
        gather([tmp_path])
    with pytest.raises(InputError, match="does not exist"):
        gather([tmp_path / "missing"])
    with pytest.raises(InputError, match="does not exist"):
        gather([tmp_path / "missing.json"])


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not whole JSON"), ('{"a": 1}', "no format"), ("[1]", "no format")]
)
def test_a_file_that_is_no_record(tmp_path, text, message):
    (tmp_path / "foreign.json").write_text(text)
    with pytest.raises(RecordError, match=message):
        gather([tmp_path / "foreign.json"])


def test_a_damaged_record_in_a_folder_is_named(build, tmp_path):
    path = build.table1(tmp_path)
    path.write_text(path.read_text()[:100])
    with pytest.raises(RecordError, match=path.name):
        gather([tmp_path])


def test_what_the_system_refuses_to_read(records, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(InputError, match="cannot be read"):
        gather([records])
