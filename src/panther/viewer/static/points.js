// Points of a plane on a canvas: ten thousand of them are hovered, lassoed and dimmed without a pause, which a chart of elements is not.
import { onTheme, plain, plotly } from "./chart.js";
import { el, show } from "./dom.js";
import { number } from "./table.js";

const MARGIN = { left: 58, right: 18, top: 14, bottom: 46 };
const NEAR = 12; // pixels within which a point is pointed at
// dark to bright for everybody, also the colour-blind; the scale that charts/to_plotly.py asks Plotly for (cividis)
const SCALE = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const GROUPS = { a: "#0072b2", b: "#d55e00" }; // as charts/style.py colours the first two groups
const PAPER = { "#000000": "--ink", "#8a857c": "--faint" };

const SHAPES = {
  circle: (path, r) => path.arc(0, 0, r, 0, 2 * Math.PI),
  square: (path, r) => path.rect(-0.9 * r, -0.9 * r, 1.8 * r, 1.8 * r),
  diamond: (path, r) => polygon(path, [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]], r),
  "triangle-up": (path, r) => polygon(path, [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]], r),
  "triangle-down": (path, r) => polygon(path, [[0, 1.2], [1.1, -0.8], [-1.1, -0.8]], r),
  cross: (path, r) => polygon(path, [[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]], r),
  x: (path, r) => polygon(path, [[-1.1, -0.55], [-0.55, -1.1], [0, -0.55], [0.55, -1.1], [1.1, -0.55], [0.55, 0], [1.1, 0.55], [0.55, 1.1], [0, 0.55], [-0.55, 1.1], [-1.1, 0.55], [-0.55, 0]], r),
  star: (path, r) => polygon(path, Array.from({ length: 10 }, (_, k) => [Math.sin((k * Math.PI) / 5), -Math.cos((k * Math.PI) / 5)].map((v) => v * (k % 2 ? 0.55 : 1.35))), r),
};

function polygon(path, corners, r) {
  corners.forEach(([x, y], k) => (k ? path.lineTo(x * r, y * r) : path.moveTo(x * r, y * r)));
  path.closePath();
}

function shape(symbol, r) {
  const path = new Path2D();
  (SHAPES[symbol] ?? SHAPES.circle)(path, r);
  return path;
}

/**
 * Points in `place`. describe(key) -> lines of text for what is pointed at.
 * onOpen(key), onHover(key or null), onSelect(keys, second), onClear(): second is true where Shift was held.
 * Returns a function that removes it, with draw(figure, label), mark({a, b, shown}), hover(key), tool(name) and save(name).
 */
export function points(place, { describe, onOpen, onHover, onSelect, onClear }) {
  const base = el("canvas", { class: "points-base", "aria-hidden": "true" });
  const over = el("canvas", { class: "points-over", tabIndex: 0, role: "img", "aria-label": "Plot, loading" });
  const tip = el("div", { class: "points-tip", hidden: true });
  const status = el("div", { class: "unseen", role: "status" });
  const legend = el("div", { class: "points-legend" });
  const stage = el("div", { class: "points-stage" }, base, over, tip);
  const whole = el("div", { class: "points" }, legend, stage, status);
  place.append(whole);

  let figure = null;
  let all = []; // {key, x, y, trace, colour}
  let byKey = new Map();
  let hidden = new Set(); // traces
  let marks = { a: new Set(), b: new Set(), shown: null };
  let area = { width: 0, height: 0 };
  let whole_ = null; // limits of all points
  let view = null; // limits in sight
  let current = null; // pointed at
  let tool = "lasso";
  let drag = null;
  let queued = false;

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue(name).trim();
  };
  const px = (x) => MARGIN.left + ((x - view.x0) / (view.x1 - view.x0)) * (area.width - MARGIN.left - MARGIN.right);
  const py = (y) => MARGIN.top + ((view.y1 - y) / (view.y1 - view.y0)) * (area.height - MARGIN.top - MARGIN.bottom);
  const inView = (x, y) => x >= MARGIN.left - 1 && x <= area.width - MARGIN.right + 1 && y >= MARGIN.top - 1 && y <= area.height - MARGIN.bottom + 1;
  const visible = (point) => !hidden.has(point.trace) && (!marks.shown || marks.shown.has(point.key));

  function read() {
    all = [];
    (figure?.data ?? []).forEach((trace, at) => {
      const values = Array.isArray(trace.marker?.color) ? trace.marker.color : null;
      const range = values && limits(values);
      (trace.x ?? []).forEach((x, k) => {
        if (x === null || trace.y[k] === null) return;
        const colour = values ? scaled(values[k], range) : trace.marker.color;
        all.push({ key: trace.customdata?.[k], x, y: trace.y[k], trace: at, symbol: trace.marker?.symbol, colour, scaled: values !== null });
      });
    });
    byKey = new Map(all.map((point) => [point.key, point]));
    const xs = limits(all.map((point) => point.x));
    const ys = limits(all.map((point) => point.y));
    const fit = padded(xs, ys);
    if (!whole_ || JSON.stringify(fit) !== JSON.stringify(whole_)) view = { ...fit };
    whole_ = fit;
  }

  function key() {
    const trace = figure?.data?.[0];
    if (Array.isArray(trace?.marker?.color)) {
      const [low, high] = limits(trace.marker.color);
      const missing = trace.marker.color.some((value) => value === null);
      show(
        legend,
        el("span", {}, plain(trace.marker.colorbar?.title?.text ?? "")),
        Number.isFinite(low) && [
          el("span", { class: "number" }, number(low, 3)),
          high > low && el("span", { class: "points-scale", style: { background: `linear-gradient(to right, ${SCALE.join(",")})` }, role: "img", "aria-label": `Colours from ${number(low, 3)} to ${number(high, 3)}` }),
          high > low && el("span", { class: "number" }, number(high, 3)),
        ],
        missing && el("span", { class: "points-key" }, swatch("circle", "#8a857c"), "not known"),
      );
      return;
    }
    const named = (figure?.data ?? []).map((trace, at) => [trace, at]).filter(([trace]) => trace.name);
    show(
      legend,
      named.map(([trace, at]) =>
        el(
          "button",
          {
            class: "quiet points-key", "aria-pressed": String(!hidden.has(at)), title: "Show or hide",
            onclick: (event) => {
              hidden.has(at) ? hidden.delete(at) : hidden.add(at);
              event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(at)));
              redraw();
            },
          },
          swatch(trace.marker.symbol, trace.marker.color), `${plain(trace.name)} (${trace.x.length.toLocaleString("en")})`,
        ),
      ),
    );
  }

  function swatch(symbol, colour) {
    const canvas = el("canvas", { width: 28, height: 28, class: "points-swatch", "aria-hidden": "true" });
    const pen = canvas.getContext("2d");
    pen.translate(14, 14);
    pen.fillStyle = inked(colour, colours());
    pen.fill(shape(symbol, 9));
    return canvas;
  }

  function redraw() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      drawBase();
      drawOver();
    });
  }

  function pen(canvas) {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [Math.round(area.width * ratio), Math.round(area.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const found = canvas.getContext("2d");
    found.setTransform(ratio, 0, 0, ratio, 0, 0);
    found.clearRect(0, 0, area.width, area.height);
    return found;
  }

  function drawBase() {
    const ink = colours();
    const draw = pen(base);
    if (!view || area.width < 40) return;
    axes(draw, ink);
    draw.save();
    draw.beginPath();
    draw.rect(MARGIN.left, MARGIN.top, area.width - MARGIN.left - MARGIN.right, area.height - MARGIN.top - MARGIN.bottom);
    draw.clip();
    const r = radius();
    const paths = new Map();
    const path = (symbol) => paths.get(symbol) ?? paths.set(symbol, shape(symbol, r)).get(symbol);
    const grouped = marks.a.size > 0 && marks.b.size > 0;
    const ground = ink("--ground");
    // what is filtered away stays as a trace, below the others
    for (const seen of [false, true]) {
      for (const point of all) {
        if (hidden.has(point.trace) || visible(point) !== seen) continue;
        const [x, y] = [px(point.x), py(point.y)];
        if (!inView(x, y)) continue;
        const group = marks.a.has(point.key) ? "a" : marks.b.has(point.key) ? "b" : null;
        draw.save();
        draw.translate(x, y);
        draw.globalAlpha = !seen ? 0.08 : grouped && !group ? 0.2 : 0.88;
        draw.fillStyle = inked(point.colour, ink);
        draw.fill(path(point.symbol));
        if (seen) {
          draw.lineWidth = 0.6;
          // both ends of a scale must be seen on light and on dark
          draw.strokeStyle = point.scaled ? ink("--faint") : ground;
          draw.stroke(path(point.symbol));
        }
        if (seen && group) {
          draw.globalAlpha = 1;
          draw.lineWidth = 2;
          draw.strokeStyle = GROUPS[group];
          draw.beginPath();
          draw.arc(0, 0, r + 3, 0, 2 * Math.PI);
          if (group === "b") draw.setLineDash([3, 2]); // distinguished without colour too
          draw.stroke();
        }
        draw.restore();
      }
    }
    draw.restore();
  }

  const radius = () => (all.length > 5000 ? 2.6 : all.length > 1500 ? 3.4 : 4.6);

  function axes(draw, ink) {
    const [right, bottom] = [area.width - MARGIN.right, area.height - MARGIN.bottom];
    draw.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    draw.lineWidth = 1;
    draw.fillStyle = ink("--faint");
    draw.strokeStyle = ink("--line");
    draw.textAlign = "center";
    draw.textBaseline = "top";
    for (const value of ticks(view.x0, view.x1, area.width / 110)) {
      const x = Math.round(px(value)) + 0.5;
      line(draw, x, MARGIN.top, x, bottom);
      draw.fillText(number(value, 3), x, bottom + 6);
    }
    draw.textAlign = "right";
    draw.textBaseline = "middle";
    for (const value of ticks(view.y0, view.y1, area.height / 70)) {
      const y = Math.round(py(value)) + 0.5;
      line(draw, MARGIN.left, y, right, y);
      draw.fillText(number(value, 3), MARGIN.left - 8, y);
    }
    draw.strokeStyle = ink("--faint");
    line(draw, MARGIN.left + 0.5, MARGIN.top, MARGIN.left + 0.5, bottom);
    line(draw, MARGIN.left, bottom + 0.5, right, bottom + 0.5);
    draw.fillStyle = ink("--ink");
    draw.textAlign = "center";
    draw.textBaseline = "bottom";
    draw.fillText(plain(figure?.layout?.xaxis?.title?.text ?? ""), (MARGIN.left + right) / 2, area.height - 3);
    draw.save();
    draw.translate(4, (MARGIN.top + bottom) / 2);
    draw.rotate(-Math.PI / 2);
    draw.textBaseline = "top";
    draw.fillText(plain(figure?.layout?.yaxis?.title?.text ?? ""), 0, 0);
    draw.restore();
  }

  function drawOver() {
    const ink = colours();
    const draw = pen(over);
    const point = current === null ? null : byKey.get(current);
    if (point && view) {
      const [x, y] = [px(point.x), py(point.y)];
      draw.lineWidth = 2.5;
      draw.strokeStyle = ink("--accent");
      draw.beginPath();
      draw.arc(x, y, radius() + 4.5, 0, 2 * Math.PI);
      draw.stroke();
    }
    if (drag?.path?.length > 1 && drag.kind !== "move") {
      draw.beginPath();
      outline(drag).forEach(([x, y], k) => (k ? draw.lineTo(x, y) : draw.moveTo(x, y)));
      draw.closePath();
      draw.globalAlpha = 0.12;
      draw.fillStyle = ink("--accent");
      draw.fill();
      draw.globalAlpha = 1;
      draw.setLineDash([4, 3]);
      draw.lineWidth = 1.5;
      draw.strokeStyle = ink("--accent");
      draw.stroke();
      draw.setLineDash([]);
    }
  }

  function outline({ kind, path }) {
    if (kind === "lasso") return path;
    const [x0, y0] = path[0];
    const [x1, y1] = path[path.length - 1];
    return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];
  }

  function nearest(x, y) {
    let best = null;
    let least = NEAR * NEAR;
    for (const point of all) {
      if (!visible(point)) continue;
      const far = (px(point.x) - x) ** 2 + (py(point.y) - y) ** 2;
      if (far < least) [best, least] = [point, far];
    }
    return best;
  }

  function pointAt(key, tell = true) {
    if (key === current) return;
    current = key;
    const point = key === null ? null : byKey.get(key);
    if (point && tell) {
      const [x, y] = [px(point.x), py(point.y)];
      show(tip, describe(key).map((line, k) => el("div", { class: k ? "faint" : "strong" }, line)));
      tip.hidden = false;
      const left = x + 14 + tip.offsetWidth > area.width ? x - 14 - tip.offsetWidth : x + 14;
      tip.style.transform = `translate(${Math.max(0, left)}px, ${Math.max(0, Math.min(y - 10, area.height - tip.offsetHeight))}px)`;
    } else tip.hidden = true;
    over.style.cursor = point && tell ? "pointer" : tool === "move" ? "grab" : "crosshair";
    drawOver();
  }

  const at = (event) => {
    const box = over.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  over.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !view) return;
    over.setPointerCapture(event.pointerId);
    drag = { kind: tool, path: [at(event)], from: { ...view } };
  });
  over.addEventListener("pointermove", (event) => {
    if (!view) return;
    const [x, y] = at(event);
    if (!drag) {
      const found = nearest(x, y);
      const key = found?.key ?? null;
      if (key !== current) onHover?.(key);
      pointAt(key);
      return;
    }
    drag.path.push([x, y]);
    tip.hidden = true;
    if (drag.kind === "move") move(drag);
    drawOver();
  });
  over.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const done = drag;
    drag = null;
    const [x0, y0] = done.path[0];
    const far = Math.max(...done.path.map(([x, y]) => Math.hypot(x - x0, y - y0)));
    if (far < 4) {
      const found = nearest(x0, y0);
      if (found) onOpen(found.key);
    } else if (done.kind !== "move") {
      const ring = outline(done);
      const inside = all.filter((point) => visible(point) && within(ring, px(point.x), py(point.y))).map((point) => point.key);
      if (inside.length) onSelect(inside, event.shiftKey); // an empty one may be a slip; Escape clears
    }
    drawOver();
  });
  over.addEventListener("pointercancel", () => {
    drag = null;
    drawOver();
  });
  over.addEventListener("pointerleave", () => {
    if (drag) return;
    onHover?.(null);
    pointAt(null);
  });
  over.addEventListener("dblclick", () => {
    view = { ...whole_ };
    redraw();
  });
  over.addEventListener(
    "wheel",
    (event) => {
      if (!view || !(event.ctrlKey || event.metaKey || tool === "move")) return; // else the page is scrolled
      event.preventDefault();
      const [x, y] = at(event);
      zoom(Math.exp(event.deltaY / 400), x, y);
    },
    { passive: false },
  );
  over.addEventListener("keydown", (event) => {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (way) step(way);
    else if ((event.key === "Enter" || event.key === " ") && current !== null) event.key === "Enter" ? onOpen(current) : onSelect([current], event.shiftKey, true);
    else if (event.key === "Escape") onClear();
    else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 0.8 : 1.25, area.width / 2, area.height / 2);
    else if (event.key === "0") (view = { ...whole_ }), redraw();
    else return;
    event.preventDefault();
  });
  over.addEventListener("blur", () => pointAt(null));

  /** To the next point in a direction, as one looks: near and straight ahead before far and aside. */
  function step([dx, dy]) {
    const from = byKey.get(current);
    const [x, y] = from ? [px(from.x), py(from.y)] : [area.width / 2, area.height / 2];
    let best = null;
    let least = Infinity;
    for (const point of all) {
      if (!visible(point) || point.key === current) continue;
      const [ex, ey] = [px(point.x) - x, py(point.y) - y];
      const ahead = ex * dx + ey * dy;
      if (ahead <= 0) continue;
      const cost = ahead + 3 * Math.abs(ex * dy + ey * dx);
      if (cost < least) [best, least] = [point, cost];
    }
    if (!best) return;
    onHover?.(best.key);
    pointAt(best.key);
    status.textContent = describe(best.key).filter((line) => typeof line === "string").join(", ");
  }

  function zoom(factor, x, y) {
    const across = (x - MARGIN.left) / (area.width - MARGIN.left - MARGIN.right);
    const up = 1 - (y - MARGIN.top) / (area.height - MARGIN.top - MARGIN.bottom);
    const [cx, cy] = [view.x0 + across * (view.x1 - view.x0), view.y0 + up * (view.y1 - view.y0)];
    view = { x0: cx + (view.x0 - cx) * factor, x1: cx + (view.x1 - cx) * factor, y0: cy + (view.y0 - cy) * factor, y1: cy + (view.y1 - cy) * factor };
    redraw();
  }

  function move({ path, from }) {
    const [x0, y0] = path[0];
    const [x1, y1] = path[path.length - 1];
    const dx = ((x1 - x0) / (area.width - MARGIN.left - MARGIN.right)) * (from.x1 - from.x0);
    const dy = ((y1 - y0) / (area.height - MARGIN.top - MARGIN.bottom)) * (from.y1 - from.y0);
    view = { x0: from.x0 - dx, x1: from.x1 - dx, y0: from.y0 + dy, y1: from.y1 + dy };
    redraw();
  }

  const sized = new ResizeObserver(() => {
    area = { width: stage.clientWidth, height: stage.clientHeight };
    drawBase();
    drawOver();
  });
  sized.observe(stage);
  const unthemed = onTheme(() => {
    key();
    redraw();
  });

  function remove() {
    sized.disconnect();
    unthemed();
    whole.remove();
  }
  remove.draw = (next, label) => {
    figure = next;
    hidden = new Set();
    current = null;
    tip.hidden = true;
    read();
    key();
    over.setAttribute("aria-label", label);
    redraw();
  };
  remove.mark = (next) => {
    marks = { ...marks, ...next };
    redraw();
  };
  remove.hover = (name) => pointAt(byKey.has(name) ? name : null, false);
  remove.tool = (name) => {
    tool = name;
    over.style.cursor = name === "move" ? "grab" : "crosshair";
  };
  remove.save = async (name) => {
    const Plotly = await plotly();
    await Plotly.downloadImage({ data: figure.data, layout: { ...figure.layout, paper_bgcolor: "white", plot_bgcolor: "white" } }, { format: "png", width: 1200, height: 800, scale: 2, filename: name });
  };
  return remove;
}

function limits(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** Limits with some air; one point, or points on a line, lie in the middle. */
function padded([x0, x1], [y0, y1]) {
  const air = (low, high) => (!Number.isFinite(low) ? [-1, 1] : low === high ? [low - 1, high + 1] : [low - 0.05 * (high - low), high + 0.05 * (high - low)]);
  const [a, b] = air(x0, x1);
  const [c, d] = air(y0, y1);
  return { x0: a, x1: b, y0: c, y1: d };
}

function ticks(low, high, most) {
  const raw = (high - low) / Math.max(2, most);
  const ten = 10 ** Math.floor(Math.log10(raw));
  const size = [1, 2, 5, 10].map((k) => k * ten).find((one) => one >= raw);
  const found = [];
  for (let k = Math.ceil(low / size); k * size <= high; k++) found.push(Number((k * size).toPrecision(10)));
  return found;
}

function line(draw, x0, y0, x1, y1) {
  draw.beginPath();
  draw.moveTo(x0, y0);
  draw.lineTo(x1, y1);
  draw.stroke();
}

/** Whether a ring holds a place: a ray from it crosses an odd number of sides. */
function within(ring, x, y) {
  let inside = false;
  for (let k = 0, before = ring.length - 1; k < ring.length; before = k++) {
    const [ax, ay] = ring[k];
    const [bx, by] = ring[before];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

function scaled(value, [low, high]) {
  if (value === null || !Number.isFinite(value)) return "#8a857c";
  const at = high > low ? ((value - low) / (high - low)) * (SCALE.length - 1) : (SCALE.length - 1) / 2;
  const k = Math.min(SCALE.length - 2, Math.floor(at));
  const part = (colour, c) => parseInt(colour.slice(1 + 2 * c, 3 + 2 * c), 16);
  const mix = [0, 1, 2].map((c) => Math.round(part(SCALE[k], c) + (at - k) * (part(SCALE[k + 1], c) - part(SCALE[k], c))));
  return `rgb(${mix.join(",")})`;
}

const inked = (colour, ink) => (colour in PAPER ? ink(PAPER[colour]) : colour);
