// Links that save what is in the window.
import { path } from "./api.js";
import { el, show } from "./dom.js";
import { styleAt } from "./overlays.js";

/** Put the links into `place`: plain addresses of files, so that the browser saves them. */
export function exportLinks(place, slide, choices, zoom, version) {
  const { left, top, right, bottom } = zoom.seen;
  const { layers, ground, style, ...rest } = { ...choices, shown: choices.shown.join(",") };
  const on = [...(layers ?? [])].filter(([id]) => slide.layers.some((layer) => layer.id === id));
  const view = {
    x: left.toFixed(1),
    y: top.toFixed(1),
    width: (right - left).toFixed(1),
    height: (bottom - top).toFixed(1),
    pixels: Math.round(zoom.size.width * Math.max(1, devicePixelRatio || 1)),
    layer: on.map(([id]) => id).join(","),
    opacity: on.map(([, opacity]) => opacity).join(","),
    ...rest,
    style: styleAt(slide, choices, zoom.level ?? 0),
    ground: zoom.ground(zoom.level ?? 0),
    v: version,
  };
  const file = (kind, options, title) =>
    el("a", { class: "button small", href: path(["export", `${slide.name}.${kind}`], options), download: `${slide.name}.${kind}`, title }, kind === "geojson" ? "GeoJSON" : kind.toUpperCase());
  show(
    place,
    slide.width > 0 && file("png", view, "Save this view as a picture, with scale bar and legend"),
    slide.width > 0 && file("svg", view, "Save this view as SVG, with scale bar and legend"),
    slide.weights && slide.pitch && file("geojson", { set: choices.set, shown: rest.shown }, "Save regions of the prototypes for QuPath"),
  );
}
