"""Embeddings in memory serve where their file does: the table of `embed_cohort`, and the AnnData that is made of it."""

import anndata
import numpy as np
import pandas as pd
import pytest

import panther
from panther.errors import InputError
from panther.storage.embeddings import write_embeddings
from panther.storage.slide_vectors import read_slide_vectors

BAGS = {f"s{i}": np.random.default_rng(i).normal(i % 2, 1, (30, 4)) for i in range(12)}
TABLE = pd.DataFrame(
    {"slide_id": list(BAGS), "case_id": list(BAGS), "kind": ["a", "b"] * 6, "os_days": range(1, 13), "os_event": 1}
)


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    table = panther.embed_cohort(BAGS, panther.fit_prototypes(BAGS, 2), steps=2)
    path = tmp_path_factory.mktemp("embeddings") / "e.h5ad"
    write_embeddings(table, path)
    return {"table": table, "AnnData": table.to_anndata(), "AnnData of a file": anndata.read_h5ad(path), "file": path}


@pytest.mark.parametrize("way", ["table", "AnnData", "AnnData of a file"])
def test_they_give_what_their_file_gives(way, ways):
    def shown(arguments):
        near = [(hit.slide, hit.distance) for hit in panther.similar(arguments, "s0", k=3, on="mixture").hits]
        request = panther.similar(arguments, BAGS["s1"], k=2, prototypes=ways["table"].prototypes)
        judged = panther.retrieval(arguments, TABLE, "kind", bootstrap=0).summary["value"].tolist()
        curves = (
            panther.kaplan_meier(arguments, TABLE, time="os_days", event="os_event").to_frame().round(9).to_dict("list")
        )
        vectors = read_slide_vectors(arguments)
        return near, [hit.slide for hit in request.hits], judged, str(curves), vectors.names, vectors.vectors.tolist()

    assert shown(ways[way]) == shown(ways["file"])


def test_vectors_of_others_are_compared_by_their_angle():
    x = np.random.default_rng(0).normal(size=(4, 3))
    data = anndata.AnnData(x, obs=pd.DataFrame({"case_id": list("abcd")}, index=list("wxyz")))
    assert panther.similar(data, "w", k=1).hits[0].patient in "bcd"


def test_anndata_that_holds_no_embeddings_is_refused():
    with pytest.raises(InputError, match="The embeddings: X"):
        panther.similar(anndata.AnnData(obs=pd.DataFrame(index=["a", "b"])), "a")
