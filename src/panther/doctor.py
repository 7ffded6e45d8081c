"""What this machine has, what is missing, and how to get it."""

import os
import platform
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import psutil

from panther.errors import InputError
from panther.machine import free_memory


class Finding(NamedTuple):
    """One line of the examination."""

    what: str
    found: str
    remedy: str | None = None  # None: all is well


PACKAGES = {
    "panther-wsi": "pip install panther-wsi",
    "numpy": "pip install numpy",
    "torch": "pip install torch",
    "h5py": "pip install h5py",
    "safetensors": "pip install safetensors",
    "scikit-learn": "pip install scikit-learn",
    "pandas": "pip install pandas",
    "anndata": "pip install anndata (for .h5ad; .npz works without)",
    "distributed": "pip install 'panther-wsi[cluster]' (for work on several machines)",
    "plotly": "pip install 'panther-wsi[report]' (for the report of a study)",
    "flask": "pip install 'panther-wsi[view]' (for the viewer)",
    "openslide-python": "pip install 'panther-wsi[slides]' (to read slide images; features need none)",
    "timm": "pip install 'panther-wsi[encoders]' (to encode patches; features need none)",
}


def examine() -> list[Finding]:
    """Look at packages, devices, threads, memory and disk."""
    packages = [_package(name, remedy) for name, remedy in PACKAGES.items()]
    return [Finding("python", platform.python_version()), *packages, *(check() for check in CHECKS)]


def _package(name: str, remedy: str) -> Finding:
    try:
        return Finding(name, metadata.version(name))
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

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        return Finding("GPU", names)
    return Finding("GPU", "none; everything runs on the CPU")


def _kernel() -> Finding:
    from panther.statistics.compiled import load_library
    from panther.statistics.kernels import kernel_name

    try:
        name = kernel_name()
    except InputError as error:
        return Finding("kernel", str(error), "unset PANTHER_KERNEL")
    library = load_library()
    if isinstance(library, str):
        return Finding(
            "kernel",
            f"torch; the compiled one is faster, but {library}",
            "install a C compiler (gcc or clang), then panther again",
        )
    asked = "" if name != "torch" else f", because PANTHER_KERNEL asks for it ({library.name} is there)"
    return Finding("kernel", name + asked)


def _threads() -> Finding:
    import torch

    limit = os.environ.get("OMP_NUM_THREADS")
    limited = f", OMP_NUM_THREADS={limit}" if limit else ""
    return Finding("threads", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}{limited}")


def _memory() -> Finding:
    memory, free = psutil.virtual_memory(), free_memory()
    found = f"{free / 1e9:.1f} GB free of {memory.total / 1e9:.1f} GB"
    if free < 0.9 * memory.available:
        found += f" (the machine has {memory.available / 1e9:.1f} GB, this job may not take them)"
    return Finding("memory", found, "close other programs, or use fewer workers" if free < 2e9 else None)


def _disk() -> Finding:
    disk = shutil.disk_usage(Path.cwd())
    found = f"{disk.free / 1e9:.1f} GB free of {disk.total / 1e9:.1f} GB here"
    return Finding("disk", found, "free some space" if disk.free < 5e9 else None)


CHECKS: tuple[Callable[[], Finding], ...] = (_openslide, _device, _kernel, _threads, _memory, _disk)
