"""NumPy arrays (N, d) or (1, N, d), memory-mapped."""

from numpy.lib import format as npy_format

from panther.errors import InputError
from panther.storage.readers._base import FileContent, as_matrix, check_numbers, mapped, readers
from panther.types import Bag


@readers.register("npy")
def npy(file: FileContent) -> Bag | None:
    """Read a .npy file; pickled (object) arrays are refused."""
    if not file.head.startswith(npy_format.MAGIC_PREFIX):
        return None
    try:
        with file.path.open("rb") as handle:
            version = npy_format.read_magic(handle)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, fortran, dtype = read(handle)
            offset = handle.tell()
        check_numbers(file.path, "the array", dtype)
        rows = (
            mapped(file.path, dtype, offset, shape[::-1]).permute(*range(len(shape))[::-1])
            if fortran
            else mapped(file.path, dtype, offset, shape)
        )
    except (ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file.path}: the array is damaged ({str(error).splitlines()[0]}); save it again.") from error
    return Bag(file.slide_id, as_matrix(file.path, rows, "the array"))
