"""`panther prototypes`, `choose-c`, `compare-prototypes` and `shift`."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from panther.errors import InputError, note, warn_left_out
from panther.verbs import Text, verb
from panther.verbs import parameters as p

if TYPE_CHECKING:
    from panther.prototypes.choose import Choice
    from panther.prototypes.compare import Comparison
    from panther.types import Prototypes

PANEL = "Prototypes and embeddings"
Normalise = Annotated[bool, p.option("L2-normalise features first.", panel=p.PROTOTYPES)]


@verb("prototypes", PANEL)
def fit_prototypes(
    features: p.Features,
    n_prototypes: Annotated[int | Literal["auto"], p.option(panel=p.PROTOTYPES, short="-C")] = 16,
    *,
    numbers: Annotated[p.Range, p.option("With `-C auto`: smallest and largest number to compare.")] = (2, 64),
    table: p.TableLike = None,
    split: p.Split = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    seed: p.Seed = 0,
    sample: Annotated[int, p.option(panel=p.PROTOTYPES)] = 20_000,
    share: Annotated[Literal["proportional", "equal"], p.option(panel=p.PROTOTYPES)] = "proportional",
    restarts: Annotated[int, p.option(panel=p.PROTOTYPES)] = 5,
    passes: Annotated[int, p.option(panel=p.PROTOTYPES)] = 3,
    normalise: Normalise = False,
    pca: Annotated[int | None, p.option(panel=p.PROTOTYPES)] = None,
    centre: Annotated[Literal["slide", "site"] | None, p.option(panel=p.PROTOTYPES)] = None,
    start: Annotated[Any, p.option(panel=p.PROTOTYPES, name="--from", text=Path, metavar="PROTOTYPES")] = None,
    memory_gb: Annotated[float, p.option(panel=p.PROTOTYPES, name="--memory")] = 4.0,
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    output: p.RequiredFile = None,
    workers: p.Workers = "auto",
    device: p.Device = "auto",
) -> "Prototypes":
    """Fit prototypes by K-means on the patches of the training slides.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory.
    n_prototypes : int or "auto", default=16
        Number of prototypes C; "auto" is what `panther choose-c` recommends.
    numbers : (int, int)
        Smallest and largest number to be compared for "auto".
    table : path or DataFrame, optional
        Clinical table: only its slides are used.
    split : str, optional
        Part of the table, e.g. "train".
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    seed : int
        Same seed and features: same prototypes.
    sample
        Patches for k-means++ and its restarts.
    share
        Patches per slide in the sample: in proportion to its size, or equally many.
    restarts
        Restarts of K-means on the sample.
    passes : int
        K-means passes over all patches, after the fit on the sample.
    normalise
        L2-normalise features first.
    pca
        Number of dimensions that features are reduced to first.
    centre : str, optional
        Subtract the mean of each "slide", or of each "site" (requires a table), first.
    start : Prototypes or path, optional
        Prototypes to start from, in their number, order and projection: a file, a folder of `panther share`, or ORG/NAME on the Hugging Face
        hub. With ``passes=0`` they stay as they are, and only their shares are measured.
    memory_gb : float
        Memory that the sample may take, GB.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    output
        File to write, `.safetensors`.
    workers, device
        Processes and device, as of :func:`panther.embed_cohort`.

    Returns
    -------
    Prototypes
        The most common first. Slides that cannot be read are left out, with a warning.

    Examples
    --------
    >>> import numpy as np
    >>> from panther import fit_prototypes
    >>> tissues = np.random.default_rng(0).normal(size=(3, 8)).astype("float32")
    >>> bags = [np.repeat(tissues, 50, axis=0) for _ in range(4)]
    >>> fit_prototypes(bags, n_prototypes=3).occupancy.tolist()
    [200.0, 200.0, 200.0]
    """
    from panther.engine import open_work
    from panther.prototypes import KMeansSettings, fit_bags
    from panther.prototypes.centre import sites_by
    from panther.storage.bags import Reading
    from panther.storage.clinical import Columns, select_slides
    from panther.storage.prototypes import as_prototypes, save_prototypes
    from panther.store import check_output

    count = 16 if n_prototypes == "auto" else n_prototypes
    if start is not None:
        start = as_prototypes(start)
        if n_prototypes not in (16, len(start)):
            raise InputError(f"n_prototypes: found {n_prototypes}, expected {len(start)}, the number in `--from`")
        if normalise or pca or centre or start.alignment is not None:
            raise InputError("start: its projection is used, without centring; expected none of normalise, pca, centre")
        count, normalise = len(start), start.projection.normalise
        pca = None if start.projection.basis is None else start.dim
    settings = KMeansSettings(count, seed, sample, share, restarts, passes, normalise, pca, memory_gb, centre)
    reading, columns = Reading(encoder_name, allow_mixed_resolution), Columns(slide_column, patient_column, site_column)
    chosen = select_slides(features, table, split, reading=reading, columns=columns, training=True)
    if output is not None:
        check_output(output, chosen.refs, table)
    sites = sites_by(chosen.table) if centre == "site" else None
    notes = list(chosen.notes)
    with open_work(workers, chosen.refs, device=device) as work:
        if n_prototypes == "auto":
            from panther.prototypes.choose import compare_numbers

            coarse = replace(settings, restarts=3)
            choice = compare_numbers(chosen.refs, numbers, coarse, patients=chosen.patients(), work=work)
            settings = replace(settings, n_prototypes=choice.recommended)
            notes += [choice.sentence, *choice.remarks]
        fitted = fit_bags(chosen.refs, settings, start=start, sites=sites, work=work)
    checkpoints = str(fitted.prototypes.settings.get("checkpoint", "")).split()
    if len(checkpoints) > 1:
        notes.append(f"the features come from {len(checkpoints)} checkpoints of the encoder: {', '.join(checkpoints)}")
    if output is not None:
        save_prototypes(fitted.prototypes, output)
    note(*notes, *(f"{name}: zero patches" for name in fitted.empty), *fitted.prototypes.diagnostics["warnings"])
    warn_left_out("Left out of the prototypes", {**chosen.problems, **fitted.failures})
    return fitted.prototypes


@verb("choose-c", PANEL)
def choose_c(
    features: p.Features,
    numbers: p.Range = (2, 64),
    *,
    table: p.TableLike = None,
    split: p.Split = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    seed: p.Seed = 0,
    sample: Annotated[int, p.option(panel=p.PROTOTYPES)] = 20_000,
    share: Annotated[Literal["proportional", "equal"], p.option(panel=p.PROTOTYPES)] = "proportional",
    restarts: Annotated[int, p.option(panel=p.PROTOTYPES)] = 3,
    normalise: Normalise = False,
    plot: p.Plot = None,
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    output: p.OutputFile = None,
    workers: p.Workers = "auto",
    device: p.Device = "auto",
) -> "Choice":
    """Recommend a number of prototypes: the largest found again in both halves of the cohort, unless fewer explain new slides as well.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory.
    numbers : (int, int)
        Smallest and largest number to be compared.
    table : path or DataFrame, optional
        Clinical table: only its slides are used, and halves are halves of its patients.
    split : str, optional
        Part of the table, e.g. "train".
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    seed : int
        Same seed and features: same choice.
    sample
        Patches to compare on.
    share
        Patches per slide in the sample: in proportion to its size, or equally many.
    restarts
        Restarts of K-means.
    normalise : bool
        L2-normalise features first.
    plot
        Picture of the criteria to write (.png, .svg or .pdf).
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    output
        Table of the candidates to write, .csv.
    workers, device
        Processes and device, as of :func:`panther.embed_cohort`.

    Returns
    -------
    Choice
        The `recommended` number, a `sentence` with the reason, the `candidates` with their criteria, and `failures`.

    Examples
    --------
    >>> import numpy as np
    >>> from panther import choose_c
    >>> rng = np.random.default_rng(0)
    >>> tissues = rng.normal(size=(4, 1, 16)) * 3
    >>> bags = [(tissues + rng.normal(size=(4, 40, 16))).reshape(-1, 16).astype("float32") for _ in range(6)]
    >>> choose_c(bags, (2, 8)).recommended
    4
    """
    from panther.engine import open_work
    from panther.prototypes import KMeansSettings
    from panther.prototypes.choose import compare_numbers
    from panther.storage.bags import Reading
    from panther.storage.clinical import Columns, select_slides
    from panther.storage.tables import write_spreadsheet
    from panther.store import check_output

    settings = KMeansSettings(seed=seed, sample=sample, share=share, restarts=restarts, normalise=normalise)
    reading, columns = Reading(encoder_name, allow_mixed_resolution), Columns(slide_column, patient_column, site_column)
    chosen = select_slides(features, table, split, reading=reading, columns=columns, training=True)
    if plot is not None:
        from panther.charts.style import check_picture

        check_picture(plot, chosen.refs, table)
    if output is not None:
        check_output(output, chosen.refs, table)
    with open_work(workers, chosen.refs, device=device) as work:
        choice = compare_numbers(chosen.refs, numbers, settings, patients=chosen.patients(), work=work)
    choice = replace(choice, failures={**chosen.problems, **choice.failures})
    if plot is not None:
        from panther.charts.prototypes import choice_of_c
        from panther.charts.style import save
        from panther.charts.to_matplotlib import draw

        save(draw([choice_of_c(choice)]), plot, dpi=150)
    if output is not None:
        rows = [{**asdict(one), "recommended": one.n_prototypes == choice.recommended} for one in choice.candidates]
        write_spreadsheet(output, list(rows[0]), [list(row.values()) for row in rows])
    note(*chosen.notes)
    warn_left_out("Left out of the comparison", choice.failures)
    return choice


@verb("compare-prototypes", PANEL)
def compare_prototypes(
    first: Annotated[Any, p.option(text=Path, metavar="A")],
    second: Annotated[Any, p.option(text=Path, metavar="B")],
    *,
    plot: p.Plot = None,
    allow_mixed_resolution: p.MixedResolution = False,
) -> "Comparison":
    """Match two sets of prototypes: which are the same, which appeared, vanished, split.

    Parameters
    ----------
    first : Prototypes or path
        Prototype file.
    second : Prototypes or path
        Another one, of the same encoder.
    plot
        Picture to write (.png, .svg or .pdf).
    allow_mixed_resolution : bool
        Whether prototypes of patches of different resolutions are compared.

    Returns
    -------
    Comparison
        The matched pairs with their distances, and the prototypes that are the `same`, `appeared`, `vanished`, `split` or `merged`.

    Examples
    --------
    >>> import torch, panther
    >>> a = panther.Prototypes(torch.eye(3))
    >>> panther.compare_prototypes(a, panther.Prototypes(torch.eye(3).flip(0))).same
    ((0, 2), (1, 1), (2, 0))
    """
    from panther.prototypes.compare import compare
    from panther.storage.prototypes import as_prototypes

    if plot is not None:
        from panther.charts.style import check_picture

        check_picture(plot, first, second)
    a, b = as_prototypes(first), as_prototypes(second)
    comparison = compare(a, b, allow_mixed_resolution=allow_mixed_resolution)
    if plot is not None:
        from panther.charts.prototypes import comparison as chart_of
        from panther.charts.style import save

        names = (one.stem if isinstance(one, Path) else name for one, name in ((first, "A"), (second, "B")))
        save(chart_of(comparison, *names).figure(), plot, dpi=150)
    return comparison


@verb("shift", PANEL)
def shift(
    embeddings: Annotated[Path, p.option(metavar="EMBEDDINGS")],
    *,
    site_column: p.SiteColumn = None,
    patient_column: p.PatientColumn = None,
    label: p.Label = None,
    against: Annotated[Path | None, p.option(panel=p.SLIDES)] = None,
    permutations: Annotated[p.Count, p.option(panel=p.RUNNING)] = 999,
    seed: p.Seed = 0,
) -> Text:
    """Measure how well embeddings predict the site (and a label), and list slides that collapse into one prototype.

    Parameters
    ----------
    embeddings : path
        Embeddings with proportions, .h5ad or .zarr.
    site_column, patient_column : str, optional
        Columns of the embeddings, by default `tissue_source_site` and `case_id`; without patients samples count by themselves.
    label : str, optional
        Column of a label to be predicted beside the site.
    against : path, optional
        Other embeddings of the same slides to compare with, e.g. before centring.
    permutations : int
        Permutations of the sites for the test.
    seed : int
        Same seed and input: same result.

    Returns
    -------
    Text
        Lines for people, and the numbers in `values`.

    Examples
    --------
    >>> panther.shift("slides.h5ad", label="subtype").values["alarm"]  # doctest: +SKIP
    False
    """
    from panther.errors import error_context
    from panther.evaluation.shift import changes, patients_of, read_site_and_label, site_shift
    from panther.storage.embeddings import read_weights

    site, patient = site_column or "tissue_source_site", patient_column or "case_id"
    samples, weights, columns = read_weights(embeddings, site, patient)
    how = {"permutations": permutations, "seed": seed}
    with error_context(embeddings):
        measured = site_shift(weights, columns[site], samples, columns.get(patient), **how)
    how["permutations"] = min(permutations, 199)
    names = {"site": site, "patient": patient, "label": label}
    patients = patients_of(embeddings, names, None if against is None else patients_of(against, names))
    with error_context(embeddings if against is None else f"{embeddings}, patients that are in {against} too"):
        now = read_site_and_label(patients.x, patients.sites, patients.labels, **how)
    values = {**asdict(measured), "alarm": measured.alarm, "embedding": asdict(now)}
    sites = ", ".join(f"{name} ({n})" for name, n in measured.sites.items())
    lines = [measured.sentence, *now.sentences(label), f"Sites: {sites}"]
    if against is not None:
        others = patients_of(against, names, patients)
        with error_context(against):
            before = read_site_and_label(others.x, others.sites, others.labels, **how)
        values["against"] = asdict(before)
        lines += [f"Against {against}, of the same {len(patients.names)} patients:", *changes(before, now, label)]
    if measured.left_out:
        note(f"too small to judge: {', '.join(f'{name} ({n})' for name, n in measured.left_out.items())}")
    return Text(lines, values)
