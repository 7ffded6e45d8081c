"""`panther train` and `panther predict`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli.embed import parse_settings


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(train)
    app.command()(predict)


def train(
    features: common.FeaturesArgument,
    table: Annotated[Path, typer.Option(help="Clinical table (CSV, TSV, parquet).", show_default=False)],
    output: common.OutputOption,
    label: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    survival: Annotated[str | None, typer.Option(help="Endpoint: os, dss, dfi or pfi.")] = None,
    level: Annotated[str, typer.Option(help="One sample per patient, or per slide.")] = "patient",
    method: Annotated[str, typer.Option(help="panther, ot, h2t, ..., or a network: abmil, transmil, ...")] = "panther",
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", help="Setting of the method as name=value.")
    ] = None,
    head: Annotated[
        str, typer.Option(help="probe, linear, mlp, structured, paper-classification, paper-survival.")
    ] = "probe",
    loss: Annotated[str | None, typer.Option(help="cross-entropy; cox, nll, ranking.")] = None,
    n_prototypes: Annotated[
        int | None, typer.Option("-C", "--n-prototypes", help="Number of prototypes; 16 by default.")
    ] = None,
    prototypes: Annotated[
        Path | None, typer.Option("-p", "--prototypes", help="Prototype file to use instead of fitting new ones.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the paper's.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed and input: same model.")] = 1,
    encoder_name: common.EncoderNameOption = None,
    mixed: common.MixedOption = False,
    workers: common.WorkersOption = 0,
    device: common.DeviceOption = "cpu",
    as_json: common.JsonOption = False,
) -> None:
    """Train one final model on all samples of the table and save it as one file."""
    from panther.execution import open_executor
    from panther.learning.cohort import load_cohort
    from panther.learning.model import save_model, train_model
    from panther.learning.study import TaskSpec
    from panther.storage.bags import join, list_bags
    from panther.storage.inputs import check_output
    from panther.storage.prototypes import load_prototypes

    given = None if prototypes is None else load_prototypes(prototypes)
    _check_prototypes(method, n_prototypes, given, prototypes)
    listing = list_bags(features, reading=common.reading(encoder_name, mixed))
    check_output(output, listing.refs, table, prototypes)
    spec = common.checked(TaskSpec, label=label, survival=survival, level=level)
    cohort = load_cohort(table, spec.outcome(), listing, spec.level)
    recipe = _recipe(method, parse_settings(setting), head, loss, n_prototypes or 16, seed, spec.label is None)
    changed: dict[str, Any] = {"device": common.checked_device(device)} | ({} if epochs is None else {"epochs": epochs})
    recipe = replace(recipe, training=replace(recipe.training, **changed))
    refs = {ref.sample: ref for ref in listing.refs}
    bags = [join(s.id, [refs[slide] for slide in s.slides]) for s in cohort.samples]
    with open_executor(common.suitable_workers(workers, bags)) as executor:
        model, failures = train_model(bags, cohort.target, recipe, given, executor=executor, track=common.track)
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
    common.report(result, lines, {**listing.problems, **failures}, as_json=as_json)


def _check_prototypes(method: str, count: int | None, given: Any, path: Path | None) -> None:
    from panther.errors import InputError
    from panther.mil import networks

    if given is None:
        return
    if method in networks and not networks.entry(method).metadata["needs_prototypes"]:
        raise InputError(f"{method} has no use for prototypes; leave out -p {path}.")
    if count not in (None, len(given)):
        raise InputError(f"{path}: holds {len(given)} prototypes, but -C asks for {count}; give one of the two.")


def _recipe(
    method: str, options: dict[str, Any], head: str, loss: str | None, c: int, seed: int, survival: bool
) -> Any:
    from panther.learning.model import Recipe
    from panther.learning.presets import preset
    from panther.learning.study import PROBE, Named
    from panther.mil import networks
    from panther.prototypes import KMeansSettings

    supervised = method in networks
    kind = "survival" if survival else "classification"
    chosen = preset(f"paper-mil-{kind}" if supervised else f"paper-{kind}")
    return Recipe(
        Named(name=method, options=options),
        Named(name="own" if supervised else head),
        Named(name=loss or ("cox" if head == PROBE and survival and not supervised else chosen.loss)),
        KMeansSettings(n_prototypes=c, seed=seed),
        replace(chosen.train, seed=seed),
    )


def predict(
    model_file: Annotated[Path, typer.Argument(metavar="MODEL", help="File of `panther train`.", show_default=False)],
    features: common.FeaturesArgument,
    output: common.OutputOption,
    table: common.TableOption = None,
    split: common.SplitOption = None,
    by: common.ByOption = common.By.slide,
    encoder_name: common.EncoderNameOption = None,
    mixed: common.MixedOption = False,
    workers: common.WorkersOption = 0,
    as_json: common.JsonOption = False,
) -> None:
    """Predict new slides from their features; those of another encoder or resolution are refused."""
    from panther.execution import open_executor
    from panther.learning.model import load_model, predict_bags
    from panther.storage.cohort import select_slides
    from panther.storage.inputs import check_output
    from panther.storage.tables import write_csv

    model = load_model(model_file)
    said = common.reading(encoder_name, mixed)
    chosen = select_slides(features, table, split, by_patient=by is common.By.patient, reading=said)
    check_output(output, chosen.refs, model_file, table)
    with open_executor(common.suitable_workers(workers, chosen.refs)) as executor:
        samples, predictions, failures = predict_bags(model, chosen.refs, executor=executor, track=common.track)
    header, rows = _columns(model, samples, predictions)
    write_csv(output, header, rows)
    result = {"output": str(output), "predictions": [dict(zip(header, row, strict=True)) for row in rows]}
    lines = [f"{len(rows)} predictions -> {output}"]
    common.report(result, lines, {**chosen.problems, **failures}, as_json=as_json, notes=chosen.notes)


def _columns(model: Any, samples: list[str], predictions: Any) -> tuple[list[str], list[list[Any]]]:
    """One row a sample: the class and its probabilities, or the risk."""
    if "probabilities" in predictions:
        names, p = model.task.names, predictions["probabilities"]
        header = ["sample", "predicted", *(f"probability_{name}" for name in names)]
        return header, [[s, names[int(row.argmax())], *map(float, row)] for s, row in zip(samples, p, strict=True)]
    return ["sample", "risk"], [[s, float(r)] for s, r in zip(samples, predictions["risk"], strict=True)]
