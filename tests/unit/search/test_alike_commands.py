"""`panther similar` and `panther retrieval` as they are typed."""

import numpy as np
import pandas as pd
import pytest
import torch
from made_slides import PROTOTYPES, C, bag

import panther as package
from cli.running import Runner, strict_json

PLACES = torch.tensor([[256 * (n % 12), 256 * (n // 12)] for n in range(120)])


@pytest.fixture
def panther(monkeypatch, capsys):
    return Runner(monkeypatch, capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("alike")
    (place / "features").mkdir()
    names = [f"S{seed:02}" for seed in range(12)]
    for seed, name in enumerate(names):
        spec = package.PatchSpec(size_level0=256, mpp_level0=0.5)
        slide = package.Bag(name, torch.from_numpy(bag(seed)), lambda: PLACES, spec, "made-up")
        package.save_bag(slide, place / "features" / f"{name}.h5")
    package.save_prototypes(PROTOTYPES, place / "p.safetensors")
    pd.DataFrame(
        {"slide_id": names, "case_id": [f"P{n // 2}" for n in range(12)], "grade": ["low", "low", "high", "high"] * 3}
    ).to_csv(place / "table.csv", index=False)
    return place


@pytest.fixture(autouse=True)
def embedded(folder, monkeypatch, panther):
    monkeypatch.chdir(folder)
    if not (folder / "s.h5ad").exists():
        panther("embed", "features", "-p", "p.safetensors", "-o", "s.h5ad", "--table", "table.csv", "-j", 1)


def test_similar_slides_are_printed_with_reasons_and_written(panther, tmp_path):
    out, _ = panther("similar", "s.h5ad", "--query", "S05", "-k", 3, "-o", tmp_path / "like", "--json")
    hits = strict_json(out)["hits"]
    assert [hit["rank"] for hit in hits] == [1, 2, 3]
    assert all(len(hit["reasons"]["prototypes"]) == C for hit in hits)
    rows = pd.read_csv(tmp_path / "like" / "similar.csv")
    assert (rows["slide"][0], rows["reasons"][0]) == (hits[0]["slide"], hits[0]["reasons"]["sentence"])
    assert strict_json((tmp_path / "like" / "similar.json").read_text())["hits"] == hits
    new = ("similar", "s.h5ad", "--query", "features/S05.h5", "-k", 3, "-p", "p.safetensors", "--json")
    again = strict_json(panther(*new)[0])["hits"]  # as its row in the embeddings
    assert [hit["slide"] for hit in again] == [hit["slide"] for hit in hits]
    np.testing.assert_allclose([hit["distance"] for hit in again], [hit["distance"] for hit in hits], atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("similar", "s.h5ad", "--query", "S00", "--leave-site-out"), "--leave-site-out"),
        (("retrieval", "s.h5ad", "--at", "1,x", "--label", "grade"), "--at"),
        (("retrieval", "s.h5ad", "s.h5ad", "--label", "grade"), "s.h5ad is there twice"),
        (("retrieval", "s.h5ad", "--label", "grade", "-o", "s.xlsx"), "output: s.xlsx"),
    ],
)
def test_an_impossible_request_is_one_line(panther, arguments, expected):
    _, err = panther(*arguments, code=2)
    assert expected in err
    assert len(err.strip().splitlines()) == 1


def test_retrieval_is_printed_and_written(panther, tmp_path):
    ways = ("--on", "pi,mixture", "--at", "1,3", "--bootstrap", 50)
    out, err = panther("retrieval", "s.h5ad", "--label", "grade", *ways)
    assert "s on pi: 12 queries" in out
    assert "Acc@1: s on mixture less s on pi" in out
    assert "12 samples (6 patients" in err
    written = ("--table", "table.csv", "--label", "grade", "-o", tmp_path / "r.csv", "--json")
    result = strict_json(panther("retrieval", "s.h5ad", *written)[0])
    assert len(pd.read_csv(tmp_path / "r.csv")) == len(result["summary"]) == 4 * 3 * 4
