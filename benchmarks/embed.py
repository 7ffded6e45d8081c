"""PANTHER embeddings against the published passes and no more (`_passes.plain`): kernel, and from files. `gpu.py` does it on a GPU.

    python benchmarks/embed.py --only kernel    # one slide in memory; about 3 minutes
    python benchmarks/embed.py --only files     # from files to embeddings on all cores; about 3 minutes, 3 GB of temporary files
    python benchmarks/embed.py --quick          # does it run? seconds; its figures mean nothing

Everything is generated here; both sides take turns, with the same number of threads or processes. Errors are against a float64 two-pass
computation: the largest |mu error| / sigma and relative Sigma error over the components that own at least one patch.
"""

import argparse
import importlib.util
import itertools
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

from _harness import interleaved, machine, peak_extra, table, timed
from _passes import (
    COMPONENTS,
    DIM,
    KINDS,
    character,
    error,
    exact,
    ours_compiled,
    ours_in_torch,
    plain,
    plain_slide,
    plain_slide_on,
    slide,
)
from _peak import multiply_adds
from panther.aggregators import build
from panther.aggregators.embed import embed_bags
from panther.engine import Work, map_slides, open_executor
from panther.statistics.compiled import load_library
from panther.statistics.kernels import kernel_name
from panther.storage.bags import BagRef, list_bags
from panther.storage.writers import convert_bag
from panther.types import Mixture, Prototypes, Rows

Side = Callable[[Tensor, Tensor, int], Mixture]
DISTINCT = 12  # slides; more are further names for the same files
IN_TURN, IN_POOL = "plain, in turn", "plain, the same processes"


@contextmanager
def one_call(side: Side, kind: str, offset: float, patches: int, dtype: torch.dtype, steps: int) -> Iterator[Any]:
    torch.set_num_threads(1)
    x, prototypes = slide(kind, patches, offset=offset)
    x = x.to(dtype)
    side(x[:64], prototypes, steps)
    yield partial(side, x, prototypes, steps)


def kernels() -> tuple[Side, ...]:
    """Ours in torch and, where the build found a compiler, in C."""
    return (ours_in_torch,) if isinstance(load_library(), str) else (ours_in_torch, ours_compiled)


def kernel(patches: int, cores: int) -> None:
    """Part a: one slide in memory; both sides with the same number of threads, one and all."""
    steps_tried, rows, found = (1, 10), [], {}
    cases = [
        *((kind, 0.0, torch.float32) for kind in KINDS),
        ("one-hot", 0.0, torch.float16),
        ("soft", 0.0, torch.float16),
        ("one-hot", 30.0, torch.float32),
    ]
    for kind, offset, dtype in cases:
        x, prototypes = slide(kind, patches, offset=offset)
        x = x.to(dtype)
        torch.set_num_threads(cores)
        truth = exact(x, prototypes, max(steps_tried))
        for threads, steps in itertools.product(sorted({1, cores}), steps_tried):
            torch.set_num_threads(threads)
            sides = {side.__name__: partial(side, x, prototypes, steps) for side in (plain, *kernels())}
            seconds = interleaved(sides, rounds=7 if steps == 1 else 3)
            if threads == 1 and not offset and kind != "subnormal":
                found[kind, str(dtype)[6:], steps] = seconds
            rows.append(
                [
                    kind + (f", mean {offset:g} std" if offset else ""),
                    character(x, prototypes),
                    str(dtype)[6:],
                    steps,
                    threads,
                    *(f"{seconds[name] * 1e3:.0f}" for name in sides),
                    *(f"{seconds['plain'] / seconds[name]:.1f}x" for name in list(sides)[1:]),
                    *(error(call(), truth[steps - 1]) for call in sides.values()),
                ]
            )
    ours_named = [side.__name__.replace("ours_", "").replace("_", " ") for side in kernels()]
    header = [
        "posteriors",
        "soft / subnormal",
        "input",
        "steps",
        "threads",
        "plain ms",
        *(f"{name} ms" for name in ours_named),
    ]
    header += [f"plain / {name}" for name in ours_named]
    header += [f"{name} error μ, Σ" for name in ("plain", *ours_named)]
    table(
        f"Kernel: {patches:,} x {DIM}, C = {COMPONENTS}, the same threads on all sides; {kernel_name()}", header, rows
    )
    arithmetic(patches, found)
    memory(patches)


def arithmetic(patches: int, found: dict[tuple[str, str, int], dict[str, float]]) -> None:
    """How far the compiled kernel is from what this processor could do at the most, were there nothing but its multiply-adds."""
    rate = multiply_adds()
    if rate is None or len(kernels()) == 1:
        return
    rows = []
    for (kind, dtype, steps), seconds in found.items():
        # logits: linear in the first step, then with squares; sums: of all prototypes, or of the one that owns the patch
        products = (2 * steps - 1) * COMPONENTS + 2 * steps * (COMPONENTS if kind == "soft" else 1)
        least, took = patches * DIM * products / rate, seconds["ours_compiled"]
        rows.append([kind, dtype, steps, f"{least * 1e3:.1f}", f"{took * 1e3:.1f}", f"{least / took:.0%}"])
        rows[-1] += [f"{seconds['plain'] / least:.1f}x", f"{seconds['plain'] / took:.1f}x"]
    header = ["posteriors", "input", "steps", "multiply-adds alone, ms", "compiled ms", "share of it"]
    header += ["plain / multiply-adds alone", "plain / compiled"]
    title = f"Bound by arithmetic: one thread, which does {rate / 1e9:.0f} thousand million multiply-adds of floats per second at the most"
    table(title, header, rows)


def memory(patches: int) -> None:
    """What each side takes at its peak beyond the bag itself."""
    rows = []
    for dtype in (torch.float32, torch.float16):
        found = [peak_extra(one_call, side, "soft", 0.0, patches, dtype, 10) for side in (plain, *kernels())]
        rows.append([str(dtype)[6:], f"{patches * DIM * dtype.itemsize / 2**20:.0f}", *(f"{mb:.0f}" for mb in found)])
    title = f"Extra memory: {patches:,} x {DIM}, C = {COMPONENTS}, ten steps, one thread"
    names = (side.__name__.replace("_", " ") for side in (plain, *kernels()))
    table(title, ["input", "the bag itself MB", *(f"{name} extra MB" for name in names)], rows)


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
    for ref in list_bags(folder / "npy float32").refs:
        convert_bag(ref, folder=folder / converted, to=to, dtype="float16")
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


def linked(refs: list[BagRef], slides: int) -> list[BagRef]:
    """More names for the same files: they lie in the page cache once."""
    folder = refs[0].files[0].parent
    for number in range(len(refs), slides):
        file = refs[number % len(refs)].files[0]
        os.link(file, folder / f"again_{number:03}{file.suffix}")
    return list(list_bags(folder).refs)


def plain_in_turn(refs: Sequence[BagRef], prototypes: Tensor) -> list[Mixture]:
    """One slide after the other, all threads on each."""
    return [plain_slide(ref, prototypes) for ref in refs]


def plain_in_pool(refs: Sequence[BagRef], prototypes: Tensor, pool: Any) -> list[Mixture]:
    """The same work in the very processes that ours has, one thread each."""
    job = partial(plain_slide_on, prototypes=prototypes, device="cpu")
    return [Mixture(*(torch.from_numpy(a) for a in outcome.value)) for outcome in map_slides(job, refs, pool)]


def read_back(vector: np.ndarray) -> Mixture:
    tokens = torch.from_numpy(np.array(vector)).reshape(COMPONENTS, 1 + 2 * DIM)
    return Mixture(tokens[:, 0], tokens[:, 1 : 1 + DIM], tokens[:, 1 + DIM :])


def files(slides: int, patches: int) -> None:
    """Part b: from files to embeddings."""
    x, prototypes = slide("one-hot", patches)
    truth = exact(x, prototypes, 1)[0]
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    ready = Prototypes(prototypes)
    with tempfile.TemporaryDirectory() as folder, open_executor(cores) as pool:
        distinct = write_layouts(Path(folder), min(slides, DISTINCT), patches)
        layouts = {name: linked(refs, slides) for name, refs in distinct.items()}
        sides: dict[tuple[str, str], Callable[[], Any]] = {}
        for name, refs in layouts.items():
            if "float16" not in name:
                sides[IN_TURN, name] = partial(plain_in_turn, refs, prototypes)
                sides[IN_POOL, name] = partial(plain_in_pool, refs, prototypes, pool)
            sides["ours", name] = partial(embed_bags, refs, ready, "panther", {}, work=Work(pool))
        # the first, uncounted round starts the workers and brings the files into the page cache
        rate = {key: slides / s for key, s in interleaved(sides, 3).items()}
        kept = {key: call() for key, call in sides.items()}
        stages(layouts, build("panther", ready))
    first = {key: r[0] if isinstance(r, list) else read_back(r.vectors[0]) for key, r in kept.items()}
    rows = [[*key, f"{rate[key]:.1f}", error(first[key], truth)] for key in sides]
    title = (
        f"From files to embeddings, {cores} cores, {slides} slides of {patches:,} x {DIM}, one step, files in the page cache; "
        f"in turn: one process, {cores} threads; the others: the same {cores} processes of one thread, started before the clock"
    )
    table(title, ["pipeline", "files", "slides/s", "error of slide 1 μ, Σ (against the float32 original)"], rows)
    if importlib.util.find_spec("h5py"):
        ratios(rate)


def ratios(rate: dict[tuple[str, str], float]) -> None:
    """Ours to the faster of plain's two ways."""
    clam, contiguous, npy, half = "CLAM-style h5", "contiguous h5 float32", "npy float32", "h5 float16 of `convert`"
    pairs = {
        "both on contiguous h5 float32": (contiguous, contiguous),
        "both on CLAM-style h5": (clam, clam),
        "both on npy float32": (npy, npy),
        "ours on float16 files of `convert`, plain on CLAM-style h5": (half, clam),
    }
    rows = []
    for what, (mine, theirs) in pairs.items():
        best = max((IN_TURN, IN_POOL), key=lambda way: rate[way, theirs])
        rows.append([what, best, f"{rate['ours', mine] / rate[best, theirs]:.1f}x"])
    table("Ratios", ["what", "plain's faster way", "ratio"], rows)


@torch.no_grad()
def stages(layouts: dict[str, list[BagRef]], module: torch.nn.Module) -> None:
    """Take the same work apart: one slide after the other, read into memory and then computed on."""
    rows = []
    for name, refs in layouts.items():
        spent = np.zeros(2)
        bags = [ref.open() for ref in refs]
        host = torch.empty(bags[0].features.shape, dtype=bags[0].features.dtype)
        for bag in bags:
            reading, _ = timed(lambda: _fill(host, bag.features))  # noqa: B023 (called at once)
            computing, _ = timed(lambda: module(host))  # noqa: B023
            spent += reading, computing
        rows.append([name, *(f"{s / len(bags) * 1e3:.2f} ms ({s / spent.sum():.0%})" for s in spent)])
    table("Stages of one slide", ["files", "reading", "computing"], rows)


def _fill(host: Tensor, rows: Rows, step: int = 512) -> None:
    """Read as the kernel does, block by block: memory for a whole slide, fresh from the system, costs more than reading."""
    for start in range(0, len(host), step):
        host[start : start + step] = rows[start : start + step]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slides", type=int, default=48)
    parser.add_argument("--patches", type=int, default=15_000)
    parser.add_argument("--only", choices=("kernel", "files"), help="one part")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    slides, patches = (2, 300) if options.quick else (options.slides, options.patches)
    print(machine("h5py", "panther-wsi"))
    if options.only in (None, "kernel"):
        kernel(patches, 1 if options.quick else len(os.sched_getaffinity(0)))
    if options.only in (None, "files"):
        files(slides, patches)


if __name__ == "__main__":
    main()
