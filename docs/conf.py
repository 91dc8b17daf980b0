"""Sphinx configuration: Markdown pages, a gallery made from `examples/`, the API from docstrings. Builds offline."""

import sys
from pathlib import Path

import krylow

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "krylow"
author = "the krylow developers"
copyright = "the krylow developers, BSD-3-Clause"
release = version = krylow.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "docstrings",
    "code_links",
]
exclude_patterns = ["_build", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.zip", "sg_execution_times.rst"]
templates_path = []
nitpicky = True
suppress_warnings = ["toc.empty_glob"]
# Types of other packages: their inventories are on the network, and the documentation builds without it.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(torch|numpy|np|scipy|networkx|sklearn|torch_geometric|collections|concurrent|contextlib|pathlib|os|datetime)(\..*)?",
    ),
    # Private helpers, and modules that are on no page: a docstring may name them, a page may not.
    (r"py:(attr|func|meth)", r"_\w+|\w+\.\w+"),
    (
        r"py:(class|func|mod)",
        r"krylow\.(_\w+|autodiff|cli|data|io|krylov|linalg|nn|operators|refine|solvers|start)\.[a-z_]\w*(\..*)?",
    ),
    (r"py:(class|func|data)", r"(dict|list|tuple)\[.*|as_operator|METHODS|SIGNAL_METHODS|FILTER_METHODS|Evidence"),
    (r"py:(mod|obj)", r"krylow\.(commands|proof|_native)"),  # a group of entry points, and what is on no page
    (r"py:.*", r"(Tensor|ndarray|Any|Callable|Sequence|Mapping|Path|PathLike|Module|nn\.Module|optional|Data|Axes|Figure)"),
]

html_theme = "furo"
html_title = "krylow"
html_static_path = ["_static"]
html_css_files = ["krylow.css"]
html_copy_source = False
html_show_sphinx = False

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_dmath_double_inline = True
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Shapes", "notes_style"), ("Attributes", "params_style")]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "image_srcset": ["2x"],
    "abort_on_example_error": True,
}
