// The start page: what this job is, what was done and failed, the cases that need eyes, and what to do next.
import { link } from "./address.js";
import { get } from "./api.js";
import { el, show } from "./dom.js";
import { number } from "./table.js";

const WORST = 5;

export async function open(place, state, contents) {
  const page = el("div", { class: "start" }, el("h1", {}, contents.title), el("p", { class: "faint", role: "status" }, "…"));
  show(place, page);
  const stop = new AbortController();
  fill(page, contents, stop.signal).catch((error) => stop.signal.aborted || show(page, el("p", { role: "alert" }, error.message)));
  return () => stop.abort();
}

async function fill(page, contents, signal) {
  const about = await get(["start"], {}, { signal });
  const worst = el("div", {}, el("p", { class: "faint" }, about.studies.length ? "…" : "There is no study here."));
  const to = about.next;
  show(
    page,
    el("h1", {}, contents.title),
    el("section", { class: "next" }, el("h2", {}, "Next"), el("p", {}, to.page ? el("a", { href: link({ page: to.page }) }, to.text) : [to.text, " ", el("code", {}, to.command)])),
    el("section", {}, el("h2", {}, "This job"), el("dl", {}, about.facts.map(([title, value]) => [el("dt", {}, title), el("dd", {}, value)])), el("ul", { class: "steps", "aria-label": "Steps" }, about.done.map(({ step, done }) => el("li", { class: done ? "done" : "faint" }, `${done ? "✓" : "–"} ${step}`)))),
    el(
      "section",
      {},
      el("h2", {}, "To look at"),
      el("p", {}, el("a", { href: link({ page: "slide", slide: contents.slides[0]?.name }) }, `${about.seen} of ${contents.slides.length} slides seen`), `, ${about.flagged} flagged.`),
      about.unnamed.length > 0 && el("p", {}, el("a", { href: link({ page: "prototypes" }) }, `${about.unnamed.length} unnamed prototypes`), `: ${about.unnamed.map((c) => `C${c}`).join(", ")}.`),
      about.failed ? [el("p", { class: "failed" }, `${about.failed} slides failed:`), el("ul", {}, about.failures.map(({ slide, reason }) => el("li", {}, el("a", { href: link({ page: "slide", slide }) }, slide), `: ${reason}`)))] : el("p", { class: "faint" }, "No slide failed."),
    ),
    about.studies.length > 0 && el("section", {}, el("h2", {}, "Studies"), el("ul", {}, about.studies.map(study))),
    el("section", {}, el("h2", {}, "Worst predictions"), worst),
  );
  if (about.studies.length) show(worst, await patients(signal));
}

function study({ name, problem, metric, best, mean, low, high, failed }) {
  if (problem) return el("li", {}, problem);
  const interval = low == null ? "" : ` (${low.toFixed(2)} to ${high.toFixed(2)})`;
  return el("li", {}, el("a", { href: link({ page: "study", study: name }) }, name), mean == null ? "" : `: ${metric} ${mean.toFixed(3)}${interval}, ${best.replace(/ \[(.*)\]$/, ", $1")}`, failed ? `; ${failed} samples failed` : "");
}

async function patients(signal) {
  try {
    const { patients, kind } = await get(["study", "patients"], {}, { signal });
    const worst = patients.filter(({ all }) => all !== null).sort((a, b) => (kind === "classes" ? a.all - b.all : b.all - a.all)).slice(0, WORST);
    return el("ul", { class: "worst" }, worst.map(({ sample, slides, truth, all }) => el("li", {}, el("a", { href: link({ page: "study", patient: sample }) }, sample), kind === "classes" ? `: ${truth}, probability ${all.toFixed(2)}` : `: ${kind === "survival" ? "pairs in the wrong order" : "error"} ${number(all, 2)}`, slides.slice(0, 2).map((slide) => [" · ", el("a", { href: link({ page: "slide", slide }) }, slide)]))));
  } catch (error) {
    return el("p", { class: "faint" }, error.message);
  }
}
