"""Study files: their meaning, and the refusal of each mistake."""

import jsonschema
import pytest
import yaml

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


# first key of the message -> changes that are refused
MISTAKES = {
    "method": [{"method": ["panther"]}],
    "methds": [{"methds": ["ot"]}],
    "task": [{"task": {}}, {"task": {"label": "a", "survival": "os"}}, {"task": {"lable": "x"}}],
    "table": [{"table": None}],
    "methods": [
        *({"methods": ["abmi"]}, {"methods": [{"nam": "ot"}]}, {"methods": ["ot", "ot"]}),
        *({"methods": [{"name": "panther", key: value}]} for key, value in (("redout", "top"), ("readout", "tpo"))),
        *({"methods": [{"name": "panther", "preset": "papr"}]}, {"methods": [{"name": "abmil", "hiden": 3}]}),
        {"methods": ["ot", {"name": "ot", "label": "again"}]},
        {"methods": [{"name": "ot", "epsilon": 1.0, "label": "same"}, {"name": "ot", "label": "same"}]},
    ],
    "heads": [
        *({"heads": ["lineer"]}, {"heads": [{"name": "mlp", "hiden": 3}]}, {"heads": ["linear", "linear"]}),
        {"heads": [{"name": "probe", "penalty": 3}]},
    ],
    "losses": [
        *({"losses": ["mse"]}, {"losses": ["cross-entrpy"]}, {"losses": ["cox"]}),
        {"losses": [{"name": "cross-entropy", "class_weight": 1}]},
    ],
    "mil_loss": [{"mil_loss": "nll"}],
    "scaling": [{"scaling": "blok"}],
    "splits": [{"splits": wrong} for wrong in ({"k": 1}, {"colum": "fold"}, {"scheme": "kfld"}, 3)],
    "n_prototypes": [{"n_prototypes": wrong} for wrong in ([], ["many"], [8, 8], [0], [float("nan")])],
    "training": [{"training": wrong} for wrong in ({"epoch": 3}, {"epochs": "abc"}, {"learning_rate": float("nan")})],
    "mil_training": [{"mil_training": wrong} for wrong in ({"epochs": 0}, {"seed": 2**63})],
    "prototypes": [{"prototypes": {name: 1}} for name in ("clusters", "restart", "n_prototypes")],
    "metrics": [
        *({"metrics": [name]} for name in ("auc", "bogus", "c_index", "accuracy")),
        {"task": {"survival": "os"}, "metrics": ["c-index"]},
    ],
    "reference": [{"reference": "nobody"}, {"reference": "Panther"}],
    "exclude": [{"exclude": [{"method": "panther", "head": "probes"}]}],
    "seeds": [{"seeds": wrong} for wrong in ([1, 1], [-1], [2**63])],
    "train_sizes": [{"train_sizes": wrong} for wrong in ([0.5, 0.5], [float("nan")], [float("inf")], [1.5])],
    "shuffle": [{"shuffle": wrong} for wrong in (-1, 1000, "often", 1.5)],
    "external": [{"external": {"x": {"table": "x.csv", "features": {name: "f"}}}} for name in ("unii", "other")],
}


@pytest.mark.parametrize(
    ("key", "changes"), [(key, changes) for key, several in MISTAKES.items() for changes in several], ids=str
)
def test_a_mistake_is_refused_with_its_key(key, changes, tmp_path):
    with pytest.raises(InputError, match=rf"study\.yaml: {key}\b"):
        load_study(written(tmp_path, **changes))


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
def test_every_template_is_a_valid_study_for_the_schema_too(name, tmp_path):
    write_study_file(find_template(name).text(name), tmp_path / f"{name}.yaml")
    study = load_study(tmp_path / f"{name}.yaml")
    assert study.name == name
    assert list(study.cells())
    with pytest.raises(InputError, match="exists"):
        write_study_file(find_template(name).text(name), tmp_path / f"{name}.yaml")
    (tmp_path / "literal.yaml").write_text(literal_text(name, "s"))
    assert schema_problems(tmp_path / f"{name}.yaml") == schema_problems(tmp_path / "literal.yaml") == []


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("full", [False, True])
def test_the_schema_accepts_the_studies_of_the_demo(name, full, tmp_path):
    assert schema_problems(write_study(tmp_path, name, tmp_path / "features", tmp_path / "splits", full)) == []


def test_the_schema_marks_what_the_command_would_refuse(tmp_path):
    for key, value in {
        "methds": ["ot"],
        "methods": [{"name": "clam"}],
        "scaling": "blok",
        "splits": {"colum": "fold"},
        "seeds": ["one"],
    }.items():
        assert schema_problems(written(tmp_path, **{key: value}))
