"""Users' texts are drawn literally: a name that looks like a broken formula stops no figure."""

import importlib
import pkgutil

import numpy as np
import pytest
from matplotlib.text import Text

import panther.explain
import panther.search
from panther.charts.style import save
from panther.evaluation.intervals import Interval
from panther.evaluation.survival_metrics import kaplan_meier as curve
from panther.explain import atlas_files as sheets
from panther.explain import attention, kaplan_meier
from panther.explain import slide_map as draw
from panther.explain.atlas import Atlas, AtlasSettings, Exemplar
from panther.explain.attribution import Attribution
from panther.explain.attribution import draw as attributed
from panther.explain.attribution.draw import draw_cohort
from panther.explain.concordance import draw as agreed
from panther.explain.concordance.agreement import match_tumour
from panther.explain.geometry import blank_view, grid
from panther.explain.names import Naming
from panther.explain.scene import MapSettings
from panther.explain.shares import GroupShare, ShareTest
from panther.explain.slide_map import SlideMap
from panther.search import pictures as picture
from panther.search.similar import Compared, Hit, Reasons
from panther.types import PatchSpec

BROKEN = r"$\nope$"  # matplotlib refuses it as a formula
NAMES = {0: BROKEN, 1: "1 $ or 2 $"}
NAMINGS = {c: Naming(name) for c, name in NAMES.items()}
SHARES = np.random.default_rng(0).dirichlet(np.ones(2), 24)  # (N, C)


def slide_map():
    cells = np.argwhere(np.ones((6, 4)))
    spec = PatchSpec(mpp=0.5, size=256, size_level0=256)
    placed = grid(cells * 256, spec)
    return SlideMap(BROKEN, placed, SHARES.astype(np.float32), SHARES.mean(0), blank_view(placed, 300, spec), NAMINGS)


def attention_map():
    looked = attention.Attention(SHARES / SHARES.sum(0), {})
    scale = attention.Scale("rank", lambda a: a)
    about = {"attention": looked, "titles": (BROKEN, BROKEN), "main": 0, "scale": scale, "prediction": {BROKEN: 0.5}}
    return attention.AttentionMap(**vars(slide_map()), **about)


def attribution():
    players = ((0, "pi"), (0, "mu"), (1, "pi"), (1, "mu"))
    share = np.random.default_rng(1).normal(size=(5, 2, 4))
    samples = tuple("abcde")
    return Attribution("exact", (BROKEN, "b"), samples, players, share, share.sum(2), np.zeros(2), "", namings=NAMINGS)


def atlas():
    groups = [GroupShare(BROKEN, value, c, 4, 0.5, 0.4, 0.6) for value in (BROKEN, "$") for c in (0, 1)]
    tests = [ShareTest(column, c, "Spearman", 0.3, 0.1, 0.2) for column in (BROKEN, r"age $\nope$") for c in (0, 1)]
    return Atlas(
        slides=(BROKEN,) * 3,
        patients=("a", "b", "c"),
        weights=SHARES[:3],
        members=np.ones((3, 2), int),
        shares=(Interval(0.5, 0.4, 0.6, 9),) * 2,
        groups=tuple(groups),
        tests=tuple(tests),
        cooccurrence=np.eye(2),
        touching=slide_map().touching,
        exemplars=(Exemplar(0, "nearest", BROKEN, "a", 0, 0.1, 0.1),),
        settings=AtlasSettings(MapSettings(namings=NAMINGS)),
        prototypes_hash="",
    )


def tumour_map():
    match = match_tumour(SHARES, SHARES.mean(0), SHARES[:, 0], [0, 1])
    return agreed.TumourMap(slide_map(), SHARES[:, 0], match, (0, 1))


def survival():
    one = curve(np.array([1.0, 2, 3]), np.array([True, False, True]))
    groups = tuple(kaplan_meier.Tertile(name, 3, 2, 0.5, one) for name in ("low", "high"))
    return [kaplan_meier.described(kaplan_meier.PrototypeSurvival(0, groups, 1.0, 0.3, 0.3), NAMES)]


def hit():
    compared = tuple(Compared(c, BROKEN, 0.5, 0.5, 0.0) for c in (0, 1))
    return Hit(1, BROKEN, 0.1, "a", Reasons(compared, BROKEN))


LABELS, CLASSES = np.array([0, 1]), (BROKEN, "b $")
FIGURES = {
    "slide_map.draw_map": lambda: draw.draw_map(slide_map()),
    "slide_map.draw_heatmap": lambda: draw.draw_heatmap(slide_map(), 0),
    "slide_map.draw_heatmaps": lambda: draw.draw_heatmaps(slide_map()),
    "slide_map.draw_side_by_side": lambda: draw.draw_side_by_side(slide_map(), 0),
    "touching.draw_neighbours": lambda: slide_map().figures()["neighbours"],
    "attention.draw_attention": lambda: attention.draw_attention(attention_map()),
    "attention.draw_attention_beside": lambda: attention.draw_attention_beside(attention_map()),
    "attribution.draw.draw_cohort": lambda: draw_cohort(attribution()),
    "attribution.draw.draw_attribution": lambda: attributed.draw_attribution(
        slide_map(), [attributed.Shown(BROKEN, np.array([0.2, -0.1]))]
    ),
    "atlas_files.draw_overview": lambda: sheets.draw_overview(atlas()),
    "atlas_files.draw_exemplars": lambda: sheets.draw_exemplars(atlas(), 0),
    "concordance.draw.draw_classes": lambda: agreed.draw_classes(
        slide_map(), *agreed.class_maps(slide_map(), LABELS, SHARES.argmax(1), CLASSES)
    ),
    "concordance.draw.draw_tumour": lambda: agreed.draw_tumour(tumour_map(), MapSettings(), BROKEN),
    "kaplan_meier.draw_curves": lambda: kaplan_meier.draw_curves(survival()),
    "search.pictures.draw_alike": lambda: picture.draw_alike(slide_map(), slide_map(), hit()),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_broken_formula_in_users_texts_is_drawn_literally(name, tmp_path):
    figure = FIGURES[name]()
    assert any(BROKEN in text.get_text() for text in figure.findobj(Text))
    figure.savefig(tmp_path / "theirs.png")
    save(figure, tmp_path / "ours.svg")
    assert BROKEN in (tmp_path / "ours.svg").read_text()


def test_every_drawing_function_is_in_the_list():
    rooms = (panther.explain, panther.search)
    found = [one for room in rooms for one in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]
    modules = [importlib.import_module(one.name) for one in found]
    drawing = {
        f"{module.__name__.removeprefix('panther.').removeprefix('explain.')}.{name}"
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("draw_") and getattr(value, "__module__", "") == module.__name__
    }
    assert drawing == {name.split(" ")[0] for name in FIGURES}
