// A study: its results with intervals, what each method predicted of every patient, and the slides of the most wrong ones.
import { get } from "./api.js";
import { go, link, remember } from "./address.js";
import { chart } from "./chart.js";
import { choice, el, field, message, show } from "./dom.js";
import { number, table } from "./table.js";

const ALL = "all"; // methods together
const ONLY = { everybody: "everybody", wrong: "the wrong ones", disagree: "those the methods disagree on" };

export async function open(place, state, contents) {
  if (!contents.studies.length) {
    show(place, el("div", { class: "study" }, el("p", {}, "There is no study here. `panther run` makes one; --study opens one that lies elsewhere.")));
    return () => {};
  }
  const page = new Study(place, state, contents.studies);
  await page.start();
  return () => page.close();
}

class Study {
  constructor(place, state, studies) {
    this.place = place;
    this.studies = studies;
    this.state = { ...state };
    this.made = []; // tables and charts, to be removed
    this.stopped = new AbortController();
    this.turn = 0;
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
    this.only = this.state.only in ONLY ? this.state.only : "everybody";
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
      ...results.metrics.filter(({ id }) => id !== metric).map(({ id, title }) => ({ id, title, number: true, format: three })),
    );
    this.made.push(table(list, columns, results.rows, { label: "Results of the methods", sort: { id: results.metric, descending: true } }));
    this.made.push(chart(picture, results.figure, { label: results.words }));
    const words = `Mean over folds, and its 95 % interval over patients; rings are single folds, the best mean is orange. ${results.meaning}`;
    return el("section", { class: "study-part study-results", "aria-label": "Results" }, el("header", {}, el("h2", {}, "How well each method did"), el("p", { class: "faint" }, words)), list, picture);
  }

  // --- patients

  patientsPart() {
    const { people } = this;
    this.list = el("div", { class: people.kind === "survival" ? "study-list tall" : "study-list" }); // as tall as what stands beside it
    this.one = el("aside", { class: "study-one", "aria-label": "One patient", "aria-live": "polite" });
    this.picture = el("div");
    const methods = [...people.methods.map((name) => [name, name]), [ALL, "all methods (mean)"]];
    const options = Object.entries(ONLY);
    const controls = el(
      "div",
      { class: "study-controls" },
      field("Judged by", choice(methods, this.method, (method) => { this.method = method; this.keep({ method }); this.fill(); })),
      field("Show", choice(options, this.only, (only) => { this.only = only; this.keep({ only }); this.fill(); })),
    );
    const how = el("details", {}, el("summary", {}, "What is meant by wrong?"), el("p", {}, people.how, " ", disagreement(people.kind)));
    const header = el("header", {}, el("h2", {}, "Whom it was wrong about"), controls, how, notes(people.notes));
    return el("section", { class: "study-part study-patients", "aria-label": "Patients" }, header, this.list, el("div", { class: "study-side" }, this.one, this.picture));
  }

  fill() {
    const rows = this.people.patients.map((one) => this.row(one));
    const kept = rows.filter((row) => this.only === "everybody" || (this.only === "wrong" ? row.off : row.one.disagree));
    const columns = { classes: () => this.classColumns(), survival: () => this.riskColumns(), values: () => this.valueColumns() }[this.people.kind]();
    this.table?.();
    this.table = table(this.list, columns, kept, {
      key: "sample",
      label: "Patients",
      filter: this.state.find ?? "",
      sort: { classes: { id: "given", descending: false }, survival: { id: "wrong", descending: true }, values: { id: "error", descending: true } }[this.people.kind],
      onOpen: (row) => this.select(row.sample),
      onFilter: (find) => this.keep({ find }),
    });
    if (!this.made.includes(this.removeTable)) this.made.push((this.removeTable = () => this.table()));
    const first = this.table.shown()[0];
    this.select(kept.some((row) => row.sample === this.state.patient) ? this.state.patient : first?.sample, false);
    if (this.people.kind === "survival") this.drawRisks();
  }

  /** What the table shows of a patient, by the method it is judged by. */
  row(one) {
    const at = this.people.methods.indexOf(this.method);
    const shared = { one, sample: one.sample, slides: one.slides.join(" ") };
    if (this.people.kind === "classes") {
      const predicted = at < 0 ? `${one.right} of ${one.asked} right` : one.predicted[at];
      const off = at < 0 ? one.right < one.asked : predicted !== null && predicted !== one.truth;
      return { ...shared, truth: one.truth, predicted, off, given: at < 0 ? one.all : one.probability[at], right: one.right };
    }
    if (this.people.kind === "values") {
      const error = at < 0 ? one.all : one.error[at];
      return { ...shared, truth: one.truth, predicted: at < 0 ? one.all_predicted : one.predicted[at], error, off: farOff(one, error) };
    }
    const wrong = at < 0 ? one.all : one.wrong[at];
    return { ...shared, time: one.time, event: one.event ? "event" : "censored", risk: at < 0 ? one.all_risk : one.risk[at], wrong, off: wrong !== null && wrong > 0.5 };
  }

  classColumns() {
    return [
      { id: "sample", title: "patient" },
      { id: "truth", title: "truth" },
      { id: "predicted", title: "predicted", cell: (name, row) => verdict(name ?? "–", row.off, this.method !== ALL) },
      { id: "given", title: "p (truth)", number: true, format: two },
      { id: "right", title: "methods right", number: true, format: (count, row) => `${count} of ${row.one.asked}` },
      this.slidesColumn(),
    ];
  }

  riskColumns() {
    return [
      { id: "sample", title: "patient" },
      { id: "time", title: this.people.unit === "days" ? "days" : "time", number: true },
      { id: "event", title: "end" },
      { id: "risk", title: "risk rank", number: true, format: percent },
      { id: "wrong", title: "pairs wrong", number: true, format: percent },
      this.slidesColumn(),
    ];
  }

  valueColumns() {
    return [
      { id: "sample", title: "patient" },
      { id: "truth", title: "observed", number: true },
      { id: "predicted", title: "predicted", number: true },
      { id: "error", title: "error", number: true },
      this.slidesColumn(),
    ];
  }

  slidesColumn() {
    const longest = Math.max(8, ...this.people.patients.map(({ slides }) => slides.join("   ").length));
    return { id: "slides", title: "slides", width: Math.min(60, longest + 4), cell: (_, row) => this.links(row.one) };
  }

  address(slide) {
    return link({ page: "slide", slide, set: this.state.set });
  }

  links(one) {
    return el("span", { class: "study-slides" }, one.slides.length ? one.slides.map((slide) => el("a", { href: this.address(slide), title: `Open ${slide}` }, slide)) : el("span", { class: "faint" }, "not here"));
  }

  select(sample, byHand = true) {
    const one = this.people.patients.find((patient) => patient.sample === sample);
    this.table.mark(one ? [sample] : []);
    if (byHand) this.keep({ patient: sample });
    if (!one) {
      show(this.one, el("p", { class: "faint" }, "Nobody to show."));
      return;
    }
    if (!byHand && sample === this.state.patient) this.table.reveal(sample);
    const known = {
      classes: () => `truth: ${one.truth ?? "not known"}`,
      values: () => `observed: ${number(one.truth)}`,
      survival: () => `${one.event ? "event" : "censored"} after ${number(one.time)} ${this.people.unit === "days" ? "days" : ""}`,
    }[this.people.kind]();
    const other = one.patient !== one.sample ? ` · patient ${one.patient}` : "";
    const slides = one.slides.length
      ? one.slides.map((slide) => el("a", { class: "study-open", href: this.address(slide) }, `Open ${slide}`))
      : el("p", { class: "faint" }, "No slide of this patient is among those opened.");
    show(this.one, el("h3", {}, one.sample), el("p", {}, known, other), slides, this.predictions(one));
  }

  /** What each method said of one patient. */
  predictions(one) {
    if (this.people.kind === "values") return this.predictedValues(one);
    const classes = this.people.kind === "classes";
    const head = classes ? ["method", "predicted", "p (truth)", ""] : ["method", "risk rank", "pairs wrong", ""];
    const lines = this.people.methods.map((name, at) => {
      const off = classes ? one.predicted[at] !== null && one.predicted[at] !== one.truth : one.wrong[at] !== null && one.wrong[at] > 0.5;
      const share = classes ? one.probability[at] : one.wrong[at];
      const cells = classes
        ? [el("td", {}, verdict(one.predicted[at] ?? "–", off, true)), el("td", { class: "number" }, shown(one.probability[at], two))]
        : [el("td", { class: "number" }, shown(one.risk[at], percent)), el("td", { class: "number" }, shown(one.wrong[at], percent))];
      const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span", { style: { width: `${100 * (share ?? 0)}%` } }));
      const marks = [off && "off", name === this.method && "chosen"].filter(Boolean).join(" ");
      return el("tr", { class: marks || null }, el("th", { scope: "row" }, name), cells, el("td", {}, bar));
    });
    const numbers = classes ? [2] : [1, 2];
    return el("table", {}, el("thead", {}, el("tr", {}, head.map((title, at) => el("th", { scope: "col", class: numbers.includes(at) ? "number" : null }, title)))), el("tbody", {}, lines));
  }

  predictedValues(one) {
    const lines = this.people.methods.map((name, at) => {
      const marks = [farOff(one, one.error[at]) && "off", name === this.method && "chosen"].filter(Boolean).join(" ");
      const cells = [one.predicted[at], one.error[at]].map((value) => el("td", { class: "number" }, shown(value, number)));
      return el("tr", { class: marks || null }, el("th", { scope: "row" }, name), cells);
    });
    const head = ["method", "predicted", "error"].map((title, at) => el("th", { scope: "col", class: at ? "number" : null }, title));
    return el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, lines));
  }

  async drawRisks() {
    const mine = ++this.turn;
    try {
      const { figure } = await get(["study", "risks"], { study: this.results.study, part: this.results.part, method: this.method }, { signal: this.stopped.signal });
      if (mine !== this.turn || this.stopped.signal.aborted) return;
      const label = `Rank of the risk by ${this.method === ALL ? "all methods" : this.method} against follow-up`;
      if (this.risks) this.risks.draw(figure, label);
      else this.made.push((this.risks = chart(this.picture, figure, { label, onClick: ({ key }) => this.select(key) })));
    } catch (error) {
      if (!this.stopped.signal.aborted) message(error.message, "study");
    }
  }
}

const three = (value) => value.toFixed(3);
const two = (value) => value.toFixed(2);
const percent = (value) => `${Math.round(100 * value)} %`;
const shown = (value, form) => (value === null ? "–" : form(value));

function interval(low, high, exact) {
  return `${three(low)} to ${three(high)}${exact === null ? "" : `, exact from ${three(exact)}`}`;
}

function verdict(text, off, judged) {
  return el("span", { class: judged ? (off ? "study-off" : "study-on") : null, title: judged ? (off ? "wrong" : "right") : null }, text);
}

/** An error larger than the values differ by themselves: their mean would have done better. */
function farOff(one, error) {
  return error !== null && error > one.spread;
}

function disagreement(kind) {
  return {
    classes: "Methods disagree on a patient where they predict different things.",
    values: "The wrong ones are off by more than the standard deviation of what was observed; methods disagree on a patient where some predict more and some less than the median.",
    survival: "The rank of a risk is the share of the patients tested together whose risk is lower: 0 % the lowest, 100 % the highest. The wrong ones have more than half of their pairs wrong; methods disagree on a patient where some rank it in the upper and some in the lower half.",
  }[kind];
}

function notes(list) {
  return list.length ? el("div", { class: "study-notes" }, list.map((note) => el("p", {}, note))) : null;
}
