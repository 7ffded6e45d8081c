"""The command in this process, and a small cohort to run it on."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panther.cli import main


def strict_json(text: str) -> Any:
    """Parsed text; NaN and Infinity, which only Python calls JSON, are refused."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


class Runner:
    """Runs the command: checks the exit code and that no traceback is shown, returns standard output and standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object, code: int = 0) -> tuple[str, str]:
        self._monkeypatch.setattr(sys, "argv", ["panther", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = self._capsys.readouterr()
        assert end.value.code == code, err
        assert "Traceback" not in out + err or "-v" in arguments
        assert "Unexpected" not in err
        return out, err


def save(path: Path, n: int = 40, d: int = 6, seed: int = 0) -> None:
    """A bag; odd seeds are another tissue."""
    np.save(path, np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32) + 5 * (seed % 2))


def make_cohort(folder: Path) -> Path:
    """Six slides of 30 to 35 patches in `feats`, prototypes in `p.npy`."""
    (folder / "feats").mkdir()
    for index in range(6):
        save(folder / "feats" / f"00{index}.npy", 30 + index, seed=index)
    np.save(folder / "p.npy", np.random.default_rng(9).normal(size=(3, 6)).astype(np.float32) * 3)
    return folder


def embed(*more: object) -> tuple[object, ...]:
    """Arguments that embed the cohort."""
    return ("embed", "feats", "-p", "p.npy", "-o", "s.h5ad", "-j", 1, *more)
