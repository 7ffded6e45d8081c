"""Patches a second: decoding, and decoding with a cheap encoder, beside a straightforward OpenSlide loop; or an encoder on a GPU.

`python benchmarks/slides.py` needs OpenSlide and, for real tissue, ../shared/data (else noise is compressed, which is harder);
fastslide (`pip install fastslide`) is measured where it is installed.
`python benchmarks/slides.py --peer lazy/bin/python` puts LazySlide beside it, in an environment of its own (it pins other versions):
`python3 -m venv lazy && lazy/bin/pip install lazyslide`.
`python benchmarks/slides.py --device cuda` measures a ViT-L in bfloat16 as a part of the rate of plain matrix products; it needs no
OpenSlide.
"""

import argparse
import itertools
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import _harness as harness

SIDE, PATCH, ROUNDS = 6144, 256, 3
SLIDE = Path(__file__).resolve().parents[2] / "shared" / "data" / "slides" / "CMU-1-Small-Region.svs"


def mosaic(path: Path) -> None:
    """A slide larger than any cache: real tissue, shifted and repeated, as JPEG tiles of 256 px, three levels."""
    import tifffile
    from openslide import OpenSlide

    if SLIDE.exists():
        with OpenSlide(SLIDE) as slide:
            tissue = np.asarray(slide.read_region((0, 0), 0, slide.dimensions).convert("RGB"))
    else:
        tissue = np.random.default_rng(0).integers(0, 256, (2048, 2048, 3), dtype=np.uint8)
    rows = (np.arange(SIDE) * 1) % tissue.shape[0]
    columns = (np.arange(SIDE) + 97) % tissue.shape[1]
    full = tissue[rows][:, columns]
    options = {"tile": (256, 256), "compression": "jpeg", "photometric": "rgb", "compressionargs": {"level": 80}}
    with tifffile.TiffWriter(path) as file:
        for level in range(3):
            step = 2**level
            file.write(np.ascontiguousarray(full[::step, ::step]), subfiletype=int(level > 0), **options)


Loop = Callable[[Path, np.ndarray, int], np.ndarray]


def plain_loop(path: Path, coords: np.ndarray, side: int) -> np.ndarray:
    """What one writes with OpenSlide: open, read from the level that suits best, drop alpha, resize where needed."""
    from openslide import OpenSlide
    from PIL import Image

    with OpenSlide(path) as slide:
        level = slide.get_best_level_for_downsample(side / PATCH + 0.01)
        size = round(side / slide.level_downsamples[level])
        patches = (slide.read_region((int(x), int(y)), level, (size, size)).convert("RGB") for x, y in coords)
        small = (p if size == PATCH else p.resize((PATCH, PATCH), Image.Resampling.LANCZOS) for p in patches)
        return np.stack([np.asarray(p) for p in small])


def fastslide_loop(path: Path, coords: np.ndarray, side: int) -> np.ndarray:
    """The same with fastslide, and a cache of decoded tiles as large as ours."""
    from fastslide import FastSlide
    from PIL import Image

    slide = FastSlide.from_file_path(path, cache=128 * 2**20)
    level = slide.get_best_level_for_downsample(side / PATCH + 0.01)
    factor = slide.level_downsamples[level]
    size = round(side / factor)
    places = ((round(int(x) / factor), round(int(y) / factor)) for x, y in coords)
    patches = (np.asarray(slide.read_region(place, level, (size, size)).numpy()) for place in places)
    if size == PATCH:
        return np.stack([p.copy() for p in patches])
    return np.stack([np.asarray(Image.fromarray(p).resize((PATCH, PATCH), Image.Resampling.LANCZOS)) for p in patches])


LOOPS = {"loop": plain_loop, "fastslide": fastslide_loop}  # left out where it is not installed


def loop_in_processes(pool: Executor, loop: Loop, path: Path, coords: np.ndarray, side: int, batch: int = 32) -> int:
    """A loop in as many processes as ours, a batch at a time, the pixels handed back."""
    parts = [coords[i : i + batch] for i in range(0, len(coords), batch)]
    return sum(len(p) for p in pool.map(loop, [path] * len(parts), parts, [side] * len(parts)))


def plain_features(path: Path, coords: np.ndarray, side: int, encoder: Any) -> torch.Tensor:
    from PIL import Image

    from panther.encoders.pipeline import BATCH

    size, batch = encoder.about.size, BATCH["cpu"]
    tiles = [np.asarray(Image.fromarray(p).resize((size, size))) for p in plain_loop(path, coords, side)]
    return torch.cat([encoder(np.stack(tiles[i : i + batch])) for i in range(0, len(tiles), batch)])


Ask = Callable[..., dict[str, Any]]


@contextmanager
def peer_process(python: str) -> Iterator[Ask]:
    """LazySlide in a process of its own Python, asked line by line, so that its rounds and ours alternate."""
    program = Path(__file__).with_name("_slides_peer.py")
    with subprocess.Popen([python, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(do: str, **about: Any) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps({"do": do, **about}), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            if not answer:
                raise SystemExit(
                    f"{python}: LazySlide gave up, see above; `{python} -m pip install lazyslide` may help."
                )
            return json.loads(answer)

        yield ask


def patches_found(ask: Ask) -> None:
    """Which patches each finds on one real slide."""
    from panther.slides import find_tissue, open_slide, patch_spec, tile_tissue
    from panther.slides.polygons import rasterise

    theirs = ask("find", slide=str(SLIDE))
    print(f"LazySlide's environment: {theirs['versions']}")
    with open_slide(SLIDE) as slide:
        tissue, spec = find_tissue(slide), patch_spec(slide, PATCH, 0.5)
        ours = {least: len(tile_tissue(slide, spec, tissue, least).coords) for least in (0.25, 0.5, 0.7)}
        mask = rasterise(tissue, slide.dimensions, 1.0)
    corners = np.array(theirs["coords"])
    part = {(x, y): mask[y : y + PATCH, x : x + PATCH].mean() for x, y in corners}
    starts = [
        range(first % PATCH, side - PATCH + 1, PATCH) for first, side in zip(corners[0], mask.shape[::-1], strict=True)
    ]
    moved = sum(mask[y : y + PATCH, x : x + PATCH].mean() >= 0.7 for x in starts[0] for y in starts[1])
    rows = [[f"panther, least tissue {least}", count] for least, count in ours.items()]
    rows += [
        ["panther's tissue at 0.7 on LazySlide's grid", moved],
        ["LazySlide, its defaults (0.7)", theirs["patches"]],
    ]
    rows += [["... of them below 0.7 by panther's contours", sum(value < 0.7 for value in part.values())]]
    harness.table("Patches of 256 px at 0.5 um/px on CMU-1-Small-Region", ["what", "patches"], rows)


def cold_rounds(decoder: Any, path: Path, mpp: float, spec: Any, coords: np.ndarray) -> Callable[[], int]:
    """Decode all patches under two names of the file in turn: another name is opened anew, so no round finds the tiles of the last."""
    from panther.encoders.sources import SlidePatches

    sources = itertools.cycle([SlidePatches(name, mpp, spec) for name in (path, path.with_name("again.tif"))])
    return lambda: sum(len(batch.pixels) for batch in decoder.batches(next(sources), coords))


def decoding(path: Path, patches: int, ask: Ask | None) -> None:
    """Decode alone: a plain loop, ours, and LazySlide's two ways where it is there."""
    from panther.encoders._base import Preprocess
    from panther.encoders.pipeline import Decoder
    from panther.machine import cores
    from panther.slides import open_slide, patch_spec

    loops = {name: loop for name, loop in LOOPS.items() if name == "loop" or find_spec(name) is not None}
    titles = {"loop": "OpenSlide", "fastslide": "fastslide"}
    header = ["256 px, patches/s", "patches"]
    header += [part for name in loops for part in (f"{titles[name]} loop", f"{titles[name]} loop, {cores()} processes")]
    header += ["panther, one process", f"panther, {cores()} workers"]
    header += ["LazySlide, iterator", f"LazySlide, {cores()} workers"] if ask else []
    rows, ratios = [], []
    for mpp0, words in ((0.5, "as scanned"), (0.25, "from 0.25 to 0.5 um/px")):
        with open_slide(path, mpp0) as slide:
            spec = patch_spec(slide, PATCH, 0.5)
        side = spec.size_level0
        places = range(0, SIDE - side + 1, side)
        coords = np.array([(x, y) for y in places for x in places])[:patches]
        with (
            Decoder(Preprocess(PATCH, PATCH), 32, 1) as here,
            Decoder(Preprocess(PATCH, PATCH), 32, cores()) as there,
            ProcessPoolExecutor(cores(), get_context("forkserver")) as pool,
        ):
            sides: dict[str, Callable[[], Any]] = {}
            for name, loop in loops.items():
                sides[name] = partial(loop, path, coords, side)
                sides[f"{name}s"] = partial(loop_in_processes, pool, loop, path, coords, side)
            sides["one"] = cold_rounds(here, path, mpp0, spec, coords)
            sides["all"] = cold_rounds(there, path, mpp0, spec, coords)
            if ask is not None:
                ask("open", slide=str(path), mpp=mpp0)
                patches = len(coords)
                for way in ("iterate", "load"):
                    sides[way] = lambda w=way, n=patches: ask(w, patches=n, workers=cores())
            seconds = harness.interleaved(sides, ROUNDS)
        rates = {name: len(coords) / took for name, took in seconds.items()}
        pairs = [(f"{titles[name]}, one process each", "one", name) for name in loops]
        pairs += [(f"{titles[name]} in as many processes", "all", f"{name}s") for name in loops]
        if ask is not None:
            pairs += [
                ("LazySlide's iterator, one process each", "one", "iterate"),
                ("LazySlide's workers", "all", "load"),
            ]
        ratios += [[f"decode, {words}: {name}", f"{rates[a] / rates[b]:.2f}x"] for name, a, b in pairs]
        rows.append([f"decode, {words}", len(coords), *(f"{rates[name]:.0f}" for name in sides)])
    harness.table("Decoding", header, rows)
    harness.table("Ratio to the others", ["what", "ratio"], ratios)


def encoding(path: Path, patches: int) -> None:
    """Decode and encode with the embedded encoder."""
    from panther.encoders import load_encoder
    from panther.encoders.pipeline import ExtractSettings, Pipeline
    from panther.encoders.step import write_features
    from panther.machine import cores
    from panther.slides import Coords, SlideRef, open_slide, patch_spec

    encoder, folder = load_encoder("lite0"), path.parent
    with open_slide(path, 0.5) as slide:
        spec = patch_spec(slide, PATCH, 0.5)
        coords = np.array([(x, y) for y in range(0, SIDE, PATCH) for x in range(0, SIDE, PATCH)])[:patches]
        ref = SlideRef(path, slide.name, 0.5)
        laid = Coords(slide.name, coords, spec, slide.mpp, slide.dimensions)
        with Pipeline(encoder, ExtractSettings(workers=1)) as here, Pipeline(encoder) as there:
            sides = {
                "loop": lambda: plain_features(path, coords, PATCH, encoder),
                "one": lambda: write_features(ref, laid, here, folder / "one.h5"),
                "all": lambda: write_features(ref, laid, there, folder / "all.h5"),
            }
            seconds = harness.interleaved(sides, ROUNDS)
            throughput = write_features(ref, laid, there, folder / "all.h5").throughput
    row = ["decode + lite0", len(coords), *(f"{len(coords) / seconds[name]:.0f}" for name in sides)]
    header = ["256 px, patches/s", "patches", "OpenSlide loop", "panther, one process", f"panther, {cores()} workers"]
    harness.table("Decoding and encoding", header, [row])
    print(f"\nThroughput with lite0: {throughput}")


def on_this_machine(patches: int, peer: str | None) -> None:
    print(harness.machine("openslide-python", "openslide-bin", "timm"))
    with tempfile.TemporaryDirectory() as folder, peer_process(peer) if peer else nullcontext() as ask:
        path = Path(folder) / "mosaic.tif"
        mosaic(path)
        path.with_name("again.tif").symlink_to(path)
        if ask is not None and SLIDE.exists():
            patches_found(ask)
        decoding(path, patches, ask)
        encoding(path, patches // 4)


@dataclass(frozen=True)
class Noise:
    """Patches that cost nothing to decode: what is left is the way to the device."""

    size: int

    def open(self) -> "Noise":
        return self

    def read(self, item: Any) -> np.ndarray:
        return np.full((self.size, self.size, 3), int(item) % 256, np.uint8)

    def close(self) -> None:
        pass


def matmul_rate(device: str, n: int = 8192) -> float:
    """FLOP a second of a large bfloat16 product."""
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / harness.interleaved({"": lambda: a @ b}, 20, 5, torch.cuda.synchronize)[""]


def flops(encoder: Any) -> float:
    """FLOP of one patch, counted."""
    from torch.utils.flop_counter import FlopCounterMode

    size = encoder.about.size
    with FlopCounterMode(display=False) as counter:
        encoder(np.zeros((1, size, size, 3), np.uint8))
    return float(counter.get_total_flops())


def on_a_gpu(device: str, name: str) -> None:
    from panther.encoders import load_encoder
    from panther.encoders.pipeline import ExtractSettings, Pipeline

    print(harness.machine("timm"))
    encoder = load_encoder(name, device=device, seed=0)
    rate, each = matmul_rate(device), flops(encoder)
    print(
        f"{name}, {encoder.precision}: {each / 1e9:.1f} GFLOP a patch; matrix products of 8192: {rate / 1e12:.0f} TFLOP/s"
    )
    rows = []
    for batch in (64, 256, 512):
        pixels = torch.randint(
            0, 256, (batch, encoder.about.size, encoder.about.size, 3), dtype=torch.uint8, device=device
        )
        took = harness.interleaved({"": lambda p=pixels: encoder.start(p)}, 10, 3, torch.cuda.synchronize)[""]
        rows.append(["encoder alone", batch, f"{batch / took:.0f}", f"{batch / took * each / rate:.1%}"])
    count = 16384
    with Pipeline(encoder, ExtractSettings(batch=256)) as pipeline:
        for _ in range(2):  # the first starts the workers
            throughput = pipeline.run(Noise(encoder.about.size), list(range(count))).throughput
    speed = throughput.patches / throughput.seconds
    rows.append(["workers, pinned memory, encoder", 256, f"{speed:.0f}", f"{speed * each / rate:.1%}"])
    harness.table("Encoder on a GPU", ["what", "batch", "patches/s", "of the matmul rate"], rows)
    print(f"\n{throughput}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--encoder", default="uni", help="with --device cuda; random weights")
    parser.add_argument("--patches", type=int, default=400)
    parser.add_argument("--peer", metavar="PYTHON", help="the Python of an environment with LazySlide")
    options = parser.parse_args()
    if options.device == "cpu":
        on_this_machine(options.patches, options.peer)
    else:
        on_a_gpu(options.device, options.encoder)


if __name__ == "__main__":
    main()
