"""`panther atlas`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._parsers import parse_settings

if TYPE_CHECKING:
    from panther.explain.atlas import Atlas


def atlas(
    features: opt.FeaturesArgument,
    prototypes: opt.PrototypesOption,
    output: opt.FolderOption,
    slides: opt.SlidesOption = None,
    table: opt.TableOption = None,
    split: opt.SplitOption = None,
    slide_column: opt.SlideColumnOption = None,
    patient_column: opt.PatientColumnOption = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(help="Column to compare shares by; text: groups, numbers: Spearman; repeatable."),
    ] = None,
    site: opt.SiteColumnOption = None,
    names: opt.NamesOption = None,
    method: opt.MethodOption = "panther",
    preset: opt.PresetOption = None,
    setting: opt.SetOption = None,
    exemplars: Annotated[
        int, typer.Option(min=1, max=64, help="Nearest patches per prototype, and as many random ones.")
    ] = 8,
    seed: opt.SeedOption = 0,
    slide_mpp: opt.SlideMppOption = None,
    slide_mpp_table: opt.SlideMppTableOption = None,
    encoder_name: opt.EncoderNameOption = None,
    mixed: opt.MixedOption = False,
    workers: opt.WorkersOption = "0",
    device: opt.DeviceOption = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Show what each prototype looks like, how much there is of it, in whom, and beside what."""
    from panther.explain.atlas import AtlasSettings, make_atlas
    from panther.explain.atlas.files import WRITTEN
    from panther.explain.scene import MapSettings
    from panther.slides import read_mpp_table
    from panther.storage.bags import list_bags
    from panther.store import check_output_folder

    start = time.perf_counter()
    check_output_folder(output, WRITTEN, slide_mpp_table)
    options = parse_settings(setting, preset=preset)
    resolutions = read_mpp_table(slide_mpp_table) if slide_mpp_table else {}
    maps = MapSettings(method, options, slide_mpp=slide_mpp, slide_mpp_table=resolutions)
    listing = list_bags(features, reading=common.reading(encoder_name, mixed))
    with common.open_work(workers, listing.refs, device) as work:
        found = make_atlas(
            listing,
            prototypes,
            slides,
            table,
            names,
            output,
            groups=groups or [],
            site=site,
            split=split,
            columns=common.columns(slide_column, patient_column),
            settings=AtlasSettings(maps, exemplars, seed),
            work=work,
        )
    _report(found, output, time.perf_counter() - start, as_json)


def _report(found: "Atlas", output: Path, seconds: float, as_json: bool) -> None:
    count, slides = found.prototypes, len(found.slides)
    lines = [
        f"{count} prototypes over {slides} slide{'s' if slides > 1 else ''} in {seconds:.1f} s -> {output} ({len(found.files)} files)",
        *_shares(found),
        *_differences(found),
        *(f"  {sentence}" for sentence in found.neighbours_in_words()),
        f"Look at {output / 'overview.png'}, then name what you see in {output / 'names.yaml'}.",
    ]
    result: Mapping[str, Any] = {
        "output": str(output),
        "seconds": seconds,
        "files": [str(file) for file in found.files],
    }
    common.report(result, lines, found.failures, as_json=as_json, notes=found.notes)


def _shares(found: "Atlas") -> list[str]:
    from panther.explain.atlas.sheets import member_text, share_text

    order = sorted(range(found.prototypes), key=lambda c: -found.shares[c].value)
    return [f"  {found.title(c)}: {share_text(found, c)}; {member_text(found, c)}" for c in order[:20]]


def _differences(found: "Atlas") -> list[str]:
    """One sentence per column: which prototypes differ."""
    lines = []
    for column in dict.fromkeys(one.column for one in found.tests):
        tests = [one for one in found.tests if one.column == column]
        clear = sorted((one for one in tests if one.p_corrected < 0.05), key=lambda one: one.p_corrected)
        said = ", ".join(f"{found.title(one.prototype)} (p = {one.p_corrected:.2g})" for one in clear)
        lines.append(f"  {column} ({tests[0].test}, Holm): {said or 'no prototype differs clearly'}")
    return lines
