"""The page: numbers of the tables, escaped text, optional parts, refused inputs."""

import html
import json
import re
import shutil
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix as oracle

import panther
from cli.running import Runner
from panther.charts.display_names import method_title
from panther.report import page
from panther.report.data import load_run
from panther.report.figures import MINUS
from panther.report.material import gather
from panther.report.sections.predictions import confusion_matrix
from panther.study.file import load_study
from report.studies import EVIL, plots


class Page(HTMLParser):
    """Tables and scripts of a page; all elements are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack, self.tables, self.scripts, self.cell = [], [], [], None
        self.ids, self.figures = re.findall(r' id="([^"]+)"', text.split("<script>")[0]), plots(text)
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img", "br"):
            self.stack.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.cell = ""
        elif tag == "script":
            self.scripts.append(dict(attrs).get("type"))

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self.cell)
            self.cell = None

    def handle_data(self, data):
        self.cell = None if self.cell is None else self.cell + data


def built(folder, **more) -> str:
    return page.build_page(gather(folder, **more))


def test_every_number_of_the_tables_is_that_of_the_summary_file(classes, survival):
    for folder, metric in ((classes, "balanced_accuracy"), (survival, "c_index")):
        found = Page(built(folder))
        cells = {row[0]: row[1] for table in found.tables for row in table if row and "+ " in row[0] and "[" in row[1]}
        summary = pd.read_csv(folder / "summary.csv", keep_default_na=False)
        rows = summary[(summary["metric"] == metric) & (summary["part"] == "test")]
        assert len(rows) >= 2
        for _, row in rows.iterrows():
            mean, std, low, high = (f"{float(row[k]):.3f}" for k in ("mean", "std", "ci_low", "ci_high"))
            expected = f"{mean} (±{std}) [{low}, {high}]"
            assert cells[f"{method_title(row['method'])} + {row['head']}"] == expected.replace("-", MINUS)


def test_the_forest_plot_shows_the_folds_of_the_metrics_file(classes):
    figure = Page(built(classes)).figures["forest-test-balanced_accuracy"]
    metrics = pd.read_csv(classes / "metrics.csv", keep_default_na=False)
    mine = metrics[(metrics["metric"] == "balanced_accuracy") & (metrics["part"] == "test")]
    np.testing.assert_allclose(sorted(figure["data"][0]["x"]), sorted(mine["value"].astype(float)), rtol=1e-5)


def test_confusion_matrices_are_scikit_learns(classes):
    found = load_run(classes)
    mine = found.predictions[(found.predictions["row"] == "PANTHER + probe") & (found.predictions["part"] == "test")]
    predicted = np.where(mine["probability_high"] >= mine["probability_low"], "high", "low")
    np.testing.assert_array_equal(
        confusion_matrix(mine, ["high", "low"]), oracle(mine["label"], predicted, labels=["high", "low"])
    )


def test_survival_reports_draw_risk_groups_and_state_disjoint_sites(survival):
    found = Page(built(survival))
    curves = [name for name in found.figures if name.startswith("risk-")]
    assert len(curves) == 2
    sizes = [int(re.search(r"n = (\d+)", t["name"])[1]) for t in found.figures[curves[0]]["data"] if "name" in t]
    assert sum(sizes) == 48  # each patient is tested once
    text = built(survival)
    assert "No site is in training and test of the same fold" in text
    assert "No patient is in training and test of the same fold (0 shared" in text


@pytest.mark.parametrize(("unit", "title"), [("days", "time (days)"), ("months", "time (months)"), (None, "time")])
def test_the_axis_of_time_has_the_unit_of_the_table_or_none(survival, tmp_path, unit, title):
    record = json.loads((survival / "run.json").read_text())
    assert record["time_unit"] == "days"
    assert "dss_survival_days and dss_censorship (1 = censored)" in " ".join(record["notes"])
    copy = shutil.copytree(survival, tmp_path / "copy")
    (copy / "run.json").write_text(json.dumps({**record, "time_unit": unit}))
    figures = Page(built(copy)).figures
    drawn = [name for name in figures if name == "follow-up" or name.startswith("risk-")]
    assert len(drawn) == 3
    assert {figures[name]["layout"]["xaxis"]["title"]["text"] for name in drawn} == {title}


def test_shared_patients_and_sites_are_counted_from_the_lists(classes, tmp_path):
    folder = tmp_path / "leaky"
    folder.mkdir()
    for path in classes.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "run.json").unlink()
    record = json.loads((classes / "run.json").read_text())
    record["folds"][0]["train"].append(record["folds"][0]["test"][0])
    (folder / "run.json").write_text(json.dumps(record))
    text = built(folder)
    assert "share 1 patient: the results are not valid" in text
    table = next(t for t in Page(text).tables if "shared patients" in t[0])
    assert [row[1] for row in table[1:]] == ["1", "0", "0"]


def test_text_of_users_never_becomes_markup(classes, atlas):
    text = built(classes, folders={"atlas": atlas}, title=EVIL)
    found = Page(text)
    assert EVIL not in text
    assert found.scripts.count(None) == 2  # Plotly and page.js; all others are data
    assert set(found.scripts) == {None, "application/json"}
    assert f"<h1>{html.escape(EVIL).replace('&#x27;', '&#39;')}</h1>" in text
    for figure in found.figures.values():  # Plotly interprets some markup
        assert "<script" not in json.dumps(figure)


def test_the_settings_in_the_report_are_the_study_file(classes, tmp_path):
    settings = html.unescape(re.findall(r"<pre><code>(.*?)</code></pre>", built(classes), re.S)[1])
    (tmp_path / "study.yaml").write_text(settings)
    assert load_study(tmp_path / "study.yaml") == load_run(classes).study


def test_ids_are_unique_and_the_same_input_gives_the_same_bytes(classes):
    first = built(classes)
    assert first == built(classes)
    ids = Page(first).ids
    assert len(ids) == len(set(ids))
    assert not re.search(r"(src|href)=\"(?!data:|#)", first.split("<script>")[0])


def test_tabs_without_data_are_left_out_and_the_summary_lists_their_commands(classes, atlas, tmp_path):
    text = built(classes)
    assert 'id="panel-prototypes"' not in text
    assert "panther atlas" in text
    assert "cache/prototypes-" in text
    (tmp_path / "names.yaml").write_text("C0: tumour, solid\n")
    full = built(classes, folders={"atlas": atlas}, names=tmp_path / "names.yaml")
    assert 'id="panel-prototypes"' in full
    assert "panther atlas" not in full
    assert "C0 tumour, solid" in full
    assert full.count("data:image/webp") == 4


def test_without_the_cache_the_tables_remain(classes, tmp_path):
    for path in classes.iterdir():
        if path.name != "cache":
            (tmp_path / path.name).symlink_to(path)
    text = built(tmp_path)
    assert 'id="panel-results"' in text
    assert 'id="panel-mixtures"' not in text
    assert "the cache of the run is gone" in text


def test_the_command_writes_one_file(classes, tmp_path, panther):
    out, _ = panther("report", classes, "-o", tmp_path / "r.html")
    assert "r.html" in out
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    found = Page((tmp_path / "r.html").read_text())
    scatters = [figure["data"] for key, figure in found.figures.items() if key.startswith("scatter-pca-")]
    names = [{trace.get("name") for trace in traces} for traces in scatters]
    assert {"east", EVIL.replace("<", "&lt;").replace(">", "&gt;")} in names


def test_impossible_inputs_are_refused(classes, tmp_path, panther):
    to = ("-o", tmp_path / "r.html")
    assert "not the folder of a run" in panther("report", tmp_path, *to, code=2)[1]
    assert "ends in .html" in panther("report", classes, "-o", tmp_path / "r.pdf", code=2)[1]
    assert "no such file of `panther atlas`" in panther("report", classes, *to, "--atlas", tmp_path, code=2)[1]
    assert "no such folder" in panther("report", classes, *to, "--maps", tmp_path / "none", code=2)[1]
    (tmp_path / "names.yaml").write_text("C9: tumour\n")
    assert "no prototype 'C9'" in panther("report", classes, *to, "--names", tmp_path / "names.yaml", code=2)[1]
    (tmp_path / "run" / "cache").mkdir(parents=True)
    assert "not finished" in panther("report", tmp_path / "run", *to, code=2)[1]
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("row", [{"groups": 3}, {"prototype": 0, "groups": ["low"]}])
def test_a_damaged_picture_or_file_is_left_out_and_reported(row, classes, atlas, tmp_path, panther):
    atlas = shutil.copytree(atlas, tmp_path / "atlas")
    (atlas / "exemplars/C1-nearest-0.jpg").write_bytes(b"no picture")
    _, err = panther("report", classes, "-o", tmp_path / "r.html", "--atlas", atlas, code=1)
    assert "C1-nearest-0.jpg: not a readable picture" in err
    assert (tmp_path / "r.html").read_text().count("data:image/webp") == 3
    km = tmp_path / "km"
    km.mkdir()
    (km / "km.json").write_text(json.dumps({"format": 1, "prototypes": [row]}))
    _, err = panther("report", classes, "-o", tmp_path / "s.html", "--km", km, code=1)
    assert "The tab Attribution is left out" in err
    assert (tmp_path / "s.html").exists()


@pytest.mark.parametrize("difference", ["number", "content"])
def test_folders_of_different_prototypes_are_refused(difference, classes, atlas, tmp_path, panther):
    content = json.loads((atlas / "atlas.json").read_text())
    other = tmp_path / "attribution"
    other.mkdir()
    count = len(content["prototypes"]) + (difference == "number")
    rows = [{"prototype": c, "name": None, "colour": "#000000"} for c in range(count)]
    about = {"format": 1, "prototypes_hash": "b" if difference == "content" else content["prototypes_hash"]}
    (other / "attribution.json").write_text(json.dumps({**about, "prototypes": rows, "cohort": []}))
    _, err = panther("report", classes, "-o", tmp_path / "r.html", "--atlas", atlas, "--attribution", other, code=2)
    assert "different prototypes" in err


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    bags = {f"S{i}": rng.normal(i % 2, 1, (30, 4)) for i in range(16)}
    table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 8})
    study = {"name": "small", "table": table, "features": bags, "task": {"label": "subtype"}, "heads": ["probe"]}
    return panther.run_study({**study, "n_prototypes": [2], "splits": {"k": 2}, "bootstrap": 10})


def test_results_that_were_never_written_become_a_page_with_their_embeddings(results) -> None:
    found = panther.make_report(results, title="Mine")
    assert "<h1>Mine</h1>" in found.html
    assert found.failures == {}
    assert 'data-plot="plot-scatter-pca-0"' in found.html  # scaled by the model that was tested


def test_the_command_and_the_function_write_the_same_bytes(classes, atlas, tmp_path, monkeypatch, capsys):
    Runner(monkeypatch, capsys)("report", classes, "-o", tmp_path / "command.html", "--atlas", atlas)
    written = SimpleNamespace(files=(atlas / "atlas.json",))
    report = panther.make_report(classes, atlas=written, output=tmp_path / "function.html")
    assert (tmp_path / "command.html").read_bytes() == (tmp_path / "function.html").read_bytes() == report.html.encode()
    with pytest.raises(panther.InputError, match="atlas: was not written"):
        panther.make_report(classes, atlas=SimpleNamespace(files=()))
