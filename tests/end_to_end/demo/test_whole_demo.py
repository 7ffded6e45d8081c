"""The demo on a tiny cohort: real slides, the embedded encoder, every command; judged by what was drawn."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import anndata
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import adjusted_mutual_info_score

from panther.cli import main
from panther.explain import as_names
from panther.explain.palette import PALETTE, rgb_values
from panther.storage.prototypes import load_prototypes
from panther_demo.cohort import CohortSettings
from panther_demo.pipeline import FEATURES, Demo, look, mapped, steps
from panther_demo.steps import Runner
from panther_demo.tissues import tissues
from panther_demo.truth import agreement, held_out_table, read_mask

NOTEBOOKS = Path(__file__).resolve().parents[3] / "docs" / "tutorials"
# the same commands as for the subtype, which would only take longer
LEFT_OUT = ("study-survival", "run-survival", "train-survival", "attribute-survival", "report-survival")


def launch(step) -> int:
    """The real commands, in this process: starting Python thirty times would take longer than the work."""
    try:
        main(step.arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    found = Demo(tmp_path_factory.mktemp("demo"), CohortSettings(patients=9, sites=3, side=1536))
    todo = [step for step in steps(found) if step.name not in LEFT_OUT]
    Runner(found.folder / ".done", print, launch).run(todo)
    return found


@pytest.fixture(scope="module")
def prototypes(demo):
    return load_prototypes(demo.folder / "prototypes.safetensors")


@pytest.fixture(scope="module")
def looked_at(demo, prototypes):
    return look(demo.folder, demo.folder / FEATURES, prototypes)


@pytest.fixture(scope="module")
def names(demo, prototypes):
    return as_names(demo.folder / "names.yaml", len(prototypes))


def true_shares(demo):
    with (demo.folder / "truth" / "shares.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    return {row["slide_id"]: np.array([float(row[name]) for name in tissues.names()]) for row in rows}


def test_prototypes_are_tissues(looked_at):
    pure = [slide.counts[:, 1:].max(1) > 0.8 * np.maximum(slide.counts.sum(1), 1) for slide in looked_at]
    tissue = np.concatenate([slide.tissue[keep] for slide, keep in zip(looked_at, pure, strict=True)])
    prototype = np.concatenate([slide.prototype[keep] for slide, keep in zip(looked_at, pure, strict=True)])
    assert len(tissue) > 50
    assert adjusted_mutual_info_score(tissue, prototype) > 0.85


def test_named_on_other_slides_a_map_agrees_with_the_mask(looked_at, prototypes):
    # small slides are mostly border: a grid of 256 pixels could reach 0.85 here at best, 0.92 on the demo's own
    assert agreement(held_out_table(looked_at, len(prototypes))) > 0.7


def test_shares_of_the_embedding_are_the_true_ones(demo, names):
    slides = anndata.read_h5ad(demo.folder / "slides.h5ad")
    found = np.zeros((slides.n_obs, len(tissues.names())))
    for c, name in names.items():
        found[:, tissues.names().index(name)] += slides.obsm["pi"][:, c]
    true = true_shares(demo)
    expected = np.array([true[name] for name in slides.obs_names])
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.75


def test_the_drawn_map_shows_the_tissue_that_lies_under_it(demo, names, prototypes):
    right = total = 0
    colours = rgb_values(PALETTE[: len(prototypes)]).astype(int)
    for slide in mapped(demo.cohort):
        overlay = np.asarray(Image.open(demo.folder / "maps" / f"{slide}.overlay.png")).astype(int)
        mask = read_mask(demo.folder / "truth" / f"{slide}.png")
        rows, columns = (
            ((np.arange(n) + 0.5) * m / n).astype(int) for m, n in zip(overlay.shape, mask.shape, strict=False)
        )
        small = overlay[rows[:, None], columns]
        known = (small[..., 3] == 255) & (mask > 0)
        prototype = np.abs(small[known][:, None, :3] - colours).sum(-1).argmin(1)
        label = np.array([tissues.names().index(names[c]) + 1 if c in names else 0 for c in range(len(prototypes))])
        right, total = right + int((label[prototype] == mask[known]).sum()), total + int(known.sum())
    assert right / total > 0.7


def test_the_report_holds_every_part(demo, names):
    page = (demo.folder / "report.html").read_text()
    parts = ("cohort", "splits", "results", "curves", "prototypes", "mixtures", "maps", "tissue-classes", "attribution")
    for part in parts:
        assert f'id="panel-{part}"' in page
    for name in set(names.values()):
        assert name in page
    assert "Synthetic demo cohort" in page
    table = (demo.folder / "subtype" / "table.md").read_text()
    readouts = ("PANTHER All", "PANTHER WA", "PANTHER Top", "PANTHER Bottom")
    for name in (*readouts, "OT", "H2T", "ProtoCounts", "DeepSets", "ABMIL"):
        assert f"| {name}" in table


@pytest.mark.slow
def test_the_notebook_of_figure_3_runs_on_what_the_demo_wrote(demo, tmp_path):
    cells = json.loads((NOTEBOOKS / "figure3.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    picture = tmp_path / "figure3.png"
    told = {"PANTHER_DEMO": str(demo.folder), "FIGURE": str(picture), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **told}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert np.asarray(Image.open(picture)).std() > 20  # something was drawn


def test_a_second_run_does_nothing(demo):
    def never(step):
        raise AssertionError(step)

    todo = [step for step in steps(demo) if step.name not in LEFT_OUT]
    runner = Runner(demo.folder / ".done", lambda line: None, never)
    runner.run(todo)
    assert runner.ran == 0
