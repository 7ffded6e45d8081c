"""Reports say what spreads are over, and which row is the reference, so that one row is meant."""

import pandas as pd
import pytest

from panther.report.data import load_run
from panther.report.material import gather
from panther.report.page import render_tab
from report.studies import run
from study.generated import generate


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Three folds, two seeds, two numbers of prototypes."""
    folder = tmp_path_factory.mktemp("several")
    generate(folder, patients=36, patches=12)
    changes = {"methods": ["protocounts", "panther"], "heads": ["probe"], "n_prototypes": [2, 4], "seeds": [1, 2]}
    return run(folder, task={"label": "subtype"}, metrics=["balanced_accuracy", "quadratic_kappa"], **changes)


def test_spreads_over_seeds_are_told_as_such(several, classes):
    told = render_tab(gather(several), "Results")
    assert "(± over folds and seeds)" in told
    assert "(± over folds)" not in told
    assert "single folds of each seed" in told
    assert ">3 x 2<" in told
    of_one_seed = render_tab(gather(classes), "Results")
    assert "(± over folds)" in of_one_seed
    assert "seeds)" not in of_one_seed.replace("(seeds of a fold", "")


def test_the_reference_is_one_of_the_rows(several):
    table = pd.read_csv(several / "comparisons.csv")
    assert set(table["reference"]) == {"protocounts + probe [C 2]", "protocounts + probe [C 4]"}
    own = table[table["method"] == "panther"]
    assert (own["reference"] == "protocounts + probe [C " + own["n_prototypes"].astype(str) + "]").all()
    found = load_run(several)
    assert set(found.comparisons["reference"]) <= set(found.rows)


def test_a_kappa_with_weights_is_called_so(several):
    for name in ("table.md", "table.tex"):
        assert "Quadratic-weighted kappa" in (several / name).read_text()
        assert "Cohen" not in (several / name).read_text()
    assert "quadratic-weighted kappa" in render_tab(gather(several), "Results")
