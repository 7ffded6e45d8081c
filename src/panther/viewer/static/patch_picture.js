// Picture of a patch; where there is none, the slide's name in its place.
import { path } from "./api.js";
import { el } from "./dom.js";

/** `place`, where it is known ({x, y, side, unit}), spares the server to look it up among all patches of the slide. */
export function patchPicture({ slide, patch, place }, has, size, text) {
  const none = () => el("span", { class: "no-picture" }, slide);
  if (!has) return none();
  const src = place ? path(["tiles", slide, "square.jpg"], { ...place, size }) : path(["tiles", slide, "patch", `${patch}.jpg`], { size });
  const picture = el("img", { src, alt: text, loading: "lazy", draggable: false });
  picture.addEventListener("error", () => picture.replaceWith(none()));
  return picture;
}
