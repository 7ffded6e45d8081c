"""The blocks of a page: what a reader can type, shell or Python, fenced or indented."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

COMMANDS = ("panther", "make", "pip", "python", "dask", "cd", "git", "docker", "hf", "export", "sbatch", "source")
SHELL = ("bash", "sh", "shell", "console")
INLINE = re.compile(r"`(panther [a-z-]+ [^`]+)`")  # with an argument: more than a name


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    page: str  # relative to the repository
    line: int  # of its first line, from 1
    kind: str  # "shell", "python", "yaml" or "text"
    code: str
    section: str = ""  # heading of the second level that it stands under

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Lines of a shell block, those that end in a backslash joined to the next."""
        joined = re.sub(r"\\\n\s*", " ", self.code)
        return [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]


def blocks(path: Path, root: Path) -> list[Block]:
    """Blocks of a page in their order; commands in the cells of the README's tables are blocks of one line."""
    page, text = str(path.relative_to(root)), path.read_text()
    found = [*_fenced(page, text), *_indented(page, _without_fences(text))]
    if path.name == "README.md":
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("|"):
                found += [Block(page, number, "shell", code) for code in INLINE.findall(line)]
    return [replace(block, section=_section(text, block.line)) for block in sorted(found, key=lambda block: block.line)]


def _section(text: str, line: int) -> str:
    headings = [one for one in text.splitlines()[:line] if one.startswith("## ")]
    return headings[-1] if headings else ""


def arguments(command: str) -> list[str]:
    """Words of a command without its comment."""
    return shlex.split(command, comments=True)


FENCE = re.compile(r"^```([a-z]*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _fenced(page: str, text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        language, code = found.groups()
        kind = "shell" if language in SHELL else language if language in ("python", "yaml") else _kind(code)
        yield Block(page, text.count("\n", 0, found.start()) + 1, kind, code)


def _without_fences(text: str) -> str:
    return FENCE.sub(lambda found: "\n" * found.group(0).count("\n"), text)


def _indented(page: str, text: str) -> Iterator[Block]:
    """Lines that begin with four spaces after an empty line; lists and options of the reference (`:::`) have none."""
    lines, start = text.splitlines(), None
    for number, line in enumerate([*lines, "end"]):
        inside = line.startswith("    ") or (start is not None and not line.strip())
        if inside and start is None and (number == 0 or not lines[number - 1].strip()) and line.strip():
            start = number
        elif not inside and start is not None:
            code = "\n".join(one[4:] for one in lines[start:number]).rstrip() + "\n"
            yield Block(page, start + 1, _kind(code), code)
            start = None


def _kind(code: str) -> str:
    words = [line.split()[0] for line in code.splitlines() if line.split() and not line.startswith((" ", "#"))]
    if words and words[0] in COMMANDS:
        return "shell"
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return "text"
    does = (ast.Import, ast.ImportFrom, ast.Call, ast.Assign)
    return "python" if any(isinstance(node, does) for node in ast.walk(tree)) else "text"
