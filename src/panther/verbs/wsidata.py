"""`panther to-wsidata`."""

from functools import partial
from typing import TYPE_CHECKING, Any

from panther.errors import InputError, note, warn_left_out
from panther.verbs import Text, verb
from panther.verbs import parameters as p

if TYPE_CHECKING:
    from panther.types import Aggregator, Openable, Prototypes


@verb("to-wsidata", "Data")
def to_wsidata(
    features: p.Features,
    prototypes: p.RequiredPrototypes = None,
    *,
    method: p.Method = "panther",
    names: p.PrototypeNames = None,
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    workers: p.Workers = "auto",
    **settings: Any,
) -> Text:
    """Write posteriors, prototypes of tiles and slide vectors back into stores of wsidata, for LazySlide.

    The table `panther_TILES` of each store is added, or replaced: X holds posteriors, `obs` the prototype of each tile, `varm["pi"]` the
    shares, and `uns["agg_ops"]["agg_slide"]` the slide's vector, which `wsidata.agg_wsi` collects.

    Parameters
    ----------
    features : path
        Store of wsidata (`slide.zarr`), or folder of them (searched in depth).
    prototypes : Prototypes or path
        Prototype file.
    method : str, default="panther"
        Method with prototypes.
    names
        Names of the prototypes, which become the columns' names.
    encoder_name : str, optional
        Table to use, of a store with several.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    workers : int or str, default="auto"
        Worker processes (1: this process, 0: one per core), or a Dask cluster, ``"tcp://HOST:PORT"`` or ``"slurm:OPTIONS.yaml"``.
    **settings
        Settings of the method.

    Returns
    -------
    Text
        ``values``: the table that was written, by slide. Stores that fail are a warning.

    Examples
    --------
    >>> panther.to_wsidata("slide.zarr", "protos.safetensors").values["tables"]  # doctest: +SKIP
    {'slide': 'panther_tiles'}
    """
    from panther.aggregators import build
    from panther.engine import collect, open_work
    from panther.explain.names import as_names, label
    from panther.storage.bags import Reading, as_bags
    from panther.storage.prototypes import as_prototypes

    loaded = as_prototypes(prototypes)
    listing = as_bags(features, Reading(encoder_name, allow_mixed_resolution))
    named = as_names(names, len(loaded))
    columns = [label(c, named) for c in range(len(loaded))]
    module = build(method, loaded, settings)
    if module.needs_places:
        raise InputError(f"method: {method} needs neighbouring places, expected panther, ot, h2t or protocounts")
    write = partial(_write_one, prototypes=loaded, module=module, names=columns, method=method)
    with open_work(workers, listing.refs) as work:
        written, failures = collect(write, listing.refs, "writing tables", work.on_cpu())
    if not written and failures:
        raise InputError(next(iter(failures.values())))
    warn_left_out("Not written", {**listing.problems, **failures})
    note(*(f"{name}: zero tiles" for name, table in written.items() if not table))
    return Text(
        [f"{len(written)} stores have the table {', '.join(sorted(set(written.values())))}"], {"tables": written}
    )


def _write_one(
    ref: "Openable", *, prototypes: "Prototypes", module: "Aggregator", names: list[str], method: str
) -> str:
    from panther.explain.scene import assign, check_patches
    from panther.storage.readers.wsidata import write_back

    bag = ref.open()
    if bag.format != "wsidata":
        raise InputError(f"{bag.source}: found a file of features ({bag.format}), expected a store of wsidata (.zarr)")
    check_patches(bag)
    prepared = prototypes.prepared(bag)
    rows, weights = assign(prepared, module)
    vector = module(prepared.features).vector
    about = {"method": method, "prototypes": prototypes.content_hash(), "pi": weights.numpy()}
    return write_back(bag, rows.numpy(), vector.detach().numpy(), names, about)
