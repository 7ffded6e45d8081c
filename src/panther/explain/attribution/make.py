"""What drives a model's predictions, from its file and features to numbers and pictures."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from panther.engine import HERE, Work
from panther.explain.attribution.files import write_attribution, write_slides
from panther.explain.attribution.model import Attribution, AttributionSettings, attribute_bags, check_attributable
from panther.explain.jobs import Images, slide_jobs
from panther.explain.names import Names
from panther.explain.scene import MapSettings
from panther.models.model import Model
from panther.models.model_file import as_model
from panther.storage.bags import BagRef, BagsLike
from panther.storage.clinical import USUAL, ColumnsLike, select_slides
from panther.storage.inputs import check_output_folder
from panther.storage.names import as_text
from panther.types import Openable

if TYPE_CHECKING:
    import pandas as pd

WRITTEN = ("attribution.json", "attribution.csv", "cohort.png", "*.attribution.png")  # patterns


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
