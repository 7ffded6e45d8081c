"""What mkdocs does to pages: equations become MathML, which browsers draw without a script; the commands' help and the notebooks become pages."""

import json
import re
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


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Page with its equations as MathML and the commands' help where it is asked for."""
    if _COMMANDS in markdown:
        markdown = markdown.replace(_COMMANDS, commands())
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


def commands() -> str:
    """Every command with its arguments and options, as Markdown, in the panels of `panther --help`."""
    from typer.main import get_command

    from panther.cli import PANELS, app

    known = get_command(app).commands
    return "\n\n".join(
        "\n\n".join([f"## {panel}", *(_command(f"panther {name}", one) for name, one in _of(panel, known))])
        for panel in PANELS
    )


def _of(panel: str, known: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, command) for name, command in known.items() if command.rich_help_panel == panel]


def _command(name: str, entry: Any) -> str:
    if hasattr(entry, "commands"):
        return "\n\n".join(_command(f"{name} {inner}", command) for inner, command in sorted(entry.commands.items()))
    rows = [_row(p) for p in entry.params if p.name != "help"]
    table = ["| | | default |", "|---|---|---|", *rows] if rows else []
    return "\n".join([f"### {name}", "", " ".join((entry.help or "").split()), "", *table])


def _row(parameter: Any) -> str:
    shown = parameter.name.upper() if parameter.param_type_name == "argument" else ", ".join(parameter.opts)
    plain = isinstance(parameter.default, str | int | float) and not isinstance(parameter.default, bool)
    default = f"`{parameter.default}`" if plain and parameter.default != "" else ""
    told = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|")
    return f"| `{shown}` | {told} | {default} |"
