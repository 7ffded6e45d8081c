"""Attributions on disk: numbers as JSON and CSV, the cohort's picture, and one picture per slide."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from panther.charts.style import save
from panther.engine import HERE, Work, stream
from panther.explain.attribution.charts import draw_cohort, mean_contributions
from panther.explain.attribution.draw import Shown, draw_attribution, outputs_to_show
from panther.explain.attribution.model import Attribution
from panther.explain.jobs import SlideJob
from panther.explain.maps import map_slide
from panther.explain.names import colours
from panther.explain.scene import MapSettings
from panther.storage.files import write_json
from panther.storage.tables import write_spreadsheet
from panther.types import Prototypes
from panther.version import __version__

FORMAT = 1


def write_attribution(found: Attribution, folder: Path) -> list[Path]:
    """Write `attribution.json`, `attribution.csv` and `cohort.png`."""
    files = [folder / "attribution.json", folder / "attribution.csv", folder / "cohort.png"]
    write_json(files[0], to_dict(found))
    write_spreadsheet(files[1], ("sample", "output", "prototype", "statistic", "contribution"), _rows(found))
    save(draw_cohort(found), files[2], dpi=150)
    return files


def to_dict(found: Attribution) -> dict[str, Any]:
    """Attribution of the cohort as plain values; those of each slide or patient are in the CSV."""
    return {
        "format": FORMAT,
        "version": __version__,
        "prototypes_hash": found.prototypes_hash,
        "kind": found.kind,
        "outputs": list(found.outputs),
        "samples": list(found.samples),
        "prototypes": [
            {"prototype": c, "name": found.names.get(c), "colour": colour}
            for c, colour in enumerate(colours(found.namings, found.n_prototypes))
        ],
        "cohort": mean_contributions(found),
        "baseline": {output: float(value) for output, value in zip(found.outputs, found.baseline, strict=True)},
        "gap": found.gap,
        "sampling_error": found.sampling_error,
        "notes": list(found.notes),
    }


def _rows(found: Attribution) -> Iterator[tuple[Any, ...]]:
    for sample, contributions in zip(found.samples, found.contributions, strict=True):
        for output, shares in zip(found.outputs, contributions, strict=True):
            for (prototype, statistic), share in zip(found.players, shares.tolist(), strict=True):
                yield sample, output, prototype, statistic, share


class SlidePictures(NamedTuple):
    """What became of the slides' pictures."""

    files: list[Path]
    notes: list[str]
    failures: dict[str, str]


def write_slides(
    found: Attribution,
    jobs: Sequence[tuple[str, SlideJob]],
    prototypes: Prototypes,
    settings: MapSettings,
    folder: Path,
    work: Work = HERE,
) -> SlidePictures:
    """Write `SLIDE.attribution.png` of every slide with coordinates.

    ``jobs`` are the slides, each with the name of the slide or patient that was attributed: slides of a patient share its contributions.
    """
    row = {name: number for number, name in enumerate(found.samples)}
    wanted = [(job, outputs_to_show(found, row[name])) for name, job in jobs if name in row]
    on = replace(settings, device=work.device)
    function = partial(_write_slide, prototypes=prototypes, settings=on, folder=folder)
    failures: dict[str, str] = {}
    files, without = [], []
    for index, file in stream(function, wanted, "drawing", work, failures):
        if file is None:
            without.append(wanted[index][0].sample)
        else:
            files.append(file)
    notes = []
    unseen = [job.sample for job, _ in wanted if job.notes]  # all that a job can lack here is its image
    if unseen:
        notes.append(
            f"{len(unseen)} slides have no image of their name and are drawn on their coordinates, e.g. {unseen[0]}."
        )
    if without:
        notes.append(f"{len(without)} slides have no coordinates and no picture, e.g. {without[0]}.")
    return SlidePictures(files, notes, failures)


def _write_slide(
    work: tuple[SlideJob, Sequence[Shown]], *, prototypes: Prototypes, settings: MapSettings, folder: Path
) -> Path | None:
    job, outputs = work
    bag = job.ref.open()
    if bag.places is None:
        return None
    path = folder / f"{bag.slide_id}.attribution.png"
    save(draw_attribution(map_slide(bag, prototypes, settings, job.image), outputs), path)
    return path
