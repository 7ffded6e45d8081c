// Elements of the page. Text is always set as text, never as HTML: names and tables may hold anything.

/** el("button", {class: "x", onclick: f, disabled: true, "aria-label": "Fit"}, "text", child, ...) */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

export function show(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter(Boolean));
}

/** One sentence at the top of the page; it goes when it is clicked, or when the same place says something else. */
export function message(text, key = text) {
  const place = document.getElementById("messages");
  for (const old of [...place.children]) if (old.dataset.key === key) old.remove();
  if (!text) return;
  const close = el("button", { class: "quiet", "aria-label": "Close this message", onclick: () => note.remove() }, "×");
  const note = el("div", { class: "message", "data-key": key }, el("span", {}, text), close);
  place.append(note);
  while (place.children.length > 4) place.firstChild.remove();
}

/** A labelled control. */
export function field(label, control) {
  return el("label", { class: "field" }, el("span", {}, label), control);
}

/** A list to choose from; `options` are [value, text]. */
export function choice(options, value, onchange, attributes = {}) {
  const select = el("select", { ...attributes, onchange: () => onchange(select.value) });
  for (const [key, text] of options) select.append(el("option", { value: key, selected: key === value }, text));
  return select;
}
