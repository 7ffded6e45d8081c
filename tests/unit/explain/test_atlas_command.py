"""`panther atlas`, from files to files."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from known_regions import COLOURS, SIDE, contents, csv_rows, write_bag, write_slide
from PIL import Image

from cli.running import strict_json
from panther.cohort.load import load_cohort
from panther.explain.kaplan_meier import by_patient
from panther.explain.shares import as_proportions
from panther.statistics.neighbours import PRIOR
from panther.storage.prototypes import save_prototypes
from panther.types import Prototypes

USUAL = ("atlas", "f", "-p", "p.safetensors", "-o", "a", "-j", 1, "--exemplars", 3)
CENTRES = COLOURS[1:] / 10.0


def write_random_bag(path, shares, seed):
    rng = np.random.default_rng(seed)
    features = CENTRES[rng.choice(3, 48, p=shares)] + rng.normal(0, 0.3, (48, 3))
    write_bag(path, features, np.argwhere(np.ones((8, 6))) * SIDE)


@pytest.fixture
def run(tmp_path, run):
    """Nine slides of eight patients in `f`, one with an image in `slides`; group x is rich in C0, y in C2."""
    write_slide(tmp_path)
    for folder in ("f", "slides"):
        Path(folder).mkdir()
    Path("s.h5").rename("f/s.h5")
    Path("s.tif").rename("slides/s.tif")
    rows = [("s0", "s", "x", "1", 50)]
    for number in range(8):
        shares = (0.7, 0.2, 0.1) if number < 4 else (0.1, 0.2, 0.7)
        write_random_bag(Path(f"f/t{number}.h5"), shares, number)
        patient = f"00{min(number, 6)}"  # the last two slides are of one patient
        rows.append(
            (patient, f"t{number}", "x" if number < 4 else "y", str(1 + number % 2 * (number < 6)), 40 + min(number, 6))
        )
    with Path("c.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("case_id", "slide_id", "group", "site", "age"), *rows])
    return run


def atlas():
    return strict_json(Path("a/atlas.json").read_text())


def test_everything_is_written_as_agreed(run):
    Path("n.yaml").write_text("C2: tumour, solid\n")
    columns = ("--groups", "group", "--groups", "age", "--site-column", "site")
    out, err = run(*USUAL, "--slides", "slides", "--table", "c.csv", *columns, "--names", "n.yaml")
    assert "C2 tumour, solid" in out
    assert "8 slides" in err  # without an image
    content = atlas()
    rows = content["prototypes"]
    assert [row["name"] for row in rows] == [None, None, "tumour, solid"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert all(row["low"] <= row["share"] <= row["high"] for row in rows)
    tests = {(row["column"], row["test"]) for row in content["tests"]}
    assert tests == {("group", "Mann-Whitney"), ("age", "Spearman"), ("site", "Mann-Whitney")}
    x, y = (next(g for g in content["groups"] if g["value"] == v and g["prototype"] == 2) for v in "xy")
    assert (x["n"], y["n"]) == (5, 3)
    assert x["high"] < y["low"]
    assert np.shape(content["cooccurrence"]) == np.shape(content["neighbours"]) == (3, 3)
    pictured = [row for row in content["exemplars"] if row["picture"]]
    assert {row["slide"] for row in pictured} == {"s"}
    for row in pictured:
        with Image.open(Path("a") / row["picture"]) as picture:
            assert (picture.format, max(picture.size) <= 160) == ("JPEG", True)
            colour = np.asarray(picture).mean((0, 1))
        assert np.abs(CENTRES * 10 - colour).sum(1).argmin() == row["prototype"]


def test_tables_equal_the_json(run):
    run(*USUAL, "--table", "c.csv", "--groups", "group")
    content = atlas()
    for name in ("prototypes", "groups", "tests", "exemplars"):
        expected = [{k: "" if v is None else str(v) for k, v in row.items()} for row in content[name]]
        assert csv_rows(Path(f"a/{name}.csv")) == expected
    pi = csv_rows(Path("a/pi.csv"))
    assert list(pi[0]) == ["slide", "patient", "n_patches", "C0", "C1", "C2"]
    slides_of = {}
    for row in pi:
        slides_of.setdefault(row["patient"], []).append((float(row["C2"]), int(row["n_patches"])))
    shares = [sum(share * n for share, n in rows) / sum(n for _, n in rows) for rows in slides_of.values()]
    assert np.mean(shares) == pytest.approx(content["prototypes"][2]["share"])
    assert "006" in slides_of  # a name, not a number
    pairs = csv_rows(Path("a/neighbours.csv"))
    assert len(pairs) == 9
    for pair in pairs:
        ratio = np.log2((float(pair["contacts"]) + PRIOR) / (float(pair["expected"]) + PRIOR))
        assert float(pair["log2_ratio"]) == pytest.approx(ratio, abs=1e-3)


def test_same_input_gives_the_same_bytes_and_another_seed_other_random_members(run):
    run(*USUAL, "--slides", "slides")
    run(*USUAL, "--slides", "slides", "-o", "b")
    first = contents(Path("a"))
    assert first == contents(Path("b"))
    run(*USUAL, "--slides", "slides", "--seed", 1)
    second = contents(Path("a"))
    assert any(first[name] != second.get(name) for name in first if "random" in name)
    assert first["C0.png"] != second["C0.png"]


def test_names_that_were_filled_in_stay_and_pictures_of_an_earlier_atlas_go(run):
    run(*USUAL, "--slides", "slides")
    assert Path("a/names.yaml").read_text().endswith("C0:\nC1:\nC2:\n")
    Path("a/names.yaml").write_text('C0: "gland: large"\n')
    Path("a/mine.png").write_bytes(b"mine")
    save_prototypes(Prototypes(torch.tensor(CENTRES[:2], dtype=torch.float32), encoder="mean"), Path("p.safetensors"))
    run(*USUAL, "--slides", "slides", "--names", "a/names.yaml", "--exemplars", 2)
    assert Path("a/names.yaml").read_text() == 'C0: "gland: large"\n'
    assert atlas()["prototypes"][0]["name"] == "gland: large"
    left = {p.name for p in Path("a").rglob("*") if p.suffix in (".png", ".jpg")}
    assert {"C0.png", "C1.png", "mine.png", "overview.png", "relations.png"} <= left
    assert not any(name.startswith("C2") or "-2.jpg" in name for name in left)
    Path("a/names.yaml").unlink()
    run(*USUAL, "--names", write("n.yaml", 'C1: "ratio 1:2 # not sure"\n'))
    run(*USUAL, "--names", "a/names.yaml")  # what the template says can be read again
    assert atlas()["prototypes"][1]["name"] == "ratio 1:2 # not sure"


def write(path, text):
    Path(path).write_text(text)
    return path


def test_without_images_or_coordinates_the_rest_is_written(run):
    write_bag(Path("f/u.h5"), np.repeat(CENTRES[:1], 4, 0), None)
    _, err = run(*USUAL)
    assert "1 of 10 slides" in err  # without neighbours
    content = atlas()
    assert len(content["notes"]) == 3
    assert all(row["picture"] is None for row in content["exemplars"])
    assert not Path("a/C0.png").exists()
    assert Path("a/overview.png").exists()
    run("atlas", "f/u.h5", "-p", "p.safetensors", "-o", "a")
    assert not Path("a/relations.png").exists()  # there is nothing to draw
    content = atlas()  # of one patient
    assert content["prototypes"][0]["low"] is content["cooccurrence"][0][0] is None


def test_a_bad_slide_and_a_bad_image_cost_only_themselves(run):
    write_bag(Path("f/zero.h5"), np.zeros((0, 3)), np.zeros((0, 2), int))
    write_bag(Path("f/nan.h5"), np.full((2, 3), np.nan), np.array([[0, 0], [SIDE, 0]]))
    Path("slides/t0.tif").write_bytes(b"no image")
    run(*USUAL, "--slides", "slides", code=1)
    content = atlas()
    assert set(content["failures"]) == {"zero", "nan", "t0"}
    assert content["slides"] == 9


def test_a_prototype_without_members_is_empty(run):
    far = torch.tensor([*CENTRES.tolist(), [900.0, 900.0, 900.0]])
    save_prototypes(Prototypes(far, encoder="mean"), Path("p.safetensors"))
    _, err = run(*USUAL, "--slides", "slides", "--table", "c.csv", "--groups", "group")
    assert "No patch belongs most to C3" in err
    content = atlas()
    assert (content["prototypes"][3]["patches"], content["prototypes"][3]["slides"]) == (0, 0)
    assert content["neighbours"][3] == [None] * 4
    assert content["tests"][3]["p"] is None
    assert not Path("a/C3.png").exists()


def test_a_patient_has_the_same_shares_in_the_atlas_and_in_its_pi_csv(run):
    rng = np.random.default_rng(0)
    write_bag(Path("f/t7.h5"), CENTRES[[0] * 6] + rng.normal(0, 0.3, (6, 3)), None)  # a small slide of patient 006
    run(*USUAL, "--table", "c.csv", "--groups", "group")
    table = pd.read_csv("c.csv", dtype=str).replace({"group": {"x": "0", "y": "1"}})
    table = table.rename(columns={"group": "os_censorship", "age": "os_survival_days"})
    cohort = load_cohort(table, survival="os")
    patients = by_patient(as_proportions(Path("a/pi.csv")), cohort)
    assert patients.pi.mean(0) == pytest.approx([row["share"] for row in atlas()["prototypes"]])
    rows = {row["slide"]: row for row in csv_rows(Path("a/pi.csv"))}
    assert (rows["t6"]["n_patches"], rows["t7"]["n_patches"]) == ("48", "6")
    expected = (48 * float(rows["t6"]["C0"]) + 6 * float(rows["t7"]["C0"])) / 54
    assert patients.pi[patients.ids.index("006"), 0] == pytest.approx(expected)


def test_impossible_requests_are_refused(run, refused):
    table = ("--table", "c.csv")
    write("empty.csv", "case_id,slide_id,group\n" + "".join(f"p,t{i},NA\n" for i in range(8)))
    write("two.csv", "case_id,slide_id,group\np,t0,x\np,t1,y\n")
    Path("wrong").mkdir()
    Path("wrong/other.tif").write_bytes(Path("slides/s.tif").read_bytes())
    for culprit, *more in (
        ("table: ", "--groups", "group"),
        ("'stage'", *table, "--groups", "stage"),
        ("'group'", "--table", "empty.csv", "--groups", "group"),
        ("patient p", "--table", "two.csv", "--groups", "group"),
        ("slides: ", "--slides", "wrong"),
        ("'C9'", "--names", write("n.yaml", "C9: tumour\n")),
        ("method: ", "--method", "deepsets"),
    ):
        refused(culprit, "atlas", "f", "-p", "p.safetensors", "-j", 1, *more)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_class_called_none_is_a_group_and_a_gap_is_not(run, kind):
    table = pd.read_csv("c.csv", dtype=str)
    table["group"] = ["None"] * 4 + ["y"] * 4 + [None]  # the last slide is of a patient with a value
    table["stage"] = [1.0, 2, 1, 2, 1, 2, 1, np.nan, np.nan]
    Path("c.csv").unlink()
    table.to_csv("c.csv", index=False) if kind == "csv" else table.to_parquet("c.parquet")
    run(*USUAL, "--table", f"c.{kind}", "--groups", "group", "--groups", "stage")
    sizes = {(one["column"], one["value"]): one["n"] for one in atlas()["groups"]}
    assert sizes == {("group", "None"): 4, ("group", "y"): 4, ("stage", "1"): 4, ("stage", "2"): 3}
    rows = [(f"t{i}", part, f"{part} {i % 2}") for part in ("train", "test") for i in range(8)]
    write("parts.csv", "slide_id,split,group\n" + "".join(f"{','.join(row)}\n" for row in rows))
    run(*USUAL, "--table", "parts.csv", "--split", "test", "--groups", "group")
    assert {row["value"] for row in atlas()["groups"]} == {"test 0", "test 1"}
