import { el, show } from "./dom.js";

export async function open(place, state, contents) {
  show(place, el("p", {}, "To be built."));
}
