// The cohort: slides or patients as points beside their table, coloured, filtered, and compared in two groups.
import { get, path, post } from "./api.js";
import { go, link, remember } from "./address.js";
import { chart } from "./chart.js";
import { choice, el, field, message, show } from "./dom.js";
import { points } from "./points.js";
import { number, table } from "./table.js";

const LONGEST = 1500; // letters of a group in the address; a longer list of names is not kept there
const BARS = 12; // of a histogram
const HISTOGRAMS = 6;
const STRIP = 24; // slides of group A that are shown
const MOST_VALUES = 200; // of a column, to choose from
const TOOLS = { lasso: "Lasso", box: "Box", move: "Move" };

export async function open(place, state, contents) {
  const page = new Cohort(place, state, contents);
  await page.start();
  return () => page.close();
}

class Cohort {
  constructor(place, state, contents) {
    this.place = place;
    this.state = { ...state };
    this.contents = contents;
    this.pictured = new Set(contents.slides.filter(({ image }) => image).map(({ name }) => name));
    this.groups = { a: read(state.a), b: read(state.b) };
    this.closed = false;
    this.turn = 0;
  }

  async start() {
    this.place.classList.add("cohort");
    show(this.place, el("p", { class: "cohort-wait faint" }, "Reading the cohort…"));
    this.cohort = await get(["cohort"], { level: this.state.level, set: this.state.set });
    if (this.closed) return;
    this.rows = new Map(this.cohort.rows.map((row) => [row.name, row]));
    this.build();
    await this.draw();
  }

  close() {
    this.closed = true;
    clearTimeout(this.later);
    clearTimeout(this.soon);
    this.place.classList.remove("cohort");
    this.points?.();
    this.table?.();
    this.chart?.();
    this.results?.();
  }

  keep(changes) {
    Object.assign(this.state, changes);
    remember(changes);
  }

  build() {
    const { cohort } = this;
    this.plane = cohort.planes.some((one) => one.id === this.state.plane) ? this.state.plane : cohort.planes[0]?.id;
    this.colour = cohort.colours.some((one) => one.id === this.state.colour) ? this.state.colour : cohort.colour;
    this.busy = el("div", { class: "cohort-busy", role: "status" });
    this.stage = el("div", { class: "cohort-stage" }, this.busy);
    this.status = el("div", { class: "cohort-status", role: "status" });
    this.notes = el("div", { class: "cohort-notes faint" });
    this.groupBar = el("div", { class: "cohort-groups" });
    this.result = el("section", { class: "cohort-result", "aria-label": "Comparison of two groups", hidden: true });
    const side = el("aside", { class: "cohort-table", "aria-label": `Table of ${cohort.level}` });
    show(
      this.place,
      this.controls(),
      el("div", { class: "cohort-body" }, el("div", { class: "cohort-main" }, this.toolbar(), this.stage, this.status, this.groupBar, this.notes, this.result), side),
    );
    this.points = points(this.stage, {
      describe: (name) => this.describe(name),
      onOpen: (name) => this.openUnit(name),
      onHover: (name) => this.table.mark(name === null ? [] : [name]),
      onSelect: (names, second, toggle) => this.selected(names, second, toggle),
      onClear: () => this.setGroups(null, null),
    });
    this.side = side;
    this.fillTable();
    this.filtered();
    this.drawGroups();
  }

  // --- what is shown

  controls() {
    const { cohort, contents } = this;
    const parts = [];
    if (cohort.levels.length > 1) {
      parts.push(field("Points are", choice(cohort.levels.map((level) => [level, level]), cohort.level, (level) => this.again({ level, a: "", b: "" }))));
    }
    if (contents.prototypes.length > 1) {
      parts.push(field("Prototypes", choice(contents.prototypes.map(({ name }) => [name, name]), this.state.set ?? contents.prototypes[0].name, (set) => this.again({ set }))));
    }
    if (cohort.planes.length) {
      parts.push(field("Placed by", choice(cohort.planes.map(({ id, title }) => [id, title]), this.plane, (plane) => { this.plane = plane; this.keep({ plane }); this.draw(); })));
    }
    if (cohort.planes.length && cohort.colours.length) parts.push(field("Coloured by", el("span", {}, this.colourChoice())));
    parts.push(this.filterControls());
    this.histograms = el("div", { class: "cohort-histograms", role: "group", "aria-label": "Filter by values" });
    return el("div", {}, el("div", { class: "cohort-controls" }, parts), this.histograms);
  }

  colourChoice() {
    const titleOf = ({ title: text, group }) => (group === "Table" || group.startsWith("Share") ? text : `${text} · ${group}`);
    const titles = new Map(this.cohort.colours.map((one) => [titleOf(one), one.id]));
    const present = () => [...titles].find(([, id]) => id === this.colour)?.[0] ?? "";
    const input = el("input", { list: "cohort-colours", value: present(), autocomplete: "off", spellcheck: "false" });
    const restore = () => (input.value = present());
    input.addEventListener("focus", () => (input.value = "")); // so that all are offered
    input.addEventListener("blur", restore);
    input.addEventListener("change", () => {
      const id = titles.get(input.value);
      if (id === undefined || id === this.colour) return;
      this.colour = id;
      this.keep({ colour: id });
      this.draw();
    });
    return [input, el("datalist", { id: "cohort-colours" }, [...titles.keys()].map((value) => el("option", { value })))];
  }

  toolbar() {
    const buttons = Object.entries(TOOLS).map(([tool, title]) =>
      el("button", { "aria-pressed": String(tool === "lasso"), "data-tool": tool, onclick: () => this.useTool(tool) }, title),
    );
    this.tools = buttons;
    this.bar = el(
      "div",
      { class: "cohort-toolbar" },
      el("span", { role: "group", "aria-label": "What dragging does", class: "cohort-tools" }, buttons),
      el("span", { class: "faint cohort-hint" }, "Drag to choose group A, with Shift group B. A click opens the slide."),
      el("span", { class: "spring" }),
      el("button", { class: "quiet", onclick: () => this.points.save("cohort").catch((error) => message(error.message, "cohort")) }, "Save picture"),
    );
    return this.bar;
  }

  useTool(tool) {
    this.points.tool(tool);
    for (const button of this.tools) button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
  }

  again(changes) {
    this.keep(changes);
    go({ ...this.state, page: "cohort" });
  }

  async draw() {
    const current = ++this.turn;
    clearTimeout(this.later);
    if (!this.plane) {
      // without places there is the table, and one sentence
      this.stage.hidden = this.bar.hidden = true;
      this.say([...this.cohort.notes]);
      return;
    }
    let found;
    try {
      found = await get(["cohort", "points"], { level: this.cohort.level, set: this.state.set, plane: this.plane, colour: this.colour });
    } catch (error) {
      if (this.closed || current !== this.turn) return;
      show(this.busy);
      this.points.draw({ data: [], layout: {} }, error.message);
      this.say([error.message, ...this.cohort.notes]);
      return;
    }
    if (this.closed || current !== this.turn) return;
    if (found.progress) {
      this.wait(this.busy, found.progress);
      this.later = setTimeout(() => this.draw(), 700);
      return;
    }
    show(this.status);
    show(this.busy);
    this.shown = found;
    const title = this.cohort.planes.find(({ id }) => id === this.plane).title;
    const count = found.figure.data.reduce((sum, trace) => sum + trace.x.length, 0);
    const words = `${count} ${this.cohort.level} as points by ${title}${found.colour ? `, coloured by ${found.colour.title}` : ""}. Arrow keys go from point to point, Enter opens, Space adds to group A.`;
    this.points.draw(found.figure, words);
    this.say([...found.notes, ...this.cohort.notes]);
    this.fillTable();
    this.mark();
    if (this.both() && !this.compared) this.compare();
  }

  wait(place, { done, total, what }) {
    const bar = el("progress", { max: total, value: done, "aria-label": what });
    show(place, el("span", {}, `Computing ${what}: ${done.toLocaleString("en")} of ${total.toLocaleString("en")} slides`), bar);
  }

  say(notes) {
    show(this.notes, [...new Set(notes)].map((note) => el("p", {}, note)));
  }

  describe(name) {
    const row = this.rows.get(name);
    const lines = [name];
    if (row && row.patient !== name) lines.push(`patient ${row.patient}`);
    if (row?.slides.length > 1) lines.push(`${row.slides.length} slides`);
    if (this.shown?.colour) lines.push(`${this.shown.colour.title}: ${worded(this.shown.values[name])}`);
    const pictured = row?.slides.find((slide) => this.pictured.has(slide));
    if (pictured) lines.push(thumbnail(pictured));
    return lines;
  }

  openUnit(name) {
    const { slides } = this.rows.get(name);
    if (slides.length === 1) return this.openSlide(slides[0]);
    // a patient of several slides: one of them
    const links = slides.map((slide) => el("button", { onclick: () => this.openSlide(slide) }, slide));
    show(this.status, el("span", {}, `${name} has ${slides.length} slides:`), links);
    links[0].focus();
  }

  openSlide(slide) {
    const { set, prototype } = this.state;
    go({ page: "slide", slide, set, prototype });
  }

  // --- the table

  fillTable() {
    const { cohort, shown } = this;
    const columns = [{ id: "name", title: cohort.level === "slides" ? "Slide" : "Patient" }];
    if (cohort.level === "slides" && cohort.rows.some((row) => row.patient !== row.name)) columns.push({ id: "patient", title: "Patient" });
    if (cohort.level === "patients") columns.push({ id: "count", title: "Slides", number: true });
    const colour = shown?.colour;
    if (colour && colour.group !== "Table") columns.push({ id: "colour", title: colour.title, number: colour.kind === "number", width: 16 });
    columns.push(...cohort.columns.map(({ id, title, kind, hint }) => ({ id, title, hint, number: kind === "number" })));
    const rows = cohort.rows.map((row) => ({ ...row, count: row.slides.length, colour: shown?.values[row.name] ?? null }));
    const signature = columns.map(({ id, title }) => `${id} ${title}`).join("\n");
    if (this.table && this.signature === signature) {
      this.all = rows;
      this.table.rows(this.kept(), this.all.length);
      return;
    }
    this.signature = signature;
    this.all = rows;
    this.table?.();
    const [id, way] = (this.state.sort ?? "").split("~");
    this.table = table(this.side, columns, this.kept(), {
      label: cohort.level,
      filter: this.state.q ?? "",
      sort: columns.some((column) => column.id === id) ? { id, descending: way === "down" } : undefined,
      onOpen: (row) => this.openUnit(row.name),
      onHover: (row) => this.points.hover(row?.name ?? null),
      onSort: (sort) => this.keep({ sort: `${sort.id}~${sort.descending ? "down" : "up"}` }),
      onFilter: (q, left) => {
        this.keep({ q });
        this.sought = q ? new Set(left.map((row) => row.name)) : null;
        this.otherSight();
      },
    });
    if (this.kept().length < this.all.length) this.table.rows(this.kept(), this.all.length);
    if (this.state.q) this.sought = new Set(this.table.shown().map((row) => row.name));
  }

  // --- histograms, each over what the others leave

  /** Columns of the histograms with the bin of every row. */
  binned() {
    this.bins ??= this.cohort.columns
      .filter(({ id, kind }) => kind === "number" || (this.tally(id).length > 1 && this.tally(id).length <= BARS))
      .slice(0, HISTOGRAMS)
      .map((column) => {
        const values = this.cohort.rows.map((row) => row[column.id]);
        const names = column.kind === "number" ? ranges(values) : this.tally(column.id).map(([value]) => value);
        const at = new Map(names.map((name, k) => [name, k]));
        const bin = column.kind === "number" ? rangeOf(values) : (value) => at.get(worded(value));
        return { ...column, names, of: values.map(bin), chosen: new Set() };
      });
    return this.bins;
  }

  /** Whether row `n` is in the chosen bars of all histograms but one. */
  passes(n, but = null) {
    return this.binned().every((one) => one === but || !one.chosen.size || one.chosen.has(one.of[n]));
  }

  drawHistograms() {
    const parts = this.binned().map((one) => {
      const counts = new Array(one.names.length).fill(0);
      for (let n = 0; n < one.of.length; n++) if (one.of[n] >= 0 && this.passes(n, one)) counts[one.of[n]]++;
      const most = Math.max(1, ...counts);
      const bars = counts.map((count, k) =>
        el(
          "button",
          { "aria-pressed": String(one.chosen.has(k)), "aria-label": `${one.title} ${one.names[k]}: ${count}`, title: `${one.names[k]}: ${count}`, "data-bar": `${one.id} ${k}`, onclick: () => this.choose(one, k) },
          el("i", { style: { height: `${(100 * count) / most}%` } }),
        ),
      );
      return el("div", { class: one.chosen.size ? "histogram chosen" : "histogram" }, el("span", { title: one.hint || null }, one.title), el("div", { class: "bars" }, bars));
    });
    const focus = document.activeElement?.dataset?.bar;
    show(this.histograms, parts);
    if (focus) this.histograms.querySelector(`[data-bar="${CSS.escape(focus)}"]`)?.focus();
  }

  choose(one, k) {
    one.chosen.has(k) ? one.chosen.delete(k) : one.chosen.add(k);
    this.places = new Map(this.cohort.rows.map(({ name }, n) => [name, n]));
    this.sight = null;
    this.filtered();
  }

  // --- show only some

  filterControls() {
    const { columns } = this.cohort;
    if (!columns.length) return null;
    this.filterValues = el("span", { class: "cohort-values" });
    const options = [["", "all"], ...columns.map(({ id, title }) => [id, title])];
    const pick = choice(options, columns.some(({ id }) => id === this.state.only) ? this.state.only : "", (only) => {
      this.keep({ only, values: "" });
      this.fillValues();
      this.filtered();
    });
    this.fillValues();
    return [field("Show only", pick), this.filterValues];
  }

  fillValues() {
    const column = this.cohort.columns.find(({ id }) => id === this.state.only);
    if (!column) return show(this.filterValues);
    if (column.kind === "number") {
      const [from, to] = (this.state.values ?? "").split("..");
      const box = (label, value) => el("input", { type: "number", step: "any", value: value ?? "", "aria-label": `${column.title} ${label}`, placeholder: label, oninput: () => change() });
      const [low, high] = [box("from", from), box("to", to)];
      const change = () => {
        this.keep({ values: low.value || high.value ? `${low.value}..${high.value}` : "" });
        this.filtered();
      };
      return show(this.filterValues, low, high);
    }
    const counts = this.tally(column.id);
    const chosen = new Set(list(this.state.values));
    const boxes = counts.slice(0, MOST_VALUES).map(([value, count]) => {
      const box = el("input", { type: "checkbox", checked: chosen.has(value), value });
      box.addEventListener("change", () => {
        box.checked ? chosen.add(value) : chosen.delete(value);
        this.keep({ values: chosen.size ? JSON.stringify([...chosen]) : "" });
        head.textContent = summed(chosen);
        this.filtered();
      });
      return el("label", {}, box, ` ${value} (${count})`);
    });
    if (counts.length > MOST_VALUES) boxes.push(el("span", { class: "faint" }, `${counts.length - MOST_VALUES} more: use the filter of the table.`));
    const head = el("summary", {}, summed(chosen));
    const menu = el("details", { class: "cohort-menu" }, head, el("div", { class: "cohort-checks" }, boxes));
    menu.addEventListener("focusout", (event) => { if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false; });
    menu.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; head.focus(); } });
    show(this.filterValues, menu);
  }

  kept() {
    const any = this.bins?.some(({ chosen }) => chosen.size);
    return any ? this.keptByColumn().filter(({ name }) => this.passes(this.places.get(name))) : this.keptByColumn();
  }

  keptByColumn() {
    const column = this.cohort.columns.find(({ id }) => id === this.state.only);
    if (!column || !this.state.values) return this.all;
    if (column.kind === "number") {
      const [from, to] = this.state.values.split("..").map((text) => (text === "" || text === undefined ? null : Number(text)));
      return this.all.filter((row) => row[column.id] !== null && (from === null || row[column.id] >= from) && (to === null || row[column.id] <= to));
    }
    const chosen = new Set(list(this.state.values));
    return this.all.filter((row) => chosen.has(worded(row[column.id])));
  }

  filtered() {
    if (!this.table) return;
    this.drawHistograms();
    this.table.rows(this.kept(), this.all.length);
    this.sought = this.state.q ? new Set(this.table.shown().map((row) => row.name)) : null;
    this.otherSight();
  }

  /** Who is in sight has changed, and with it who is in the groups. */
  otherSight() {
    this.mark();
    if (!this.groups.a && !this.groups.b) return;
    this.drawGroups();
    clearTimeout(this.soon);
    this.soon = setTimeout(() => !this.closed && this.setGroups(this.groups.a, this.groups.b), 300);
  }

  /** Names that are in sight; null: all. */
  inSight() {
    if (!this.state.values && !this.sought && !this.bins?.some(({ chosen }) => chosen.size)) return null;
    // used many times at each change, so kept until the next
    if (!this.sight || this.sight.values !== this.state.values || this.sight.sought !== this.sought || this.sight.only !== this.state.only) {
      const kept = this.kept().map((row) => row.name);
      const names = new Set(this.sought ? kept.filter((name) => this.sought.has(name)) : kept);
      this.sight = { values: this.state.values, sought: this.sought, only: this.state.only, names };
    }
    return this.sight.names;
  }

  /** Values of a column, the most frequent first. */
  tally(id) {
    this.tallies ??= new Map();
    if (!this.tallies.has(id)) this.tallies.set(id, tally(this.cohort.rows, id));
    return this.tallies.get(id);
  }

  mark() {
    const [a, b] = this.members();
    const rest = this.groups.a && !this.groups.b;
    this.points?.mark({ a: new Set(a), b: new Set(rest ? [] : b), shown: this.inSight() });
  }

  // --- two groups

  /** A group is {names} or {column, value}. */
  namesOf(group) {
    if (!group) return [];
    if (group.names) return this.inView(group.names.filter((name) => this.rows.has(name)));
    return this.inView(this.cohort.rows.filter((row) => worded(row[group.column]) === group.value).map((row) => row.name));
  }

  inView(names) {
    const sight = this.inSight();
    return sight ? names.filter((name) => sight.has(name)) : names;
  }

  members() {
    const a = this.namesOf(this.groups.a);
    if (!this.groups.a) return [[], this.namesOf(this.groups.b)];
    const inA = new Set(a);
    const b = this.groups.b ? this.namesOf(this.groups.b) : this.inView(this.cohort.rows.map((row) => row.name));
    return [a, b.filter((name) => !inA.has(name))];
  }

  both() {
    const [a, b] = this.members();
    return a.length > 0 && b.length > 0;
  }

  selected(names, second, toggle) {
    const which = second ? "b" : "a";
    let chosen = names;
    if (toggle) {
      const now = new Set(this.groups[which]?.names ?? []);
      for (const name of names) now.has(name) ? now.delete(name) : now.add(name);
      chosen = [...now];
    }
    const group = chosen.length ? { names: chosen } : null;
    this.setGroups(second ? this.groups.a : group, second ? group : this.groups.b);
  }

  setGroups(a, b) {
    this.groups = { a, b };
    this.keep({ a: written(a), b: written(b) });
    this.drawGroups();
    this.mark();
    this.compared = null;
    if (this.both() && this.groups.a) this.compare();
    else this.clearResult();
  }

  clearResult() {
    this.chart?.();
    this.results?.();
    this.chart = this.results = null;
    this.result.hidden = true;
    show(this.result);
  }

  drawGroups() {
    if (!this.cohort.compare || this.cohort.rows.length < 2) return;
    const [a, b] = this.members();
    const { columns } = this.cohort;
    const few = columns.filter(({ id, kind }) => kind === "category" && this.tally(id).length > 1);
    const groupText = (group, names, nothing) => (group || nothing === "the rest" ? `${group?.column ? `${title(columns, group.column)} ${group.value}` : group ? "chosen" : nothing} (${names.length.toLocaleString("en")})` : nothing);
    const parts = [
      el("span", { class: "cohort-group a" }, "A: ", groupText(this.groups.a, a, "empty")),
      el("span", { class: "cohort-group b" }, "B: ", groupText(this.groups.b, b, this.groups.a ? "the rest" : "empty")),
    ];
    if (few.length) parts.push(this.groupForm(few));
    if (this.groups.a || this.groups.b) parts.push(el("button", { class: "quiet", onclick: () => this.setGroups(null, null) }, "Clear groups"));
    if (this.groups.a) parts.push(this.strip(a));
    const focused = this.groupBar.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    show(this.groupBar, parts);
    // drawn anew: the focus of the keyboard stays
    if (focused) [...this.groupBar.querySelectorAll("select")].find((one) => one.getAttribute("aria-label") === focused)?.focus();
  }

  /** The first slides of a group, to be looked at. */
  strip(names) {
    const slides = names.flatMap((name) => this.rows.get(name).slides).filter((slide) => this.pictured.has(slide)).slice(0, STRIP);
    return el("span", { class: "cohort-strip" }, slides.map((slide) => el("a", { href: link({ page: "slide", slide, set: this.state.set }), title: slide, "aria-label": slide }, thumbnail(slide))));
  }

  groupForm(few) {
    const column = few.find(({ id }) => id === this.groups.a?.column) ?? few.find(({ id }) => id === this.formColumn) ?? few.find(({ id }) => id === this.colour) ?? few[0];
    const values = this.tally(column.id).slice(0, MOST_VALUES).map(([value, count]) => [value, `${value} (${count})`]);
    const own = (group) => (group?.column === column.id ? group.value : "");
    const byColumn = choice(few.map(({ id, title }) => [id, title]), column.id, (id) => {
      this.formColumn = id;
      this.setGroups(null, null);
    }, { "aria-label": "Column that groups are chosen by" });
    const first = choice([["", "choose…"], ...values], own(this.groups.a), (value) => this.setGroups(value ? { column: column.id, value } : null, this.groups.b), { "aria-label": `Group A: ${column.title}` });
    const second = choice([["", "the rest"], ...values], own(this.groups.b), (value) => this.setGroups(this.groups.a, value ? { column: column.id, value } : null), { "aria-label": `Group B: ${column.title}` });
    return el("span", { class: "cohort-form" }, el("label", {}, "or by ", byColumn), el("label", {}, "A ", first), el("label", {}, "B ", second));
  }

  async compare() {
    if (!this.cohort.compare) return;
    const [a, b] = this.members();
    const current = (this.compared = {});
    let found;
    try {
      found = await post(["cohort", "compare"], { level: this.cohort.level, set: this.state.set ?? null, a, b });
    } catch (error) {
      found = { error: error.message };
    }
    if (this.closed || current !== this.compared) return;
    this.clearResult();
    this.result.hidden = false;
    const heading = el("h2", {}, "Which prototypes differ");
    if (found.error) return show(this.result, heading, el("p", {}, found.error));
    if (found.progress) {
      const place = el("div", { class: "cohort-status" });
      this.wait(place, found.progress);
      show(this.result, heading, place);
      this.later = setTimeout(() => current === this.compared && this.compare(), 700);
      return;
    }
    const { counts } = found;
    const sizes = (group) => `${counted(counts[group].patients, "patient")}${counts[group].slides === counts[group].patients ? "" : ` (${counted(counts[group].slides, "slide")})`}`;
    const picture = el("div");
    const numbers = el("div", { class: "cohort-numbers" });
    show(
      this.result,
      heading,
      el("p", { class: "cohort-sentence", role: "status" }, found.sentence),
      el("p", { class: "faint" }, `A: ${sizes("A")}, B: ${sizes("B")}. ${found.test ? `${found.test} test over patients, p corrected by Holm; ` : ""}means and differences with 95 % intervals over patients.`),
      found.notes.map((note) => el("p", { class: "faint" }, note)),
      // near points have similar shares, so a lasso finds differences wherever it is drawn
      (this.groups.a?.names || this.groups.b?.names) && el("p", { class: "faint" }, "Because these groups were drawn by eye, p is only descriptive. For a valid test, choose the groups by a column."),
      picture,
      numbers,
    );
    this.chart = chart(picture, found.figure, { label: found.sentence });
    const share = (value) => (100 * value).toFixed(1).replace("-", "−");
    const range = (low, high) => (row) => (row[low] === null ? "" : ` [${share(row[low])}, ${share(row[high])}]`);
    this.results = table(
      numbers,
      [
        { id: "title", title: "Prototype" },
        { id: "a", title: "A, %", number: true, width: 17, format: (value, row) => share(value) + range("a_low", "a_high")(row) },
        { id: "b", title: "B, %", number: true, width: 17, format: (value, row) => share(value) + range("b_low", "b_high")(row) },
        { id: "difference", title: "A − B, points", number: true, width: 20, format: (value, row) => share(value) + range("low", "high")(row) },
        { id: "p", title: "p (Holm)", number: true, width: 12, format: (value) => (value < 0.001 ? "< 0.001" : value.toFixed(3)) },
      ],
      found.rows,
      { key: "prototype", label: "prototypes by group", onOpen: (row) => go({ page: "prototypes", prototype: row.prototype, set: this.state.set }) },
    );
    numbers.style.height = `${Math.min(420, 36 + 31 * found.rows.length)}px`;
  }
}

/** A group of the address. */
function read(text) {
  try {
    const found = JSON.parse(text);
    if (Array.isArray(found) && found.every((name) => typeof name === "string")) return { names: found };
    if (typeof found?.column === "string" && typeof found?.value === "string") return { column: found.column, value: found.value };
  } catch {
    // not a group, it is empty
  }
  return null;
}

function written(group) {
  if (!group) return "";
  const text = JSON.stringify(group.names ?? group);
  return text.length <= LONGEST ? text : "";
}

function list(text) {
  try {
    const found = JSON.parse(text);
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

/** Values of a column and how many have them, the most frequent first. */
function tally(rows, id) {
  const counts = new Map();
  for (const row of rows) {
    const value = worded(row[id]);
    counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return [...counts].sort((one, other) => other[1] - one[1]);
}

/** The bin of a number between the smallest and the largest; -1 where it is not known. */
function rangeOf(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const [low, high] = known.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  return (value) => (value === null || value === undefined ? -1 : Math.min(BARS - 1, Math.floor(((value - low) / (high - low || 1)) * BARS)));
}

function ranges(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const [low, high] = known.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  return Array.from({ length: BARS }, (_, k) => `${number(low + ((high - low) * k) / BARS, 3)} to ${number(low + ((high - low) * (k + 1)) / BARS, 3)}`);
}

const thumbnail = (slide) => el("img", { class: "thumb", src: path(["tiles", slide, "thumbnail.jpg"]), alt: "", loading: "lazy" });
const worded = (value) => (value === null || value === undefined ? "not known" : typeof value === "number" ? number(value) : String(value));
const summed = (chosen) => (chosen.size === 0 ? "any value" : chosen.size === 1 ? [...chosen][0] : `${chosen.size} values`);
const counted = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
const title = (columns, id) => columns.find((column) => column.id === id)?.title ?? id;
