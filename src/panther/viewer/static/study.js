// A study: its results with intervals, what each method predicted of every patient, and the slides of the most wrong ones.
import { get } from "./api.js";
import { go, link, remember } from "./address.js";
import { chart } from "./chart.js";
import { choice, el, field, show } from "./dom.js";
import { number, table } from "./table.js";

const ENDS = 5; // patients of each
const MOST_CLASSES = 8; // of a confusion matrix
const RISKS = { "low risk": "#0072B2", "high risk": "#D55E00" };
const ALL = "all"; // methods together
const ONLY = { all: "all patients", wrong: "errors" };

export async function open(place, state, contents) {
  if (!contents.studies.length) {
    show(place, el("div", { class: "study" }, el("p", {}, "There is no study here. `panther run` writes one; --study opens one elsewhere.")));
    return () => {};
  }
  const page = new Study(place, state, contents);
  await page.start();
  return () => page.close();
}

class Study {
  constructor(place, state, { studies, models }) {
    this.place = place;
    this.studies = studies;
    this.layers = models.length ? "attribution,attention" : undefined; // what decided, where a model is here
    this.state = { ...state };
    this.made = []; // tables and charts, to be removed
    this.stopped = new AbortController();
  }

  close() {
    this.stopped.abort();
    this.made.forEach((remove) => remove());
  }

  keep(changes) {
    Object.assign(this.state, changes);
    remember(changes);
  }

  async start() {
    show(this.place, el("div", { class: "study" }, el("p", { class: "faint" }, "Reading the study…")));
    const { study, part, metric } = this.state;
    const how = { signal: this.stopped.signal };
    try {
      this.results = await get(["study"], { study, part, metric }, how);
      this.people = await get(["study", "patients"], { study: this.results.study, part: this.results.part }, how);
    } catch (error) {
      if (!this.stopped.signal.aborted) this.failed(error);
      return;
    }
    if (this.stopped.signal.aborted) return;
    const { methods, best } = this.people;
    this.method = [...methods, ALL].includes(this.state.method) ? this.state.method : best;
    this.only = this.state.only in ONLY ? this.state.only : "all";
    show(this.place, el("div", { class: "study" }, this.controls(), this.resultsPart(), this.patientsPart(), notes(this.results.notes)));
    this.fill();
  }

  /** One sentence instead of the study; another one may still be chosen. */
  failed(error) {
    const others = this.studies.length > 1 ? field("Study", this.studyChoice(this.studies, this.state.study)) : null;
    show(this.place, el("div", { class: "study" }, el("p", { role: "alert" }, error.message), others));
  }

  studyChoice(studies, chosen) {
    return choice(studies.map((name) => [name, name]), chosen ?? studies[0], (study) => go({ page: "study", study, slide: this.state.slide, set: this.state.set }));
  }

  controls() {
    const { results } = this;
    const again = (changes) => go({ ...this.state, ...changes, page: "study" });
    const parts = [field("Study", this.studyChoice(results.studies, results.study))];
    if (results.parts.length > 1) parts.push(field("Tested on", choice(results.parts.map(({ id, title }) => [id, title]), results.part, (part) => again({ part, patient: "" }))));
    if (results.metrics.length > 1) parts.push(field("Metric", choice(results.metrics.map(({ id, title }) => [id, title]), results.metric, (metric) => again({ metric }))));
    return el("div", { class: "study-controls" }, parts, el("p", { class: "faint" }, results.about));
  }

  // --- results

  resultsPart() {
    const { results } = this;
    const list = el("div", { class: "study-numbers" });
    const picture = el("div");
    const best = new Set(results.best);
    const columns = [{ id: "row", title: "method", cell: (name) => (best.has(name) ? el("strong", {}, name) : name) }];
    const { metric } = results;
    columns.push(
      { id: metric, title: results.metrics.find(({ id }) => id === metric).title, number: true, format: three },
      { id: `${metric}_low`, title: "95 % interval", number: true, format: (low, row) => interval(low, row[`${metric}_high`], row[`${metric}_exact`]) },
      { id: `${metric}_std`, title: "± folds", number: true, format: three },
    );
    this.made.push(table(list, columns, results.rows, { label: "Results of the methods" }));
    this.made.push(chart(picture, results.figure, { label: results.words }));
    const words = `Mean over folds, and its 95 % interval over patients; rings are single folds, the best mean is orange. ${results.meaning}`;
    return el("section", { class: "study-part study-results", "aria-label": "Results" }, el("header", {}, el("h2", {}, "Performance of the methods"), el("details", {}, el("summary", {}, "How to read this"), el("p", { class: "faint" }, words))), list, picture);
  }

  // --- patients

  patientsPart() {
    const { people } = this;
    this.list = el("div", { class: "study-list" });
    this.one = el("aside", { class: "study-one", "aria-label": "One patient", "aria-live": "polite" });
    const methods = [...people.methods.map((name) => [name, name]), [ALL, "all methods (mean)"]];
    const options = Object.entries(ONLY);
    const controls = el(
      "div",
      { class: "study-controls" },
      field("Judged by", choice(methods, this.method, (method) => { this.cell = null; this.method = method; this.keep({ method }); this.fill(); })),
      field("Show", choice(options, this.only, (only) => { this.only = only; this.keep({ only }); this.fill(); })),
    );
    const how = el("details", {}, el("summary", {}, "What counts as an error?"), el("p", {}, people.how, " ", KINDS[people.kind].about));
    this.ends = el("div", { class: "study-controls" });
    this.matrix = el("div", { class: "study-matrix" });
    const header = el("header", {}, el("h2", {}, "Errors by patient"), controls, this.matrix, this.ends, how, notes(people.notes));
    return el("section", { class: "study-part study-patients", "aria-label": "Patients" }, header, this.list, el("div", { class: "study-side" }, this.one));
  }

  fill() {
    const kind = KINDS[this.people.kind];
    const at = this.people.methods.indexOf(this.method); // -1: all methods
    const rows = this.people.patients.map((one) => ({ one, sample: one.sample, slides: one.slides.join(" "), ...kind.row(one, at) }));
    this.confusion(rows);
    this.survival(rows);
    const inCell = (row) => !this.cell || this.cell === row.group || (row.truth === this.cell[0] && row.predicted === this.cell[1]);
    const kept = rows.filter((row) => inCell(row) && (this.only === "all" || row.off));
    this.table?.();
    this.table = table(this.list, [{ id: "sample", title: "patient" }, ...kind.columns(this.people, at), this.slidesColumn()], kept, {
      key: "sample",
      label: "Patients",
      filter: this.state.find ?? "",
      sort: kind.sort,
      onOpen: (row) => this.select(row.sample),
      onFilter: (find) => this.keep({ find }),
    });
    if (!this.made.includes(this.removeTable)) this.made.push((this.removeTable = () => this.table()));
    this.extremes(kept, kind);
    const first = this.table.shown()[0];
    this.select(kept.some((row) => row.sample === this.state.patient) ? this.state.patient : first?.sample, false);
  }

  /** Truth by prediction of the method; a cell shows its patients. */
  confusion(rows) {
    const judged = this.method !== ALL && this.people.kind === "classes" ? rows.filter(({ truth, predicted }) => truth !== null && predicted !== null) : [];
    const names = [...new Set(judged.flatMap(({ truth, predicted }) => [truth, predicted]))].sort();
    if (names.length < 2 || names.length > MOST_CLASSES) return show(this.matrix);
    const cell = (truth, predicted) => {
      const count = judged.filter((row) => row.truth === truth && row.predicted === predicted).length;
      const on = this.cell?.[0] === truth && this.cell?.[1] === predicted;
      const press = () => ((this.cell = on ? null : [truth, predicted]), this.fill());
      return el("td", { class: "number" }, el("button", { class: truth === predicted ? "small" : "small off", disabled: !count, "aria-pressed": String(on), "aria-label": `${truth} predicted as ${predicted}: ${count}`, onclick: press }, String(count)));
    };
    const head = el("tr", {}, el("th", { scope: "col" }, "truth \\ predicted"), names.map((name) => el("th", { scope: "col", class: "number" }, name)));
    show(this.matrix, el("table", { "aria-label": "Confusion matrix; a cell shows its patients" }, el("thead", {}, head), el("tbody", {}, names.map((truth) => el("tr", {}, el("th", { scope: "row" }, truth), names.map((predicted) => cell(truth, predicted)))))));
  }

  /** Kaplan-Meier curves of the lower and upper half of the risk rank; a group or its curve shows its patients. */
  survival(rows) {
    if (this.people.kind !== "survival") return;
    const press = (group) => ((this.cell = this.cell === group ? null : group), this.fill());
    const groups = Object.entries(RISKS).map(([group, colour]) => ({ group, colour, members: rows.filter((row) => row.group === group) })).filter(({ members }) => members.length);
    const buttons = groups.map(({ group, members }) =>
      el("button", { class: "small", "aria-pressed": String(this.cell === group), onclick: () => press(group) }, `${group} (n = ${members.length}, ${members.filter(({ event }) => event === "event").length} events)`),
    );
    const data = groups.map(({ group, colour, members }) => {
      const [x, y] = kaplanMeier(members);
      return { type: "scatter", mode: "lines", name: group, x, y, customdata: x.map(() => group), line: { shape: "hv", color: colour, width: this.cell === group ? 4 : 2 }, hovertemplate: `${group}<extra></extra>` };
    });
    const unit = days(this.people);
    const layout = { height: 260, margin: { l: 56, r: 16, t: 8, b: 44 }, showlegend: false, hovermode: "closest", xaxis: { title: { text: unit ? `time (${unit})` : "time" }, rangemode: "tozero" }, yaxis: { title: { text: "survival" }, range: [0, 1.05] } };
    const place = el("div");
    show(this.matrix, el("div", { class: "study-controls" }, buttons), place);
    this.curves?.();
    this.curves = chart(place, { data, layout }, { onClick: ({ key }) => press(key), label: "Kaplan-Meier curves of the lower and the upper half of the predicted risk" });
    if (!this.made.includes(this.removeCurves)) this.made.push((this.removeCurves = () => this.curves()));
  }

  /** The five worst and the five best, at a click. */
  extremes(rows, { sort }) {
    const sorted = rows.filter((row) => row[sort.id] !== null).sort((a, b) => (sort.descending ? b[sort.id] - a[sort.id] : a[sort.id] - b[sort.id]));
    const buttons = (some) => some.map(({ sample }) => el("button", { class: "small", onclick: () => (this.select(sample), this.table.reveal(sample)) }, sample));
    show(this.ends, sorted.length > 2 * ENDS && [el("span", { class: "faint" }, "Worst"), buttons(sorted.slice(0, ENDS)), el("span", { class: "faint" }, "Best"), buttons(sorted.slice(-ENDS).reverse())]);
  }

  slidesColumn() {
    const longest = Math.max(8, ...this.people.patients.map(({ slides }) => slides.join("   ").length));
    return { id: "slides", title: "slides", width: Math.min(60, longest + 4), cell: (_, row) => this.links(row.one) };
  }

  /** A slide; `layers`: what is shown of it first. */
  address(slide, layers) {
    return link({ page: "slide", slide, set: this.state.set, layers });
  }

  links(one) {
    return el("span", { class: "study-slides" }, one.slides.length ? one.slides.map((slide) => el("a", { href: this.address(slide), title: `Open ${slide}` }, slide)) : el("span", { class: "faint" }, "not here"));
  }

  select(sample, byHand = true) {
    const one = this.people.patients.find((patient) => patient.sample === sample);
    this.table.mark(one ? [sample] : []);
    if (byHand) this.keep({ patient: sample });
    if (!one) {
      show(this.one, el("p", { class: "faint" }, "No patient to show."));
      return;
    }
    if (!byHand && sample === this.state.patient) this.table.reveal(sample);
    const other = one.patient !== one.sample ? ` · patient ${one.patient}` : "";
    const slides = one.slides.length
      ? one.slides.map((slide) => el("a", { class: "study-open", href: this.address(slide, this.layers) }, `Open ${slide}${this.layers ? " with contributions" : ""}`))
      : el("p", { class: "faint" }, "No slide of this patient is in the opened folder.");
    show(this.one, el("h3", {}, one.sample), el("p", {}, KINDS[this.people.kind].known(one, this.people), other), slides, this.predictions(one));
  }

  /** Predictions of each method for one patient. */
  predictions(one) {
    const { kind, methods } = this.people;
    const { head, cells, off, share } = KINDS[kind];
    const lines = methods.map((name, at) => {
      const isOff = off(one, at);
      const bar = share && el("td", {}, el("span", { class: "bar", "aria-hidden": "true" }, el("span", { style: { width: `${100 * (share(one, at) ?? 0)}%` } })));
      const marks = [isOff && "off", name === this.method && "chosen"].filter(Boolean).join(" ");
      const parts = cells(one, at, isOff).map((cell) => el("td", { class: typeof cell === "string" ? "number" : null }, cell));
      return el("tr", { class: marks || null }, el("th", { scope: "row" }, name), parts, bar);
    });
    const titles = ["method", ...head, share && ""].filter((title) => title !== undefined);
    const header = titles.map((title) => el("th", { scope: "col", class: title === "method" || (kind === "classes" && title === "predicted") ? null : "number" }, title));
    return el("table", {}, el("thead", {}, el("tr", {}, header)), el("tbody", {}, lines));
  }
}

const three = (value) => value.toFixed(3);
const two = (value) => value.toFixed(2);
const percent = (value) => `${Math.round(100 * value)} %`;
const shown = (value, form) => (value === null ? "–" : form(value));

function interval(low, high, exact) {
  return `${three(low)} to ${three(high)}${exact === null ? "" : `, exact lower bound ${three(exact)}`}`;
}

function verdict(text, off, judged) {
  return el("span", { class: judged ? (off ? "study-off" : "study-on") : null, title: judged ? (off ? "wrong" : "right") : null }, text);
}

/** Times and survival, from one at time zero. */
function kaplanMeier(members) {
  const sorted = [...members].sort((one, other) => one.time - other.time);
  const [x, y] = [[0], [1]];
  for (let k = 0, last = 1; k < sorted.length; ) {
    const { time } = sorted[k];
    const tied = sorted.filter((row) => row.time === time);
    last *= 1 - tied.filter(({ event }) => event === "event").length / (sorted.length - k);
    x.push(time);
    y.push(last);
    k += tied.length;
  }
  return [x, y];
}

const days = ({ unit }) => (unit === "days" ? "days" : "");

// kind of target -> its columns, a row judged by method `at` (-1: all of them), and the predictions of one patient
const KINDS = {
  classes: {
    sort: { id: "truth_probability", descending: false },
    columns: (people, at) => [
      { id: "truth", title: "truth" },
      { id: "predicted", title: "predicted", cell: (name, row) => verdict(name ?? "–", row.off, at >= 0) },
      { id: "truth_probability", title: "p (truth)", number: true, format: two },
      { id: "right", title: "methods right", number: true, format: (count, row) => `${count} of ${row.one.judged}` },
    ],
    row: (one, at) => ({
      truth: one.truth,
      predicted: at < 0 ? `${one.right} of ${one.judged} right` : one.predicted[at],
      off: at < 0 ? one.right < one.judged : KINDS.classes.off(one, at),
      truth_probability: at < 0 ? one.all : one.probability[at],
      right: one.right,
    }),
    known: (one) => `truth: ${one.truth ?? "not known"}`,
    head: ["predicted", "p (truth)"],
    cells: (one, at, off) => [verdict(one.predicted[at] ?? "–", off, true), shown(one.probability[at], two)],
    off: (one, at) => one.predicted[at] !== null && one.predicted[at] !== one.truth,
    share: (one, at) => one.probability[at],
    about: "",
  },
  survival: {
    sort: { id: "wrong", descending: true },
    columns: (people) => [
      { id: "time", title: days(people) || "time", number: true },
      { id: "event", title: "end" },
      { id: "risk", title: "risk rank", number: true, format: percent },
      { id: "wrong", title: "pairs wrong", number: true, format: percent },
    ],
    row: (one, at) => {
      const wrong = at < 0 ? one.all : one.wrong[at];
      const risk = at < 0 ? one.all_risk : one.risk[at];
      return { time: one.time, event: one.event ? "event" : "censored", risk, group: risk === null ? null : risk > 0.5 ? "high risk" : "low risk", wrong, off: wrong > 0.5 };
    },
    known: (one, people) => `${one.event ? "event" : "censored"} after ${number(one.time)} ${days(people)}`,
    head: ["risk rank", "pairs wrong"],
    cells: (one, at) => [shown(one.risk[at], percent), shown(one.wrong[at], percent)],
    off: (one, at) => one.wrong[at] > 0.5,
    share: (one, at) => one.wrong[at],
    about: "Risk rank: share of the patients in the same test part who have a lower predicted risk; low and high risk are its halves. An error has more than half of its pairs in the wrong order.",
  },
  values: {
    sort: { id: "error", descending: true },
    columns: () => ["observed", "predicted", "error"].map((title) => ({ id: title === "observed" ? "truth" : title, title, number: true })),
    row: (one, at) => {
      const error = at < 0 ? one.all : one.error[at];
      return { truth: one.truth, predicted: at < 0 ? one.all_predicted : one.predicted[at], error, off: error > one.spread };
    },
    known: (one) => `observed: ${number(one.truth)}`,
    head: ["predicted", "error"],
    cells: (one, at) => [shown(one.predicted[at], number), shown(one.error[at], number)],
    off: (one, at) => one.error[at] > one.spread, // the mean of all would have done better
    about: "An error exceeds the standard deviation of the observed values.",
  },
};

function notes(list) {
  return list.length ? el("div", { class: "study-notes" }, list.map((note) => el("p", {}, note))) : null;
}
