"""The command `panther`, generated from the functions of `panther.verbs`; the only place that prints."""

import inspect
import io
import json
import logging
import os
import pkgutil
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast, get_args

from cyclopts import App, CycloptsError, Group, Parameter

import panther.verbs
from panther.errors import InputError, LeftOutWarning, Note, describe, format_invalid
from panther.progress import log_progress, track
from panther.verbs import VERBS, Verb
from panther.verbs.parameters import POSITIONAL, RUNNING, option, parse_settings
from panther.version import __version__

ABOUT = "From whole-slide images to prototypes, compact slide embeddings and predictions (PANTHER, CVPR 2024)."
EPILOGUE = "Exit codes: 0 all done, 1 some items failed (they are listed), 2 the request was refused."
PANELS = ("Start", "Slides", "Prototypes and embeddings", "Look", "Predict and compare", "Data")
INTERRUPTED, TERMINATED = 130, 143  # exit codes of a shell for Ctrl-C and SIGTERM
LISTED = 20  # failures that are printed
# command -> what its fork server imports beside torch, so that the first worker answers at once
PRELOADS = {
    "run": ("panther.study.training", "panther.study.evaluate", "h5py"),
    "view": ("panther.engine", "h5py", "panther.viewer.workbench"),
}

HIDDEN = Parameter(show_default=False)  # None, False and "" need no mention
Settings = Annotated[
    list[str] | None,
    option(
        "Setting of the method, e.g. steps=3 (EM steps), tau=1 (weight of the prior), epsilon=0.05 (OT); repeatable.",
        short="-s",
        metavar="NAME=VALUE",
    ),
]
Json = Annotated[bool, option("Print the result as JSON on standard output.", panel=RUNNING)]
Plugins = Annotated[
    list[Path] | None, option("Python file that registers methods, encoders or readers; repeatable.", panel=RUNNING)
]
Verbose = Annotated[bool, option("Show where an error came from.", panel=RUNNING, short="-v")]


def build_app() -> App:
    """All verbs as commands of one application."""
    for module in pkgutil.iter_modules(panther.verbs.__path__, "panther.verbs."):
        import_module(module.name)
    options: dict[str, Any] = {
        "default_parameter": Parameter(negative=(), allow_repeating=True),
        "help_format": "plaintext",
        "help_flags": ["--help", "-h"],
        "version_flags": ["--version"],
        "suppress_keyboard_interrupt": False,  # `_run` reports it
    }
    groups = {panel: Group(panel, sort_key=index) for index, panel in enumerate(PANELS)}
    app = App("panther", help=ABOUT, help_epilogue=EPILOGUE, version=f"panther-wsi {__version__}", **options)
    app["--help"].group = app["--version"].group = Group("Options", sort_key=len(PANELS))
    parents = {"": app}
    for verb in sorted(VERBS.values(), key=lambda verb: verb.command):
        parent, _, name = verb.command.rpartition(" ")
        if parent not in parents:
            about = "Study files: templates of the paper's experiments, and the schema."
            parents[parent] = App(parent, help=about, group=groups[verb.panel], **options)
            app.command(parents[parent])
        parents[parent].command(command_of(verb), name=name, group=groups[verb.panel])
    app.register_install_completion_command(add_to_startup=False)
    app["--install-completion"].group = app["--help"].group
    return app


def command_of(verb: Verb) -> Callable[..., int]:
    """Function of a command: the verb's parameters, of which only required ones are positional, and those of every command."""

    def command(
        *values: Any, json: bool = False, plugins: Sequence[Path] | None = None, verbose: bool = False, **arguments: Any
    ) -> int:
        if plugins:
            from panther.registry import load_plugins

            load_plugins(plugins)
        arguments |= zip(positional, values, strict=False)
        arguments |= parse_settings(arguments.pop("set", None) or ())
        try:
            return call(verb, arguments, as_json=json)
        except InputError as error:
            raise InputError(as_typed(str(error), verb)) from error

    parameters, positional, keyword = [], [], inspect.Parameter.KEYWORD_ONLY
    for parameter in inspect.signature(verb.function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            parameter = inspect.Parameter("set", keyword, default=None, annotation=Settings)
        elif not is_positional(parameter):
            parameter = parameter.replace(kind=keyword)
        else:
            positional.append(parameter.name)
            parameter = parameter.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        parameters.append(parameter)
    for name, kind, default in (("json", Json, False), ("plugins", Plugins, None), ("verbose", Verbose, False)):
        parameters.append(inspect.Parameter(name, keyword, default=default, annotation=kind))
    parameters = [p if p.default else p.replace(annotation=Annotated[p.annotation, HIDDEN]) for p in parameters]
    command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # roles and doubled quotes are for the documentation's pages
    text = re.sub(r":\w+:(?=`)|(?<=`)`|`(?=`)", "", inspect.getdoc(verb.function) or "")
    about, heading, rest = text.partition("\nParameters\n")
    about = re.sub(r"(?<=\S)\n(?=\S)", " ", about)  # the help has its own line breaks
    rest = re.sub(r"(?<=\n)    \S.*(?:\n    \S.*)+", lambda match: "    " + " ".join(match[0].split()), rest)
    command.__doc__ = about + heading + rest
    command.__name__ = verb.function.__name__
    return command


def as_typed(message: str, verb: Verb) -> str:
    """A message with the parameters of the verb as they are typed: `split=test` as `--split test`, `k: found 1` as `--folds: found 1`."""
    options = {}
    for name, parameter in inspect.signature(verb.function).parameters.items():
        details = [detail for detail in get_args(parameter.annotation)[1:] if isinstance(detail, Parameter)]
        named = [option for detail in details for option in detail.name or () if option.startswith("--")]
        if not is_positional(parameter):
            options[name] = named[0] if named else f"--{name.replace('_', '-')}"

    def spelled(match: re.Match[str]) -> str:
        typed = f"{options.get(match[1])} {match[2]}".removesuffix(" True").rstrip()
        return f"`{typed}`" if match[1] in options else match[0]

    message = re.sub(r"`(\w+)=([^`]*)`", spelled, message)
    name, colon, rest = message.partition(": ")
    return f"{options.get(name, name)}{colon}{rest}"


def is_positional(parameter: inspect.Parameter) -> bool:
    """Whether the command takes this parameter without its name."""
    details = get_args(parameter.annotation)[1:]
    if parameter.default is not parameter.empty:
        return POSITIONAL in details
    return not any(isinstance(detail, Parameter) and detail.required for detail in details)


def call(verb: Verb, arguments: dict[str, Any], *, as_json: bool) -> int:
    """Run a verb and print its result, its notes and what failed; returns the exit code."""
    notes: dict[str, None] = {}  # in their order, each once
    failures: dict[str, str] = {}
    show = warnings.showwarning

    def collect(message: Warning | str, category: type[Warning], *more: Any, **named: Any) -> None:
        if isinstance(message, LeftOutWarning):
            failures.update(message.failures)
        elif issubclass(category, Note):
            text = as_typed(str(message), verb)
            if text not in notes and not as_json:
                print(f"Note: {text}", file=sys.stderr, flush=True)
            notes[text] = None
        else:
            show(message, category, *more, **named)

    start = time.perf_counter()
    with warnings.catch_warnings():
        for category in (Note, LeftOutWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = collect
        value = verb.function(**arguments)
    seconds = time.perf_counter() - start
    output = None if arguments.get("dry_run") else arguments.get("output")
    if as_json:
        result: dict[str, Any] = {"output": str(output)} if output else {}
        result |= value.to_json() if value is not None else {}
        result |= {"notes": list(notes), "failures": failures, "seconds": seconds}
        print(json.dumps(result, indent=2, default=str))
        return int(bool(failures))
    for line in value.to_lines() if value is not None else ():
        print(line)
    if output:
        print(f"{output} written in {seconds:.1f} s")
    for reason in list(failures.values())[:LISTED]:
        print(f"Failed: {as_typed(reason, verb)}", file=sys.stderr)
    if len(failures) > LISTED:
        print(f"... and {len(failures) - LISTED} more; --json lists all.", file=sys.stderr)
    return int(bool(failures))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; an error is one line on standard error and exit code 2."""
    if not os.environ.get("OMP_NUM_THREADS", "1").isdecimal():
        os.environ.setdefault("NUMEXPR_NUM_THREADS", "1")  # OpenMP takes "4,2"; numexpr, which pandas imports, does not
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the locale lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    typed = list(sys.argv[1:] if arguments is None else arguments)
    arguments = [argument for argument in typed if argument not in ("-v", "--verbose")]  # may stand anywhere
    verbose = len(arguments) < len(typed)
    if verbose:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("panther").setLevel(logging.DEBUG)
    app = build_app()
    with handle_sigterm():
        sys.exit(_run(app, arguments, verbose))


def _start_helpers(arguments: Sequence[str]) -> None:
    """Start worker processes, or a reader of AnnData, while this process imports torch."""
    if not arguments or "--help" in arguments or "-h" in arguments:
        return
    verb = VERBS.get(arguments[0])
    if verb is None:
        return
    if "workers" in inspect.signature(verb.function).parameters:
        from panther.machine import keep_freed_memory, start_early

        start_early(*PRELOADS.get(arguments[0], ()))
        keep_freed_memory()
    elif any(".h5ad" in argument or ".zarr" in argument for argument in arguments):
        from panther.storage.isolated import start_helper

        start_helper("anndata")


@contextmanager
def handle_sigterm() -> Iterator[None]:
    """End in order on SIGTERM: contexts are left, workers end, nothing is half-written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(app: App, arguments: Sequence[str], verbose: bool) -> int:
    try:
        try:
            os.getcwd()
        except OSError as error:  # libraries end the process where they import without it
            raise InputError(f"the working directory cannot be used ({error.strerror}); change to another") from error
        _start_helpers(arguments)
        with log_progress(" ".join(["panther", *arguments[:1]])), session():
            code = app(
                list(arguments) or ["--help"], exit_on_error=False, print_error=False, result_action="return_value"
            )
            return code if isinstance(code, int) else 0
    except SystemExit as end:
        if end.code != TERMINATED:
            raise
        code = TERMINATED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if verbose:
            import traceback

            traceback.print_exc()
        text = _describe_usage(error) if isinstance(error, CycloptsError) else describe(error)
        print(f"panther: {text}", file=sys.stderr)
        return 2
    print("panther: stopped. Type the same command again to go on.", file=sys.stderr)
    return code


def _describe_usage(error: CycloptsError) -> str:
    """Arguments that cyclopts, or pydantic behind it, does not accept, as one line."""
    argument, cause = getattr(error, "argument", None), cast(Any, error.__cause__)
    if argument is None or not hasattr(cause, "errors"):
        return str(error).replace("\n", " ")
    return re.sub(r"^(--[\w-]+)\.\d+:", r"\1:", format_invalid(cause, argument.name))  # of a list: no position


@contextmanager
def session() -> Iterator[None]:
    """Progress bars, and worker processes where they pay."""
    from panther.engine import SESSION

    before = vars(SESSION).copy()
    SESSION.track, SESSION.is_command = track, True
    try:
        yield
    finally:
        vars(SESSION).update(before)
