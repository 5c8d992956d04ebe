"""How the documentation is built: `sphinx-build -W -n -b html docs docs/_build`. Nothing here needs a network."""

import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
if importlib.util.find_spec("coaltree") is None:  # an installed copy has its kernels compiled already
    sys.path.insert(1, str(HERE.parent / "src"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads of BLAS only get in each other's way

from coaltree import __version__

REPOSITORY = "https://github.com/coaltree/coaltree"

project = "coaltree"
author = "The coaltree developers"
copyright = "The coaltree developers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "mathml",
    "pictures",
    "pages",
    "inside",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_ext", "figures", "auto_examples/**/*.ipynb", "auto_examples/**/*.json"]
nitpicky = True
smartquotes = False  # quotation marks in docstrings are often code
# Single backticks in docstrings: a link where the name is documented, plain code elsewhere.
default_role = "py:obj"
nitpick_ignore_regex = [("py:obj", r".*")]
suppress_warnings = ["config.cache"]

# ---- Markdown
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# Links to files of the repository, as `pages` makes them from relative ones.
myst_url_schemes = {"http": None, "https": None, "mailto": None, "repo": f"{REPOSITORY}/blob/main/{{{{path}}}}"}

# ---- docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpy sections of the docstrings say what arguments are
autosummary_generate = False
numpydoc_show_class_members = False  # autodoc lists them

# ---- executed guides
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r".*\.py$",
    "within_subsection_order": "guides.guide_order",
    "abort_on_example_error": True,
    "capture_repr": (),  # what a program prints, not what its last line returns
    "download_all_examples": False,
    "min_reported_time": 20,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "image_srcset": ["2x"],
    "matplotlib_animations": False,
    "reset_modules": ("matplotlib",),
    "write_computation_times": False,
    "notebook_images": False,
}

# ---- pages
html_theme = "furo"
html_title = f"coaltree {__version__}"
html_static_path = ["_static"]
html_css_files = ["coaltree.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "monokai"
