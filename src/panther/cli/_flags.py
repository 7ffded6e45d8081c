"""Messages of the package name parameters (`any_resolution=True`); at the command line they are options."""

import re

_COLUMN = re.compile(r"`columns\.(slide|patient|site)`")
_PARAMETER = re.compile(r"`([a-z][a-z0-9_]*)=([^`]*)`")
# where an option is not the parameter's name with dashes
_OPTIONS = {
    "any_resolution": "--allow-mixed-resolution",
    "by_patient": "--by patient",
    "formats": "--format",
    "n_prototypes": "-C",
}


def as_typed(sentence: str) -> str:
    """Sentence with options in place of parameters: `dtype=float32` is --dtype float32, `columns.site` is --site-column."""
    return _PARAMETER.sub(_option, _COLUMN.sub(r"--\1-column", sentence))


def _option(found: re.Match[str]) -> str:
    name, value = found.groups()
    option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    return option if value in ("", "True") else f"{option} {value}"
