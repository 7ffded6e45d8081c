"""`panther encoders` and `panther encode-tiles`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from panther.cli import _common as common
from panther.cli import _options as opt
from panther.cli._clusters import device_on, open_cluster


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
    cluster: opt.ClusterOption = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Encode the tile images of FOLDER into one bag."""
    from panther.encoders.extract import encode_tiles as encode
    from panther.encoders.loading import find_recipe, load_encoder
    from panther.encoders.pipeline import ExtractSettings, Pipeline
    from panther.encoders.sources import TileFolder
    from panther.encoders.step import EncoderChoice
    from panther.storage.inputs import check_output

    settings = ExtractSettings(batch, workers if cluster is None else 0, dtype)
    tiles = [folder / name for name in TileFolder(folder).names()]  # refuses an empty folder before anything is loaded
    check_output(output, tiles, weights)
    dim = find_recipe(encoder).about.dim
    if cluster is None:
        model = load_encoder(encoder, weights, device=common.checked_device(device), precision=precision)
        with Pipeline(model, settings) as pipeline:
            made, names = encode(folder, pipeline, output)
    else:
        choice = EncoderChoice(encoder, weights, (device,), precision)
        made, names = _encode_blocks(folder, choice, settings, output, cluster)
    failures = {names[index]: why for index, why in made.failed.items()}
    lines = [f"{made.patches} tiles -> {output}, {dim} numbers each by {encoder}"]
    lines += [str(made.balance)] if made.balance.patches else []
    result = {"output": str(output), "tiles": made.patches, "dim": dim, "encoder": encoder}
    result |= {"balance": vars(made.balance)}
    common.report(result, lines, failures, as_json=as_json)


def _encode_blocks(folder: Path, choice: Any, settings: Any, output: Path, cluster: str) -> Any:
    """On the workers of a cluster."""
    from panther.encoders.tile_blocks import encode_blocks
    from panther.engine import Work

    asked = choice.devices[0]
    with open_cluster(cluster) as there:
        device = common.checked_device(asked) if there is None else device_on(there, asked)
        executor = None if there is None else there.for_work(gpu=device != "cpu", in_worker=True)
        work = Work(executor, device, common.track)
        return encode_blocks(folder, replace(choice, devices=(device,)), settings, output, work)


def _line(facts: Any) -> str:
    mpp = "any" if facts.mpp is None else f"{facts.mpp:g}"
    hub = f"https://huggingface.co/{facts.hub}" if facts.hub else None
    where = f"gated: {facts.gated}" if facts.gated else hub or facts.page or "embedded"
    return f"{facts.name:<17} {facts.dim:>5} {facts.size:>6}  {mpp:<6} {facts.licence:<26} {where}"
