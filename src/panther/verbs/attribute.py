"""`panther attribute` and `panther kaplan-meier`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from panther.errors import InputError, note, warn_left_out
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.explain.attribution import Attribution
    from panther.explain.kaplan_meier import SurvivalByPrototype


@verb("attribute", "Look")
def attribute(
    model: p.ModelLike,
    features: p.Features,
    slides: p.SlideImages = None,
    names: p.PrototypeNames = None,
    output: p.RequiredFolder = None,
    *,
    kind: Annotated[Literal["exact", "shapley"] | None, p.option(panel=p.METHOD)] = None,
    pairs: Annotated[int, Field(ge=2, strict=True), p.option(panel=p.METHOD)] = 8,
    seed: p.Seed = 0,
    table: p.TableLike = None,
    split: p.Split = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    level: p.Level = "slide",
    maps: Annotated[bool, p.option(panel=p.PICTURES, negative="--no-maps")] = True,
    max_side: p.MaxSide = 1024,
    slide_mpp: p.SlideMpp = None,
    slide_mpp_table: p.SlideMppTable = None,
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    workers: p.Workers = "auto",
    device: p.Device = "auto",
) -> "Attribution":
    """Show which prototypes (pi, mu, Sigma separately) drive a model's predictions, as numbers and on the slides.

    Parameters
    ----------
    model : Model or path
        A trained model with prototypes, as `panther.train` returns it.
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory.
    slides : path or mapping, optional
        Images of the slides, for the pictures.
    names : path or mapping, optional
        Names of the prototypes: a YAML file, or a dictionary by number.
    output : folder, optional
        Where numbers and pictures are written.
    kind : {"exact", "shapley"}, optional
        How a prediction is shared out: exact (linear heads, the default there) or shapley (elsewhere).
    pairs : int, default=8
        Sampling effort for Shapley values where there are too many prototypes to compute them exactly; larger is more precise and slower.
    seed : int, default=0
        Same seed and input: same result.
    table : path or DataFrame, optional
        Clinical table: which slides are attributed, and which patient each is of.
    split : str, optional
        Part of the table, e.g. "test".
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    level : {"slide", "patient"}
        One prediction per slide, or per patient (requires ``table``).
    maps : bool, default=True
        Draw every slide with coordinates into ``output``.
    max_side : int, default=1024
        Longest side of a picture, pixels.
    slide_mpp, slide_mpp_table
        True resolution of the images, um/px, where their tags are wrong; per slide a CSV with columns wsi, mpp.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    workers, device
        Processes, and where patches are assigned (see :func:`panther.embed_cohort`).

    Returns
    -------
    Attribution
        ``contributions`` (slides or patients, outputs, players), with ``players`` the prototype and statistic of each.

    Examples
    --------
    >>> import panther
    >>> attribution = panther.attribute("model.safetensors", "features/")  # doctest: +SKIP
    >>> attribution.contributions.sum(2) + attribution.baseline  # the outputs themselves  # doctest: +SKIP
    """
    from dataclasses import replace

    from panther.engine import open_work
    from panther.explain.attribution import WRITTEN, attribute_bags, check_attributable
    from panther.explain.attribution.draw import slides_of, write_attribution, write_slides
    from panther.explain.scene import MapSettings, slide_jobs
    from panther.models.model import as_model
    from panther.slides import read_mpp_table
    from panther.storage.bags import Reading
    from panther.storage.clinical import Columns, select_slides
    from panther.store import check_output_folder

    trained = as_model(model)
    check_attributable(trained)
    assert trained.prototypes is not None
    resolutions = {} if slide_mpp_table is None else read_mpp_table(slide_mpp_table)
    drawing = MapSettings(
        trained.method.name, trained.method.options, max_side, slide_mpp=slide_mpp, slide_mpp_table=resolutions
    ).named(names, len(trained.prototypes))
    reading, columns = Reading(encoder_name, allow_mixed_resolution), Columns(slide_column, patient_column, site_column)
    chosen = select_slides(features, table, split, level=level, reading=reading, columns=columns)
    samples = [(ref.sample, slide) for ref in chosen.refs for slide in slides_of(ref, level)]
    jobs = slide_jobs([slide for _, slide in samples], slides) if maps else []
    if output is not None:
        images = [job.image for job in jobs]
        check_output_folder(output, WRITTEN, model, chosen.refs, images, table, names, slide_mpp_table)
    with open_work(workers, chosen.refs, device=device) as work:
        result = attribute_bags(trained, chosen.refs, kind, pairs=pairs, seed=seed, work=work)
        notes, failures = [*chosen.notes, *result.notes], {**chosen.problems, **result.failures}
        result = replace(result, namings=drawing.namings)
        if output is not None:
            files = write_attribution(result, output)
            named = [(name, job) for (name, _), job in zip(samples, jobs, strict=False)]
            pictures, more, failed = write_slides(result, named, trained.prototypes, drawing, output, work)
            result = replace(result, files=(*files, *pictures))
            notes, failures = [*notes, *more], {**failures, **failed}
    note(*notes)
    warn_left_out("Left out of the attribution", failures)
    return replace(result, notes=tuple(notes), failures=failures)


@verb("kaplan-meier", "Look")
def kaplan_meier(
    proportions: Annotated[Any, p.option(text=Path, metavar="FILE")],
    table: p.RequiredTable,
    survival: p.Survival = None,
    *,
    time: p.Time = None,
    event: p.Event = None,
    censorship: p.Censorship = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    names: p.PrototypeNames = None,
    output: p.RequiredFolder = None,
) -> "SurvivalByPrototype":
    """Compare the survival of patients with little, some and much of each prototype: Kaplan-Meier curves and log-rank tests.

    Parameters
    ----------
    proportions : path, DataFrame, EmbeddingTable or AnnData
        Embeddings of `panther embed`, or `pi.csv` of `panther atlas`; or a data frame with columns C0, C1, ... and slides in `slide` or the index.
    table : path or DataFrame
        Clinical table, one row per slide.
    survival : str, optional
        Endpoint os, dss, dfi or pfi; or name its columns.
    time, event, censorship : str, optional
        Columns of the time, and of 1 = event or 1 = censored.
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    names : path or mapping, optional
        Names of the prototypes: a YAML file, or a dictionary by number.
    output : folder, optional
        Where `km.json`, `km.csv` and `km.png` are written.

    Returns
    -------
    SurvivalByPrototype
        Curves of the tertiles of each proportion, log-rank tests with Holm's correction, ``to_frame()`` and ``figure()``.

    Examples
    --------
    >>> import numpy as np, pandas as pd, panther
    >>> slides, pi = [f"s{i}" for i in range(30)], np.random.default_rng(0).dirichlet(np.ones(3), 30)
    >>> proportions = pd.DataFrame(pi, index=slides, columns=["C0", "C1", "C2"])
    >>> table = pd.DataFrame({"slide_id": slides, "os_survival_days": range(1, 31), "os_censorship": [0, 1] * 15})
    >>> km = panther.kaplan_meier(proportions, table, "os")
    >>> km.events, len(km.to_frame())
    (15, 9)
    """
    from dataclasses import replace

    from panther.cohort.load import load_cohort
    from panther.explain.kaplan_meier import WRITTEN, by_patient, compare, write_curves
    from panther.explain.names import as_names
    from panther.explain.shares import as_proportions
    from panther.storage.clinical import Columns
    from panther.store import check_output_folder

    if not any((survival, time, event, censorship)):
        raise InputError("survival: is missing, expected an endpoint, or its columns as `time` and `event`")
    pi = as_proportions(proportions)
    prototype_names = as_names(names, pi.pi.shape[1])
    if output is not None:
        check_output_folder(output, WRITTEN, proportions, table, names)
    columns = Columns(slide_column, patient_column, site_column)
    cohort = load_cohort(table, survival=survival, time=time, event=event, censorship=censorship, columns=columns)
    result = replace(compare(by_patient(pi, cohort), prototype_names), cohort=tuple(cohort.report.sentences()))
    if output is not None:
        result = replace(result, files=tuple(write_curves(result, output)))
    note(*result.notes)
    return result
