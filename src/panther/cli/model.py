"""`panther train` and `panther predict`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_names, parse_places, parse_settings
from panther.errors import InputError


def train(
    features: opt.FeaturesArgument,
    table: opt.GivenTableOption,
    output: opt.OutputOption,
    label: opt.LabelOption = None,
    survival: opt.SurvivalOption = None,
    time: opt.TimeOption = None,
    event: opt.EventOption = None,
    censorship: opt.CensorshipOption = None,
    value: opt.ValueOption = None,
    labels: opt.LabelsOption = None,
    level: opt.LevelOption = opt.Level.patient,
    split: opt.SplitOption = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    method: Annotated[
        str, typer.Option(help="A method of `panther embed`, or a network: abmil, transmil, dsmil, attnmisl, ilra.")
    ] = "panther",
    setting: opt.SetOption = None,
    covariates: Annotated[
        list[str] | None,
        typer.Option(help="Column of the table that is read beside the embedding, e.g. age; repeatable."),
    ] = None,
    head: Annotated[
        str, typer.Option(help="probe, linear, mlp, structured, paper-classification, paper-survival.")
    ] = "probe",
    loss: Annotated[
        str | None,
        typer.Option(
            help="cross-entropy, ordinal; cox, nll, ranking; mse, huber; binary-cross-entropy. By default the first of its kind.",
        ),
    ] = None,
    n_prototypes: Annotated[
        int | None, typer.Option("-C", "--n-prototypes", min=1, help="Number of prototypes; 16 by default.")
    ] = None,
    prototypes: Annotated[
        Path | None, typer.Option("-p", "--prototypes", help="Prototype file to use instead of fitting new ones.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the paper's.")] = None,
    calibrate: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100,
            help="Inner folds of held-out patients that calibrate the probabilities of classes; 5 by default, 0 for networks.",
        ),
    ] = None,
    seed: opt.SeedOption = 1,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    workers: opt.ProcessesOption = 0,
    device: opt.DeviceOption = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Train one final model on all samples of the table, or of one part of it, and save it as one file."""
    from panther.models.train import train
    from panther.storage.bags import list_bags

    listing = list_bags(features, reading=common.reading(encoder_name, mixed))
    with common.open_work(workers, listing.refs, device=device) as work:
        model = train(
            listing,
            table,
            label=label,
            survival=survival,
            time=time,
            event=event,
            censorship=censorship,
            value=value,
            labels=parse_names(labels),
            level=level.value,
            split=split,
            columns=common.columns(slide_column, patient_column, site_column),
            method=method,
            covariates=covariates or (),
            head=head,
            loss=loss,
            prototypes=prototypes,
            n_prototypes=n_prototypes,
            epochs=epochs,
            calibrate=calibrate,
            seed=seed,
            output=output,
            work=work,
            options=parse_settings(setting),
        )
    report, count = model.report, len(model.about["samples"])
    assert report is not None
    result = {"output": str(output), "samples": count, "method": method, "head": head, "report": report.to_dict()}
    result["calibration"] = model.sure.settings()["promise"]
    name = method if model.head.name == "own" else f"{model.method.title} + {head}"
    lines = [
        *report.sentences(),
        *([model.sure.promise.sentence()] if model.sure.promise else []),
        f"{name} trained on {count} samples -> {output}",
    ]
    common.report(result, lines, model.failures, as_json=as_json, notes=model.sure.why)


def predict(
    model_file: opt.ModelArgument,
    output: opt.OutputOption,
    features: Annotated[
        Path | None,
        typer.Argument(
            help="Feature file, or folder of them; of a model of given vectors their file or folder.",
            show_default=False,
        ),
    ] = None,
    embeddings: Annotated[
        list[str] | None,
        typer.Option(help="Given vectors that the model reads beside features, NAME=PATH; may be repeated."),
    ] = None,
    table: opt.TableOption = None,
    split: opt.SplitOption = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    level: Annotated[
        opt.Level | None,
        typer.Option(
            help="One prediction per slide or per patient; as the model was trained by default.",
        ),
    ] = None,
    label: opt.LabelOption = None,
    survival: opt.SurvivalOption = None,
    time: opt.TimeOption = None,
    event: opt.EventOption = None,
    censorship: opt.CensorshipOption = None,
    value: opt.ValueOption = None,
    labels: opt.LabelsOption = None,
    metrics: Annotated[
        Path | None, typer.Option(help="File for the scores (JSON), where the outcome is known.")
    ] = None,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    workers: opt.WorkersOption = "0",
    as_json: opt.JsonOption = False,
) -> None:
    """Predict new slides and say how sure that is, and score the predictions where the table knows the outcome.

    Features of another encoder or resolution are refused. The outcome's columns are those of the training unless they are named here.
    """
    from panther.cohort.spec import TaskSpec, checked
    from panther.models.model_file import load_model
    from panther.models.predict import open_given, predict_slides
    from panther.models.represent import reads_patches
    from panther.models.scoring import trained_task
    from panther.storage.clinical import select_slides
    from panther.storage.files import write_json
    from panther.storage.inputs import check_output
    from panther.storage.tables import write_spreadsheet

    model = load_model(model_file)
    trained_task(model, model_file)  # refused with the name of the file
    named = common.columns(slide_column, patient_column, site_column)
    given = open_given(model, features, parse_places(embeddings), table, split, named)
    bags = features if reads_patches(model) else next(iter(given.values()))
    assert bags is not None  # refused above
    chosen = select_slides(bags, table, split, reading=common.reading(encoder_name, mixed), columns=named)
    check_output(output, chosen.refs, model_file, table)
    if metrics is not None:
        check_output(metrics, chosen.refs, model_file, table)
        if metrics.resolve() == output.resolve():
            raise InputError(f"{metrics}: cannot hold both the predictions (-o) and the scores (--metrics).")
    columns = {"label": label, "survival": survival, "time": time, "event": event, "censorship": censorship}
    columns |= {"value": value, "labels": labels}
    asked: dict[str, Any] = {name: column for name, column in columns.items() if column}
    if asked and table is None:
        raise InputError(f"--{next(iter(asked))} names a column of a --table; give the table.")
    with common.open_work(workers, chosen.refs) as work:
        outcome = checked(TaskSpec, **asked | ({"labels": parse_names(labels)} if labels else {})) if asked else None
        found = predict_slides(model, chosen, level.value if level else None, outcome, given, work=work)
    rows = found.table.astype(object).where(found.table.notna(), "")
    write_spreadsheet(output, list(rows.columns), rows.to_numpy().tolist())
    if metrics and found.scores:
        write_json(metrics, found.scores.to_dict())
    result = {
        "output": str(output),
        "unit": found.level,
        "predictions": rows.to_dict("records"),
        "scores": found.scores.to_dict() if found.scores else None,
    }
    lines = [f"{len(rows)} predictions, one per {found.level} -> {output}"]
    lines += found.scores.sentences() if found.scores else []
    common.report(result, lines, found.failures, as_json=as_json, notes=found.notes)
