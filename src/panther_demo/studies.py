"""The two studies of the demo, as files that a user could have written."""

from pathlib import Path
from typing import Any

from panther.store import atomic_write

UNSUPERVISED: list[Any] = [
    {"name": "panther", "label": "PANTHER All"},
    {"name": "panther", "readout": "wa", "label": "PANTHER WA"},
    {"name": "panther", "readout": "top", "label": "PANTHER Top"},
    {"name": "panther", "readout": "bottom", "label": "PANTHER Bottom"},
    "ot",
    "h2t",
    "protocounts",
    "deepsets",
]
PROTOTYPES = 8  # seven tissues, slides of some sixty patches
NETWORKS = ["abmil", "transmil", "dsmil", "attnmisl", "ilra"]
HEADS = {"subtype": ["probe", "paper-classification"], "survival": ["probe", "paper-survival"]}
TASKS: dict[str, Any] = {"subtype": {"label": "subtype"}, "survival": {"survival": "os"}}
ABOUT = """\
# A study of the synthetic demo cohort: {name}. Paths count from this file.
# Run it with: panther run {name}.yaml -o {name}/
"""


def write_study(folder: Path, name: str, features: Path, splits: Path, full: bool) -> Path:
    """Write one study file: the unsupervised methods and ABMIL, or all ten methods."""
    import yaml

    study = {
        "name": name,
        "table": "cohort.csv",
        "features": {"lite0": str(features.relative_to(folder))},
        "task": TASKS[name],
        "splits": str(splits.relative_to(folder)),
        "methods": [*UNSUPERVISED, *(NETWORKS if full else NETWORKS[:1])],
        "reference": "PANTHER All",
        "heads": HEADS[name],
        "n_prototypes": [PROTOTYPES],
        "seeds": [1],
    }
    path = folder / f"{name}.yaml"
    with atomic_write(path) as temporary:
        temporary.write_text(
            ABOUT.format(name=name) + yaml.safe_dump(study, sort_keys=False, allow_unicode=True), encoding="utf-8"
        )
    return path
