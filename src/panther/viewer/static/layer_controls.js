// Layers of a slide: each on or off, with its opacity and what else can be chosen of it.
import { choice, el, field, show } from "./dom.js";
import { GROUNDS, posteriorOf, STYLES, usual } from "./overlays.js";

export const OF_MODELS = ["attribution", "attention"];
const ENDS = { attribution: ["lowers", "raises"], attention: ["little", "much"] }; // before the numbers are known
const TITLES = { posterior: "Posterior", attribution: "Attribution", attention: "Attention" }; // of what is chosen below them

/** What a layer is called, whatever is chosen of it. */
export function titleOf(layer) {
  return TITLES[layer.id] ?? layer.title;
}

/** Show the controls of `slide.layers`; `change(changes)` is called with changed choices. `models` are names. */
export function layerControls(place, slide, choices, models, change) {
  const modelled = slide.layers.some(({ id }) => OF_MODELS.includes(id));
  show(
    place,
    el("h2", {}, "Layers"),
    slide.layers.length ? null : el("p", { class: "faint" }, "This slide has no layers."),
    slide.layers.map(row),
    slide.layers.some(({ id, kind }) => kind === "categories" && choices.layers.has(id)) && field("Regions", choice(STYLES, choices.style, (style) => change({ style, layers: new Map([...choices.layers].map(([id, opacity]) => [id, usual(id) === 1 ? usual(id, style) : opacity])) }), { "data-what": "style" })),
    slide.image && slide.layers.length > 0 && field("Slide", choice(GROUNDS, choices.ground, (ground) => change({ ground }), { "data-what": "ground" })),
    models.length > 1 && !modelled && whichModel(), // another one may have something to show
  );

  function row(layer) {
    const on = choices.layers.has(layer.id);
    const title = titleOf(layer);
    const toggle = el("input", {
      type: "checkbox",
      checked: on,
      onchange: () => change({ layers: switched(choices.layers, layer.id, toggle.checked, choices.style), ...begins(layer.id, toggle.checked) }),
    });
    return el(
      "section",
      { class: "layer", "data-layer": layer.id },
      el("label", {}, toggle, el("span", {}, title)),
      on && el("div", { class: "more" }, opacity(layer.id, title), more(layer)),
    );
  }

  function begins(id, on) {
    return id === "posterior" && on ? { prototype: posteriorOf(choices) } : {};
  }

  function opacity(id, title) {
    const percent = Math.round(100 * choices.layers.get(id));
    const value = el("output", { class: "faint" }, `${percent}%`);
    const slider = el("input", {
      type: "range", min: 5, max: 100, step: 5, value: percent, class: "opacity", "aria-label": `Opacity of ${title}`,
      oninput: () => {
        value.textContent = `${slider.value}%`;
        change({ layers: new Map(choices.layers).set(id, Number(slider.value) / 100) }, true);
      },
    });
    return el("div", { class: "line", title: "Opacity" }, slider, value);
  }

  function more(layer) {
    return [
      layer.id === "posterior" && whichPrototype(),
      models.length > 1 && OF_MODELS.includes(layer.id) && whichModel(),
      layer.outputs?.length > 1 && field("Output", choice([["", "the predicted one"], ...layer.outputs.map((one) => [one, one])], choices.output ?? "", (output) => change({ output }))),
      layer.id in TITLES && layer.id !== "posterior" && layer.low !== null && el("p", { class: "faint" }, `${layer.title}.`),
      layer.kind === "values" && layer.colours && (layer.id === "posterior" ? range(layer) : colourBar(layer)),
      layer.id !== "prototypes" && layer.classes && classes(layer),
    ];
  }

  function whichModel() {
    return field("Model", choice(models.map((name) => [name, name]), choices.model ?? models[0], (name) => change({ model: name, output: null })));
  }

  function whichPrototype() {
    const all = slide.layers.find(({ id }) => id === "prototypes")?.classes ?? [];
    const options = all.map(({ id, name }) => [String(id), named(id, name)]);
    return field("Prototype", choice(options, String(choices.prototype ?? 0), (chosen) => change({ prototype: Number(chosen) })));
  }

  /** Colour bar with a handle at each end: what lies outside is not shown. */
  function range(layer) {
    const { low, high } = layer;
    const step = (high - low) / 100;
    const ends = { low: choices.low ?? low, high: choices.high ?? high };
    const text = el("output", { class: "faint" });
    const bar = colourBar(layer);
    const handles = ["low", "high"].map((end) => {
      const handle = el("input", {
        type: "range", min: low, max: high, step, value: ends[end], class: "end", "aria-label": end === "low" ? "Threshold: smallest value shown" : "Largest value shown",
        oninput: () => {
          const value = Number(handle.value);
          ends[end] = end === "low" ? Math.min(value, ends.high) : Math.max(value, ends.low);
          handle.value = ends[end];
          tell();
          change({ low: ends.low > low ? round(ends.low) : null, high: ends.high < high ? round(ends.high) : null }, true);
        },
      });
      return handle;
    });
    const tell = () => {
      text.textContent = ends.low > low || ends.high < high ? `shown from ${round(ends.low)} to ${round(ends.high)}` : "all values shown";
      bar.style.setProperty("--from", `${(100 * (ends.low - low)) / (high - low)}%`);
      bar.style.setProperty("--to", `${(100 * (ends.high - low)) / (high - low)}%`);
    };
    tell();
    bar.querySelector(".colours").append(...handles);
    return [bar, text];
  }
}

/** The colours of values with their ends. */
export function colourBar(layer) {
  const zero = layer.id === "attribution" ? 0.5 : 0; // transparent there, as on the slide
  const stops = layer.colours.filter(isColour).map((colour, i, all) => `color-mix(in srgb, ${colour} ${Math.round((100 * Math.abs(i / (all.length - 1) - zero)) / (1 - zero))}%, #d7d7d7)`);
  const colours = el("div", { class: "colours", style: { background: `linear-gradient(to right, ${stops.join(", ")})` } });
  const known = layer.low !== null && layer.high !== null;
  const [low, high] = known ? [round(layer.low), round(layer.high)] : (ENDS[layer.id] ?? ["low", "high"]);
  return el("div", { class: "colour-bar" }, colours, el("div", { class: "ends faint" }, el("span", {}, String(low)), el("span", {}, layer.unit ?? ""), el("span", {}, String(high))));
}

function classes(layer) {
  return el("ul", { class: "classes" }, layer.classes.map(({ name, colour }) => el("li", {}, swatch(colour), el("span", {}, name))));
}

/** A patch of colour, beside a name; `light`: as an outline with a light fill over tissue. */
export function swatch(colour, light = false) {
  const node = el("i", { class: light ? "swatch light" : "swatch" });
  if (isColour(colour)) node.style.setProperty("--colour", colour);
  return node;
}

export function isColour(text) {
  return /^#[0-9a-f]{6}$/i.test(text ?? "");
}

/** "C3 stroma", or "C3" without a name. */
export function named(id, name) {
  return !name || name === `C${id}` ? `C${id}` : name.startsWith(`C${id} `) ? name : `C${id} ${name}`;
}

function switched(layers, id, on, style) {
  const now = new Map(layers);
  if (on) now.set(id, usual(id, style));
  else now.delete(id);
  return now;
}

function round(value) {
  return value === null || value === undefined ? "" : Number(Number(value).toPrecision(3));
}
