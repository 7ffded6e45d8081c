// Picture of a patch; where there is none, the slide's name in its place.
import { link } from "./address.js";
import { path } from "./api.js";
import { el } from "./dom.js";

const AROUND = 5; // sides of the patch that its surroundings show
const WINDOW = 640; // pixels of them

/** A link to a patch that shows it in its surroundings; the slide is one step further. */
export function patchLink(one, has, set, attributes, ...children) {
  const { slide, patch, place } = one;
  const show = (event) => {
    if (!has || !place || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    surroundings(one, set);
  };
  return el("a", { href: link({ page: "slide", slide, patch, set }), onclick: show, ...attributes }, children);
}

function surroundings({ slide, patch, place, patient }, set) {
  const shift = ((AROUND - 1) / 2) * place.side;
  const src = path(["tiles", slide, "square.jpg"], { x: place.x - shift, y: place.y - shift, side: AROUND * place.side, unit: place.unit, size: WINDOW });
  const dialog = el(
    "dialog",
    { class: "surroundings", "aria-label": `Patch ${patch} of ${slide} in its surroundings`, onclick: (event) => event.target === dialog && dialog.close(), onclose: () => dialog.remove() },
    el("div", { class: "around" }, el("img", { src, alt: `Surroundings of patch ${patch} of ${slide}` }), el("i", {})),
    el("p", {}, slide, patient && patient !== slide ? el("span", { class: "faint" }, ` · patient ${patient}`) : null),
    el("a", { class: "button small", href: link({ page: "slide", slide, patch, set }), onclick: () => dialog.close() }, "Open the slide"),
    " ",
    el("button", { class: "small", onclick: () => dialog.close(), autofocus: true }, "Close"),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** `place`, where it is known ({x, y, side, unit}), spares the server to look it up among all patches of the slide. */
export function patchPicture({ slide, patch, place }, has, size, text) {
  const none = () => el("span", { class: "no-picture" }, slide);
  if (!has) return none();
  const src = place ? path(["tiles", slide, "square.jpg"], { ...place, size }) : path(["tiles", slide, "patch", `${patch}.jpg`], { size });
  const picture = el("img", { src, alt: text, loading: "lazy", draggable: false });
  picture.addEventListener("error", () => picture.replaceWith(none()));
  return picture;
}
