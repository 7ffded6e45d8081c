"""What a command reads is never what it writes over: checked before the work."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from panther.engine import SESSION
from panther.errors import InputError, NotABagError
from panther.storage.atomic import check_replaceable, check_writable, check_writable_folder
from panther.storage.readers import open_bag
from panther.storage.tensors import kind_of_file
from panther.types import Openable

RESULT_COLUMNS = ("sample", "n_prototypes", "representation")  # first columns of the tables that commands write
Given = Any  # a path, a bag or a list of them; values in memory (a table, prototypes) cannot be written over


def check_output(output: Path, *inputs: Given) -> None:
    """Fail where ``output`` cannot be written, or is one of the files that are read, by whatever link or name.

    The command line also keeps a file that panther did not write, unless it is told to overwrite.
    """
    check_writable(output)
    _refuse_inputs([output], inputs)
    if not SESSION.overwrite and output.is_file() and not is_result(output):
        raise InputError(f"{output}: exists and was not written by panther; expected another name, or --overwrite")


def is_result(path: Path) -> bool:
    """Whether a file may be a result of panther, as far as its format tells; an empty file may be."""
    suffix = path.suffix.lower()
    try:
        if not path.stat().st_size or suffix in (".png", ".svg", ".pdf"):
            return True
        if suffix == ".safetensors":
            return kind_of_file(path) is not None
        if suffix == ".h5ad":
            import h5py

            with h5py.File(path, "r") as file:
                return "uns/panther" in file
        if suffix == ".npz":
            return bool({"panther", "mean"} & {name.removesuffix(".npy") for name in ZipFile(path).namelist()})
        if suffix == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.read_schema(path).names[0] in RESULT_COLUMNS
        with path.open(encoding="utf-8") as file:
            head = file.read(4096)
    except Exception:  # a file of another format, or damaged: not a result, whatever the library calls it
        return False
    if suffix in (".csv", ".tsv"):
        return head.partition("\n")[0].replace("\t", ",").partition(",")[0].strip('"') in RESULT_COLUMNS
    return suffix == ".json" or (suffix in (".html", ".htm") and "panther-wsi" in head)


def check_output_folder(folder: Path, written: Iterable[str], *inputs: Given) -> None:
    """Fail where ``folder`` cannot be written to, or holds an input under one of the names (patterns) that are written there."""
    check_writable_folder(folder)
    there = list(folder.iterdir()) if folder.is_dir() else []
    replaced = [file for file in there if any(fnmatchcase(file.name, pattern) for pattern in written)]
    for file in replaced:
        check_replaceable(file)
    _refuse_inputs(replaced, inputs)


def _refuse_inputs(outputs: Iterable[Path], inputs: Iterable[Given]) -> None:
    there = {identity: file for file in outputs if (identity := _identity(file)) is not None}
    for file, listed in _files(inputs) if there else ():
        output = there.get(_identity(file) or (-1, -1))
        if output is not None and not (listed and _holds_something_else(file)):
            raise InputError(
                f"{output}: would be overwritten, but is an input of this very command ({file}); choose another output."
            )


def _identity(file: Path) -> tuple[int, int] | None:
    """Device and inode: the same for all links to a file; None where there is none."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _files(given: Iterable[Given]) -> Iterator[tuple[Path, bool]]:
    """Every file that was given, and whether it was only found by its ending when a folder was listed."""
    for one in given:
        if isinstance(one, (str, Path)):
            yield Path(one), False
        elif isinstance(one, Openable):
            yield from ((file, True) for file in one.files)
        elif isinstance(one, (Sequence, Iterator)):
            yield from _files(one)


def _holds_something_else(file: Path) -> bool:
    """Whether the file is no bag after all: what an earlier run wrote among them may be written again."""
    try:
        open_bag(file)
    except NotABagError:
        return True
    except InputError:
        pass
    return False
