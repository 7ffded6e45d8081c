// One patch: its picture, which prototypes it belongs to, how typical it is, and patches like it.
import { link } from "./address.js";
import { get, path } from "./api.js";
import { el, show } from "./dom.js";
import { named, swatch } from "./layer_controls.js";
import { bar, percent } from "./legend.js";
import { coordinates } from "./scale_bar.js";

const PICTURE = 320; // pixels; the patch at full resolution, never enlarged by the server
const ALIKE = 12;
const LINGER = 500; // ms that a patch is looked at before the whole cohort is searched

/** Show patch `n`. `about`: {slide, image, set, prototypes, places}; `close` and `turn` (to the layers) are called by its buttons. Returns what stops it. */
export function patchPanel(place, n, about, { close, turn }) {
  const stop = new AbortController();
  const facts = el("div", { class: "facts" }, el("p", { class: "faint" }, "…"));
  const here = alikeSection("Most like it in this slide");
  const cohort = alikeSection("Most like it in the cohort");
  const picture = about.image && pictureOf(about.slide, n, PICTURE, `Patch ${n} of ${about.slide}`);
  show(
    place,
    el("div", { class: "line" }, el("h2", {}, `Patch ${n}`), el("span", { class: "spring" }), el("button", { class: "small turn", onclick: turn }, "Layers"), el("button", { class: "small quiet", "aria-label": "Close the patch", title: "Close (Esc)", onclick: close }, "×")),
    el("div", { class: "portrait" }, picture || el("p", { class: "faint" }, "There is no image of this slide."), about.places && where(about, n)),
    facts,
    here.node,
    cohort.node,
  );
  load();
  return () => stop.abort();

  async function load() {
    const how = { signal: stop.signal };
    const options = { set: about.set };
    const parts = ["slides", about.slide, "patches", n];
    const missing = await filled(facts, async () => describe(await get(parts, options, how), about));
    if (missing) return show(here.list), show(cohort.list);
    await filled(here.list, async () => alike(await get([...parts, "similar"], { ...options, where: "slide", k: ALIKE }, how), about));
    await new Promise((done) => setTimeout(done, LINGER));
    if (!stop.signal.aborted) {
      await filled(cohort.list, async () => alike(await get([...parts, "similar"], { ...options, where: "cohort", k: ALIKE }, how), about));
    }
  }

  /** Fill a place; a refusal is told there, once. */
  async function filled(target, make) {
    try {
      const content = await make();
      if (!stop.signal.aborted) show(target, content);
      return false;
    } catch (error) {
      if (error.name !== "AbortError" && !stop.signal.aborted) show(target, el("p", { class: "faint" }, error.message));
      return true;
    }
  }
}

function where({ places, mpp }, n) {
  const { x, y } = places.middle(n);
  return el("p", { class: "faint" }, `middle at ${coordinates(x, y, mpp)}`);
}

function describe(patch, { prototypes }) {
  const rows = (patch.posterior ?? []).map((value, id) => ({ id, value, ...prototypes.find((one) => one.id === id) }));
  rows.sort((a, b) => b.value - a.value);
  const large = rows.filter(({ value }, i) => i < 3 || value >= 0.005);
  const rest = rows.length - large.length;
  return [
    typicality(patch, prototypes),
    rows.length > 0 && el("h3", {}, "Posterior"),
    el(
      "ul",
      { class: "legend" },
      large.map(({ id, name, colour, value }) =>
        el("li", {}, el("div", { class: "row" }, swatch(colour), el("span", { class: "name" }, named(id, name)), el("span", { class: "share" }, percent(value)), bar(value, colour))),
      ),
    ),
    rest > 0 && el("p", { class: "faint hint" }, `${rest} others are below 0.5%.`),
    (patch.notes ?? []).map((note) => el("p", { class: "faint" }, note)),
  ];
}

function typicality({ prototype, distance, typical, nearest }, prototypes) {
  if (prototype === null || prototype === undefined) return null;
  const called = (id) => named(id, prototypes.find((one) => one.id === id)?.name);
  const far = distance === null || distance === undefined ? "" : ` Distance ${Number(distance.toPrecision(3))}.`;
  const how = typical === null || typical === undefined ? "" : ` Closer to it than ${Math.round(100 * typical)}% of its patches.`;
  const other = nearest && nearest.prototype !== prototype ? ` ${called(nearest.prototype)} lies nearer, at ${Number(nearest.distance?.toPrecision(3))}.` : "";
  return el("p", {}, "Belongs to ", el("strong", {}, called(prototype)), ".", el("span", { class: "faint" }, `${how}${far}${other}`));
}

function alikeSection(title) {
  const list = el("div", { class: "alike" }, el("p", { class: "faint" }, "Searching …"));
  return { node: el("section", {}, el("h3", {}, title), list), list };
}

function alike({ patches, notes }, { set }) {
  return [
    patches.length ? patches.map((one) => tile(one, set)) : el("p", { class: "faint" }, "None was found."),
    (notes ?? []).map((note) => el("p", { class: "faint note" }, note)),
  ];
}

function tile({ slide, patch, similarity, picture }, set) {
  const text = `${slide}, patch ${patch}, similarity ${similarity.toFixed(2)}`;
  return el(
    "a",
    { href: link({ page: "slide", slide, patch, set }), title: text, "aria-label": text },
    picture ? pictureOf(slide, patch, 96, "") : el("span", { class: "no-picture" }, slide),
    el("span", { class: "faint" }, similarity.toFixed(2)),
  );
}

function pictureOf(slide, n, size, alt) {
  const image = el("img", { src: path(["tiles", slide, "patch", `${n}.jpg`], { size }), alt, loading: "lazy", decoding: "async" });
  image.addEventListener("error", () => image.replaceWith(el("span", { class: "no-picture" }, "no picture")));
  return image;
}
