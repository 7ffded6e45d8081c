// A slide on a canvas: panned, zoomed, with layers above it. Places are canvas units (level-0 pixels of the slide);
// a view is {x, y, zoom}: the middle of the window, and CSS pixels a canvas unit (1 is 1:1).
import { onTheme } from "./chart.js";
import { el } from "./dom.js";
import { listen } from "./gestures.js";
import { drawCross, drawGhost } from "./marks.js";
import { Minimap } from "./minimap.js";
import { Moving } from "./moving.js";
import { paintCell, Pyramid } from "./pyramid.js";
import { coordinates, magnification, scaleBar } from "./scale_bar.js";
import { TileStore } from "./tile_store.js";

const ASK_EVERY = 70; // ms between two looks at which tiles are needed, so that a turn of the wheel asks for few
const CLEAR = 4; // from here on pixels are shown as squares
const LENS = 110; // CSS pixels around the pointer in which a layer with `lens` is seen
const PALE = 0.4; // of the darkness of tissue in grey, as in render.py

/** Buttons that fit and zoom the canvas that `active()` gives. */
export function viewTools(active) {
  const tool = (text, title, does) => el("button", { class: "small", title, "aria-label": title, onclick: () => does(active()) }, text);
  return [
    tool("Fit", "Fit the slide into the window (0)", (zoom) => zoom.fit()),
    tool("1:1", "One pixel of the slide on one of the screen (1)", (zoom) => zoom.actual()),
    tool("−", "Zoom out (−)", (zoom) => zoom.zoomBy(1 / 1.5)),
    tool("+", "Zoom in (+)", (zoom) => zoom.zoomBy(1.5)),
  ];
}

export class DeepZoom extends Moving {
  /** Told: onPointer({x, y, screen} or null), onClick(place, event), onView(view, settled), onDraw(phase, place), decorate(ctx, transform). */
  constructor(place, { label = "Slide", onPointer, onClick, onView, onDraw, decorate } = {}) {
    super();
    const nothing = () => {};
    Object.assign(this, { onPointer: onPointer ?? nothing, onClick: onClick ?? nothing, onView: onView ?? nothing, onDraw: onDraw ?? (() => false) });
    this.decorate = decorate ?? nothing;
    this.canvas = el("canvas", {});
    this.minimap = new Minimap((x, y) => this.setView({ ...this.view, x, y }));
    this.bar = el("div", { class: "scale-bar" }, el("span", {}), el("i", {}));
    this.readout = el("div", { class: "readout" });
    this.node = el(
      "div",
      { class: "deepzoom empty", tabindex: "0", role: "application", "aria-label": label, "data-busy": true },
      this.canvas,
      this.minimap.node,
      el("div", { class: "corner" }, this.bar, this.readout),
    );
    place.append(this.node);
    this.store = new TileStore(() => this.redraw());
    this.slide = null;
    this.layers = []; // bottom first: {id, address(z, x, y), opacity, smooth, before}
    this.ground = () => "colour"; // of a level
    this.veiled = false; // the slide alone, without layers
    this.pointer = this.ghost = null; // places on the slide: this window's pointer, and that of a linked one
    this.ended = new AbortController();
    this._listen();
  }

  // --- what is shown

  /** `slide` as the server tells of it; `base(z, x, y)` gives addresses of its tiles, null without an image. */
  setSlide(slide, base, view = null) {
    const other = slide?.name !== this.slide?.name;
    this.slide = slide;
    this.pyramid = new Pyramid(slide);
    this.base = base && { id: "slide", address: base, opacity: 1, smooth: true };
    if (other) {
      this.layers = [];
      this.flight = null;
    }
    this.node.classList.toggle("empty", !slide.width);
    if (view) this.setView(view);
    else if (other) this.fit(false);
    this.redraw();
  }

  /** Show nothing. */
  clear() {
    this.slide = { name: null, width: 0, height: 0 };
    this.base = null;
    this.node.classList.add("empty");
    this.redraw();
  }

  /** Layers above the slide, bottom first; one whose address changed shows its old tiles until the new ones arrive. */
  setLayers(layers, ground = this.ground) {
    this.ground = ground;
    const old = new Map(this.layers.map((layer) => [layer.id, layer]));
    this.layers = layers.map((layer) => {
      const last = old.get(layer.id);
      const changed = last && [0, this.pyramid.last].some((z) => last.address(z, 0, 0) !== layer.address(z, 0, 0));
      return { smooth: false, opacity: 1, before: changed ? last.address : last?.before, ...layer };
    });
    this.redraw();
  }

  _point(place) {
    this.pointer = place;
    this.onPointer(place && { ...place.slide, screen: place.screen });
    if (this.linked && this.linked.slide?.width && this.slide?.width) {
      const same = this.slide.name === this.linked.slide.name;
      const { width, height } = this.linked.slide;
      const there = place?.slide;
      this.linked.ghost =
        there && (same ? there : { x: (there.x / this.slide.width) * width, y: (there.y / this.slide.height) * height });
      this.linked.redraw();
    }
    this.redraw();
  }

  // --- hands and keys

  _listen() {
    const signal = this.ended.signal;
    const point = (at) => this._point(at && { screen: at, slide: this.placeAt(at) });
    this.stopListening = listen(this.canvas, {
      pan: (dx, dy) => this.panBy(dx, dy),
      zoom: (factor, at, soft) => this.zoomBy(factor, at, soft),
      click: (at, event) => event.detail < 2 && this.slide && this.onClick(this.placeAt(at), event),
      hover: point,
      leave: () => point(null),
      grab: (phase, at) => this.onDraw(phase, this.placeAt(at)),
      dragging: (now) => this.node.classList.toggle("dragging", now),
    });
    this.canvas.addEventListener("pointerdown", () => this.node.focus({ preventScroll: true }), { signal });
    for (const name of ["focus", "blur"]) this.node.addEventListener(name, () => this.redraw(), { signal });
    this.node.addEventListener("keydown", (event) => this.key(event) && event.preventDefault(), { signal });
    const sized = new ResizeObserver(() => (this.fitted ? this.fit(false) : this.redraw()));
    sized.observe(this.node);
    const unthemed = onTheme(() => this._recolour());
    signal.addEventListener("abort", () => (sized.disconnect(), unthemed()));
  }

  /** What a key does here; false where it does nothing. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey && event.key.startsWith("Arrow")) return false;
    const { width, height } = this.size;
    const step = Math.min(width, height) / 6;
    const does = {
      ArrowLeft: () => this.panBy(-step, 0, true),
      ArrowRight: () => this.panBy(step, 0, true),
      ArrowUp: () => this.panBy(0, -step, true),
      ArrowDown: () => this.panBy(0, step, true),
      "+": () => this.zoomBy(1.5),
      "=": () => this.zoomBy(1.5),
      "-": () => this.zoomBy(1 / 1.5),
      _: () => this.zoomBy(1 / 1.5),
      0: () => this.fit(),
      1: () => this.actual(),
    }[event.key];
    does?.();
    return Boolean(does);
  }

  // --- drawing

  redraw() {
    if (this.frame || this.ended.signal.aborted) return;
    this.node.toggleAttribute("data-busy", true); // until everything wanted is here
    this.frame = requestAnimationFrame((now) => {
      this.frame = 0;
      if (this.flight) this._fly(now);
      this._draw();
      if (this.flight) this.redraw();
    });
  }

  _ratio() {
    return devicePixelRatio || 1;
  }

  _recolour() {
    this.colours = null;
    this.redraw();
  }

  _palette() {
    if (!this.colours) {
      const style = getComputedStyle(document.documentElement);
      const of = (name) => style.getPropertyValue(name).trim();
      // glass is white in any theme: a slide looks as it does under a microscope
      this.colours = { ground: of("--stage") || of("--panel"), paper: "#f4f4f2", blank: of("--ground"), accent: of("--accent"), line: of("--line") };
    }
    return this.colours;
  }

  _draw() {
    const ratio = this._ratio();
    const { width, height } = this.size;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h) Object.assign(this.canvas, { width: w, height: h });
    const ctx = this.canvas.getContext("2d");
    const colours = this._palette();
    ctx.globalAlpha = 1;
    ctx.fillStyle = colours.ground;
    ctx.fillRect(0, 0, w, h);
    if (!this.slide?.width) return this.node.toggleAttribute("data-busy", !this.slide);
    const k = this.view.zoom * ratio;
    const transform = { k, ratio, left: w / 2 - this.view.x * k, top: h / 2 - this.view.y * k };
    const z = this.pyramid.level(k);
    const cells = this.pyramid.covering(z, this.seen);
    ctx.save();
    const [x0, y0] = [Math.round(transform.left), Math.round(transform.top)];
    const [x1, y1] = [this.slide.width, this.slide.height].map((side, i) => Math.round((i ? transform.top : transform.left) + side * k));
    ctx.beginPath();
    ctx.rect(x0, y0, x1 - x0, y1 - y0);
    ctx.clip();
    ctx.fillStyle = this.base ? colours.paper : colours.blank;
    ctx.fill();
    for (const layer of this._all()) {
      if (layer.lens) this._clip(ctx, ratio);
      this._drawLayer(ctx, transform, layer, z, cells);
      if (layer === this.base) this._grounded(ctx, this.veiled ? "colour" : this.ground(z), colours.paper);
    }
    ctx.restore();
    ctx.globalAlpha = 1;
    this.decorate(ctx, transform);
    if (this.node.matches(":focus-visible")) drawCross(ctx, transform.ratio, colours.accent); // what Enter means
    if (this.ghost) drawGhost(ctx, transform, this.ghost, colours.accent);
    this._furniture();
    this.node.dataset.view = `${this.view.x} ${this.view.y} ${this.view.zoom}`;
    this._ask(z);
  }

  _all() {
    const layers = this.veiled ? [] : this.layers;
    return this.base ? [this.base, ...layers] : layers;
  }

  /** Draw only around the pointer. */
  _clip(ctx, ratio) {
    const { x, y } = this.pointer?.screen ?? { x: -1e6, y: -1e6 };
    ctx.beginPath();
    ctx.arc(x * ratio, y * ratio, LENS * ratio, 0, 2 * Math.PI);
    ctx.clip();
  }

  /** Take the colour out of the slide, so that those above it are what they are. */
  _grounded(ctx, ground, paper) {
    if (ground === "colour") return;
    const { width, height } = ctx.canvas;
    for (const [operation, alpha, fill] of ground === "grey" ? [["saturation", 1, "#808080"], ["source-over", 1 - PALE, "#ffffff"]] : [["source-over", 1, paper]]) {
      Object.assign(ctx, { globalCompositeOperation: operation, globalAlpha: alpha, fillStyle: fill });
      ctx.fillRect(0, 0, width, height);
    }
    Object.assign(ctx, { globalCompositeOperation: "source-over", globalAlpha: 1 });
  }

  /** Show the slide alone while a key is held. */
  veil(on) {
    if (this.veiled === on) return;
    this.veiled = on;
    this.redraw();
  }

  _drawLayer(ctx, transform, layer, z, cells) {
    if (!layer.opacity) return;
    ctx.globalAlpha = layer.opacity;
    ctx.imageSmoothingEnabled = layer.smooth && transform.k < CLEAR;
    ctx.imageSmoothingQuality = "medium";
    const now = (...cell) => this.store.get(layer.address(...cell));
    const before = layer.before && ((...cell) => this.store.get(layer.before(...cell)));
    let waiting = false;
    for (const [x, y] of cells) {
      const old = before && !this.store.has(layer.address(z, x, y));
      waiting ||= old;
      paintCell(ctx, this.pyramid, transform, old ? before : now, z, x, y);
    }
    if (!waiting) layer.before = null;
  }

  /** Ask for what is missing, soon: a view that is passed through on the way asks for nothing. */
  _ask(z) {
    this.level = z;
    if (this.asking) return;
    this.asking = setTimeout(() => {
      this.asking = 0;
      if (!this.slide?.width || this.ended.signal.aborted) return;
      const list = [];
      for (const level of this.pyramid.levels(this.level)) {
        for (const [x, y] of this.pyramid.covering(level, level ? this.seen : this._everything())) {
          for (const layer of this._all()) if (layer.opacity) list.push([layer.address(level, x, y), layer.id]);
        }
      }
      this.store.want(list);
      this.node.toggleAttribute("data-busy", !this.store.idle);
    }, ASK_EVERY);
  }

  _everything() {
    return { left: 0, top: 0, right: this.slide.width, bottom: this.slide.height };
  }

  _furniture() {
    const { mpp } = this.slide;
    const bar = scaleBar(this.view.zoom, mpp);
    this.bar.firstChild.textContent = bar.text;
    this.bar.lastChild.style.width = `${bar.pixels}px`;
    const here = this.pointer?.slide;
    this.readout.textContent = [magnification(this.view.zoom, mpp), here && coordinates(here.x, here.y, this.slide)].filter(Boolean).join(" · ");
    const pictures = (this.base ? [this.base] : this.layers)
      .map((layer) => [this.store.get(layer.address(0, 0, 0)), layer.opacity])
      .filter(([tile]) => tile);
    this.minimap.draw(this.slide, pictures, this.pyramid.scale(0), this.seen, this._palette());
  }

  close() {
    this.ended.abort();
    this.stopListening();
    this.unlink();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.asking);
    clearTimeout(this.settling);
    this.store.close();
    this.node.remove();
  }
}
