// Slides to choose from: filtered while one types; only the rows in sight exist, so that thousands are as quick as ten.
import { el, show } from "./dom.js";

const ROW = 34; // CSS pixels, as in slide.css
const SPARE = 6; // rows drawn above and below

/** Put the list into `place`; `onOpen(name)` when one is chosen. Returns {mark(name), search(), step(by)}. */
export function slideList(place, slides, onOpen) {
  const texts = slides.map(({ name, patient }) => `${name} ${patient ?? ""}`.toLowerCase());
  const [somePictures, someFeatures] = [slides.some(({ image }) => image), slides.some(({ features }) => features)];
  let found = slides;
  let current = null; // name of the open slide
  let active = 0; // row that the keyboard is on

  const input = el("input", { type: "search", placeholder: "Find a slide  /", "aria-label": "Find a slide", autocomplete: "off", spellcheck: "false" });
  const count = el("span", { class: "faint count", role: "status" });
  const rows = el("div", { class: "rows" });
  const list = el("div", { class: "slides", role: "listbox", tabindex: "0", "aria-label": "Slides" }, rows);
  show(place, el("div", { class: "find" }, input, count), list);

  function draw() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
    const last = Math.min(found.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
    rows.style.height = `${found.length * ROW}px`;
    show(rows, found.slice(first, last).map((slide, i) => row(slide, first + i)));
    if (found.length) list.setAttribute("aria-activedescendant", `slide-row-${active}`);
    else list.removeAttribute("aria-activedescendant");
  }

  function row(slide, index) {
    const what = somePictures && !slide.image ? "no image" : someFeatures && !slide.features ? "no features" : "";
    // names are long: beside them stands only what they do not say, or what is not so for all slides
    const patient = slide.patient && !slide.name.startsWith(slide.patient) ? slide.patient : "";
    return el(
      "div",
      {
        id: `slide-row-${index}`,
        class: index === active ? "slide-row active" : "slide-row",
        role: "option",
        "aria-selected": String(slide.name === current),
        title: [slide.name, slide.patient && `patient ${slide.patient}`, what].filter(Boolean).join(", "),
        style: { top: `${index * ROW}px` },
        onclick: () => choose(index),
      },
      el("span", { class: "name" }, slide.name),
      el("span", { class: "faint more" }, what || patient),
    );
  }

  function filter() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length ? slides.filter((_, i) => words.every((word) => texts[i].includes(word))) : slides;
    active = Math.max(0, found.findIndex(({ name }) => name === current));
    count.textContent = words.length ? `${found.length} of ${slides.length}` : `${slides.length}`;
    list.scrollTop = 0;
    reveal();
  }

  function reveal() {
    const top = active * ROW;
    if (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
    draw();
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

  function keys(event) {
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const does = {
      ArrowDown: () => move(1),
      ArrowUp: () => move(-1),
      PageDown: () => move(page),
      PageUp: () => move(-page),
      Enter: () => choose(active),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }

  input.addEventListener("input", filter);
  input.addEventListener("keydown", keys);
  list.addEventListener("keydown", keys);
  list.addEventListener("scroll", draw, { passive: true });
  const sized = new ResizeObserver(draw);
  sized.observe(list);
  filter();

  return {
    mark(name) {
      current = name;
      active = Math.max(0, found.findIndex((slide) => slide.name === name));
      reveal();
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
    close: () => sized.disconnect(),
  };
}
