"""Study templates: the paper's ten trainings over thirteen data sets, and its three ablations. A user fills in paths.

`template_files/` holds one study file each, `literal.yaml` every setting of the paper. In a literal study no setting is left to a default of
this package, and only rows of the paper's tables are crossed.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from panther.errors import InputError, suggestion
from panther.mil import networks
from panther.models.heads import STRUCTURED
from panther.storage.files import write_text

ROOM = Path(__file__).parent
WITH_MLP = "PANTHER All"  # the only row of the paper's tables with the structured head
NOT_ABLATED = ("PANTHER Top", "PANTHER Bottom")  # rows of the main tables only


@dataclass(frozen=True)
class Template:
    """A study to start from: a file whose first two lines are its title and a note, with `$name` for its name."""

    content: str

    @property
    def title(self) -> str:
        """What is predicted, on which data."""
        return self.content.splitlines()[0].removeprefix("# ")

    def text(self, name: str) -> str:
        """The file."""
        return self.content.replace("$name", name)


FILES = sorted((ROOM / "template_files").glob("*.yaml"), key=lambda path: ("ablation" in path.stem, path.stem))
TEMPLATES = {path.stem: Template(path.read_text()) for path in FILES}
LITERAL: dict[str, dict[str, Any]] = yaml.safe_load((ROOM / "literal.yaml").read_text())


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


def literal_study(template: str, name: str) -> dict[str, Any]:
    """A template with every setting of the paper."""
    study: dict[str, Any] = yaml.safe_load(find_template(template).text(name))
    kind = "survival" if "survival" in study["task"] else "classification"
    if kind == "classification":
        study["task"]["level"] = "slide"  # the paper classifies slides
    methods = [_with_settings(method, "methods") for method in study["methods"]]
    if template.startswith("ablation-"):
        methods = [method for method in methods if method["label"] not in NOT_ABLATED]
    heads = [_with_settings(head, "heads") for head in study["heads"]]
    structured = next(head["name"] for head in heads if head["name"] in STRUCTURED)
    linear = [m["label"] for m in methods if m["name"] not in networks and m["label"] != WITH_MLP]
    return {
        **study,
        "methods": methods,
        "heads": heads,
        "losses": [_with_settings(loss, "losses") for loss in study["losses"]],
        "exclude": [{"method": label, "head": structured} for label in linear],
        "mil_loss": _with_settings("nll" if kind == "survival" else "cross-entropy", "losses"),
        "scaling": "none",
        "prototypes": LITERAL["prototypes"],
        **LITERAL["training"][kind],
        "seeds": [1],
    }


def literal_text(template: str, name: str) -> str:
    """The study file of the paper to the letter."""
    title, note, how = find_template(template).text(name).splitlines()[:3]
    head = f"{title}, to the letter of the paper: no setting is ours (docs/concepts/deviations.md)\n{note}\n{how}\n"
    return head + yaml.safe_dump(literal_study(template, name), sort_keys=False, width=140)


def _with_settings(entry: str | Mapping[str, Any], section: str) -> dict[str, Any]:
    """An entry with all its settings; settings of the template (a readout, a label) stay, and its name is its title."""
    entry = {"name": entry} if isinstance(entry, str) else entry
    return {"name": entry["name"], "label": entry["name"], **deepcopy(LITERAL[section][entry["name"]]), **entry}
