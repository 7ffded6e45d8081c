"""What a shell offers after Tab: the values of options, known without loading what they name. A test keeps the lists true."""

from collections.abc import Callable

import typer

from panther.cli._options import declarations

EMBEDDINGS = ("panther", "ot", "h2t", "protocounts", "deepsets", "mean", "mean-std", "max", "top-k")
BY_PROTOTYPE = ("panther", "ot", "h2t", "protocounts")
NETWORKS = ("abmil", "transmil", "dsmil", "attnmisl", "ilra")
HEADS = ("probe", "linear", "mlp", "structured", "paper-classification", "paper-survival")
LOSSES = ("cross-entropy", "ordinal", "cox", "nll", "ranking", "mse", "huber", "binary-cross-entropy")
PRESETS = ("paper", "published-code", "calibrated")
READOUTS = ("all", "wa", "top", "bottom")
SCALINGS = ("share-weighted", "balanced", "block", "coordinate", "none")
SCHEMES = ("holdout", "kfold", "site-kfold")
ENDPOINTS = ("os", "dss", "dfi", "pfi")
ENCODERS = (
    *("lite0", "resnet50", "uni", "uni2", "virchow2", "gigapath", "h-optimus-0", "phikon", "phikon-v2", "conch"),
    *("ctranspath", "dinov2-small", "dinov2-small-reg", "dinov2-base", "dinov2-base-reg", "dinov2-large"),
    *("dinov2-large-reg", "dinov2-giant", "dinov2-giant-reg"),
)


def templates() -> tuple[str, ...]:
    """Study templates, read when they are asked for."""
    from panther.study.templates import TEMPLATES

    return tuple(TEMPLATES)


Values = tuple[str, ...] | Callable[[], tuple[str, ...]]
# By the parameter of a command's function; a command that takes other values stands below with its name.
VALUES: dict[str, Values] = {
    "method": BY_PROTOTYPE,
    "preset": PRESETS,
    "readout": READOUTS,
    "head": HEADS,
    "loss": LOSSES,
    "scaling": SCALINGS,
    "scheme": SCHEMES,
    "survival": ENDPOINTS,
    "encoder": ENCODERS,
    "device": ("auto", "cpu", "cuda", "mps"),
    "split": ("train", "val", "test"),
    "share": ("proportional", "equal"),
    "centre": ("slide", "site"),
    "stain": ("macenko",),
    "precision": ("auto", "float32", "bfloat16", "float16"),
}
OF_COMMAND: dict[tuple[str, str], Values] = {
    ("embed", "method"): EMBEDDINGS,
    ("train", "method"): (*EMBEDDINGS, *NETWORKS),
    ("new", "name"): templates,
    ("convert", "to"): ("trident", "npy", "safetensors"),
    ("convert", "dtype"): ("keep", "float16", "float32", "float64"),
    ("embed", "format"): ("h5ad", "npz"),
}


def add_completion(app: typer.Typer) -> None:
    """Give every option of the tables above its values."""
    for function, name, info in declarations(app):
        values = OF_COMMAND.get((function, name), VALUES.get(name))
        if values is not None:
            info.autocompletion = _beginning(values)


def _beginning(values: Values) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        known = values() if callable(values) else values
        return [value for value in known if value.startswith(incomplete)]

    return complete
