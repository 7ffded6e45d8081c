"""What mkdocs does to pages: equations become MathML, which browsers draw without a script; the command line documents itself."""

import re
from typing import Any

from latex2mathml.converter import convert

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


def _drawn(found: re.Match[str]) -> str:
    if found["code"] is not None:
        return found[0]
    display = found["display"] is not None
    text = " ".join((found["display"] if display else found["inline"]).split())
    drawn = convert(text, display="block" if display else "inline")
    return drawn if display else f"<span>{drawn}</span>"  # Markdown takes <math> at the start of a line for a paragraph


def commands() -> str:
    """Every command with its arguments and options, as Markdown."""
    from typer.main import get_command

    from panther.cli import app

    top = get_command(app)
    return "\n\n".join(_command(f"panther {name}", entry) for name, entry in sorted(top.commands.items()))


def _command(name: str, entry: Any) -> str:
    if hasattr(entry, "commands"):
        return "\n\n".join(_command(f"{name} {inner}", command) for inner, command in sorted(entry.commands.items()))
    rows = [_row(p) for p in entry.params if p.name != "help"]
    table = ["| | | default |", "|---|---|---|", *rows] if rows else []
    return "\n".join([f"## {name}", "", " ".join((entry.help or "").split()), "", *table])


def _row(parameter: Any) -> str:
    shown = parameter.name.upper() if parameter.param_type_name == "argument" else ", ".join(parameter.opts)
    plain = isinstance(parameter.default, str | int | float) and not isinstance(parameter.default, bool)
    default = f"`{parameter.default}`" if plain and parameter.default != "" else ""
    told = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|")
    return f"| `{shown}` | {told} | {default} |"
