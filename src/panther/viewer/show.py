"""`panther.view`: the viewer from Python, in a notebook as a frame. What it needs is imported when it is called."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from panther.errors import InputError

if TYPE_CHECKING:
    from panther.viewer.serve import Viewer

NEEDED = ("flask", "waitress", "plotly", "PIL")
NOTEBOOKS = ("http://localhost:*", "http://127.0.0.1:*")  # where Jupyter runs on this machine

Paths = Path | str | Sequence[Path | str] | None


def check_packages() -> None:
    """Refuse at once where an optional package is missing, and say how to get all of them."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(
            f"The viewer needs {', '.join(missing)}, which is not installed here; pip install 'panther-wsi[view]'."
        )


def view(
    place: Path | str,
    *,
    prototypes: Paths = None,
    features: Path | str | None = None,
    slides: Path | str | None = None,
    embeddings: Path | str | None = None,
    study: Path | str | None = None,
    model: Paths = None,
    table: Path | str | None = None,
    names: Path | str | None = None,
    port: int = 0,
    prefix: str | None = None,
    allow_hosts: Sequence[str] = (),
    workers: int = 0,
) -> "Viewer":
    """Open the viewer over what is already on disk, as `panther view` does; in a notebook it shows itself as a frame.

    Parameters
    ----------
    place : path
        Folder of a job, a demo, features or slides; what lies in it is found by what the files hold.
    prototypes, model : path or list of paths, optional
        Files that go before those found there; several may be compared.
    features, slides, embeddings, study, table, names : path, optional
        The same for one of each kind.
    port : int, default=0
        Port on this machine; 0 takes a free one.
    prefix : str, optional
        Path under which a proxy shows it; in a JupyterHub it is known.
    allow_hosts : list of str, optional
        Names of hosts under which a proxy shows it, e.g. that of a JupyterHub.
    workers : int, default=0
        Worker processes; 0: one per core.

    Returns
    -------
    Viewer
        With `address` to open in a browser, and `close()`; it ends with the Python process at the latest.

    Examples
    --------
    >>> import numpy as np, panther
    >>> np.save("S1.npy", np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32))
    >>> with panther.view("S1.npy", workers=1) as viewer:
    ...     viewer.address
    'http://127.0.0.1:...'
    """
    check_packages()
    from panther.viewer.address import Where
    from panther.viewer.contents import Given
    from panther.viewer.serve import open_viewer

    single = (features, slides, embeddings, study, table, names)
    at_features, at_slides, at_embeddings, at_study, at_table, at_names = (
        None if path is None else Path(path) for path in single
    )
    given = Given(
        at_features, at_slides, _several(prototypes), _several(model), at_embeddings, at_study, at_table, at_names
    )
    where = Where(port=port, prefix=prefix, allow_hosts=tuple(allow_hosts), framed_by=NOTEBOOKS)
    return open_viewer(Path(place), given, where, workers=workers)


def _several(paths: Paths) -> tuple[Path, ...]:
    if paths is None:
        return ()
    return (Path(paths),) if isinstance(paths, (str, Path)) else tuple(map(Path, paths))
