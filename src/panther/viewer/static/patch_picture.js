// Picture of a patch; where there is none, the slide's name in its place.
import { path } from "./api.js";
import { el } from "./dom.js";

export function patchPicture(slide, patch, has, size, text) {
  const none = () => el("span", { class: "no-picture" }, slide);
  if (!has) return none();
  const picture = el("img", { src: path(["tiles", slide, "patch", `${patch}.jpg`], { size }), alt: text, loading: "lazy", draggable: false });
  picture.addEventListener("error", () => picture.replaceWith(none()));
  return picture;
}
