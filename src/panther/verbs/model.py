"""`panther train` and `panther predict`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from panther.errors import InputError, note, warn_left_out
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.models.model import Model
    from panther.models.predict import Predictions

PANEL = "Predict and compare"


@verb("train", PANEL)
def train(
    features: p.Features,
    table: p.RequiredTable,
    *,
    label: p.Label = None,
    survival: p.Survival = None,
    time: p.Time = None,
    event: p.Event = None,
    censorship: p.Censorship = None,
    value: p.Value = None,
    labels: p.Labels = None,
    level: p.Level = "patient",
    split: p.Split = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    method: Annotated[
        str, p.option(panel=p.METHOD, completer=p.names_of("panther.aggregators:aggregators", "panther.mil:networks"))
    ] = "panther",
    covariates: Annotated[list[Any] | None, p.option(panel=p.OUTCOME, metavar="COLUMN")] = None,
    head: Annotated[str, p.option(panel=p.METHOD, completer=p.names_of("panther.models.heads:head_names"))] = "probe",
    loss: Annotated[str | None, p.option(panel=p.METHOD, completer=p.names_of("panther.models.tasks:tasks"))] = None,
    prototypes: p.PrototypesLike = None,
    n_prototypes: Annotated[p.Count | None, p.option(panel=p.PROTOTYPES, short="-C")] = None,
    epochs: Annotated[p.Count | None, p.option(panel=p.METHOD)] = None,
    calibrate: Annotated[int | None, Field(ge=0, le=100, strict=True), p.option(panel=p.METHOD)] = None,
    seed: p.Seed = 1,
    output: p.RequiredFile = None,
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    workers: p.Workers = "auto",
    device: p.Device = "auto",
    **settings: Any,
) -> "Model":
    """Train one final model on all samples of the table, or of one part of it, and save it as one file.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory (see :func:`panther.list_bags`).
    table : path or DataFrame
        Clinical table with one row per slide.
    label : str, optional
        Column of the label, for a classifier.
    survival : str, optional
        Endpoint `os`, `dss`, `dfi` or `pfi`, for a survival model.
    time, event, censorship : str, optional
        Columns of the follow-up: the time, and 1 where the event happened (`event`) or where the patient was censored (`censorship`).
    value : str, optional
        Column of numbers, for a regression.
    labels : list of str, optional
        Columns of several labels, each 0 or 1, empty where unknown.
    level : str, default="patient"
        One prediction per `patient` (the slides of a patient are one bag) or per `slide`.
    split : str, optional
        Part of the table to train on, e.g. `train`.
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    method : str, default="panther"
        A method of `panther embed`, or a network: abmil, transmil, dsmil, attnmisl, ilra.
    covariates : list of str, optional
        Columns that the model reads beside the embedding, e.g. age.
    head : str, default="probe"
        `probe` (a convex model with inner cross-validation: logistic regression, ridge Cox, ridge regression, proportional odds), `linear`,
        `mlp`, `structured`, `paper-classification`, `paper-survival`; networks have a head.
    loss : str, optional
        `cross-entropy` or `ordinal`; `cox`, `nll` or `ranking`; `mse`; `binary-cross-entropy`.
    prototypes : Prototypes or path, optional
        Instead of fitting new ones.
    n_prototypes : int, optional
        Number of new prototypes, 16 by default.
    epochs : int, optional
        Epochs, instead of the paper's.
    calibrate : int, optional
        Folds for calibrating probabilities (or intervals) on held-out patients. Default 5; 0: none (default for networks, which train slowly).
    seed : int, default=1
        Same seed and input: same model.
    output : path, optional
        File to write, `.safetensors`.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    workers, device
        Processes that read features, and where networks are trained (see :func:`panther.embed_cohort`).
    **settings
        Settings of the method, e.g. ``preset="calibrated"``.

    Returns
    -------
    Model
        For :func:`panther.predict`, maps and attribution. Its `failures` lists the samples that were left out, with reasons; there is also a
        warning.

    Examples
    --------
    >>> import numpy as np, pandas as pd, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {f"S{i}": rng.normal(i % 2, 1, (30, 4)) for i in range(12)}
    >>> table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    >>> model = panther.train(bags, table, label="subtype", n_prototypes=2)
    >>> panther.predict(model, bags).table.columns.tolist()[:4]
    ['sample', 'predicted', 'probability_a', 'probability_b']
    """
    from panther.cohort.covariates import as_covariate
    from panther.cohort.load import make_cohort
    from panther.cohort.spec import TaskSpec, checked
    from panther.engine import open_work
    from panther.models.fitting import Clinic, check_prototypes, make_recipe, train_model
    from panther.models.model import save_model
    from panther.prototypes import KMeansSettings
    from panther.prototypes.centre import add_sites
    from panther.storage.bags import Reading, as_bags
    from panther.storage.clinical import Columns, read_clinical, refuse_whole_split, without_features
    from panther.store import check_output

    follow_up = {"survival": survival, "time": time, "event": event, "censorship": censorship}
    several = tuple(labels) if labels else None
    task = checked(TaskSpec, label=label, value=value, labels=several, level=level, **follow_up)
    recipe = make_recipe(task, method, settings, head, loss, KMeansSettings(n_prototypes=n_prototypes or 16, seed=seed))
    fitted = None if prototypes is None else check_prototypes(prototypes, n_prototypes, recipe)
    listing = as_bags(features, reading=Reading(encoder_name, allow_mixed_resolution))
    if output is not None:
        check_output(output, listing.refs, table, prototypes)
    refuse_whole_split(table, split)
    clinical = read_clinical(table, split, Columns(slide_column, patient_column, site_column))
    clinical.refuse_shared_patients()
    cohort = make_cohort(clinical, task, [ref.sample for ref in listing.refs])
    clinic, notes = None, []
    if covariates:
        clinic = Clinic(cohort, [as_covariate(column) for column in covariates])
        notes = clinic.check(recipe)
    bags = cohort.join_bags(listing)
    with open_work(workers, bags, device=device) as work:
        changes = {"seed": seed, "device": work.device} | ({} if epochs is None else {"epochs": epochs})
        recipe = replace(recipe, training=recipe.training.changed(changes))
        if fitted is not None:
            fitted, more = add_sites(fitted, bags, clinical, work=work)
            notes = [*notes, *more]
        patients = {sample.id: sample.patient for sample in cohort.samples}
        model, failures = train_model(
            bags, cohort.target, recipe, fitted, patients=patients, clinic=clinic, calibrate=calibrate, work=work
        )
    model.network.cpu()  # as from its file, wherever it was trained
    report = replace(cohort.report, notes=(*cohort.report.notes, *notes))
    missing = {slide: without_features(slide, report.source) for slide in report.missing_features}
    model = replace(model, report=report, failures={**missing, **listing.problems, **failures})
    if output is not None:
        save_model(model, output)
    note(*model.uncertainty.reasons)
    warn_left_out("Left out of the training", model.failures)
    return model


@verb("predict", PANEL)
def predict(
    model: p.ModelLike,
    features: Annotated[p.Features, p.POSITIONAL] = None,
    table: p.TableLike = None,
    *,
    embeddings: Annotated[
        list[str] | dict[str, Any] | None,
        p.option("Slide vectors used in addition to the features, as NAME=PATH.", panel=p.SLIDES, metavar="NAME=PATH"),
    ] = None,
    split: p.Split = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    level: Annotated[Literal["slide", "patient"] | None, p.option(panel=p.SLIDES)] = None,
    label: p.Label = None,
    survival: p.Survival = None,
    time: p.Time = None,
    event: p.Event = None,
    censorship: p.Censorship = None,
    value: p.Value = None,
    labels: p.Labels = None,
    output: p.RequiredFile = None,
    metrics: Annotated[Path | None, p.option(metavar="FILE")] = None,
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    workers: p.Workers = "auto",
) -> "Predictions":
    """Predict new slides with their uncertainty, and score the predictions where the table has the outcome.

    Features of another encoder or resolution are refused. Outcome columns have the same names as in training unless given here.

    Parameters
    ----------
    model : Model or path
        From :func:`panther.train`, or its file.
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory; of the encoder and resolution that the model was trained on. Of a model of slide vectors
        alone, their file or folder.
    table : path or DataFrame, optional
        Clinical table: only its slides are predicted, its patients group them, and its outcome is put beside the predictions.
    embeddings : mapping, optional
        Slide vectors used in addition to the features: files or folders by name.
    split : str, optional
        Part of the table, e.g. `test`.
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    level : str, optional
        `slide` or `patient`; as the model was trained by default.
    label, survival, time, event, censorship, value, labels : optional
        Columns of the outcome, if not named as in training (see :func:`panther.train`).
    output : path, optional
        Files to write: the table (CSV), and the scores (JSON).
    metrics : path, optional
        File for the scores (JSON), where the outcome is known.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    workers
        Processes that read features (see :func:`panther.embed_cohort`).

    Returns
    -------
    Predictions
        Its ``table`` has one row per slide or patient: `sample`, then `predicted` and `probability_<class>`, or `risk`, or the `predicted`
        value, or `probability_<label>` of each label; as far as the model knows its uncertainty `calibrated_<class>`, `prediction_set`,
        `familiarity`, `rare_patches` and, in words, `sureness`; then the outcome where it is known. Classes are texts, as
        in the clinical table's file, also where a DataFrame had numbers or yes and no: "1", "True"; ``table["predicted"].astype(int)`` has
        numbers again. Its ``scores`` judge them where the outcome is known.

    Examples
    --------
    >>> import numpy as np, pandas as pd, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {f"S{i}": rng.normal(i % 2, 1, (30, 4)) for i in range(12)}
    >>> table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    >>> model = panther.train(bags, table, label="subtype", n_prototypes=2, epochs=1)
    >>> panther.predict(model, {"new": rng.normal(1, 1, (20, 4))}).table["predicted"].tolist()
    ['b']
    """
    from panther.cohort.spec import TaskSpec, checked
    from panther.engine import open_work
    from panther.models.model import as_model
    from panther.models.predict import open_vectors, predict_slides, reads_patches, trained_task
    from panther.storage.bags import Reading
    from panther.storage.clinical import Columns, select_slides
    from panther.storage.files import write_json
    from panther.storage.tables import write_spreadsheet
    from panther.store import check_output

    trained = as_model(model)
    if isinstance(model, Path):
        trained_task(trained, model)  # refused with the name of the file
    columns = Columns(slide_column, patient_column, site_column)
    paths = p.parse_pairs(embeddings or ()) if isinstance(embeddings, list) else embeddings or {}
    vectors = open_vectors(trained, features, paths, table, split, columns)
    bags = features if reads_patches(trained) else next(iter(vectors.values()), features)
    reading = Reading(encoder_name, allow_mixed_resolution)
    selection = select_slides(bags, table, split, reading=reading, columns=columns)
    for path in (output, metrics):
        if path is not None:
            check_output(path, selection.refs, model, table)
    if output is not None and metrics is not None and metrics.resolve() == output.resolve():
        raise InputError(f"metrics: {metrics} is also the output; expected another file")
    outcome: dict[str, Any] = {"label": label, "survival": survival, "time": time, "event": event, "value": value}
    outcome |= {"censorship": censorship, "labels": tuple(labels) if labels else None}
    outcome = {name: column for name, column in outcome.items() if column}
    if outcome and table is None:
        raise InputError(f"{next(iter(outcome))}: names a column of a table, and table is missing")
    task = checked(TaskSpec, **outcome) if outcome else None
    with open_work(workers, selection.refs, device="cpu") as work:
        predictions = predict_slides(trained, selection, level, task, vectors, work=work)
    if output is not None:
        rows = predictions.rows()
        write_spreadsheet(output, list(rows.columns), rows.to_numpy().tolist())
    if metrics is not None and predictions.scores is not None:
        write_json(metrics, predictions.scores.to_dict())
    note(*predictions.notes)
    warn_left_out("Left out of the predictions", predictions.failures)
    return predictions
