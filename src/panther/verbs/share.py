"""`panther share`."""

from pathlib import Path
from typing import Annotated, Any

from panther.verbs import Text, verb
from panther.verbs import parameters as p


@verb("share", "Prototypes and embeddings")
def share_prototypes(
    prototypes: Annotated[Any, p.option(text=Path, metavar="PROTOTYPES")],
    output: p.RequiredFolder = None,
    *,
    title: str | None = None,
    licence: str = "",
    cohort: str = "",
    names: p.PrototypeNames = None,
    pictures: Annotated[Path | None, p.option(metavar="FOLDER")] = None,
    push_to: Annotated[str | None, p.option(metavar="ORG/NAME")] = None,
    private: bool = False,
) -> Text:
    """Write prototypes as a folder to share, with a card and pictures, and upload it to the Hugging Face hub.

    Every `--prototypes` takes such a folder, or ORG/NAME on the hub. Names of slides are left out.

    Parameters
    ----------
    prototypes : Prototypes or path
        Prototype file.
    output
        Folder to write to.
    title : str, optional
        Title of the card; the folder's name by default.
    licence : str, optional
        Licence of the prototypes, as the hub spells it, e.g. cc-by-4.0.
    cohort : str, optional
        Description of the training cohort.
    names
        Names of the prototypes.
    pictures : path, optional
        Folder of `panther atlas`, for pictures of patches; they show tissue of patients.
    push_to : str, optional
        Repository on the hub to upload the folder to.
    private : bool
        Create that repository as a private one.

    Returns
    -------
    Text
        The files, and the address of the repository.

    Examples
    --------
    >>> import torch, panther
    >>> panther.share_prototypes(panther.Prototypes(torch.eye(3)), "library").values["files"][0]
    'library/README.md'
    """
    from panther.errors import InputError
    from panther.explain.names import as_namings
    from panther.explain.sharing import check_shared_folder, write_shared
    from panther.storage.hub import HUB_ID, push_folder
    from panther.storage.prototypes import as_prototypes
    from panther.store import check_writable_folder

    if output is None:
        raise InputError("output: found None, expected a folder")
    if push_to is not None and not HUB_ID.fullmatch(push_to):
        raise InputError(f"push_to: found {push_to!r}, expected ORG/NAME")
    loaded = as_prototypes(prototypes)
    about = {"title": title or output.resolve().name, "licence": licence, "cohort": cohort}
    namings = as_namings(names, len(loaded))
    check_writable_folder(output)
    check_shared_folder(output)
    written = write_shared(loaded, output, **about, namings=namings, atlas=pictures)
    files = [path.as_posix() for path in written]
    lines = [f"{len(loaded)} prototypes of {loaded.encoder or 'an encoder that is not named'}: {len(files)} files"]
    values: dict[str, Any] = {"files": files}
    if push_to is not None:
        values["repository"] = push_folder(output, push_to, private=private)
        lines.append(f"uploaded to {values['repository']}")
    return Text(lines, values)
