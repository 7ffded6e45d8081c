"""What a shell offers after Tab: the values of options, from the registries that hold them, imported when Tab is pressed."""

from collections.abc import Callable, Iterable
from importlib import import_module

import typer

from panther.cli._options import declarations

# Parameter of a command's function, or `function.parameter`, -> registries, functions or constants (module:name) with its values.
SOURCES = {
    "method": ("panther.aggregators:aggregators",),
    "train.method": ("panther.aggregators:aggregators", "panther.mil:networks"),
    "preset": ("panther.mixture:PRESETS",),
    "readout": ("panther.aggregators.panther:READOUT",),
    "head": ("panther.models.heads:head_names",),
    "loss": ("panther.models.tasks:loss_names",),
    "scheme": ("panther.cohort.splits:SCHEMES",),
    "survival": ("panther.cohort.outcomes:ENDPOINTS",),
    "encoder": ("panther.encoders:encoders",),
    "precision": ("panther.encoders.loading:PRECISIONS",),
    "tissue": ("panther.slides:segmenters",),
    "new.name": ("panther.study.templates:TEMPLATES",),
}


def add_completion(app: typer.Typer) -> None:
    """Give the options of the table above their values."""
    for function, name, info in declarations(app):
        sources = SOURCES.get(f"{function}.{name}", SOURCES.get(name))
        if sources is not None:
            info.autocompletion = _beginning(sources)


def _beginning(sources: Iterable[str]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [value for source in sources for value in values(source) if value.startswith(incomplete)]

    return complete


def values(source: str) -> list[str]:
    """Names in a registry, or what a function or constant holds."""
    module, _, name = source.partition(":")
    known = getattr(import_module(module), name)
    known = getattr(known, "names", known)
    return list(known() if callable(known) else known)
