// Asking the server. Addresses are relative, so that they hold behind any proxy.

export const SILENT = "The server does not answer; is `panther view` still running?";

export class Refused extends Error {
  constructor(text, status, loading = false) {
    super(text);
    this.status = status;
    this.loading = loading; // the folder is still being read
  }
}

/** path("tiles", slide, 3, "0_1.jpg") with what it holds escaped; options are the query. */
export function path(parts, options = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = parts.map((part) => encodeURIComponent(part)).join("/");
  return query.size ? `${text}?${query}` : text;
}

export async function get(parts, options = {}, how = {}) {
  return answer(await ask(path(["api", ...parts], options), how));
}

export async function bytes(parts, options = {}, how = {}) {
  const response = await ask(path(["api", ...parts], options), how);
  if (!response.ok) await answer(response);
  return response.arrayBuffer();
}

/** Lines of JSON: `onLine` is called with each as it arrives; the last one is the answer. */
export async function lines(parts, options, how, onLine) {
  const response = await ask(path(["api", ...parts], options), how);
  if (!response.ok) return answer(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let last = {};
  for (;;) {
    const { value, done } = await reader.read();
    const found = (rest + (value ?? "")).split("\n");
    rest = done ? "" : found.pop();
    for (const text of found.filter(Boolean)) onLine((last = JSON.parse(text)));
    if (done) break;
  }
  if (last.error) throw new Refused(last.error, response.status);
  return last;
}

export async function post(parts, value) {
  const how = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) };
  return answer(await ask(path(["api", ...parts]), how));
}

async function ask(address, how) {
  try {
    return await fetch(address, { credentials: "same-origin", ...how });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(SILENT, 0);
  }
}

async function answer(response) {
  let content = {};
  try {
    content = await response.json();
  } catch {
    content = { error: `The server answered ${response.status} ${response.statusText}.` };
  }
  if (!response.ok) throw new Refused(content.error ?? `The server answered ${response.status}.`, response.status, content.loading);
  return content;
}
