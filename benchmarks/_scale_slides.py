"""`panther slides` end to end on one device: from slide files to feature files, and which part takes which share."""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import _harness as harness
from _tiled_slides import TISSUE, tissue_tiles, write_slide
from panther.machine import cores

KINDS = 256  # distinct tiles
DISTINCT = 3  # slides; the others are more names of them
PEER_SLIDES, SAMPLE = 3, 256


def end_to_end(encoder: str, device: str, slides: int, patches: int, source: Path = TISSUE) -> dict[str, float]:
    """Run the command on generated slides, with random weights of the encoder's architecture; rates by name.

    TRIDENT's loop encodes the same patches of the first slides: its loader with as many processes as ours, its autocast, its batch of 64.
    """
    precisions = ["auto", "float8"] if device.startswith("cuda") and encoder != "resnet50" else ["auto"]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        weights = _random_weights(encoder, folder / "weights.safetensors")
        alone = {precision: _alone(encoder, device, precision) for precision in precisions}
        size = _write(folder / "slides", slides, patches, source)
        runs = {precision: _run(folder, encoder, weights, device, precision) for precision in precisions}
        jobs = sorted(folder.glob("job_*"))
        exact, theirs = _peer(encoder, weights, device, folder / "slides", jobs[0])
        errors = [_largest_error(job, exact) for job in jobs]
    rows = []
    for (precision, (seconds, report)), error in zip(runs.items(), errors, strict=True):
        step = report["features"]
        waited = step["decoding"] + step["encoding"] + step["writing"]
        rate = step["patches"] / step["seconds"]
        shares = [f"{step[name] / waited:.1%}" for name in ("decoding", "encoding", "writing")]
        rows.append([f"panther, {precision}", f"{step['patches']:,}", f"{rate:.0f}", f"{rate / theirs[0]:.2f}x"])
        rows[-1] += [f"{rate / alone[precision]['encode']:.1%}", f"{error:.1e}", *shares]
        rows[-1] += [f"{step['patches'] / seconds:.0f}", f"{seconds:.0f}"]
    rows.append(["TRIDENT's loop", "", f"{theirs[0]:.0f}", "1.00x", "", f"{theirs[1]:.1e}", *[""] * 5])
    header = ["slide files to feature files", "patches", "patches/s", "ratio", "of the encoder alone", "largest error"]
    header += ["waiting for patches", "for the encoder", "for files", "whole command, patches/s", "seconds"]
    harness.table(f"{encoder} on {device}: {slides} slides of {size / slides / 1e6:.0f} MB", header, rows)
    decode, first = _decode_rate(source, patches), alone["auto"]
    copy = f"{first['copy']:.0f}" if first["copy"] else "-"
    names = [
        "decoding, all cores",
        "copying to the device",
        "features to rows",
        *(f"encoding, {p}" for p in precisions),
    ]
    rates = [f"{alone[precision]['encode']:.0f}" for precision in precisions]
    harness.table("Each part alone, patches/s", names, [[f"{decode:.0f}", copy, f"{first['back']:.0f}", *rates]])
    step = runs["auto"][1]["features"]
    rate = step["patches"] / step["seconds"]
    return {"patches": rate, "encode": first["encode"], "decode": decode, "bytes per patch": size / slides / patches}


class Tiles(Dataset[Any]):
    """Patches of a slide as TRIDENT reads them: OpenSlide, then the transform of the model card."""

    def __init__(self, path: Path, coords: np.ndarray, side: int, transform: Callable[[Any], torch.Tensor]) -> None:
        self._path, self._coords, self._side, self._transform, self._slide = path, coords, side, transform, None

    def __len__(self) -> int:
        return len(self._coords)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self._slide is None:  # once per process
            from openslide import OpenSlide

            self._slide = OpenSlide(self._path)
        corner = tuple(map(int, self._coords[index]))
        return self._transform(self._slide.read_region(corner, 0, (self._side, self._side)).convert("RGB")), index


@torch.inference_mode()
def _peer(
    encoder: str, weights: Path, device: str, slides: Path, job: Path
) -> tuple[dict[str, np.ndarray], tuple[float, float]]:
    """Float32 features of some patches of a slide, and the rate and largest error of TRIDENT's loop."""
    import h5py
    from torchvision import transforms

    from panther.encoders import load_encoder

    network = load_encoder(encoder, weights, device=device, precision="float32")
    about, kind = network.about, torch.device(device).type
    steps = [transforms.Resize(about.size, transforms.InterpolationMode.BICUBIC), transforms.ToTensor()]
    transform = transforms.Compose([*steps, transforms.Normalize(about.mean, about.std)])
    seconds, count = 0.0, 0
    for path in sorted(job.glob("*/features_*/*.h5"))[:PEER_SLIDES]:
        with h5py.File(path) as file:
            coords, side = file["coords"][:], int(file["coords"].attrs["patch_size_level0"])
        if not len(coords):
            continue
        start, rows = time.perf_counter(), []
        loader = DataLoader(
            Tiles(slides / f"{path.stem}.tif", coords, side, transform), 64, num_workers=cores(), pin_memory=True
        )
        for images, _ in loader:
            with torch.autocast(kind, torch.float16, enabled=kind == "cuda"):
                rows.append(network.model(images.to(device)).float().cpu().numpy())
        features = np.concatenate(rows)
        with h5py.File(slides.parent / "peer.h5", "w") as file:
            file["features"], file["coords"] = features, coords
        seconds, count = seconds + time.perf_counter() - start, count + len(coords)
        if count == len(coords):  # the first
            name = path.stem
            sample = Tiles(slides / f"{path.stem}.tif", coords[:SAMPLE], side, transform)
            images = torch.stack([sample[i][0] for i in range(min(SAMPLE, len(coords)))])
            exact = np.concatenate([network.model(x.to(device)).cpu().numpy() for x in images.split(64)])
            error = _error(features[:SAMPLE], exact)
    return {name: exact}, (count / seconds, error)


def _largest_error(job: Path, exact: dict[str, np.ndarray]) -> float:
    """Largest error of a patch, by the norm of its features, against float32."""
    import h5py

    ((name, rows),) = exact.items()
    (path,) = job.glob(f"*/features_*/{name}.h5")
    with h5py.File(path) as file:
        return _error(file["features"][:SAMPLE].astype(np.float32), rows)


def _error(features: np.ndarray, exact: np.ndarray) -> float:
    return float((np.linalg.norm(features - exact, axis=1) / np.linalg.norm(exact, axis=1)).max())


def _random_weights(encoder: str, path: Path) -> Path:
    from safetensors.torch import save_file

    from panther.encoders.loading import find_recipe

    torch.manual_seed(0)
    save_file({name: value.contiguous() for name, value in find_recipe(encoder).build().state_dict().items()}, path)
    return path


def _alone(encoder: str, device: str, precision: str) -> dict[str, float]:
    """Patches per second of the encoder on pixels that are on the device, of the way there, and of the way back."""
    from panther.encoders import load_encoder
    from panther.encoders._base import fetch
    from panther.encoders.pipeline import ExtractSettings

    network = load_encoder(encoder, device=device, precision=precision, seed=0)
    batch, side = ExtractSettings().batch_for(network.device), network.about.size
    if device.startswith("cuda"):
        network = network.compile(batch)
    pixels, times = torch.randint(0, 256, (batch, side, side, 3), dtype=torch.uint8), 1
    synchronise = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    there = pixels.to(network.device)
    sides: dict[str, Any] = {"encode": lambda: network.start(there)}
    features = torch.randn(batch, network.about.dim, device=network.device)
    sides["back"] = lambda: fetch(features)()
    if device.startswith("cuda"):
        pinned, times = pixels.pin_memory(), 20
        sides["copy"] = lambda: pinned.to(network.device, non_blocking=True)
    gc.freeze()  # else collecting the compiler's objects takes longer than a batch
    many = {name: partial(_repeat, side, times) for name, side in sides.items()}
    # ten seconds and more on a GPU: its clocks sink when it gets warm
    seconds = harness.interleaved(many, 6 if device.startswith("cuda") else 3, 1, synchronise)
    gc.unfreeze()
    return {"copy": 0.0, **{name: times * batch / took for name, took in seconds.items()}}


def _repeat(side: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        side()


def _write(folder: Path, slides: int, patches: int, source: Path) -> int:
    folder.mkdir()
    tiles = tissue_tiles(KINDS, source)
    size = 0
    for number in range(slides):
        path = folder / f"slide_{number:03}.tif"
        if number < DISTINCT:
            write_slide(path, tiles, patches, seed=number)
        else:
            os.link(folder / f"slide_{number % DISTINCT:03}.tif", path)
        size += path.stat().st_size
    return size


def _run(folder: Path, encoder: str, weights: Path, device: str, precision: str) -> tuple[float, Any]:
    job = folder / f"job_{len(list(folder.iterdir()))}"
    words = ["slides", str(folder / "slides"), "-o", str(job), "--encoder", encoder, "--weights", str(weights)]
    command = [sys.executable, "-m", "panther", *words, "--device", device, "--precision", precision, "--json"]
    start = time.perf_counter()
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    if answer.returncode:
        raise SystemExit(f"{' '.join(words)}\n{answer.stdout[-2000:]}")
    return seconds, json.loads(answer.stdout)


def _decode_rate(source: Path, patches: int) -> float:
    """Patches per second of decoding alone, for an encoder that sees 224 pixels, on all cores."""
    from panther.encoders._base import Preprocess
    from panther.encoders.pipeline import Decoder
    from panther.encoders.sources import SlidePatches
    from panther.slides import find_tissue, open_slide, patch_spec, tile_tissue

    with tempfile.TemporaryDirectory() as place, Decoder(Preprocess(224, 224), 256) as decoder:
        sources = []
        for number in range(2):  # the first starts the processes
            path = Path(place) / f"{number}.tif"
            write_slide(path, tissue_tiles(KINDS, source), patches, seed=number)
            with open_slide(path) as slide:
                spec = patch_spec(slide, 256, 0.5)
                sources.append((SlidePatches(path, None, spec), tile_tissue(slide, spec, find_tissue(slide)).coords))
        for one, coords in sources:
            start = time.perf_counter()
            count = sum(len(batch.pixels) for batch in decoder.batches(one, np.asarray(coords)))
            rate = count / (time.perf_counter() - start)
    return rate
