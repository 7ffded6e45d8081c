"""Study files: their meaning, and the refusal of each mistake."""

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from panther.aggregators import aggregators
from panther.errors import InputError
from panther.evaluation.metrics import PRINTED
from panther.mil import networks
from panther.models.blocks import check_method
from panther.models.heads import PROBE, check_head, heads
from panther.models.tasks import check_loss, loss_names, tasks
from panther.study.file import Study, load_study
from panther.study.templates import TEMPLATES, find_template, literal_text
from panther.study.templates import write_study as write_study_file
from panther_demo.pipeline import TASKS, write_study

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
        ({"heads": ["lineer"]}, ["heads", "lineer", "structured"]),
        ({"losses": ["mse"]}, ["losses", "'mse' does not fit", "ordinal"]),
        ({"task": {}}, ["task", "one of label, survival"]),
        ({"task": {"label": "a", "survival": "os"}}, ["task", "one of label, survival"]),
        ({"splits": {"k": 1}}, ["splits"]),
        ({"n_prototypes": []}, ["n_prototypes", "at least 1"]),
        ({"n_prototypes": ["many"]}, ["n_prototypes.0"]),
        ({"training": {"epoch": 3}}, ["training", "epoch", "epochs"]),
        ({"prototypes": {"clusters": 3}}, ["prototypes", "clusters"]),
        ({"table": None}, ["table", "needed"]),
        ({"methds": ["ot"]}, ["methds", "did you mean 'methods'"]),
        ({"task": {"lable": "x"}}, ["task.lable", "did you mean 'label'"]),
        ({"splits": {"colum": "fold"}}, ["splits.colum", "did you mean 'column'"]),
        ({"splits": {"scheme": "kfld"}}, ["splits.scheme", "kfld", "'kfold'"]),
        ({"splits": 3}, ["splits", "{column: fold}"]),
        ({"methods": ["abmi"]}, ["did you mean 'abmil'"]),
        ({"methods": [{"nam": "ot"}]}, ["methods.0.nam", "did you mean 'name'"]),
        ({"methods": [{"name": "panther", "redout": "top"}]}, ["methods", "did you mean 'readout'"]),
        ({"methods": [{"name": "panther", "readout": "tpo"}]}, ["methods", "did you mean 'top'"]),
        ({"methods": [{"name": "panther", "preset": "papr"}]}, ["methods", "did you mean 'paper'"]),
        ({"methods": [{"name": "abmil", "hiden": 3}]}, ["methods", "did you mean 'hidden'"]),
        ({"heads": [{"name": "mlp", "hiden": 3}]}, ["heads", "did you mean 'hidden'"]),
        ({"heads": [{"name": "probe", "penalty": 3}]}, ["heads", "'probe' has no setting 'penalty'"]),
        ({"losses": ["cross-entrpy"]}, ["losses", "did you mean 'cross-entropy'"]),
        ({"losses": ["cox"]}, ["losses", "'cox' does not fit", "cross-entropy"]),
        ({"mil_loss": "nll"}, ["mil_loss", "'nll' does not fit"]),
        ({"losses": [{"name": "cross-entropy", "class_weight": 1}]}, ["did you mean 'class_weights'"]),
        ({"scaling": "blok"}, ["scaling", "did you mean 'block'"]),
        ({"training": {"epochs": "abc"}}, ["training", "epochs", "integer", "'abc'"]),
        ({"mil_training": {"epochs": 0}}, ["mil_training", "epochs", "found 0"]),
        ({"prototypes": {"restart": 1}}, ["did you mean 'restarts'"]),
        ({"prototypes": {"n_prototypes": 3}}, ["prototypes", "n_prototypes: [16]"]),
        ({"metrics": ["auc"]}, ["metrics", "did you mean 'auroc'"]),
        ({"metrics": ["bogus"]}, ["metrics", "bogus", "balanced_accuracy"]),
        ({"metrics": ["c_index"]}, ["metrics", "does not judge classes"]),
        ({"metrics": ["accuracy"]}, ["metrics", "metrics.csv"]),
        ({"task": {"survival": "os"}, "metrics": ["c-index"]}, ["metrics", "did you mean 'c_index'"]),
        ({"reference": "nobody"}, ["reference", "nobody", "panther"]),
        ({"exclude": [{"method": "panther", "head": "probes"}]}, ["exclude", "probes"]),
        ({"reference": "Panther"}, ["reference", "did you mean 'panther'"]),
        ({"seeds": [1, 1]}, ["seeds", "1 is repeated"]),
        ({"n_prototypes": [8, 8]}, ["n_prototypes", "8 is repeated"]),
        ({"train_sizes": [0.5, 0.5]}, ["train_sizes", "0.5 is repeated"]),
        ({"methods": ["ot", "ot"]}, ["methods", "'ot' is repeated"]),
        ({"methods": ["ot", {"name": "ot", "label": "again"}]}, ["methods", "'again' is repeated"]),
        (
            {"methods": [{"name": "ot", "epsilon": 1.0, "label": "same"}, {"name": "ot", "label": "same"}]},
            ["methods", "'same'", "label"],
        ),
        ({"heads": ["linear", "linear"]}, ["heads", "'linear' is repeated"]),
        ({"seeds": [-1]}, ["seeds.0", "-1"]),
        ({"seeds": [2**63]}, ["seeds.0"]),
        ({"n_prototypes": [0]}, ["n_prototypes.0", "0"]),
        ({"train_sizes": [float("nan")]}, ["train_sizes.0", "finite"]),
        ({"train_sizes": [1.5]}, ["train_sizes.0", "a share"]),
        (
            {"external": {"cptac": {"table": "x.csv", "features": {"unii": "f"}}}},
            ["external.cptac.features", "did you mean 'uni'"],
        ),
        ({"external": {"cptac": {"table": "x.csv", "features": {"other": "f"}}}}, ["external.cptac", "uni"]),
    ],
)
def test_a_mistake_is_refused_with_its_key_and_the_known_values(changes, words, tmp_path):
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
    result = {(c.method.name, c.head.name, c.loss.name, c.n_prototypes) for c in cells}
    assert len(cells) == len(result)
    assert ("panther", "paper-survival", "nll", 8) in result
    assert ("panther", "probe", "cox", 16) in result
    assert ("panther", "probe", "nll", 16) not in result  # a probe has its own loss
    assert not any(method == "deepsets" and head == "paper-survival" for method, head, _, _ in result)
    assert {f for f in result if f[0] == "abmil"} == {("abmil", "own", "nll", 0)}  # no prototypes, no other head
    assert {f[3] for f in result if f[0] == "attnmisl"} == {8, 16}


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_a_valid_study(name, tmp_path):
    write_study_file(find_template(name).text(name), tmp_path / f"{name}.yaml")
    study = load_study(tmp_path / f"{name}.yaml")
    assert study.name == name
    assert list(study.cells())
    with pytest.raises(InputError, match="exists"):
        write_study_file(find_template(name).text(name), tmp_path / f"{name}.yaml")


def test_the_papers_ten_trainings_and_three_ablations_are_there():
    trainings = {name for name in TEMPLATES if not name.startswith("ablation")}
    assert len(trainings) == 10
    ablations = {name: TEMPLATES[name].text(name) for name in set(TEMPLATES) - trainings}
    assert set(ablations) == {"ablation-encoder", "ablation-prototypes", "ablation-loss"}
    assert all("table: tables/tcga_crc.csv" in text for text in ablations.values())  # one of the cohorts of the paper's
    for name, similar in (("lung", "nsclc"), ("kric", "did you mean 'kirc'")):
        with pytest.raises(InputError, match=similar):
            find_template(name)


@pytest.mark.parametrize("kind", PRINTED)
def test_everything_that_is_registered_passes_the_trial_of_its_name_and_settings(kind):
    for entry in (*aggregators, *networks):
        for options in entry.metadata.variants:
            check_method(entry.name, options)
    for name in (*heads.names(), PROBE):
        check_head(name, {})
    for name in loss_names(kind):
        check_loss(name, {}, kind)
    assert set(loss_names()) == {entry.name for entry in tasks}


def test_numbers_anchors_and_merged_keys_are_read_as_people_write_them(tmp_path):
    path = written(tmp_path)
    path.write_text(
        path.read_text() + "training: &mine {epochs: 3, learning_rate: 1e-4}\nmil_training: {<<: *mine, epochs: 4}\n"
    )
    study = load_study(path)
    assert study.training == {"epochs": 3, "learning_rate": 1e-4}
    assert study.mil_training == {"epochs": 4, "learning_rate": 1e-4}


def schema_problems(path):
    validator = jsonschema.Draft202012Validator(Study.model_json_schema())
    validator.check_schema(validator.schema)
    return [error.message for error in validator.iter_errors(yaml.safe_load(path.read_text()))]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("literal", [False, True])
def test_the_schema_accepts_every_template(name, literal, tmp_path):
    (tmp_path / "s.yaml").write_text(literal_text(name, "s") if literal else TEMPLATES[name].text("s"))
    assert schema_problems(tmp_path / "s.yaml") == []


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("full", [False, True])
def test_the_schema_accepts_the_studies_of_the_demo(name, full, tmp_path):
    assert schema_problems(write_study(tmp_path, name, tmp_path / "features", tmp_path / "splits", full)) == []


WRONG = [
    *({"methds": ["ot"]}, {"methods": ["clam"]}, {"methods": [{"name": "clam"}]}, {"heads": ["lineer"]}),
    *({"scaling": "blok"}, {"metrics": ["auc"]}, {"splits": {"colum": "fold"}}, {"seeds": ["one"]}),
]


@pytest.mark.parametrize("changes", WRONG, ids=str)
def test_the_schema_marks_what_the_command_would_refuse(changes, tmp_path):
    assert schema_problems(written(tmp_path, **changes))
    assert schema_problems(written(tmp_path, splits={"column": "fold"}, methods=["ot", {"name": "panther"}])) == []


def test_the_schema_describes_every_key():
    assert set(Study.model_json_schema()["properties"]) == set(Study.model_fields)
    with pytest.raises(ValidationError):
        Study(**SMALL, unknown=1)
