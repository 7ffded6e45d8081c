"""Input of the tabs: a run, the prototypes and mixtures of one of its folds, and the folders of other commands.

C4 is the same prototype in all tabs: where the folders are of other prototypes than the fold, those of the fold are called `C4 of fold 1`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panther.aggregators import aggregators, build
from panther.errors import InputError
from panther.evaluation.shift import ShiftReport, site_shift
from panther.explain.names import Names, Naming, as_names, as_namings, colours, label, row_colour
from panther.explain.palette import colour as palette_colour
from panther.explain.projection import FEWEST_UMAP, Plane, principal_components, umap, umap_installed
from panther.explain.shares import as_proportions
from panther.mixture import effective_number
from panther.models.model import load_model
from panther.report.data import Run, load_run
from panther.storage.files import read_errors, read_json
from panther.storage.prototypes import load_prototypes
from panther.storage.tables import as_table
from panther.study.jobs import load_embeddings
from panther.study.results import Results
from panther.types import Prototypes

# option -> command that writes the folder, and its JSON file
ARTEFACTS = {
    "atlas": ("atlas", "atlas.json"),
    "attribution": ("attribute", "attribution.json"),
    "km": ("kaplan-meier", "km.json"),
    "agreement": ("concordance", "concordance.json"),
}
WEIGHTS = ("weight", "count")  # statistics of an embedding that are shares or counts of a prototype
OF_FOLD = "#9a958c"  # colour of the prototypes of a fold where the folders are of others


@dataclass(frozen=True)
class Artefact:
    """Folder of another command."""

    folder: Path
    content: dict[str, Any]  # its JSON

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Records in a list of the JSON; empty where it is missing."""
        rows = self.content.get(name)
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Embeddings of one method in one fold, all samples of the study."""

    row: str  # method
    fold: int
    samples: tuple[str, ...]
    weights: np.ndarray | None  # (n, C), rows adding up to 1; None where the method keeps none
    positions: dict[str, Plane]  # by projection
    prototypes: Prototypes
    file: str  # of the prototypes, in the cache

    @property
    def used(self) -> np.ndarray | None:
        """Effective number of prototypes of each sample (n,), 1 to C; None where there are no weights."""
        return None if self.weights is None else effective_number(torch.from_numpy(self.weights)).numpy()


@dataclass(frozen=True, eq=False)
class AtlasWeights:
    """Table pi.csv of an atlas."""

    slides: list[str]
    patients: list[str]  # of each slide
    weights: np.ndarray  # (n, C)


@dataclass(frozen=True, eq=False)
class Material:
    """Content of a report."""

    run: Run
    title: str
    mixtures: Mixtures | None
    shift: ShiftReport | None
    artefacts: Mapping[str, Artefact]
    maps: Path | None
    names: Mapping[int, str]  # of prototypes: the user's, else those of the first folder with names
    slides: AtlasWeights | None = None  # of the atlas
    failures: dict[str, str] = field(default_factory=dict)  # part that could not be shown -> reason; sections add to it
    colours: Mapping[int, str] = field(default_factory=dict)  # of prototypes, likewise
    has_fold_prototypes: bool = False  # whether the mixtures are of other prototypes than the folders

    def prototype(self, number: int) -> str:
        """Label of a prototype: `C2 tumour, solid`."""
        return label(number, self.names)

    def fold_prototype(self, c: int) -> str:
        """Label of a prototype of the mixtures."""
        return (
            f"C{c} of fold {self.mixtures.fold + 1}"
            if self.mixtures and self.has_fold_prototypes
            else self.prototype(c)
        )

    def fold_colour(self, c: int) -> str:
        """Its colour."""
        return OF_FOLD if self.has_fold_prototypes else self.colours.get(c) or palette_colour(c)


def gather(
    results: Results | Path | str,
    folders: Mapping[str, Path] | None = None,
    names: Names = None,
    title: str | None = None,
) -> Material:
    """Read a run and the ``folders`` of other commands (by the keys of ARTEFACTS, and `maps`), and check that they belong together."""
    run, folders = load_run(results), folders or {}
    maps = folders.get("maps")
    if maps is not None and not maps.is_dir():
        raise InputError(f"{maps}: no such folder, expected the one that `panther map -o` wrote")
    artefacts = {
        name: _read_artefact(folders[name], file, command)
        for name, (command, file) in ARTEFACTS.items()
        if name in folders
    }
    _check_same_prototypes(artefacts)
    mixtures = load_mixtures(run)
    rows = [row for a in artefacts.values() for row in a.rows("prototypes") if isinstance(row.get("prototype"), int)]
    count = max((row["prototype"] + 1 for row in rows), default=len(mixtures.prototypes) if mixtures else 0)
    if names and not count:
        raise InputError("names: this run has no prototypes to name; leave it out, or add `atlas`")
    namings = as_namings(names, count) if names else {}
    failures: dict[str, str] = {}
    slides = _atlas_weights(artefacts.get("atlas"), failures)
    # an atlas made without a table has no patients
    if slides and slides.patients != slides.slides and not set(slides.patients) & set(run.cohort["patient"]):
        patients = f"{slides.patients[0]!r}, expected those of {run.folder}, e.g. {run.cohort['patient'].iloc[0]!r}"
        raise InputError(f"{folders['atlas']}: none of its patients is in the study: e.g. {patients}")
    named = {row["prototype"]: str(row["name"]) for row in reversed(rows) if row.get("name")}
    named |= as_names(namings, count) if namings else {}
    coloured = _set_colours(rows, namings, count)
    hashes = [str(a.content["prototypes_hash"]) for a in artefacts.values() if "prototypes_hash" in a.content]
    is_other = mixtures is not None and bool(rows) and mixtures.prototypes.content_hash() not in hashes
    return Material(
        run, title or run.study.name, mixtures, _shift(run, mixtures), artefacts, maps, named, slides, failures, coloured, is_other
    )  # fmt: skip


def _read_artefact(folder: Path, file: str, command: str) -> Artefact:
    path = folder / file
    with read_errors(path, f"file of `panther {command}`"):
        content = read_json(path)
    if not isinstance(content, dict) or content.get("format", 1) != 1:
        raise InputError(f"{path}: of another format; do `panther {command}` again, or update")
    return Artefact(folder, content)


def _set_colours(rows: Sequence[dict[str, Any]], namings: Mapping[int, Naming], count: int) -> dict[int, str]:
    """Give each prototype one colour in all ``rows``: the user's, else that of the first folder with colours."""
    result = {row["prototype"]: row_colour(row) for row in reversed(rows) if "colour" in row}
    if any(naming.colour or naming.group for naming in namings.values()):
        result = dict(enumerate(colours(namings, count)))
    for row in rows:
        row["colour"] = result.get(row["prototype"], row_colour(row))
    return result


def _atlas_weights(atlas: Artefact | None, failures: dict[str, str]) -> AtlasWeights | None:
    """Proportions of the slides; a damaged table is added to ``failures``."""
    if atlas is None or not (path := atlas.folder / "pi.csv").exists():
        return None
    try:
        proportions, table = as_proportions(path), as_table(path)
        count = len(atlas.rows("prototypes"))
        if count and proportions.pi.shape[1] != count:
            raise InputError(f"{path}: {proportions.pi.shape[1]} prototypes, expected {count} as in atlas.json")
    except InputError as error:
        failures[path.name] = f"{error}. Its proportions are left out; `panther atlas` writes them again."
        return None
    patients = table["patient"] if "patient" in table else table["slide"]
    return AtlasWeights(proportions.samples, patients.tolist(), proportions.pi)


def _check_same_prototypes(artefacts: Mapping[str, Artefact]) -> None:
    """Refuse folders that were made with different prototypes."""
    # `panther kaplan-meier` leaves out prototypes that do not vary, so its list may be shorter
    counts = {name: len(a.rows("prototypes")) for name, a in artefacts.items() if name != "km" and a.rows("prototypes")}
    hashes = {n: str(a.content["prototypes_hash"]) for n, a in artefacts.items() if "prototypes_hash" in a.content}
    for what, values in (("numbers", counts), ("contents", hashes)):
        if len(set(values.values())) > 1:
            listed = ", ".join(f"`{name}` {value}" for name, value in values.items())
            raise InputError(
                f"folders: different prototypes ({what}: {listed}), expected the same prototype file in all"
            )


def _shift(run: Run, mixtures: Mixtures | None) -> ShiftReport | None:
    """How well proportions predict the site; None where sites or proportions are unknown or too few."""
    if mixtures is None or mixtures.weights is None:
        return None
    site = run.cohort["site"].reindex(mixtures.samples).fillna("").to_numpy()
    known = np.flatnonzero(site != "")
    if not len(known):
        return None
    samples = [mixtures.samples[i] for i in known]
    patients = list(run.cohort["patient"].reindex(samples))
    permutations = 999 if len(samples) < 300 else 199
    try:
        return site_shift(mixtures.weights[known], site[known].tolist(), samples, patients, permutations=permutations)
    except InputError:  # too few sites, or a patient of two
        return None


def load_mixtures(run: Run) -> Mixtures | None:
    """Mixtures of the first method with weights, the reference before others; if none has, of the first method.

    None where the cache was deleted.
    """
    if "embeddings" not in run.trained:
        return None
    entries = run.trained.dropna(subset="embeddings").drop_duplicates("embeddings")  # heads share embeddings
    entries = entries.assign(other=entries["method"] != run.study.reference_row)
    chosen: tuple[Any, Path, Prototypes, Path, list[tuple[int, int]]] | None = None
    for _, entry in entries.sort_values(["other", "fold"], kind="stable").iterrows():
        vectors, file = run.cached(entry["embeddings"]), run.cached(entry["prototypes"])
        if vectors is None or file is None or entry["aggregator"] not in aggregators.names():
            continue
        prototypes = load_prototypes(file)
        columns = build(entry["aggregator"], prototypes, entry["options"]).columns()
        amounts = {c: i for i, (c, statistic, _) in enumerate(columns) if statistic in WEIGHTS}
        has_weights = set(amounts) == set(range(len(prototypes)))
        if has_weights or chosen is None:
            chosen = entry, vectors, prototypes, file, sorted(amounts.items()) if has_weights else []
        if has_weights:
            break
    if chosen is None:
        return None
    entry, vectors, prototypes, file, amounts_of = chosen
    x, units = load_embeddings(vectors)
    weights = None
    if amounts_of:
        amount = x[:, [i for _, i in amounts_of]].astype(float)
        weights = amount / np.maximum(amount.sum(1, keepdims=True), 1e-30)
    model = run.cached(entry["model"])
    positions = {} if model is None else _positions(model, np.array(x))
    return Mixtures(entry["row"], entry["fold"], tuple(units), weights, positions, prototypes, file.name)


def _positions(model: Path, x: np.ndarray) -> dict[str, Plane]:
    """Projections of the embeddings, scaled by the tested model."""
    scaler = load_model(model).scaler
    assert scaler is not None  # methods with embeddings have one
    scaled = scaler(torch.from_numpy(x)).double().numpy()
    positions = {"PCA": principal_components(scaled)}
    if umap_installed() and len(x) >= FEWEST_UMAP:
        positions["UMAP"] = umap(scaled)
    return positions
