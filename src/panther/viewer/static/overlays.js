// Layers above a slide: what is chosen of them, in the address and in the addresses of their tiles.
import { path } from "./api.js";

const OPACITY = { outline: 0.8, grid: 0.8, missing: 0.8, posterior: 0.85, attribution: 0.85, attention: 0.85 };
const LINES = ["outline", "grid", "missing"]; // drawn above all others
const FINE = 1.01; // micrometres a pixel from which on the automatic style is an outline alone: 10x
// what regions look like, and the slide below them; "auto": outline and light fill over grey, from 10x on the outline over colour
export const STYLES = [["auto", "Automatic"], ["outline", "Outline"], ["light", "Outline and light fill"], ["fill", "Fill"], ["hatch", "Hatch"], ["lens", "Fill around the pointer"]];
export const GROUNDS = [["auto", "Automatic"], ["colour", "Colour"], ["grey", "Grey"], ["none", "None"]];
const NONE = "none";
const FILLED = 0.6;

// layer -> what of the choices changes its tiles
const ASKS = {
  prototypes: ["set", "shown"],
  posterior: ["set", "prototype", "low", "high"],
  attribution: ["set", "model", "output"],
  attention: ["set", "model"],
  classes: ["set", "model"],
  grid: ["set"],
  missing: ["set"],
  outline: [],
};

/** Choices out of the address: {set, model, prototype, shown: [..], low, high, output, layers: Map id -> opacity or null}. */
export function readChoices(state) {
  const ids = state.layers === undefined ? null : state.layers.split(",").filter((id) => id && id !== NONE);
  const opacity = (state.opacity ?? "").split(",").map((text) => Number(text) / 100);
  const shown = [...new Set((state.shown ?? "").split(",").map(whole).filter((one) => one !== null))];
  const layers = ids && new Map(ids.map((id, i) => [id, opacity[i] > 0 && opacity[i] <= 1 ? opacity[i] : usual(id, state.style)]));
  return {
    set: state.set,
    model: state.model,
    prototype: whole(state.prototype) ?? (layers?.has("posterior") ? (shown[0] ?? null) : null),
    shown,
    low: fraction(state.low),
    high: fraction(state.high),
    output: state.output,
    style: STYLES.some(([id]) => id === state.style) ? state.style : "auto",
    ground: GROUNDS.some(([id]) => id === state.ground) ? state.ground : "auto",
    layers,
  };
}

/** The same as texts for the address. */
export function writeChoices(choices) {
  const on = [...(choices.layers ?? [])];
  return {
    set: choices.set,
    model: choices.model,
    prototype: choices.prototype,
    shown: choices.shown.join(","),
    low: choices.low,
    high: choices.high,
    output: choices.output,
    style: choices.style === "auto" ? null : choices.style,
    ground: choices.ground === "auto" ? null : choices.ground,
    layers: choices.layers && (on.map(([id]) => id).join(",") || NONE),
    opacity: on.map(([, opacity]) => Math.round(100 * opacity)).join(","),
  };
}

/** Prototype that the posterior begins with: one that is shown alone goes before another that was chosen earlier. */
export function posteriorOf({ prototype, shown }) {
  return shown.length && !shown.includes(prototype) ? shown[0] : prototype;
}

/** Leave out prototypes that are not there, of `count`; returns a sentence about them, empty if they are not shown. */
export function dropAbsent(choices, count) {
  const away = (id) => count > 0 && id !== null && id >= count;
  const absent = choices.shown.filter(away);
  const posterior = away(choices.prototype) && choices.layers?.has("posterior");
  if (posterior && !absent.includes(choices.prototype)) absent.push(choices.prototype);
  const isolated = choices.shown.length > 0;
  choices.shown = choices.shown.filter((id) => !away(id));
  if (away(choices.prototype)) choices.prototype = choices.shown[0] ?? null;
  if (!absent.length) return "";
  const rest = choices.shown.length ? "the others that it names are shown" : "all are shown";
  const what = [isolated && rest, posterior && `the posterior is that of C${choices.prototype ?? 0}`].filter(Boolean).join(", ");
  return `This link refers to ${absent.map((id) => `C${id}`).join(", ")}, which ${absent.length > 1 ? "do" : "does"} not exist (C0 to C${count - 1} do); ${what}.`;
}

/** Opacity that a layer begins with: a fill alone must not hide the tissue. */
export function usual(id, style) {
  return OPACITY[id] ?? (style === "fill" ? FILLED : 1);
}

/** What a slide shows by default: the first layer that colours patches; without one, and without an image, their borders. */
export function usualLayers({ layers, image }) {
  const bare = image ? null : layers.find(({ id }) => id === "grid");
  const first = layers.find(({ id }) => id === "prototypes") ?? layers.find(({ id }) => !LINES.includes(id)) ?? bare;
  const missing = layers.find(({ id }) => id === "missing");
  return new Map([first, missing].filter(Boolean).map(({ id }) => [id, usual(id)]));
}

/** Query of a layer's tiles. */
export function query(id, choices, version) {
  const all = { ...choices, shown: choices.shown.join(",") };
  return { ...Object.fromEntries((ASKS[id] ?? Object.keys(all)).map((name) => [name, all[name]])), layers: undefined, style: undefined, ground: undefined, v: version };
}

/** Layers for DeepZoom: those that are on and that the slide has, lines on top. */
export function overlays(slide, choices, version, edits) {
  const order = slide.layers.map(({ id }) => id).sort((a, b) => LINES.includes(a) - LINES.includes(b));
  return order
    .filter((id) => choices.layers?.has(id))
    .flatMap((id) => {
      const start = path(["layers", slide.name, id]);
      const [, end = ""] = path([""], { ...query(id, choices, version), e: LINES.includes(id) ? edits : undefined }).split("?");
      const layer = (style, more) => ({
        id, opacity: choices.layers.get(id), ...more,
        // lines are one pixel wide: made smaller without smoothing some would vanish
        smooth: LINES.includes(id) || style !== "fill",
        address: (z, x, y) => `${start}/${z}/${x}/${y}.png?${style === "fill" ? "" : `style=${styleAt(slide, { style }, z)}&`}${end}`,
      });
      if (slide.layers.find((one) => one.id === id).kind !== "categories") return [layer("fill")];
      return choices.style === "lens" ? [layer("outline"), layer("fill", { id: `${id}-lens`, opacity: FILLED, lens: true })] : [layer(choices.style ?? "auto")];
    });
}

/** Style of regions in tiles of a level. */
export function styleAt(slide, { style }, z) {
  if (style === "lens") return "outline";
  return style && style !== "auto" ? style : isFine(slide, z) ? "outline" : "light";
}

function isFine({ mpp, zooms }, z) {
  return (mpp ?? 0.5) * 2 ** (zooms - 1 - z) <= FINE;
}

/** What the slide looks like below its layers: ground(z) is "colour", "grey" or "none". */
export function groundOf(slide, choices) {
  const covered = slide.layers.some(({ id, kind }) => kind !== "lines" && choices.layers?.has(id));
  const detailed = ["outline", "lens"].includes(choices.style) || !covered;
  return (z) => (choices.ground && choices.ground !== "auto" ? choices.ground : detailed || (isFine(slide, z) && choices.style === "auto") ? "colour" : "grey");
}

/** Addresses of the slide's own tiles; null without an image. */
export function baseTiles(slide) {
  const start = path(["tiles", slide.name]);
  return slide.image ? (z, x, y) => `${start}/${z}/${x}/${y}.jpg` : null;
}

/** 3 of "3" or "C3"; null of anything else. */
export function whole(text) {
  return /^C?\d{1,6}$/.test(text ?? "") ? Number(text.replace("C", "")) : null;
}

function fraction(text) {
  const value = Number(text);
  return text && Number.isFinite(value) ? value : null;
}
