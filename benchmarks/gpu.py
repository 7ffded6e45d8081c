"""PANTHER embeddings on one GPU: slides that are there already, and from files.

    python benchmarks/gpu.py                    # about 4 minutes on a machine with a GPU, 2 GB of temporary files
    python benchmarks/gpu.py --only kernel      # or: files
    python benchmarks/gpu.py --quick            # does it run? seconds; its figures mean nothing

*plain* makes the published passes and no more (`_passes.plain`), a batch as the published code has it, (B, N, d), here without padding. *ours* takes
the same slides one after the other without padding. Times are by CUDA events around calls that start when the GPU is idle, so they hold what Python
takes to launch the work.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _harness import interleaved, machine, table
from _passes import COMPONENTS, DIM, KINDS, error, exact, ours, plain, plain_slide_on, slide
from embed import DISTINCT, linked, write_layouts
from panther.aggregators.embed import embed_bags
from panther.engine import Work, map_slides, open_executor
from panther.statistics.upload import upload
from panther.storage.bags import BagRef
from panther.store import HashedRows
from panther.types import Mixture, Prototypes, Ragged

BATCH = 32


def kernel(patches: int) -> None:
    """Slides in the GPU's memory, one and a batch."""
    rows = []
    for kind, dtype in ((kind, dtype) for kind in KINDS for dtype in (torch.float32, torch.float16)):
        bags = [slide(kind, patches, seed)[0].to("cuda", dtype) for seed in range(8)] * (BATCH // 8)
        prototypes = slide(kind, patches)[1].cuda()
        mine = partial(ours, variance=torch.ones_like(prototypes[0]))
        stacked, ragged = torch.stack(bags), Ragged(torch.cat(bags), (patches,) * BATCH)
        truth = exact(bags[0], prototypes, 10)
        for steps in (1, 10):
            sides: dict[str, Callable[[], Mixture]] = {
                "plain": partial(plain, bags[0], prototypes, steps),
                "ours": partial(mine, bags[0], prototypes, steps),
                f"plain, {BATCH} at once": partial(plain, stacked, prototypes, steps),
                f"ours, {BATCH} at once": partial(mine, ragged, prototypes, steps),
            }
            ms = _medians_ms(sides)
            for name, call in sides.items():
                found = call()
                one = Mixture(*(t[0] for t in found)) if "once" in name else found
                ratio = f"{ms[name.replace('ours', 'plain')] / ms[name]:.2f}x" if "ours" in name else ""
                rows.append([kind, str(dtype)[6:], steps, name, f"{ms[name]:.3f}", ratio, error(one, truth[steps - 1])])
    header = ["posteriors", "input", "steps", "", "ms per slide", "plain / ours", "error μ, Σ"]
    table(f"Kernel: {patches:,} x {DIM}, C = {COMPONENTS}", header, rows)


def _medians_ms(sides: dict[str, Callable[[], Any]], rounds: int = 40) -> dict[str, float]:
    """Milliseconds per slide, all sides in turns."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(5 + rounds):
        for name, call in sides.items():
            ms = _event_ms(call) / (BATCH if "once" in name else 1)
            if number >= 5:
                found[name].append(ms)
    return {name: float(np.median(values)) for name, values in found.items()}


def _event_ms(call: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last))


def pinned_rate() -> float:
    """GB/s from pinned memory to the GPU: what no pipeline can exceed."""
    here = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(here, device="cuda")
    copies = [_event_ms(lambda: there.copy_(here, non_blocking=True)) for _ in range(45)]
    return (256 << 20) / float(np.median(copies[5:])) / 1e6


def only_upload(ref: BagRef) -> str:
    """Read, hash and copy to the GPU; nothing is computed."""
    rows = HashedRows(ref.open().features)
    upload(rows, "cuda")
    torch.cuda.synchronize()
    return rows.digest()


def files(slides: int, patches: int, processes: tuple[int, ...]) -> None:
    """From files in the page cache to embeddings, by number of processes; so many slides for each of them."""
    _, prototypes = slide("one-hot", patches)
    ready, rows, limit = Prototypes(prototypes), [], pinned_rate()
    with tempfile.TemporaryDirectory() as folder:
        distinct = write_layouts(Path(folder), DISTINCT, patches)
        layouts = {name: linked(refs, slides * max(processes)) for name, refs in distinct.items()}
        rates: dict[tuple[str, str], list[float]] = {}
        for count in processes:
            with open_executor(count) as pool:
                for name, every in layouts.items():
                    refs = every[: slides * count]
                    job = partial(plain_slide_on, prototypes=prototypes, device="cuda")
                    sides = {
                        "plain": lambda job=job, refs=refs, pool=pool: list(map_slides(job, refs, pool)),
                        "ours": partial(embed_bags, refs, ready, "panther", {}, work=Work(pool, "cuda")),
                        "ours, reading, hashing and copying alone": lambda refs=refs, pool=pool: list(
                            map_slides(only_upload, refs, pool)
                        ),
                    }
                    seconds = interleaved(sides, 2)
                    for side, spent in seconds.items():
                        rates.setdefault((name, side), []).append(slides * count / spent)
        for (name, side), found in rates.items():
            size = patches * DIM * (2 if "float16" in name else 4)
            possible = limit * 1e9 / size
            rows.append([name, side, *(f"{r:.0f}" for r in found), f"{max(found) / possible:.0%}"])
    title = (
        f"From files, {slides} slides for each process, slides/s by number of processes; the last column: the best against {limit:.0f} GB/s, "
        "pinned memory to the GPU"
    )
    table(title, ["files", "", *processes, "of the copy's rate"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("kernel", "files"), help="one part")
    parser.add_argument("--slides", type=int, default=40, help="from files: for each process")
    parser.add_argument("--patches", type=int, default=15_000)
    parser.add_argument("--processes", type=int, nargs="+", default=(1, 4, 8, 15))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU here.")
    slides, patches = (4, 300) if options.quick else (options.slides, options.patches)
    print(machine("h5py", "panther-wsi"))
    if options.only in (None, "kernel"):
        kernel(patches)
    if options.only in (None, "files"):
        files(slides, patches, tuple(options.processes))


if __name__ == "__main__":
    main()
