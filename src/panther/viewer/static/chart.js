// Charts: figures as `panther.charts.to_plotly.convert` makes them, drawn by Plotly in the colours of the page.
import { el } from "./dom.js";

// colours of charts/style.py that belong to paper and ink, and the variables of style.css that stand for them on a screen
const PAPER = {
  "#222222": "--ink", "#000000": "--ink", "#666666": "--faint", "#8a857c": "--faint", "#e8e4dc": "--line", "#dddddd": "--line", white: "--ground",
};
const DATA = new Set(["x", "y", "z", "text", "customdata", "array", "arrayminus", "ticktext", "tickvals", "colorscale"]);
const NARROW = 500; // CSS pixels of a chart below which a long title of its axis would be cut off, and
const LINE = 28; // letters of a line that it is broken into

let loading = null;

/** Plotly, fetched from this server when the first chart is drawn: pages without one do not wait for its megabytes. */
export function plotly() {
  if (globalThis.Plotly) return Promise.resolve(globalThis.Plotly);
  loading ??= new Promise((resolve, reject) => {
    const script = document.querySelector('script[src="plotly.js"]') ?? el("script", { src: "plotly.js" });
    script.addEventListener("load", () => resolve(globalThis.Plotly));
    script.addEventListener("error", () => {
      loading = null;
      script.remove();
      reject(new Error("Charts cannot be drawn: the server did not give plotly.js."));
    });
    if (!script.isConnected) document.head.append(script);
  });
  return loading;
}

/**
 * Draw `figure` in `place`. Returns a function that removes it; that function's `draw(figure)` shows another figure in the same place.
 *
 * onClick({key, x, y}): key is the mark's name for the point (customdata). label: the content in words, for those who cannot see it.
 */
export function chart(place, figure, { onClick, label } = {}) {
  const canvas = el("div", { class: "chart", role: "img", tabIndex: 0 });
  place.append(canvas);
  let shown = figure;
  let removed = false;
  let drawing = Promise.resolve();
  let requests = 0;

  const config = {
    displaylogo: false,
    scrollZoom: false,
    doubleClick: "reset",
    showTips: false,
    modeBarButtons: [["toImage"]],
    toImageButtonOptions: { filename: "chart", scale: 2 },
  };

  function layout() {
    const own = { ...shown.layout, autosize: true };
    // until the figure asks for something else, what was zoomed or selected stays
    own.uirevision ??= "same";
    own.dragmode ??= false;
    const title = own.xaxis?.title;
    if (title?.text && canvas.clientWidth < NARROW) own.xaxis = { ...own.xaxis, automargin: true, title: { ...title, text: inLines(title.text) } };
    return own;
  }

  function draw() {
    const current = ++requests;
    canvas.setAttribute("aria-label", label);
    canvas.style.minHeight = `${shown.layout?.height ?? 360}px`;
    drawing = drawing
      .then(plotly)
      .then((Plotly) => {
        if (removed || current !== requests) return null;
        const inked = painted({ data: shown.data, layout: layout() });
        const first = !canvas.classList.contains("js-plotly-plot");
        return Plotly.react(canvas, inked.data, inked.layout, config).then(() => first && onClick && canvas.on("plotly_click", (event) => onClick(point(event.points[0]))));
      })
      .catch((error) => {
        if (!removed) canvas.replaceChildren(el("p", { class: "faint" }, error.message));
      });
    return drawing;
  }

  const sized = new ResizeObserver(() => {
    if (canvas.classList.contains("js-plotly-plot") && canvas.offsetParent !== null) globalThis.Plotly.Plots.resize(canvas);
  });
  sized.observe(canvas);
  const unthemed = onTheme(draw);
  draw();

  function remove() {
    removed = true;
    sized.disconnect();
    unthemed();
    if (canvas.classList.contains("js-plotly-plot")) globalThis.Plotly.purge(canvas);
    canvas.remove();
  }
  remove.canvas = canvas;
  remove.draw = (next, words = label) => {
    shown = next;
    label = words;
    return draw();
  };
  return remove;
}

/** Tell `listener` when light becomes dark or back; returns what ends it. */
export function onTheme(listener) {
  const seen = new MutationObserver(() => listener());
  seen.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", listener);
  return () => {
    seen.disconnect();
    system.removeEventListener("change", listener);
  };
}

function point({ customdata, x, y }) {
  return { key: Array.isArray(customdata) ? customdata[0] : customdata, x, y };
}

/** The figure in the page's colours; the figure itself stays as it is. */
function painted(figure) {
  const style = getComputedStyle(document.documentElement);
  const ink = Object.fromEntries(Object.entries(PAPER).map(([colour, name]) => [colour, style.getPropertyValue(name).trim()]));
  const panel = style.getPropertyValue("--panel").trim();
  const paint = (value, name) => {
    if (typeof value === "string") return /colou?r$/i.test(name) ? (ink[value] ?? value) : value;
    if (Array.isArray(value)) {
      if (DATA.has(name)) return value.slice(); // Plotly keeps its input
      return value.map((one) => paint(one, name));
    }
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, paint(one, key)]));
    return value;
  };
  const found = { data: paint(figure.data, "data"), layout: paint(figure.layout ?? {}, "layout") };
  found.layout.font = { ...found.layout.font, color: ink["#222222"] };
  found.layout.hoverlabel = { ...found.layout.hoverlabel, bgcolor: panel, bordercolor: ink["#e8e4dc"] };
  found.layout.hoverlabel.font = { ...found.layout.hoverlabel.font, color: ink["#222222"] };
  found.layout.modebar = { ...found.layout.modebar, bgcolor: "rgba(0,0,0,0)", color: ink["#666666"], activecolor: style.getPropertyValue("--accent").trim() };
  found.layout.newselection = { line: { color: ink["#222222"], width: 1, dash: "dot" } };
  return found;
}

/** A title in lines of some letters, broken between words. */
function inLines(text) {
  return text.replace(new RegExp(`(.{1,${LINE}})(\\s+|$)`, "g"), "$1<br>").replace(/<br>$/, "");
}

/** Plotly's escaped text as people wrote it. */
export function plain(text) {
  return text.replaceAll("<br>", " ").replaceAll("<b>", "").replaceAll("</b>", "").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}
