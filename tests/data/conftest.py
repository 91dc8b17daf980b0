import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch, request):
    """Keep the machine's own data and cache out of every test but those on the real data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if not request.node.get_closest_marker("data"):
        monkeypatch.delenv("KRYLOW_DATA", raising=False)


@pytest.fixture
def proteins():
    """Skip where the real PROTEINS is not at hand."""
    if not (Path(os.environ.get("KRYLOW_DATA", "")) / "PROTEINS" / "PROTEINS_A.txt").is_file():
        pytest.skip("KRYLOW_DATA does not name a folder with PROTEINS/PROTEINS_A.txt")
