// One prototype: what it is called, what it looks like, where it lies, who has it, what it is next to, what it predicts.
import { go, link } from "./address.js";
import { get } from "./api.js";
import { chart } from "./chart.js";
import { DeepZoom } from "./deepzoom.js";
import { choice, el, field, show } from "./dom.js";
import { percent } from "./legend.js";
import { swatch } from "./layer_controls.js";
import { nameEditor } from "./naming.js";
import { baseTiles, groundOf, overlays } from "./overlays.js";
import { patchLink, patchPicture } from "./patch_picture.js";
import { interval } from "./prototype_cards.js";
import { number, table } from "./table.js";

const KINDS = [
  ["nearest", "Typical", "nearest to the prototype, different patients first"],
  ["borderline", "Borderline", "nearly as close to another prototype"],
  ["farthest", "Atypical", "assigned patches farthest from the prototype"],
  ["random", "At random", "a random sample of its patches"],
];
const PICTURE = 224; // pixels
const LABELS = { who: "Shares of the prototype over patients", survival: "Survival by share of the prototype" }; // of charts

export function prototypeDetail(place, prototype, { names, state, contents, change, address }) {
  const pictured = new Set(contents.slides.filter(({ image }) => image).map(({ name }) => name));
  const title = el("h1", {});
  const share = el("p", { class: "faint" });
  const editor = nameEditor(names, prototype);
  const looks = section("What it looks like");
  const where = section("Where it lies");
  const who = section("Who has it");
  const survival = section("Survival");
  const beside = section("What it is next to");
  const predicts = section("What it predicts");
  const map = mapOf(where.body);
  const seen = {};
  let ends = {};
  let found = null;

  show(
    place,
    el("header", { class: "prototype-head" }, el("div", {}, title, share), editor.node),
    looks.node,
    el("div", { class: "sections" }, where.node, who.node, survival.node, beside.node, predicts.node),
  );
  head();
  map.open(state.slide ?? (contents.slides.find(({ image, features }) => image && features) ?? contents.slides[0])?.name);

  return { update, named, close };

  function section(text) {
    const body = el("div", { class: "section-body" }, el("p", { class: "faint" }, "…"));
    return { node: el("section", {}, el("h2", {}, text), body), body };
  }

  function close() {
    map.close();
    Object.values(ends).forEach((end) => end());
  }

  function named() {
    head();
    editor.update();
    seen.beside = null; // titles of others
    if (found) update(found.overview, found.one);
    map.repaint();
  }

  function head() {
    const one = names.of(prototype);
    show(title, swatch(one.colour), one.title);
    if (found?.one.share != null) {
      const { patches, slides } = found.one;
      share.textContent = `${interval(found.one)} of a patient's tissue on average, with its 95 % interval; ${patches.toLocaleString("en")} patches on ${slides} slides.`;
    }
  }

  function update(overview, one) {
    if (!one) return;
    found = { overview, one };
    head();
    part("looks", one.exemplars, () => exemplars(one));
    part("who", [one.groups, overview.columns], () => groups(one.groups, overview.columns));
    part("survival", one.survival, () => drawn(survival.body, "survival", one.survival, one.survival.figure && sentence(`Patients by its share (${one.survival.endpoint}): log-rank p ${p(one.survival.test.p)}, corrected over all prototypes ${p(one.survival.test.p_corrected)}.`)));
    part("beside", one.beside, () => neighbours(one.beside));
    part("predicts", one.predicts, () => predictions(one.predicts));
  }

  /** Drawn again only where something is new, so that reading and scrolling are not disturbed. */
  function part(name, data, draw) {
    const text = JSON.stringify(data);
    if (seen[name] === text) return;
    seen[name] = text;
    draw();
  }

  function exemplars(one) {
    const rows = KINDS.filter(([kind]) => one.exemplars[kind]?.length);
    const none = one.running ? "The slides are being read; patches appear as they are found." : "No patch has this as its main prototype.";
    show(
      looks.body,
      rows.length ? null : el("p", { class: "faint" }, none),
      rows.map(([kind, text, why]) =>
        el(
          "div",
          { class: "exemplars" },
          el("h3", {}, text, " ", el("span", { class: "faint" }, why)),
          el("div", { class: "strip" }, one.exemplars[kind].map(tile)),
        ),
      ),
    );
  }

  function tile(one) {
    const { slide, patch, patient, distance } = one;
    const words = `Patch ${patch} of ${slide}`;
    const about = [slide, patient !== slide && `patient ${patient}`, `distance ${number(distance, 3)}`].filter(Boolean).join("\n");
    return patchLink(
      one,
      pictured.has(slide),
      state.set,
      { title: about },
      patchPicture(one, pictured.has(slide), PICTURE, words),
      el("span", { class: "faint" }, slide),
    );
  }

  function groups(answer, columns) {
    const columnChoice = columns.length > 1 && field("Column", choice(columns.map((name) => [name, found.overview.titles[name]]), answer.column ?? state.column ?? columns[0], (column) => change({ column })));
    const test = answer.test;
    const testText = test && sentence(`${test.test}: p ${p(test.p)}, corrected over all prototypes ${p(test.p_corrected)}. Patients count once, however many slides they have.`);
    drawn(who.body, "who", answer, testText, columnChoice);
  }

  function drawn(body, name, answer, testText, columnChoice) {
    ends[name]?.();
    delete ends[name];
    const canvas = el("div", {});
    show(body, columnChoice, answer.figure ? canvas : el("p", { class: "faint" }, answer.why), testText, (answer.notes ?? []).map((note) => el("p", { class: "faint" }, note)));
    if (answer.figure) ends[name] = chart(canvas, answer.figure, { label: LABELS[name] });
  }

  function neighbours(rows) {
    ends.beside?.();
    delete ends.beside;
    const others = rows.filter((row) => row.prototype !== prototype && (row.log2 !== null || row.together !== null));
    const own = rows.find((row) => row.prototype === prototype);
    if (!others.length) return show(beside.body, el("p", { class: "faint" }, found?.one.running ? "…" : "There are no coordinates, or no other prototype, so nothing lies beside it."));
    const box = el("div", { class: "short-table" });
    const itself = own?.log2 != null ? ` Its own patches touch each other ${number(2 ** own.log2, 2)} times as often.` : "";
    show(beside.body, box, sentence(`How often patches of both touch, as a multiple of chance, and whether slides with much of one have much of the other (correlation of log-ratios).${itself}`));
    const columns = [
      { id: "prototype", title: "Prototype", cell: (c) => el("a", { href: link(address({ prototype: c })), class: "with-swatch" }, swatch(names.of(c).colour), names.of(c).title), format: (c) => names.of(c).title, width: 22 },
      { id: "log2", title: "Contacts vs chance", number: true, format: (value) => `${number(2 ** value, 2)} ×`, width: 20 },
      { id: "together", title: "Occurs with it", number: true, format: (value) => number(value, 2), width: 17 },
    ];
    ends.beside = table(box, columns, others, { sort: { id: "log2", descending: true }, label: "What it is next to" });
  }

  function predictions({ rows, why }) {
    ends.predicts?.();
    delete ends.predicts;
    if (!rows.length) return show(predicts.body, el("p", { class: "faint" }, why));
    const box = el("div", { class: "short-table" });
    show(predicts.body, box, sentence("Mean contribution over the cohort to the output; the rank is by size, among all prototypes."));
    const columns = [
      { id: "output", title: "Output", width: 16 },
      { id: "mean", title: "Mean", number: true, format: signed, width: 10 },
      { id: "size", title: "Size", number: true, format: (value) => number(value, 3), width: 9 },
      { id: "rank", title: "Rank", number: true, format: (value, row) => `${value} of ${row.of}`, width: 10 },
      { id: "from", title: "From", width: 13 },
    ];
    ends.predicts = table(box, columns, rows, { label: "What it predicts" });
  }

  /** The slide at hand under this prototype's posterior. */
  function mapOf(body) {
    const stage = el("div", { class: "small-map" });
    const facts = el("p", { class: "faint" });
    const chooser = el("div", { class: "map-bar" });
    let about = null;
    let zoom = null;
    let turn = 0;
    const slides = contents.slides.filter(({ features }) => features).map(({ name }) => name);

    async function open(name) {
      const current = ++turn;
      const here = link({ page: "slide", slide: name, set: state.set, prototype, layers: "posterior" });
      const choose = el("input", { type: "text", list: "slides-known", value: name ?? "", autocomplete: "off" });
      choose.addEventListener("change", () => slides.includes(choose.value) && go(address({ slide: choose.value })));
      show(chooser, field("Slide", choose), el("datalist", { id: "slides-known" }, slides.slice(0, 2000).map((value) => el("option", { value }))), name && el("a", { class: "button small", href: here }, "Open"));
      show(body, chooser, stage, facts);
      if (!name) return show(facts, "There is no slide.");
      try {
        about = await get(["slides", name], { set: state.set });
      } catch (error) {
        if (current === turn) show(facts, error.message);
        return;
      }
      if (current !== turn) return;
      const has = about.layers.some(({ id }) => id === "posterior");
      stage.hidden = !about.width;
      show(facts, about.weights ? `${percent(about.weights[prototype])} of this slide. ` : "", ...(has ? [] : about.notes.slice(0, 1)));
      if (!about.width) return;
      zoom ??= new DeepZoom(stage, {
        label: "Where the prototype lies in this slide",
        onClick: ({ x, y }) => go({ page: "slide", slide: about.name, set: state.set, prototype, layers: "posterior", x: Math.round(x), y: Math.round(y) }),
      });
      zoom.setSlide(about, baseTiles(about));
      repaint();
    }

    function repaint() {
      if (!zoom || !about) return;
      const choices = { set: state.set, prototype, shown: [], layers: new Map([["posterior", 0.85]]) };
      zoom.setLayers(overlays(about, choices, names.state.version), groundOf(about, choices));
    }

    return { open, repaint, close: () => { turn++; zoom?.close(); } };
  }
}

function sentence(text) {
  return el("p", { class: "faint" }, text);
}

/** p-value as people read it. */
function p(value) {
  if (value == null) return "is not defined";
  return value < 0.001 ? "< 0.001" : `= ${value.toFixed(3)}`;
}

function signed(value) {
  return value > 0 ? `+${number(value, 3)}` : number(value, 3);
}
