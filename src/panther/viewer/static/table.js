// Tables of any length: only the rows in sight are in the page.
import { el, show } from "./dom.js";

const AROUND = 12; // rows kept above and below what is in sight
const ORDER = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

/**
 * A table in `place`. Returns a function that removes it, with `rows(list, total)`, `shown()`, `mark(keys)`, `filter(text)` and `reveal(key)`.
 *
 * columns: [{id, title, number, hint? of its title, format?(value, row) -> text, cell?(value, row) -> element, width? in letters}];
 * rows: [{id: value}]. key: the column that names a row, the first by default.
 * sort: {id, descending}; filter: true for a box above the table, or the text that it holds; label: what the table is.
 * onOpen(row): a click or Enter; onHover(row or null); onSort({id, descending}); onFilter(text, rows that are left).
 */
export function table(place, columns, rows, { key = columns[0]?.id, sort, filter, label, onOpen, onHover, onSort, onFilter } = {}) {
  let all = rows;
  let total = rows.length; // also of rows that another filter leaves out
  let order = sort ?? null;
  let sought = typeof filter === "string" ? filter : "";
  let view = [];
  let marked = new Set();
  let active = 0; // row that the Tab key reaches
  let height = 30;
  let drawn = [0, 0]; // rows that are in the page, from and up to
  const texts = new WeakMap();

  const head = el("tr", { "aria-rowindex": "1" });
  const body = el("tbody");
  const columnWidths = el("colgroup");
  const grid = el("table", { class: "rows", role: onOpen ? "grid" : null, "aria-label": label }, columnWidths, el("thead", {}, head), body);
  const scroll = el("div", { class: "table-scroll", onscroll: () => requestAnimationFrame(follow) }, grid);
  const count = el("span", { class: "faint table-count", role: "status" });
  const box = el("input", { type: "search", placeholder: "Filter", value: sought, "aria-label": `Filter ${label ?? "the table"}` });
  box.addEventListener("input", () => {
    sought = box.value;
    scroll.scrollTop = 0;
    active = 0;
    arrange();
    onFilter?.(sought, view);
  });
  const bar = filter === undefined || filter === false ? null : el("div", { class: "table-bar" }, box, count);
  const whole = el("div", { class: "table" }, bar, scroll);
  place.append(whole);

  const text = (column, row) => {
    const value = row[column.id];
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (column.format) return column.format(value, row);
    return typeof value === "number" ? number(value) : String(value);
  };

  function header() {
    const cells = columns.map((column) => {
      const now = order?.id === column.id;
      const sign = now ? (order.descending ? " ▾" : " ▴") : "";
      const press = el("button", { class: "quiet", onclick: () => sortBy(column), title: column.hint ?? column.title }, column.title, el("span", { "aria-hidden": "true" }, sign));
      const direction = now ? (order.descending ? "descending" : "ascending") : "none";
      return el("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": direction }, press);
    });
    show(head, cells);
  }

  function sortBy(column) {
    // numbers are usually sorted from the largest down
    const descending = order?.id === column.id ? !order.descending : Boolean(column.number);
    order = { id: column.id, descending };
    const at = columns.indexOf(column);
    header();
    head.children[at].firstChild.focus();
    arrange();
    onSort?.(order);
  }

  function widths() {
    const longest = (column) => all.slice(0, 2000).reduce((most, row) => Math.max(most, text(column, row).length), column.title.length + 2);
    const letters = columns.map((column) => column.width ?? Math.min(36, Math.max(6, longest(column))) + 2);
    show(columnWidths, letters.map((width) => el("col", { style: { width: `${width}ch` } })));
    grid.style.minWidth = `${letters.reduce((sum, width) => sum + width, 0)}ch`;
  }

  function words(row) {
    if (!texts.has(row)) texts.set(row, columns.map((column) => text(column, row)).join("\n").toLowerCase());
    return texts.get(row);
  }

  /** Rows that hold the phrase; where none does, those that hold all its words. */
  function found(phrase) {
    if (!phrase) return all.slice();
    const whole = all.filter((row) => words(row).includes(phrase));
    const parts = phrase.split(/\s+/);
    return whole.length || parts.length === 1 ? whole : all.filter((row) => parts.every((part) => words(row).includes(part)));
  }

  function arrange() {
    view = found(sought.trim().toLowerCase());
    if (order) sortRows(view, order);
    grid.setAttribute("aria-rowcount", String(view.length + 1));
    count.textContent = view.length === total ? total.toLocaleString("en") : `${view.length.toLocaleString("en")} of ${total.toLocaleString("en")}`;
    active = Math.min(active, Math.max(0, view.length - 1));
    draw();
  }

  /** Rows in sight and `around` more on each side, from and up to. */
  function sight(around) {
    const first = Math.floor(scroll.scrollTop / height) - around;
    const last = Math.ceil((scroll.scrollTop + (scroll.clientHeight || 600)) / height) + around;
    return [Math.max(0, first), Math.min(view.length, last)];
  }

  /** Draw what came into sight. What is there already stays: a link that is replaced between press and release is not followed. */
  function follow() {
    const [first, last] = sight(0);
    if (first < drawn[0] || last > drawn[1] || misjudged()) draw();
  }

  function draw() {
    const [first, last] = (drawn = sight(AROUND));
    const within = body.contains(document.activeElement);
    const lines = [];
    for (let at = first; at < last; at++) lines.push(line(view[at], at));
    show(body, spacer(first), lines, view.length ? null : el("tr", {}, el("td", { colSpan: columns.length, class: "faint" }, "Nothing to show.")), spacer(view.length - last));
    if (misjudged()) {
      height = rowHeight();
      draw();
      return;
    }
    if (within) body.querySelector('tr[tabindex="0"]')?.focus({ preventScroll: true });
  }

  const rowHeight = () => body.querySelector("tr[data-at]")?.offsetHeight;

  /** Whether rows are not as high as thought; 0 or undefined where none is laid out. */
  function misjudged() {
    const real = rowHeight();
    return Boolean(real) && Math.abs(real - height) > 0.5;
  }

  function spacer(count) {
    return count > 0 ? el("tr", { class: "spacer", "aria-hidden": "true" }, el("td", { colSpan: columns.length, style: { height: `${count * height}px` } })) : null;
  }

  function line(row, at) {
    const cells = columns.map((column) => {
      const words = text(column, row);
      return el("td", { class: column.number ? "number" : null, title: words.length > 24 ? words : null }, column.cell ? column.cell(row[column.id], row) : words);
    });
    return el(
      "tr",
      {
        class: [marked.has(row[key]) && "marked", onOpen && "opens"].filter(Boolean).join(" ") || null,
        "aria-rowindex": String(at + 2),
        "aria-selected": marked.size ? String(marked.has(row[key])) : null,
        "data-at": String(at),
        tabindex: onOpen ? (at === active ? "0" : "-1") : null,
      },
      cells,
    );
  }

  const rowOf = (event) => {
    const found = event.target.closest?.("tr[data-at]");
    return found ? view[Number(found.dataset.at)] : null;
  };
  if (onOpen) {
    body.addEventListener("click", (event) => {
      const row = rowOf(event);
      if (row && !event.target.closest("button, a, input")) onOpen(row, event);
    });
    body.addEventListener("keydown", (event) => {
      if (event.target.tagName !== "TR") return;
      const page = Math.max(1, Math.floor(scroll.clientHeight / height) - 2);
      const to = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: view.length - 1 }[event.key];
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        onOpen(view[active], event);
      } else if (to !== undefined) {
        event.preventDefault();
        go(Math.max(0, Math.min(view.length - 1, to)));
      }
    });
    body.addEventListener("focusin", (event) => {
      const found = event.target.closest("tr[data-at]");
      if (!found || Number(found.dataset.at) === active) return;
      body.querySelector('tr[tabindex="0"]')?.setAttribute("tabindex", "-1");
      active = Number(found.dataset.at);
      found.setAttribute("tabindex", "0");
    });
  }
  if (onHover) {
    let before = null;
    const hover = (row) => {
      if (row !== before) onHover(row);
      before = row;
    };
    body.addEventListener("pointerover", (event) => hover(rowOf(event)));
    body.addEventListener("pointerleave", () => hover(null));
    body.addEventListener("focusin", (event) => hover(rowOf(event)));
    body.addEventListener("focusout", () => hover(null));
  }

  /** Bring a row into sight; with the keyboard the focus goes with it. */
  function go(at, focus = true) {
    active = at;
    const top = at * height;
    const headHeight = head.offsetHeight;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (top + height > scroll.scrollTop + scroll.clientHeight - headHeight) scroll.scrollTop = top + height - scroll.clientHeight + headHeight;
    draw();
    if (focus) body.querySelector('tr[tabindex="0"]')?.focus({ preventScroll: true });
  }

  const sized = new ResizeObserver(() => follow());
  sized.observe(scroll);
  header();
  widths();
  arrange();

  function remove() {
    sized.disconnect();
    whole.remove();
  }
  remove.rows = (next, of = next.length) => {
    all = next;
    total = of;
    widths();
    arrange();
  };
  remove.shown = () => view.slice();
  remove.mark = (keys) => {
    marked = new Set(keys);
    for (const line of body.querySelectorAll("tr[data-at]")) {
      const on = marked.has(view[Number(line.dataset.at)][key]);
      line.classList.toggle("marked", on);
      if (marked.size) line.setAttribute("aria-selected", String(on));
      else line.removeAttribute("aria-selected");
    }
  };
  remove.filter = (next) => {
    sought = box.value = next;
    arrange();
  };
  remove.reveal = (name) => {
    const at = view.findIndex((row) => row[key] === name);
    if (at >= 0) go(at, false);
  };
  return remove;
}

/** What is not known comes last in both directions. */
function sortRows(rows, { id, descending }) {
  const missing = (value) => value === null || value === undefined || value === "" || Number.isNaN(value);
  const sign = descending ? -1 : 1;
  rows.sort((one, other) => {
    const a = one[id];
    const b = other[id];
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : ORDER.compare(String(a), String(b)));
  });
}

/** A number as tables show it. */
export function number(value, digits = 4) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en").replace("-", "−");
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9)) return power(value);
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits }).replace("-", "−");
}

/** 7.2e-6 as 7.2 × 10⁻⁶. */
function power(value) {
  const [digits, exponent] = value.toExponential(1).split("e");
  const raised = [...exponent.replace("+", "")].map((letter) => (letter === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(letter)])).join("");
  return `${digits.replace(/\.0$/, "").replace("-", "−")} × 10${raised}`;
}
