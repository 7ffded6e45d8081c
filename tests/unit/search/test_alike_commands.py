"""`panther similar` and `panther retrieval` as they are typed."""

import csv

import numpy as np
import pandas as pd
import pytest
import torch
from made_slides import PROTOTYPES, C, D, bag

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


def test_similar_slides_are_printed_with_reasons_written_and_drawn(panther, tmp_path):
    out, _ = panther(
        *("similar", "s.h5ad", "--query", "S00", "-k", 2, "-p", "p.safetensors"),
        *("--features", "features", "-o", tmp_path / "like", "--max-side", 300, "--json"),
    )
    found = strict_json(out)
    assert [hit["rank"] for hit in found["hits"]] == [1, 2]
    assert all(len(hit["reasons"]["prototypes"]) == C for hit in found["hits"])
    first = found["hits"][0]["slide"]
    assert found["pictures"][0].endswith(f"S00.like.01.{first}.png")
    with (tmp_path / "like" / "similar.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert rows[0]["slide"] == first
    assert "of the tissue is of the same prototypes" in rows[0]["reasons"]
    written = strict_json((tmp_path / "like" / "similar.json").read_text())
    assert written["hits"] == found["hits"]


def test_only_what_is_shared_is_coloured(folder):
    from panther.explain.maps import map_slide
    from panther.search.pictures import _colours

    slide = map_slide(package.open_bag(folder / "features" / "S00.h5"), PROTOTYPES)
    colours = _colours(slide, [1])
    grey = (colours == 0xDD).all(1)
    assert (grey == (slide.labels != 1)).all()


def test_a_new_slide_finds_what_its_row_finds_and_is_drawn(panther, tmp_path):
    args = ("-k", 3, "-p", "p.safetensors", "--json")
    known = strict_json(panther("similar", "s.h5ad", "--query", "S05", *args)[0])
    new = strict_json(
        panther(
            "similar", "s.h5ad", "--query", "features/S05.h5", "--features", "features", "-o", tmp_path / "new", *args
        )[0]
    )
    assert [hit["slide"] for hit in new["hits"]] == [hit["slide"] for hit in known["hits"]]
    np.testing.assert_allclose(*([hit["distance"] for hit in one["hits"]] for one in (new, known)), atol=1e-6)
    assert len(new["pictures"]) == 3


def test_a_hit_without_features_fails_and_the_others_are_drawn(panther, tmp_path, folder):
    (tmp_path / "some").mkdir()
    everybody = strict_json(panther("similar", "s.h5ad", "--query", "S00", "-k", 3, "--json")[0])
    first, *rest = (hit["slide"] for hit in everybody["hits"])
    for name in ("S00", *rest):
        (tmp_path / "some" / f"{name}.h5").write_bytes((folder / "features" / f"{name}.h5").read_bytes())
    out, err = panther(
        *("similar", "s.h5ad", "--query", "S00", "-k", 3, "-p", "p.safetensors"),
        *("--features", tmp_path / "some", "-o", tmp_path / "like"),
        code=1,
    )
    assert f"Failed: {first}: no features" in err
    assert "2 pictures" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("similar", "s.h5ad", "--query", "S00", "--features", "features"), "output: is missing"),
        (("similar", "s.h5ad", "--query", "S00", "--leave-site-out"), "leave_site_out"),
        (("retrieval", "s.h5ad", "--at", "1,x", "--label", "grade"), "at: "),
        (("retrieval", "s.h5ad", "s.h5ad", "--label", "grade"), "s.h5ad is there twice"),
        (("retrieval", "s.h5ad", "--label", "grade", "-o", "s.xlsx"), "output: s.xlsx"),
    ],
)
def test_an_impossible_request_is_one_line(panther, arguments, expected):
    _, err = panther(*arguments, code=2)
    assert expected in err
    assert len(err.strip().splitlines()) == 1


def test_retrieval_is_printed_and_written(panther, tmp_path):
    out, err = panther(
        "retrieval", "s.h5ad", "--label", "grade", "--on", "pi,mixture", "--at", "1,3", "--bootstrap", 50
    )
    assert "s on pi: 12 queries" in out
    assert "Acc@1: s on mixture less s on pi" in out
    assert "12 samples (6 patients" in err
    target = tmp_path / "r.csv"
    found = strict_json(
        panther("retrieval", "s.h5ad", "--table", "table.csv", "--label", "grade", "-o", target, "--json")[0]
    )
    table = pd.read_csv(target)
    assert len(table) == len(found["summary"]) == 4 * 3 * 4


def test_mixtures_are_written_as_plain_arrays(panther, tmp_path):
    panther("embed", "features", "-p", "p.safetensors", "-o", tmp_path / "m.mixtures.npz", "-j", 1)
    with np.load(tmp_path / "m.mixtures.npz", allow_pickle=False) as arrays:
        prob, mean, cov, samples = (arrays[name] for name in ("prob", "mean", "cov", "samples"))
    slide = package.embed("features/S03.h5", PROTOTYPES).tokens.numpy()
    at = samples.tolist().index("S03")
    np.testing.assert_allclose(prob[at], slide[:, 0], rtol=1e-5)
    np.testing.assert_allclose(mean[at], slide[:, 1 : 1 + D], rtol=1e-4)
    np.testing.assert_allclose(cov[at], slide[:, 1 + D :], rtol=1e-3, atol=1e-6)
    _, err = panther(
        *("embed", "features", "-p", "p.safetensors", "-o", tmp_path / "o.mixtures.npz", "--method", "ot", "-j", 1),
        code=2,
    )
    assert "mixtures" in err
    assert not (tmp_path / "o.mixtures.npz").exists()
