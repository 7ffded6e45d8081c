"""C4 means one thing in a report: a fold's prototypes have the names and colours of the atlas's that they are, or are marked apart."""

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
    _set_colours,
    as_settings,
    gather,
    load_mixtures,
    match_prototypes,
)
from panther.report.page import build_page
from panther.types import Prototypes
from report.studies import plots

PERMUTED = [2, 0, 3, 1]  # prototype k of the atlas is the fold's PERMUTED[k]
NAMES = {0: "tumour", 1: "stroma"}


def prototypes_of(run: Path) -> Prototypes:
    found = load_mixtures(load_run(run))
    assert found is not None
    return found.prototypes


def permuted(own: Prototypes, strange: int | None = None) -> Prototypes:
    """The same prototypes in another order, refitted on a few patches more; one may be somewhere else."""
    noise = torch.randn(own.centroids.shape, generator=torch.Generator().manual_seed(0))
    centroids = own.centroids[PERMUTED] + 0.01 * own.centroids.std() * noise
    if strange is not None:
        centroids[strange] += 50 * own.centroids.std()
    return replace(own, centroids=centroids, within_variance=None, occupancy=None, diagnostics={})


def atlas_of(run: Path, prototypes: Prototypes, folder: Path) -> Path:
    cohort = {"table": run.parent / "table.csv", "names": NAMES, "exemplars": 1}
    panther.make_atlas(run.parent / "features", prototypes, output=folder, **cohort)
    return folder


def figure(page: str, key: str) -> dict[str, Any]:
    chart = plots(page)[key]
    return chart["data"][0] | {"y": chart["layout"]["yaxis"]["ticktext"]}  # rows by name


@pytest.fixture(scope="module")
def alike(classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return atlas_of(classes, permuted(prototypes_of(classes)), tmp_path_factory.mktemp("permuted"))


def test_a_folds_prototypes_are_called_and_coloured_as_those_of_the_atlas(classes: Path, alike: Path) -> None:
    share = dict(prototypes_of(classes).diagnostics)["occupancy_share"]
    page = build_page(gather(classes, {"atlas": alike}))
    shown = figure(page, "occupancy")
    assert shown["y"] == ["C0 tumour", "C1 stroma", "C2", "C3"]
    assert shown["marker"]["color"] == [colour(c) for c in range(4)]
    assert shown["x"] == pytest.approx(
        [share[c] for c in PERMUTED], rel=1e-4
    )  # of the same tissue, not of the same number
    assert "4 of this fold's 4 prototypes match" in html.unescape(page)
    assert figure(page, "weights")["y"] == shown["y"]


def test_without_the_atlas_table_the_folds_weights_have_the_atlas_names(
    classes: Path, alike: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(alike, tmp_path / "atlas")
    (tmp_path / "atlas" / "pi.csv").unlink()
    found = load_mixtures(load_run(classes))
    assert found is not None
    assert found.weights is not None
    page = build_page(gather(classes, {"atlas": tmp_path / "atlas"}))
    shown = figure(page, "weights")
    assert shown["y"] == ["C0 tumour", "C1 stroma", "C2", "C3"]
    largest = found.weights[:, PERMUTED].mean(0)
    assert [sum(row) / len(row) for row in shown["z"]] == pytest.approx(largest.tolist(), rel=1e-3)


def test_a_prototype_that_the_atlas_does_not_have_is_marked_apart(classes: Path, tmp_path: Path) -> None:
    folder = atlas_of(classes, permuted(prototypes_of(classes), strange=1), tmp_path / "strange")
    shown = figure(build_page(gather(classes, {"atlas": folder})), "occupancy")
    assert shown["y"] == ["C0 tumour", "C2", "C3", f"fold 1's own C{PERMUTED[1]}"]
    assert shown["marker"]["color"] == [colour(0), colour(2), colour(3), UNMATCHED]


def test_where_the_atlas_prototypes_are_not_at_hand_none_is_mistaken_for_another(classes: Path, tmp_path: Path) -> None:
    folder = atlas_of(classes, permuted(prototypes_of(classes)), tmp_path / "old")
    (folder / "prototypes.safetensors").unlink()
    page = build_page(gather(classes, {"atlas": folder}))
    assert "not available for comparison" in page
    shown = figure(page, "occupancy")
    assert shown["y"] == [f"fold 1's own C{c}" for c in range(4)]
    assert set(shown["marker"]["color"]) == {UNMATCHED}


def test_a_report_of_the_run_alone_has_one_set_and_plain_names(classes: Path) -> None:
    shown = figure(build_page(gather(classes)), "occupancy")
    assert shown["y"] == ["C0", "C1", "C2", "C3"]
    assert shown["marker"]["color"] == [colour(c) for c in range(4)]


def test_prototypes_of_another_encoder_are_never_matched() -> None:
    own, other = (Prototypes(torch.eye(3), encoder=name) for name in ("a", "b"))
    names = FoldNames(1, 3, match_prototypes(own, other), True)
    assert [names.number(c) for c in range(3)] == [None] * 3
    assert names.name(2) == "fold 2's own C2"
    assert not names.matches


def test_prototypes_that_are_not_at_hand_are_not_called_others() -> None:
    names = FoldNames(1, 3, match_prototypes(Prototypes(torch.eye(3)), None), True, compared=False)
    assert [names.number(c) for c in range(3)] == [None] * 3


def test_settings_of_python_are_settings_of_the_study() -> None:
    assert as_settings("raise `restarts=` or `sample=`.") == "raise `restarts` or `sample`."


def test_colours_that_people_gave_are_the_same_in_all_tabs() -> None:
    rows = [
        {"prototype": c, "colour": text} for c, text in ((0, "#111111"), (1, "red; x"), (0, "#222222"), (1, "#333333"))
    ]
    assert _set_colours(rows, {}, 2) == {0: "#111111", 1: colour(1)}
    assert [row["colour"] for row in rows] == ["#111111", colour(1)] * 2
    assert _set_colours(rows, {1: Naming(colour="#444444")}, 2) == {0: colour(0), 1: "#444444"}
    assert FoldNames(0, 2, {}, False, colours={1: "#444444"}).colour(1) == "#444444"
