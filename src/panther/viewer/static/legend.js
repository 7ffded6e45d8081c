// Prototypes of a slide with their names, colours and shares; a click isolates one, with shift or ctrl several.
import { link } from "./address.js";
import { el, show } from "./dom.js";
import { named, swatch } from "./layer_controls.js";

/** Show the legend. `prototypes`: [{id, name, colour}], `weights`: shares or null, `isolate(ids)` when others are chosen, null without a map. */
export function legend(place, { slide, prototypes, weights, shown, set, sort }, { isolate, resort }) {
  const most = Math.max(...(weights ?? []), 1e-9);
  const share = (id) => weights?.[id] ?? 0;
  const rows = [...prototypes].sort((a, b) => (sort === "share" ? share(b.id) - share(a.id) : a.id - b.id));
  show(
    place,
    el(
      "div",
      { class: "line" },
      el("h2", {}, "Prototypes"),
      el("span", { class: "spring" }),
      shown.length > 0 && el("button", { class: "small", onclick: () => isolate([]) }, "Show all"),
      weights && el("button", { class: "small quiet", title: "Sort by share or by number", onclick: () => resort(sort === "share" ? "number" : "share") }, sort === "share" ? "by share ↓" : "by number ↓"),
    ),
    el("ul", { class: "legend", "aria-label": "Prototypes; choose to isolate" }, rows.map(row)),
    isolate && rows.length > 1 && el("p", { class: "faint hint" }, shown.length ? isolatedText(shown, prototypes) : "Click isolates one, with Shift or Ctrl several."),
  );

  function row({ id, name, colour }) {
    const isolated = shown.includes(id);
    const text = named(id, name);
    const content = [swatch(colour, true), el("span", { class: "name" }, text), weights && el("span", { class: "share" }, percent(share(id))), weights && bar(share(id) / most, colour)];
    const more = el("a", { class: "more", href: link({ page: "prototypes", prototype: id, slide, set }), "aria-label": `More about ${text}`, title: "More about this prototype" }, "›");
    if (!isolate) return el("li", {}, el("div", { class: "row" }, content), more);
    return el(
      "li",
      { class: shown.length && !isolated ? "away" : "" },
      el(
        "button",
        {
          "aria-pressed": String(isolated),
          "data-prototype": String(id),
          title: `${text}: ${isolated ? "shown alone" : "show alone"}`,
          onclick: (event) => isolate(chosen(id, event.shiftKey || event.ctrlKey || event.metaKey)),
        },
        content,
      ),
      more,
    );
  }

  function chosen(id, several) {
    const rest = shown.filter((other) => other !== id);
    if (several) return shown.includes(id) ? rest : [...shown, id].sort((a, b) => a - b);
    return shown.includes(id) && !rest.length ? [] : [id];
  }
}

/** A bar of a share between 0 and 1. */
export function bar(part, colour) {
  const inner = el("i", {});
  inner.style.width = `${Math.max(0, Math.min(100, 100 * part))}%`;
  if (colour) inner.style.background = colour;
  return el("span", { class: "bar" }, inner);
}

export function percent(part) {
  const value = 100 * part;
  return value > 0 && value < 0.1 ? "<0.1%" : `${value.toFixed(value < 10 ? 1 : 0)}%`;
}

function isolatedText(shown, prototypes) {
  const names = shown.map((id) => named(id, prototypes.find((one) => one.id === id)?.name));
  return `Only ${names.join(", ")} ${names.length > 1 ? "are" : "is"} shown.`;
}
