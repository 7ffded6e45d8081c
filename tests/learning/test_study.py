"""Study files: what they mean, and the sentence for each mistake."""

import pytest
import yaml
from pydantic import ValidationError

from panther.errors import InputError
from panther.learning.study import Study, load_study
from panther.learning.templates import TEMPLATES, write_template

SMALL = {"name": "s", "table": "t.csv", "features": {"uni": "f"}, "task": {"label": "subtype"}}


def written(tmp_path, **changes):
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}))
    return path


def test_names_with_settings_may_be_written_in_one_line_or_as_a_mapping(tmp_path):
    study = load_study(written(tmp_path, methods=["ot", {"name": "panther", "readout": "wa", "label": "WA"}]))
    assert [m.title for m in study.methods] == ["ot", "WA"]
    assert study.methods[1].options == {"readout": "wa"}


def test_paths_count_from_the_file(tmp_path):
    study = load_study(written(tmp_path))
    assert study.table == tmp_path / "t.csv"
    assert study.features["uni"] == tmp_path / "f"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": ["panther"]}, ["method", "no such key"]),
        ({"methods": ["pantherr"]}, ["methods", "pantherr", "protocounts"]),
        ({"heads": ["lineer"]}, ["heads", "lineer", "structured"]),
        ({"losses": ["mse"]}, ["losses", "mse", "cox"]),
        ({"task": {}}, ["task", "label column or a survival endpoint"]),
        ({"task": {"label": "a", "survival": "os"}}, ["task", "either"]),
        ({"splits": {"scheme": "random"}}, ["splits.scheme", "random", "site-kfold"]),
        ({"splits": {"k": 1}}, ["splits"]),
        ({"n_prototypes": []}, ["n_prototypes", "empty"]),
        ({"n_prototypes": ["many"]}, ["n_prototypes.0"]),
        ({"training": {"epoch": 3}}, ["training", "epoch", "epochs"]),
        ({"prototypes": {"clusters": 3}}, ["prototypes", "clusters"]),
        ({"table": None}, ["table", "needed"]),
        ({"external": {"cptac": {"table": "x.csv", "features": {"other": "f"}}}}, ["external.cptac", "uni"]),
    ],
)
def test_a_mistake_is_told_with_its_key_and_what_is_known(changes, words, tmp_path):
    with pytest.raises(InputError) as refused:
        load_study(written(tmp_path, **changes))
    assert all(word in str(refused.value) for word in ["study.yaml", *words])


def test_what_is_no_study_is_refused(tmp_path):
    for content in ("[1, 2]", "a: [", "just words"):
        (tmp_path / "x.yaml").write_text(content)
        with pytest.raises(InputError, match=r"x\.yaml"):
            load_study(tmp_path / "x.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        load_study(tmp_path / "missing.yaml")


def test_cells_are_the_combinations_that_make_sense():
    study = Study(
        **{**SMALL, "task": {"survival": "dss"}},
        methods=[{"name": "panther"}, {"name": "deepsets"}, {"name": "abmil"}, {"name": "attnmisl"}],
        heads=["linear", "paper-survival", "probe"],
        losses=["cox", "nll"],
        n_prototypes=[8, 16],
    )
    cells = list(study.cells())
    found = {(c.method.name, c.head.name, c.loss.name, c.n_prototypes) for c in cells}
    assert len(cells) == len(found)
    assert ("panther", "paper-survival", "nll", 8) in found
    assert ("panther", "probe", "cox", 16) in found
    assert ("panther", "probe", "nll", 16) not in found  # a probe has its own loss
    assert not any(method == "deepsets" and head == "paper-survival" for method, head, _, _ in found)
    assert {f for f in found if f[0] == "abmil"} == {("abmil", "own", "nll", 0)}  # no prototypes, no other head
    assert {f[3] for f in found if f[0] == "attnmisl"} == {8, 16}


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_a_valid_study(name, tmp_path):
    write_template(name, tmp_path / f"{name}.yaml")
    study = load_study(tmp_path / f"{name}.yaml")
    assert study.name == name
    assert list(study.cells())
    with pytest.raises(InputError, match="there already"):
        write_template(name, tmp_path / f"{name}.yaml")


def test_the_papers_ten_trainings_and_three_ablations_are_there():
    trainings = {name for name in TEMPLATES if not name.startswith("ablation")}
    assert len(trainings) == 10
    assert {"ablation-encoder", "ablation-prototypes", "ablation-loss"} < set(TEMPLATES)
    with pytest.raises(InputError, match="nsclc"):
        write_template("lung", "x.yaml")


def test_the_schema_describes_every_key():
    assert set(Study.model_json_schema()["properties"]) == set(Study.model_fields)
    with pytest.raises(ValidationError):
        Study(**SMALL, unknown=1)
