"""`panther embed`."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from panther.errors import InputError, note, warn_left_out
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.storage.embeddings import EmbeddingTable


@verb("embed", "Prototypes and embeddings")
def embed_cohort(
    features: p.Features,
    prototypes: p.PrototypesLike = None,
    method: p.Method = "panther",
    *,
    preset: p.Preset = None,
    readout: Annotated[str | None, p.option(panel=p.METHOD)] = None,
    blocks: Annotated[p.Names, p.option(panel=p.METHOD)] = None,
    table: p.TableLike = None,
    split: p.Split = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    level: p.Level = "slide",
    encoder_name: p.EncoderName = None,
    allow_mixed_resolution: p.MixedResolution = False,
    output: p.RequiredFile = None,
    workers: p.Workers = "auto",
    device: p.Device = "auto",
    **settings: Any,
) -> "EmbeddingTable":
    """Embed every bag of a folder: one vector per slide, or per patient.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory.
    prototypes : Prototypes or path, optional
        Fitted prototypes, or their file; methods without prototypes need none.
    method : str, default="panther"
        `panther`, `ot`, `h2t`, `protocounts` or `deepsets`; without prototypes `mean`, `mean-std`, `max` or `top-k`.
    preset : str, optional
        For the method `panther`: `paper` (default), `published-code` or `calibrated`.
    readout : str, optional
        For the method panther: all (default), wa (means and variances averaged by share), top or bottom (prototype of largest or smallest share).
    blocks
        For the method panther, appended: space (which prototypes are neighbours; requires coordinates), tail (patches that no prototype explains).
    table : path or DataFrame, optional
        Clinical table: its slides are embedded, its columns become columns of `obs`.
    split, level : str, optional
        Part of the table, e.g. "train"; one row per "slide" or per "patient".
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    encoder_name : str, optional
        Name of the encoder, if the files give none or a wrong one.
    allow_mixed_resolution : bool
        Whether patches of different resolutions are accepted.
    output
        File to write: .h5ad or .zarr (AnnData, which other commands read), or .npz for NumPy.
    workers : int or str, default="auto"
        Worker processes (1: this process, 0: one per core), or a Dask cluster, ``"tcp://HOST:PORT"`` or ``"slurm:OPTIONS.yaml"``.
    device : str, default="auto"
        `cpu`, `cuda`, `cuda:1`, ...
    **settings
        Settings of the method, e.g. ``steps=3``.

    Returns
    -------
    EmbeddingTable
        One row per bag, with `to_anndata()` and `to_frame()`. Bags that fail are left out, with a warning.

    Examples
    --------
    >>> import numpy as np, torch, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {name: rng.normal(size=(50, 3)) for name in "abc"}
    >>> table = panther.embed_cohort(bags, panther.Prototypes(torch.eye(3)), steps=2)
    >>> table.to_frame().shape
    (3, 21)
    """
    from panther.aggregators.embed import Embedder, basis_of, embed_grid
    from panther.engine import open_work
    from panther.prototypes.centre import add_sites
    from panther.storage.bags import Reading
    from panther.storage.clinical import Columns, select_slides
    from panther.storage.embeddings import check_columns, check_embedding_path, write_embeddings
    from panther.storage.prototypes import as_prototypes, encoder_notes
    from panther.store import check_output

    reading, columns = Reading(encoder_name, allow_mixed_resolution), Columns(slide_column, patient_column, site_column)
    chosen = select_slides(features, table, split, level=level, reading=reading, columns=columns)
    if chosen.clinical is not None:
        check_columns(chosen.clinical)
    named = {"preset": preset, "readout": readout, "blocks": blocks}
    settings |= {name: value for name, value in named.items() if value is not None}
    fitted = None if prototypes is None else as_prototypes(prototypes)
    if output is not None:
        check_output(output, chosen.refs, prototypes, table)
        check_embedding_path(output)
    notes = list(chosen.notes)
    with open_work(workers, chosen.refs, device=device) as work:
        notes += [] if fitted is None else encoder_notes(fitted, chosen.refs, work)
        if fitted is not None and fitted.alignment is not None:
            fitted, more = add_sites(fitted, chosen.refs, chosen.table, work=work)
            notes += more
        embedder = Embedder(basis_of(fitted, chosen.refs), method, settings)
        (embeddings,) = embed_grid(chosen.refs, [embedder], work)
    if isinstance(embeddings, InputError):
        raise embeddings
    failures = {**chosen.problems, **embeddings.failures}
    embeddings = replace(embeddings, clinical=chosen.clinical, failures=failures)
    if output is not None:
        write_embeddings(embeddings, output)
    note(*notes, *embeddings.notes())
    warn_left_out("Left out of the embeddings", failures)
    return embeddings
