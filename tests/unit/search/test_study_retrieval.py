"""Retrieval in a study: test slides ask, training slides answer; in the tables, in the folder and in the report."""

import numpy as np
import pandas as pd
import pytest

import panther
from panther.study.jobs import load_embeddings

SLIDES = [f"S{n:02}" for n in range(24)]


@pytest.fixture(scope="module")
def study():
    rng = np.random.default_rng(0)
    bags = {name: rng.normal(size=(20, 4)) + 1.5 * (n // 2 % 2) * np.eye(4)[0] for n, name in enumerate(SLIDES)}
    table = pd.DataFrame(
        {"slide_id": SLIDES, "case_id": [f"P{n // 2}" for n in range(24)], "subtype": ["a", "a", "b", "b"] * 6}
    )
    data = {"name": "alike", "table": table, "features": bags, "task": {"label": "subtype", "level": "slide"}}
    grid = {"methods": ["mean", "panther"], "heads": ["probe"], "n_prototypes": [2], "splits": {"k": 2}}
    return {**data, **grid, "bootstrap": 30}


@pytest.fixture(scope="module")
def results(study, tmp_path_factory):
    return panther.run_study({**study, "retrieval": [1, 3]}, tmp_path_factory.mktemp("study"))


def test_test_slides_ask_the_training_slides_of_their_fold(results):
    table = results.retrieval["retrieval"]
    run, population = results.run, results.run.population
    label = dict(zip(population.ids, population.target.labels, strict=True))
    right = []
    for trained in run.trained:
        if trained.cell.method.title != "mean":
            continue
        matrix, names = load_embeddings(trained.embeddings)
        unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
        split, where = population.splits[trained.fold], {name: row for row, name in enumerate(names)}
        others = [*split.train, *split.val]
        for name in split.test["test"]:
            likeness = unit[[where[other] for other in others]] @ unit[where[name]]
            right.append(label[others[int(likeness.argmax())]] == label[name])
    found = table.set_index(["representation", "group", "metric", "k"])["value"]
    assert found["mean on cosine", "all", "acc", 1] == pytest.approx(np.mean(right))
    representations = {"mean on cosine", *(f"panther on {way}" for way in ("cosine", "pi", "mixture"))}
    assert set(table["representation"]) == representations
    assert set(table["k"]) == {1, 3}
    assert set(results.retrieval["retrieval_comparisons"]["against"]) == {"mean on cosine"}


def test_the_folder_and_the_report_have_it(results):
    folder = results.run.folder
    assert len(pd.read_csv(folder / "retrieval.csv")) == len(results.retrieval["retrieval"])
    page = panther.make_report(folder).html
    assert 'id="panel-retrieval"' in page
    assert "PANTHER on mixture" in page
    assert "mMV@3" in page
