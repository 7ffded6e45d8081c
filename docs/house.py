"""Print the map of the house: rooms from the top, from the layers of pyproject.toml and the docstrings. `python docs/house.py`."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def house() -> str:
    """Rooms of the package as a Markdown table; a room may import the rooms below it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    rows = [_row(name) for layer in layers for name in re.findall(r"[\w.]+", layer)]
    return "\n".join(["| room | files | what it holds |", "|---|---|---|", *rows])


def _row(name: str) -> str:
    path = ROOT / "src" / name.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    summary = " ".join(text.partition("\n\n")[0].split())
    files = len(list(path.rglob("*.py"))) if path.is_dir() else 1
    return f"| `{name.removeprefix('panther.')}` | {files} | {summary} |"


if __name__ == "__main__":
    print(house())
