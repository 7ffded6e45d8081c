"""C4 is the same prototype in all tabs: a fold's prototypes get the names and colours of those of the atlas that they match."""

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import panther
from panther.explain.names import Naming
from panther.explain.palette import colour
from panther.report.data import load_run
from panther.report.material import (
    UNMATCHED,
    FoldNames,
    Mixtures,
    _set_colours,
    gather,
    load_mixtures,
    match_prototypes,
)
from panther.report.page import build_page
from panther.types import Prototypes
from report.studies import plots

PERMUTED = [2, 0, 3, 1]  # prototype k of the atlas is the fold's PERMUTED[k]


@pytest.fixture(scope="module")
def mixtures(classes: Path) -> Mixtures:
    loaded = load_mixtures(load_run(classes))
    assert loaded is not None
    return loaded


def make_atlas(run: Path, prototypes: Prototypes, folder: Path, moved: int | None = None) -> Path:
    """Atlas of the fold's prototypes in another order and refitted on other patches; one may be moved away."""
    noise = torch.randn(prototypes.centroids.shape, generator=torch.Generator().manual_seed(0))
    centroids = prototypes.centroids[PERMUTED] + 0.01 * prototypes.centroids.std() * noise
    if moved is not None:
        centroids[moved] += 50 * prototypes.centroids.std()
    permuted = replace(prototypes, centroids=centroids, within_variance=None, occupancy=None, diagnostics={})
    cohort = {"table": run.parent / "table.csv", "names": {0: "tumour", 1: "stroma"}, "exemplars": 1}
    panther.make_atlas(run.parent / "features", permuted, output=folder, **cohort)
    return folder


def figure(page: str, key: str) -> dict[str, Any]:
    chart = plots(page)[key]
    return chart["data"][0] | {"y": chart["layout"]["yaxis"]["ticktext"]}  # rows by name


def test_prototypes_of_a_fold_have_the_names_and_colours_of_the_atlas(
    classes: Path, mixtures: Mixtures, tmp_path: Path
) -> None:
    atlas = make_atlas(classes, mixtures.prototypes, tmp_path / "atlas")
    share = dict(mixtures.prototypes.diagnostics)["occupancy_share"]
    page = build_page(gather(classes, {"atlas": atlas}))
    shown = figure(page, "occupancy")
    assert shown["y"] == ["C0 tumour", "C1 stroma", "C2", "C3"] == figure(page, "weights")["y"]
    assert shown["marker"]["color"] == [colour(c) for c in range(4)]
    assert shown["x"] == pytest.approx([share[c] for c in PERMUTED], rel=1e-4)  # of the same tissue
    assert "4 of this fold's 4 prototypes match" in html.unescape(page)

    (atlas / "pi.csv").unlink()
    shown = figure(build_page(gather(classes, {"atlas": atlas})), "weights")  # of the fold, with names of the atlas
    assert shown["y"] == ["C0 tumour", "C1 stroma", "C2", "C3"]
    assert mixtures.weights is not None
    expected = mixtures.weights[:, PERMUTED].mean(0).tolist()
    assert [sum(row) / len(row) for row in shown["z"]] == pytest.approx(expected, rel=1e-3)

    (atlas / "prototypes.safetensors").unlink()
    page = build_page(gather(classes, {"atlas": atlas}))
    assert "not available for comparison" in page
    assert figure(page, "occupancy")["y"] == [f"C{c} of fold 1" for c in range(4)]
    assert set(figure(page, "occupancy")["marker"]["color"]) == {UNMATCHED}


def test_a_prototype_that_the_atlas_lacks_is_marked(classes: Path, mixtures: Mixtures, tmp_path: Path) -> None:
    folder = make_atlas(classes, mixtures.prototypes, tmp_path / "atlas", moved=1)
    shown = figure(build_page(gather(classes, {"atlas": folder})), "occupancy")
    assert shown["y"] == ["C0 tumour", "C2", "C3", f"C{PERMUTED[1]} of fold 1"]
    assert shown["marker"]["color"] == [colour(0), colour(2), colour(3), UNMATCHED]


def test_prototypes_of_a_report_without_folders_have_plain_names(classes: Path) -> None:
    shown = figure(build_page(gather(classes)), "occupancy")
    assert shown["y"] == ["C0", "C1", "C2", "C3"]
    assert shown["marker"]["color"] == [colour(c) for c in range(4)]


def test_prototypes_of_another_encoder_never_match() -> None:
    assert match_prototypes(*(Prototypes(torch.eye(3), encoder=name) for name in ("a", "b"))) == {}


def test_colours_of_users_are_the_same_in_all_tabs() -> None:
    pairs = ((0, "#111111"), (1, "red; x"), (0, "#222222"), (1, "#333333"))
    rows = [{"prototype": c, "colour": text} for c, text in pairs]
    assert _set_colours(rows, {}, 2) == {0: "#111111", 1: colour(1)}
    assert [row["colour"] for row in rows] == ["#111111", colour(1)] * 2
    assert _set_colours(rows, {1: Naming(colour="#444444")}, 2) == {0: colour(0), 1: "#444444"}
    assert FoldNames(0, [0, 1], colours={1: "#444444"}).colour(1) == "#444444"
