"""A generator in place of a list works like the list, or is refused; nothing is lost in silence."""

import numpy as np
import pandas as pd
import pytest
import torch

import panther
from panther import (
    EmbeddingClassifier,
    EmbeddingScaler,
    InputError,
    Panther,
    SiteKFold,
)

rng = np.random.default_rng(0)
BAGS = [panther.Bag(f"s{n}", torch.from_numpy(rng.normal(n % 2, 1, (16, 6)).astype(np.float32))) for n in range(12)]
NAMES = [bag.slide_id for bag in BAGS]
TABLE = pd.DataFrame({"slide_id": NAMES, "case_id": NAMES, "grade": ["a", "b"] * 6})
X, Y = rng.normal(size=(12, 4)), np.arange(12.0)


@pytest.fixture(scope="module")
def fitted():
    return Panther(3).fit(BAGS)


@pytest.fixture(scope="module")
def model():
    return panther.train(BAGS, TABLE, label="grade", n_prototypes=3)


WORK = {
    "Panther.fit": lambda bags, fitted, model: Panther(3).fit(bags).prototypes_.centroids,
    "Panther.fit_transform": lambda bags, fitted, model: Panther(3).fit_transform(bags),
    "Panther.transform": lambda bags, fitted, model: fitted.transform(bags),
    "fit_prototypes": lambda bags, fitted, model: panther.fit_prototypes(bags, 3).centroids,
    "choose_c": lambda bags, fitted, model: [c.held_out for c in panther.choose_c(bags, (2, 3)).candidates],
    "embed_cohort": lambda bags, fitted, model: panther.embed_cohort(bags, fitted.prototypes_).vectors,
    "load_cohort": lambda bags, fitted, model: panther.load_cohort(TABLE, label="grade", bags=bags).y == "a",
    "train": lambda bags, fitted, model: [panther.train(bags, TABLE, label="grade", n_prototypes=3).prototypes.centroids],
    "predict": lambda bags, fitted, model: panther.predict(model, bags).table.select_dtypes("number"),
    "make_atlas": lambda bags, fitted, model: len(panther.make_atlas(bags, fitted.prototypes_).slides),
    "attribute": lambda bags, fitted, model: len(panther.attribute(model, bags).samples),
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_bags_of_a_generator_give_the_result_of_a_list(name, fitted, model):
    once = (bag for bag in BAGS)
    of_generator, of_list = (WORK[name](bags, fitted, model) for bags in (once, BAGS))
    np.testing.assert_array_equal(np.asarray(of_generator), np.asarray(of_list))
    assert np.asarray(of_generator).size


def test_a_generator_that_was_used_up_is_refused(fitted):
    bags = (bag for bag in BAGS)
    Panther(3).fit(bags)
    with pytest.raises(InputError, match="generator"):
        fitted.transform(bags)


REFUSED = {
    "embed": lambda one, p, m: panther.embed(one, p),
    "make_splits": lambda one, p, m: panther.make_splits(one),
    "train": lambda one, p, m: panther.train(BAGS, one, label="grade"),
    "fit_prototypes": lambda one, p, m: panther.fit_prototypes(BAGS, 3, table=one),
    "make_map": lambda one, p, m: panther.make_map(one, p),
    "similar": lambda one, p, m: panther.similar(one, "s0"),
    "kaplan_meier": lambda one, p, m: panther.kaplan_meier(one, TABLE, "os"),
    "run_study": lambda one, p, m: panther.run_study({"name": "x", "table": TABLE, "features": {"lab": one}}),
    "EmbeddingScaler": lambda one, p, m: EmbeddingScaler().fit_transform(one),
    "EmbeddingClassifier": lambda one, p, m: EmbeddingClassifier().fit(one, Y > 5),
    "SiteKFold": lambda one, p, m: list(SiteKFold(2).split(one, Y > 5, NAMES)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_generator_where_a_table_matrix_or_file_belongs_is_refused(name, fitted, model):
    with pytest.raises((InputError, TypeError), match=r"generator|object|expected"):
        REFUSED[name]((row for row in X), fitted.prototypes_, model)
