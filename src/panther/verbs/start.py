"""`panther demo` and `doctor`."""

import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from panther.errors import InputError
from panther.verbs import parameters as p
from panther.verbs import verb
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


@verb("doctor", "Start")
def doctor() -> "Examination":
    """Show the packages, devices and memory of this machine, and how to install what is missing.

    Returns
    -------
    Examination
        ``findings``: packages, devices, threads, memory and disk.
    """
    packages = [_package(name, remedy) for name, remedy in PACKAGES.items()]
    checks = (_openslide(), _device(), _kernel(), _threads(), _memory(), _disk())
    return Examination([Finding("python", platform.python_version()), *packages, *checks])


class Finding(NamedTuple):
    """One line of the examination."""

    what: str
    state: str
    remedy: str | None = None  # None: no problem


@dataclass(frozen=True)
class Examination:
    """Packages and resources of a machine."""

    findings: Sequence[Finding]

    def to_lines(self) -> list[str]:
        """Lines for people."""
        states = [("ok", "") if remedy is None else ("--", f"  ->  {remedy}") for _, _, remedy in self.findings]
        findings = zip(states, self.findings, strict=True)
        return [f"{state} {what:<14} {text}{remedy}" for (state, remedy), (what, text, _) in findings]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {"findings": [finding._asdict() for finding in self.findings]}


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


def _package(name: str, remedy: str) -> Finding:
    try:
        return Finding(name, __version__ if name == "panther-wsi" else metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, "missing", remedy)


def _openslide() -> Finding:
    try:
        import openslide
    except ImportError:
        return Finding("OpenSlide", "missing", PACKAGES["openslide-python"])
    except OSError as error:
        return Finding("OpenSlide", f"library not found ({error})", "pip install openslide-bin")
    return Finding("OpenSlide", openslide.__library_version__)


def _device() -> Finding:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Finding("GPU", ", ".join(names) or "none; everything runs on the CPU")


def _kernel() -> Finding:
    from panther.statistics.compiled import load_library
    from panther.statistics.kernels import kernel_name

    try:
        name = kernel_name()
    except InputError as error:
        return Finding("kernel", str(error), "unset PANTHER_KERNEL")
    library = load_library()
    if isinstance(library, str):
        slow = f"torch; the compiled one is faster, but {library}"
        return Finding("kernel", slow, "install a C compiler (gcc or clang), then panther again")
    reason = f", because of PANTHER_KERNEL ({library.name} is there)" if name == "torch" else ""
    return Finding("kernel", name + reason)


def _threads() -> Finding:
    import torch

    limit = os.environ.get("OMP_NUM_THREADS")
    limited = f", OMP_NUM_THREADS={limit}" if limit else ""
    return Finding("threads", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}{limited}")


def _memory() -> Finding:
    import psutil

    from panther.machine import free_memory

    memory, free = psutil.virtual_memory(), free_memory()
    text = f"{free / 1e9:.1f} GB free of {memory.total / 1e9:.1f} GB"
    if free < 0.9 * memory.available:
        text += f" (the machine has {memory.available / 1e9:.1f} GB, this job may not take them)"
    return Finding("memory", text, "close other programs, or use fewer workers" if free < 2e9 else None)


def _disk() -> Finding:
    disk = shutil.disk_usage(Path.cwd())
    text = f"{disk.free / 1e9:.1f} GB free of {disk.total / 1e9:.1f} GB here"
    return Finding("disk", text, "free some space" if disk.free < 5e9 else None)
