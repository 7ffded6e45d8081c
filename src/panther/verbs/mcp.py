"""`panther mcp`: commands as tools of the Model Context Protocol, generated from the verbs."""

import functools
import inspect
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from panther.errors import InputError, LeftOutWarning, Note, describe, require_packages
from panther.verbs import VERBS, Verb, verb
from panther.verbs import parameters as p

READ = ("inspect", "status", "similar", "retrieval", "compare-prototypes", "shift", "doctor")
WRITE = ("prototypes", "embed", "splits", "map", "atlas", "convert")
FIXED = {"workers": 1, "device": "cpu"}  # a tool answers before the next begins
HIDDEN = {*FIXED, "part", "plot"}
ROWS = 200  # of a table in an answer
INSTRUCTIONS = """Computational pathology with panther-wsi. Call `inspect` first. An error names the parameter, what was found and what was expected.
Fit prototypes on training patients only (`table`, `split`); patients must not be in two parts of a split; a resolution (mpp) that a file lacks is
asked of the user, never guessed. Notes and failures of an answer are part of the result: report them."""


@verb("mcp", "Start")
def serve_mcp(
    data: Annotated[list[Path], p.option(metavar="FOLDER...")],
    *,
    folder: Annotated[Path | None, p.option(name="--output", short="-o", metavar="FOLDER")] = None,
) -> None:
    """Serve commands to agents by the Model Context Protocol, on standard input and output.

    Only files in the folders named here are read. Commands that write are offered with ``--output``, and write only there.

    Parameters
    ----------
    data : list of path
        Folders that may be read.
    folder : path, optional
        Folder that may be written to (and read).
    """
    build_server(data, folder).run("stdio")


def build_server(data: Sequence[Path], folder: Path | None = None) -> Any:
    """Server with a tool for every verb in `READ`, with a ``folder`` also for those in `WRITE`, and for results of studies."""
    require_packages("mcp", "mcp")
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    from panther.version import __version__

    for place in data:
        if not place.is_dir():
            raise InputError(f"data: found {place}, expected a folder")
    inside = [place.resolve() for place in (*data, *([] if folder is None else [folder]))]
    server = MCPServer("panther-wsi", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
    for name in (*READ, *(WRITE if folder is not None else ())):
        about = ToolAnnotations(read_only_hint=name in READ, open_world_hint=False)
        tool = tool_of(VERBS[name], inside, folder)
        server.add_tool(answer(tool), name.replace("-", "_"), description=inspect.getdoc(tool), annotations=about)

    def study_results(run: Path) -> dict[str, Any]:
        """Results of a study (`panther run -o`): rows of results.csv with intervals, the folds' sizes, notes and failures."""
        from panther.storage.tables import as_table
        from panther.study.results import read_record

        check_place(run, inside)
        record = read_record(run)
        table = run / "results.csv"
        rows = as_table(table).head(ROWS).to_dict("records") if table.exists() else []
        folds = [{part: len(names) for part, names in fold.items()} for fold in record["folds"]]
        kept = {name: record[name] for name in ("version", "classes", "time_unit", "notes", "failures")}
        return {"results": rows, "folds": folds, **kept}

    def slide(path: Path) -> dict[str, Any]:
        """Size, levels and resolution of a slide's image; refused where its resolution is missing or implausible."""
        from panther.slides import open_slide

        check_place(path, inside)
        with open_slide(path) as opened:
            about = {"name": opened.name, "size": opened.dimensions, "levels": opened.level_dimensions}
            resolution = {"mpp": opened.mpp, "source_of_mpp": opened.resolution.source, "note": opened.resolution.note}
            return about | resolution

    for function in (study_results, slide):
        about = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        server.add_tool(answer(function), description=inspect.getdoc(function), annotations=about)
    return server


def tool_of(verb: Verb, inside: Sequence[Path], folder: Path | None) -> Callable[..., dict[str, Any]]:
    """Tool of a verb: its parameters, docstring and result, with paths confined to the folders ``inside``, outputs to ``folder``."""
    signature = inspect.signature(verb.function)
    shown = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        if parameter.name not in HIDDEN and parameter.kind is not parameter.VAR_KEYWORD
        if parameter.name != "output" or verb.command in WRITE
    ]

    def call(**arguments: Any) -> dict[str, Any]:
        for name, value in arguments.items():
            for text in value if isinstance(value, (list, tuple)) else [value]:
                if name == "output" and text is not None:
                    check_place(Path(text), [] if folder is None else [folder.resolve()])
                elif isinstance(text, str) and not {*"/\\"} & {*text} and not Path(text).exists():
                    continue  # the name of a slide, a method or a column
                elif isinstance(text, (str, Path)):
                    check_place(Path(text), inside)
        if verb.command in WRITE and arguments.get("output") is None:
            raise InputError(f"output: found None, expected a place in {folder}")
        fixed = {name: value for name, value in FIXED.items() if name in signature.parameters}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = verb.function(**arguments, **fixed)
        notes, failures = [], {}
        for warning in caught:
            if isinstance(warning.message, LeftOutWarning):
                failures.update(warning.message.failures)
            elif issubclass(warning.category, Note):
                notes.append(str(warning.message))
        return {"result": None if value is None else value.to_json(), "notes": notes, "failures": failures}

    call.__name__ = verb.command.replace("-", "_")
    call.__doc__ = (inspect.getdoc(verb.function) or "").partition("\nReturns\n")[0].strip()
    call.__signature__ = inspect.Signature(shown, return_annotation=dict[str, Any])  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return call


def answer(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The same tool; its errors are one line for the agent, and numbers are plain."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def call(*args: Any, **arguments: Any) -> dict[str, Any]:
        try:
            plain: dict[str, Any] = json.loads(json.dumps(tool(*args, **arguments), default=str))
        except Exception as error:
            raise ToolError(describe(error)) from error
        return plain

    return call


def check_place(path: Path, inside: Sequence[Path]) -> None:
    """Refuse a path outside the folders that were named when the server was started."""
    resolved = path.resolve()
    if not any(resolved.is_relative_to(place) for place in inside):
        raise InputError(f"{path}: is outside {', '.join(map(str, inside)) or 'every folder that may be written to'}")
