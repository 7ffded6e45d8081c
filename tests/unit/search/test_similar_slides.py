"""Slides that are alike: found as brute force finds them, with reasons that add up, from files, tables and new slides."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from made_slides import PROTOTYPES, C, bag

import panther
from panther.errors import InputError
from panther.search.distances import as_mixture, as_proportions, parts_of_distance, variance_floor
from panther.storage.embeddings import EmbeddingTable, open_embeddings, write_embeddings


@pytest.fixture(scope="module")
def bags() -> dict[str, np.ndarray]:
    return {f"S{seed:02}": bag(seed) for seed in range(24)}


@pytest.fixture(scope="module")
def table(bags) -> EmbeddingTable:
    embedded = panther.embed_cohort(bags, PROTOTYPES)
    clinical = pd.DataFrame({"case_id": [f"P{int(name[1:]) // 2}" for name in bags], "grade": "high"}, index=list(bags))
    return replace(embedded, clinical=clinical)


@pytest.fixture(scope="module")
def file(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("cohort") / "slides.h5ad"
    write_embeddings(table, path)
    return path


def brute_force(table, query: str, by: str) -> list[tuple[float, str]]:
    """All distances to slides of other patients."""
    vectors = np.asarray(table.vectors, np.float64)
    floor = variance_floor(torch.from_numpy(vectors), C)
    own = table.samples.index(query)

    def distance(row: int) -> float:
        a, b = vectors[own], vectors[row]
        if by == "pi":
            p, q = as_proportions(table.weights[own]), as_proportions(table.weights[row])
            return float(np.sqrt(1 - np.sqrt(p * q).sum()))
        if by == "mixture":
            parts = parts_of_distance(*(as_mixture(vector, C, floor) for vector in (a, b)))
            return float(np.sqrt(sum(part.sum() for part in parts)))
        norms = np.linalg.norm(a) * np.linalg.norm(b)
        return float(1 - a @ b / norms)

    others = [row for row in range(len(vectors)) if row // 2 != own // 2]
    return sorted((distance(row), table.samples[row]) for row in others)


@pytest.mark.parametrize("by", ["pi", "mixture", "cosine"])
def test_the_nearest_slides_of_other_patients_are_found(file, table, by):
    found = panther.similar(file, "S04", k=5, on=by)
    expected = brute_force(table, "S04", by)[:5]
    assert [hit.slide for hit in found.hits] == [slide for _, slide in expected]
    np.testing.assert_allclose([hit.distance for hit in found.hits], [d for d, _ in expected], atol=1e-6)
    assert [hit.rank for hit in found.hits] == [1, 2, 3, 4, 5]
    assert found.hits[0].clinical["grade"] == "high"
    assert panther.similar(table, "S04", k=5, on=by).to_frame().equals(found.to_frame())


@pytest.mark.parametrize("by", ["pi", "mixture"])
def test_reasons_add_up_to_the_distance_and_name_what_is_shared(file, by):
    found = panther.similar(file, "S04", k=3, on=by, names={0: "tumour"})
    for hit in found.hits:
        parts = hit.reasons.prototypes
        assert sum(one.adds + (one.adds_look or 0) for one in parts) == pytest.approx(hit.distance**2, abs=1e-9)
        assert hit.reasons.common == pytest.approx(sum(min(one.query, one.hit) for one in parts))
        assert sum(one.query for one in parts) == pytest.approx(1)
        assert (parts[0].adds_look is None) == (by == "pi")
        assert f"{hit.reasons.common:.0%} of the tissue" in hit.reasons.sentence
    assert any("C0 tumour" in hit.reasons.sentence for hit in found.hits)


def test_a_new_slide_is_embedded_as_the_others_were(file, bags):
    known = panther.similar(file, "S06", k=4)
    new = panther.similar(file, bags["S06"], k=5, prototypes=PROTOTYPES)
    assert new.hits[0].slide == "S06"
    assert new.hits[0].distance == pytest.approx(0, abs=1e-6)
    named = panther.Bag("S06", torch.from_numpy(bags["S06"]))
    again = panther.similar(file, named, k=4, prototypes=PROTOTYPES)
    assert [hit.slide for hit in again.hits] == [hit.slide for hit in known.hits]  # it and its patient are no answer
    other = panther.Prototypes(5 * torch.eye(C, 6), torch.ones(6))
    with pytest.raises(InputError, match="prototypes: "):
        panther.similar(file, bags["S06"], prototypes=other)
    with pytest.raises(InputError, match="prototypes: "):
        panther.similar(file, bags["S06"])


def test_slides_of_the_same_patient_are_found_only_where_asked_for(file, bags):
    asked = panther.similar(file, "S04", k=30, same_patient=True)
    assert "S05" in {hit.slide for hit in asked.hits}
    assert "S04" not in {hit.slide for hit in asked.hits}
    assert len(asked.notes) == 1  # fewer than k
    everybody = pd.DataFrame({"slide_id": list(bags), "case_id": "one"})
    with pytest.raises(InputError, match="S04"):
        panther.similar(file, "S04", table=everybody)


def test_patients_and_sites_are_those_of_the_columns(table):
    def slides(query, columns, **more):
        clinical = table.clinical.assign(**columns)
        result = panther.similar(replace(table, clinical=clinical), query, k=30, **more)
        return {hit.slide for hit in result.hits}, result.notes

    patients = ["" if n % 2 else patient for n, patient in enumerate(table.clinical["case_id"])]
    hits, notes = slides("S05", {"case_id": patients})
    assert len(hits) == 23  # slides of unknown patients count as patients
    assert "12 of 24" in notes[0]
    hits, _ = slides("S05", {"case_id": ["NA" if n in (4, 5, 9) else f"p{n}" for n in range(24)]})
    assert {"S04", "S09"}.isdisjoint(hits)  # of one patient called NA
    hits, _ = slides("S06", {"center": [f"site {n % 3}" for n in range(24)]}, leave_site_out=True)
    assert hits == {f"S{n:02}" for n in range(24) if n % 3 and n != 7}


def test_an_impossible_comparison_is_refused(file, bags, tmp_path):
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 no archive")
    averages, sets = (
        panther.embed_cohort(bags, PROTOTYPES, readout="wa"),
        panther.embed_cohort(bags, PROTOTYPES, "deepsets"),
    )
    for embeddings, query, more, culprit in (
        (file, "S4", {}, "query: S4 "),
        (file, "S04", {"on": "hamming"}, "on: "),
        (file, "S04", {"k": 0}, "k: "),
        (tmp_path / "none.h5ad", "S04", {}, r"none\.h5ad"),
        (tmp_path / "none.csv", "S04", {}, r"none\.csv"),
        (tmp_path / "cut.npz", "S04", {}, r"cut\.npz"),
        (averages, "S04", {"on": "mixture"}, "mixtures"),
        (sets, "S04", {"on": "pi"}, "proportions"),
    ):
        with pytest.raises(InputError, match=culprit):
            panther.similar(embeddings, query, **more)
    assert panther.similar(sets, "S04", k=2).hits[0].reasons is None


def test_slides_with_nan_are_refused_as_a_query_and_never_found(table):
    vectors = np.array(table.vectors)
    vectors[6, 3] = np.nan
    broken = replace(table, vectors=vectors)
    assert "S06" not in {hit.slide for hit in panther.similar(broken, "S04", k=30, on="cosine").hits}
    with pytest.raises(InputError, match="S06"):
        panther.similar(broken, "S06", on="mixture")


def test_vectors_stay_in_the_file_until_they_are_touched(table, tmp_path):
    path = tmp_path / "slides.h5ad"
    for dtype in ("float32", "float16"):
        write_embeddings(replace(table, vectors=table.vectors.astype(dtype)), path)
        opened = open_embeddings(path)
        np.testing.assert_array_equal(opened.rows.numpy(), table.vectors.astype(dtype))
        assert opened.mixtures == C
        path.write_bytes(bytes(path.stat().st_size))  # in place: the mapping sees it
        assert not opened.rows.numpy().any()


def test_vectors_of_a_slide_encoder_are_searched_without_reasons(table, tmp_path):
    vectors = np.asarray(table.vectors, np.float32)
    frame = pd.DataFrame(vectors, columns=[f"d{n}" for n in range(vectors.shape[1])])
    frame.insert(0, "slide_id", table.samples)
    frame.to_csv(tmp_path / "titan.csv", index=False)
    found = panther.similar(tmp_path / "titan.csv", "S04", k=5, same_patient=True)
    expected = panther.similar(table, "S04", k=5, on="cosine", same_patient=True)
    assert [hit.slide for hit in found.hits] == [hit.slide for hit in expected.hits]
    assert found.on == "cosine"
    assert found.hits[0].reasons is None
    assert "slides are unknown" in found.notes[0]
    with pytest.raises(InputError, match="not whole mixtures"):
        panther.similar(tmp_path / "titan.csv", "S04", on="mixture")
