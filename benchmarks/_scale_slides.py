"""`panther slides` end to end on one device: from slide files to feature files, and which part takes which share."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import _harness as harness
from _tiled_slides import TISSUE, tissue_tiles, write_slide

KINDS = 256  # distinct tiles
DISTINCT = 6  # slides; the others are more names of them
PROGRAM = "import panther.encoders.step as step; step.ON_A_GPU = {}; from panther.cli import main; main()"


def end_to_end(encoder: str, device: str, slides: int, patches: int, source: Path = TISSUE) -> dict[str, float]:
    """Run the command on generated slides, with random weights of the encoder's architecture; rates by name."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        weights = _random_weights(encoder, folder / "weights.safetensors")
        alone = _alone(encoder, device)
        size = _write(folder / "slides", slides, patches, source)
        runs = []
        for words, at_a_time in (("one slide at a time", 1), ("two slides at a time", 2)):
            runs.append((words, *_run(folder, encoder, weights, device, at_a_time)))
            if device == "cpu":
                break
        files = [sorted(path.glob("*/features_*/*.h5")) for path in sorted(folder.glob("job_*"))]
        alike = all(len({path.read_bytes() for path in same}) == 1 for same in zip(*files, strict=True))
    rows = []
    for words, seconds, said in runs:
        found = said["features"]
        waited = found["decoding"] + found["encoding"] + found["writing"]
        rate = found["patches"] / found["seconds"]
        shares = [f"{found[name] / waited:.1%}" for name in ("decoding", "encoding", "writing")]
        rows.append([words, f"{found['patches']:,}", f"{rate:.0f}", f"{rate / alone['encode']:.1%}", *shares])
        rows[-1] += [f"{found['patches'] / seconds:.0f}", f"{seconds:.0f}"]
    header = ["step features", "patches", "patches/s", "of the encoder alone", "waiting for patches", "for the encoder"]
    header += ["for files", "whole command, patches/s", "seconds"]
    title = f"`panther slides`, {encoder} on {device}: {slides} slides of {size / slides / 1e6:.0f} MB, encoder alone {alone['encode']:.0f} patches/s"
    harness.table(title, header, rows)
    print(f"\nFeature files of all runs: {'the same bytes' if alike else 'DIFFERENT BYTES'}")
    decode = _decode_rate(source, patches)
    copy = f"{alone['copy']:.0f}" if alone["copy"] else "-"
    harness.table(
        "Each part alone, patches/s",
        ["decoding, all cores", "copying to the device", "encoding", "features to rows"],
        [[f"{decode:.0f}", copy, f"{alone['encode']:.0f}", f"{alone['back']:.0f}"]],
    )
    return {"patches": rate, "encode": alone["encode"], "decode": decode, "bytes per patch": size / slides / patches}


def _random_weights(encoder: str, path: Path) -> Path:
    from safetensors.torch import save_file

    from panther.encoders.loading import find_recipe

    torch.manual_seed(0)
    save_file({name: value.contiguous() for name, value in find_recipe(encoder).build().state_dict().items()}, path)
    return path


def _alone(encoder: str, device: str) -> dict[str, float]:
    """Patches per second of the encoder on pixels that are on the device, of the way there, and of the way back."""
    from panther.encoders import load_encoder
    from panther.encoders._base import fetch
    from panther.encoders.pipeline import ExtractSettings

    network = load_encoder(encoder, device=device, seed=0)
    batch, side = ExtractSettings().batch_for(network.device), network.about.size
    pixels = torch.randint(0, 256, (batch, side, side, 3), dtype=torch.uint8)
    synchronise = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    there = pixels.to(network.device)
    sides: dict[str, Any] = {"encode": lambda: network.start(there)}
    features = torch.randn(batch, network.about.dim, device=network.device)
    sides["back"] = lambda: fetch(features)()
    if device.startswith("cuda"):
        pinned = pixels.pin_memory()
        sides["copy"] = lambda: pinned.to(network.device, non_blocking=True)
    # 10 seconds and more on a GPU: its clocks sink when it gets warm
    seconds = harness.interleaved(sides, 120 if device.startswith("cuda") else 3, 3, synchronise)
    return {"copy": 0.0, **{name: batch / took for name, took in seconds.items()}}


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


def _run(folder: Path, encoder: str, weights: Path, device: str, at_a_time: int) -> tuple[float, Any]:
    job = folder / f"job_{len(list(folder.iterdir()))}"
    words = ["slides", str(folder / "slides"), "-o", str(job), "--encoder", encoder, "--weights", str(weights)]
    command = [sys.executable, "-c", PROGRAM.format(at_a_time), *words, "--device", device, "--json"]
    start = time.perf_counter()
    answer = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if answer.returncode:
        raise SystemExit(f"{' '.join(words)}\n{answer.stdout[-2000:]}\n{answer.stderr[-4000:]}")
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
