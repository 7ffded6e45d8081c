"""Study templates: the paper's ten trainings over thirteen data sets, and its three ablations. A user fills in paths.

A literal study is the paper to the letter: its text where it is explicit, the published code's effective value where it is silent. No setting
is left to a default of this package; docs/concepts/deviations.md lists what each line restores. Where the published code has an error (the
sign of OT's kernel) the text is followed. Only rows of the paper's tables are crossed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from panther.errors import InputError, suggestion
from panther.mil import networks
from panther.models.heads import STRUCTURED
from panther.storage.files import write_text

_HEAD = """\
# {title}
# {note}
# Fill in the paths (they count from this file), then: panther run {name}.yaml -o {name}/
name: {name}
"""

_SUPERVISED = "  - abmil\n  - transmil\n  - dsmil\n  - attnmisl\n  - ilra\n"
_METHODS = f"""\
methods:
{_SUPERVISED}  - deepsets
  - protocounts
  - h2t
  - ot
  - {{name: panther, readout: top, label: PANTHER Top}}
  - {{name: panther, readout: bottom, label: PANTHER Bottom}}
  - {{name: panther, readout: wa, label: PANTHER WA}}
  - {{name: panther, label: PANTHER All}}
reference: PANTHER All
n_prototypes: [16]
"""


@dataclass(frozen=True)
class Template:
    """A study to start from."""

    title: str
    note: str
    body: str

    def text(self, name: str) -> str:
        """The file."""
        return _HEAD.format(title=self.title, note=self.note, name=name) + self.body


def _classification(label: str, table: str, shares: str, extra: str = "") -> str:
    return f"""\
table: {table}
features:
  uni: features/uni
task: {{label: {label}}}
splits: {{scheme: holdout, shares: {shares}, seed: 1}}   # or a folder of split tables
{extra}{_METHODS}heads: [linear, paper-classification]
losses: [cross-entropy]
seeds: [1, 2, 3, 4, 5]
"""


def _survival(cohort: str, external: tuple[str, ...] = ()) -> str:
    others = "".join(
        f"  {name}:\n    table: tables/{name}_{cohort}.csv\n    features: {{uni: features/{name}_{cohort}_uni}}\n"
        for name in external
    )
    outside = f"external:\n{others}" if external else ""
    return f"""\
table: tables/tcga_{cohort}.csv
features:
  uni: features/tcga_{cohort}_uni
task: {{survival: dss}}
splits: {{scheme: site-kfold, k: 5, seed: 1}}   # or a folder of split tables, {{name}}_k=0 ... {{name}}_k=4
{outside}{_METHODS}heads: [linear, paper-survival]
losses: [cox]
mil_loss: nll   # of the supervised networks
"""


_ABLATED = "the paper did so on EBRAINS, PANDA, CRC and LUAD, here it is CRC"
_CPTAC = "external:\n  cptac:\n    table: tables/cptac_nsclc.csv\n    features: {uni: features/cptac_nsclc_uni}\n"
_BY_PROVIDER = "evaluate_by: data_provider\nmetrics: [quadratic_kappa]\n"
_SITE = "Site-stratified 5-fold cross-validation on disease-specific survival, c-index"
TEMPLATES: dict[str, Template] = {
    "ebrains-fine": Template(
        "EBRAINS, fine subtyping (30 classes)",
        "Balanced accuracy and weighted F1; 50:25:25. The coarse study must use the same split: write it once with `panther splits`.",
        # some patients have two diagnoses
        _classification("diagnosis, level: slide", "tables/ebrains.csv", "[0.5, 0.25, 0.25]"),
    ),
    "ebrains-coarse": Template(
        "EBRAINS, coarse subtyping (12 classes)",
        "The same fold as ebrains-fine: give the folder that `panther splits tables/ebrains.csv --label diagnosis` wrote as `splits`.",
        _classification("diagnosis_group, level: slide", "tables/ebrains.csv", "[0.5, 0.25, 0.25]"),
    ),
    "nsclc": Template(
        "NSCLC subtyping (LUAD, LUSC) on TCGA, tested on CPTAC",
        "Balanced accuracy and weighted F1; 80:10:10.",
        _classification("OncoTreeCode, classes: [LUAD, LUSC]", "tables/tcga_nsclc.csv", "[0.8, 0.1, 0.1]", _CPTAC),
    ),
    "panda": Template(
        "PANDA ISUP grading (6 grades)",
        "Quadratic weighted kappa, by provider (Karolinska, Radboud); 80:10:10.",
        _classification("isup_grade", "tables/panda.csv", "[0.8, 0.1, 0.1]", _BY_PROVIDER),
    ),
    **{
        cohort: Template(f"TCGA-{cohort.upper()} survival", f"{_SITE}.", _survival(cohort))
        for cohort in ("brca", "crc", "blca", "ucec")
    },
    "kirc": Template("TCGA-KIRC survival, tested on CPTAC", f"{_SITE}.", _survival("kirc", ("cptac",))),
    "luad": Template("TCGA-LUAD survival, tested on CPTAC and NLST", f"{_SITE}.", _survival("luad", ("cptac", "nlst"))),
    "ablation-encoder": Template(
        "Ablation: patch encoders",
        f"UNI, CTransPath and ResNet50 for every method; {_ABLATED}.",
        _survival("crc").replace(
            "  uni: features/tcga_crc_uni\n",
            "  uni: features/tcga_crc_uni\n  ctranspath: features/tcga_crc_ctranspath\n  resnet50: features/tcga_crc_resnet50\n",
        ),
    ),
    "ablation-prototypes": Template(
        "Ablation: number of prototypes",
        f"C = 8, 16, 32; {_ABLATED}.",
        _survival("crc").replace("n_prototypes: [16]", "n_prototypes: [8, 16, 32]"),
    ),
    "ablation-loss": Template(
        "Ablation: survival losses",
        "Cox, discrete NLL and ranking on unsupervised embeddings, batch 64 for all; the paper did so on CRC and LUAD, here it is CRC.",
        _survival("crc")
        .replace("losses: [cox]", "losses: [cox, {name: nll, n_bins: 4, alpha: 0.5}, ranking]")
        .replace("mil_loss: nll   # of the supervised networks\n", "")
        .replace(_SUPERVISED, ""),
    ),
}


def find_template(name: str) -> Template:
    """Template of that name."""
    if name not in TEMPLATES:
        raise InputError(f"There is no study template {name!r}; {suggestion(name, TEMPLATES)}.")
    return TEMPLATES[name]


def write_study(text: str, path: Path) -> None:
    """Write a study to start from; an existing file is not overwritten."""
    if path.exists():
        raise InputError(f"{path}: exists already")
    write_text(path, text)


METHODS: dict[str, dict[str, Any]] = {
    # dropout only inside the attention
    "abmil": {"hidden": 512, "attention": 384, "gated": True, "dropout": 0.25, "feature_dropout": 0.0},
    "transmil": {"hidden": 512, "heads": 8, "landmarks": 256, "iterations": 6, "exact": False, "token_deviation": 1.0, "dropout": 0.1},
    "dsmil": {"hidden": 512, "attention": 128, "normalise": False, "value_layer": False, "dropout": 0.0},
    "attnmisl": {"hidden": 64, "layers": 1, "attention": 32, "out": 32, "gated": False, "dropout": 0.5},
    "ilra": {"hidden": 256, "heads": 8, "latents": 1, "layers": 2, "xavier": True, "dropout": 0.0},
    "deepsets": {},
    "protocounts": {"scale": "raw"},
    "h2t": {"normalise": True},
    "ot": {"cost": "euclidean", "epsilon": 0.1, "relative": False, "iterations": 100, "tolerance": 0.0},
    "panther": {
        "preset": "paper", "readout": "all", "steps": 1, "tau": 0.0, "variance": 1.0, "temperature": 1.0, "covariance": "diagonal", "weights": "free",
        "blocks": (),
    },
}  # fmt: skip
LOSSES: dict[str, dict[str, Any]] = {
    "cross-entropy": {},
    "cox": {"ties": "breslow"},
    "nll": {"n_bins": 4, "alpha": 0.5, "on_edge": "earlier"},
    "ranking": {"tied_times": False},
}
_STRUCTURED = {"shared_dim": 256, "per_prototype_dim": 128, "after_dim": 1024, "dropout": 0.1, "gates": False}
HEADS: dict[str, dict[str, Any]] = {
    "linear": {"bias": False},
    "paper-classification": {"shared": "identity", "per_prototype": "mlp", "after": "mlp", **_STRUCTURED},
    "paper-survival": {"shared": "mlp", "per_prototype": "mlp", "after": "identity", **_STRUCTURED},
}
_TRAINING = {
    "learning_rate": 1e-4, "weight_decay": 1e-5, "decay_biases": False, "warmup_epochs": 1, "min_epochs": 0, "min_steps": 0,
    "mixed_precision": False,
}  # fmt: skip
_STOPPING = {"epochs": 20, "patience": 10, "keep": "best"}
_TO_THE_END = {"patience": None, "keep": "last"}
TRAINING: dict[str, dict[str, dict[str, Any]]] = {  # of heads on embeddings, and of supervised networks
    "classification": {
        "training": {**_TRAINING, **_STOPPING, "batch_size": 32, "accumulate": 1, "input_dropout": 0.0, "shuffle": False},
        "mil_training": {**_TRAINING, **_STOPPING, "batch_size": 1, "accumulate": 32, "input_dropout": 0.0},
    },
    "survival": {
        "training": {
            **_TRAINING, **_TO_THE_END, "epochs": 50, "batch_size": 64, "accumulate": 1, "input_dropout": 0.0, "shuffle": True,
        },
        "mil_training": {**_TRAINING, **_TO_THE_END, "epochs": 20, "batch_size": 1, "accumulate": 1, "input_dropout": 0.1},
    },
}  # fmt: skip
# K-means over all patches of the training slides; five starts as in the published runs
WITH_MLP = "PANTHER All"  # the only row of the paper's tables with the structured head
NOT_ABLATED = ("PANTHER Top", "PANTHER Bottom")  # rows of the main tables only
PROTOTYPES = {
    "restarts": 5, "sample": 100_000, "share": "proportional", "passes": 50, "normalise": False, "pca": None,
    "centre": None,
}  # fmt: skip


def literal_study(name: str) -> dict[str, Any]:
    """The template of that name with every setting written out."""
    study: dict[str, Any] = yaml.safe_load(find_template(name).text(name))
    kind = "survival" if "survival" in study["task"] else "classification"
    if kind == "classification":
        study["task"]["level"] = "slide"  # the paper classifies slides
    methods = [_spelled(method, METHODS) for method in study["methods"]]
    ablated = name.startswith("ablation-")
    study["methods"] = [method for method in methods if not (ablated and method["label"] in NOT_ABLATED)]
    study["heads"] = [_spelled(head, HEADS) for head in study["heads"]]
    study["losses"] = [_spelled(loss, LOSSES) for loss in study["losses"]]
    structured = next(head["name"] for head in study["heads"] if head["name"] in STRUCTURED)
    linear = [
        method["label"] for method in study["methods"] if method["name"] not in networks and method["label"] != WITH_MLP
    ]
    study["exclude"] = [{"method": label, "head": structured} for label in linear]
    network_loss = "nll" if kind == "survival" else "cross-entropy"
    return {
        **study,
        "mil_loss": _spelled(network_loss, LOSSES),
        "scaling": "none",
        "prototypes": dict(PROTOTYPES),
        **TRAINING[kind],
        "seeds": [1],
    }


def literal_text(template: str, name: str) -> str:
    """The study file."""
    about = find_template(template)
    head = (
        f"# {about.title}, to the letter of the paper: no setting is ours (docs/concepts/deviations.md)\n"
        f"# {about.note}\n"
        f"# Fill in the paths (they count from this file), then: panther run {name}.yaml -o {name}/\n"
    )
    return head + yaml.safe_dump({**literal_study(template), "name": name}, sort_keys=False, width=140)


def _spelled(entry: str | Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An entry with all its settings; settings of the template (a readout, a label) stay, and its name is its title."""
    entry = {"name": entry} if isinstance(entry, str) else entry
    return {"name": entry["name"], "label": entry["name"], **known[entry["name"]], **entry}
