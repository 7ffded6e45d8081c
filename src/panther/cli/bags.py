"""`panther inspect` and `panther convert`."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt


def inspect(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, or folders (searched in depth).", show_default=False)
    ],
    deep: Annotated[bool, typer.Option("--deep", help="Read all features to find NaN and infinite numbers.")] = False,
    workers: opt.WorkersOption = "0",
    as_json: opt.JsonOption = False,
) -> None:
    """Tell what a file or folder holds: format, slides, patches, dimensions, encoder, problems."""
    from panther.engine import open_work
    from panther.storage.survey import files_of, survey_all

    files = {path: files_of(path) for path in paths}
    many = sum(map(len, files.values())) > 64 or deep or not workers.isdigit()
    found: dict[Path, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    with open_work(workers if many else 1, track=common.track) as work:
        for place, members in files.items():
            more, failed = survey_all(place, members, deep=deep, work=work)
            found, problems = found | more, problems | failed
    path = " ".join(map(str, paths))
    result = {"path": path, "files": {str(file): about for file, about in found.items()}}
    common.report(result, _table(path, found), problems, as_json=as_json)


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Feature file or folder.", show_default=False)],
    output: opt.FolderOption,
    to: Annotated[str, typer.Option(help="trident, npy or safetensors.")] = "trident",
    dtype: Annotated[
        str, typer.Option(help="keep, float16 (half the size, faster to read), float32 or float64.")
    ] = "keep",
    slide_mpp: opt.SlideMppOption = None,
    encoder_name: opt.EncoderNameOption = None,
    workers: opt.WorkersOption = "0",
    part: opt.PartOption = "",
    as_json: opt.JsonOption = False,
) -> None:
    """Write bags in another layout; files appear whole, and a second run only does what is missing."""
    from panther.engine import collect
    from panther.limits import part_of
    from panther.storage.bags import Reading, list_bags
    from panther.storage.convert import Conversion
    from panther.store import check_writable_folder

    conversion = Conversion(output, to, dtype, slide_mpp)
    listing = list_bags(source, leave_out=output, reading=Reading(encoder_name))
    check_writable_folder(output)
    refs = part_of(listing.refs, part)
    with common.open_work(workers, refs) as work:
        values, failed = collect(conversion, refs, "converting", work)
    failures, done = {**listing.problems, **failed}, Counter(values.values())
    notes = ["The layout npy has no place for coordinates; trident and safetensors keep them."] if to == "npy" else []
    lines = [f"{done['written']} bags written to {output} as {to}, {done['kept']} were there already"]
    result = {"output": str(output), "written": done["written"], "kept": done["kept"]}
    common.report(result, lines, failures, as_json=as_json, notes=notes)


def _table(path: str, found: dict[Path, dict[str, Any]]) -> list[str]:
    """One line per group of alike files; a single file gets all that is known."""
    if len(found) == 1:
        ((file, about),) = found.items()
        return [str(file), *(f"  {name:<11} {value}" for name, value in about.items() if name != "problem")]
    groups: dict[str, list[dict[str, Any]]] = {}
    for about in found.values():
        groups.setdefault(_label(about), []).append(about)
    lines = [f"{path}: {len(found)} files"]
    for label, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        patches = [about["patches"] for about in members if "patches" in about]
        counted = f", {sum(patches):,} patches ({min(patches):,} to {max(patches):,} per slide)" if patches else ""
        empty = sum(1 for n in patches if n == 0)
        lines.append(f"  {len(members):>6} {label}{counted}" + (f", {empty} with zero patches" if empty else ""))
    return lines


def _label(about: dict[str, Any]) -> str:
    if about["kind"] == "bag":
        spec = about["patch_spec"]
        geometry = f", {spec['size']} px" if "size" in spec else ""
        geometry += f" at {spec['mpp']:g} um/px" if "mpp" in spec else ""
        where = "with coordinates" if about["coords"] else "without coordinates"
        return f"bags, {about['format']}, d={about['dim']} {about['dtype']}, encoder {about['encoder'] or 'not named'}{geometry}, {where}"
    return {
        "problem": "files with problems",
        "other": "other files",
        "slide image": f"slide images, {about.get('format')} (features are needed: extract them first)",
        "coordinates": "coordinate files (no features)",
        "model": "trained models",
        "table of slides": "tables of slides",
        "slide vector": f"vectors of whole slides, {about.get('format')}, d={about.get('dim')}, encoder {about.get('encoder') or 'not named'} "
        "(name the folder as embeddings: of a study)",
    }.get(about["kind"], about["kind"])
