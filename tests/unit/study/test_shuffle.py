"""The shuffle test: what is shuffled, which rows are trained again, and the table, folder and report."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch

import panther
from panther.aggregators import aggregators
from panther.mil import networks
from panther.models.settings import Named
from panther.storage.bags import concatenate
from panther.study.jobs import load_predictions
from panther.study.plan import Shuffled, reads_places
from panther.study.results import Results
from panther.study.tables import EXACTLY
from panther.types import Bag

SPATIAL = {"name": "panther", "blocks": ["space"], "label": "with space"}
TRANSMIL = {"name": "transmil", "hidden": 16, "heads": 2, "landmarks": 8, "label": "order"}


def side_by_side_or_mixed(rng: np.random.Generator, mixed: bool, side: int = 6) -> Bag:
    """As many patches of both kinds, mixed or apart: nothing but their places tells one slide from the other."""
    kind = np.repeat([2.0, -2.0], side * side // 2)
    x = rng.normal(size=(side * side, 4)) + np.outer(rng.permutation(kind) if mixed else kind, np.eye(4)[0])
    rows, columns = np.divmod(np.arange(side * side), side)
    coords = torch.from_numpy(256 * np.stack([columns, rows], 1))
    return Bag("slide", torch.from_numpy(x.astype("f4")), lambda: coords)


@pytest.fixture
def bag() -> Bag:
    return side_by_side_or_mixed(np.random.default_rng(0), mixed=False)


def test_features_change_their_places_and_nothing_else_changes(bag: Bag) -> None:
    shuffled = Shuffled(bag, 1).open()
    assert np.array_equal(shuffled.coords, bag.coords)
    assert not torch.equal(shuffled.features[:], bag.features)
    assert sorted(map(tuple, shuffled.features[:].tolist())) == sorted(map(tuple, bag.features.tolist()))
    assert torch.equal(shuffled.features[5:9], shuffled.features[:][5:9])
    assert (shuffled.features.shape, shuffled.features.dtype) == (bag.features.shape, bag.features.dtype)
    again = pickle.loads(pickle.dumps(Shuffled(Bag("slide", bag.features), 1))).open()  # as in another process
    assert torch.equal(shuffled.features[:], again.features[:])
    for other in (Shuffled(bag, 2), Shuffled(Bag("other", bag.features), 1)):
        assert not torch.equal(shuffled.features[:], other.open().features[:])


def test_the_slides_of_a_patient_keep_their_patches() -> None:
    x = torch.arange(30.0)[:, None]
    patient = concatenate("patient", [Bag(str(n), part) for n, part in enumerate(x.split([10, 5, 15]))])
    shuffled = Shuffled(patient, 1).open()
    parts = shuffled.features[:].split([10, 5, 15])
    assert [sorted(part[:, 0].tolist()) for part in parts] == [part[:, 0].tolist() for part in x.split([10, 5, 15])]
    assert not torch.equal(shuffled.features[:], x)


def test_a_row_reads_places_where_one_of_its_parts_does() -> None:
    spatial = Named(name="panther", options={"blocks": ["space"]}, label="spatial")
    rows = [spatial, Named(name="mean"), Named(name="given", options={"name": "titan"}, label="titan")]
    assert [reads_places(row, rows) for row in rows] == [True, False, False]
    assert reads_places(Named(name="concat", options={"of": ["mean", "spatial"]}), rows)
    assert not reads_places(Named(name="concat", options={"of": ["mean", "titan", "covariates"]}), rows)
    assert not reads_places(Named(name="pca"), rows)
    # the contract of the others: the order of patches changes nothing
    assert {name for name in networks.names() if reads_places(Named(name=name), [])} == {"transmil"}
    assert not any(reads_places(Named(name=name), []) for name in aggregators.names())


def study(**changes: object) -> dict[str, object]:
    rng = np.random.default_rng(0)
    count = 40  # slides: with few, chance may leave the shuffled score as good as the other
    names = [f"S{n:02}" for n in range(count)]
    bags = {name: side_by_side_or_mixed(rng, n // 2 % 2 == 0) for n, name in enumerate(names)}
    patients, kinds = [f"P{n // 2}" for n in range(count)], ["mixed", "mixed", "apart", "apart"] * (count // 4)
    table = pd.DataFrame({"slide_id": names, "case_id": patients, "kind": kinds})
    content = {"name": "places", "table": table, "features": bags, "task": {"label": "kind"}, "heads": ["probe"]}
    content |= {"methods": ["panther", SPATIAL, TRANSMIL], "n_prototypes": [2], "splits": {"k": 2}, "bootstrap": 20}
    return {**content, "mil_training": {"epochs": 1}, "shuffle": 2, **changes}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return panther.run_study(study(), tmp_path_factory.mktemp("shuffle"))


def test_the_table_has_both_scores_and_exact_ones_where_coordinates_are_not_read(results: Results) -> None:
    summary = results.summary.set_index(["method", "metric"])["mean"]
    for _, row in results.shuffle.iterrows():
        assert row["score"] == pytest.approx(summary[row["method"], row["metric"]])
        assert row["difference"] == pytest.approx(row["score"] - row["shuffled"])
    unmoved = results.shuffle[results.shuffle["method"] == "panther"]
    assert (unmoved["score"] == unmoved["shuffled"]).all()
    assert set(unmoved["words"]) == {EXACTLY}
    moved = results.shuffle[results.shuffle["method"] == "order"]
    assert set(moved["shuffles"]) == {2}
    assert (moved["ci_low"] <= moved["difference"]).all()
    assert (moved["difference"] <= moved["ci_high"]).all()
    spatial = results.shuffle[results.shuffle["metric"] == "auroc"].set_index("method").loc["with space"]
    assert (spatial["score"], spatial["shuffles"]) == (1, 2)
    assert spatial["shuffled"] < 0.9  # it depends on coordinates alone


def test_the_shuffled_score_is_that_of_models_trained_and_tested_on_shuffled_tissue(results: Results) -> None:
    population = results.run.population
    label = dict(zip(population.ids, population.target.labels, strict=True))
    right, seen = [], set()
    for trained in [one for one in results.run.shuffled if one.cell.method.title == "order"]:
        _, parts = load_predictions(trained.predictions)
        truth = np.array([label[str(name)] for name in parts["test"]["ids"]])
        message = parts["test"]["probabilities"].argmax(1)
        seen.add(parts["test"]["probabilities"].tobytes())
        right.append(np.mean([(message[truth == k] == k).mean() for k in (0, 1)]))
    assert len(right) == len(seen) == 4  # folds x shuffles
    result = results.shuffle.set_index(["method", "metric"])["shuffled"]
    assert result["order", "balanced_accuracy"] == pytest.approx(np.mean(right))


def test_only_what_reads_places_is_made_again_and_no_model_of_shuffled_tissue_is_offered(results: Results) -> None:
    cache, models = (sorted((results.run.folder / name).iterdir()) for name in ("cache", "models"))
    assert sum(path.name.startswith("prototypes-") for path in cache) == 2  # one per fold
    assert (
        sum(path.name.startswith("embeddings-") and path.suffix == ".npy" for path in cache) == 8
    )  # and of two shuffles
    assert len(models) == 6  # three methods, two folds
    assert len(results.run.trained) == 6
    assert {one.cell.method.title for one in results.run.shuffled} == {"with space", "order"}


def test_the_folder_the_printed_table_and_the_report_have_it(results: Results) -> None:
    assert len(pd.read_csv(results.run.folder / "shuffle.csv")) == len(results.shuffle)
    assert f"Shuffled tissue, PANTHER + probe: {EXACTLY}." in results.table()
    page = panther.make_report(results.run.folder).html
    section = page.split('id="panel-shuffle-test"')[1].split("</section>")[0]
    assert "exactly 0" in section
    assert "mean of 2 shuffles" in section
