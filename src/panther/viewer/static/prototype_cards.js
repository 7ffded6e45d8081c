// All prototypes as cards: typical patches at one scale, name, share. Several may have one name or group.
import { link } from "./address.js";
import { choice, el, field, show } from "./dom.js";
import { bar, percent } from "./legend.js";
import { swatch } from "./layer_controls.js";
import { pageKeys } from "./keys.js";
import { patchLink, patchPicture } from "./patch_picture.js";
import { micrometres, roundLength } from "./scale_bar.js";

const ORDERS = [["number", "Number"], ["share", "Share"], ["group", "Group"]];

export function prototypeCards(place, { names, state, contents, change, address }) {
  const pictured = new Set(contents.slides.filter(({ image }) => image).map(({ name }) => name));
  const chosen = new Set();
  const group = el("input", { type: "text", list: "groups-known", maxLength: 100, placeholder: "e.g. stroma" });
  const name = el("input", { type: "text", list: "names-known", maxLength: 200, placeholder: "e.g. tumour, solid", autocomplete: "off" });
  const known = el("datalist", { id: "groups-known" });
  const titles = el("datalist", { id: "names-known" });
  const joining = el("div", { class: "joining" }, el("span", { class: "count" }), field("One name", name), el("button", { onclick: () => join({ name: name.value }) }, "Merge"), field("Group", group), el("button", { onclick: () => join({ group: group.value }) }, "Group"), known);
  const bar_ = el("div", { class: "cards-bar" });
  const grid = el("div", { class: "cards" });
  let overview = null;
  let order = ORDERS.some(([id]) => id === state.order) ? state.order : "number";
  show(place, bar_, grid, titles);
  const keys = pageKeys([["n", "name the next prototype without a name"], ["Enter", "save the name and go on"], ["?", "these keys"]], (event) => event.key === "n" && (next(), true));
  draw();
  return { update, named: draw, next, close: () => keys.close() };

  function update(found) {
    overview = found;
    draw();
  }

  function draw() {
    const focus = document.activeElement?.dataset?.card;
    const typed = focus?.startsWith("n") ? document.activeElement.value : null;
    show(
      bar_,
      field("Order", choice(ORDERS, order, (next) => { order = next; change({ order: next }); draw(); })),
      names.editable && joining,
    );
    known.replaceChildren(...names.groups.map((one) => el("option", { value: one })));
    titles.replaceChildren(...[...new Set(names.state.prototypes.map(({ name }) => name).filter(Boolean))].map((one) => el("option", { value: one })));
    marked();
    show(grid, sorted().map(card));
    const again = focus !== undefined && grid.querySelector(`[data-card="${focus}"]`);
    if (again) again.focus();
    if (again && typed !== null) again.value = typed; // what is being written stays
  }

  function sorted() {
    const rows = [...names.state.prototypes];
    const share = ({ prototype }) => overview?.prototypes[prototype]?.share ?? 0;
    if (order === "share") rows.sort((a, b) => share(b) - share(a));
    if (order === "group") rows.sort((a, b) => !a.group - !b.group || a.group.localeCompare(b.group) || a.prototype - b.prototype);
    return rows;
  }

  function card(one) {
    const found = overview?.prototypes[one.prototype] ?? {};
    const most = Math.max(...(overview?.prototypes.map(({ share }) => share ?? 0) ?? []), 1e-9);
    const tick = el("input", { type: "checkbox", checked: chosen.has(one.prototype), "aria-label": `Choose ${one.title}`, "data-card": `t${one.prototype}` });
    tick.addEventListener("change", () => {
      if (tick.checked) chosen.add(one.prototype);
      else chosen.delete(one.prototype);
      marked();
    });
    const typical = found.typical ?? [];
    const pictures = typical.map((patch) =>
      patchLink(patch, pictured.has(patch.slide), state.set, { title: `Patch ${patch.patch} of ${patch.slide}` }, patchPicture(patch, pictured.has(patch.slide), 128, `Patch ${patch.patch} of ${patch.slide}`)),
    );
    const none = overview && !overview.running ? "No patch has this as its main prototype." : "…";
    const more = link(address({ prototype: one.prototype }));
    return el(
      "article",
      { class: "card", style: { borderTopColor: one.colour } },
      el("div", { class: "typical" }, pictures.length ? [pictures, scale()] : el("span", { class: "no-picture" }, none)),
      el(
        "div",
        { class: "card-text" },
        el("h2", {}, swatch(one.colour), el("a", { href: more, title: `More about ${one.title}`, "data-card": `p${one.prototype}` }, `C${one.prototype}`), names.editable ? named(one) : el("span", {}, one.name), names.editable && tick),
        el("div", { class: "card-share" }, bar((found.share ?? 0) / most, one.colour), el("span", {}, found.share == null ? "" : interval(found))),
        el("p", { class: "faint", title: one.note }, [one.group && el("span", { class: "group" }, one.group), one.note]),
      ),
    );
  }

  /** All patches are shown at one scale: one bar for three of them in a row. */
  function scale() {
    if (!overview?.um) return null;
    const length = roundLength(overview.um);
    return el("span", { class: "typical-scale" }, el("i", { style: { width: `${(100 / 3) * (length / overview.um)}%` } }), micrometres(length));
  }

  /** Name to be written over; Enter saves it and goes to the next prototype without one. */
  function named(one) {
    const input = el("input", { type: "text", class: "card-name", value: one.name, maxLength: 200, placeholder: "unnamed", autocomplete: "off", list: "names-known", "aria-label": `Name of C${one.prototype}`, "data-card": `n${one.prototype}` });
    input.addEventListener("change", () => names.change(one.prototype, { name: input.value }));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") input.value = one.name;
      if (event.key !== "Enter") return;
      event.preventDefault();
      input.blur();
      next(one.prototype);
    });
    return input;
  }

  /** Go to the name of the next prototype that has none. */
  function next(after = -1) {
    const inputs = [...grid.querySelectorAll(".card-name")];
    const from = inputs.findIndex((input) => input.dataset.card === `n${after}`) + 1;
    const target = [...inputs.slice(from), ...inputs.slice(0, from)].find((input) => !input.value);
    target?.focus();
    target?.scrollIntoView({ block: "nearest" });
  }

  function marked() {
    joining.hidden = !chosen.size;
    joining.querySelector(".count").textContent = `${chosen.size} chosen`;
  }

  /** Give all that are chosen one name, and so one colour, or one group. */
  async function join(fields) {
    for (const prototype of [...chosen]) {
      if (!(await names.change(prototype, fields))) return;
      chosen.delete(prototype);
    }
    draw();
  }
}

/** "12.3% (10.1 to 14.9)" */
export function interval({ share, low, high }) {
  const limits = low == null || high == null ? "" : ` (${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)})`;
  return `${percent(share)}${limits}`;
}
