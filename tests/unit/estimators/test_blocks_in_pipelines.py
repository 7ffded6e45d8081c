"""`Panther(blocks=...)` in scikit-learn's pipelines: blocks are recognised from the numbers, and scaled and weighed as `panther train` does."""

import numpy as np
import pytest
import torch

from panther import EmbeddingClassifier, EmbeddingScaler, InputError, Panther
from panther.cohort.targets import Classes
from panther.estimators.probes import panther_parts
from panther.models.blocks import Block, columns_of
from panther.models.probes import fit_suitable
from panther.models.scaling import fit_scaler
from panther.models.settings import Named
from panther.types import Bag, PatchSpec

SIDE, D, C = 8, 6, 3
CHOICES = [("space",), ("tail",), ("space", "tail")]


def a_slide(name: str, mixed: bool, rng: np.random.Generator) -> Bag:
    """Two tissues in halves, or mixed patch by patch: proportions are the same."""
    tissue = np.repeat([0, 1], SIDE * SIDE // 2)
    tissue = rng.permutation(tissue) if mixed else tissue
    rows = 3.0 * np.eye(2, D)[tissue] + rng.normal(size=(SIDE * SIDE, D))
    corners = np.stack(np.divmod(np.arange(SIDE * SIDE), SIDE), 1) * 256
    spec = PatchSpec(size=256, size_level0=256)
    return Bag(name, torch.tensor(rows, dtype=torch.float32), corners, spec)


def slides(count: int, seed: int) -> tuple[list[Bag], np.ndarray]:
    rng, labels = np.random.default_rng(seed), np.arange(count) % 2
    return [a_slide(f"{seed}-{n}", bool(label), rng) for n, label in enumerate(labels)], labels


@pytest.fixture(scope="module")
def cohort() -> tuple[list[Bag], np.ndarray]:
    return slides(30, 0)


@pytest.mark.parametrize("blocks", CHOICES, ids="+".join)
def test_blocks_are_recognised_and_scaled_as_in_training(cohort, blocks: tuple[str, ...]) -> None:
    bags, labels = cohort
    model = Panther(C, blocks=blocks).fit(bags)
    rows = model.transform(bags)
    block = Block(Named(name="panther", options={"blocks": list(blocks)}), model.prototypes_)
    for given in (None, C):
        assert [part.columns for part in panther_parts(rows, given)] == block.parts()
    scaler = fit_scaler(Named(name="share-weighted"), rows, [block])
    expected = scaler(torch.from_numpy(rows)).numpy()
    found = EmbeddingScaler().fit(rows)
    np.testing.assert_array_equal(found.transform(rows), expected)
    names = found.get_feature_names_out()
    assert len(set(names)) == expected.shape[1]
    assert names[0] == "C0:pi"
    names_in = scaler.blocks(columns_of([block]))
    probe = fit_suitable(expected, Classes(("0", "1"), labels), blocks=names_in)
    fitted = EmbeddingClassifier().fit(rows, labels).probe_
    np.testing.assert_array_equal(fitted.weight, probe.weight)
    assert sum(name.startswith("+") for name in fitted.shares) == len(block.parts()) - 1


def test_rows_of_another_width_are_not_taken_for_blocks(cohort) -> None:
    rows = Panther(C, blocks=("space", "tail")).fit_transform(cohort[0])
    assert panther_parts(rows[:, 1:]) is None
    assert panther_parts(rows[:, :-1]) is None
    with pytest.raises(InputError, match=r"n_prototypes=5"):
        EmbeddingScaler(n_prototypes=5).fit(rows)
