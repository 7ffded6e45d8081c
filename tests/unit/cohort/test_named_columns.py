"""Columns of a table that have other names, for everything that reads a table."""

import numpy as np
import pandas as pd
import pytest

import panther

BAGS = {f"s{i}": np.random.default_rng(i).normal(i % 2, 1, (30, 4)) for i in range(12)}
TABLE = pd.DataFrame(
    {"picture": list(BAGS), "who": [f"p{i // 2 * 2 + i % 2}" for i in range(12)], "kind": ["a", "b"] * 6}
)
USUAL = TABLE.rename(columns={"picture": "slide_id", "who": "case_id"})
NAMES = {"slide_column": "picture", "patient_column": "who"}


@pytest.fixture(scope="module")
def model():
    return panther.train(BAGS, USUAL, label="kind", n_prototypes=2)


VERBS = {
    "train": lambda m, t, **c: panther.train(BAGS, t, label="kind", n_prototypes=2, **c).task.names,
    "predict": lambda m, t, **c: list(panther.predict(m, BAGS, table=t, **c).table["sample"]),
    "make_atlas": lambda m, t, **c: panther.make_atlas(BAGS, m.prototypes, table=t, **c).patients,
    "make_splits": lambda m, t, **c: panther.make_splits(t, k=2, label="kind", **c)[0].train,
}


@pytest.mark.parametrize("verb", VERBS)
def test_named_columns_are_the_usual_ones(verb, model):
    assert VERBS[verb](model, TABLE, **NAMES) == VERBS[verb](model, USUAL)


def test_a_cohort_takes_a_dictionary_or_columns_and_refuses_anything_else():
    names = {"slide": "picture", "patient": "who"}
    ids = panther.load_cohort(TABLE, "kind", columns=names).ids
    assert ids == panther.load_cohort(TABLE, "kind", columns=panther.Columns(**names)).ids
    for columns, culprit in (({"slides": "picture"}, "slides"), ("picture", "columns")):
        with pytest.raises(panther.InputError, match=culprit):
            panther.load_cohort(TABLE, "kind", columns=columns)
