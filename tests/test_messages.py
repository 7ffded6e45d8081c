"""Errors of the Python API name parameters; only the command line, which translates them in one place, names options."""

import ast
import re
from pathlib import Path

import pytest

import panther
from panther.cli._flags import as_typed

SOURCE = Path(panther.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# These write whole command lines for a reader to type, or run them.
COMMAND_LINES = {"report/sections/summary.py", "cluster.py"}
FILES = sorted(
    path
    for path in SOURCE.rglob("*.py")
    if "cli" not in path.relative_to(SOURCE).parts and str(path.relative_to(SOURCE)) not in COMMAND_LINES
)


def texts(tree: ast.AST) -> list[tuple[int, str]]:
    """Strings of a module with their lines; docstrings are not messages."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [(node.lineno, str(node.value)) for node in found if id(node) not in docs]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_package_speaks_of_parameters_and_not_of_options(path):
    told = [
        f"line {line}: {text.strip()}"
        for line, text in texts(ast.parse(path.read_text()))
        if OPTION.search(text) and not re.search(r"panther [a-z-]+ ", text)  # a whole command may be quoted
    ]
    assert told == []


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("use `dtype=float32`.", "use --dtype float32."),
        ("allow it with `any_resolution=True`.", "allow it with --allow-mixed-resolution."),
        ("ask for fewer with `n_prototypes=`.", "ask for fewer with -C."),
        ("`split=` and `by_patient=True` need a `table=`", "--split and --level patient need a --table"),
        ("needs a column `split`; it has `features`", "needs a column `split`; it has `features`"),
    ],
)
def test_the_command_line_speaks_of_its_options(said, typed):
    assert as_typed(said) == typed
