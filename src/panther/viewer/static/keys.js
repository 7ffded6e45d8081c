// Keys of a page, and the window that lists them.
import { el } from "./dom.js";

const WRITES = "input:not([type=checkbox]):not([type=range]):not([type=button]), textarea, select, [contenteditable]";

export const CANVAS_KEYS = [
  ["← ↑ → ↓", "move"],
  ["+  −", "zoom in, out (also wheel, pinch, double click)"],
  ["0", "fit the slide into the window"],
  ["1", "1:1, a pixel of the slide on a pixel of the screen"],
];

/** Listen for keys of the whole page: `does(event)` returns whether it did something. `?` shows `list`. Returns what ends it. */
export function pageKeys(list, does) {
  const help = window_(list);
  const listener = (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.closest?.(WRITES) && event.key !== "Escape") return;
    if (event.key === "?") showKeys();
    else if (!does(event)) return;
    event.preventDefault();
  };
  const showKeys = () => (document.body.append(help), help.showModal());
  document.addEventListener("keydown", listener);
  const close = () => {
    document.removeEventListener("keydown", listener);
    help.remove();
  };
  return { showKeys, close };
}

function window_(list) {
  const rows = list.map(([key, text]) => el("tr", {}, el("th", { scope: "row" }, key.split("  ").map((one) => el("kbd", {}, one))), el("td", {}, text)));
  const dialog = el(
    "dialog",
    { class: "keys", "aria-label": "Keys", onclick: (event) => event.target === dialog && dialog.close(), onclose: () => dialog.remove() },
    el("h2", {}, "Keys"),
    el("table", {}, el("tbody", {}, rows)),
    el("button", { onclick: () => dialog.close(), autofocus: true }, "Close"),
  );
  return dialog;
}
