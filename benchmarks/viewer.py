"""`panther view` over HTTP: tiles a second and how long one takes, beside OpenSlide's DeepZoom generator; memory over many slides.

`python benchmarks/viewer.py` needs no arguments (about ten minutes); `--quick` shows that it runs. The server is the real one, in
processes of its own; clients are threads here, each with one connection. DeepZoom makes the same tiles behind the same kind of
server. Cold: a tile that nobody has asked for yet; warm: the same tile again.
"""

import argparse
import http.client
import itertools
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import _harness as harness
import _viewer_folder as folders
from panther.viewer.patches import Pyramid

OVERLAY_MS, TIMES_DEEPZOOM, FIRST_SECONDS, GROWTH = 20.0, 1.3, 1.0, 1.1  # what is aimed at
CLIENTS = (1, 4)
TURN = 16  # tiles
PLACES = {"base": "/tiles/{}/{{}}/{{}}/{{}}.jpg", "overlay": "/layers/{}/prototypes/{{}}/{{}}/{{}}.png?style=light"}
Tile = tuple[int, int, int]  # zoom, x, y


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    patches: int = 100_000
    dim: int = 1024
    tiles: int = 160  # per client number
    slides: int = 1000


class Browser:
    """One connection to the viewer."""

    def __init__(self, address: str) -> None:
        self._address = urlsplit(address)
        self._connection = http.client.HTTPConnection(self._address.netloc, timeout=120)
        self._connection.request("GET", f"/?{self._address.query}")
        answer = self._connection.getresponse()
        answer.read()
        self._cookie = (answer.getheader("Set-Cookie") or "").split(";")[0]
        while self._status("/api/contents") == 503:  # the page is there before the folder is read
            time.sleep(0.1)

    def _status(self, path: str) -> int:
        self._connection.request("GET", path, headers={"Cookie": self._cookie})
        answer = self._connection.getresponse()
        answer.read()
        return answer.status

    def get(self, path: str) -> bytes:
        self._connection.request("GET", path, headers={"Cookie": self._cookie})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content[:300]!r}")
        return content

    def close(self) -> None:
        self._connection.close()


VIEW = ("-m", "panther", "view", "--no-browser")
DEEPZOOM = (str(Path(__file__).with_name("_deepzoom_server.py")),)


@contextmanager
def running(program: Sequence[str], what: Path) -> Iterator[tuple[str, int]]:
    """Address and process id of a server, which prints its address."""
    command = [sys.executable, *program, str(what)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = next((line for line in process.stdout if re.match(r"https?://", line)), None)
        if line is None:
            raise SystemExit(f"{command}: the server did not start; see above.")
        try:
            yield line.strip(), process.pid
        finally:
            process.terminate()


Ask = Callable[[Tile], bytes]


def answered(clients: Sequence[Ask], tiles: Sequence[Tile]) -> tuple[list[float], float]:
    """Seconds of each tile, shared out among clients in threads of their own, and of all of them."""
    waiting, took, lock = iter(tiles), [], threading.Lock()
    failed: list[Exception] = []

    def work(ask: Ask) -> None:
        while not failed:
            with lock:
                tile = next(waiting, None)
            if tile is None:
                return
            start = time.perf_counter()
            try:
                ask(tile)
            except Exception as error:
                failed.append(error)
            took.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work, args=(ask,)) for ask in clients]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return took, time.perf_counter() - start


def in_turns(sides: Mapping[str, Sequence[Ask]], tiles: Sequence[Tile]) -> dict[str, tuple[list[float], float]]:
    """All sides on the same tiles, a few at a time: a, b, a, b, ..., so that a busy minute of the machine hurts all."""
    found: dict[str, tuple[list[float], float]] = {name: ([], 0.0) for name in sides}
    for start in range(0, len(tiles), TURN):
        for name, clients in sides.items():
            took, whole = answered(clients, tiles[start : start + TURN])
            found[name] = found[name][0] + took, found[name][1] + whole
    return found


def row(title: str, clients: int, took: Sequence[float], whole: float) -> list[str]:
    ms = sorted(1e3 * one for one in took)
    p95 = ms[min(len(ms) - 1, int(0.95 * len(ms)))]
    return [title, str(clients), f"{len(ms) / whole:.0f}", f"{statistics.median(ms):.1f} ms", f"{p95:.1f} ms"]


def asking(address: str, place: str) -> Ask:
    """A client of its own that asks for tiles."""
    browser = Browser(address)
    return lambda tile: browser.get(place.format(*tile))


def drawn_tiles(size: tuple[int, int], count: int, seed: int) -> list[Tile]:
    """Tiles over all zooms, as one who looks around asks for them: half of them at the finest three; none twice."""
    found, rng = Pyramid(*size), random.Random(seed)
    every = {
        zoom: [(zoom, x, y) for x, y in itertools.product(*map(range, found.counts(zoom)))]
        for zoom in range(found.zooms)
    }
    fine = [tile for zoom in list(every)[-3:] for tile in rng.sample(every[zoom], min(len(every[zoom]), count // 6))]
    coarse = [tile for zoom in list(every)[:-3] for tile in every[zoom]]
    chosen = fine + rng.sample(coarse, min(len(coarse), count // 2))
    rng.shuffle(chosen)
    return chosen


def measure_slide(address: str, peer: str, name: str, sizes: Sizes) -> list[list[str]]:
    """Print the table of one slide; returns its rows of the targets."""
    with closing(Browser(address)) as browser:
        start = time.perf_counter()
        browser.get(f"/tiles/{name}/0/0/0.jpg")
        first = time.perf_counter() - start
        about = harness.timed(lambda: browser.get(f"/api/slides/{name}"))
        content = json.loads(about[1])
    size = content["width"], content["height"]
    rows, medians = [], {}
    tiles = drawn_tiles(size, 2 * sizes.tiles, 1)
    parts = {
        clients: tiles[number::2] for number, clients in enumerate(CLIENTS)
    }  # tiles of one are not warm for the other
    for clients, part in parts.items():
        browsers = {kind: [asking(address, PLACES[kind].format(name)) for _ in range(clients)] for kind in PLACES}
        sides = {
            "base, cold": browsers["base"],
            "DeepZoom, cold": [asking(peer, "/{}/{}/{}.jpg") for _ in range(clients)],
            "base, warm": browsers["base"],
            "overlay, cold": browsers["overlay"],
            "overlay, warm": browsers["overlay"],
        }
        for title, (took, whole) in in_turns(sides, part).items():
            rows.append(row(title, clients, took, whole))
            medians[title, clients] = statistics.median(took)
    harness.table(f"{name}, {size[0]} x {size[1]}", ["tiles", "clients", "a second", "median", "95th percentile"], rows)
    targets = [harness.verdict(f"{name}: first picture", first, FIRST_SECONDS, at_most=True, unit=" s")]
    for clients in CLIENTS:
        times = medians["base, cold", clients] / medians["DeepZoom, cold", clients]
        what = f"{name}: cold base tile against DeepZoom, clients: {clients}"
        targets.append(harness.verdict(what, times, TIMES_DEEPZOOM, at_most=True))
        ms = 1e3 * medians["overlay, warm", clients]
        what = f"{name}: warm overlay tile, clients: {clients}"
        targets.append(harness.verdict(what, ms, OVERLAY_MS, at_most=True, unit=" ms"))
    targets.append([f"{name}: patches read and assigned", "-", f"{about[0]:.2f} s", "-"])
    return targets


def proportional(pid: int) -> float:
    """MB of a process and its children; what they share is counted once."""
    family = (Path(f"/proc/{one}/smaps_rollup").read_text() for one in harness._family(pid))
    return sum(int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1]) for text in family) / 1024  # type: ignore[index]


def measure_memory(sizes: Sizes) -> list[list[str]]:
    """Memory of the server and its workers while one slide after the other is opened."""
    marks = sorted({max(1, sizes.slides * part // 10) for part in (1, 2, 5, 10)})
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folders.write_many(Path(name) / "many", sizes.slides)
        with running(VIEW, Path(name) / "many") as (address, pid), closing(Browser(address)) as browser:
            for number in range(sizes.slides):
                browser.get(f"/api/slides/S{number}")
                browser.get(f"/tiles/S{number}/0/0/0.jpg")
                browser.get(f"/tiles/S{number}/2/1/1.jpg")
                browser.get(f"/layers/S{number}/prototypes/0/0/0.png")
                if number + 1 in marks:
                    found[number + 1] = proportional(pid)
    harness.table(
        "Memory of the viewer and its workers",
        ["slides opened", "MB"],
        [[f"{n:,}", f"{mb:.0f}"] for n, mb in found.items()],
    )
    growth = found[marks[-1]] / found[marks[-2]]
    return [harness.verdict(f"memory from {marks[-2]:,} to {marks[-1]:,} slides", growth, GROWTH, at_most=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small slides, few tiles: only to see that it runs")
    sizes = Sizes(2000, 32, 24, 20) if parser.parse_args().quick else Sizes()
    print(harness.machine("openslide-python", "tifffile", "flask", "waitress"))
    print(
        f"{sizes.patches:,} patches x {sizes.dim} float16, {folders.COMPONENTS} prototypes; {sizes.tiles} tiles each."
    )
    targets = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "cohort"
        folders.write_folder(folder, sizes.patches, sizes.dim)
        with running(VIEW, folder) as (address, _):
            for image in sorted((folder / "slides").iterdir(), reverse=True):
                with running(DEEPZOOM, image) as (peer, _):
                    targets += measure_slide(address, peer, image.stem, sizes)
    targets += measure_memory(sizes)
    harness.table("Targets", ["what", "aim", "found", ""], targets)


if __name__ == "__main__":
    main()
