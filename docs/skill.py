"""Writes the skill for agents: `skills/panther-wsi/SKILL.md` and its references, generated from the verbs; `--check` compares instead."""

import inspect
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import panther.verbs
from panther.verbs import VERBS, Verb

FOLDER = Path(__file__).resolve().parents[1] / "skills" / "panther-wsi"
HEAD = """---
name: panther-wsi
description: >-
  Turn whole-slide images or their patch features into prototypes and slide embeddings (PANTHER), train and evaluate predictors on them, and draw
  maps, with the command `panther` or `import panther`. Use it for feature files of TRIDENT, CLAM, STAMP or wsidata, for slides (svs, DICOM,
  OME-Zarr), and for .h5ad slide embeddings.
---
# panther-wsi

Start with `panther doctor`, then `panther inspect PATH --json`. Every command has `--json` (for programs) and `--help`; exit codes: 0 all done, 1
some items failed (listed under `failures`), 2 the request was refused (one line: parameter, found, expected). Python: every command is a function of
`import panther`.

## Usual order

    panther slides slides/ -o job/ --encoder lite0                # only if there are no features yet
    panther inspect features/ --json
    panther splits cohort.csv --scheme site-kfold --label subtype -o splits/
    panther prototypes features/ -C 16 --table cohort.csv --split train -o protos.safetensors
    panther embed features/ -p protos.safetensors --table cohort.csv -o slides.h5ad
    panther map features/ -p protos.safetensors --slides slides/ -o maps/
    panther study new kirc; panther run kirc.yaml -o kirc/; panther report kirc/ -o kirc.html

## Traps

1. Leakage: prototypes and models see training patients only (`--table`, `--split train`); all slides of a patient are in one part. A refusal that
   names a patient in two parts is right: correct the table.
2. Resolution: a missing or implausible mpp is refused. Ask the user for the true value (`--slide-mpp`); never guess it.
3. Encoders: features of different encoders or patch sizes are never combined. `--encoder-name` corrects a wrong name, it does not convert.
4. Exit code 1 means that results lack the listed items. Report them.
5. `_censorship` is 1 for censored; an event column is the opposite (`--event`).
6. Sites: embeddings may encode the hospital; run `panther shift` before a claim.
7. `compare-prototypes` before names of an older prototype file are used for a newer one.
8. Intervals, not means, decide whether methods differ; read the notes of `panther run`.

## Commands

"""


def pages() -> dict[str, str]:
    """Text of every file by its name."""
    for module in pkgutil.iter_modules(panther.verbs.__path__, "panther.verbs."):
        import_module(module.name)
    panels: dict[str, list[Verb]] = {}
    for verb in sorted(VERBS.values(), key=lambda verb: verb.command):
        panels.setdefault(verb.panel, []).append(verb)
    lines, files = [], {}
    for panel, verbs in panels.items():
        name = panel.lower().replace(" ", "-") + ".md"
        lines.append(f"- **{panel}** ([parameters](references/{name}))")
        lines += [f"    - `panther {verb.command}`: {_documentation(verb).splitlines()[0]}" for verb in verbs]
        files[f"references/{name}"] = f"# {panel}\n\n" + "\n".join(map(_reference, verbs))
    return {"SKILL.md": HEAD + "\n".join(lines) + "\n", **files}


def _documentation(verb: Verb) -> str:
    return inspect.getdoc(verb.function) or ""


def _reference(verb: Verb) -> str:
    text = _documentation(verb).partition("\nExamples\n")[0].rstrip()
    return f"## panther {verb.command}\n\nPython: `panther.{verb.function.__name__}`\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    wrong = [
        name for name, text in pages().items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text
    ]
    if "--check" in sys.argv:
        sys.exit(f"{wrong}: not as generated; run `python docs/skill.py`" if wrong else 0)
    for name, text in pages().items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(text)
    print(f"{FOLDER}: {len(pages())} files")
