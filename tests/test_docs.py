"""Every example on the pages runs as it stands, names on the pages exist, and pages that are written can be found."""

import doctest
import pkgutil
import re
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest

import krylow

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.glob("*.md"))
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def examples(page):
    """All blocks of a page as one session, each at its own line."""
    text = page.read_text(encoding="utf-8")
    blocks = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL).finditer(text)
    parser, found = doctest.DocTestParser(), []
    for block in blocks:
        above = text[: block.start(1)].count("\n")
        for example in parser.get_examples(block[1]):
            example.lineno += above
            found.append(example)
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.name)
def test_examples_of_a_page(page):
    session = doctest.DocTest(examples(page), {}, page.name, str(page), 0, None)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(session)
    assert runner.failures == 0


def test_the_pages_for_newcomers_have_examples():
    assert len(examples(DOCS / "start.md")) >= 30
    assert all(examples(DOCS / name) for name in ("learning.md", "attention.md", "large-graphs.md"))


def test_every_page_is_in_the_table_of_contents():
    listed = re.findall(r"^([a-z0-9*-]+)$", (DOCS / "index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    missing = [page.stem for page in PAGES if not any(fnmatch(page.stem, pattern) for pattern in listed)]
    assert missing == ["index"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("gallery/"):  # the gallery is made when the pages are built
            continue
        assert (page.parent / target).exists(), target


def test_every_equation_of_the_paper_has_its_place():
    tags = re.findall(r"\\tag\{(\d+)\}", (DOCS / "mathematics.md").read_text(encoding="utf-8"))
    assert [int(tag) for tag in tags] == list(range(1, 45))


def test_files_and_tests_that_pages_name_exist():
    root = DOCS.parent
    for page in [*DOCS.rglob("*.md"), root / "README.md", root / "CONTRIBUTING.md"]:
        text = page.read_text(encoding="utf-8")
        for file, name in re.findall(r"`((?:lab/)?(?:tests|benchmarks|src)/[\w/]+\.py)(?!\w)(?:::(\w+))?", text):
            assert (root / file).is_file(), (page.name, file)
            assert name in (root / file).read_text(encoding="utf-8"), (page.name, file, name)


def test_no_public_function_has_the_name_of_a_module():
    """Importing the module would take its place: which one a name is would depend on what was imported first."""
    modules = {module.name for module in pkgutil.iter_modules(krylow.__path__)}
    assert all(isinstance(getattr(krylow, name), ModuleType) for name in modules & set(krylow.__all__))
