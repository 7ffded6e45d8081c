"""The rooms of the house: files are opened in `store.py` and `storage/` only.

Feature files, tables, models, JSON, YAML and text are read and written there, whole or not at all, with one set of sentences for what
may be wrong with them. Pixels are the exception: slides are opened by `slides/readers/`, and a picture (PNG, JPEG, SVG, TIFF) is saved by
what draws it, into the file that `store.atomic_write` hands out; `Image.open`, `Image.save` and `savefig` are therefore not
looked for.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "panther"
ROOMS = ("store.py", "storage", "slides/readers")  # where files may be opened
EXCEPTIONS = {
    "slides/listing.py": "the first bytes of DICOM files say which of them are one slide",
    "report/make.py": "style sheets and scripts that come with packages",
    "viewer/server.py": "style sheets and scripts that come with packages",
    "machine.py": "what the system says of a job's memory",
    "engine.py": "functions that are sent to workers",
    "plain_yaml.py": "files of options",
}
# how a file is opened, whatever it holds
METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "to_parquet", "write_h5ad", "read_h5ad"}
FUNCTIONS = {
    "h5py": {"File"},
    "np": {"load", "save", "savez", "savez_compressed", "memmap", "fromfile", "loadtxt", "savetxt"},
    "torch": {"load", "save"},
    "pd": {"read_csv", "read_parquet", "read_excel", "read_json"},
    "zipfile": {"ZipFile"},
}
NAMES = {"open", "load_file", "save_file", "safe_open"}  # of builtins and safetensors


def opens_a_file(call: ast.Call) -> bool:
    """Whether the call opens a file, as far as its text says."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in NAMES
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr == "open":  # of a path: with a mode; `ref.open()` and `Image.open(path)` open something else
        mode = call.args[0] if call.args else None
        written = isinstance(mode, ast.Constant) and str(mode.value)[:1] in ("r", "w", "a", "x")
        return written or any(keyword.arg in ("mode", "encoding", "newline") for keyword in call.keywords)
    if function.attr == "to_csv":  # without a path it is text
        return bool(call.args)
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    return function.attr in METHODS or function.attr in FUNCTIONS.get(owner, ())


def openings(path: Path) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [
        f"{path.relative_to(PACKAGE)}:{call.lineno} {ast.unparse(call)[:80]}" for call in calls if opens_a_file(call)
    ]


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def test_files_are_opened_in_storage_only():
    outside = [path for path in files() if not path.relative_to(PACKAGE).as_posix().startswith(ROOMS)]
    found = [
        one for path in outside if path.relative_to(PACKAGE).as_posix() not in EXCEPTIONS for one in openings(path)
    ]
    assert not found, "opened outside of storage/:\n" + "\n".join(found)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_every_exception_is_still_needed(name):
    assert openings(PACKAGE / name)


def test_files_of_tests_have_names_of_their_own():
    """Python imports them by name alone, and takes the second of two for the first."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
