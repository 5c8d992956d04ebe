"""Pictures of the pages are programs: each file of docs/figures is run before the pages are read.

`figures/NAME.py` draws one matplotlib figure, which is written to `auto_pictures/NAME.png`. A picture that is newer
than its program, the library and the benchmarks' results is kept. `images/NAME.png` is a smaller copy for those who
read the pages without building them.
"""

import runpy
import warnings
from pathlib import Path

import matplotlib as mpl
from sphinx.util import logging
from sphinx.util.display import status_iterator

logger = logging.getLogger(__name__)
DOCS = Path(__file__).parents[1]
RESOLUTION = 180
STYLE = {"font.size": 9.0, "axes.titlesize": 9.5, "savefig.facecolor": "white"}


def draw(program, picture, resolution):
    """Run a program and save its figure; a warning of the program is an error."""
    from matplotlib import pyplot as plt

    plt.close("all")
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(program))
        figure = plt.gcf()
        figure.savefig(picture, dpi=resolution)
    plt.close("all")


def draw_all(app):
    """Draw what is not up to date."""
    draw_into(DOCS / "auto_pictures")


def draw_into(folder, resolution=RESOLUTION):
    """Draw what is not up to date in a folder."""
    mpl.use("agg")
    folder.mkdir(exist_ok=True)
    sources = [*(DOCS.parent / "src").rglob("*.py"), *(DOCS.parent / "benchmarks").glob("*.md")]
    changed = max(path.stat().st_mtime for path in sources)
    programs = sorted((DOCS / "figures").glob("*.py"))
    for program in status_iterator(
        programs, "drawing... ", length=len(programs), stringify_func=lambda path: path.stem
    ):
        picture = folder / f"{program.stem}.png"
        if not picture.exists() or picture.stat().st_mtime < max(changed, program.stat().st_mtime):
            draw(program, picture, resolution)


def setup(app):
    """Draw before anything is read."""
    app.connect("builder-inited", draw_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
