"""Readers of feature files. A file's content chooses its reader; one reader is one small file and one registration."""

from panther.storage.readers import batched, clam, npy, safetensors_file, stamp, torch_file, trident  # noqa: F401 (register)
from panther.storage.readers._base import BAG_SUFFIXES, Held, open_bag, readers

__all__ = ["BAG_SUFFIXES", "Held", "open_bag", "readers"]
