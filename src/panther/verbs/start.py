"""`panther demo` and `doctor`."""

import os
import platform
import shutil
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated

from pydantic import Field

from panther.errors import InputError
from panther.verbs import Text, verb
from panther.verbs import parameters as p
from panther.version import __version__


@verb("demo", "Start")
def demo(
    *,
    folder: Annotated[Path, p.option(name="--output", short="-o", metavar="FOLDER")] = Path("demo"),
    patients: Annotated[int, Field(ge=18, strict=True)] = 60,
    full: bool = False,
    seed: p.Seed = 0,
) -> None:
    """Draw synthetic slides and run every command on them, from tissue to the report; offline, commands are printed.

    Parameters
    ----------
    folder : path
        Output folder; run again to resume.
    patients : int, default=60
        Synthetic patients, at least 18; 60 take some minutes on two cores.
    full : bool
        All ten methods, also the slow networks.
    seed : int
        Same seed and input: same result.
    """
    from panther.engine import SESSION
    from panther.progress import progress_of_others
    from panther_demo import CohortSettings, Demo, run_demo

    cohort = CohortSettings(patients, min(5, patients // 6), seed=seed)  # a site is a fold: six patients at least
    with progress_of_others():
        run_demo(Demo(folder, cohort, full), partial(print, flush=True), SESSION.track)


Finding = tuple[str, str, str | None]  # what, its state, and how to mend it (None: no problem)
PACKAGES = {
    **{name: f"pip install {name}" for name in ("panther-wsi", "numpy", "torch", "h5py", "safetensors")},
    **{name: f"pip install {name}" for name in ("scikit-learn", "pandas", "anndata")},
    "distributed": "pip install 'panther-wsi[cluster]' (for work on several machines)",
    **dict.fromkeys(("plotly", "jinja2"), "pip install 'panther-wsi[report]' (for the report of a study)"),
    "flask": "pip install 'panther-wsi[view]' (for the viewer)",
    "openslide-python": "pip install 'panther-wsi[slides]' (to read slide images; features need none)",
    "highdicom": "pip install 'panther-wsi[dicom]' (for maps as DICOM)",
    "mcp": "pip install 'panther-wsi[mcp]' (to serve agents)",
    "timm": "pip install 'panther-wsi[encoders]' (to encode patches; features need none)",
}


@verb("doctor", "Start")
def doctor() -> Text:
    """Show the packages, devices and memory of this machine, and how to install what is missing.

    Returns
    -------
    Text
        ``values``: ``findings`` on packages, devices, threads, memory and disk.
    """
    import psutil
    import torch

    from panther.machine import free_memory

    findings: list[Finding] = [("python", platform.python_version(), None)]
    for name, remedy in PACKAGES.items():
        try:
            findings.append((name, __version__ if name == "panther-wsi" else metadata.version(name), None))
        except metadata.PackageNotFoundError:
            findings.append((name, "missing", remedy))
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    threads = f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}"
    if limit := os.environ.get("OMP_NUM_THREADS"):
        threads += f", OMP_NUM_THREADS={limit}"
    memory, free, disk = psutil.virtual_memory(), free_memory(), shutil.disk_usage(Path.cwd())
    text = f"{free / 1e9:.1f} GB free of {memory.total / 1e9:.1f} GB"
    if free < 0.9 * memory.available:
        text += f" (the machine has {memory.available / 1e9:.1f} GB, this job may not take them)"
    space = f"{disk.free / 1e9:.1f} GB free of {disk.total / 1e9:.1f} GB here"
    findings += [
        _openslide(),
        ("GPU", ", ".join(gpus) or "none; everything runs on the CPU", None),
        _kernel(),
        ("threads", threads, None),
        ("memory", text, "close other programs, or use fewer workers" if free < 2e9 else None),
        ("disk", space, "free some space" if disk.free < 5e9 else None),
    ]
    lines = []
    for what, state, solution in findings:
        mark, more = ("ok", "") if solution is None else ("--", f"  ->  {solution}")
        lines.append(f"{mark} {what:<14} {state}{more}")
    return Text(lines, {"findings": [dict(zip(("what", "state", "remedy"), row, strict=True)) for row in findings]})


def _openslide() -> Finding:
    try:
        import openslide
    except ImportError:
        return "OpenSlide", "missing", PACKAGES["openslide-python"]
    except OSError as error:
        return "OpenSlide", f"library not found ({error})", "pip install openslide-bin"
    return "OpenSlide", openslide.__library_version__, None


def _kernel() -> Finding:
    from panther.statistics.compiled import load_library
    from panther.statistics.kernels import kernel_name

    try:
        name = kernel_name()
    except InputError as error:
        return "kernel", str(error), "unset PANTHER_KERNEL"
    library = load_library()
    if isinstance(library, str):
        slow = f"torch; the compiled one is faster, but {library}"
        return "kernel", slow, "install a C compiler (gcc or clang), then panther again"
    reason = f", because of PANTHER_KERNEL ({library.name} is there)" if name == "torch" else ""
    return "kernel", name + reason, None
