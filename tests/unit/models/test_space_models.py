"""Models on PANTHER with its block `space`: predictions, files and attributions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import panther
from panther import attribute
from panther.explain.attribution.mathematics import largest_pairs
from panther.explain.names import Naming
from panther.models.model import Model, load_model, save_model
from panther.models.scaling import JointScaler
from panther.types import Bag, PatchSpec, Prototypes

SIDE, D = 12, 8  # patches across, features
STROMA, TUMOUR, LYMPHOCYTES = range(3)
CENTRES = 4.0 * np.eye(3, D)


def a_slide(name: str, infiltrated: bool, rng: np.random.Generator) -> Bag:
    """Tumour on the left; 24 lymphocytes lie inside it, or as a nest in the stroma: proportions are the same to the patch."""
    tissue = np.full((SIDE, SIDE), STROMA)
    tissue[:, :6] = TUMOUR
    if infiltrated:
        free = np.flatnonzero(tissue.ravel() == TUMOUR)
        tissue.ravel()[rng.choice(free, 24, replace=False)] = LYMPHOCYTES
        tissue[2:6, 6:] = TUMOUR
    else:
        row = rng.integers(0, SIDE - 6)
        tissue[row : row + 6, 8:12] = LYMPHOCYTES
    rows = CENTRES[tissue.ravel()] + rng.normal(size=(SIDE * SIDE, D))
    corners = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)), -1).reshape(-1, 2) * 256
    spec = PatchSpec(size=256, size_level0=256)
    return Bag(name, torch.tensor(rows, dtype=torch.float32), corners, spec)


def cohort(count: int, seed: int) -> tuple[list[Bag], pd.DataFrame]:
    rng = np.random.default_rng(seed)
    names = [f"S{seed}-{number:02d}" for number in range(count)]
    labels = ["infiltrated" if number % 2 else "excluded" for number in range(count)]
    bags = [a_slide(name, label == "infiltrated", rng) for name, label in zip(names, labels, strict=True)]
    return bags, pd.DataFrame({"slide_id": names, "case_id": names, "arrangement": labels})


def trained(**settings: object) -> Model:
    bags, table = cohort(24, 0)
    prototypes = Prototypes(torch.tensor(CENTRES, dtype=torch.float32))
    return panther.train(bags, table, label="arrangement", prototypes=prototypes, calibrate=0, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> Model:
    return trained(blocks=["space"])


def right(model: Model) -> float:
    bags, table = cohort(20, 1)
    result = panther.predict(model, bags).table.set_index("sample")["predicted"]
    return float((result[table["slide_id"]].to_numpy() == table["arrangement"].to_numpy()).mean())


def test_a_probe_tells_infiltrated_from_excluded_which_a_mixture_cannot(model: Model) -> None:
    assert right(model) >= 0.95
    assert right(trained()) <= 0.8


def test_the_file_of_a_model_predicts_the_same(model: Model, tmp_path: Path) -> None:
    assert isinstance(model.scaler, JointScaler)
    assert [part.dim_in for part in model.scaler.parts] == [3 * (1 + 2 * D), 6, 9]
    save_model(model, tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    bags, _ = cohort(6, 2)
    pd.testing.assert_frame_equal(panther.predict(loaded, bags).table, panther.predict(model, bags).table)


def test_attribution_adds_up_and_names_the_pair(model: Model) -> None:
    bags, _ = cohort(8, 3)
    result = attribute(model, bags, maps=False)
    assert result.kind == "exact"
    assert result.gap < 1e-9
    np.testing.assert_allclose(result.by_prototype().sum(2), result.contributions.sum(2), atol=1e-9)
    rows = [row for row in result.mean_contributions() if row["output"] == "infiltrated"]
    result = replace(result, namings={1: Naming("tumour")})
    titles = [result.pair_title(row) for row in largest_pairs(rows, 4)]
    assert "C1 tumour beside C2" in titles
    beside = result.contributions[:, result.outputs.index("infiltrated"), result.players.index((1, "beside C2"))]
    assert (
        np.sign(beside) == [-1, 1] * 4
    ).all()  # what lies inside the tumour speaks for it, what lies apart against it
