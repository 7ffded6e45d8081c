// All prototypes as cards: a typical patch, name, share. Several may be put into one group.
import { link } from "./address.js";
import { choice, el, field, show } from "./dom.js";
import { bar, percent } from "./legend.js";
import { swatch } from "./layer_controls.js";
import { patchPicture } from "./patch_picture.js";

const ORDERS = [["number", "Number"], ["share", "Share"], ["group", "Group"]];

export function prototypeCards(place, { names, state, contents, change, address }) {
  const pictured = new Set(contents.slides.filter(({ image }) => image).map(({ name }) => name));
  const chosen = new Set();
  const group = el("input", { type: "text", list: "groups-known", maxLength: 100, placeholder: "e.g. stroma" });
  const apply = el("button", {}, "Put into this group");
  const known = el("datalist", { id: "groups-known" });
  const joining = el("form", { class: "joining", onsubmit: join }, el("span", { class: "count" }), field("Group", group), apply, known);
  const bar_ = el("div", { class: "cards-bar" });
  const grid = el("div", { class: "cards" });
  let overview = null;
  let order = ORDERS.some(([id]) => id === state.order) ? state.order : "number";
  show(place, bar_, grid);
  draw();
  return { update, named: draw, close: () => {} };

  function update(found) {
    overview = found;
    draw();
  }

  function draw() {
    const focus = document.activeElement?.dataset?.card;
    show(
      bar_,
      field("Order", choice(ORDERS, order, (next) => { order = next; change({ order: next }); draw(); })),
      names.editable && joining,
    );
    known.replaceChildren(...names.groups.map((one) => el("option", { value: one })));
    marked();
    show(grid, sorted().map(card));
    if (focus !== undefined) grid.querySelector(`[data-card="${focus}"]`)?.focus();
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
    const picture = found.exemplar
      ? patchPicture(found.exemplar, pictured.has(found.exemplar.slide), 224, `Typical patch of ${one.title}`)
      : el("span", { class: "no-picture" }, overview && !overview.running ? "No patch has this as its main prototype." : "…");
    const share = found.share == null ? "" : interval(found);
    return el(
      "article",
      { class: "card", style: { borderTopColor: one.colour } },
      el("a", { href: link(address({ prototype: one.prototype })), class: "portrait", "data-card": `p${one.prototype}`, title: `More about ${one.title}` }, picture),
      el(
        "div",
        { class: "card-text" },
        el("h2", {}, swatch(one.colour), el("a", { href: link(address({ prototype: one.prototype })), title: one.title }, one.name ? `C${one.prototype} ${one.name}` : `C${one.prototype}`), names.editable && tick),
        el("div", { class: "card-share" }, bar((found.share ?? 0) / most, one.colour), el("span", {}, share)),
        el("p", { class: "faint", title: one.note }, [one.group && el("span", { class: "group" }, one.group), one.note]),
      ),
    );
  }

  function marked() {
    joining.hidden = !chosen.size;
    joining.querySelector(".count").textContent = `${chosen.size} chosen`;
  }

  async function join(event) {
    event.preventDefault();
    for (const prototype of [...chosen]) {
      if (!(await names.change(prototype, { group: group.value }))) return;
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
