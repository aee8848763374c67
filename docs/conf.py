"""The documentation site: `make docs-site` builds it into build/site.

The source directory is the root of the repository, so that links between pages work on the site
as they do in a viewer of Markdown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Headgate"
copyright = "The Headgate authors"  # noqa: A001 (Sphinx reads this name)
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinxcontrib.mermaid"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/adr/*.md",
    "benchmarks/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]

html_theme = "furo"
html_title = "Headgate"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

# Highlighting is decoration: a block that a lexer does not know is shown plain.
suppress_warnings = ["misc.highlighting_failure"]

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
myst_fence_as_directive = ["mermaid"]
copybutton_exclude = ".linenos, .gp, .go"

# Docstrings write names in single backticks.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}


def mark_code(*event: Any) -> None:
    """Mark indented blocks of a docstring as Python code."""
    lines: list[str] = event[-1]
    for n in range(len(lines) - 1, 1, -1):
        is_first = lines[n].startswith("    ") and not lines[n - 1]
        if is_first and not lines[n - 2].startswith((" ", "-", "*")):
            lines[n:n] = [".. code-block:: python", ""]


def setup(app: Sphinx) -> None:
    """Connect `mark_code`."""
    app.connect("autodoc-process-docstring", mark_code)
