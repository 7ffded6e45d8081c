"""The MCP server through the official client: ten tasks with checkable answers, most of them with a trap; and what it refuses."""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import panther

mcp = pytest.importorskip("mcp", reason="mcp is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of other packages, in the server's process
PATIENTS = [f"P{i}" for i in range(8)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features, tables and embeddings with known answers, and things that are wrong with them."""
    lab = tmp_path_factory.mktemp("lab")
    rng = np.random.default_rng(0)
    tissues = rng.normal(size=(3, 8)) * 6
    rows = []
    for i, patient in enumerate(PATIENTS):
        kinds = rng.choice(3, 60, p=[0.8, 0.1, 0.1] if i % 2 else [0.1, 0.8, 0.1])
        (lab / "features").mkdir(exist_ok=True)
        np.save(lab / "features" / f"{patient}-a.npy", (tissues[kinds] + rng.normal(size=(60, 8))).astype("f4"))
        rows.append(
            {
                "slide_id": f"{patient}-a",
                "case_id": patient,
                "subtype": "AB"[i % 2],
                "split": "train" if i < 6 else "test",
            }
        )
    pd.DataFrame(rows).to_csv(lab / "cohort.csv", index=False)
    np.save(lab / "broken.npy", np.full((5, 8), np.nan, "f4"))
    leaky = [*rows, {**rows[0], "slide_id": "P0-b", "split": "test"}]  # P0 is in train and test
    np.save(lab / "features" / "P0-b.npy", np.load(lab / "features" / "P0-a.npy"))
    pd.DataFrame(leaky).to_csv(lab / "leaky.csv", index=False)
    prototypes = panther.fit_prototypes(lab / "features", n_prototypes=3, output=lab / "p.safetensors")
    panther.save_prototypes(panther.Prototypes(prototypes.centroids, encoder="uni"), lab / "uni.safetensors")
    panther.save_prototypes(panther.Prototypes(prototypes.centroids, encoder="virchow2"), lab / "virchow2.safetensors")
    panther.embed_cohort(lab / "features", prototypes, table=lab / "cohort.csv", output=lab / "slides.h5ad")
    Image.fromarray(np.full((60, 60, 3), 200, np.uint8)).save(lab / "no-mpp.png")
    return lab


def ask(lab: Path, *calls: tuple[str, dict[str, Any]], writable: bool = False) -> list[tuple[bool, Any]]:
    """(is an error, answer) of each call, in one session of the official client with `panther mcp` as its server."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk() -> list[tuple[bool, Any]]:
        options = ["-o", str(lab / "out")] if writable else []
        command = ["-W", "ignore", "-m", "panther", "mcp", str(lab), *options]
        server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            answers: list[tuple[bool, Any]] = [(False, [tool.name for tool in (await session.list_tools()).tools])]
            for name, arguments in calls:
                result = await session.call_tool(name, arguments)
                text = result.content[0].text
                answers.append((result.is_error, text if result.is_error else json.loads(text)))
            return answers

    with ThreadPoolExecutor(1) as thread:  # playwright leaves an event loop in the thread of the tests
        return thread.submit(lambda: asyncio.run(talk())).result()


def test_ten_tasks(lab):
    features, table = str(lab / "features"), str(lab / "cohort.csv")
    (_, tools), *answers = ask(
        lab,
        ("inspect", {"paths": [features]}),  # 1: how many slides, of which dimension?
        ("inspect", {"paths": [str(lab / "broken.npy")], "deep": True}),  # 2: trap: NaN
        ("similar", {"embeddings": str(lab / "slides.h5ad"), "query": "P1-a", "k": 3}),  # 3: which slides are like P1?
        ("retrieval", {"embeddings": str(lab / "slides.h5ad"), "table": table, "label": "subtype"}),  # 4: do they share a label?
        ("compare_prototypes", {"first": str(lab / "uni.safetensors"), "second": str(lab / "virchow2.safetensors")}),  # 5: trap
        ("compare_prototypes", {"first": str(lab / "p.safetensors"), "second": str(lab / "uni.safetensors")}),  # 6: are they the same?
        ("slide", {"path": str(lab / "no-mpp.png")}),  # 7: trap: no resolution
        ("prototypes", {"features": features, "n_prototypes": 3, "table": table, "split": "train", "output": str(lab / "out/t.safetensors")}),  # 8
        ("splits", {"cohort": table, "output": str(lab / "out/splits"), "k": 3, "label": "subtype"}),  # 9: no patient in two folds
        ("prototypes", {"features": features, "table": str(lab / "leaky.csv"), "split": "train", "n_prototypes": 3,
                        "output": str(lab / "out/leaky.safetensors")}),  # 10: trap: a patient in train and test
        writable=True,
    )  # fmt: skip
    assert {"inspect", "similar", "prototypes", "study_results"} <= set(tools)
    contents = answers[0][1]["result"]["files"].values()
    assert [(about["patches"], about["dim"]) for about in contents] == [(60, 8)] * 9
    assert answers[1][1]["failures"]
    assert all(name[:2] in {"P1", "P3", "P5", "P7"} for name in _names(answers[2][1]))
    assert not answers[3][0]
    assert answers[4][0]
    assert "virchow2" in answers[4][1]
    assert len([pair for pair in answers[5][1]["result"]["matched"] if pair["same"]]) == 3
    assert answers[6][0]
    assert "resolution" in answers[6][1]
    assert answers[7][1]["result"]["slides"] == 6  # of the training part alone
    assert not answers[8][0], answers[8][1]
    folds = [pd.read_csv(path, dtype=str) for path in sorted((lab / "out/splits").rglob("test.csv"))]
    tested = [set(fold["case_id"]) for fold in folds]
    assert sum(map(len, tested)) == len(set.union(*tested)) == len(PATIENTS)
    is_error, answer = answers[9]
    assert is_error
    assert "P0" in answer


def _names(answer: dict[str, Any]) -> list[str]:
    return [hit["slide"] for hit in answer["result"]["hits"]]


def test_nothing_outside_the_named_folders_is_read_or_written(lab, tmp_path):
    np.save(tmp_path / "secret.npy", np.zeros((4, 8), "f4"))
    (lab / "link.npy").symlink_to(tmp_path / "secret.npy")
    (_, tools), *answers = ask(
        lab,
        ("inspect", {"paths": [str(tmp_path)]}),
        ("inspect", {"paths": [f"{lab}/../{tmp_path.name}/secret.npy"]}),
        ("inspect", {"paths": [str(lab / "link.npy")]}),
        ("slide", {"path": "/etc/hostname"}),
        ("similar", {"embeddings": str(lab / "slides.h5ad"), "query": "P1-a", "output": str(tmp_path / "x")}),
    )
    assert not {"prototypes", "embed", "map"} & set(tools)
    assert [is_error for is_error, _ in answers[:4]] == [True] * 4
    assert all("outside" in answer for _, answer in answers[:4])
    assert not (tmp_path / "x").exists()
    _, *written = ask(
        lab,
        ("prototypes", {"features": str(lab / "features"), "output": str(lab / "features" / "p.safetensors")}),
        ("prototypes", {"features": str(lab / "features"), "n_prototypes": 3}),
        writable=True,
    )
    assert [is_error for is_error, _ in written] == [True, True]
    assert not (lab / "features" / "p.safetensors").exists()
