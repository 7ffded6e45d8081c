"""Attribution of a model's predictions to its prototypes: from its file and features to numbers, tables and pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from panther.charts.style import save
from panther.engine import HERE, Work, stream
from panther.explain.attribution.draw import Shown, draw_attribution, draw_cohort, mean_contributions, outputs_to_show
from panther.explain.attribution.model import Attribution, AttributionSettings, attribute_bags, check_attributable
from panther.explain.maps import map_slide
from panther.explain.names import Names, colours
from panther.explain.scene import Images, MapSettings, SlideJob, slide_jobs
from panther.models.model import Model, as_model
from panther.storage.bags import BagRef, BagsLike
from panther.storage.clinical import USUAL, ColumnsLike, select_slides
from panther.storage.files import write_json
from panther.storage.names import as_text
from panther.storage.tables import write_spreadsheet
from panther.store import check_output_folder
from panther.types import Openable, Prototypes
from panther.version import __version__

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
WRITTEN = ("attribution.json", "attribution.csv", "cohort.png", "*.attribution.png")  # patterns


def write_attribution(attribution: Attribution, folder: Path) -> list[Path]:
    """Write `attribution.json`, `attribution.csv` and `cohort.png`."""
    files = [folder / "attribution.json", folder / "attribution.csv", folder / "cohort.png"]
    write_json(files[0], to_dict(attribution))
    write_spreadsheet(files[1], ("sample", "output", "prototype", "statistic", "contribution"), _rows(attribution))
    save(draw_cohort(attribution), files[2], dpi=150)
    return files


def to_dict(attribution: Attribution) -> dict[str, Any]:
    """Attribution of the cohort as plain values; those of each slide or patient are in the CSV."""
    return {
        "format": FORMAT,
        "version": __version__,
        "prototypes_hash": attribution.prototypes_hash,
        "kind": attribution.kind,
        "outputs": list(attribution.outputs),
        "samples": list(attribution.samples),
        "prototypes": [
            {"prototype": c, "name": attribution.names.get(c), "colour": colour}
            for c, colour in enumerate(colours(attribution.namings, attribution.n_prototypes))
        ],
        "cohort": mean_contributions(attribution),
        "baseline": {
            output: float(value) for output, value in zip(attribution.outputs, attribution.baseline, strict=True)
        },
        "gap": attribution.gap,
        "sampling_error": attribution.sampling_error,
        "notes": list(attribution.notes),
    }


def _rows(attribution: Attribution) -> Iterator[tuple[Any, ...]]:
    for sample, contributions in zip(attribution.samples, attribution.contributions, strict=True):
        for output, shares in zip(attribution.outputs, contributions, strict=True):
            for (prototype, statistic), share in zip(attribution.players, shares.tolist(), strict=True):
                yield sample, output, prototype, statistic, share


class SlidePictures(NamedTuple):
    """What became of the slides' pictures."""

    files: list[Path]
    notes: list[str]
    failures: dict[str, str]


def write_slides(
    attribution: Attribution,
    jobs: Sequence[tuple[str, SlideJob]],
    prototypes: Prototypes,
    settings: MapSettings,
    folder: Path,
    work: Work = HERE,
) -> SlidePictures:
    """Write `SLIDE.attribution.png` of every slide with coordinates.

    ``jobs`` are the slides, each with the name of the slide or patient that was attributed: slides of a patient share its contributions.
    """
    row = {name: number for number, name in enumerate(attribution.samples)}
    wanted = [(job, outputs_to_show(attribution, row[name])) for name, job in jobs if name in row]
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


def attribute(
    model: Model | Path | str,
    features: BagsLike,
    settings: AttributionSettings | None = None,
    *,
    table: "Path | str | pd.DataFrame | None" = None,
    split: str | None = None,
    level: Literal["slide", "patient"] = "slide",
    columns: ColumnsLike = USUAL,
    slides: Images = None,
    names: Names = None,
    output: Path | str | None = None,
    pictures: MapSettings | None = None,
    maps: bool = True,
    work: Work = HERE,
) -> Attribution:
    """Share out a model's predictions among its prototypes and their statistics.

    Parameters
    ----------
    model : Model or path
        A trained model with prototypes, as `panther.train` returns it.
    features : folder, file or list of bags
        Features, in any form that `as_bags` takes.
    settings : AttributionSettings, optional
        How a prediction is shared out: exactly for linear heads, by Shapley values elsewhere.
    table : path or DataFrame, optional
        Clinical table that says which slides are meant, and whose they are.
    split : str, optional
        Part of the table, e.g. "test".
    level : {"slide", "patient"}
        One prediction per slide, or per patient (needs ``table``).
    columns : Columns or dict
        Names of the table's columns, where they are not the usual ones.
    slides : path or mapping, optional
        Images of the slides, for the pictures.
    names : path or mapping, optional
        Names of the prototypes.
    output : folder, optional
        Where numbers and pictures are written.
    pictures : MapSettings, optional
        Size of the slides' pictures and resolution of their images.
    maps : bool
        Whether every slide with coordinates gets a picture in ``output``.
    work : Work
        How the work is run.

    Returns
    -------
    Attribution
        ``contributions`` (slides or patients, outputs, players), with ``players`` saying which prototype and statistic each one is.

    Examples
    --------
    >>> import panther
    >>> found = panther.attribute("model.safetensors", "features/")  # doctest: +SKIP
    >>> found.contributions.sum(2) + found.baseline  # the outputs themselves  # doctest: +SKIP
    """
    trained = as_model(model)
    check_attributable(trained)
    assert trained.prototypes is not None
    drawing = replace(
        pictures or MapSettings(max_side=1024), method=trained.method.name, options=trained.method.options
    )
    drawing = drawing.named(names, len(trained.prototypes))
    chosen = select_slides(features, table, split, level=level, columns=columns)
    own = [(ref.sample, slide) for ref in chosen.refs for slide in _slides(ref, level)]
    jobs = slide_jobs([slide for _, slide in own], slides) if maps else []
    folder = None if output is None else Path(output)
    if folder is not None:
        images = [job.image for job in jobs]
        check_output_folder(folder, WRITTEN, model, chosen.refs, images, table, names)
    found = attribute_bags(trained, chosen.refs, settings or AttributionSettings(), work=work)
    found = replace(found, names=drawing.names, namings=drawing.namings)
    files: list[Path] = []
    notes, failures = [*chosen.notes, *found.notes], {**chosen.problems, **found.failures}
    if folder is not None:
        files = write_attribution(found, folder)
        named = [(name, job) for (name, _), job in zip(own, jobs, strict=False)]
        drawn = write_slides(found, named, trained.prototypes, drawing, folder, work)
        files, notes, failures = [*files, *drawn.files], [*notes, *drawn.notes], {**failures, **drawn.failures}
    return replace(found, notes=tuple(notes), failures=failures, files=tuple(files))


def _slides(ref: Openable, level: str) -> list[Openable]:
    """Slides of a bag: of a patient's, one for each of its files."""
    if level == "slide" or not isinstance(ref, BagRef):
        return [ref]
    return [BagRef(as_text(file.stem) or ref.sample, (file,), ref.reading) for file in ref.files]
