"""Pickles that others published, read without ever running what they name."""

import io
import pickle
from pathlib import Path
from typing import Any

from panther.errors import InputError

# numpy's array machinery under its old and its new name, and nothing that can call anything else
_ARRAYS = {"_reconstruct", "scalar"}
_ALLOWED = {
    *((module, name) for module in ("numpy.core.multiarray", "numpy._core.multiarray") for name in _ARRAYS),
    *((module, "_frombuffer") for module in ("numpy.core.numeric", "numpy._core.numeric")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # how old protocols write bytes
    ("collections", "OrderedDict"),
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


def load_arrays(path: Path) -> Any:
    """Load numpy arrays in plain containers; refuse a pickle that names anything else."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    try:
        return _ArraysOnly(io.BytesIO(content)).load()
    except Exception as error:  # a broken pickle may raise anything
        raise InputError(
            f"{path}: not loaded, because the pickle is damaged or holds more than numpy arrays in plain containers ({error}). "
            "Code in a file is never run; save the arrays with numpy.save instead."
        ) from error
