// Two slides, or one slide under two sets of prototypes or two models, side by side and moved as one.
// The address holds what the slide page's does; that of the right side ends in 2, and link=off where they move apart.
import { remember } from "./address.js";
import { get } from "./api.js";
import { DeepZoom, viewTools } from "./deepzoom.js";
import { choice, el, field, message, show } from "./dom.js";
import { CANVAS_KEYS, pageKeys } from "./keys.js";
import { colourBar, isColour, named, OF_MODELS, swatch, titleOf } from "./layer_controls.js";
import { baseTiles, dropAbsent, groundOf, overlays, posteriorOf, readChoices, usual, usualLayers, writeChoices } from "./overlays.js";

const KEYS = [...CANVAS_KEYS, ["l", "link or unlink the two sides"], ["?", "these keys"]];
const OFFERED = 100; // names offered while one types

export async function open(place, state, contents) {
  if (!contents.slides.length) return void show(place, el("p", { class: "sentence-alone" }, "There are no slides to compare."));
  const page = new ComparePage(place, contents);
  page.follow(state);
  const close = () => page.close();
  close.follow = (now) => page.follow(now);
  return close;
}

class ComparePage {
  constructor(place, contents) {
    this.contents = contents;
    this.panes = ["", "2"].map((mark) => new Pane(mark, contents, () => this._shown(), (view, settled) => settled && this._remember()));
    this.toggle = el("button", { class: "small", onclick: () => this._link(!this.linked), title: "Zoom and move both sides together (l)" }, "Linked");
    this.how = el("span", { class: "faint", role: "status" });
    show(
      place,
      el(
        "div",
        { class: "compare-page" },
        el(
          "div",
          { class: "compare-bar", role: "toolbar", "aria-label": "Both sides" },
          this.toggle,
          this.how,
          el("span", { class: "spring" }),
          viewTools(() => this._active()),
          el("button", { class: "small", "aria-label": "Keys", title: "Keys", onclick: () => this.keys.showKeys() }, "?"),
        ),
        el("div", { class: "panes" }, this.panes.map((pane) => pane.node)),
      ),
    );
    this.panes.forEach((pane) => pane.start());
    this.keys = pageKeys(KEYS, (event) => this._key(event));
  }

  /** Side that keys and buttons speak of: the one that has the focus, else the left one. */
  _active() {
    return (this.panes.find((pane) => pane.node.contains(document.activeElement)) ?? this.panes[0]).zoom;
  }

  follow(state) {
    const [left, right] = this.panes;
    this.linked = state.link !== "off";
    left.follow(one(state, "", { slide: usualSlide(this.contents) }));
    right.follow(one(state, "2", this._opposite(left.name, state)));
  }

  /** What to compare with by default: another set, another model, else the next slide. */
  _opposite(name, state) {
    const { prototypes, models, slides } = this.contents;
    const other = (names, used) => names.find((one) => one !== (used ?? names[0]));
    if (prototypes.length > 1) return { slide: name, set: other(prototypes.map((set) => set.name), state.set) };
    if (models.length > 1 && state.model) return { slide: name, model: other(models, state.model) };
    const next = slides.findIndex((slide) => slide.name === name) + 1;
    return { slide: slides[next % slides.length].name };
  }

  /** Both know their slide: they can be linked. */
  _shown() {
    if (this.panes.every((pane) => pane.about)) this._link(this.linked);
  }

  _link(on) {
    this.linked = on;
    const [left, right] = this.panes;
    left.zoom.unlink();
    if (on && left.about && right.about) left.zoom.link(right.zoom);
    this.toggle.setAttribute("aria-pressed", String(on));
    this.toggle.textContent = on ? "Linked" : "Not linked";
    const same = left.name === right.name;
    this.how.textContent = !on ? "Each side moves separately." : same ? "The same place on both sides." : "The same part of both slides.";
    this._remember();
  }

  _remember() {
    const left = this.panes[0].state();
    const { x2, y2, zoom2, ...right } = this.panes[1].state();
    const apart = this.linked ? { x2: null, y2: null, zoom2: null } : { x2, y2, zoom2 };
    remember({ page: "compare", ...left, ...right, ...apart, link: this.linked ? null : "off" });
  }

  _key(event) {
    if (event.key === "l") return this._link(!this.linked), true;
    const free = event.target === document.body || event.target.id === "page";
    return (free || !event.key.startsWith("Arrow")) && this._active().key(event);
  }

  close() {
    this.keys.close();
    this.panes.forEach((pane) => pane.close());
  }
}

/** One side: a canvas with what can be chosen above it. */
class Pane {
  constructor(mark, contents, shown, moved) {
    Object.assign(this, { mark, contents, shown, moved, about: null, name: null });
    this.side = mark ? "right" : "left";
    this.chooser = el("div", { class: "chooser" });
    this.stage = el("div", { class: "stage" });
    this.sentence = el("p", { class: "sentence", hidden: true });
    this.key = el("div", { class: "key" });
    this.node = el("section", { class: "pane", "aria-label": `The ${this.side} side` }, this.chooser, this.stage, this.key);
  }

  start() {
    this.zoom = new DeepZoom(this.stage, { label: `Slide on the ${this.side}. Arrow keys move, plus and minus zoom.`, onView: this.moved });
    this.stage.append(this.sentence);
  }

  async follow(state) {
    this.choices = readChoices(state);
    this.name = state.slide;
    this.loading?.abort();
    const { signal } = (this.loading = new AbortController());
    this._choosers();
    try {
      if (!this.contents.slides.some(({ name }) => name === this.name)) throw new Error(`There is no slide “${this.name}” here.`);
      const { set, model } = this.choices;
      const [about, names] = await Promise.all([
        get(["slides", this.name], { set, model }, { signal }),
        this.contents.prototypes.length ? get(["names"], { set }, { signal }).catch(() => null) : null,
      ]);
      if (signal.aborted) return;
      this.about = about;
      this.version = names?.version;
      this._say(about.width ? "" : about.notes.join(" ") || "There is nothing to show.");
      message(dropAbsent(this.choices, about.weights?.length ?? 0), `absent${this.mark}`);
      const listed = new Set(about.layers.map(({ id }) => id));
      this.choices.layers = new Map([...(this.choices.layers ?? usualLayers(about))].filter(([id]) => listed.has(id)).slice(0, 1));
      const [x, y, zoom] = ["x", "y", "zoom"].map((part) => Number(state[part] ?? NaN));
      this.zoom.setSlide(about, baseTiles(about), zoom > 0 && Number.isFinite(x + y) ? { x, y, zoom } : null);
      this._draw();
      this.shown();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.about = null;
      this._say(error.message);
    }
  }

  /** Other choices: loaded again, at the same place where the slide is the same. */
  _change(changes) {
    const { slide = this.name, ...rest } = changes;
    const view = slide === this.name ? this.zoom.view : {};
    this.follow({ ...writeChoices(this.choices), ...rest, ...view, slide });
  }

  _draw() {
    this._layered();
    this._choosers();
    this._key();
  }

  _layered() {
    this.zoom.setLayers(overlays(this.about, this.choices, this.version), groundOf(this.about, this.choices));
  }

  _choosers() {
    const { prototypes, models } = this.contents;
    const named_ = (names) => names.map((name) => [name, name]);
    const held = document.activeElement?.closest?.(".chooser") === this.chooser ? document.activeElement.dataset.what : null;
    show(
      this.chooser,
      field("Slide", this._picker()),
      prototypes.length > 1 && field("Prototypes", choice(named_(prototypes.map(({ name }) => name)), this.choices.set ?? prototypes[0].name, (set) => this._change({ set, shown: "", prototype: null }), { "data-what": "set" })),
      models.length > 1 && OF_MODELS.some((id) => this.choices.layers?.has(id)) && field("Model", choice(named_(models), this.choices.model ?? models[0], (model) => this._change({ model, output: null }), { "data-what": "model" })),
      this.about && this._layerChoice(),
    );
    if (held) this.chooser.querySelector(`[data-what="${held}"]`)?.focus();
  }

  _layerChoice() {
    const { layers } = this.about;
    const [on, opacity] = [...(this.choices.layers ?? [])][0] ?? ["none", 1];
    const options = [["none", "none"], ...layers.map((layer) => [layer.id, titleOf(layer)])];
    const begins = (id) => (id === "posterior" ? { prototype: posteriorOf(this.choices) } : {});
    const pick = (id) => this._set({ layers: new Map(id === "none" ? [] : [[id, usual(id, this.choices.style)]]), ...begins(id) });
    const slider = el("input", {
      type: "range", min: 5, max: 100, step: 5, value: Math.round(100 * opacity), disabled: on === "none", "aria-label": `Opacity on the ${this.side}`, "data-what": "opacity",
      oninput: () => {
        this.choices.layers = new Map([[on, Number(slider.value) / 100]]);
        this._layered();
        this.moved(null, true);
      },
    });
    const all = layers.find(({ id }) => id === "prototypes")?.classes ?? [];
    const which = choice(all.map(({ id, name }) => [String(id), named(id, name)]), String(this.choices.prototype ?? 0), (id) => this._set({ prototype: Number(id) }), { "data-what": "prototype" });
    return [field("Layer", choice(options, on, pick, { "data-what": "layer" })), on === "posterior" && field("Prototype", which), field("Opacity", slider)];
  }

  _set(changes) {
    Object.assign(this.choices, changes);
    this._draw();
    this.moved(null, true);
  }

  /** A name to type: thousands of slides are too many for a list. */
  _picker() {
    const id = `slides-${this.side}`;
    const list = el("datalist", { id });
    const input = el("input", { list: id, value: this.name ?? "", autocomplete: "off", spellcheck: "false", "data-what": "slide", "aria-label": `Slide on the ${this.side}` });
    const offer = () => {
      const text = input.value.toLowerCase();
      const found = this.contents.slides.filter(({ name }) => name.toLowerCase().includes(text)).slice(0, OFFERED);
      show(list, found.map(({ name }) => el("option", { value: name })));
    };
    const take = () => {
      const known = this.contents.slides.some(({ name }) => name === input.value);
      if (known && input.value !== this.name) this._change({ slide: input.value });
      else input.value = this.name;
    };
    input.addEventListener("focus", () => (input.select(), offer()));
    input.addEventListener("input", offer);
    input.addEventListener("change", take);
    return el("div", { class: "picker" }, input, list);
  }

  /** Colours of the layer below the canvas; a click isolates a class. Where there are none, why. */
  _key() {
    const layer = this.about.layers.find(({ id }) => this.choices.layers.has(id));
    if (layer?.kind === "values" && layer.colours?.every(isColour)) return show(this.key, colourBar(layer));
    const { shown } = this.choices;
    const item = ({ id, name, colour }) =>
      layer.id === "prototypes"
        ? el("button", { class: "small quiet", "aria-pressed": String(shown.includes(id)), title: "Show alone, or with others", onclick: () => this._set({ shown: toggled(shown, id) }) }, swatch(colour, true), named(id, name))
        : el("span", {}, swatch(colour), name);
    const why = this.about.width ? this.about.notes.map((note) => el("span", { class: "faint" }, note)) : null;
    show(this.key, layer?.classes?.map(item) ?? why);
  }

  _say(text) {
    this.sentence.textContent = text;
    this.sentence.hidden = !text;
  }

  /** For the address; names end in this side's mark. */
  state() {
    const { x, y, zoom } = this.zoom.view;
    const view = this.about?.width ? { x: x.toFixed(1), y: y.toFixed(1), zoom: zoom.toPrecision(5) } : {};
    const all = { slide: this.name, ...writeChoices(this.choices), ...view };
    return Object.fromEntries(Object.entries(all).map(([name, value]) => [name + this.mark, value]));
  }

  close() {
    this.loading?.abort();
    this.zoom.close();
  }
}

/** The part of the address that speaks of one side. */
function one(state, mark, usually) {
  const names = ["slide", "set", "model", "prototype", "shown", "low", "high", "output", "style", "ground", "layers", "opacity", "x", "y", "zoom"];
  const explicit = Object.fromEntries(names.filter((name) => state[name + mark] !== undefined).map((name) => [name, state[name + mark]]));
  return explicit.slide === undefined ? { ...usually, ...explicit } : explicit;
}

function usualSlide({ slides }) {
  return (slides.find((slide) => slide.image && slide.features) ?? slides[0]).name;
}

function toggled(shown, id) {
  return shown.includes(id) ? shown.filter((other) => other !== id) : [...shown, id].sort((a, b) => a - b);
}
