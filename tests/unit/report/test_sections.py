"""Tabs of the report: damaged files, ties and corrections, pictures, and records of other versions."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from panther.charts.results import survival_curves
from panther.evaluation.shift import site_shift
from panther.evaluation.survival_metrics import kaplan_meier
from panther.report.checks import checks
from panther.report.data import load_run
from panther.report.figures import DASH
from panther.report.material import gather, load_mixtures
from panther.report.page import build_page, render_tab
from report.studies import run, with_summary
from study.generated import generate

TWINS = ("TCGA-AA-0001-01Z-00-DX1.AAAA", "TCGA-AA-0001-01Z-00-DX1.BBBB")  # two slides of one block
DAMAGED = {
    "empty": (b"", "not a readable table of proportions"),
    "no rows": (b"slide,patient,C0,C1,C2,C3\n", "the table has no rows"),
    "no slides": (b"patient,C0\nP000,1\n", "expected slide, C0, C1"),
    "no number": (b"slide,patient,C0,C1,C2,C3\nP000-0,P000,a,0,0,1\n", "line 2 holds a proportion that is no number"),
    "other atlas": (b"slide,patient,C0\nP000-0,P000,1\n", "1 prototypes, expected 4 as in atlas.json"),
    "not text": (b"\xff\xfe\x00\x01", "not a readable table of proportions"),
}


def captions(text: str, panel: str) -> list[str]:
    section = text.split(f'<section id="panel-{panel}"')[1].split("</section>")[0]
    return re.findall(r'<figure class="picture">.*?<figcaption>(.*?)</figcaption>', section, re.S)


def short(material) -> str:
    """Text of the summary on one line."""
    return " ".join(render_tab(material, "Summary", absent=[]).split())


def draw(*paths):
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (20, 10), "white").save(path)


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_table_of_proportions_is_left_out_and_reported(damage, classes, atlas, tmp_path, panther):
    content, sentence = DAMAGED[damage]
    damaged = shutil.copytree(atlas, tmp_path / "atlas")
    (damaged / "pi.csv").write_bytes(content)
    _, err = panther("report", classes, "-o", tmp_path / "r.html", "--atlas", damaged, code=1)
    assert f"{damaged / 'pi.csv'}: " in err.replace("\n", "")
    assert sentence in " ".join(err.split())
    text = (tmp_path / "r.html").read_text()
    assert 'id="panel-prototypes"' in text
    assert "tissue in a prototype of the atlas" not in text
    assert "Prototypes and weights: PANTHER" in text  # those of the run


def test_the_proportions_of_an_atlas_are_shown_by_patient(classes, atlas):
    material = gather(classes, {"atlas": atlas})
    table = pd.read_csv(atlas / "pi.csv")
    np.testing.assert_allclose(material.slides.weights, table[[f"C{c}" for c in range(4)]])
    assert material.slides.patients == [slide.split("-")[0] for slide in table["slide"]]
    assert material.failures == {}
    assert "tissue in a prototype of the atlas" in build_page(material)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """A study whose first method keeps no weights."""
    folder = tmp_path_factory.mktemp("averaged")
    generate(folder, patients=36, patches=12)
    average = {"name": "panther", "readout": "wa", "label": "WA"}
    methods = [average, {"name": "panther", "label": "All"}, "protocounts"]
    return run(folder, task={"label": "subtype"}, methods=methods, heads=["probe"], bootstrap=5)


def test_mixtures_are_those_of_the_first_method_with_weights_the_reference_before_others(averaged):
    found = load_run(averaged)
    material = gather(averaged)
    assert (material.mixtures.row, material.mixtures.fold) == ("All + probe", 0)
    np.testing.assert_allclose(material.mixtures.weights.sum(1), 1)
    assert material.shift is not None
    assert "Effective number of prototypes" in render_tab(material, "Diagnostics")
    counted = replace(found, study=found.study.model_copy(update={"reference": "protocounts"}))
    assert load_mixtures(counted).row == "ProtoCounts + probe"
    alone = load_mixtures(replace(found, trained=found.trained[found.trained["method"] == "WA"]))
    assert alone.row == "WA + probe"
    assert alone.weights is None


def test_names_in_checks_keep_their_case(classes):
    samples = [f"TCGA-AA-{n:04d}" for n in range(20)]
    collapsed = site_shift(np.eye(4)[np.arange(20) % 4], ["A", "B"] * 10, samples, permutations=19)
    sentences = [check.sentence for check in checks(replace(gather(classes), shift=collapsed))]
    assert any("e.g. TCGA-AA-0000." in sentence for sentence in sentences)
    assert not any(sentence[0].islower() for sentence in sentences)


def test_slides_with_dots_in_their_names_keep_them(classes, tmp_path):
    maps = [tmp_path / "maps" / f"{slide}.{kind}.png" for slide in TWINS for kind in ("map", "side_by_side", "overlay")]
    draw(*maps)
    draw(*(tmp_path / "attribution" / f"{slide}.attribution.png" for slide in TWINS), tmp_path / "attribution/x.png")
    cohort = [{"output": "high", "prototype": 0, "statistic": "pi", "mean": 0.1, "mean_absolute": 0.2}]
    about = {"format": 1, "prototypes": [{"prototype": 0}], "cohort": cohort}
    (tmp_path / "attribution/attribution.json").write_text(pd.Series(about).to_json())
    folders = {"maps": tmp_path / "maps", "attribution": tmp_path / "attribution"}
    text = build_page(gather(classes, folders))
    assert captions(text, "maps") == list(TWINS)  # one picture a slide
    assert captions(text, "attribution") == list(TWINS)


def test_maps_of_attention_are_separate_from_maps_of_prototypes(classes, tmp_path):
    draw(*(tmp_path / "m" / name for name in ("a.attention.png", "a.side_by_side.png")))
    text = build_page(gather(classes, {"maps": tmp_path / "m"}))
    assert "<h3>Attention</h3>" in text
    draw(tmp_path / "m/a.map.png", tmp_path / "m/b.map.png")  # of `a` the pair side by side may now be of either
    text = build_page(gather(classes, {"maps": tmp_path / "m"}))
    assert captions(text, "maps") == ["a", "b"]
    assert "<h3>Attention</h3>" not in text


def test_more_pictures_than_fit_are_counted(classes, tmp_path):
    draw(*(tmp_path / "m" / f"s{n:02d}.map.png" for n in range(15)))
    text = build_page(gather(classes, {"maps": tmp_path / "m"}))
    assert captions(text, "maps") == [f"s{n:02d}" for n in range(12)]
    assert "3 more pictures in the folder" in text


@pytest.mark.parametrize(("p", "verdict"), [(0.03, "not significant."), (0.001, "significant.")])
def test_the_best_method_is_compared_with_correction_for_all_methods(p, verdict, classes):
    material = gather(classes)
    found = material.run
    best = found.best()["row"].iloc[0]
    row = found.comparisons[found.comparisons["metric"] == found.metric].iloc[0]
    family = [row.to_dict() | {"row": name, "p_value": q} for name, q in ((best, p), ("b", 0.4), ("c", 0.5))]
    other_metric = row.to_dict() | {"row": best, "p_value": 0.9, "metric": "auroc"}
    text = short(replace(material, run=replace(found, comparisons=pd.DataFrame([*family, other_metric]))))
    # Holm: the smallest of three p-values is multiplied by three
    assert f"Holm-corrected for 3 comparisons {min(3 * p, 1):.3f}): {verdict}" in text


def test_methods_that_tie_are_reported_as_a_tie(classes):
    material = with_summary(gather(classes), mean=0.7, ci_low=0.6, ci_high=0.9)
    first, second, *_ = material.run.rows
    tied = with_summary(with_summary(material, row=first, mean=0.8123), row=second, mean=0.8121)
    assert f"0.812, a tie between {first} and {second}." in short(tied)
    alone = with_summary(tied, row=first, mean=0.9)
    assert f": 0.900 (95 % interval 0.600 to 0.900), by {first}." in short(alone)


def test_missing_files_of_a_method_are_a_dash(classes, tmp_path):
    record = json.loads((classes / "run.json").read_text())
    for entry in record["trained"]:
        if entry["method"] == "deepsets":  # networks have neither
            entry |= {"prototypes": None, "embeddings": None}
    for path in classes.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "run.json").unlink()
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pd.option_context("future.infer_string", True):  # as pandas 3 does
        text = build_page(gather(tmp_path))
    files = text.split("Seeds, folds and files of the cache")[1].split("</table>")[0]
    assert "nan" not in files
    assert files.count(f'<td class="number">{DASH}</td>') == 2 * 6  # two heads in three folds


def test_censored_patients_are_ticks_of_the_curve():
    time, event = np.array([1.0, 2, 2, 3, 3, 5]), np.array([1, 1, 0, 0, 0, 0], bool)
    ticks = [t for t in survival_curves({"all": kaplan_meier(time, event)}).plotly()["data"] if t["mode"] == "markers"]
    assert [t["x"] for t in ticks] == [[2.0, 3.0, 5.0]]
    np.testing.assert_allclose(ticks[0]["y"], 5 / 6 * 4 / 5, rtol=1e-5)
    uncensored = kaplan_meier(time, np.ones(6, bool))
    assert not any(t["mode"] == "markers" for t in survival_curves({"all": uncensored}).plotly()["data"])


def test_warnings_on_prototypes_name_their_fold(classes):
    material = gather(classes)
    prototypes = material.mixtures.prototypes
    prototypes = replace(prototypes, diagnostics={**prototypes.diagnostics, "warnings": ["Raise `restarts=`."]})
    third = replace(material, mixtures=replace(material.mixtures, fold=2, prototypes=prototypes))
    assert "Prototypes of the study (fold 3): raise `restarts`." in [check.sentence for check in checks(third)]
    assert "Prototypes of fold 3" in render_tab(third, "Diagnostics")


def test_every_tab_has_a_panel_with_its_name(classes, atlas):
    text = build_page(gather(classes, {"atlas": atlas}))
    panels = re.findall(r'<section id="panel-([a-z-]+)"', text)
    names = "summary cohort splits results curves uncertainty prototypes mixtures diagnostics reproduce"
    assert panels == names.split()
    assert re.findall(r'role="tab" id="tab-([a-z-]+)"', text) == panels


@pytest.mark.parametrize("name", ["packages", "tables", "folds", "trained", "notes", "failures"])
def test_a_record_of_the_wrong_shape_is_refused(name, classes, tmp_path, panther):
    record = json.loads((classes / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**record, name: 5}))
    (tmp_path / "study.json").symlink_to(classes / "study.json")
    _, err = panther("report", tmp_path, "-o", tmp_path / "r.html", code=2)
    assert "damaged" in err


def test_an_atlas_of_other_patients_is_refused(classes, atlas, tmp_path, panther):
    other = shutil.copytree(atlas, tmp_path / "atlas")
    table = pd.read_csv(other / "pi.csv")
    table.assign(patient=[f"other-{i}" for i in range(len(table))]).to_csv(other / "pi.csv", index=False)
    _, err = panther("report", classes, "-o", tmp_path / "r.html", "--atlas", other, code=2)
    assert "none of its patients" in err


def test_patients_of_several_test_folds_count_once(classes):
    run = load_run(classes)
    leaky = {**run.folds[0], "train": [*run.folds[0]["train"], run.folds[0]["test"][0]]}
    repeated = replace(run, record={**run.record, "folds": [leaky, leaky]})
    text = " ".join(check.sentence for check in checks(replace(gather(classes), run=repeated)))
    assert "share 1 patient:" in text
    tested = len(run.folds[0]["test"])
    assert f"{tested} of {tested} test samples come from sites" in text
