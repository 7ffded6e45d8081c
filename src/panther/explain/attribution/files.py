"""Attributions on disk: numbers as JSON and CSV, the cohort's picture, and one picture a slide."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from panther.execution import HERE, Work, stream
from panther.explain import draw, palette
from panther.explain.attribution.draw import Shown, draw_attribution, draw_cohort, outputs_to_show
from panther.explain.attribution.model import Attribution
from panther.explain.jobs import SlideJob
from panther.explain.maps import map_slide
from panther.explain.scene import MapSettings
from panther.storage.json_files import write_json
from panther.storage.tables import write_spreadsheet
from panther.types import Openable, Prototypes
from panther.version import __version__

FORMAT = 1


def write_attribution(found: Attribution, names: Mapping[int, str], folder: Path) -> list[Path]:
    """Write `attribution.json`, `attribution.csv` and `cohort.png`."""
    files = [folder / "attribution.json", folder / "attribution.csv", folder / "cohort.png"]
    write_json(files[0], described(found, names))
    write_spreadsheet(files[1], ("sample", "output", "prototype", "statistic", "contribution"), _rows(found))
    draw.save(draw_cohort(found, names), files[2], dpi=150)
    return files


def described(found: Attribution, names: Mapping[int, str]) -> dict[str, Any]:
    """Attribution of the cohort as plain values; those of the samples are in the CSV."""
    mean, size = found.contributions.mean(0), abs(found.contributions).mean(0)  # (K, P) each
    return {
        "format": FORMAT,
        "version": __version__,
        "prototypes_hash": found.prototypes_hash,
        "kind": found.kind,
        "outputs": list(found.outputs),
        "samples": list(found.samples),
        "prototypes": [
            {"prototype": c, "name": names.get(c), "colour": palette.colour(c)} for c in range(found.n_prototypes)
        ],
        "cohort": [
            {
                "output": output,
                "prototype": prototype,
                "statistic": statistic,
                "mean": float(mean[k, p]),
                "mean_absolute": float(size[k, p]),
            }
            for k, output in enumerate(found.outputs)
            for p, (prototype, statistic) in enumerate(found.players)
        ],
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


class Maps(NamedTuple):
    """What became of the slides' pictures."""

    files: list[Path]
    failures: dict[str, str]
    notes: list[str]


def write_slides(
    found: Attribution,
    samples: Sequence[Openable],
    jobs: Mapping[Path, SlideJob],
    how: tuple[Prototypes, MapSettings],
    folder: Path,
    work: Work = HERE,
) -> Maps:
    """Write `SLIDE.attribution.png` of every slide with coordinates; the slides of a patient share the patient's contributions.

    ``jobs`` say for each feature file which image belongs to it; ``how`` are the prototypes and settings of the model.
    """
    row = {sample: number for number, sample in enumerate(found.samples)}
    wanted = [
        (jobs[path], outputs_to_show(found, row[ref.sample]))
        for ref in samples
        if ref.sample in row
        for path in ref.files
    ]
    files: list[Path] = []
    failures: dict[str, str] = {}
    without: list[str] = []
    for index, file in stream(partial(_write_slide, how=how, folder=folder), wanted, "drawing", work, failures):
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
    return Maps(files, failures, notes)


def _write_slide(
    work: tuple[SlideJob, Sequence[Shown]], *, how: tuple[Prototypes, MapSettings], folder: Path
) -> Path | None:
    (job, outputs), (prototypes, settings) = work, how
    bag = job.ref.open()
    if bag.places is None:
        return None
    path = folder / f"{bag.slide_id}.attribution.png"
    draw.save(draw_attribution(map_slide(bag, prototypes, settings, job.image), outputs), path)
    return path
