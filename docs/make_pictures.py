"""Make the pictures of the documentation: `python docs/make_pictures.py` those of `concepts/prototypes.md`, from generated cohorts;

`python docs/make_pictures.py DEMO` those of the README and of figure 3, from what `panther demo -o DEMO` wrote (and with chromium, the report's).
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from panther.aggregators import build
from panther.charts.prototypes import choice_of_c, comparison
from panther.charts.style import BLUE, GREY, ORANGE, save
from panther.charts.to_matplotlib import draw
from panther.prototypes import KMeansSettings, fit_bags
from panther.prototypes.choose import compare_numbers
from panther.prototypes.compare import compare
from panther.types import Bag

FOLDER = Path(__file__).parent / "pictures"


def cohort(tissues: int = 6, slides: int = 16, dim: int = 32, separation: float = 1.2, shift: float = 0.0) -> list[Bag]:
    """Slides that mix tissues in their own proportions; with ``shift`` the second half is from another site."""
    rng = np.random.default_rng(1)
    centres = rng.normal(0, separation, (tissues, dim))
    direction = rng.normal(size=dim)
    bags = []
    for i in range(slides):
        tissue = rng.choice(tissues, 500, p=rng.dirichlet(np.ones(tissues)))
        x = centres[tissue] + rng.normal(size=(500, dim)) + (shift * direction if i >= slides // 2 else 0)
        bags.append(Bag(f"slide-{i:02d}", torch.tensor(x, dtype=torch.float32)))
    return bags


def what_a_prototype_is() -> None:
    """Patches of a cohort in two dimensions, the prototypes among them, and one slide's proportions."""
    bags = cohort(tissues=5, dim=2, separation=5.0)
    prototypes = fit_bags(bags, KMeansSettings(5)).prototypes
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    every = torch.cat([bag.features for bag in bags])
    left.scatter(*every.T, s=2, color=GREY, alpha=0.2, linewidths=0, label="patches of the cohort")
    left.scatter(*bags[0].features.T, s=4, color=BLUE, alpha=0.6, linewidths=0, label="patches of one slide")
    left.scatter(*prototypes.centroids.T, s=90, marker="X", color=ORANGE, edgecolor="white", label="prototypes")
    for c, (x, y) in enumerate(prototypes.centroids.tolist()):
        left.annotate(f"C{c}", (x, y), xytext=(7, 5), textcoords="offset points", weight="bold")
    left.set(xlabel="feature 1", ylabel="feature 2")
    left.set_ylim(top=left.get_ylim()[1] + 5)
    left.legend(frameon=False, fontsize=8, loc="upper left", ncols=3, columnspacing=0.8, handletextpad=0.2)
    weights = build("panther", prototypes)(bags[0].features).aux["weights"]
    right.bar([f"C{c}" for c in range(5)], weights.tolist(), color=BLUE)
    right.set_ylabel("share of the slide (pi)")
    save(figure, FOLDER / "prototype.png", dpi=150)


def collapse() -> None:
    """Effective number of prototypes of slides from the training site and from a site that lies elsewhere."""
    bags = cohort(shift=40.0)
    half = len(bags) // 2
    prototypes = fit_bags(bags[:half], KMeansSettings(6)).prototypes
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    ax = figure.subplots()
    for (label, options), offset, colour in zip(
        {"paper": {}, "temperature 20": {"temperature": 20.0}}.items(), (-0.2, 0.2), (BLUE, ORANGE), strict=True
    ):
        module = build("panther", prototypes, options)
        effective = [float(module(bag.features).aux["effective_prototypes"]) for bag in bags]
        ax.bar([i + offset for i in range(len(bags))], effective, width=0.4, color=colour, label=label)
    ax.axvline(half - 0.5, color=GREY, linestyle="--")
    ax.axhline(1, color=GREY, linewidth=0.8)
    ax.set(xlabel="slides of the training site | slides of another site", ylabel="effective prototypes", xticks=[])
    ax.legend(frameon=False, fontsize=8)
    save(figure, FOLDER / "collapse.png", dpi=150)


def from_demo(demo: Path) -> None:
    """A map, the report's first page, and the notebook's figure."""
    _shrunk(demo / "maps" / "SYN-D003-1.side_by_side.png", "map.jpg", 1500)
    page = f"{(demo / 'report.html').resolve().as_uri()}#summary"
    options = ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--timeout=5000", "--window-size=1180,1000")
    shot = demo / "report.png"
    subprocess.run(["chromium", *options, f"--screenshot={shot}", page], check=True, capture_output=True)
    _shrunk(shot, "report.png", 1180)
    cells = json.loads((FOLDER.parent / "tutorials" / "figure3.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    figure = demo / "figure3.png"
    told = {"PANTHER_DEMO": str(demo.resolve()), "FIGURE": str(figure), "MPLBACKEND": "agg"}
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **told}, check=True)
    _shrunk(figure, "figure3.jpg", 1200)


VIEWS = {  # picture -> what the viewer shows on it
    "viewer": "page=slide&slide=SYN-A005-1",
    "viewer-prototype": "page=prototypes&prototype=0",
    "viewer-study": "page=study",
}


def viewer(demo: Path) -> None:
    """Pages of the viewer, in a browser without a window."""
    from playwright.sync_api import sync_playwright

    import panther

    running = panther.view(demo)
    try:
        with sync_playwright() as tools:
            browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1440, "height": 860})
            for name, view in VIEWS.items():
                page.goto(f"{running.address}#{view}")
                page.wait_for_timeout(20_000)  # the slide, and similar patches of the whole cohort
                page.screenshot(path=demo / f"{name}.png")
                _shrunk(demo / f"{name}.png", f"{name}.jpg", 1440)
            browser.close()
    finally:
        running.close()


def _shrunk(source: Path, name: str, width: int) -> None:
    """Small enough to be kept: at most ``width`` pixels across."""
    from PIL import Image

    picture = Image.open(source).convert("RGB")
    picture.thumbnail((width, 10 * width))
    picture.save(FOLDER / name, optimize=True, quality=85)


def main() -> None:
    if len(sys.argv) > 1:
        from_demo(Path(sys.argv[1]))
        viewer(Path(sys.argv[1]))
        return
    what_a_prototype_is()
    settings = KMeansSettings(sample=8000, restarts=3)
    bags = cohort()
    save(draw([choice_of_c(compare_numbers(bags, (2, 16), settings))]), FOLDER / "choose-c.png", dpi=150)
    few, many = (fit_bags(bags, KMeansSettings(c)).prototypes for c in (6, 8))
    save(comparison(compare(few, many), "C = 6", "C = 8").figure(), FOLDER / "compare.png", dpi=150)
    collapse()


if __name__ == "__main__":
    main()
