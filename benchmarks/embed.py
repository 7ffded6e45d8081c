"""PANTHER embeddings against a plain torch version of the published passes: kernel, end to end from files, and on a GPU.

    python benchmarks/embed.py                  # kernel on one thread, then files on all cores; minutes, 6 GB of temporary files
    python benchmarks/embed.py --device cuda    # the same on one GPU, with the share of reading, copying and computing

Everything is generated here; both sides run in this very process, in turns. Errors are against a float64 two-pass
computation: the largest |mu error| / sigma and relative Sigma error over the components that own at least one patch.
"""

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from _harness import interleaved, machine, peak_extra, table, timed, verdict
from _passes import COMPONENTS, DIM, KINDS, character, error, exact, ours, plain, slide
from panther.aggregators import build, embed_cohort
from panther.execution import open_executor
from panther.storage.bags import BagRef, list_bags
from panther.storage.convert import Conversion
from panther.types import Mixture, Prototypes

Side = Callable[[Tensor, Tensor, int], Mixture]


@contextmanager
def one_call(side: Side, kind: str, offset: float, patches: int, dtype: torch.dtype, steps: int) -> Iterator[Any]:
    torch.set_num_threads(1)
    x, prototypes = slide(kind, patches, offset=offset)
    x = x.to(dtype)
    side(x[:64], prototypes, steps)
    yield partial(side, x, prototypes, steps)


def kernel(patches: int) -> None:
    """Part a: one slide in memory, one thread."""
    rows, ratios, extras = [], [], []
    for kind, offset in [*((kind, 0.0) for kind in KINDS), ("one-hot", 30.0)]:
        for dtype in (torch.float32, torch.float16)[: 1 if offset else 2]:
            x, prototypes = slide(kind, patches, offset=offset)
            x = x.to(dtype)
            for steps in (1, 10):
                torch.set_num_threads(os.cpu_count() or 1)
                truth = exact(x, prototypes, steps)
                torch.set_num_threads(1)
                sides = {side.__name__: partial(side, x, prototypes, steps) for side in (plain, ours)}
                seconds = interleaved(sides, rounds=7 if steps == 1 else 3)
                memory = [peak_extra(one_call, side, kind, offset, patches, dtype, steps) for side in (plain, ours)]
                ratios.append(seconds["plain"] / seconds["ours"])
                extras.append(memory[1])
                rows.append(
                    [
                        kind + (f", mean {offset:g} std" if offset else ""),
                        character(x, prototypes),
                        str(dtype)[6:],
                        steps,
                        *(f"{seconds[name] * 1e3:.0f}" for name in sides),
                        f"{ratios[-1]:.1f}x",
                        *(f"{mb:.0f}" for mb in memory),
                        *(error(call(), truth) for call in sides.values()),
                    ]
                )
    header = (
        "posteriors | soft / subnormal | input | steps | plain ms | ours ms | ratio | plain extra MB | ours extra MB"
    )
    header += " | plain error μ, Σ | ours error μ, Σ"
    table(f"Kernel: {patches:,} x {DIM}, C = {COMPONENTS}, one thread", header.split(" | "), rows)
    targets = [
        verdict("kernel, slowest case", min(ratios), 3),
        verdict("kernel, extra memory of the largest case", max(extras), 16, at_most=True, unit=" MB"),
    ]
    table("Targets", ["what", "target", "measured", ""], targets)


def write_layouts(folder: Path, slides: int, patches: int) -> dict[str, list[BagRef]]:
    """Write the same slides in the layouts people have; without h5py only the .npy ones."""
    layouts: dict[str, Callable[[Path, np.ndarray], None]] = {"npy float32": lambda p, x: np.save(f"{p}.npy", x)}
    if importlib.util.find_spec("h5py"):
        layouts |= {"CLAM-style h5": _write_clam, "contiguous h5 float32": _write_contiguous}
    for number in range(slides):
        x = slide("one-hot", patches, number)[0].numpy()
        for name, write in layouts.items():
            (folder / name).mkdir(exist_ok=True)
            write(folder / name / f"slide_{number:03}", x)
    to, short = ("trident", "h5") if importlib.util.find_spec("h5py") else ("npy", "npy")
    converted = f"{short} float16 of `convert`"
    convert = Conversion(folder / converted, to, "float16")
    for ref in list_bags(folder / "npy float32").refs:
        convert(ref)
    return {name: list(list_bags(folder / name).refs) for name in [*layouts, converted]}


def _write_clam(path: Path, x: np.ndarray) -> None:
    import h5py

    with h5py.File(f"{path}.h5", "w") as file:  # chunks of one row, grown batch by batch
        features = file.create_dataset("features", (0, DIM), "f4", maxshape=(None, DIM), chunks=(1, DIM))
        for start in range(0, len(x), 512):
            features.resize(min(start + 512, len(x)), axis=0)
            features[start:] = x[start : start + 512]


def _write_contiguous(path: Path, x: np.ndarray) -> None:
    import h5py

    with h5py.File(f"{path}.h5", "w") as file:
        file["features"] = x


def plain_pipeline(refs: Sequence[BagRef], prototypes: Tensor) -> list[Mixture]:
    """Read the whole array, hand it to torch, run the passes; one slide after the other, all threads on each."""
    return [
        Mixture(*(t.cpu() for t in plain(_load(ref.paths[0]).to(prototypes.device), prototypes, 1))) for ref in refs
    ]


def _load(path: Path) -> Tensor:
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path))
    import h5py

    with h5py.File(path, "r") as file:
        return torch.from_numpy(file["features"][:])


def read_back(vector: np.ndarray) -> Mixture:
    tokens = torch.from_numpy(np.array(vector)).reshape(COMPONENTS, 1 + 2 * DIM)
    return Mixture(tokens[:, 0], tokens[:, 1 : 1 + DIM], tokens[:, 1 + DIM :])


def files(slides: int, patches: int, device: str) -> None:
    """Parts b and c: from files to embeddings."""
    x, prototypes = slide("one-hot", patches)
    truth = exact(x, prototypes, 1)
    cores, on_gpu = len(os.sched_getaffinity(0)), device != "cpu"
    torch.set_num_threads(cores)
    workers = min(8, cores) if on_gpu else cores
    ready = Prototypes(prototypes)
    with tempfile.TemporaryDirectory() as folder, open_executor(workers) as pool:
        layouts = write_layouts(Path(folder), slides, patches)
        sides: dict[tuple[str, str], Callable[[], Any]] = {}
        for name, refs in layouts.items():
            if "float16" not in name:
                sides["plain", name] = partial(plain_pipeline, refs, prototypes.to(device))
            sides["ours", name] = partial(embed_cohort, refs, ready, executor=pool, device=device)
        # the first, uncounted round starts the workers and brings the files into the page cache
        rate = {key: slides / s for key, s in interleaved(sides, 5, synchronise=_synchronise(device)).items()}
        kept = {key: call() for key, call in sides.items()}
        if on_gpu:
            by_processes(layouts, ready, device)
        stages(layouts, build("panther", ready).to(device), device)
    first = {key: r[0] if isinstance(r, list) else read_back(r.vectors[0]) for key, r in kept.items()}
    rows = [[*key, f"{rate[key]:.1f}", error(first[key], truth)] for key in sides]
    how = (
        f"{workers} processes feeding {device}"
        if on_gpu
        else f"{workers} processes of one thread, started before the clock"
    )
    title = f"End to end: {slides} slides of {patches:,} x {DIM}, files in the page cache; plain: {cores} threads on each slide; ours: {how}"
    table(title, ["pipeline", "files", "slides/s", "error of slide 1 μ, Σ (against the float32 original)"], rows)
    if importlib.util.find_spec("h5py"):
        ratios(rate)


def ratios(rate: dict[tuple[str, str], float]) -> None:
    clam, contiguous, npy, half = "CLAM-style h5", "contiguous h5 float32", "npy float32", "h5 float16 of `convert`"
    pairs = {
        "both on contiguous h5 float32": (contiguous, contiguous, 6.0),
        "ours on float16, plain on CLAM-style": (half, clam, 10.0),
        "both on CLAM-style": (clam, clam, 2.0),
        "both on npy float32": (npy, npy, None),
    }
    rows = [verdict(what, rate["ours", a] / rate["plain", b], target) for what, (a, b, target) in pairs.items()]
    table("Targets (those of the 2-core CPU)", ["what", "target", "measured", ""], rows)


def by_processes(layouts: dict[str, list[BagRef]], prototypes: Prototypes, device: str) -> None:
    """How many processes it takes to feed one GPU."""
    counts = (1, 2, 4, 8, 12)
    seconds: dict[str, list[float]] = {name: [] for name in layouts}
    for count in counts:
        with open_executor(count) as pool:
            for name, refs in layouts.items():
                call = partial(embed_cohort, refs, prototypes, executor=pool, device=device)
                seconds[name].append(interleaved({"": call}, 3, synchronise=_synchronise(device))[""])
    rows = [[name, *(f"{len(layouts[name]) / s:.1f}" for s in found)] for name, found in seconds.items()]
    table("Ours, slides/s by number of processes", ["files", *counts], rows)


@torch.no_grad()
def stages(layouts: dict[str, list[BagRef]], module: torch.nn.Module, device: str) -> None:
    """Take the same work apart: one slide after the other, each stage waited for, host memory pinned beforehand."""
    rows, wait = [], _synchronise(device)
    for name, refs in layouts.items():
        spent = np.zeros(3)
        bags = [ref.open() for ref in refs]
        host = torch.empty(bags[0].features.shape, dtype=bags[0].features.dtype, pin_memory=device != "cpu")
        for bag in bags:
            reading, _ = timed(lambda: host.copy_(bag.features[:]))  # noqa: B023 (called at once)
            copying, x = timed(lambda: host.to(device), wait)  # noqa: B023
            computing, _ = timed(lambda: module(x), wait)  # noqa: B023
            spent += reading, copying, computing
        rows.append([name, *(f"{s / len(bags) * 1e3:.2f} ms ({s / spent.sum():.0%})" for s in spent)])
    table(f"Stages of one slide on {device}", ["files", "reading", "copying", "computing"], rows)


def kernel_on_device(patches: int, device: str, batch: int = 8) -> None:
    """Part c: bags that are on the device already; a batch is padded by a tenth and masked."""
    rows = []
    for kind in KINDS:
        x, prototypes = (t.to(device) for t in slide(kind, patches))
        padded = torch.cat([x, torch.full_like(x[: patches // 10], torch.nan)]).expand(batch, -1, -1).contiguous()
        mask = (torch.arange(padded.shape[1], device=device) < patches).expand(batch, -1)
        for steps in (1, 10):
            truth = exact(x, prototypes, steps)
            sides: dict[str, Callable[[], Mixture]] = {
                "plain": partial(plain, x, prototypes, steps),
                "ours": partial(ours, x, prototypes, steps),
                f"ours, {batch} at once": partial(ours, padded, prototypes, steps, mask),
            }
            seconds = interleaved(sides, 10, 3, _synchronise(device))
            for name, call in sides.items():
                found, extra = _device_extra(call, device)
                count, one = (batch, Mixture(*(t[-1] for t in found))) if "once" in name else (1, found)
                ms = [f"{seconds[name] / count * 1e3:.3f}", f"{seconds['plain'] * count / seconds[name]:.1f}x"]
                rows.append([kind, steps, name, *ms, extra, error(one, truth)])
    header = ["posteriors", "steps", "", "ms a slide", "ratio", "extra MB", "error μ, Σ"]
    table(f"Kernel on {device}: {patches:,} x {DIM} float32, C = {COMPONENTS}", header, rows)


def _device_extra(call: Callable[[], Mixture], device: str) -> tuple[Mixture, str]:
    if device == "cpu":
        return call(), "-"
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    return call(), f"{(torch.cuda.max_memory_allocated() - before) / 2**20:.0f}"


def _synchronise(device: str) -> Callable[[], Any]:
    return torch.cuda.synchronize if device.startswith("cuda") else lambda: None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=None, help="cuda, or cpu to try the GPU part without one")
    parser.add_argument("--slides", type=int, default=24)
    parser.add_argument("--patches", type=int, default=15_000)
    options = parser.parse_args()
    print(machine("h5py", "panther-wsi"))
    if options.device:
        kernel_on_device(options.patches, options.device)
    else:
        kernel(options.patches)
    files(options.slides, options.patches, options.device or "cpu")


if __name__ == "__main__":
    main()
