"""`panther encoders` and `panther encode-tiles`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt


def list_encoders(as_json: opt.JsonOption = False) -> None:
    """List the encoders: dimension, input, resolution, licence, and where access to the weights is granted."""
    from panther.encoders import about, encoders

    known = [about(entry.name) for entry in encoders]
    lines = [f"{'name':<17} {'dim':>5} {'input':>6}  {'um/px':<6} {'licence':<26} weights", *map(_line, known)]
    lines.append("Also: timm:NAME for any model of timm, module.path:factory for your own.")
    common.report({"encoders": [facts.public() for facts in known]}, lines, {}, as_json=as_json)


def encode_tiles(
    folder: Annotated[Path, typer.Argument(help="Folder of tile images (searched in depth).", show_default=False)],
    output: opt.OutputOption,
    encoder: Annotated[
        str, typer.Option(help="Name of `panther encoders`, timm:NAME or module.path:factory.")
    ] = "lite0",
    weights: opt.WeightsOption = None,
    device: opt.DeviceOption = "auto",
    precision: opt.PrecisionOption = "auto",
    batch: opt.BatchOption = 0,
    dtype: opt.FeatureDtypeOption = "float16",
    workers: opt.WorkersOption = 0,
    as_json: opt.JsonOption = False,
) -> None:
    """Encode the tile images of FOLDER into one bag; a killed run goes on where it was."""
    from panther.encoders import load_encoder
    from panther.encoders.extract import ExtractSettings
    from panther.encoders.extract import encode_tiles as encode
    from panther.encoders.pipeline import Pipeline
    from panther.encoders.sources import TileFolder
    from panther.storage.inputs import check_output

    settings = ExtractSettings(batch, workers, dtype)
    tiles = TileFolder(folder).names()  # refuses an empty folder before anything is loaded
    check_output(output, [folder / name for name in tiles], weights)
    model = load_encoder(encoder, weights, device=common.checked_device(device), precision=precision)
    with Pipeline(model, settings) as pipeline:
        made, names = encode(folder, pipeline, output)
    failures = {names[index]: why for index, why in made.failed.items()}
    lines = [f"{made.patches} tiles -> {output}, {model.about.dim} numbers each by {encoder}", str(made.balance)]
    if made.resumed:
        lines.append(f"{made.resumed} tiles were encoded by an earlier run that did not finish")
    result = {"output": str(output), "tiles": made.patches, "dim": model.about.dim, "encoder": encoder}
    result |= {"resumed": made.resumed, "balance": vars(made.balance)}
    common.report(result, lines, failures, as_json=as_json)


def _line(facts: Any) -> str:
    mpp = "any" if facts.mpp is None else f"{facts.mpp:g}"
    hub = f"https://huggingface.co/{facts.hub}" if facts.hub else None
    where = f"gated: {facts.gated}" if facts.gated else hub or facts.page or "embedded"
    return f"{facts.name:<17} {facts.dim:>5} {facts.size:>6}  {mpp:<6} {facts.licence:<26} {where}"
