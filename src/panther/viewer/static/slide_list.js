// Slides to choose from, with thumbnail, label, prediction, shares and marks; only the rows in sight exist, so that thousands are as quick as ten.
import { get, path, post } from "./api.js";
import { choice, el, message, show } from "./dom.js";
import { isColour } from "./layer_controls.js";

const ROW = 58; // CSS pixels, as in slide.css
const SPARE = 6; // rows drawn above and below
const CALM = 90; // ms without scrolling after which pictures are fetched
const ORDERS = [["name", "Name"], ["label", "Label"], ["certainty", "Least certain"], ["flag", "Flagged"], ["seen", "Not seen"]];
const FILTERS = [["", "All"], ["flag", "Flagged"], ["unseen", "Not seen"], ["wrong", "Errors"]];

/** Put the list into `place`; `onOpen(name)` when one is chosen. Returns {mark(name), search(), step(by), flag(), close()}. */
export function slideList(place, slides, onOpen) {
  const [somePictures, someFeatures] = [slides.some(({ image }) => image), slides.some(({ features }) => features)];
  let about = new Map(slides.map(({ name }) => [name, {}])); // label, predicted, certainty, pi
  let marks = {};
  let colours = [];
  let found = slides;
  let order = "name";
  let only = "";
  let current = null; // name of the open slide
  let active = 0; // row that the keyboard is on
  let calm = 0;
  let drawn = new Map(); // index -> its row

  const input = el("input", { type: "search", placeholder: "Find a slide  /", "aria-label": "Find a slide", autocomplete: "off", spellcheck: "false" });
  const count = el("span", { class: "faint count", role: "status" });
  const rows = el("div", { class: "rows" });
  const list = el("div", { class: "slides", role: "listbox", tabindex: "0", "aria-label": "Slides" }, rows);
  const sorting = choice(ORDERS, order, (next) => ((order = next), filter()), { "aria-label": "Sort slides by" });
  const showing = choice(FILTERS, only, (next) => ((only = next), filter()), { "aria-label": "Show slides" });
  show(place, el("div", { class: "find" }, input, count), el("div", { class: "find" }, sorting, showing), list);
  load();

  async function load() {
    const read = await get(["slides"]).catch(() => null); // the list works without
    if (!read) return;
    about = new Map(read.slides.map((row) => [row.name, row]));
    ({ marks, colours } = read);
    filter();
  }

  function draw(anew = false) {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
    const last = Math.min(found.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
    rows.style.height = `${found.length * ROW}px`;
    const kept = new Map();
    for (let at = first; at < last; at++) kept.set(at, (!anew && drawn.get(at)) || row(found[at], at));
    for (const [at, node] of drawn) if (kept.get(at) !== node) node.remove();
    for (const [at, node] of kept) if (!node.isConnected) rows.append(node);
    drawn = kept;
    for (const [at, node] of drawn) node.classList.toggle("active", at === active);
    if (found.length) list.setAttribute("aria-activedescendant", `slide-row-${active}`);
    else list.removeAttribute("aria-activedescendant");
    clearTimeout(calm);
    calm = setTimeout(pictures, CALM);
  }

  /** Fetch the pictures of the rows in sight: what is scrolled past is not asked for. */
  function pictures() {
    for (const node of rows.querySelectorAll("img:not([src])")) node.src = node.dataset.src;
  }

  function row(slide, index) {
    const { label, predicted, certainty, pi } = about.get(slide.name) ?? {};
    const missing = somePictures && !slide.image ? "no image" : someFeatures && !slide.features ? "no features" : "";
    // names are long: beside them stands only what they do not say, or what is not so for all slides
    const patient = slide.patient && !slide.name.startsWith(slide.patient) ? slide.patient : "";
    const wrong = label != null && predicted != null && label !== predicted;
    const { seen, flag } = marks[slide.name] ?? {};
    const judged = predicted == null ? null : el("span", { class: wrong ? "wrong" : null }, `${label === predicted ? "✓" : `${wrong ? "✕" : "→"} ${predicted}`} ${Math.round(100 * certainty)} %`);
    const picture = slide.image ? el("img", { alt: "", draggable: false, "data-src": path(["tiles", slide.name, "thumbnail.jpg"]) }) : el("span", { class: "blank" });
    picture.addEventListener("error", () => picture.removeAttribute("src"));
    return el(
      "div",
      {
        id: `slide-row-${index}`,
        class: seen ? "slide-row seen" : "slide-row",
        role: "option",
        "aria-selected": String(slide.name === current),
        title: [slide.name, slide.patient && `patient ${slide.patient}`, missing, seen ? "seen" : "not seen", flag && "flagged"].filter(Boolean).join(", "),
        style: { top: `${index * ROW}px` },
        onclick: () => choose(index),
      },
      picture,
      el("span", { class: "name" }, slide.name),
      el("span", { class: "flag", "aria-hidden": "true" }, flag ? "⚑" : ""),
      el("span", { class: "faint more" }, [missing || patient, label].filter(Boolean).join(" "), judged && " ", judged),
      pi && stacked(pi),
    );
  }

  /** Shares of the prototypes as one bar. */
  function stacked(pi) {
    const parts = [];
    pi.forEach((part, c) => {
      if (part >= 0.005) parts.push(el("i", { style: { width: `${100 * part}%`, background: isColour(colours[c]) ? colours[c] : "var(--faint)" } }));
    });
    return el("span", { class: "pi" }, parts);
  }

  function filter() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const of = ({ name }) => about.get(name) ?? {};
    const mark = ({ name }) => marks[name] ?? {};
    const kinds = { flag: (one) => mark(one).flag, unseen: (one) => !mark(one).seen, wrong: (one) => of(one).predicted != null && of(one).label != null && of(one).label !== of(one).predicted };
    const text = (one) => `${one.name} ${one.patient ?? ""} ${of(one).label ?? ""} ${of(one).predicted ?? ""}`.toLowerCase();
    found = slides.filter((one) => (!only || kinds[only](one)) && (!words.length || words.every((word) => text(one).includes(word))));
    const by = { label: (one) => of(one).label ?? "~", certainty: (one) => of(one).certainty ?? 2, flag: (one) => !mark(one).flag, seen: (one) => Boolean(mark(one).seen) }[order];
    if (by) found = [...found].sort((a, b) => (by(a) < by(b) ? -1 : Number(by(a) > by(b))));
    active = Math.max(0, found.findIndex(({ name }) => name === current));
    count.textContent = found.length < slides.length ? `${found.length} of ${slides.length}` : `${slides.length}`;
    list.scrollTop = 0;
    reveal(true);
  }

  function reveal(anew = false) {
    const top = active * ROW;
    if (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
    draw(anew);
  }

  function move(by) {
    active = Math.max(0, Math.min(found.length - 1, active + by));
    reveal();
  }

  function choose(index) {
    active = index;
    if (found[index]) onOpen(found[index].name);
    draw();
  }

  /** Save a mark of a slide, at once. */
  async function save(name, change) {
    try {
      ({ marks } = await post(["slides", name, "mark"], change));
      draw(true);
    } catch (error) {
      if (change.flag !== undefined) message(error.message, "marks"); // a folder that cannot be written needs no message for every slide
    }
  }

  const flag = (name) => name && save(name, { flag: !marks[name]?.flag });

  function keys(event) {
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const does = {
      ArrowDown: () => move(1),
      ArrowUp: () => move(-1),
      PageDown: () => move(page),
      PageUp: () => move(-page),
      Enter: () => choose(active),
      f: event.target === list ? () => flag(found[active]?.name) : null,
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }

  input.addEventListener("input", filter);
  input.addEventListener("keydown", keys);
  list.addEventListener("keydown", keys);
  list.addEventListener("scroll", () => draw(), { passive: true });
  const sized = new ResizeObserver(() => draw());
  sized.observe(list);
  filter();

  return {
    mark(name) {
      current = name;
      active = Math.max(0, found.findIndex((slide) => slide.name === name));
      reveal(true);
      if (!marks[name]?.seen) save(name, { seen: true });
    },
    search() {
      input.focus();
      input.select();
    },
    /** The next slide of those found, or the one before. */
    step(by) {
      const at = found.findIndex(({ name }) => name === current);
      const next = found[at + by];
      if (next) onOpen(next.name);
    },
    flag: () => flag(current),
    close: () => (clearTimeout(calm), sized.disconnect()),
  };
}
