"""`panther inspect`, `convert`, `status` and `doctor`."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from panther.errors import InputError, note, warn_left_out
from panther.verbs import Text, verb
from panther.verbs import parameters as p

PANEL = "Data"


@verb("inspect", PANEL)
def inspect(
    paths: Annotated[list[Path], p.option(metavar="PATH...")], *, deep: bool = False, workers: p.Workers = "auto"
) -> "Contents":
    """Show what files hold: format, slides, patches, dimensions, encoder, problems.

    Parameters
    ----------
    paths : list of path
        Files, or folders (searched in depth).
    deep : bool
        Read all features to find NaN and infinite numbers.
    workers : int or str, default="auto"
        Worker processes (1: this process, 0: one per core), or a Dask cluster, ``"tcp://HOST:PORT"`` or ``"slurm:OPTIONS.yaml"``.

    Returns
    -------
    Contents
        ``files``, a description of each file. Damaged files, and slides with two different bags, are a warning.

    Examples
    --------
    >>> import numpy as np, panther
    >>> np.save("slide.npy", np.zeros((5, 8), np.float32))
    >>> panther.inspect(["slide.npy"]).files["slide.npy"]["patches"]
    5
    """
    from panther.engine import open_work
    from panther.storage.bags import BagRef
    from panther.storage.survey import files_of, survey_all

    files: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    members = {path: files_of(path) for path in paths}
    with open_work(workers, [BagRef(str(path), tuple(inside)) for path, inside in members.items()]) as work:
        for path, inside in members.items():
            contents, failures = survey_all(path, inside, deep=deep, work=work.on_cpu())
            files |= {str(file): about for file, about in contents.items()}
            problems |= failures
    warn_left_out("Files with problems", problems)
    return Contents(" ".join(map(str, paths)), files)


@dataclass(frozen=True)
class Contents:
    """Descriptions of files."""

    path: str
    files: dict[str, dict[str, Any]]

    def to_lines(self) -> list[str]:
        """One line per group of similar files, or all fields of a single file."""
        if len(self.files) == 1:
            ((file, about),) = self.files.items()
            return [file, *(f"  {name:<11} {value}" for name, value in about.items() if name != "problem")]
        groups: dict[str, list[dict[str, Any]]] = {}
        for about in self.files.values():
            groups.setdefault(_label(about), []).append(about)
        lines = [f"{self.path}: {len(self.files)} files"]
        for label, members in sorted(groups.items(), key=lambda item: -len(item[1])):
            patches = [about["patches"] for about in members if "patches" in about]
            total = f", {sum(patches):,} patches ({min(patches):,} to {max(patches):,} per slide)" if patches else ""
            empty = f", {patches.count(0)} with zero patches" if 0 in patches else ""
            lines.append(f"  {len(members):>6} {label}{total}{empty}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {"path": self.path, "files": self.files}


def _label(about: Mapping[str, Any]) -> str:
    name = f"{about.get('format')}, d={about.get('dim')}"
    encoder = f"encoder {about.get('encoder') or 'not named'}"
    if about["kind"] == "bag":
        spec = about["patch_spec"]
        size = f", {spec['size']} px" if "size" in spec else ""
        size += f" at {spec['mpp']:g} um/px" if "mpp" in spec else ""
        coords = "with" if about["coords"] else "without"
        sample = ", a sample of each slide's patches" if "sampled_from" in about else ""
        return f"bags, {name} {about['dtype']}, {encoder}{size}, {coords} coordinates{sample}"
    return {
        "problem": "files with problems",
        "other": "other files",
        "slide image": f"slide images, {about.get('format')} (not features: `panther slides` extracts them)",
        "coordinates": "coordinate files (no features)",
        "model": "trained models",
        "table of slides": "tables of slides",
        "slide vector": f"vectors of whole slides, {name}, {encoder} (`embeddings:` of a study)",
    }.get(about["kind"], about["kind"])


@verb("convert", PANEL)
def convert(
    source: p.Features,
    output: p.RequiredFolder = None,
    *,
    to: Literal["trident", "clam", "npy", "safetensors"] = "trident",
    dtype: Literal["keep", "float16", "float32", "float64"] = "keep",
    slide_mpp: Annotated[float | None, Field(ge=0.05, le=5), p.option(panel=p.SLIDES)] = None,
    encoder_name: p.EncoderName = None,
    workers: p.Workers = "auto",
    part: p.Part = "",
) -> Text:
    """Write bags in another layout; existing files with the same content are kept.

    Parameters
    ----------
    source : path
        Feature file, or folder of them (searched in depth).
    output
        Folder to write to.
    to : str, default="trident"
        Layout: `trident` (.h5), `clam` (.h5, without encoder and patch size), `npy` (features alone) or `safetensors`.
    dtype : str, default="keep"
        Type of the numbers; float16 takes half the space and time.
    slide_mpp : float, optional
        Resolution of the slides at level 0, um/px: coordinates in micrometres (STAMP) become pixels.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    workers : int or str, default="auto"
        Worker processes (1: this process, 0: one per core), or a Dask cluster, ``"tcp://HOST:PORT"`` or ``"slurm:OPTIONS.yaml"``.
    part : str, optional
        Part k/n of the bags, for the tasks of a job array.

    Returns
    -------
    Text
        ``values``: how many bags were written and kept. Bags that fail are a warning.

    Examples
    --------
    >>> import numpy as np, panther
    >>> np.save("slide.npy", np.zeros((5, 8), np.float32))
    >>> panther.convert("slide.npy", "converted").values["written"]
    1
    """
    from functools import partial

    from panther.engine import collect, open_work, part_of
    from panther.storage.bags import Reading, list_bags
    from panther.storage.writers import convert_bag
    from panther.store import check_writable_folder

    if output is None:
        raise InputError("output: found None, expected a folder")
    if isinstance(source, (str, Path)) and output.resolve() == Path(source).resolve():
        raise InputError(f"output: {output} is the folder of the features, expected another")
    listing = list_bags(source, leave_out=output, reading=Reading(encoder_name))
    check_writable_folder(output)
    refs = part_of(listing.refs, part)
    write = partial(convert_bag, folder=output, to=to, dtype=dtype, slide_mpp=slide_mpp)
    with open_work(workers, refs) as work:
        values, failures = collect(write, refs, "converting", work.on_cpu())
    if values and to in ("npy", "clam"):
        note(f"{to}: cannot hold {'coordinates' if to == 'npy' else 'the encoder and the size of patches'}")
    warn_left_out("Not converted", {**listing.problems, **failures})
    done = Counter(values.values())
    line = f"{done['written']} bags written as {to}, {done['kept']} were there already"
    return Text([line], {"written": done["written"], "kept": done["kept"]})


@verb("status", PANEL)
def status(folder: Annotated[Path, p.option(metavar="FOLDER")]) -> Text:
    """Count items that are done, failed (with reasons) and left in the folder of a job or study.

    Parameters
    ----------
    folder : path
        Folder of `panther slides` or `panther run`.

    Returns
    -------
    Text
        ``values``: the ``steps`` of the job, or stages of the study. Failed items are a warning.
    """
    from panther.storage.files import DAMAGE, read_json
    from panther.storage.names import PARTLY, Job, read_summary

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    rows = read_summary(Job(folder))
    counts: list[tuple[str, int, int, dict[str, str]]] = []  # step, items, done, and the reasons of those that failed
    record, plan = folder / "run.json", folder / "cache" / "plan.json"
    if rows and "status" in rows[0]:
        names = {row["slide"] for row in rows}
        failed = {row["slide"]: row["reason"] for row in rows if row["status"] in ("failed", PARTLY)}
        outputs = {"tissue": folder / "contours_geojson"}
        for path in sorted(folder.glob("*/*")):
            if path.name == "patches" or path.name.startswith("features_"):
                outputs[f"{path.parent.name}/{path.name}"] = path
        for step, output in outputs.items():
            if output.is_dir():
                files = (path.name.removesuffix(".geojson").removesuffix(".h5") for path in output.iterdir())
                ready = {file.removesuffix("_patches") for file in files} & names - failed.keys()
                counts.append((step, len(names), len(ready), failed))
    elif record.is_file() or plan.is_file():
        stages, failures = {}, {}
        try:
            stages = dict(read_json(plan))
            failures = dict(read_json(record)).get("failures", {})
        except DAMAGE:  # not there yet
            pass
        for stage, files in stages.items():
            failed = {name: why for name, why in failures.items() if name.startswith(f"{stage}: ")}
            if files:
                counts.append((stage, len(files), sum((folder / file).is_file() for file in files), failed))
    else:
        raise InputError(f"{folder}: neither a job of `panther slides` nor a study of `panther run`")
    warn_left_out("Failed", {name: reason for *_, failed in counts for name, reason in failed.items()})
    width = max((len(step) for step, *_ in counts), default=0)
    lines, steps = [], []
    for step, total, done, failed in counts:
        left = max(total - done - len(failed), 0)
        lines.append(f"{step:<{width}}  {done:,} of {total:,} done, {len(failed):,} failed, {left:,} left")
        steps.append({"step": step, "total": total, "done": done, "failed": failed, "left": left})
    return Text(lines, {"steps": steps})
