"""Make the pictures of `concepts/blind-spots.md` from drawn slides: `python docs/make_blind_spots.py`."""

import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from panther.aggregators import build
from panther.charts.style import BLUE, GREY, ORANGE, save
from panther.statistics.neighbours import neighbourhood
from panther.types import Places, Prototypes
from panther_demo.slide import DrawnSlide, painted
from panther_demo.stain import transmitted, usual_stain
from panther_demo.tissues import tissues

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from _planted_arrangements import Arrangement
from _planted_bank import drawn_concentrations, encoded, laboratories, stained
from planted import infiltration, lesion, planted_layout

FOLDER = Path(__file__).parent / "pictures"
NAMES = tissues.names()
TUMOUR, LYMPHOCYTES = NAMES.index("glandular tumour"), NAMES.index("lymphocytes")
PATCHES = 320


def drawn(arrangement: Arrangement, seed: int) -> np.ndarray:
    """Picture of an arrangement, small enough for a page."""
    rng = np.random.default_rng(seed)
    layout = planted_layout(rng, arrangement)
    plan = DrawnSlide("picture", tuple(layout.shares(len(NAMES))), layout.shape, usual_stain(), (seed,))
    return np.asarray(Image.fromarray(painted(layout, plan, rng)).reduce(8))


def enrichment(arrangement: Arrangement) -> np.ndarray:
    """How much oftener tissues touch than at random (T, T), as the block `space` counts it."""
    q = torch.eye(len(NAMES))[torch.from_numpy(arrangement.tissue)]
    places = Places(arrangement.cells.astype(float), 1.0, (len(q),))
    return np.exp(neighbourhood(q, places).enrichment().numpy())


def space() -> None:
    """Two slides of the same proportions, and how often lymphocytes touch the tumour."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    found = {
        kind: infiltration(np.random.default_rng(2), label, PATCHES)
        for label, kind in enumerate(("beside the tumour", "inside it"))
    }
    for ax, (kind, arrangement) in zip((left, middle), found.items(), strict=True):
        times = enrichment(arrangement)[TUMOUR, LYMPHOCYTES]
        _picture(ax, drawn(arrangement, 2), f"lymphocytes {kind}\nthey touch it {times:.1f} x as often as at random")
    shown = [t for t in range(len(NAMES)) if (found["inside it"].tissue == t).any()]
    for offset, colour, (kind, arrangement) in zip((-0.2, 0.2), (BLUE, ORANGE), found.items(), strict=True):
        shares = np.bincount(arrangement.tissue, minlength=len(NAMES)) / len(arrangement.tissue)
        right.barh([i + offset for i in range(len(shown))], shares[shown], 0.4, color=colour, label=kind)
    right.set(yticks=range(len(shown)), yticklabels=[NAMES[t] for t in shown], xlabel="share of the slide")
    right.legend(frameon=False, fontsize=8)
    save(figure, FOLDER / "blind-spots-space.png", dpi=110)


def needle() -> None:
    """A lymph node with a lesion, and how well prototypes of lymph nodes explain each patch."""
    arrangement = lesion(0.02, np.random.default_rng(8), 1, PATCHES)
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _picture(left, drawn(arrangement, 8), "a lymph node; 2 % of it is a metastasis")
    usual = usual_stain()
    features, owner = [], []
    for tissue in np.unique(arrangement.tissue):
        h, e = drawn_concentrations(NAMES[tissue], 48)
        features.append(encoded(stained(h, e, usual, np.random.default_rng(0))))
        owner += [int(tissue)] * 48
    x, of = torch.from_numpy(np.concatenate(features)), np.array(owner)
    known = [t for t in np.unique(of) if NAMES[t] != "glandular tumour"]
    prototypes = Prototypes(torch.stack([x[of == t][::2].mean(0) for t in known]))
    distance = torch.cdist(x, build("panther", prototypes).centroids.detach()).amin(1).numpy()
    metastasis = of == NAMES.index("glandular tumour")
    bins = np.linspace(distance.min(), distance.max(), 30)
    right.hist(distance[~metastasis], bins, color=GREY, label="patches of a healthy node")
    right.hist(distance[metastasis], bins, color=ORANGE, label="patches of the metastasis", alpha=0.9)
    right.set(xlabel="distance to the nearest prototype", ylabel="tiles of each tissue", yticks=[])
    right.legend(frameon=False, fontsize=8)
    save(figure, FOLDER / "blind-spots-needle.png", dpi=110)


def stain() -> None:
    """The same three tissues in five laboratories."""
    stains = list(laboratories(4, 2.5).values())
    parts = [drawn_concentrations(name, 16) for name in ("glandular tumour", "stroma", "lymphocytes")]
    rows = [
        np.concatenate([transmitted(h[5], e[5], one, np.random.default_rng(0)) for one in stains], 1) for h, e in parts
    ]
    Image.fromarray(np.concatenate(rows)).reduce(2).save(FOLDER / "blind-spots-stain.jpg", quality=85, optimize=True)


def _picture(ax: Axes, picture: np.ndarray, title: str) -> None:
    ax.imshow(picture)
    ax.set_title(title, fontsize=10)
    ax.axis("off")


def main() -> None:
    space()
    needle()
    stain()


if __name__ == "__main__":
    main()
