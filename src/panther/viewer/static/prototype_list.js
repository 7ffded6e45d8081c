// All prototypes in a column, with their shares: from one to the next.
import { link } from "./address.js";
import { el, show } from "./dom.js";
import { bar, percent } from "./legend.js";
import { swatch } from "./layer_controls.js";

export function prototypeList(place, names, overview, chosen, address) {
  const shares = overview?.prototypes.map(({ share }) => share) ?? [];
  const most = Math.max(...shares.map((share) => share ?? 0), 1e-9);
  const top = place.scrollTop;
  show(
    place,
    names.state.prototypes.map(({ prototype, title, colour }) =>
      el(
        "a",
        { href: link(address(prototype)), "aria-current": prototype === chosen ? "true" : null, title },
        swatch(colour),
        el("span", { class: "name" }, title),
        el("span", { class: "share" }, shares[prototype] == null ? "" : percent(shares[prototype])),
        bar((shares[prototype] ?? 0) / most, colour),
      ),
    ),
  );
  place.scrollTop = top;
}
