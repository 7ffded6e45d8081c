"""A model on centred prototypes: its file keeps the shifts, and a new site is centred when it predicts."""

import numpy as np
import pandas as pd
import pytest

import panther
from panther.errors import InputError

RNG = np.random.default_rng(0)


def slides(site, shift, count):
    """Half of the patients of a site have more of one tissue than of the other."""
    tissue = np.array([[0.0, 0, 0, 0], [6, 6, 0, 0]])
    return {
        f"{site}{i}": (tissue[(RNG.random(60) < (0.2, 0.8)[i % 2]).astype(int)] + RNG.normal(size=(60, 4)) + shift)
        for i in range(count)
    }


def test_it_predicts_a_new_site_from_a_table_alone(tmp_path):
    train, new = {**slides("A", 0, 10), **slides("B", 9, 10)}, slides("C", -12, 10)
    table = pd.DataFrame({"slide_id": [*train, *new]})
    table = table.assign(case_id=table.slide_id, site_id=table.slide_id.str[0], kind=["x", "y"] * 15)
    known = table[table.site_id != "C"]
    prototypes = panther.fit_prototypes(train, 2, table=known, centre="site", passes=1)
    model = panther.train(
        train, known, label="kind", prototypes=prototypes, calibrate=0, output=tmp_path / "m.safetensors"
    )
    for one in (model, tmp_path / "m.safetensors"):
        found = panther.predict(one, new, table[table.site_id == "C"][["slide_id", "case_id", "site_id"]]).table
        assert (found["predicted"].to_numpy() == np.array(["x", "y"] * 5)).mean() >= 0.9
    with pytest.raises(InputError, match="the site of C0 is unknown"):
        panther.predict(tmp_path / "m.safetensors", new)
    with pytest.raises(InputError, match="attnmisl"):
        panther.train(train, known, label="kind", method="attnmisl", prototypes=prototypes)
