// What is looked at stands in the address, after #, so that a link shows a colleague the same.

const listeners = new Set();

/** State as plain text values: {page: "slide", slide: "S1", x: "1024", ...} */
export function state() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function text(values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  return `#${query}`;
}

/** Go to another place: a new entry of the browser's history. Only the given state stays. */
export function go(values) {
  location.hash = text(values);
}

/** Remember a change of the same place: no new entry, and pages are not notified (they made it). */
export function remember(changes) {
  history.replaceState(null, "", text({ ...state(), ...changes }));
}

/** Address of a state, for links. */
export function link(values) {
  return text(values);
}

export function onGo(listener) {
  listeners.add(listener);
}

addEventListener("hashchange", () => listeners.forEach((listener) => listener(state())));
