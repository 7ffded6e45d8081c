"""Readers of feature files. A file's content chooses its reader; a reader is a function and its registration."""

from panther.storage.readers import h5, tensors  # noqa: F401 (register)
from panther.storage.readers.base import BAG_SUFFIXES, STORE, is_store, open_bag, readers

__all__ = ["BAG_SUFFIXES", "STORE", "is_store", "open_bag", "readers"]
