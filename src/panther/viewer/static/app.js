// The frame: pages by name, the bar above them, light and dark.
import { SILENT, get } from "./api.js";
import { go, link, onGo, state } from "./address.js";
import { el, message, show } from "./dom.js";

// page -> its module, which exports open(place, state, contents) and returns what closes it
const PAGES = {
  start: ["Overview", () => import("./start.js")],
  slide: ["Slide", () => import("./slide.js")],
  prototypes: ["Prototypes", () => import("./prototypes.js")],
  cohort: ["Cohort", () => import("./cohort.js")],
  compare: ["Compare", () => import("./compare.js")],
  study: ["Study", () => import("./study.js")],
};

const AGAIN = 300; // ms between two looks while the folder is being read

let contents = null;
let close = () => {};
let turn = 0;

async function open(now) {
  const name = now.page in PAGES ? now.page : Object.keys(now).length ? "slide" : "start";
  const current = ++turn;
  const place = document.getElementById("page");
  mark(name);
  if (place.dataset.page !== name) {
    close(); // first: a page that is left must not write into the address of the next one
    close = () => {};
  }
  try {
    const module = await PAGES[name][1]();
    if (current !== turn) return;
    // a page that can go to another place of its own is not built anew: its lists keep what was searched for
    if (place.dataset.page === name && close.follow) return close.follow(now);
    close();
    close = () => {};
    show(place);
    place.dataset.page = name;
    const end = await module.open(place, now, contents);
    if (current === turn) close = end ?? (() => {});
    else end?.();
  } catch (error) {
    message(error instanceof TypeError && /dynamically imported module/.test(error.message) ? SILENT : error.message, "page");
  }
}

function mark(name) {
  for (const item of document.querySelectorAll("#bar nav a")) {
    if (item.dataset.page === name) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
}

function bar() {
  const pages = Object.entries(PAGES).map(([name, [title]]) =>
    el("a", { href: link({ ...kept(), page: name }), "data-page": name, onclick: (event) => follow(event, name) }, title),
  );
  const theme = el("button", { class: "quiet", onclick: switchTheme, "aria-label": "Light or dark" }, "◐");
  const share = el("button", { class: "quiet", onclick: copyLink, title: "Copy a link to this view, with its token" }, "Share");
  show(
    document.getElementById("bar"),
    el("strong", { class: "title" }, contents.title),
    el("nav", { "aria-label": "Pages" }, pages),
    el("span", { class: "spring" }),
    share,
    theme,
  );
}

/** What stays when one turns to another page. */
function kept() {
  const { slide, set, prototype } = state();
  return { slide, set, prototype };
}

function follow(event, name) {
  event.preventDefault();
  go({ ...kept(), page: name });
}

async function copyLink() {
  let token;
  try {
    ({ token } = await get(["link"]));
  } catch (error) {
    message(error.message, "share");
    return;
  }
  const address = new URL(`?token=${encodeURIComponent(token)}${location.hash}`, location.href).href;
  try {
    await navigator.clipboard.writeText(address);
    message("The link was copied. Anyone who has it can open this viewer.", "share");
  } catch {
    message(address, "share"); // no clipboard without https: to be copied by hand
  }
}

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  setTheme(now === "dark" ? "light" : "dark");
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

/** What there is to show; the page is served before its folder is read. */
async function loaded() {
  for (;;) {
    try {
      return await get(["contents"]);
    } catch (error) {
      if (!error.loading) throw error;
      const place = document.getElementById("page");
      if (!place.firstChild) show(place, el("p", { class: "reading", role: "status" }, "Reading the folder …"));
      await new Promise((done) => setTimeout(done, AGAIN));
    }
  }
}

async function start() {
  if (localStorage.getItem("theme")) setTheme(localStorage.getItem("theme"));
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("page").focus();
  });
  try {
    contents = await loaded();
  } catch (error) {
    message(error.message, "page");
    show(document.getElementById("page"));
    return;
  }
  document.title = `${contents.title} · panther`;
  contents.notes.forEach((note) => message(note));
  bar();
  onGo(open);
  await open(state());
}

start();
