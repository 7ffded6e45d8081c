"""safetensors: `features` (and perhaps `coords`), memory-mapped; metadata may name the encoder."""

import json

from panther.errors import InputError, NotABagError
from panther.patch_spec import spec_from
from panther.storage.readers._base import FileContent, as_coords, as_matrix, readers
from panther.storage.tensors import kind_of
from panther.types import Bag


@readers.register("safetensors")
def safetensors_file(file: FileContent) -> Bag | None:
    """Read tensors by name; the header, 8 bytes of length and JSON, says which format it is."""
    length = int.from_bytes(file.head[:8], "little")
    if file.head[8:9] != b"{" or (length > file.path.stat().st_size and file.path.suffix != ".safetensors"):
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file.path, framework="pt") as handle:
            names, metadata = set(handle.keys()), handle.metadata() or {}
            own = kind_of(metadata)
            if own and "features" not in names:
                raise NotABagError(f"{file.path}: holds {own} of this package, not features.")
            name = next((n for n in ("features", "feats") if n in names), None)
            if name is None and len(names) == 1:
                (name,) = names
            if name is None:
                raise InputError(f"{file.path}: tensors {sorted(names)}; expected one called `features`.")
            features, coords = handle.get_tensor(name), handle.get_tensor("coords") if "coords" in names else None
    except SafetensorError as error:
        raise InputError(f"{file.path}: the file is damaged ({error}); save it again.") from error
    rows = as_matrix(file.path, features, name)
    places = as_coords(file.path, coords, int(rows.shape[0]))
    about = {"encoder": metadata.get("encoder"), **json.loads(metadata.get("bag", "{}"))}
    return Bag(file.slide_id, rows, places, spec_from(about.get("patch_spec")), about["encoder"])
