// Annotations of a slide: drawn on it, listed beside it, saved at once in the GeoJSON that QuPath opens.
// Places are canvas units, as of DeepZoom; in the file they are level-0 pixels, which differ by the canvas's origin.
import { get, path, post } from "./api.js";
import { el, field, message, show } from "./dom.js";
import { isColour, swatch } from "./layer_controls.js";
import { micrometres } from "./scale_bar.js";

export const TOOLS = [
  ["", "Move", "v", "☞"],
  ["point", "Point", "p", "•"],
  ["pen", "Pen", "d", "✎"],
  ["rectangle", "Rectangle", "r", "▭"],
  ["measure", "Measure", "m", "↔"],
];
const CLASSES = ["Tumour", "Stroma", "Necrosis", "Lymphocytes", "Artefact", "Tissue", "Ignore*"]; // offered first
const NEAR = 7; // CSS pixels from a line or a point that count as on it
const STEP = 2; // CSS pixels between two corners of the pen
const RED = "#ff0000";

export class Annotations {
  /** `canvas()` is the DeepZoom, `changed()` is called when the outline of the tissue may be another. */
  constructor(toolbar, panel, canvas, changed) {
    Object.assign(this, { toolbar, panel, canvas, changed });
    this.rows = [];
    this.tool = "";
    this.chosen = this.drawn = this.slide = null;
    this.group = "";
  }

  /** Annotations of another slide; `slide` as the server describes it. */
  async open(slide, signal) {
    this.slide = slide.width && slide.unit === "px" ? slide : null;
    this.rows = [];
    this.chosen = this.drawn = null;
    this.pick("");
    if (!this.slide) return show(this.panel);
    try {
      this._take(await get(["slides", slide.name, "annotations"], {}, { signal }));
    } catch (error) {
      if (error.name !== "AbortError") show(this.panel, el("h2", {}, "Annotations"), el("p", { class: "faint" }, error.message));
    }
  }

  pick(tool) {
    this.tool = this.slide ? tool : "";
    this.canvas().node.classList.toggle("drawing", Boolean(this.tool));
    const tools = TOOLS.map(([id, title, key, sign]) => el("button", { class: "small", "aria-pressed": String(this.tool === id), "aria-label": title, title: `${title} (${key})`, onclick: () => this.pick(id) }, sign));
    show(this.toolbar, this.slide && tools);
  }

  /** What a key does here; false where it does nothing. */
  key(event) {
    const tool = TOOLS.find(([, , key]) => key === event.key);
    if (tool && this.slide) return this.pick(tool[0]), true;
    if (event.key === "Escape" && (this.tool || this.chosen)) return this.pick(""), this.choose(null), true;
    if ((event.key === "Delete" || event.key === "Backspace") && this.chosen) return this._delete(this.chosen), true;
    return false;
  }

  // --- drawing

  /** A drag on the canvas: true where it draws. */
  draw(phase, { x, y }) {
    if (!this.tool) return false;
    const at = [x, y];
    if (phase === "down") this.drawn = [at];
    else if (phase === "cancel") this.drawn = null;
    else if (phase === "move" && this.tool === "pen") {
      const last = this.drawn.at(-1);
      if (Math.hypot(x - last[0], y - last[1]) * this.canvas().view.zoom >= STEP) this.drawn.push(at);
    } else this.drawn = [this.drawn[0], ...(this.tool === "pen" ? this.drawn.slice(1) : []), at];
    this.canvas().redraw();
    if (phase === "up") this._finish();
    return true;
  }

  _finish() {
    const geometry = shape(this.tool, this.drawn);
    this.drawn = null;
    const kind = this.tool;
    if (!geometry) return;
    this.pick(kind === "point" || kind === "measure" ? kind : "");
    const id = crypto.randomUUID?.() ?? `a-${Date.now()}-${Math.round(1e6 * Math.random())}`;
    this._save({ id, geometry: moved(geometry, this.slide.origin, 1), group: kind === "measure" ? "" : this.group, note: "" }, null);
  }

  /** The annotation at a place of the canvas, or null; the smallest where several lie. */
  at({ x, y }) {
    const near = NEAR / this.canvas().view.zoom;
    const hits = this.rows.filter((row) => row.parts.some((ring) => distance(ring, x, y) <= near));
    const inside = this.rows.filter((row) => row.geometry.type.endsWith("Polygon") && row.parts.filter((ring) => within(ring, x, y)).length % 2);
    return (hits.length ? hits : inside).sort((a, b) => a.extent - b.extent)[0] ?? null;
  }

  paint(ctx, { left, top, k, ratio }) {
    const line = (parts, colour, width, closed, dashed = false) => {
      for (const [style, wide] of [["rgb(255 255 255 / .8)", width + 2], [colour, width]]) {
        Object.assign(ctx, { strokeStyle: style, lineWidth: wide * ratio });
        ctx.setLineDash(dashed && style === colour ? [6 * ratio, 4 * ratio] : []);
        ctx.beginPath();
        for (const ring of parts) {
          if (ring.length === 1) ctx.arc(left + ring[0][0] * k, top + ring[0][1] * k, 5 * ratio, 0, 2 * Math.PI);
          else ring.forEach(([x, y], i) => ctx[i ? "lineTo" : "moveTo"](left + x * k, top + y * k));
          if (closed) ctx.closePath();
        }
        ctx.stroke();
      }
      ctx.setLineDash([]);
    };
    for (const row of this.rows) {
      line(row.parts, row.colour, row === this.chosen ? 4 : 2, row.geometry.type.endsWith("Polygon"));
      if (row.geometry.type === "LineString") this._label(ctx, row.parts[0].at(-1), measured(row, this.slide), { left, top, k, ratio });
    }
    if (!this.drawn) return;
    const geometry = shape(this.tool, this.drawn, true);
    if (!geometry) return;
    const parts = partsOf(geometry);
    line(parts, RED, 2, false, true);
    this._label(ctx, this.drawn.at(-1), measured({ geometry, parts }, this.slide), { left, top, k, ratio });
  }

  _label(ctx, [x, y], text, { left, top, k, ratio }) {
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    const [at, up, wide] = [left + x * k + 8 * ratio, top + y * k - 8 * ratio, ctx.measureText(text).width];
    ctx.fillStyle = "rgb(255 255 255 / .88)";
    ctx.fillRect(at - 3 * ratio, up - 12 * ratio, wide + 6 * ratio, 16 * ratio);
    ctx.fillStyle = "#1b1f24";
    ctx.fillText(text, at, up);
  }

  // --- saving

  choose(row) {
    this.chosen = row;
    this._list();
    this.canvas().redraw();
  }

  async _save(row, seen) {
    const author = localStorage.getItem("author") ?? this.author ?? "";
    await this._ask([], { id: row.id, seen, geometry: row.geometry, group: row.group, note: row.note, author }, row.id);
  }

  _delete(row) {
    return this._ask([], { id: row.id, seen: row.time });
  }

  undo() {
    return this._ask(["undo"], {});
  }

  async _import(file) {
    if (!file) return;
    try {
      const read = JSON.parse(await file.text());
      const features = (Array.isArray(read) ? read : (read.features ?? [read])).filter(Boolean);
      await this._ask(["import"], { features });
    } catch (error) {
      message(`${file.name}: no GeoJSON (${error.message}).`, "annotations");
    }
  }

  async _ask(parts, body, choose = null) {
    const { name } = this.slide;
    try {
      this._take(await post(["slides", name, "annotations", ...parts], body), choose);
      message("", "annotations");
      this.changed();
    } catch (error) {
      message(error.message, "annotations");
      if (error.status === 409) this._take(await get(["slides", name, "annotations"]));
    }
  }

  _take({ annotations, colours, author, can_undo, version }, choose = this.chosen?.id) {
    const shades = new Map(colours.map(({ group, colour }) => [group, colour]));
    this.rows = annotations.map((row) => {
      const parts = partsOf(moved(row.geometry, this.slide.origin, -1));
      return { ...row, parts, colour: isColour(shades.get(row.group)) ? shades.get(row.group) : RED, extent: extent(parts) };
    });
    Object.assign(this, { author, can_undo, version });
    this.choose(this.rows.find(({ id }) => id === choose) ?? null);
  }

  // --- the list

  _list() {
    const file = el("input", { type: "file", accept: ".geojson,.json", hidden: true, onchange: () => this._import(file.files[0]) });
    const { name } = this.slide;
    show(
      this.panel,
      el(
        "div",
        { class: "line" },
        el("h2", {}, "Annotations"),
        el("span", { class: "spring" }),
        el("button", { class: "small", disabled: !this.can_undo, onclick: () => this.undo() }, "Undo"),
        this.rows.length > 0 && el("a", { class: "button small", href: path(["annotations", `${name}.geojson`]), download: `${name}.annotations.geojson`, title: "For QuPath" }, "Export"),
        el("button", { class: "small", title: "GeoJSON of QuPath", onclick: () => file.click() }, "Import"),
        file,
      ),
      this.rows.length ? el("ul", { class: "annotations" }, this.rows.map((row) => this._row(row))) : el("p", { class: "faint hint" }, "Choose a tool above the slide. Areas of the class Tissue or Ignore* change the tissue of the next `panther slides`."),
    );
  }

  _row(row) {
    const open = row === this.chosen;
    const about = [row.author, row.time && new Date(row.time).toLocaleString()].filter(Boolean).join(", ");
    const title = row.group || { Point: "Point", LineString: "Length" }[row.geometry.type] || "Area";
    return el(
      "li",
      {},
      el("button", { class: "quiet", "aria-expanded": String(open), onclick: () => this._goTo(row) }, swatch(row.colour), el("span", { class: "name" }, row.note ? `${title}: ${row.note.split("\n")[0]}` : title), el("span", { class: "faint" }, measured(row, this.slide))),
      open && this._editor(row, about),
    );
  }

  _goTo(row) {
    if (row === this.chosen) return this.choose(null);
    this.choose(row);
    const [x, y] = row.parts[0].reduce(([a, b], [c, d]) => [a + c / row.parts[0].length, b + d / row.parts[0].length], [0, 0]);
    const { left, top, right, bottom } = this.canvas().seen;
    if (x < left || y < top || x > right || y > bottom) this.canvas().setView({ x, y }, true);
  }

  _editor(row, about) {
    const save = (changes) => this._save({ ...row, ...changes }, row.time);
    const group = el("input", { type: "text", list: "annotation-classes", maxLength: 100, value: row.group, autocomplete: "off", onchange: () => ((this.group = group.value), save({ group: group.value })) });
    const note = el("textarea", { rows: 2, maxLength: 2000, onchange: () => save({ note: note.value }) });
    note.value = row.note;
    const author = el("input", { type: "text", maxLength: 100, value: localStorage.getItem("author") ?? this.author ?? "", onchange: () => localStorage.setItem("author", author.value) });
    const known = [...new Set([...CLASSES, ...this.rows.map((one) => one.group).filter(Boolean)])];
    return el(
      "div",
      { class: "annotation-editor" },
      field("Class", group),
      el("datalist", { id: "annotation-classes" }, known.map((value) => el("option", { value }))),
      field("Comment", note),
      field("Author of changes", author),
      el("p", { class: "faint hint" }, about),
      el("button", { class: "small", onclick: () => this._delete(row) }, "Delete"),
    );
  }
}

/** Geometry of what a tool drew, null where it is too small. */
function shape(tool, points, unfinished = false) {
  const [[x0, y0], [x1, y1]] = [points[0], points.at(-1)];
  if (tool === "point") return { type: "Point", coordinates: points.at(-1) };
  if (points.length < 2 || (x0 === x1 && y0 === y1 && points.length < 3)) return null;
  if (tool === "measure" || (unfinished && points.length < 4 && tool === "pen")) return { type: "LineString", coordinates: [points[0], points.at(-1)] };
  const ring = tool === "rectangle" ? [[x0, y0], [x1, y0], [x1, y1], [x0, y1]] : points;
  return ring.length < 3 ? null : { type: "Polygon", coordinates: [[...ring, ring[0]]] };
}

/** A geometry with the canvas's origin added (sign 1) or taken away (-1). */
function moved(geometry, [left, top], sign) {
  const move = (part) => (typeof part[0] === "number" ? [part[0] + sign * left, part[1] + sign * top] : part.map(move));
  return { ...geometry, coordinates: move(geometry.coordinates) };
}

/** Rings or lines of a geometry. */
function partsOf({ type, coordinates }) {
  return { Point: () => [[coordinates]], LineString: () => [coordinates], Polygon: () => coordinates, MultiPolygon: () => coordinates.flat() }[type]();
}

function extent(parts) {
  const sides = [0, 1].map((axis) => {
    const values = parts.flat().map((point) => point[axis]);
    return values.reduce((a, b) => Math.max(a, b)) - values.reduce((a, b) => Math.min(a, b));
  });
  return Math.hypot(...sides);
}

/** Length of a line or area of a polygon, in micrometres and mm² where the resolution is known. */
function measured({ geometry, parts }, { mpp }) {
  if (geometry.type === "Point") return "";
  const sum = (ring, each) => ring.slice(1).reduce((total, point, i) => total + each(ring[i], point), 0);
  if (geometry.type === "LineString") {
    const length = sum(parts[0], ([a, b], [c, d]) => Math.hypot(c - a, d - b));
    return mpp ? micrometres(length * mpp) : `${Math.round(length)} px`;
  }
  const polygons = geometry.type === "Polygon" ? [parts] : geometry.coordinates;
  const rings = polygons.map((rings) => rings.map((ring) => Math.abs(sum(ring, ([a, b], [c, d]) => a * d - c * b)) / 2));
  const area = rings.reduce((total, [outer, ...holes]) => total + outer - holes.reduce((a, b) => a + b, 0), 0);
  if (!mpp) return `${Math.round(area)} px²`;
  const square = (area * mpp ** 2) / 1e6;
  return square >= 0.01 ? `${Number(square.toPrecision(3))} mm²` : `${Number((1e6 * square).toPrecision(3))} µm²`;
}

/** Distance of a place from a line of points. */
function distance(ring, x, y) {
  if (ring.length === 1) return Math.hypot(x - ring[0][0], y - ring[0][1]);
  return ring.slice(1).reduce((least, [c, d], i) => {
    const [a, b] = ring[i];
    const [dx, dy] = [c - a, d - b];
    const part = Math.max(0, Math.min(1, ((x - a) * dx + (y - b) * dy) / (dx * dx + dy * dy || 1)));
    return Math.min(least, Math.hypot(x - a - part * dx, y - b - part * dy));
  }, Infinity);
}

function within(ring, x, y) {
  let inside = false;
  for (let i = 0, j = ring.length - 1; i < ring.length; j = i++) {
    const [[a, b], [c, d]] = [ring[i], ring[j]];
    if (b > y !== d > y && x < ((c - a) * (y - b)) / (d - b) + a) inside = !inside;
  }
  return inside;
}
