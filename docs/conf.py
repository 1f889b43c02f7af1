"""Settings of the documentation site: `make site` writes it to build/site.

Sphinx reads the pages of this folder. The command line's page comes from its commands, that of
Python and of the events from docstrings.
"""

import autotune

project = "autotune"
version = release = autotune.__version__
extensions = [
    "myst_parser",
    "sphinx_click",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
default_role = "literal"  # docstrings write code as Markdown does
html_theme = "furo"
html_title = "autotune"
html_static_path = ["_static"]
html_css_files = ["site.css"]
highlight_language = "text"  # of blocks that name none: command lines, and what they print
myst_heading_anchors = 3
exclude_patterns = ["build"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
