"""The step `features` of a job: the patches of every slide, or tile images, are encoded to one bag each."""

import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panther.encoders._base import Encoder
from panther.encoders.budget import Budget
from panther.encoders.loading import find_recipe, load_encoder
from panther.encoders.pipeline import Encoded, ExtractSettings, Pipeline, Throughput
from panther.encoders.sources import SlidePatches, TileFolder
from panther.engine import SESSION, Work, map_all, open_work
from panther.errors import InputError, check_choice
from panther.patches import stated_step
from panther.progress import PatchProgress
from panther.slides.job import JobReport, SlideFiles, run_job
from panther.slides.listing import SlideRef
from panther.slides.stain import METHODS, NotStained, StainFit, fit_slide
from panther.slides.steps import joined, no_patch
from panther.statistics.even_sample import order_along_curve
from panther.storage.names import Job
from panther.storage.trident import Coords, FeatureRows, feature_attributes, tile_names, write_bag
from panther.store import atomic_write, check_writable, hash_of
from panther.types import Bag

ON_A_GPU = 2  # slides at a time: while one is opened, or its file written, the other keeps the GPU busy
FAR = 1.3  # factor between the resolutions of an encoder and of the patches from which on it is noted


def write_features(
    slide: SlideRef,
    coords: Coords,
    pipeline: Pipeline,
    target: Path,
    key: str = "",
    stain: str | None = None,
    budget: Budget | None = None,
) -> Encoded:
    """Encode the patches at ``coords`` of a slide into a TRIDENT bag at ``target``, with stains normalised by the method ``stain``.

    The attributes of ``coords`` are written, too, and ``key``, by which a later run recognises the features. With a ``budget`` a
    sample of the patches is encoded, in the order of the curve through the tissue, and the coordinates of all are written.
    """
    xy, about = coords.coords, {"name": slide.name, **pipeline.encoder.public()}
    source = SlidePatches(slide.path, slide.mpp, coords.spec)
    if stain is not None:
        about["encoder"] += f"+{stain}"
        try:
            fit = pipeline.call(source, fit_stain, xy, stain)
        except NotStained as error:
            about["stain_note"] = f"{error}: they were encoded as they are"
        else:
            about["stain"] = json.dumps({"vectors": fit.vectors, "strength": fit.strength})
            source = replace(source, stain=fit)
    check_writable(target)
    if budget is None:
        return _write(pipeline, pipeline.run(source, xy), xy, target, about, key, coords.attributes)
    step = stated_step(coords.spec)
    assert step is not None
    along = xy[order_along_curve(xy, int(step))]
    bag = Bag(slide.name, torch.empty(0, pipeline.encoder.about.dim), None, coords.spec, about["encoder"])
    encoded, drawn = budget.encode(pipeline, source, along, bag)
    sample = {"budget": budget.text, "seed": budget.seed, "sampled": len(drawn)}
    population = along if len(drawn) < len(along) else None
    return _write(pipeline, encoded, along[drawn], target, about | sample, key, coords.attributes, population)


def fit_stain(source: SlidePatches, xy: np.ndarray, method: str) -> StainFit:
    """Stains of a slide, from some of its patches."""
    with closing(source.open()) as reading:
        return fit_slide(method, reading.read, xy)


def encode_tiles(folder: Path, pipeline: Pipeline, target: Path, key: str = "") -> Encoded:
    """Encode the tile images of a folder into one bag without coordinates, with the names of the tiles in `tiles`."""
    source, about = TileFolder(folder), {"name": target.stem, **pipeline.encoder.public()}
    names = source.names()
    check_writable(target)
    return _write(pipeline, pipeline.run(source, names), names, target, about, key, None)


def _write(
    pipeline: Pipeline,
    encoded: Encoded,
    items: Any,
    target: Path,
    about: Mapping[str, Any],
    key: str,
    geometry: Mapping[str, Any] | None,
    population: np.ndarray | None = None,
) -> Encoded:
    """Write the features of those items, coordinates (N, 2) with their ``geometry`` or names of tiles, that could be decoded."""
    kept = encoded.kept
    if len(items) and not kept.any():
        raise InputError(f"{target.stem}: none of the {len(items)} patches could be decoded: {encoded.failed[0]}")
    begin, folder = time.perf_counter(), target.absolute().parent
    # a relative path, so that a moved job has the same bytes
    attributes = {"name": about["name"], "savetodir": f"{folder.parent.name}/{folder.name}", **about}
    attributes |= {"precision": pipeline.encoder.public()["precision"], "masked": len(encoded.failed)}
    attributes |= pipeline.agreement | ({"key": key} if key else {})
    blocks = (encoded.rows[at : at + 4096][kept[at : at + 4096]] for at in range(0, len(kept), 4096))
    rows = FeatureRows((int(kept.sum()), encoded.rows.shape[1]), encoded.rows.dtype, blocks, attributes)
    with atomic_write(target) as temporary:
        if geometry is None:
            write_bag(temporary, rows, tiles=[items[i] for i in np.flatnonzero(kept)])
        else:
            write_bag(temporary, rows, (items[kept], geometry), population=population)
    seconds = time.perf_counter() - begin
    return replace(encoded, throughput=encoded.throughput + Throughput(seconds=seconds, writing=seconds))


@dataclass(frozen=True)
class EncoderChoice:
    """An encoder, its weights, and the devices that it runs on."""

    name: str = "lite0"
    weights: Path | None = None
    devices: tuple[str, ...] = ("cpu",)  # slides are distributed over them
    precision: str = "auto"
    stain: str | None = None  # normalisation of the stains

    def spread(self) -> "EncoderChoice":
        """The same on all GPUs of this process, where the device is `cuda`; processes begin with different ones."""
        count = torch.cuda.device_count() if self.devices == ("cuda",) else 0
        gpus = tuple(f"cuda:{(os.getpid() + number) % count}" for number in range(count))
        return replace(self, devices=gpus or self.devices)

    def load(self, device: str) -> Encoder:
        """Network on a device."""
        return load_encoder(self.name, self.weights, device=device, precision=self.precision)

    @property
    def folder(self) -> str:
        """Name of the folder of its features."""
        name = self.name if self.stain is None else f"{self.name}+{self.stain}"
        return "features_" + re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def _try_to_load(choice: EncoderChoice) -> None:
    """Load an encoder, to check that it can be loaded."""
    choice.load(choice.devices[0])


@dataclass
class FeatureStep:
    """Encodes the patches of a slide; the encoder is loaded by `prepare`, or when the first slide needs it, once per device."""

    patches: str  # the set of patches, e.g. 20x_256px_0px_overlap
    choice: EncoderChoice = field(default_factory=EncoderChoice)
    settings: ExtractSettings = field(default_factory=ExtractSettings)
    budget: Budget | None = None
    name: str = "features"
    throughput: Throughput = field(default_factory=Throughput)  # over all slides of this run
    on_progress: Callable[[str, int], None] = lambda slide, patches: None  # called as patches of a slide are done

    def __post_init__(self) -> None:
        self._facts = find_recipe(self.choice.name).about  # refuses an unknown name before the work
        if self.choice.stain is not None:
            check_choice("stain normalisation", self.choice.stain, METHODS)
        self._lock = threading.Lock()
        self._free = queue.LifoQueue[Pipeline | str]()  # a used pipeline comes first: its encoder is loaded
        self._encoders: dict[str, Encoder] = {}
        self._pipelines: list[Pipeline] = []
        self._compiled: set[str] = set()  # devices
        self.patches_ahead = 0  # patches of all slides of this run; 0 where they are not known
        self._begun: float | None = None
        # a device is repeated for every slide that it works on at a time
        gpus = [device for device in self.choice.devices if torch.device(device).type != "cpu"]
        self._slots = [*self.choice.devices, *(gpus * (ON_A_GPU - 1))]
        for device in reversed(self._slots):
            self._free.put(device)

    def __getstate__(self) -> dict[str, Any]:
        """Settings, for other processes; without pipelines and progress bars."""
        return {name: getattr(self, name) for name in ("patches", "choice", "settings", "budget", "name")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**{**state, "choice": state["choice"].spread()})  # type: ignore[misc]

    def prepare(self, slides: Iterable[SlideFiles], workers: Executor | None = None) -> None:
        """Load the encoder if a slide lacks features, so that an unavailable one refuses the request instead of every slide.

        It is loaded in this process or by one of the ``workers``, which may have other files.
        """
        if all(self.path(files).exists() for files in slides):
            return
        if workers is None:
            self._encoder(self.choice.devices[0])
        else:
            map_all(_try_to_load, [self.choice], "encoder", Work(workers))

    def path(self, files: SlideFiles) -> Path:
        """File of the slide's features."""
        return files.job.folder / self.patches / self.choice.folder / f"{files.slide.name}.h5"

    def done(self, files: SlideFiles) -> bool:
        """Whether the features are those of the present patches, by this encoder and these settings."""
        content = self._content(files)
        return content is not None and feature_attributes(self.path(files)).get("key") == self._key(content)

    def run(self, files: SlideFiles) -> None:
        """Encode the slide on the next free device."""
        name, content = files.slide.name, self._content(files)
        if content is None:
            raise InputError(f"{name}: found no patches in {self.patches}; run the step patches first")
        with self._pipeline(name) as pipeline:
            encoded = self._write(files, pipeline, self._key(content))
        with self._lock:
            seconds = time.perf_counter() - (self._begun or 0)  # wall-clock time: slides run in parallel
            self.throughput = replace(self.throughput + encoded.throughput, seconds=seconds)

    def _content(self, files: SlideFiles) -> bytes | None:
        """Content of the patches, for the key; None where there are none."""
        coords = files.coords(self.patches)
        return None if coords is None else coords.content

    def _write(self, files: SlideFiles, pipeline: Pipeline, key: str) -> Encoded:
        coords = files.coords(self.patches)
        assert coords is not None
        return write_features(files.slide, coords, pipeline, self.path(files), key, self.choice.stain, self.budget)

    def about(self, files: SlideFiles) -> Mapping[str, Any]:
        """Features written and left out, for the summary."""
        coords = files.coords(self.patches)
        if coords is None:
            return {}
        written = feature_attributes(self.path(files))
        masked, total = int(written.get("masked", 0)), int(written.get("sampled", len(coords.coords)))
        lost = f"{masked} of {total} patches could not be decoded and were left out" if masked else ""
        notes = (str(coords.about.get("note", "")), no_patch(coords.coords), lost, str(written.get("stain_note", "")))
        about = {"features": total - masked, "masked": masked, "encoder": self.choice.name}
        about |= {} if self.budget is None else {"budget": self.budget.text}
        return {**about, "note": joined(*notes, self.made_for_another(coords.spec.mpp))}

    def encoded_of(self, patches: int) -> int:
        """Patches that are encoded of a slide's, at most."""
        return patches if self.budget is None else self.budget.size(patches)

    def made_for_another(self, mpp: float | None) -> str:
        """Note on an encoder that was trained on patches of another resolution."""
        made_for = self._facts.mpp
        if not made_for or not mpp or 1 / FAR < mpp / made_for < FAR:
            return ""
        return f"{self.choice.name} was made for {made_for:g} um/px and the patches have {mpp:g}"

    @property
    def dim(self) -> int:
        """Numbers per patch."""
        return self._facts.dim

    def rate(self) -> float:
        """Patches per second on all devices, measured on one batch; with random weights, so that nothing is downloaded."""
        choice = self.choice
        encoder = load_encoder(choice.name, device=choice.devices[0], precision=choice.precision, seed=0)
        batch = self.settings.batch_for(encoder.device)
        pixels = np.zeros((batch, encoder.about.size, encoder.about.size, 3), np.uint8)
        encoder(pixels)
        start = time.perf_counter()
        encoder(pixels)
        return batch * len(choice.devices) / (time.perf_counter() - start)

    def executor(self) -> AbstractContextManager[Executor | None]:
        """One thread for each slide that is encoded at a time; none for a single one."""
        return ThreadPoolExecutor(len(self._slots)) if len(self._slots) > 1 else nullcontext()

    def close(self) -> None:
        """End the decoding processes."""
        for pipeline in self._pipelines:
            pipeline.close()
        self._pipelines.clear()

    @contextmanager
    def _pipeline(self, slide: str) -> Iterator[Pipeline]:
        """A free pipeline for that slide, created on first use."""
        pipeline = self._free.get()
        try:
            if isinstance(pipeline, str):
                device = pipeline
                with self._lock:
                    encoder = self._encoder(device)
                    if device not in self._compiled and encoder.pays_to_compile(self.patches_ahead):
                        self._compiled.add(device)  # tried once
                        encoder = self._encoders[device] = encoder.compile(self.settings.batch_for(encoder.device))
                    pipeline = Pipeline(encoder, self.settings)
                    self._pipelines.append(pipeline)
            self._begun = self._begun or time.perf_counter()
            pipeline.on_progress = lambda patches: self.on_progress(slide, patches)
            yield pipeline
        finally:
            self._free.put(pipeline)

    def _encoder(self, device: str) -> Encoder:
        """Network of a device, loaded once."""
        if device not in self._encoders:
            self._encoders[device] = self.choice.load(device)
        return self._encoders[device]

    def _key(self, content: bytes) -> str:
        """Hash of the settings and the patches, without loading the encoder."""
        choice, weights = self.choice, self.choice.weights
        if weights is not None and not weights.exists():
            raise InputError(f"{weights}: there is no such file of weights")
        parts = [choice.name, weights and [weights.name, weights.stat().st_size], choice.precision]
        settings = [self.settings.dtype, self.settings.batch, [torch.device(d).type for d in choice.devices[:1]]]
        sampled = [] if self.budget is None else [self.budget.parts]
        return hash_of([parts, settings, *([choice.stain] if choice.stain else []), *sampled], content)


class TileStep(FeatureStep):
    """Encodes folders of tile images, one bag each."""

    def _content(self, files: SlideFiles) -> bytes:
        """Hash of the names, sizes and times of the tiles."""
        stamps = [(name, (files.slide.path / name).stat()) for name in TileFolder(files.slide.path).names()]
        return hash_of([(name, stamp.st_size, stamp.st_mtime_ns) for name, stamp in stamps]).encode()

    def _write(self, files: SlideFiles, pipeline: Pipeline, key: str) -> Encoded:
        return encode_tiles(files.slide.path, pipeline, self.path(files), key)

    def about(self, files: SlideFiles) -> Mapping[str, Any]:
        """Features written and tiles left out, for the summary."""
        names, kept = TileFolder(files.slide.path).names(), set(tile_names(self.path(files)))
        lost = [name for name in names if name not in kept]
        about = {"patches": len(names), "features": len(kept), "masked": len(lost), "encoder": self.choice.name}
        what = f"{len(lost)} of {len(names)} tiles could not be decoded and were left out"
        return {**about, "note": f"{what}, e.g. {lost[0]}" if lost else ""}


def run_steps(
    slides: Sequence[SlideRef],
    problems: Mapping[str, str],
    first: Sequence[Any],
    features: FeatureStep | None,
    job: Job,
    pool: Any,
    *,
    earlier: Sequence[Any] = (),
    after: Sequence[Any] = (),
    part: str = "",
) -> JobReport:
    """Run the steps ``first`` on every slide, then encode those that have not failed, and run the steps ``after`` on them.

    See :func:`panther.slides.run_job`. ``pool`` is a number of processes of this machine (0: this one), or a cluster. On this machine the
    encoder runs in this process, with a thread for each slide that is encoded at a time.
    """
    is_local, report, track = isinstance(pool, int), None, SESSION.track
    encoding = None
    if features is not None:
        encoding = None if is_local else pool.for_work(gpu=features.choice.devices[0] != "cpu", in_worker=True)
        features.prepare((SlideFiles(slide, job) for slide in slides), encoding)
    if first:
        with open_work(pool, device="cpu") if is_local else nullcontext(Work(pool, track=track)) as work:
            report = run_job(slides, first, job, work=work, problems=problems, earlier=earlier, part=part)
    if features is None:
        assert report is not None
        return report
    if report is not None and is_local:
        remaining = [slide.name for slide in report.remaining(slides)]
        ahead = {name: features.encoded_of(report.patches_by_slide[name]) for name in remaining}
        features.patches_ahead = sum(ahead.values())
        if SESSION.is_command:
            progress = PatchProgress(remaining, ahead)
            features.on_progress, track = progress.advance, progress.track
    with closing(features), features.executor() if is_local else nullcontext(encoding) as executor:
        return run_job(
            slides,
            [features, *after],
            job,
            work=Work(executor, track=track),
            problems=problems if report is None else {},
            before=report,
            earlier=[] if first else earlier,
            part=part,
        )
