"""Studies that are the paper to the letter: its text where it says something, the published code's effective value where it is silent.

Nothing is left to a default of ours, so a later default cannot creep in; docs/concepts/deviations.md tells what each line restores. Where the
published code has an error (the sign of OT's kernel) the text is followed. Only rows of the paper's tables are crossed.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from panther.mil import networks
from panther.models.checks import STRUCTURED
from panther.study.templates import find_template

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
    """An entry with all its settings; what the template says by itself (a readout, a label) stays, and tables call it by its name."""
    own = {"name": entry} if isinstance(entry, str) else dict(entry)
    return {"name": own["name"], "label": own["name"], **known[own["name"]], **own}
