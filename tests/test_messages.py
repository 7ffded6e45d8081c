"""Messages of the package name parameters, which are options and keys of study files under the same name."""

import ast
import re
from pathlib import Path

import pytest

import panther

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
