"""Users' texts are drawn literally: a name that looks like a broken formula stops no figure."""

import numpy as np
import pytest
from matplotlib.text import Text

from panther.charts.style import save
from panther.cohort.targets import Survival
from panther.explain import kaplan_meier
from panther.explain.attribution import Attribution
from panther.explain.attribution.draw import draw_cohort
from panther.explain.geometry import blank_view, grid
from panther.explain.names import Naming
from panther.explain.slide_map import SlideMap
from panther.types import PatchSpec

BROKEN = r"$\nope$"  # matplotlib refuses it as a formula
NAMES = {0: BROKEN, 1: "1 $ or 2 $"}
NAMINGS = {c: Naming(name) for c, name in NAMES.items()}
SHARES = np.random.default_rng(0).dirichlet(np.ones(2), 24)  # (N, C)


def slide_map():
    spec = PatchSpec(mpp=0.5, size=256, size_level0=256)
    placed = grid(np.argwhere(np.ones((6, 4))) * 256, spec)
    return SlideMap(BROKEN, placed, SHARES.astype(np.float32), SHARES.mean(0), blank_view(placed, 300, spec), NAMINGS)


def cohort():
    players, share = ((0, "pi"), (0, "mu"), (1, "pi"), (1, "mu")), np.random.default_rng(1).normal(size=(5, 2, 4))
    values = share.sum(2), np.zeros(2), ""
    return draw_cohort(Attribution("exact", (BROKEN, "b"), tuple("abcde"), players, share, *values, namings=NAMINGS))


def survival():
    observed = Survival(np.arange(1.0, 25), np.arange(24) % 2 == 0)
    patients = kaplan_meier.Patients(tuple(map(str, range(24))), SHARES, observed, ())
    return kaplan_meier.compare(patients, NAMES).figure()


MAPS = {name: lambda name=name: slide_map().figures([0, 1])[name] for name in slide_map().drawings([0, 1])}
BY_CHARTS = {"draw_cohort": cohort, "draw_curves": survival, "draw_neighbours": MAPS["neighbours"]}


@pytest.mark.parametrize("make", [*MAPS.values(), *BY_CHARTS.values()], ids=[*MAPS, *BY_CHARTS])
def test_a_broken_formula_in_users_texts_is_drawn_literally(make, tmp_path):
    figure = make()
    assert any(BROKEN in text.get_text() for text in figure.findobj(Text))
    figure.savefig(tmp_path / "theirs.png")
    save(figure, tmp_path / "ours.svg")
    assert BROKEN in (tmp_path / "ours.svg").read_text()
