// One patch: its picture, which prototypes it belongs to, how typical it is, and patches like it.
import { link } from "./address.js";
import { get, lines } from "./api.js";
import { el, show } from "./dom.js";
import { named, swatch } from "./layer_controls.js";
import { bar, percent } from "./legend.js";
import { patchPicture } from "./patch_picture.js";
import { coordinates } from "./scale_bar.js";

const PICTURE = 320; // pixels; the patch at full resolution, never enlarged by the server
const SIMILAR = 12;
const OF_ONE = 3; // patches of one slide among those of the cohort, at most
const LINGER = 500; // ms that a patch is looked at before the whole cohort is searched

/** Show patch `n`. `about`: what the server says of the slide, and {slide, set, prototypes, places}; `close` and `turn` (to the layers) are called by its buttons. Returns what stops it. */
export function patchPanel(place, n, about, { close, turn }) {
  const stop = new AbortController();
  const facts = el("div", { class: "facts" }, el("p", { class: "faint" }, "…"));
  const here = similarSection("Most similar in this slide");
  const cohort = similarSection("Most similar in the cohort");
  const picture = about.image && patchPicture({ slide: about.slide, patch: n }, true, PICTURE, `Patch ${n} of ${about.slide}`);
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
    await filled(here.list, async () => similar(await lines([...parts, "similar"], { where: "slide", k: SIMILAR }, how, () => {}), about));
    await new Promise((done) => setTimeout(done, LINGER));
    if (!stop.signal.aborted) {
      const query = { where: "cohort", k: SIMILAR, per_slide: OF_ONE };
      await filled(cohort.list, async () => similar(await lines([...parts, "similar"], query, how, searching), about));
    }
  }

  function searching({ done, of }) {
    if (of > 1 && !stop.signal.aborted) show(cohort.list, el("p", { class: "faint" }, `Searching … ${done} of ${of} slides`));
  }

  /** Fill a place; an error is shown there, once. */
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

function where(about, n) {
  const { x, y } = about.places.middle(n);
  return el("p", { class: "faint" }, `middle at ${coordinates(x, y, about)}`);
}

function describe(patch, { prototypes }) {
  const rows = (patch.posterior ?? []).map((value, id) => ({ id, value, ...prototypes.find((one) => one.id === id) }));
  rows.sort((a, b) => b.value - a.value);
  const large = rows.filter(({ value }, i) => i < 1 || value >= 0.005);
  const small = rows.slice(large.length);
  const bars = (some) =>
    el(
      "ul",
      { class: "legend" },
      some.map(({ id, name, colour, value }) =>
        el("li", {}, el("div", { class: "row" }, swatch(colour), el("span", { class: "name" }, named(id, name)), el("span", { class: "share" }, percent(value)), bar(value, colour))),
      ),
    );
  return [
    typicality(patch, prototypes),
    rows.length > 0 && el("h3", {}, "Posterior"),
    bars(large),
    small.length > 0 && el("details", {}, el("summary", { class: "faint" }, `${small.length} others, each below 0.5%`), bars(small)),
    (patch.notes ?? []).map((note) => el("p", { class: "faint" }, note)),
  ];
}

function typicality({ prototype, distance, typical, nearest }, prototypes) {
  if (prototype === null || prototype === undefined) return null;
  const called = (id) => named(id, prototypes.find((one) => one.id === id)?.name);
  const far = distance === null || distance === undefined ? "" : ` Distance ${Number(distance.toPrecision(3))}.`;
  const how = typical === null || typical === undefined ? "" : ` Nearer to the prototype than ${Math.round(100 * typical)} % of the patches assigned to it.`;
  const other = nearest && nearest.prototype !== prototype ? ` ${called(nearest.prototype)} lies nearer, at ${Number(nearest.distance?.toPrecision(3))}.` : "";
  return el("p", {}, "Belongs to ", el("strong", {}, called(prototype)), ".", el("span", { class: "faint" }, `${how}${far}${other}`));
}

function similarSection(title) {
  const list = el("div", { class: "similar" }, el("p", { class: "faint" }, "Searching …"));
  return { node: el("section", {}, el("h3", {}, title), list), list };
}

function similar({ patches, notes, encoder, slides, seconds }, { set }) {
  const where = slides > 1 ? ` Of ${slides} slides, at most ${OF_ONE} patches each, in ${seconds.toFixed(1)} s.` : "";
  return [
    patches.length ? patches.map((one) => tile(one, set)) : el("p", { class: "faint" }, "None was found."),
    patches.length > 0 && el("p", { class: "faint hint about" }, `Cosine similarity of the features${encoder ? ` of ${encoder}` : ""}.${where}`),
    (notes ?? []).map((note) => el("p", { class: "faint note" }, note)),
  ];
}

function tile({ slide, patch, similarity, picture }, set) {
  const like = similarity?.toFixed(2) ?? "";
  const text = `${slide}, patch ${patch}, similarity ${like}`;
  return el(
    "a",
    { href: link({ page: "slide", slide, patch, set }), title: text, "aria-label": text },
    patchPicture({ slide, patch }, picture, 96, ""),
    el("span", { class: "faint" }, like),
  );
}
