"""Columns of a table that have other names: said by a dictionary or by `Columns`, to everything that reads a table."""

import numpy as np
import pandas as pd
import pytest

import panther

BAGS = {f"s{i}": np.random.default_rng(i).normal(i % 2, 1, (30, 4)) for i in range(12)}
TABLE = pd.DataFrame(
    {"picture": list(BAGS), "who": [f"p{i // 2 * 2 + i % 2}" for i in range(12)], "kind": ["a", "b"] * 6}
)
NAMES = {"slide": "picture", "patient": "who"}


@pytest.fixture(scope="module")
def made():
    prototypes = panther.fit_prototypes(BAGS, 2)
    model = panther.train(BAGS, TABLE, label="kind", columns=NAMES, n_prototypes=2)
    return {"prototypes": prototypes, "model": model, "table": panther.embed_cohort(BAGS, prototypes)}


USES = {
    "train": lambda m, c: panther.train(BAGS, TABLE, label="kind", n_prototypes=2, columns=c).task.names,
    "predict": lambda m, c: list(panther.predict(m["model"], BAGS, table=TABLE, columns=c).table["sample"]),
    "make_atlas": lambda m, c: panther.make_atlas(BAGS, m["prototypes"], table=TABLE, columns=c).patients,
    "attribute": lambda m, c: panther.attribute(m["model"], BAGS, table=TABLE, columns=c).samples,
    "similar": lambda m, c: [hit.patient for hit in panther.similar(m["table"], "s0", table=TABLE, columns=c).hits],
    "retrieval": lambda m, c: panther.retrieval(m["table"], TABLE, "kind", columns=c, bootstrap=0).notes,
    "load_cohort": lambda m, c: panther.load_cohort(TABLE, "kind", columns=c).ids,
    "make_splits": lambda m, c: panther.make_splits(TABLE, k=2, label="kind", columns=c)[0].train,
}


@pytest.mark.parametrize("use", USES)
def test_a_dictionary_says_the_same_as_columns(use, made):
    assert USES[use](made, NAMES) == USES[use](made, panther.Columns(**NAMES))


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"slides": "picture"},
            r"`columns=` has no entry 'slides'; did you mean 'slide'\? Known are slide, patient, site",
        ),
        ("picture", "`columns=` is a str; expected are names of columns"),
    ],
)
def test_what_names_no_columns_is_refused(columns, sentence):
    for read in (
        panther.load_cohort,
        lambda table, label, columns: panther.train(BAGS, table, label=label, columns=columns),
    ):
        with pytest.raises(panther.InputError, match=sentence):
            read(TABLE, "kind", columns=columns)
