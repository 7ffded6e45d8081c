"""`panther.make_report`: the same page as the command's, from values as well as from folders."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import panther
from cli.running import Runner


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    bags = {f"S{i}": rng.normal(i % 2, 1, (30, 4)) for i in range(16)}
    table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 8})
    study = {"name": "small", "table": table, "features": bags, "task": {"label": "subtype"}, "heads": ["probe"]}
    return panther.run_study({**study, "n_prototypes": [2], "splits": {"k": 2}, "bootstrap": 10})


def test_results_that_were_never_written_become_a_page_with_their_embeddings(results) -> None:
    found = panther.make_report(results, title="Mine")
    assert "<h1>Mine</h1>" in found.html
    assert found.failures == {}
    assert 'data-plot="plot-scatter-pca-0"' in found.html  # scaled by the model that was tested


def test_the_command_and_the_function_write_the_same_bytes(
    classes: Path, atlas: Path, tmp_path: Path, panther: Runner
) -> None:
    from panther import make_report

    panther("report", classes, "-o", tmp_path / "command.html", "--atlas", atlas)
    found = make_report(
        classes, atlas=SimpleNamespace(files=(atlas / "atlas.json",)), output=tmp_path / "function.html"
    )
    assert (tmp_path / "command.html").read_bytes() == (tmp_path / "function.html").read_bytes() == found.html.encode()


def test_a_value_that_was_not_written_is_refused_by_its_name(classes: Path) -> None:
    with pytest.raises(panther.InputError, match="atlas: was not written"):
        panther.make_report(classes, atlas=SimpleNamespace(files=()))
