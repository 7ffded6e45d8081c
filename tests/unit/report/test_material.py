"""C4 is the same prototype in all tabs: a fold's prototypes have the names of the folders where they are theirs, else names with the fold."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import panther
from panther.explain.names import Naming
from panther.explain.palette import colour
from panther.report.data import load_run
from panther.report.material import OF_FOLD, _set_colours, gather, load_mixtures
from panther.report.page import build_page
from report.studies import plots


def figure(page: str, key: str) -> dict[str, Any]:
    chart = plots(page)[key]
    return chart["data"][0] | {"y": chart["layout"]["yaxis"]["ticktext"]}  # rows by name


@pytest.mark.parametrize("is_other", [False, True])
def test_prototypes_of_a_fold_have_the_names_of_the_atlas_where_they_are_the_same(
    is_other: bool, classes: Path, tmp_path: Path
) -> None:
    mixtures = load_mixtures(load_run(classes))
    assert mixtures is not None
    prototypes = mixtures.prototypes
    if is_other:
        prototypes = replace(prototypes, centroids=prototypes.centroids + 1.0)
    cohort = {"table": classes.parent / "table.csv", "names": {0: "tumour", 1: "stroma"}, "exemplars": 1}
    panther.make_atlas(classes.parent / "features", prototypes, output=tmp_path / "atlas", **cohort)
    page = build_page(gather(classes, {"atlas": tmp_path / "atlas"}))
    names = ["C0 tumour", "C1 stroma", "C2", "C3"]
    assert figure(page, "weights")["y"] == names  # of the atlas
    expected = [f"C{c} of fold 1" for c in range(4)] if is_other else names
    assert figure(page, "occupancy")["y"] == expected
    assert figure(page, "occupancy")["marker"]["color"] == (
        [OF_FOLD] * 4 if is_other else [colour(c) for c in range(4)]
    )
    (tmp_path / "atlas" / "pi.csv").unlink()
    shown = figure(build_page(gather(classes, {"atlas": tmp_path / "atlas"})), "weights")  # of the fold
    assert shown["y"] == expected
    assert mixtures.weights is not None
    assert [sum(row) / len(row) for row in shown["z"]] == pytest.approx(mixtures.weights.mean(0).tolist(), rel=1e-3)


def test_prototypes_of_a_report_without_folders_have_plain_names(classes: Path) -> None:
    shown = figure(build_page(gather(classes)), "occupancy")
    assert shown["y"] == ["C0", "C1", "C2", "C3"]
    assert shown["marker"]["color"] == [colour(c) for c in range(4)]


def test_colours_of_users_are_the_same_in_all_tabs(classes: Path) -> None:
    pairs = ((0, "#111111"), (1, "red; x"), (0, "#222222"), (1, "#333333"))
    rows = [{"prototype": c, "colour": text} for c, text in pairs]
    assert _set_colours(rows, {}, 2) == {0: "#111111", 1: colour(1)}
    assert [row["colour"] for row in rows] == ["#111111", colour(1)] * 2
    assert _set_colours(rows, {1: Naming(colour="#444444")}, 2) == {0: colour(0), 1: "#444444"}
    assert replace(gather(classes), colours={1: "#444444"}).fold_colour(1) == "#444444"
