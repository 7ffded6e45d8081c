"""Our own files, changed field by field: refused by name, in a sentence."""

import json

import h5py
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from hostile.judging import assert_honest, run_here
from panther.errors import InputError
from panther.storage.prototypes import load_prototypes

MISSING = object()
TYPES = {
    "a word": "abc",
    "a list": [1],
    "nothing": None,
    "a truth": True,
    "NaN": float("nan"),
    "a number": -3,
    "no field": MISSING,
}
# file -> fields of its metadata -> values that they may really have
FIELDS = {
    "p.safetensors": {
        **dict.fromkeys(("format", "dim", "slides", "settings", "diagnostics"), ()),
        **dict.fromkeys(("version", "parents"), ("a word",)),
        "encoder": ("a word", "nothing", "no field"),
        "normalise": ("a truth",),
    },
    "model": dict.fromkeys(("format", "method", "head", "task", "dim", "about"), ()),
}
TENSORS = {
    "NaN": lambda t: torch.full_like(t, float("nan")),
    "infinite": lambda t: torch.full_like(t, float("inf")),
    "one row more": lambda t: torch.cat([t, t[:1]]),
    "empty": lambda t: t[:0],
    "another dimension": lambda t: t.unsqueeze(0).contiguous(),
    "whole numbers": lambda t: t.to(torch.int64),
}


def rewrite(path, change_about=None, change_tensors=None):
    """Write a safetensors file of ours again, changed."""
    with safe_open(path, framework="pt") as file:
        (key, text), *_ = file.metadata().items()
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    about = json.loads(text)
    if change_about:
        about = change_about(about)
    if change_tensors:
        change_tensors(tensors)
    save_file(tensors, path, {key: about if isinstance(about, str) else json.dumps(about)})


def setting(field, value):
    def change(about):
        if value is MISSING:
            del about[field]
            return about
        return {**about, field: value}

    return change


def refused(lab, name, *arguments):
    done = run_here(arguments, lab)
    assert done.code == 2, done.text
    assert_honest(done)
    assert name in done.err, done.text
    return done.err


EMBED = ("embed", "feats", "-p", "p.safetensors", "-o", "new.npz", "-j", 1)
READ = {"p.safetensors": EMBED, "model": ("predict", "model", "feats", "-o", "new.csv", "-j", 1)}


@pytest.mark.parametrize(
    ("name", "field", "kind"),
    [(n, f, k) for n, fields in FIELDS.items() for f, allowed in fields.items() for k in TYPES if k not in allowed],
)
def test_a_changed_field_is_refused(lab, name, field, kind):
    rewrite(lab / name, setting(field, TYPES[kind]))
    refused(lab, name, *READ[name])


@pytest.mark.parametrize("damage", TENSORS)
@pytest.mark.parametrize("name", ["centroids", "within_variance", "occupancy", "surprise"])
def test_changed_numbers_of_prototypes_are_refused(lab, name, damage):
    if (name, damage) == ("centroids", "one row more"):
        pytest.skip("one prototype more is a sound set of prototypes, but for its occupancy")
    rewrite(lab / "p.safetensors", None, lambda t: t.update({name: TENSORS[damage](t[name])}))
    refused(lab, "p.safetensors", *EMBED)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {"within_variance": -t["within_variance"] - 1},
        lambda t: {"occupancy": -t["occupancy"] - 1},
        lambda t: {"projection_mean": torch.zeros(6)},
        lambda t: {"projection_basis": torch.zeros(6, 6)},
        lambda t: {"projection_mean": torch.zeros(6), "projection_basis": torch.zeros(6, 5)},
        lambda t: {"projection_mean": torch.zeros(5), "projection_basis": torch.zeros(6, 6)},
    ],
)
def test_negative_numbers_and_mismatched_projections_are_refused(lab, change):
    rewrite(lab / "p.safetensors", None, lambda t: t.update(change(t)))
    refused(lab, "p.safetensors", *EMBED)


@pytest.mark.parametrize(
    "change",
    [
        setting("method", {"name": "nobody", "options": {}, "label": None}),
        setting("method", {"name": "ot", "options": {}, "label": None}),
        setting("method", {"name": "panther", "options": {"steps": "many"}, "label": None}),
        setting("method", {"title": "panther"}),
        setting("head", {"name": "nobody", "options": {}, "label": None}),
        setting("head", {"name": "mlp", "options": {}, "label": None}),
        setting("task", {}),
        setting("task", {"loss": "cox"}),
        setting("task", {"loss": "cross-entropy", "names": ["a", "b", "c"]}),
        setting("task", {"loss": "nobody"}),
        setting("dim", 7),
    ],
)
def test_a_model_with_contradictory_parts_is_refused(lab, change):
    rewrite(lab / "model", change)
    refused(lab, "model", *READ["model"])


def test_every_tensor_of_a_model_is_checked(lab):
    with safe_open(lab / "model", framework="pt") as file:
        names = list(file.keys())
    whole = (lab / "model").read_bytes()
    for name in names:
        for damage, change in TENSORS.items():
            (lab / "model").write_bytes(whole)
            rewrite(lab / "model", None, lambda t, n=name, c=change: t.update({n: c(t[n])}))
            done = run_here(READ["model"], lab)
            assert done.code == 2, f"{name}, {damage}: {done.text}"
            assert_honest(done)
            assert "model" in done.err
        (lab / "model").write_bytes(whole)
        if name not in ("baseline.mean", "prototypes.within_variance", "prototypes.surprise"):  # may be missing
            rewrite(lab / "model", None, lambda t, n=name: t.pop(n))
            refused(lab, "model", *READ["model"])


def write_sites(lab):
    """The table with a column of two sites."""
    table = (lab / "table.csv").read_text().splitlines()
    lines = [f"{line},{'site' if n == 0 else 'NORTH' if n % 2 else 'SOUTH'}" for n, line in enumerate(table)]
    (lab / "sites.csv").write_text("\n".join(lines) + "\n")


def centred(lab):
    """Bytes of prototypes that are centred by site, written over those of the lab."""
    write_sites(lab)
    (lab / "p.safetensors").unlink()
    options = ("--centre", "site", "--table", "sites.csv", "--site-column", "site")
    done = run_here(("prototypes", "feats", "-C", 3, "-j", 1, "-o", "p.safetensors", *options), lab)
    assert done.code == 0, done.text
    assert run_here(EMBED, lab).code == 0  # whose sites they know
    (lab / "new.npz").unlink()
    return (lab / "p.safetensors").read_bytes()


def assert_damaged(path, what):
    """Prototypes that are refused by the name of their file; ``what`` was done to it."""
    with pytest.raises(InputError) as error:
        load_prototypes(path)
    assert f"{path}: the file is damaged" in str(error.value), f"{what}: {error.value}"


def test_every_number_of_an_alignment_is_checked(lab):
    whole = centred(lab)
    for name in ("mean", "shift"):
        for damage in [*TENSORS, "missing"]:
            (lab / "p.safetensors").write_bytes(whole)
            tensor = f"alignment.{name}"
            change = (lambda t: t) if damage == "missing" else TENSORS[damage]
            rewrite(lab / "p.safetensors", None, lambda t, n=tensor, c=change: t.update({n: c(t[n])}))
            if damage == "missing":
                rewrite(lab / "p.safetensors", None, lambda t, n=tensor: t.pop(n))
            assert_damaged(lab / "p.safetensors", f"{name}, {damage}")
    assert "the file is damaged" in refused(lab, "p.safetensors", *EMBED)
    assert not (lab / "new.npz").exists()


def test_every_field_of_an_alignment_is_checked(lab):
    whole = centred(lab)
    more = {
        "sites": (["NORTH", "NORTH"], ["NORTH", 3], ["NORTH"]),
        "members": ({"s00": "WEST"}, {"s00": 3}),
        "fitted": (3,),
        "kind": ("slide", "nobody"),
    }
    for name in more:
        for value in [*TYPES.values(), *more[name]]:
            (lab / "p.safetensors").write_bytes(whole)

            def change(about, n=name, v=value):
                return {**about, "alignment": setting(n, v)(dict(about["alignment"]))}

            rewrite(lab / "p.safetensors", change)
            assert_damaged(lab / "p.safetensors", f"{name}, {value!r}")


def with_sites(lab):
    """Embeddings of two sites."""
    write_sites(lab)
    done = run_here((*EMBED[:4], "-o", "e.h5ad", "-j", 1, "--table", "sites.csv"), lab)
    assert done.code == 0, done.text


SHIFT = ("shift", "e.h5ad", "--site-column", "site", "--permutations", 19)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 0.0])
def test_no_site_shift_is_claimed_of_proportions_that_are_none(lab, value):
    with_sites(lab)
    assert run_here(SHIFT, lab).code == 0
    with h5py.File(lab / "e.h5ad", "r+") as handle:
        handle["obsm/pi"][3] = value
    assert "No site shift" not in refused(lab, "e.h5ad", *SHIFT)
    refused(lab, "e.h5ad", "kaplan-meier", "e.h5ad", "--table", "table.csv", "--survival", "os", "-o", "km")


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("obsm/pi", lambda pi: pi[:3]),
        ("obsm/pi", lambda pi: pi[:, :0]),
        ("obsm/pi", lambda pi: pi.astype("S8")),
        ("obsm/pi", lambda pi: pi[0]),
        ("obs/_index", lambda names: names[:4]),
        ("obs/_index", lambda names: np.array([names[0]] * len(names), h5py.string_dtype())),
        ("obs/_index", None),
        ("obs/n_patches", lambda values: values[:4]),
        ("X", lambda x: x[:3]),
        ("X", None),
    ],
)
def test_embeddings_with_mismatched_parts_are_refused(lab, part, change):
    with_sites(lab)
    with h5py.File(lab / "e.h5ad", "r+") as handle:
        values, attributes = handle[part][...], dict(handle[part].attrs)
        del handle[part]
        if change is not None:
            handle[part] = change(values)
            handle[part].attrs.update(attributes)
    refused(lab, "e.h5ad", *SHIFT)
