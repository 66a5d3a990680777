"""The site of these documents, built by Sphinx: `make docs-site` (docs/decisions/0055).

The source folder is the project's root, so that a link which works in the repository works on the site, and the pages
need no copy of README.md or ARCHITECTURE.md.
"""

from themis import __version__

project = "Themis"
release = version = __version__

extensions = ["myst_parser", "sphinx_external_toc", "sphinxcontrib.mermaid"]
external_toc_path = "docs/toc.yml"
include_patterns = ["[AC]*.md", "docs/*.md", "docs/**/*.md", "tf_jobs/**/*.md", "themis_lab/**/*.md"]
exclude_patterns = [".*", "out", "build", "tests", "**/node_modules"]

# Headings get GitHub's anchors. A link to a missing page or anchor is a warning, and `-W` makes it an error.
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
nitpicky = True

# Console blocks hold commands and what they print, with `..` for what is left out: no lexer parses all of them.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"Themis {release}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
