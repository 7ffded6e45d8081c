"""What lies beside what on a slide, as the slide page asks for it."""

import h5py
import numpy as np

from panther.verbs.map import make_map


def test_the_page_is_told_what_the_map_knows(client, cohort_folder):
    found = client.get("/api/slides/S0/neighbours").json
    bag, prototypes = cohort_folder / "features" / "S0.h5", cohort_folder / "prototypes.safetensors"
    own = make_map(bag, prototypes, names=cohort_folder / "names.yaml")["S0"]
    assert found["sentences"] == own.numbers()["neighbours"]
    assert len(found["rows"]) == own.prototypes
    one = found["rows"][1][0]
    assert one["prototype"] == 0
    assert one["times"] == np.float64(2.0 ** own.touching.log_ratio()[1, 0])
    assert one["border"] == own.touching.border()[1, 0]
    assert 0 <= one["inside"] <= 1


def test_a_slide_without_places_has_no_neighbours_and_an_unknown_one_is_not_found(client, cohort_folder):
    path = cohort_folder / "features" / "S1.h5"
    with h5py.File(path, "a") as file:
        del file["coords"]
    assert client.get("/api/slides/S1/neighbours").json == {"sentences": [], "rows": []}
    assert client.get("/api/slides/nobody/neighbours").status_code == 404
