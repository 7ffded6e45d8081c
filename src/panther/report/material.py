"""Everything that the tabs draw from: a run, and the folders of other commands as far as they were given."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from panther.errors import InputError
from panther.evaluation.shift import ShiftReport, site_shift
from panther.explain.atlas_files import PROTOTYPES
from panther.explain.names import Names, Naming, as_names, as_namings, colours, label, row_colour
from panther.explain.shares import as_proportions
from panther.report.data import Run, load_run, read_json
from panther.report.fold import FoldNames, Mixtures, find_prototypes, fold_names, load_mixtures
from panther.storage.tables import as_table
from panther.study.results import Results
from panther.types import Prototypes

# option -> the command that writes such a folder, and its JSON file
ARTEFACTS = {
    "atlas": ("atlas", "atlas.json"),
    "attribution": ("attribute", "attribution.json"),
    "km": ("kaplan-meier", "km.json"),
    "agreement": ("concordance", "concordance.json"),
}
PICTURES = (".png", ".jpg", ".jpeg", ".webp")


@dataclass(frozen=True)
class Artefact:
    """Folder of another command."""

    folder: Path
    content: dict[str, Any]  # its JSON

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A list of the JSON; empty where it is missing."""
        found = self.content.get(name)
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


@dataclass(frozen=True, eq=False)
class Material:
    """What there is to tell."""

    run: Run
    title: str
    mixtures: Mixtures | None
    shift: ShiftReport | None
    artefacts: Mapping[str, Artefact]
    maps: Path | None
    names: Mapping[int, str]  # of prototypes, given by the user
    color_by: str | None
    slides: "AtlasWeights | None" = None  # as the atlas measured them
    failures: dict[str, str] = field(default_factory=dict)  # what could not be drawn -> sentence; sections add to it
    reference: Prototypes | None = None  # those of the other commands' folders, where they are at hand
    colours: Mapping[int, str] = field(default_factory=dict)  # of prototypes, as the names or the folders have them

    def prototype(self, number: int, own: str | None = None) -> str:
        """`C2 tumour, solid`: the name given to the report, else the one that the artefact has."""
        return label(number, {number: own} if own and number not in self.names else dict(self.names))

    @property
    def folds_own(self) -> FoldNames | None:
        """What the prototypes of the fold that is shown are called; None where none is shown."""
        found = self.mixtures
        if found is None:
            return None
        known = any(a.rows("prototypes") for a in self.artefacts.values())
        return replace(fold_names(found.fold, found.prototypes, self.reference, known), colours=self.colours)

    def folds_prototype(self, names: FoldNames, c: int) -> str:
        """A fold's prototype by the name that it has in the other tabs, or by one of its own."""
        number = names.number(c)
        return names.apart(c) if number is None else self.prototype(number, self.given.get(number))

    @property
    def given(self) -> dict[int, str]:
        """Names that the folders of other commands have."""
        rows = [row for a in self.artefacts.values() for row in a.rows("prototypes")]
        return {row["prototype"]: str(row["name"]) for row in rows if row.get("name") and "prototype" in row}


@dataclass(frozen=True, eq=False)
class AtlasWeights:
    """Table pi.csv of an atlas."""

    slides: list[str]
    patients: list[str]  # of each slide
    weights: np.ndarray  # (n, C)


@dataclass(frozen=True)
class Request:
    """Requested content of a report."""

    run: Results | Path | str
    folders: Mapping[str, Path] = field(default_factory=dict)  # by the names of ARTEFACTS, and maps
    names: Names = None
    title: str | None = None
    color_by: str | None = None


def gather(request: Request) -> Material:
    """Read everything, and refuse before the work what cannot be right."""
    run = load_run(request.run)
    maps = request.folders.get("maps")
    if maps is not None and not maps.is_dir():
        raise InputError(f"{maps}: there is no such folder; give the one that `panther map -o` wrote.")
    artefacts = {
        name: Artefact(request.folders[name], read_json(request.folders[name] / file, command))
        for name, (command, file) in ARTEFACTS.items()
        if name in request.folders
    }
    _refuse_others(artefacts)
    if request.color_by is not None and request.color_by not in run.cohort.columns:
        known = ", ".join(run.cohort.columns)
        raise InputError(f"The cohort has no column {request.color_by!r}, which `color_by=` asks for; it has {known}.")
    mixtures = load_mixtures(run)
    namings = as_namings(request.names, _prototypes(artefacts, mixtures)) if request.names else {}
    names = as_names(namings, _prototypes(artefacts, mixtures)) if namings else {}
    title = request.title or run.study.name
    shift = _shift(run, mixtures)
    failures: dict[str, str] = {}
    slides = _atlas_weights(artefacts.get("atlas"), failures)
    _check_same_cohort(run, slides, request)
    reference = _reference(run, artefacts)
    there = bool(namings) or any(a.rows("prototypes") for a in artefacts.values())
    colours = _coloured(artefacts, namings, _prototypes(artefacts, mixtures)) if there else {}
    return Material(
        run, title, mixtures, shift, artefacts, maps, names, request.color_by, slides, failures, reference, colours
    )


def _coloured(artefacts: Mapping[str, Artefact], namings: Mapping[int, Naming], count: int) -> dict[int, str]:
    """Colours of the prototypes, the same in all folders: those given to the report, else those of the first folder that has them."""
    rows = [row for a in artefacts.values() for row in a.rows("prototypes") if isinstance(row.get("prototype"), int)]
    found = {row["prototype"]: row_colour(row) for row in reversed([row for row in rows if "colour" in row])}
    if any(one.colour or one.group for one in namings.values()):
        found = dict(enumerate(colours(namings, count)))
    for row in rows:
        row["colour"] = found.get(row["prototype"], row_colour(row))
    return found


def _reference(run: Run, artefacts: Mapping[str, Artefact]) -> Prototypes | None:
    """The prototypes that the folders tell of: the atlas has a copy, or they are a fold's."""
    wanted = [str(a.content["prototypes_hash"]) for a in artefacts.values() if "prototypes_hash" in a.content]
    if not wanted:
        return None
    copies = [a.folder / PROTOTYPES for a in artefacts.values() if (a.folder / PROTOTYPES).is_file()]
    return find_prototypes(wanted[0], [*copies, *sorted((run.folder / "cache").glob("prototypes-*"))])


def _check_same_cohort(run: Run, slides: AtlasWeights | None, request: Request) -> None:
    """An atlas without any patient of the run is another cohort's; one made without a table names slides only, which a run need not know."""
    if slides is None or slides.patients == slides.slides:
        return
    if not set(slides.patients) & set(run.cohort["patient"]):
        raise InputError(
            f"{request.folders['atlas']}: none of its patients (e.g. {slides.patients[0]!r}) is in {run.folder} "
            f"(e.g. {run.cohort['patient'].iloc[0]!r}); give the atlas of this cohort."
        )


def _atlas_weights(atlas: Artefact | None, failures: dict[str, str]) -> AtlasWeights | None:
    """Proportions of the slides; a damaged table is listed in ``failures`` and costs its place only."""
    path = None if atlas is None else atlas.folder / "pi.csv"
    if atlas is None or path is None or not path.exists():
        return None
    try:
        found, table = as_proportions(path), as_table(path)
        count = len(atlas.rows("prototypes"))
        if count and found.pi.shape[1] != count:
            raise InputError(f"{path}: has {found.pi.shape[1]} prototypes, but atlas.json beside it has {count}.")
    except InputError as error:
        failures[path.name] = f"{error} The report leaves these proportions out; `panther atlas` writes them again."
        return None
    patients = table["patient"] if "patient" in table else table["slide"]
    return AtlasWeights(found.samples, patients.tolist(), found.pi)


def _refuse_others(artefacts: Mapping[str, Artefact]) -> None:
    """C3 must be the same prototype in every tab; names would else be put on other tissue."""
    # `panther kaplan-meier` leaves out prototypes that do not vary, so its list may be shorter
    counts = {name: len(a.rows("prototypes")) for name, a in artefacts.items() if name != "km" and a.rows("prototypes")}
    hashes = {
        name: str(a.content["prototypes_hash"]) for name, a in artefacts.items() if "prototypes_hash" in a.content
    }
    signs: dict[str, Mapping[str, object]] = {"numbers": counts, "contents": hashes}
    for what, found in signs.items():
        if len(set(found.values())) > 1:
            listed = ", ".join(f"`{name}=` {value}" for name, value in found.items())
            raise InputError(
                f"The folders tell of different prototypes ({what}: {listed}); write them all with the same prototype file "
                "(a model's own, or one given to `panther train` with -p)."
            )


def _prototypes(artefacts: Mapping[str, Artefact], mixtures: Mixtures | None) -> int:
    """How many prototypes there are to be named."""
    found = [row.get("prototype") for a in artefacts.values() for row in a.rows("prototypes")]
    numbers = [number for number in found if isinstance(number, int)]
    if numbers:
        return max(numbers) + 1
    if mixtures is None:
        raise InputError("There are no prototypes to name in this run; leave `names=` out, or give `atlas=`.")
    return len(mixtures.prototypes)


def _shift(run: Run, mixtures: Mixtures | None) -> ShiftReport | None:
    """Whether the site can be read off the proportions; None where sites or proportions are not known, or too few."""
    if mixtures is None or mixtures.weights is None:
        return None
    site = run.cohort["site"].reindex(mixtures.samples).fillna("").to_numpy()
    known = np.flatnonzero(site != "")
    if not len(known):
        return None
    samples = [mixtures.samples[i] for i in known]
    patients = list(run.cohort["patient"].reindex(samples))
    try:
        return site_shift(
            mixtures.weights[known],
            site[known].tolist(),
            samples,
            patients,
            permutations=999 if len(samples) < 300 else 199,
        )
    except InputError:  # too few sites, or a patient of two
        return None
