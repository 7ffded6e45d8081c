// What lies beside what on this slide: sentences and, of a prototype that is shown alone, everything it borders on.
import { el, show } from "./dom.js";
import { named, swatch } from "./layer_controls.js";
import { percent } from "./legend.js";

const NOTHING = "No two prototypes lie clearly together or apart on this slide.";
const FEW = 0.005; // share of a border that is not worth a line

/** Show the panel. `found`: what the server says or null, `prototypes`: [{id, name, colour}], `shown`: those that are isolated. */
export function neighbours(place, found, prototypes, shown) {
  const one = shown.length === 1 ? shown[0] : null;
  const lines = one === null ? [] : (found?.rows[one] ?? []).filter(({ border }) => border > FEW).sort((a, b) => b.border - a.border);
  const sentences = found?.sentences ?? [];
  if (!(found?.rows.length > 1)) return show(place);
  show(
    place,
    el("h2", {}, "Neighbouring prototypes"),
    lines.length ? borders(one, lines, prototypes) : (sentences.length ? sentences : [NOTHING]).map((sentence) => el("p", { class: "statement" }, sentence)),
    !lines.length && el("p", { class: "faint hint" }, "Isolate a prototype to see what it borders on."),
  );
}

function borders(one, lines, prototypes) {
  const of = (id) => prototypes.find((other) => other.id === id) ?? { id, name: `C${id}`, colour: null };
  const title = named(one, of(one).name);
  const head = ["borders on", "share of border", "contacts vs chance", "patches inside"].map((text) => el("th", { scope: "col" }, text));
  const rows = lines.map(({ prototype, border, times, inside }) => {
    const other = of(prototype);
    const text = named(prototype, other.name);
    return el("tr", {}, el("th", { scope: "row" }, swatch(other.colour), " ", text), el("td", {}, percent(border)), el("td", {}, times === null ? "" : `${times.toFixed(1)} ×`), el("td", {}, percent(inside)));
  });
  return [
    el("table", { class: "borders", "aria-label": `What ${title} borders on` }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)),
    el("p", { class: "faint hint" }, `Share of the border of ${title}; contacts as a multiple of chance; share of its patches that lie inside the other.`),
  ];
}
