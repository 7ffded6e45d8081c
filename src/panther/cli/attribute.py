"""`panther attribute` and `panther kaplan-meier`: what prototypes have to do with a prediction, and with survival."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from panther.cli import _common as common
from panther.cli import _options as opt

if TYPE_CHECKING:
    from panther.explain.attribution import Attribution


def attribute(
    model_file: opt.ModelArgument,
    features: opt.FeaturesArgument,
    output: opt.FolderOption,
    slides: opt.SlidesOption = None,
    names: opt.NamesOption = None,
    kind: Annotated[
        str | None,
        typer.Option(help="exact (linear heads, the default there), shapley (elsewhere) or integrated-gradients."),
    ] = None,
    pairs: Annotated[int, typer.Option(min=2, help="Shapley: pairs of orders to average over.")] = 8,
    seed: opt.SeedOption = 0,
    table: opt.TableOption = None,
    split: opt.SplitOption = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    level: opt.LevelOption = opt.Level.slide,
    maps: Annotated[bool, typer.Option("--maps/--no-maps", help="A picture of every slide with coordinates.")] = True,
    max_side: opt.MaxSideOption = 1024,
    slide_mpp: opt.SlideMppOption = None,
    slide_mpp_table: opt.SlideMppTableOption = None,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    workers: opt.WorkersOption = "0",
    device: opt.DeviceOption = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Show which prototypes (pi, mu, Sigma separately) drive a model's predictions, as numbers and on the slides."""
    from panther.explain.attribution import AttributionSettings, attribute
    from panther.explain.attribution.make import WRITTEN
    from panther.explain.scene import MapSettings
    from panther.slides import read_mpp_table
    from panther.storage.bags import list_bags
    from panther.store import check_output_folder

    check_output_folder(output, WRITTEN, slide_mpp_table)
    resolutions = read_mpp_table(slide_mpp_table) if slide_mpp_table else {}
    listing = list_bags(features, reading=common.reading(encoder_name, mixed))
    with common.open_work(workers, listing.refs, device) as work:
        found = attribute(
            model_file,
            listing,
            AttributionSettings(kind, pairs, seed=seed),
            table=table,
            split=split,
            columns=common.columns(slide_column, patient_column, site_column),
            level=level.value,
            slides=slides,
            names=names,
            output=output,
            pictures=MapSettings(max_side=max_side, slide_mpp=slide_mpp, slide_mpp_table=resolutions),
            maps=maps,
            work=work,
        )
    result = {"output": str(output), "kind": found.kind, "gap": found.gap, "sampling_error": found.sampling_error}
    result |= {"samples": len(found.samples), "files": [str(file) for file in found.files]}
    common.report(result, _lines(found, output), found.failures, as_json=as_json, notes=found.notes)


def _lines(found: "Attribution", output: Path) -> list[str]:
    """For each output the prototypes that count most."""
    import numpy as np

    from panther.explain.attribution.draw import mean_contributions, pair_title
    from panther.explain.attribution.mathematics import largest_pairs
    from panther.explain.names import label

    size = np.abs(found.by_prototype()).mean(0)  # (K, C)
    error = "" if found.sampling_error is None else f", sampling error at most {found.sampling_error:.2g}"
    lines = [f"{len(found.samples)} samples attributed ({found.kind}; gap {found.gap:.1e}{error}) -> {output}"]
    for name, row in list(zip(found.outputs, size, strict=True))[:10]:
        top = ", ".join(f"{label(int(c), found.names)} {row[c]:.3g}" for c in np.argsort(-row, kind="stable")[:3])
        lines.append(f"  {name}: mean size of the contribution {top}")
        own = [one for one in mean_contributions(found) if one["output"] == name]
        if pairs := largest_pairs(own, 3):
            said = ", ".join(f"{pair_title(one, found.names)} {one['mean_absolute']:.3g}" for one in pairs)
            lines.append(f"    of pairs that touch: {said}")
    return lines


def kaplan_meier(
    proportions: Annotated[
        Path,
        typer.Argument(metavar="EMBEDDINGS|PI.CSV", help="Of `panther embed` or `panther atlas`.", show_default=False),
    ],
    table: opt.GivenTableOption,
    output: opt.FolderOption,
    survival: opt.SurvivalOption = None,
    time: opt.TimeOption = None,
    event: opt.EventOption = None,
    censorship: opt.CensorshipOption = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    names: opt.NamesOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Survival of patients with little, some and much of each prototype: Kaplan-Meier curves and log-rank tests."""
    from panther.explain.kaplan_meier import kaplan_meier as compare_survival
    from panther.explain.names import label

    found = compare_survival(
        proportions,
        table,
        survival,
        time=time,
        event=event,
        censorship=censorship,
        columns=common.columns(slide_column, patient_column, site_column),
        names=names,
        output=output,
    )
    ordered = sorted(found.prototypes, key=lambda one: one.p)
    patients, compared = len(found.patients), len(found.prototypes)
    lines = [
        *found.cohort,
        f"{patients} patients, {found.events} events, {compared} prototypes compared -> {output}",
        *(f"  {label(o.prototype, found.names)}: p {o.p:.3g}, corrected {o.p_corrected:.3g}" for o in ordered[:5]),
    ]
    rows = [{"prototype": one.prototype, "p": one.p, "p_corrected": one.p_corrected} for one in found.prototypes]
    result = {"output": str(output), "patients": patients, "events": found.events, "prototypes": rows}
    result["cohort"] = list(found.cohort)
    result["files"] = [str(file) for file in found.files]
    common.report(result, lines, {}, as_json=as_json, notes=found.notes)
