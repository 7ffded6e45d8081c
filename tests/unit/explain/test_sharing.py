"""Prototypes to share: the folder, its card, and the way to the hub and back, against a server of the hub's API on this machine."""

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import panther
from panther.errors import InputError
from panther.types import PatchSpec

PLACES = np.arange(240).reshape(120, 2) * 256
ORG = "lab/kidney-protos"
FILES: dict[str, bytes] = {}


class Hub(BaseHTTPRequestHandler):
    """The part of the hub's API that uploads and downloads need; content is kept in FILES."""

    def log_message(self, *_: object) -> None: ...

    def _answer(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "X-Repo-Commit": "a" * 40, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, value: object, status: int = 200) -> None:
        self._answer(json.dumps(value).encode(), status, Content_Type="application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != "Bearer hf_test":
            self._json({"error": "Invalid username or password."}, 401)
        elif self.path == "/api/repos/create":
            assert json.loads(body)["name"] == "kidney-protos"
            self._json({"url": f"{os.environ['HF_ENDPOINT']}/{ORG}", "name": ORG})
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            self._json({"files": [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    FILES[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._json({"commitUrl": f"{os.environ['HF_ENDPOINT']}/{ORG}/commit/a", "commitOid": "a" * 40})
        else:
            self._json({"valid": True})

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2].partition("?")[0]
        if self.path.startswith(f"/{ORG}/resolve/") and name in FILES:
            self._answer(FILES[name], ETag='"1234"', X_Linked_Size=str(len(FILES[name])))
        elif self.path.startswith(f"/api/models/{ORG}"):
            self._json({"id": ORG, "sha": "a" * 40, "siblings": [{"rfilename": name} for name in FILES]})
        else:
            self._answer(b"", 404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Environment of a process that uses the server."""
    pytest.importorskip("huggingface_hub", reason="huggingface-hub is not installed")
    FILES.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "hf_test"}.items():
        monkeypatch.setenv(name, value)
    yield address
    server.shutdown()
    server.server_close()
    thread.join()


def call(*arguments: object, code: int = 0) -> str:
    """Output of the command in a process of its own, which reads the hub's address when it starts."""
    done = subprocess.run([sys.executable, "-m", "panther", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def prototypes(tmp_path):
    rng = np.random.default_rng(0)
    tissues = rng.normal(size=(4, 8)) * 4
    bags = [
        panther.Bag(f"patient-{i}", (tissues[:, None] + rng.normal(size=(4, 30, 8))).reshape(-1, 8).astype("f4"),
                    PLACES, PatchSpec(0.5, 256, size_level0=256), encoder="uni", checkpoint="0123456789ab-ba9876543210")
        for i in range(4)
    ]  # fmt: skip
    for bag in bags:
        panther.save_bag(bag, tmp_path / "features" / f"{bag.slide_id}.h5")
    return panther.fit_prototypes(tmp_path / "features", n_prototypes=4, output=tmp_path / "p.safetensors")


def test_a_folder_says_what_it_holds_and_no_names_of_slides(tmp_path, prototypes):
    panther.share_prototypes(
        prototypes, tmp_path / "library", licence="CC-BY-4.0", cohort="TCGA-KIRC", names={1: "tumour, clear cell"}
    )
    head, body = (tmp_path / "library/README.md").read_text().split("---\n")[1:]
    assert yaml.safe_load(head)["license"] == "cc-by-4.0"
    for text in ("uni", "0123456789ab-ba9876543210", "256 px at 0.5 um/px", "TCGA-KIRC", "tumour, clear cell"):
        assert text in body
    pictures = {line.split("](")[1][:-1] for line in body.splitlines() if line.startswith("![")}
    assert pictures == {path.name for path in (tmp_path / "library").glob("*.png")}
    assert pictures
    assert not any(b"patient-" in path.read_bytes() for path in (tmp_path / "library").iterdir())
    config = json.loads((tmp_path / "library/config.json").read_text())
    assert config["training_slides"] == 4
    again = panther.Prototypes.from_pretrained(tmp_path / "library")
    assert again.content_hash() == prototypes.content_hash() == config["hash"]
    embedded = panther.embed_cohort(tmp_path / "features", tmp_path / "library")
    assert len(embedded.to_frame()) == 4


def test_a_folder_shared_again_keeps_nothing_of_before_and_other_folders_are_refused(tmp_path, prototypes):
    (tmp_path / "atlas").mkdir()
    for name in ("overview", "C0"):
        (tmp_path / "atlas" / f"{name}.png").write_bytes(b"patches of a patient")
    library = tmp_path / "library"
    panther.share_prototypes(prototypes, library, names={1: "tumour"}, pictures=tmp_path / "atlas")
    assert {"C0.png", "overview.png", "names.yaml"} <= {path.name for path in library.iterdir()}
    panther.share_prototypes(prototypes, library)
    files = {"README.md", "config.json", "model.safetensors", "shares.png", "similarity.png"}
    assert {path.name for path in library.iterdir()} == files
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("notes")
    with pytest.raises(InputError, match=r"another README\.md"):
        panther.share_prototypes(prototypes, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["README.md"]


def test_prototypes_go_to_the_hub_and_come_back_by_name(tmp_path, prototypes, hub):
    said = call("share", tmp_path / "p.safetensors", "-o", tmp_path / "library", "--push-to", ORG)
    assert f"{hub}/{ORG}" in said
    assert {"README.md", "config.json", "model.safetensors", "shares.png"} <= set(FILES)
    call("embed", tmp_path / "features", "-p", ORG, "-o", tmp_path / "e.h5ad")
    call("embed", tmp_path / "features", "-p", tmp_path / "p.safetensors", "-o", tmp_path / "f.h5ad")
    import anndata

    one, two = (anndata.read_h5ad(tmp_path / name) for name in ("e.h5ad", "f.h5ad"))
    assert np.array_equal(one.X, two.X)
    code = f"import panther; p = panther.load_prototypes({str(tmp_path / 'p.safetensors')!r}); print(p.push_to_hub({ORG!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == f"{hub}/{ORG}", done.stderr


def test_a_hub_that_refuses_is_one_line(tmp_path, prototypes, hub, monkeypatch):
    assert "lab/none" in call("embed", tmp_path / "features", "-p", "lab/none", "-o", tmp_path / "e.h5ad", code=2)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    refusal = call("share", tmp_path / "p.safetensors", "-o", tmp_path / "l", "--push-to", ORG, code=2)
    assert refusal.count("\n") == 1
    assert "hf auth login" in refusal


def test_prototypes_of_others_are_a_start_or_are_kept_as_they_are(tmp_path, prototypes):
    kept = panther.fit_prototypes(tmp_path / "features", start=prototypes, passes=0)
    torch.testing.assert_close(kept.centroids, prototypes.centroids)
    torch.testing.assert_close(kept.occupancy, prototypes.occupancy)
    moved = panther.Prototypes(prototypes.centroids.flip(0) + 0.3, encoder="uni", spec=prototypes.spec)
    refit = panther.fit_prototypes(tmp_path / "features", start=moved)
    torch.testing.assert_close(refit.centroids, prototypes.centroids.flip(0))  # their order is kept
    assert refit.settings["start"] == moved.content_hash()
    for wrong, culprit in (({"n_prototypes": 5}, "n_prototypes"), ({"pca": 2}, "start")):
        with pytest.raises(InputError, match=culprit):
            panther.fit_prototypes(tmp_path / "features", start=prototypes, **wrong)
    other = panther.Prototypes(prototypes.centroids, encoder="virchow2")
    with pytest.raises(InputError, match="virchow2"):
        panther.fit_prototypes(tmp_path / "features", start=other)


def test_features_of_two_checkpoints_are_noted(tmp_path, prototypes):
    bag = panther.open_bag(tmp_path / "features" / "patient-0.h5")
    assert bag.checkpoint == prototypes.settings["checkpoint"] == "0123456789ab-ba9876543210"
    other = panther.Bag("x", bag.features[0:], spec=bag.spec, encoder="uni", checkpoint="ffff")
    with pytest.warns(match="2 checkpoints"):
        panther.fit_prototypes([bag, other], n_prototypes=2)


@pytest.mark.parametrize("content", ["nothing", "text", "model.h5"])
def test_a_folder_that_is_no_library_is_refused(tmp_path: Path, content: str):
    (tmp_path / content).write_text("x")
    with pytest.raises(InputError, match=r"model\.safetensors"):
        panther.load_prototypes(tmp_path)
