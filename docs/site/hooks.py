"""What mkdocs does to pages: equations become MathML, which browsers draw without a script; the commands' help and the notebooks become pages."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

# code first: a dollar sign in it is not an equation
_CODE_OR_EQUATION = re.compile(
    r"(?P<code>```.*?```|`[^`\n]+`|^(?: {4}|\t).*$)|\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^$\n]+?)\$",
    re.DOTALL | re.MULTILINE,
)
_COMMANDS = "<!-- commands -->"
_HOUSE = "<!-- house -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Page with its equations as MathML and the commands' help where it is asked for."""
    if _COMMANDS in markdown:
        markdown = markdown.replace(_COMMANDS, commands())
    if _HOUSE in markdown:
        markdown = markdown.replace(_HOUSE, house())
    return _CODE_OR_EQUATION.sub(_drawn, markdown)


def on_files(files: Files, config: Any) -> Files:
    """Every notebook that has no page of its own becomes one of the same name."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        uri = notebook.src_uri.removesuffix(".ipynb") + ".md"
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=_notebook_page(Path(str(notebook.abs_src_path)))))
    return files


def _notebook_page(path: Path) -> str:
    """Text and code of a notebook as Markdown, with a link to the file."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n*A notebook: [download it]({path.name}). The tests run it as it is written.*\n{rest}\n"


def _drawn(found: re.Match[str]) -> str:
    if found["code"] is not None:
        return found[0]
    display = found["display"] is not None
    text = " ".join((found["display"] if display else found["inline"]).split())
    drawn = convert(text, display="block" if display else "inline")
    return drawn if display else f"<span>{drawn}</span>"  # Markdown takes <math> at the start of a line for a paragraph


def house() -> str:
    """Rooms of the package, as Markdown."""
    return str(runpy.run_path(str(Path(__file__).parents[1] / "house.py"))["house"]())


def commands() -> str:
    """Every command with its arguments and options, as Markdown."""
    from panther.cli import build_app

    return build_app().generate_docs(heading_level=2).partition("\n\n**")[2].partition("\n\n## ")[2]
