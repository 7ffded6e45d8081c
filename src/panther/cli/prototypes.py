"""`panther prototypes`."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_count, parse_range


def prototypes(
    features: opt.FeaturesArgument,
    output: opt.OutputOption,
    n_prototypes: Annotated[str, typer.Option("-C", "--n-prototypes", help="Number of prototypes, or auto.")] = "16",
    numbers: opt.RangeOption = "2:64",
    table: opt.TableOption = None,
    split: opt.SplitOption = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    seed: opt.SeedOption = 0,
    sample: Annotated[int, typer.Option(help="Patches for k-means++ and its restarts.")] = 20_000,
    share: Annotated[str, typer.Option(help="Share of slides in the sample: proportional or equal.")] = "proportional",
    restarts: Annotated[int, typer.Option(help="Restarts of k-means on the sample.")] = 5,
    passes: Annotated[int, typer.Option(help="Lloyd passes over all patches afterwards.")] = 3,
    normalise: opt.NormaliseOption = False,
    pca: Annotated[int | None, typer.Option(help="Reduce features to that many dimensions first.")] = None,
    centre: Annotated[
        str | None, typer.Option(help="Subtract the mean of each slide, or of each site, first: slide or site.")
    ] = None,
    memory: Annotated[float, typer.Option(help="GB that the sample may take.")] = 4.0,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    workers: opt.WorkersOption = "0",
    device: opt.DeviceOption = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Fit prototypes by K-means on the patches of the training slides."""
    from panther.prototypes import KMeansSettings, fit_bags
    from panther.prototypes.centre import sites_by
    from panther.prototypes.choose import compare_numbers
    from panther.storage.clinical import select_training_slides
    from panther.storage.prototypes import save_prototypes
    from panther.store import check_output

    auto = n_prototypes == "auto"
    count = 16 if auto else parse_count(n_prototypes)
    settings = KMeansSettings(count, seed, sample, share, restarts, passes, normalise, pca, memory, centre)  # type: ignore[arg-type]
    chosen = select_training_slides(
        features,
        table,
        split,
        reading=common.reading(encoder_name, mixed),
        columns=common.columns(slide_column, patient_column, site_column),
    )
    check_output(output, chosen.refs, table)
    sites = sites_by(chosen.table) if settings.centre == "site" else None
    with common.open_work(workers, chosen.refs, device) as work:
        if auto:
            coarse = replace(settings, sample=sample, restarts=3)
            choice = compare_numbers(
                chosen.refs,
                parse_range(numbers),
                coarse,
                patients=chosen.patients(),
                work=work,
            )
            settings = replace(settings, n_prototypes=choice.recommended)
            chosen.notes.extend([choice.sentence, *choice.remarks])
        fitted = fit_bags(chosen.refs, settings, sites=sites, work=work)
    save_prototypes(fitted.prototypes, output)
    notes = [
        *chosen.notes,
        *(f"{name}: zero patches." for name in fitted.empty),
        *fitted.prototypes.diagnostics["warnings"],
    ]
    failures = {**chosen.problems, **fitted.failures}
    common.report(
        _result(fitted.prototypes, output), _lines(fitted.prototypes, output), failures, as_json=as_json, notes=notes
    )


def _result(fitted: Any, output: Any) -> dict[str, Any]:
    return {
        "output": str(output),
        "prototypes": len(fitted),
        "dim": fitted.dim,
        "encoder": fitted.encoder,
        "slides": len(fitted.slides),
        "settings": dict(fitted.settings),
        "diagnostics": dict(fitted.diagnostics),
    }


def _lines(fitted: Any, output: Any) -> list[str]:
    d = fitted.diagnostics
    rows = [
        f"  C{c:<3} {share:7.2%} of the patches"
        + (f", nearest C{neighbour} at {distance:.4g}" if len(fitted) > 1 else "")
        for c, (share, neighbour, distance) in enumerate(
            zip(d["occupancy_share"], d["nearest"], d["distance_to_nearest"], strict=True)
        )
    ]
    return [
        f"{len(fitted)} prototypes of {fitted.dim} dimensions from {fitted.settings['patches']:,} patches of {len(fitted.slides)} slides -> {output}",
        *rows,
        *_alignment(fitted),
        f"inertia {d['inertia']:.6g}; restarts differ by {d['restart_spread']:.2%}; effective number {d['effective_number']:.1f} of {len(fitted)}; "
        f"within-cluster radius {d['within_radius']:.4g}; {len(d['dominated_slides'])} slides dominated by one prototype",
    ]


def _alignment(fitted: Any) -> list[str]:
    """How slides were moved first, in words."""
    if fitted.alignment is None:
        return []
    about = fitted.diagnostics["alignment"]
    if fitted.alignment.kind == "slide":
        return [f"every slide is moved to the mean of the {about['slides']} training slides first"]
    sites = ", ".join(f"{name} ({own['slides']})" for name, own in about["sites"].items())
    return [f"every site is moved to the mean of the {about['slides']} training slides first: {sites}"]
