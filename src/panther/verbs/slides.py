"""`panther slides` and `panther encoders`."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from panther.errors import InputError, note, require_packages, warn_left_out
from panther.verbs import Text, verb
from panther.verbs import parameters as p

if TYPE_CHECKING:
    from panther.slides import SlideRef, Tissue
    from panther.slides.job import JobReport
    from panther.types import Bag

STEPS = ("tissue", "patches", "features")  # in the order of the work
NOTED = 10  # slides whose notes are printed
PLANNED = 20  # slides whose plan is printed


@verb("slides", "Slides")
def extract(
    slides: Annotated[list[Path], BeforeValidator(p.as_list), p.option(metavar="SLIDES...")],
    encoder: Annotated[str | None, p.option(panel=p.ENCODER, completer=p.names_of("panther.encoders:encoders"))] = None,
    *,
    output: p.RequiredFolder = None,
    mpp: Annotated[float | None, Field(ge=0.05, le=50, allow_inf_nan=False), p.option(panel=p.PATCHES)] = None,
    mag: Annotated[float | None, Field(ge=0.2, le=200, allow_inf_nan=False), p.option(panel=p.PATCHES)] = None,
    patch_size: Annotated[p.Count, p.option(panel=p.PATCHES)] = 256,
    overlap: Annotated[int, Field(ge=0, strict=True), p.option(panel=p.PATCHES)] = 0,
    min_tissue: Annotated[float, Field(ge=0, le=1), p.option(panel=p.PATCHES)] = 0.25,
    edge: Annotated[Literal["drop", "pad"], p.option(panel=p.PATCHES)] = "drop",
    tissue: Annotated[
        Any, p.option("Tissue segmenter.", panel=p.METHOD, text=str, completer=p.names_of("panther.slides:segmenters"))
    ] = "colour",
    tissue_settings: Annotated[
        list[str] | dict[str, Any] | None, p.option(name="--set", panel=p.METHOD, short="-s", metavar="NAME=VALUE")
    ] = None,
    regions: Annotated[Path | None, p.option(panel=p.PATCHES, metavar="PATH")] = None,
    region_class: Annotated[str | None, p.option(panel=p.PATCHES, name="--class", metavar="NAME")] = None,
    slide_mpp: p.SlideMpp = None,
    slide_mpp_table: p.SlideMppTable = None,
    steps: Annotated[
        p.Names,
        p.option("Any of tissue, patches, features; by default all, features only with an encoder.", panel=p.RUNNING),
    ] = None,
    weights: Annotated[Path | None, p.option(panel=p.ENCODER, metavar="FILE")] = None,
    stain: Annotated[
        str | None, p.option(panel=p.ENCODER, completer=p.names_of("panther.slides.stain:METHODS"))
    ] = None,
    budget: Annotated[
        str | None,
        BeforeValidator(lambda value: None if value is None else str(value)),
        p.option(panel=p.ENCODER, metavar="N|P%|se=E"),
    ] = None,
    pieces: Annotated[bool, p.option(panel=p.PATCHES)] = False,
    prototypes: p.PrototypesLike = None,
    seed: p.Seed = 0,
    device: Annotated[str, p.option(panel=p.RUNNING)] = "auto",
    precision: p.Precision = "auto",
    batch: Annotated[int, Field(ge=0, strict=True), p.option(panel=p.ENCODER)] = 0,
    dtype: Literal["float16", "float32"] = "float16",
    dry_run: Annotated[bool, p.option(panel=p.RUNNING)] = False,
    workers: p.Workers = "auto",
    part: p.Part = "",
) -> "SlideBags | Text":
    """Find the tissue of slides, place patches on it and encode them; an interrupted run continues when started again.

    In a folder of tile images, each sub-folder is one bag, without coordinates.

    Parameters
    ----------
    slides : path or list of paths
        Slide files, or folders of them (searched in depth); or folders of tile images, which are encoded as they are.
    encoder : str, optional
        Name of `panther encoders`, `timm:NAME` or `module.path:factory`.
    output : path, optional
        Job folder in TRIDENT's layout, run again to go on; in Python features stay in memory without it.
    mpp : float, optional
        Resolution of the patches, um/px; 0.5 by default.
    mag : float, optional
        The same as a magnification: 20 is 0.5 um/px.
    patch_size : int
        Side of a patch, pixels at that resolution.
    overlap : int
        Pixels that neighbouring patches share.
    min_tissue : float
        Smallest share of tissue for a patch to be kept.
    edge : {"drop", "pad"}
        Strips at the right and bottom that are narrower than a patch: drop, or pad with white.
    tissue : str, TissueSettings or Tissue
        Tissue segmenter; in Python also the tissue (of one slide).
    tissue_settings : dict, optional
        Settings of the segmenter, in um or um2: min_area=5000, max_hole=50000, highest=0.06, pen=false ...
    regions : path, optional
        Annotations (GeoJSON of QuPath) that are used instead of the tissue: a file of the only slide, or a folder of `SLIDE.geojson`.
    region_class : str, optional
        Class of the annotations to use, e.g. "Tumor"; by default all. Those of the class `Ignore*` are cut out.
    slide_mpp, slide_mpp_table
        True resolution of the slides, um/px, where their files lack it or are wrong; per slide a CSV with columns wsi, mpp.
    steps : list of str, optional
        Any of tissue, patches, features; by default all, on the command line features only with an encoder.
    weights : path, optional
        File of the encoder's weights (.safetensors, .pth, .bin).
    stain : str, optional
        Normalise the stains of every slide before encoding: "macenko".
    budget : str or int, optional
        Encode an even sample of each slide's patches: "1500" of them, "10%", or until pi is known to "se=0.01" (with prototypes).
    pieces : bool
        Also write the patches of each connected piece of tissue (sections, cores of a TMA) as a bag, SLIDE_piece1, and a table, pieces.csv.
    prototypes : Prototypes or path, optional
        Prototypes whose proportions `budget="se=..."` is about.
    seed : int
        Seed of the sample.
    device : str, default="auto"
        Where to encode: auto (a GPU if there is one), cpu, cuda, or several: cuda:0,cuda:1.
    precision
        Type of the encoder's weights; auto: float16 on a GPU. float8: faster on recent GPUs, its agreement with float16 is measured.
    batch
        Patches per batch; 0: as suits the device.
    dtype
        Type of the features in the file.
    dry_run : bool
        Estimate patches, bytes and time; write nothing.
    workers : int or str, default="auto"
        Worker processes (1: this process, 0: one per core), or a Dask cluster, ``"tcp://HOST:PORT"`` or ``"slurm:OPTIONS.yaml"``.
    part : str, optional
        Part k/n of the slides, e.g. "2/8", for the tasks of a job array.

    Returns
    -------
    SlideBags
        Mapping of slide names to bags: features (N, d) as float16 with their coordinates; patches that cannot be decoded are left out.

    Examples
    --------
    >>> import panther
    >>> bags = panther.extract("slide.svs", "uni", device="cuda")  # doctest: +SKIP
    >>> embedding = panther.embed(bags["slide"], prototypes)  # doctest: +SKIP
    """
    from panther.encoders.budget import Budget
    from panther.encoders.pieces import PieceStep, write_pieces
    from panther.encoders.pipeline import ExtractSettings
    from panther.encoders.sources import list_tile_folders
    from panther.encoders.step import EncoderChoice, FeatureStep, TileStep, run_steps
    from panther.engine import (
        cluster_device,
        collect,
        count_processes,
        find_device,
        is_cluster,
        open_executor,
        open_work,
        part_of,
    )
    from panther.machine import cores
    from panther.slides import Job, PatchStep, SlideFiles, Tissue, TissueStep, list_slides, read_mpp_table
    from panther.slides.polygons import write_contours
    from panther.slides.steps import plan_slide
    from panther.storage.prototypes import as_prototypes
    from panther.store import check_output_folder

    if region_class is not None and regions is None:
        raise InputError(f"region_class: found {region_class!r}, expected annotations in `regions=`, too")
    if regions is not None and not regions.exists():
        raise InputError(f"regions: there is no {regions}")
    if regions is not None and (dry_run or isinstance(tissue, Tissue)):
        raise InputError(f"regions: found {'`dry_run=`' if dry_run else '`tissue=`'}, too, expected one of them")
    sample = Budget.of(budget, seed, None if prototypes is None else as_prototypes(prototypes))
    tissue_step = TissueStep(_tissue_settings(tissue, tissue_settings or ()))
    patch_step = PatchStep(patch_size, _resolution(mpp, mag), overlap, min_tissue, edge)
    if unknown := set(steps or ()) - set(STEPS):
        raise InputError(f"steps: found {min(unknown)!r}, expected some of {', '.join(STEPS)}")
    names = [name for name in STEPS if name in (steps or (STEPS if encoder or output is None else STEPS[:2]))]
    first = [step for step in (tissue_step, patch_step) if step.name in names]
    earlier = [tissue_step, patch_step][: STEPS.index(names[0])]
    require_packages("slides", "PIL")
    tiles = list_tile_folders(slides)
    if tiles is not None:
        if encoder is None:
            raise InputError(f"encoder: {slides[0]} holds tile images, expected the name of an encoder")
        for name, value in {
            "steps": steps,
            "stain": stain,
            "budget": budget,
            "regions": regions,
            "pieces": pieces,
            "dry_run": dry_run,
        }.items():
            if value:
                raise InputError(f"{name}: is for slides, and {slides[0]} holds tile images")
        names, first, earlier, listing = [STEPS[2]], [], [], tiles
    else:
        require_packages("slides", "openslide", "tifffile", "imagecodecs")
        table = read_mpp_table(slide_mpp_table) if slide_mpp_table else None
        listing = list_slides(slides, table, slide_mpp, leave_out=output)
    refs = part_of(listing.refs, part)
    notes = [*listing.notes]
    with ExitStack() as stack:
        job = Job(output or Path(stack.enter_context(TemporaryDirectory(prefix="panther-slides-"))))
        cluster = stack.enter_context(open_executor(workers)) if is_cluster(workers) else None
        processes = 0 if cluster else count_processes(workers, refs)
        features = None
        if STEPS[2] in names:
            devices = [cluster_device(cluster, device)] if cluster else map(find_device, device.split(","))
            choice = EncoderChoice(encoder or "lite0", weights, tuple(devices), precision, stain)
            settings = ExtractSettings(batch, 0 if cluster else max(1, processes), dtype, guarded=processes > 0)
            kind, folder = (FeatureStep, patch_step.folder) if tiles is None else (TileStep, "tiles")
            features = kind(folder, choice, settings, sample)
        else:
            unused = {"budget": budget, "stain": stain, "pieces": pieces}
            notes += [f"{name}: belongs to the step features, which is not run" for name in unused if unused[name]]
        if dry_run:
            with open_work(processes, device="cpu") as work:
                plan = partial(plan_slide, job=job, tissue_step=tissue_step, patch_step=patch_step)
                plans, failures = collect(plan, refs, "planning", work)
                workers_used = getattr(work.executor, "workers", 1) or cores()
            failures = {**listing.problems, **failures}
            return _estimate(plans, failures, patch_step.mpp, features, workers_used, notes)
        if output is not None:
            check_output_folder(output, ("summary.csv", "pieces.csv"), slide_mpp_table, weights, prototypes)
        problems = dict(listing.problems)
        outlines = {}
        if regions is not None:
            outlines = _regions(refs, regions, region_class, problems)
        elif isinstance(tissue, Tissue):
            outlines = {ref.name: tissue for ref in refs}
        about = None if regions is None else {"regions": region_class or "all"}
        for ref in refs:
            present = SlideFiles(ref, job).contours if ref.name in outlines else None
            if present is not None and present.edited and not present.regions:
                problems[ref.name] = f"{job.geojson(ref.name)}: was edited and would be replaced; move it elsewhere"
            elif ref.name in outlines:
                write_contours(job.geojson(ref.name), outlines[ref.name], about)
        refs = tuple(ref for ref in refs if ref.name not in problems)
        if not refs:
            raise InputError(next(iter(problems.values())))
        start = time.perf_counter()
        pool = cluster or processes
        after = [PieceStep(features)] if pieces and features is not None else []
        report = run_steps(refs, problems, first, features, job, pool, earlier=earlier, after=after, part=part)
        paths = {}
        if features is not None:
            done = [SlideFiles(ref, job) for ref in report.remaining(refs)]
            paths = {files.slide.name: features.path(files) for files in done}
            if after and done:
                paths = {path.stem: path for files in done for path in after[0].paths(files)}
                write_pieces(job.folder / "pieces.csv", after[0].folder(done[0]))
        bags: dict[str, Any] = {**paths} if output is not None else {name: _load(path) for name, path in paths.items()}
    if output is None and not bags:
        raise InputError(next(iter(report.failures.values()), "steps: expected features, or an `output`"))
    throughput = features.throughput if features is not None and cluster is None else None
    result = SlideBags(report, bags, job.folder, time.perf_counter() - start, throughput, tiles is None)
    row_notes = ((row["slide"], row.get("note")) for row in report.rows)
    note(*notes, *_notes_on_slides(row_notes, "see summary.csv"))
    warn_left_out("Left out", report.failures)
    return result


def _regions(
    refs: "Sequence[SlideRef]", path: Path, group: str | None, problems: dict[str, str]
) -> "dict[str, Tissue]":
    """Annotated regions of each slide; slides without any are added to ``problems``."""
    from panther.slides.polygons import read_regions

    if path.is_file() and len(refs) > 1:
        raise InputError(f"regions: found one file for {len(refs)} slides, expected a folder of SLIDE.geojson")
    outlines = {}
    for ref in refs:
        names = (f"{ref.path.name}.geojson", f"{ref.name}.geojson")
        file = path if path.is_file() else next((path / name for name in names if (path / name).exists()), None)
        try:
            if file is None:
                raise InputError(f"there is no {path / names[-1]}")
            outlines[ref.name] = read_regions(file, group)
        except InputError as error:
            problems[ref.name] = f"{ref.name}: {error}"
    return outlines


@dataclass(frozen=True)
class SlideBags(Mapping[str, "Bag"]):
    """Bags by the names of their slides, and a row of the summary for each slide."""

    report: "JobReport"
    bags: Mapping[str, Any]  # bag, or its file
    folder: Path
    seconds: float
    throughput: Any = None
    has_contours: bool = True

    def __getitem__(self, name: str) -> "Bag":
        from panther.storage.readers import open_bag

        bag = self.bags[name]
        return open_bag(bag) if isinstance(bag, Path) else bag

    def __iter__(self) -> Iterator[str]:
        return iter(self.bags)

    def __len__(self) -> int:
        return len(self.bags)

    @property
    def failures(self) -> dict[str, str]:
        """Slides that failed or could be read in part only, and why."""
        return self.report.failures

    def to_lines(self) -> list[str]:
        """Numbers of slides and patches, and the folder of the contours."""
        report = self.report
        counts = Counter(row["status"] for row in report.rows)
        done, partly = counts["done"], counts["partly read"]
        before = sum(row["status"] != "failed" and row["slide"] not in report.ran for row in report.rows)
        lines = [
            f"{done} of {len(report.rows)} slides done{f', {partly} partly read' if partly else ''}, "
            f"{report.patches:,} patches, {self.seconds:.1f} s ({before} were done already)"
        ]
        if done + partly and self.has_contours:
            contours = self.folder / "contours"
            lines.append(f"Look at the contours in {contours}; the next run uses GeoJSON files that were edited.")
        return lines if self.throughput is None else [*lines, str(self.throughput)]

    def to_json(self) -> dict[str, Any]:
        """Counts, and the rows of the summary."""
        report = self.report
        values = {"job": str(self.folder), "patches": report.patches, "worked": len(report.ran), "slides": report.rows}
        return values if self.throughput is None else {**values, "features": vars(self.throughput)}


def _load(path: Path) -> "Bag":
    """Bag in memory, of a temporary file."""
    from panther.rows import LoadedCoords
    from panther.storage.readers import open_bag
    from panther.types import Bag

    bag = open_bag(path)
    places = None if bag.places is None else LoadedCoords(bag.places())
    population = bag.population and replace(bag.population, places=LoadedCoords(bag.population.places()))
    return Bag(bag.slide_id, bag.features[:], places, bag.spec, bag.encoder, population=population)


def _tissue_settings(tissue: Any, settings: Any) -> Any:
    from panther.slides import Tissue, TissueSettings, segmenters

    if isinstance(tissue, (Tissue, TissueSettings)):
        if settings:
            raise InputError("tissue_settings: found with tissue itself, expected with the name of a segmenter")
        return TissueSettings() if isinstance(tissue, Tissue) else tissue
    segmenters.entry(tissue)
    return TissueSettings.of(tissue, settings if isinstance(settings, dict) else p.parse_settings(settings))


def _resolution(mpp: float | None, mag: float | None) -> float:
    if mpp is not None and mag is not None:
        raise InputError("mag: found mag and mpp, expected one of them")
    return 10 / mag if mag is not None else 0.5 if mpp is None else mpp


def _notes_on_slides(notes: Iterable[tuple[str, str | None]], others: str) -> list[str]:
    """Notes on the first slides; ``others`` names the place of the rest."""
    texts = [f"{name}: {text}" for name, text in notes if text]
    more = [f"... and {len(texts) - NOTED} more slides with notes; {others}"] if len(texts) > NOTED else []
    return texts[:NOTED] + more


def _estimate(
    plans: Mapping[str, Any], failures: Mapping[str, str], mpp: float, features: Any, workers: int, notes: list[str]
) -> Text:
    """Patches, bytes and time of a job."""
    from panther.progress import duration
    from panther.slides.steps import joined, totals

    dims = (1024, 1280) if features is None else (features.dim,)
    plans = {name: _sampled(plan, features) for name, plan in plans.items()}
    sums = totals(plans.values(), workers, dims)
    if features is not None and sums["patches"]:
        sums["encode_seconds"] = sums["patches"] / features.rate()
    other_mpp = "" if features is None else features.made_for_another(mpp)
    plan_notes = ((name, joined(plan.note, other_mpp)) for name, plan in plans.items())
    note(*notes, *_notes_on_slides(plan_notes, "--json lists all"))
    warn_left_out("Not planned", failures)
    lines = [f"  {name}: {plan.patches:,} patches, {plan.mpp:g} um/px" for name, plan in list(plans.items())[:PLANNED]]
    if features is not None and features.budget is not None:
        most = "at most, " if features.budget.error is not None else ""
        lines.append(f"  Patches to be encoded ({most}budget {features.budget.text}).")
    if len(plans) > PLANNED:
        lines.append(f"  ... and {len(plans) - PLANNED} more slides; --json lists all")
    sizes = " or ".join(f"{v / 1e6:,.1f} MB (d={k.rpartition('_')[2]})" for k, v in sums.items() if "bytes" in k)
    encoder = f"{duration(sums['encode_seconds'])} to encode them" if "encode_seconds" in sums else "the encoder on top"
    lines += [
        f"{sums['slides']} slides, {sums['patches']:,} patches; features in float16: {sizes}",
        f"About {duration(sums['tissue_seconds'])} to find tissue, {duration(sums['decode_seconds'])} to decode the patches, "
        f"{encoder}. Nothing was written.",
    ]
    return Text(lines, {"dry_run": True, **sums, "plans": {name: vars(plan) for name, plan in plans.items()}})


def _sampled(plan: Any, features: Any) -> Any:
    """Plan of the patches that are encoded."""
    if features is None or not plan.patches:
        return plan
    encoded = features.encoded_of(plan.patches)
    return replace(plan, patches=encoded, decode_seconds=plan.decode_seconds * encoded / plan.patches)


@verb("encoders", "Slides")
def list_encoders() -> Text:
    """List the encoders: dimension, input, resolution, licence, and where access to the weights is granted.

    Returns
    -------
    Text
        One line and one record for each encoder.
    """
    from panther.encoders import about, encoders

    infos = [about(entry.name) for entry in encoders]
    lines = [f"{'name':<17} {'dim':>5} {'input':>6}  {'um/px':<6} {'licence':<26} weights"]
    for info in infos:
        mpp = "any" if info.mpp is None else f"{info.mpp:g}"
        hub = f"https://huggingface.co/{info.hub}" if info.hub else None
        weights = f"gated: {info.gated}" if info.gated else hub or info.page or "embedded"
        lines.append(f"{info.name:<17} {info.dim:>5} {info.size:>6}  {mpp:<6} {info.licence:<26} {weights}")
    lines.append("Also: timm:NAME for any model of timm, module.path:factory for your own.")
    return Text(lines, {"encoders": [info.public() for info in infos]})
