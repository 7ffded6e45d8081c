"""Compile the kernel (`src/panther/statistics/compiled_*.c`) where there is a C compiler; go on without where there is none.

pip and cibuildwheel call the hook below for wheels and editable installs; `python hatch_build.py` builds in place.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # `python hatch_build.py` needs no hatchling
    BuildHookInterface = object  # type: ignore[assignment, misc]

ROOM = Path(__file__).resolve().parent / "src" / "panther" / "statistics"
SOURCES, LIBRARY = sorted(ROOM.glob("compiled_*.c")), ROOM / "_compiled.so"
FLAGS = [
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
]
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512", "-mfma", "-mf16c"]
WIDTHS = {"avx512": AVX512, "avx2": ["-mavx2", "-mfma", "-mf16c"], "plain": []}
TYPES = {"float": "int32_t", "double": "int64_t"}


def compile_kernel() -> str | None:
    """Build the library beside its source; returns why it could not be built, None if it was."""
    compiler = next(
        (c for c in (os.environ.get("CC", ""), "cc", "gcc", "clang") if c and shutil.which(shlex.split(c)[0])), None
    )
    if compiler is None:
        return "no C compiler was found ($CC, cc, gcc, clang)"
    if sys.platform == "win32":
        return "it is written for gcc and clang; Windows computes in torch"
    is_x86 = _platform().endswith(("x86_64", "amd64"))
    architecture = shlex.split(os.environ.get("ARCHFLAGS", ""))  # of cibuildwheel on macOS
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for width in WIDTHS if is_x86 else ["plain"]:
            for number, source in product(TYPES, SOURCES):
                objects.append(str(Path(folder, f"{source.stem}_{width}_{number}.o")))
                names = [f"-DREAL={number}", f"-DINTEGER={TYPES[number]}", f"-DSUFFIX={number}_{width}"]
                options = [*FLAGS, *architecture, *WIDTHS[width], *names]
                command = [*shlex.split(compiler), *options, "-c", str(source), "-o", objects[-1]]
                if problem := _failure(command):
                    return problem
        made = Path(folder, LIBRARY.name)
        if problem := _failure([*shlex.split(compiler), *architecture, "-shared", *objects, "-o", str(made), "-lm"]):
            return problem
        beside = LIBRARY.with_name(f".{LIBRARY.name}.{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.replace(LIBRARY)  # a process that has the old one open keeps it
    return None


def _failure(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return None if done.returncode == 0 else f"{shlex.join(command)} failed:\n{done.stderr}"


class KernelHook(BuildHookInterface):
    """Put the compiled kernel into the wheel; without it the wheel is pure Python and computes in torch."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a wheel or an editable install is put together."""
        if os.environ.get("PANTHER_PURE"):
            return
        if problem := compile_kernel():
            LIBRARY.unlink(missing_ok=True)
            self.app.display_warning(
                f"The compiled kernel was not built: {problem}\nEverything works without it, slower."
            )
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"
        build_data["artifacts"].append(str(LIBRARY.relative_to(Path(__file__).resolve().parent)))


def _platform() -> str:
    """Tag of this platform, as wheels spell it; the library needs no particular Python."""
    import sysconfig

    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    reason = compile_kernel()
    print(f"built {LIBRARY}" if reason is None else f"The compiled kernel was not built: {reason}")
    sys.exit(reason is not None)
