"""What no linter looks for: readers that would run what a file holds. See SECURITY.md."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "lab" / "src").rglob("*.py")])


def unsafe(source):
    """Return the lines of calls of torch.load without weights_only=True, and of any with allow_pickle=True."""
    lines = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        options = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
        is_load = ast.unparse(call.func) in ("torch.load", "torch.jit.load", "joblib.load")
        if (is_load and options.get("weights_only") is not True) or options.get("allow_pickle", False) is not False:
            lines.append(call.lineno)
    return lines


@pytest.mark.parametrize(
    "call",
    [
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "torch.load(f, weights_only=w)",
        "np.load(f, allow_pickle=True)",
    ],
)
def test_what_is_forbidden_is_found(call):
    assert unsafe(call) == [1]
    assert unsafe("torch.load(f, weights_only=True); np.load(f, allow_pickle=False); load(f)") == []


def test_nothing_that_a_file_holds_is_run():
    assert len(SOURCES) > 100
    assert not {str(path.relative_to(ROOT)): lines for path in SOURCES if (lines := unsafe(path.read_text("utf-8")))}
