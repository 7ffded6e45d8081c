"""Draw `pictures/architecture.svg`: the rooms in their layers, and which of them each flow passes. `python docs/make_architecture.py`."""

from pathlib import Path

FLOWS = {  # name -> colour (Okabe and Ito)
    "features to embedding": "#0072B2",
    "slide to features": "#009E73",
    "study to report": "#D55E00",
    "map and atlas": "#CC79A7",
}
A, B, C, D = FLOWS
# Layers from the top; a room may import what lies below it. (room, what it holds, flows that pass it)
LAYERS: list[list[tuple[str, str, tuple[str, ...]]]] = [
    [
        ("cli", "parse, call, print", (A, B, C, D)),
        ("estimators", "scikit-learn", ()),
        ("status", "how far work is", ()),
        ("panther_demo", "drawn slides", ()),
    ],
    [("viewer", "tiles, pages, the browser", ())],
    [("report", "one HTML file", (C,))],
    [("study", "file, grid, jobs, results", (C,))],
    [("search", "slides that are alike, retrieval", ())],
    [("explain", "maps, atlas, attribution, agreement", (D,)), ("charts", "a chart is a value", (C, D))],
    [("models", "tasks, heads, probes, trainer", (C,))],
    [
        ("cohort", "endpoints, splits", (C,)),
        ("evaluation", "metrics, intervals", (C,)),
        ("encoders", "weights, extract", (B,)),
    ],
    [
        ("slides", "tissue, patches", (B, D)),
        ("prototypes", "K-means, choosing C", (A, C)),
        ("aggregators", "PANTHER, OT, H2T ...", (A, C, D)),
        ("mil", "ABMIL, TransMIL ...", (C,)),
    ],
    [("storage", "readers, tables, embeddings, atomic files", (A, B, C, D))],
    [
        ("mixture", "EM", (A, C, D)),
        ("statistics", "assign, accumulate", (A, C, D)),
        ("engine", "one loop, three pools", (A, B, C, D)),
    ],
    [
        ("types", "Bag, Mixture", ()),
        ("registry", "names", ()),
        ("machine", "cores, memory", ()),
        ("errors", "sentences", ()),
    ],
]
WIDTH, HEIGHT, GAP, TOP = 960, 52, 8, 46


def main() -> None:
    """Write the picture."""
    lines = [*_legend()]
    for number, layer in enumerate(LAYERS):
        width = (WIDTH - GAP * (len(layer) - 1)) / len(layer)
        for position, (room, holds, flows) in enumerate(layer):
            lines += _room(position * (width + GAP), TOP + number * (HEIGHT + GAP), width, room, holds, flows)
    size = f'viewBox="-8 -8 {WIDTH + 16} {TOP + len(LAYERS) * (HEIGHT + GAP) + 8}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" role="img">'
    title = "<title>Rooms of the package in their layers, and the flows that pass them</title>"
    background = f'<rect x="-8" y="-8" width="{WIDTH + 16}" height="100%" fill="#ffffff"/>'
    picture = Path(__file__).parent / "pictures" / "architecture.svg"
    picture.write_text("\n".join([head, title, background, *lines, "</svg>", ""]), encoding="utf-8")


def _legend() -> list[str]:
    lines = []
    for number, (flow, colour) in enumerate(FLOWS.items()):
        x = number * WIDTH / len(FLOWS)
        lines.append(f'<circle cx="{x + 8:g}" cy="16" r="7" fill="{colour}"/>')
        lines.append(f'<text x="{x + 22:g}" y="21" font-size="15" fill="#222">{flow}</text>')
    return lines


def _room(x: float, y: float, width: float, room: str, holds: str, flows: tuple[str, ...]) -> list[str]:
    lines = [f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="6" fill="#f3f4f6" stroke="#9ca3af"/>']
    lines.append(f'<text x="{x + 12:g}" y="{y + 22:g}" font-size="15" font-weight="bold" fill="#111">{room}</text>')
    lines.append(f'<text x="{x + 12:g}" y="{y + 41:g}" font-size="12" fill="#444">{holds}</text>')
    for number, flow in enumerate(flows):
        at = f'cx="{x + width - 14 - 17 * number:g}" cy="{y + 16:g}"'
        lines.append(f'<circle {at} r="7" fill="{FLOWS[flow]}"><title>{flow}</title></circle>')
    return lines


if __name__ == "__main__":
    main()
