"""`panther choose-c`, `compare-prototypes`, `shift`: can these prototypes be trusted?"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_range


def choose(
    features: opt.FeaturesArgument,
    numbers: opt.RangeOption = "2:64",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Table of what was compared, to write as CSV.")
    ] = None,
    plot: opt.PlotOption = None,
    table: opt.TableOption = None,
    split: opt.SplitOption = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    site_column: opt.SiteColumnOption = None,
    seed: opt.SeedOption = 0,
    sample: Annotated[int, typer.Option(help="Patches to compare on.")] = 20_000,
    normalise: opt.NormaliseOption = False,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    workers: opt.WorkersOption = "0",
    device: opt.DeviceOption = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Recommend a number of prototypes: which come back in both halves of the cohort, and what more would buy."""
    from panther.charts.prototypes import choice_of_c
    from panther.charts.style import check_picture, save
    from panther.charts.to_matplotlib import draw
    from panther.prototypes import KMeansSettings
    from panther.prototypes.choose import compare_numbers
    from panther.storage.clinical import select_training_slides
    from panther.store import check_output

    chosen = select_training_slides(
        features,
        table,
        split,
        reading=common.reading(encoder_name, mixed),
        columns=common.columns(slide_column, patient_column, site_column),
    )
    if plot is not None:
        check_picture(plot, chosen.refs, table)
    if output is not None:
        check_output(output, chosen.refs, table)
    settings = KMeansSettings(seed=seed, sample=sample, restarts=3, normalise=normalise)
    with common.open_work(workers, chosen.refs, device) as work:
        choice = compare_numbers(
            chosen.refs,
            parse_range(numbers),
            settings,
            patients=chosen.patients(),
            work=work,
        )
    if plot is not None:
        save(draw([choice_of_c(choice)]), plot, dpi=150)
    if output is not None:
        _write_candidates(choice, output)
    result = {name: value for name, value in asdict(choice).items() if name != "failures"}
    failures = {**chosen.problems, **choice.failures}
    common.report(
        result, [*_criteria(choice), choice.sentence, *choice.remarks], failures, as_json=as_json, notes=chosen.notes
    )


def _write_candidates(choice: Any, output: Path) -> None:
    from panther.storage.tables import write_spreadsheet

    rows = [{**asdict(one), "recommended": one.n_prototypes == choice.recommended} for one in choice.candidates]
    write_spreadsheet(output, list(rows[0]), [list(row.values()) for row in rows])


def _criteria(choice: Any) -> list[str]:
    head = "    C    come back   halves  seeds   explained     more than above   held-out/patch        BIC/patch"
    return [
        head,
        *(
            f"{'->' if c.n_prototypes == choice.recommended else '  '}{c.n_prototypes:>3} {c.come_back:>6.1f} +-{c.come_back_spread:<4.1f}"
            f"{c.stability_halves:>7.2f}{c.stability_seeds:>7.2f} {c.explained:>10.1%}     {c.gain:>+7.1%} +-{c.gain_spread:<6.1%}"
            f"{c.held_out:>12.2f} +-{c.held_out_error:<7.2f}{c.bic:>10.2f}"
            for c in choice.candidates
        ),
    ]


def compare_prototypes(
    first: Annotated[Path, typer.Argument(metavar="A", help="Prototype file.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one, of the same encoder.", show_default=False)],
    plot: opt.PlotOption = None,
    mixed: opt.MixedOption = False,
    as_json: opt.JsonOption = False,
) -> None:
    """Match two sets of prototypes: which are the same, which appeared, vanished, split."""
    from panther.charts.prototypes import comparison
    from panther.charts.style import check_picture, save
    from panther.prototypes.compare import compare
    from panther.storage.prototypes import load_prototypes

    if plot is not None:
        check_picture(plot, first, second)
    found = compare(load_prototypes(first), load_prototypes(second), allow_mixed_resolution=mixed)
    if plot is not None:
        save(comparison(found, first.stem, second.stem).figure(), plot, dpi=150)
    common.report(_comparison(found), _comparison_lines(found), {}, as_json=as_json)


def _comparison(found: Any) -> dict[str, Any]:
    return {
        "matched": [
            {"a": int(i), "b": int(j), "distance": float(d), "cosine": float(c), "same": (int(i), int(j)) in found.same}
            for i, j, d, c in zip(*found.match, strict=True)
        ],
        "appeared": list(found.appeared),
        "vanished": list(found.vanished),
        "split": {str(c): list(parts) for c, parts in found.split.items()},
        "merged": {str(c): list(parts) for c, parts in found.merged.items()},
        "reach": found.reach,
    }


def _comparison_lines(found: Any) -> list[str]:
    lines = [
        f"A C{i:<3} = B C{j:<3}  distance {d:.4g}, cosine {c:.3f}"
        + ("" if (int(i), int(j)) in found.same else "  (far)")
        for i, j, d, c in zip(*(t.tolist() for t in found.match), strict=True)
    ]
    changes = [
        ("appeared in B", [f"C{c}" for c in found.appeared]),
        ("vanished from A", [f"C{c}" for c in found.vanished]),
        ("split", [f"A C{c} into B {', '.join(f'C{p}' for p in parts)}" for c, parts in found.split.items()]),
        ("merged", [f"A {', '.join(f'C{p}' for p in parts)} into B C{c}" for c, parts in found.merged.items()]),
    ]
    return [
        *lines,
        f"{len(found.same)} of {len(found.match.first)} pairs are the same (closer than {found.reach:.4g})",
        *(f"{what}: {'; '.join(items)}" for what, items in changes if items),
    ]


def shift(
    embeddings: Annotated[
        Path, typer.Argument(help="Embeddings with proportions (.h5ad or .npz).", show_default=False)
    ],
    site: Annotated[str, typer.Option("--site-column", help="Column of the site or batch.")] = "tissue_source_site",
    patient: Annotated[
        str,
        typer.Option(
            "--patient-column", help="Column of the patient; where it is missing, samples count by themselves."
        ),
    ] = "case_id",
    label: opt.LabelOption = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Other embeddings of the same slides, e.g. before --centre: what has changed is said."),
    ] = None,
    permutations: Annotated[int, typer.Option(help="Permutations of the sites.")] = 999,
    seed: opt.SeedOption = 0,
    as_json: opt.JsonOption = False,
) -> None:
    """Tell how well the site, and with --label the label, can be read off embeddings, and which slides collapse."""
    from panther.errors import said_of
    from panther.evaluation.shift import changes, patients_of, read_site_and_label, site_shift
    from panther.storage.embedding_files.reading import read_weights

    samples, weights, columns = read_weights(embeddings, site, patient)
    with said_of(embeddings):
        found = site_shift(weights, columns[site], samples, columns.get(patient), permutations=permutations, seed=seed)
    how = {"permutations": min(permutations, 199), "seed": seed}
    names = {"site": site, "patient": patient, "label": label}
    own = patients_of(embeddings, names, None if against is None else patients_of(against, names))
    both = embeddings if against is None else f"{embeddings}, patients that are in {against} too"
    with said_of(both):
        read = read_site_and_label(own.x, own.sites, own.labels, **how)
    result = {**asdict(found), "alarm": found.alarm, "embedding": asdict(read)}
    lines = [
        found.sentence,
        *read.sentences(label),
        f"Sites: {', '.join(f'{name} ({n})' for name, n in found.sites.items())}",
    ]
    if against is not None:
        other = patients_of(against, names, own)
        with said_of(against):
            before = read_site_and_label(other.x, other.sites, other.labels, **how)
        result["against"] = asdict(before)
        lines += [f"Against {against}, of the same {len(own.names)} patients:", *changes(before, read, label)]
    notes = (
        [f"Too small to judge: {', '.join(f'{name} ({n})' for name, n in found.left_out.items())}."]
        if found.left_out
        else []
    )
    common.report(result, lines, {}, as_json=as_json, notes=notes)
