"""A generator in place of a list works like the list; nothing is lost in silence."""

import numpy as np
import pandas as pd
import pytest
import torch

import panther
from panther import InputError, Panther

rng = np.random.default_rng(0)
BAGS = [panther.Bag(f"s{n}", torch.from_numpy(rng.normal(n % 2, 1, (16, 6)).astype(np.float32))) for n in range(12)]
NAMES = [bag.slide_id for bag in BAGS]
TABLE = pd.DataFrame({"slide_id": NAMES, "case_id": NAMES, "grade": ["a", "b"] * 6})


@pytest.fixture(scope="module")
def fitted():
    return Panther(3).fit(BAGS)


@pytest.fixture(scope="module")
def model():
    return panther.train(BAGS, TABLE, label="grade", n_prototypes=3)


WORK = {
    "Panther.fit": lambda bags, fitted, model: Panther(3).fit(bags).prototypes_.centroids,
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
