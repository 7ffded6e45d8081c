"""The tab about sureness: its numbers are those of the tables, and what is not known is not shown."""

import json
import re
import shutil

import pytest

from panther.errors import InputError
from panther.report.data import load_run
from panther.verbs.report import make_report

TABLES = ("calibration", "reliability", "prediction_sets")


@pytest.fixture(scope="module")
def page(classes):
    return make_report(classes).html


def tab(page):
    return page.split('id="panel-how-sure"')[1].split("<section")[0]


def test_the_tab_draws_the_tables(page, classes):
    run, shown = load_run(classes), tab(page)
    best = run.best()["row"].iloc[0]
    plots = {key: json.loads(text) for key, text in re.findall(r'data-plot="plot-([^"]+)">(.*?)</script>', shown)}
    table = run.sureness["reliability"].query("part == 'test' and probabilities == 'calibrated' and `class` == 'low'")
    drawn = next(trace for trace in plots["reliability-test-0"]["data"] if trace.get("name") == "calibrated")
    assert drawn["y"] == pytest.approx(table[table["row"] == best]["observed"].tolist())
    everybody = run.sureness["prediction_sets"].query("by == 'all'")
    for coverage in everybody["coverage"]:
        assert f"{coverage:.3f}" in shown
    assert "test patients of the other folds" in shown
    assert "Lowest coverage by site" in shown


def test_survival_has_no_such_tab(survival):
    assert "panel-how-sure" not in make_report(survival).html


def test_a_run_without_the_tables_is_shown_without_the_tab(classes, tmp_path):
    folder = shutil.copytree(classes, tmp_path / "run")
    for name in TABLES:
        (folder / f"{name}.parquet").unlink()
    assert "panel-how-sure" not in make_report(folder).html


def test_a_damaged_table_is_named(classes, tmp_path):
    folder = shutil.copytree(classes, tmp_path / "run")
    (folder / "calibration.parquet").write_bytes(b"not a table")
    with pytest.raises(InputError, match=r"calibration\.parquet: the table cannot be read"):
        load_run(folder)
