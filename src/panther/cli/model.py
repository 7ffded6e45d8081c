"""`panther train` and `panther predict`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli.completion import EMBEDDINGS, NETWORKS
from panther.cli.embed import parse_settings
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
    level: opt.LevelOption = opt.Level.patient,
    split: opt.SplitOption = None,
    method: Annotated[
        str, typer.Option(help=f"{', '.join(EMBEDDINGS)}, or a network: {', '.join(NETWORKS)}.")
    ] = "panther",
    setting: opt.SetOption = None,
    head: Annotated[
        str, typer.Option(help="probe, linear, mlp, structured, paper-classification, paper-survival.")
    ] = "probe",
    loss: Annotated[str | None, typer.Option(help="cross-entropy; cox, nll, ranking.")] = None,
    n_prototypes: Annotated[
        int | None, typer.Option("-C", "--n-prototypes", min=1, help="Number of prototypes; 16 by default.")
    ] = None,
    prototypes: Annotated[
        Path | None, typer.Option("-p", "--prototypes", help="Prototype file to use instead of fitting new ones.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the paper's.")] = None,
    seed: opt.SeedOption = 1,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    workers: opt.WorkersOption = 0,
    device: opt.DeviceOption = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Train one final model on all samples of the table, or of one part of it, and save it as one file."""
    from panther.cohort.load import make_cohort
    from panther.cohort.spec import TaskSpec
    from panther.models.model_file import save_model
    from panther.models.train import train_model
    from panther.storage.bags import list_bags
    from panther.storage.clinical import read_clinical, without_features
    from panther.storage.inputs import check_output
    from panther.storage.prototypes import load_prototypes

    columns = {"survival": survival, "time": time, "event": event, "censorship": censorship}
    spec = common.checked(TaskSpec, label=label, level=level.value, **columns)
    recipe = _recipe(method, parse_settings(setting), head, loss, n_prototypes or 16, seed, spec)
    given = None if prototypes is None else load_prototypes(prototypes)
    _check_prototypes(method, n_prototypes, given, prototypes)
    listing = list_bags(features, reading=common.reading(encoder_name, mixed))
    check_output(output, listing.refs, table, prototypes)
    cohort = make_cohort(read_clinical(table, split), spec, [ref.sample for ref in listing.refs])
    changed: dict[str, Any] = {"device": common.checked_device(device)} | ({} if epochs is None else {"epochs": epochs})
    recipe = replace(recipe, training=replace(recipe.training, **changed))
    bags = cohort.join_bags(listing)
    with common.open_work(workers, bags) as work:
        patients = {s.id: s.patient for s in cohort.samples}
        model, failures = train_model(bags, cohort.target, recipe, given, patients=patients, work=work)
    save_model(model, output)
    result = {
        "output": str(output),
        "samples": len(model.about["samples"]),
        "method": method,
        "head": head,
        "report": cohort.report.to_dict(),
    }
    told = method if recipe.supervised else f"{method} + {head}"
    lines = [*cohort.report.sentences(), f"{told} trained on {result['samples']} samples -> {output}"]
    missing = {slide: without_features(slide, str(table)) for slide in cohort.report.missing_features}
    common.report(result, lines, {**missing, **listing.problems, **failures}, as_json=as_json)


def _check_prototypes(method: str, count: int | None, given: Any, path: Path | None) -> None:
    from panther.mil import networks

    if given is None:
        return
    if method in networks and not networks.entry(method).metadata["needs_prototypes"]:
        raise InputError(f"{method} has no use for prototypes; leave out -p {path}.")
    if count not in (None, len(given)):
        raise InputError(f"{path}: holds {len(given)} prototypes, but -C asks for {count}; give one of the two.")


def _recipe(method: str, options: dict[str, Any], head: str, loss: str | None, c: int, seed: int, spec: Any) -> Any:
    """What to train; names and settings are tried first."""
    from panther.mil import networks
    from panther.models.fitting import Recipe
    from panther.models.heads import PROBE
    from panther.models.named import Named
    from panther.models.presets import preset
    from panther.prototypes import KMeansSettings
    from panther.study.names import check_head, check_loss, check_method

    check_method(method, options)
    check_head(head, {})
    supervised, survival = method in networks, spec.label is None
    kind = "survival" if survival else "classification"
    chosen = preset(f"paper-mil-{kind}" if supervised else f"paper-{kind}")
    taught = loss or ("cox" if head == PROBE and survival and not supervised else chosen.loss)
    check_loss(taught, {}, survival)
    return Recipe(
        Named(name=method, options=options),
        Named(name="own" if supervised else head),
        Named(name=taught),
        KMeansSettings(n_prototypes=c, seed=seed),
        replace(chosen.train, seed=seed),
        task=spec,
    )


def predict(
    model_file: opt.ModelArgument,
    features: opt.FeaturesArgument,
    output: opt.OutputOption,
    table: opt.TableOption = None,
    split: opt.SplitOption = None,
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
    metrics: Annotated[
        Path | None, typer.Option(help="File for the scores (JSON), where the outcome is known.")
    ] = None,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    workers: opt.WorkersOption = 0,
    as_json: opt.JsonOption = False,
) -> None:
    """Predict new slides, and score the predictions where the table knows the outcome.

    Features of another encoder or resolution are refused. The outcome's columns are those of the training unless they are named here.
    """
    from panther.models.model_file import load_model
    from panther.models.predict import predict_bags
    from panther.storage.clinical import select_slides
    from panther.storage.files import write_json
    from panther.storage.inputs import check_output
    from panther.storage.tables import write_spreadsheet
    from panther.study.scoring import in_units, score, trained_task

    model = load_model(model_file)
    task = trained_task(model, model_file)
    unit_level: Any = level.value if level else task.level if task else "slide"
    if level is opt.Level.patient and table is None:
        raise InputError("--level patient needs a --table that says whose slides they are.")
    chosen = select_slides(features, table, split, reading=common.reading(encoder_name, mixed))
    check_output(output, chosen.refs, model_file, table)
    if metrics is not None:
        check_output(metrics, chosen.refs, model_file, table)
        if metrics.resolve() == output.resolve():
            raise InputError(f"{metrics}: cannot hold both the predictions (-o) and the scores (--metrics).")
    asked = {"label": label, "survival": survival, "time": time, "event": event, "censorship": censorship}
    cohort, notes = _outcomes(model, {k: v for k, v in asked.items() if v}, chosen.table, unit_level, chosen.refs)
    refs, unit, more = in_units(chosen.refs, unit_level, chosen.table)
    with common.open_work(workers, refs) as work:
        samples, predictions, failures = predict_bags(model, refs, work=work)
    scores = None if cohort is None else score(model, samples, predictions, cohort)
    header, table_rows = _columns(model, samples, predictions, cohort)
    write_spreadsheet(output, header, table_rows)
    if metrics and scores:
        write_json(metrics, scores.to_dict())
    if task is not None and unit != task.level and level is not None:
        more.append(f"The model was trained on {task.level}s, but predicts {unit}s here.")
    result = {
        "output": str(output),
        "unit": unit,
        "predictions": [dict(zip(header, row, strict=True)) for row in table_rows],
        "scores": scores.to_dict() if scores else None,
    }
    lines = [f"{len(table_rows)} predictions, one per {unit} -> {output}", *(scores.sentences() if scores else [])]
    told = [*chosen.notes, *more, *notes, *(scores.notes if scores else ())]
    common.report(result, lines, {**chosen.problems, **failures}, as_json=as_json, notes=told)


def _outcomes(model: Any, asked: dict[str, str], table: Any, level: Any, refs: Sequence[Any]) -> tuple[Any, list[str]]:
    """Samples whose outcome the table knows, and why there are none: a fault where it was asked for, else worth a word."""
    from panther.cohort.spec import TaskSpec
    from panther.study.scoring import known_outcomes, trained_task

    if table is None:
        if asked:
            raise InputError(f"--{next(iter(asked))} names a column of a --table; give the table.")
        return None, []
    task = common.checked(TaskSpec, level=level, **asked) if asked else trained_task(model)
    if task is None:
        return None, []
    try:
        return known_outcomes(model, task, table, level, [ref.sample for ref in refs]), []
    except InputError as error:
        if asked:
            raise
        return None, [f"The predictions are not scored. {error}"]


def _columns(model: Any, samples: list[str], predictions: Any, cohort: Any) -> tuple[list[str], list[list[Any]]]:
    """One row a sample: the class and its probabilities, or the risk; then the outcome where it is known."""
    if "probabilities" in predictions:
        names, p = model.task.names, predictions["probabilities"]
        header = ["sample", "predicted", *(f"probability_{name}" for name in names)]
        rows = [[s, names[int(row.argmax())], *map(float, row)] for s, row in zip(samples, p, strict=True)]
        known = {} if cohort is None else {s: [names[k]] for s, k in zip(cohort.ids, cohort.target.labels, strict=True)}
        outcome = ["label"]
    else:
        header, outcome = ["sample", "risk"], ["time", "event"]
        rows = [[s, float(r)] for s, r in zip(samples, predictions["risk"], strict=True)]
        times = () if cohort is None else zip(cohort.ids, cohort.target.time, cohort.target.event, strict=True)
        known = {s: [float(t), int(e)] for s, t, e in times}
    if cohort is None:
        return header, rows
    return [*header, *outcome], [[*row, *known.get(row[0], [""] * len(outcome))] for row in rows]
