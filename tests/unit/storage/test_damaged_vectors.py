"""Damaged files of slide vectors and embeddings: what can still be read is, everything else is refused in one sentence."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

import panther
from hostile.damage import mutate
from panther.errors import InputError
from panther.storage.embeddings import open_embeddings, read_vectors, write_embeddings
from panther.storage.slide_vectors import read_slide_vectors

MUTANTS = 40
NAMES = [f"s{number}" for number in range(5)]
X = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


def a_table() -> pd.DataFrame:
    table = pd.DataFrame(X, columns=list("abcdef"))
    table.insert(0, "slide_id", NAMES)
    return table


def embeddings(path: Path) -> None:
    bags = {name: np.random.default_rng(number).normal(size=(20, 3)) for number, name in enumerate(NAMES)}
    centroids = panther.Prototypes(torch.tensor([[1.0, 0, 0], [0, 1, 0]]))
    write_embeddings(panther.embed_cohort(bags, centroids), path)


def an_h5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["features"] = X[:1]


def opened(path: Path) -> Any:
    return open_embeddings(path).rows[0:2]


WRITTEN: dict[str, Callable[[Path], object]] = {
    "vectors.npz": lambda path: np.savez(path, X=X, samples=np.array(NAMES)),
    "vectors.csv": lambda path: a_table().to_csv(path, index=False),
    "vectors.parquet": lambda path: a_table().to_parquet(path),
    "slide.pt": lambda path: torch.save(torch.from_numpy(X[0]), path),
    "slide.h5": an_h5,
    "embeddings.npz": embeddings,
    "embeddings.h5ad": embeddings,
}
READ: list[tuple[str, Callable[[Path], object]]] = [
    *((name, read_slide_vectors) for name in WRITTEN),
    *(("embeddings.h5ad", read) for read in (read_vectors, opened)),
]


def mutant(content: bytes, suffix: str, rng: random.Random) -> bytes:
    """HDF5 is cut only: within a file of the right length its library can go round in circles for ever."""
    if suffix in (".h5", ".h5ad"):
        return content[: rng.randrange(len(content))]
    return mutate(content, rng)


@pytest.mark.filterwarnings("ignore")  # what libraries say on the way to the refusal
@pytest.mark.parametrize(("name", "read"), READ, ids=[f"{name}-{read.__name__}" for name, read in READ])
def test_a_damaged_file_is_read_or_refused_in_a_sentence(name, read, tmp_path):
    path = tmp_path / name
    WRITTEN[name](path)
    sound = path.read_bytes()
    read(path)
    rng, messages = random.Random(18), []
    for _ in range(MUTANTS):
        path.write_bytes(mutant(sound, path.suffix, rng))
        try:
            read(path)
        except InputError as error:
            messages.append(str(error))
    assert len(messages) >= MUTANTS // 10
    assert [message for message in messages if name not in message] == []


def test_an_h5ad_of_an_unknown_encoding_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "embeddings.h5ad"
    embeddings(path)
    with h5py.File(path, "r+") as file:
        file["obs"].attrs["encoding-type"] = "nonsense"
    for read in (read_vectors, opened, read_slide_vectors):
        with pytest.raises(InputError, match=r"embeddings\.h5ad"):
            read(path)
