// The slide page: slides to choose from, the slide with its layers, and what is known of it and of one patch.
// In the address: slide, x, y (middle of the window, canvas units), zoom (screen pixels a canvas unit), patch, and the choices of
// overlays.js. A link may leave out any of them: {slide, patch} goes to the patch, {slide, x, y} to the place.
import { go, remember } from "./address.js";
import { Annotations, TOOLS } from "./annotate.js";
import { bytes, get } from "./api.js";
import { DeepZoom, viewTools } from "./deepzoom.js";
import { choice, el, field, message, show } from "./dom.js";
import { exportLinks } from "./export_links.js";
import { CANVAS_KEYS, pageKeys } from "./keys.js";
import { layerControls, named, OF_MODELS } from "./layer_controls.js";
import { legend } from "./legend.js";
import { neighbours } from "./neighbours.js";
import { outlinePatch } from "./marks.js";
import { baseTiles, dropAbsent, groundOf, overlays, readChoices, usual, usualLayers, writeChoices } from "./overlays.js";
import { patchPanel } from "./patch_panel.js";
import { readPlaces } from "./patch_places.js";
import { coordinates } from "./scale_bar.js";
import { slideList } from "./slide_list.js";

const KEYS = [
  ...CANVAS_KEYS,
  ["Enter", "choose the patch in the middle of the window"],
  ["Shift + arrow", "choose the patch beside it"],
  ["h", "hide or show the layers"],
  ["v p d r m", `draw: ${TOOLS.map(([, title]) => title.toLowerCase()).join(", ")}`],
  ["Space", "hold: the slide without layers"],
  ["/", "find a slide"],
  ["[  ]", "the slide before, the next one"],
  ["f", "flag the slide, or take the flag away"],
  ["Esc", "close the patch, then show all prototypes again"],
  ["?", "these keys"],
];
const PATCH_SIZE = 160; // CSS pixels of a patch that a link leads to
const CLOSE = 0.5; // zoom of a link that says none, until the size of a patch is known

let lastLayers = null; // what was switched on stays on from slide to slide

export async function open(place, state, contents) {
  const page = new SlidePage(place, contents);
  page.follow(state);
  const close = () => page.close();
  close.follow = (now) => page.follow(now);
  return close;
}

class SlidePage {
  constructor(place, contents) {
    this.contents = contents;
    this.sort = "share";
    this.patch = this.places = this.about = null;
    this.stopPatch = () => {};
    this._build(place);
    this.zoom = new DeepZoom(this.stage, {
      label: "Slide. Arrow keys move, plus and minus zoom, Enter chooses a patch, question mark shows all keys.",
      onPointer: (at) => this._hover(at),
      onClick: (at) => this._clicked(at),
      onDraw: (phase, at) => this.annotations.draw(phase, at),
      onView: (view, settled) => settled && this._remember(),
      decorate: (ctx, transform) => this._decorate(ctx, transform),
    });
    this.annotations = new Annotations(this.drawing, this.annotated, () => this.zoom, () => this._edited());
    this.zoom.node.addEventListener("keydown", (event) => this._patchKeys(event) && event.preventDefault());
    this.stage.append(this.tooltip, this.sentence);
    this.keys = pageKeys(KEYS, (event) => this._key(event));
    this.unveil = () => this.zoom.veil(false);
    for (const name of ["keyup", "blur"]) addEventListener(name, this.unveil);
    this.list = slideList(this.listPlace, contents.slides, (name) => this._opened(name));
  }

  _build(place) {
    const button = (text, title, onclick) => el("button", { class: "small", title, "aria-label": title, onclick }, text);
    this.listPlace = el("aside", { class: "list", "aria-label": "Slides" });
    this.title = el("h1", {});
    this.subtitle = el("span", { class: "faint" });
    this.exports = el("span", { class: "exports" });
    const fold = button("☰", "Show or hide the list of slides", () => this.page.classList.toggle("folded"));
    const tools = el(
      "div",
      { class: "tools", role: "toolbar", "aria-label": "View" },
      viewTools(() => this.zoom),
      this.exports,
      button("?", "Keys", () => this.keys.showKeys()),
    );
    this.stage = el("div", { class: "stage" });
    this.tooltip = el("div", { class: "tooltip", hidden: true, "aria-hidden": "true" });
    this.sentence = el("p", { class: "sentence", hidden: true });
    this.drawing = el("div", { class: "drawing-tools", role: "toolbar", "aria-label": "Annotate" });
    this.annotated = el("section", {});
    this.notes = el("div", { class: "notes" });
    this.chooseSet = el("div", {});
    this.layers = el("section", { class: "layers" });
    this.legend = el("section", {});
    this.besides = el("section", { class: "besides" });
    this.toPatch = el("button", { class: "small turn", onclick: () => this._turn(false) });
    this.side = el("aside", { class: "side", "aria-label": "Layers and prototypes" }, this.toPatch, this.notes, this.chooseSet, this.layers, this.legend, this.annotated, this.besides);
    this.patchPlace = el("aside", { class: "patch", "aria-label": "Patch", "aria-live": "polite", hidden: true });
    this.page = el(
      "div",
      { class: "slide-page" },
      this.listPlace,
      el("section", { class: "middle", "aria-label": "Slide" }, el("header", {}, fold, this.title, this.subtitle, el("span", { class: "spring" }), this.drawing, tools), this.stage),
      this.side,
      this.patchPlace,
    );
    if (innerWidth < 900) this.page.classList.add("folded");
    show(place, this.page);
  }

  // --- where one is

  /** Show what an address says. */
  follow(state) {
    const known = this.contents.slides;
    const name = state.slide ?? (known.find((one) => one.image && one.features) ?? known[0])?.name;
    if (name === undefined) return this._fail("There are no slides here.");
    if (!known.some((one) => one.name === name)) return this._fail(`There is no slide “${name}” here; choose one of the list.`);
    this.choices = readChoices(state);
    this.choices.layers ??= lastLayers;
    const key = JSON.stringify([name, state.set, state.model, state.output]);
    if (key === this.key && this.about) this._arrive(state);
    else this._load(name, state, key);
  }

  async _load(name, state, key) {
    this.key = key;
    this.loading?.abort();
    const { signal } = (this.loading = new AbortController());
    const { set, model, output } = this.choices;
    this.list.mark(name);
    show(this.title, name);
    this.subtitle.textContent = this.contents.slides.find((one) => one.name === name)?.patient ?? "";
    this.page.setAttribute("aria-busy", "true");
    this.about = this.places = this.hovered = this.early = null;
    this.tooltip.hidden = true;
    if (!this.zoom.slide?.width) this._say("Opening …");
    if (this.contents.slides.find((one) => one.name === name)?.image && this.zoom.slide?.name !== name) this._picture(name, state, signal);
    try {
      const [about, names, places] = await Promise.all([
        get(["slides", name], { set, model, output }, { signal }),
        this.contents.prototypes.length ? get(["names"], { set }, { signal }).catch(quietly) : null, // for their version
        bytes(["slides", name, "patches"], { set }, { signal }).then(readPlaces).catch((error) => error),
      ]);
      this.names = names;
      this.version = names?.version;
      if (places instanceof Error) quietly(places);
      this.places = places.count ? places : null;
      this._show(about, state);
    } catch (error) {
      if (error.name === "AbortError") return;
      this._fail(error.message);
    }
    this.page.removeAttribute("aria-busy");
  }

  /** The slide itself, which is known sooner than its patches. */
  async _picture(name, state, signal) {
    const canvas = await get(["slides", name, "canvas"], {}, { signal }).catch(() => null); // errors are shown with the rest
    if (!canvas || signal.aborted || this.about) return;
    this.early = name;
    this._say("");
    this.zoom.setSlide(canvas, baseTiles(canvas), viewOf(state, CLOSE));
  }

  _show(about, state) {
    this.about = about;
    this._say(about.width ? "" : about.notes.join(" ") || "There is neither an image nor a coordinate of any patch.");
    show(this.notes, about.width ? about.notes.map((note) => el("p", { class: "note" }, note)) : null);
    const sets = this.contents.prototypes.map(({ name, count }) => [name, `${name} (${count})`]);
    show(this.chooseSet, sets.length > 1 && field("Set of prototypes", choice(sets, this.choices.set ?? sets[0][0], (set) => this._go(about.name, { set, shown: null, prototype: null, patch: null }, true))));
    if (about.layers.length) this.choices.layers ??= usualLayers(about); // else the next slide decides
    this.zoom.setSlide(about, baseTiles(about));
    this._arrive(state, true);
    this._neighbours(about.name);
    this.annotations.open(about, this.loading.signal).then(() => this.about === about && this.annotations.rows.length && this._layered());
    this._remember(); // where the picture came first the view is settled already, and no event follows
  }

  /** Go to the view and the patch of an address. */
  _arrive(state, fresh = false) {
    message(dropAbsent(this.choices, this.prototypes.length), "absent");
    this._overlays();
    const n = /^\d+$/.test(state.patch ?? "") && this.places && Number(state.patch) < this.places.count ? Number(state.patch) : null;
    const close = Math.min(1, PATCH_SIZE / (this.about.pitch ?? 256));
    const view = viewOf(state, close) ?? (n === null ? null : { ...this.places.middle(n), zoom: Number(state.zoom) > 0 ? Number(state.zoom) : close });
    if (view && !(this.early && state.x && state.zoom)) this.zoom.setView(view, !fresh); // it may have been moved meanwhile
    this.early = null;
    this._select(n);
  }

  /** Another slide, or choices that need a request: a new entry of the history. */
  _go(name, changes = {}, stay = false) {
    const view = stay ? this.zoom.view : {};
    go({ page: "slide", slide: name, ...writeChoices(this.choices), ...view, ...changes });
  }

  /** A slide of the list, which gives way where it lies above the slide (narrow.css). */
  _opened(name) {
    if (matchMedia("(max-width: 640px)").matches) this.page.classList.add("folded");
    this._go(name);
  }

  _remember() {
    if (!this.about) return;
    const { x, y, zoom } = this.zoom.view;
    const view = this.about.width ? { x: x.toFixed(1), y: y.toFixed(1), zoom: zoom.toPrecision(5) } : {};
    remember({ page: "slide", slide: this.about.name, ...view, ...writeChoices(this.choices), patch: this.patch });
    exportLinks(this.exports, this.about, this.choices, this.zoom, this.version);
  }

  /** Nothing but a sentence. */
  _fail(text) {
    this.loading?.abort();
    this.about = this.places = this.key = null;
    this._select(null);
    this.zoom.clear();
    for (const place of [this.notes, this.layers, this.legend, this.annotated, this.besides, this.exports]) show(place);
    this._say(text);
  }

  _say(text) {
    this.sentence.textContent = text;
    this.sentence.hidden = !text;
  }

  // --- layers and prototypes

  get prototypes() {
    const listed = this.about.layers.find(({ id }) => id === "prototypes")?.classes;
    const called = (this.names?.prototypes ?? []).map(({ prototype, title, colour }) => ({ id: prototype, name: title, colour }));
    return listed ?? (this.about.weights ?? []).map((_, id) => called[id] ?? { id, name: `C${id}`, colour: null });
  }

  /** Draw the layers and their controls anew. */
  _overlays() {
    const { about, choices } = this;
    if (choices.layers) lastLayers = choices.layers;
    this._layered();
    layerControls(this.layers, about, choices, this.contents.models, (changes, live) => this._change(changes, live));
    this._legend();
    this._findModel();
  }

  _layered() {
    this.zoom.setLayers(overlays(this.about, this.choices, this.version, this.annotations.version), groundOf(this.about, this.choices));
  }

  /** The tissue may have been edited: its outline and what was not analysed are drawn anew. */
  _edited() {
    this._layered();
  }

  /** An annotation, else the patch below the pointer. */
  _clicked(at) {
    const row = this.annotations.at(at);
    if (row) return this.annotations.choose(row);
    if (this.annotations.chosen) this.annotations.choose(null);
    this._choose(this.places?.at(at.x, at.y) ?? null);
  }

  /** A model's layer is on and no model is chosen: find the one that is shown, for its outputs and the ends of its colours. */
  async _findModel() {
    const { about, choices, key } = this;
    const unread = about.layers.filter(({ id, low }) => OF_MODELS.includes(id) && choices.layers.has(id) && low === null);
    if (choices.model || !unread.length || this.searched === key) return;
    this.searched = key; // once
    for (const model of this.contents.models) {
      const details = await get(["slides", about.name], { set: choices.set, model }, { signal: this.loading.signal }).catch(() => null);
      if (this.key !== key || this.choices.model) return;
      if (!details?.layers.some(({ id, low }) => id === unread[0].id && low !== null)) continue;
      this.about = details;
      this.choices.model = model;
      this.key = JSON.stringify([about.name, choices.set, model, choices.output ?? undefined]);
      this._overlays();
      return this._remember();
    }
  }

  /** What lies beside what is known a little later than the slide, which does not wait for it. */
  async _neighbours(name) {
    this.beside = null;
    const found = await get(["slides", name, "neighbours"], { set: this.choices.set }, { signal: this.loading.signal }).catch(() => null); // the notes say why
    if (this.about?.name !== name) return;
    this.beside = found;
    neighbours(this.besides, found, this.prototypes, this.choices.shown);
  }

  _legend() {
    const { about, choices, sort, prototypes } = this;
    neighbours(this.besides, this.beside, prototypes, choices.shown);
    if (!prototypes.length) return show(this.legend);
    legend(
      this.legend,
      { slide: about.name, prototypes, weights: about.weights, shown: choices.shown, set: choices.set, sort },
      { isolate: about.layers.length ? (shown) => this._isolate(shown) : null, resort: (how) => ((this.sort = how), this.about && this._legend()) },
    );
  }

  /** `live`: by a slider that is still held, whose controls must stay. */
  _change(changes, live = false) {
    if (!this.about) return; // another slide is on its way
    if ("model" in changes || "output" in changes) return this._go(this.about.name, changes, true);
    Object.assign(this.choices, changes);
    const held = document.activeElement?.closest?.(".layer")?.dataset.layer;
    const what = document.activeElement?.type;
    if (live) this._layered();
    else this._overlays();
    if (held && !live) this.layers.querySelector(`[data-layer="${CSS.escape(held)}"] ${what === "checkbox" ? "input" : "select"}`)?.focus();
    lastLayers = this.choices.layers;
    this._remember();
  }

  _isolate(shown) {
    if (!this.about) return;
    const { layers } = this.choices;
    this.choices.shown = shown;
    if (shown.length && !layers.has("prototypes")) this.choices.layers = new Map(layers).set("prototypes", usual("prototypes", this.choices.style));
    const held = document.activeElement?.dataset?.prototype;
    this._overlays();
    if (held) this.legend.querySelector(`[data-prototype="${held}"]`)?.focus();
    this._remember();
  }

  // --- patches

  _hover(at) {
    const n = at && this.places ? this.places.at(at.x, at.y) : null;
    this.hovered = n;
    this.tooltip.hidden = n === null;
    if (n === null) return;
    const { label, top, prototypes } = this.places;
    const name = prototypes ? named(label[n], this.prototypes.find(({ id }) => id === label[n])?.name) : `Patch ${n}`;
    show(
      this.tooltip,
      el("strong", {}, name),
      el("span", {}, [prototypes ? `posterior ${top[n].toFixed(2)}` : null, coordinates(at.x, at.y, this.about)].filter(Boolean).join(" · ")),
    );
    const { width, height } = this.zoom.size;
    const { offsetWidth, offsetHeight } = this.tooltip;
    const beside = (place, length, room) => (place + 16 + length > room ? place - 12 - length : place + 16);
    this.tooltip.style.transform = `translate(${Math.max(4, beside(at.screen.x, offsetWidth, width))}px, ${Math.max(4, beside(at.screen.y, offsetHeight, height))}px)`;
  }

  _choose(n) {
    if (n === this.patch) return;
    this._select(n);
    this._remember();
  }

  _select(n) {
    if (n !== null && n === this.patch && this.shownOf === this.key) return;
    this.stopPatch();
    this.stopPatch = () => {};
    this.patch = n;
    this.shownOf = this.key;
    this.patchPlace.hidden = n === null;
    this.page.classList.toggle("with-patch", n !== null);
    this._turn(false);
    this.toPatch.textContent = `Patch ${n}`;
    if (n !== null) {
      const about = { ...this.about, slide: this.about.name, set: this.choices.set, prototypes: this.prototypes, places: this.places };
      this.stopPatch = patchPanel(this.patchPlace, n, about, { close: () => this._choose(null), turn: () => this._turn(true) });
    }
    this.zoom.redraw();
  }

  /** Where a patch and the layers share a place: which of them is seen. */
  _turn(layers) {
    this.page.classList.toggle("layers-first", layers);
  }

  _decorate(ctx, transform) {
    if (!this.zoom.veiled) this.annotations?.paint(ctx, transform);
    if (!this.places) return;
    if (this.hovered !== null && this.hovered !== undefined) outlinePatch(ctx, transform, this.places, this.hovered, "#ffffff", 1.5);
    if (this.patch !== null) outlinePatch(ctx, transform, this.places, this.patch, "#ffe14d", 3);
  }

  // --- keys

  _patchKeys(event) {
    if (!this.places || event.ctrlKey || event.metaKey || event.altKey) return false;
    if (event.key === "Enter") {
      const { x, y } = this.zoom.view;
      this._choose(this.places.nearest(x, y));
      return true;
    }
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (!event.shiftKey || this.patch === null || !(dx || dy)) return false;
    this._choose(this.places.beside(this.patch, dx, dy));
    const { x, y } = this.places.middle(this.patch);
    const { left, top, right, bottom } = this.zoom.seen;
    if (x < left || y < top || x > right || y > bottom) this.zoom.setView({ x, y }, true);
    return true;
  }

  _key(event) {
    const does = {
      "/": () => (this.page.classList.remove("folded"), this.list.search()),
      f: () => this.list.flag(),
      "[": () => this.list.step(-1),
      "]": () => this.list.step(1),
      h: () => this._hide(),
      Escape: () => this._escape(),
    }[event.key];
    if (event.key === " " && !event.target.closest("button, a, input, summary, [role=listbox]")) return this.zoom.veil(true), true;
    if (this.annotations.key(event)) return true;
    if (does) return does() ?? true;
    const free = event.target === document.body || event.target.id === "page";
    if (free && this._patchKeys(event)) return true; // as on the canvas, where nothing has the focus yet
    return (free || !event.key.startsWith("Arrow")) && this.zoom.key(event);
  }

  _hide() {
    if (!this.about?.layers.length) return;
    const on = this.choices.layers.size > 0;
    if (on) this.hidden = this.choices.layers;
    this._change({ layers: on ? new Map() : (this.hidden ?? usualLayers(this.about)) });
  }

  _escape() {
    if (!this.about) return;
    if (this.patch !== null) this._choose(null);
    else if (this.choices.shown.length) this._isolate([]);
    this.zoom.node.focus({ preventScroll: true });
  }

  close() {
    this.loading?.abort();
    this.stopPatch();
    for (const name of ["keyup", "blur"]) removeEventListener(name, this.unveil);
    this.keys.close();
    this.list.close();
    this.zoom.close();
  }
}

/** View of an address, null where it says none. */
function viewOf(state, usual) {
  const [x, y, zoom] = ["x", "y", "zoom"].map((name) => (state[name] === undefined ? NaN : Number(state[name])));
  return Number.isFinite(x) && Number.isFinite(y) ? { x, y, zoom: zoom > 0 ? zoom : usual } : null;
}

/** What is missing without harm; a refusal that says more than "not there" is shown once. */
function quietly(error) {
  if (error.name === "AbortError") throw error;
  if (error.status !== 404) message(error.message);
  return null;
}
