// What prototypes are called: read, changed and changed back. Every change is saved at once, in the file that all commands read.
import { get, post } from "./api.js";
import { el, field, message } from "./dom.js";
import { isColour } from "./layer_controls.js";

const AGAIN = 15000; // ms after which a page looks for changes made elsewhere

/** Names of a set; `onChange()` is called whenever they change, here or elsewhere. */
export async function openNames(set, onChange) {
  const names = new Names(set, onChange);
  await names.refresh();
  names.start();
  return names;
}

class Names {
  constructor(set, onChange) {
    this.set = set;
    this.onChange = onChange;
    this.state = null;
    this.last = Promise.resolve();
    this.look = () => document.visibilityState === "visible" && this.refresh().catch(() => {});
  }

  start() {
    this.timer = setInterval(this.look, AGAIN);
    addEventListener("focus", this.look);
  }

  close() {
    clearInterval(this.timer);
    removeEventListener("focus", this.look);
    this.onChange = () => {};
  }

  get editable() {
    return !this.state.problem;
  }

  of(prototype) {
    return this.state.prototypes[prototype];
  }

  get groups() {
    return [...new Set(this.state.prototypes.map(({ group }) => group).filter(Boolean))].sort();
  }

  async refresh() {
    const before = this.state;
    const found = await get(["names"], { set: this.set });
    if (this.state === before) this._take(found); // else an answer to a change came first, and this one is older
  }

  /** Change fields of a prototype; whether it was saved. Changes go one after the other, each upon the values before. */
  change(prototype, fields) {
    return this._ask(["names"], () => {
      const shown = { ...this.of(prototype), colour: this.of(prototype).chosen_colour };
      const seen = Object.fromEntries(Object.keys(fields).map((field) => [field, shown[field]]));
      return { set: this.set, prototype, seen, ...fields };
    });
  }

  undo() {
    return this._ask(["names", "undo"], () => ({}));
  }

  _ask(parts, body) {
    this.last = this.last.then(async () => {
      try {
        this._take(await post(parts, body()));
        message("", "names");
        return true;
      } catch (error) {
        message(error.message, "names");
        if (error.status === 409) await this.refresh().catch(() => {});
        return false;
      }
    });
    return this.last;
  }

  _take(state) {
    const before = this.state;
    this.state = state;
    if (before && JSON.stringify(before) !== JSON.stringify(state)) this.onChange();
  }
}

/** Button that takes back the last change; `update()` when names changed. */
export function undoButton(names) {
  const button = el("button", { class: "small", onclick: () => names.undo() }, "Undo");
  const update = () => {
    button.disabled = !names.state.can_undo;
    button.title = names.state.can_undo ? `Undo the ${names.state.undo}` : "Nothing was changed in this session";
  };
  update();
  return { node: button, update };
}

/** Name, group, colour and note of one prototype, to be written over; `update()` when names changed elsewhere. */
export function nameEditor(names, prototype) {
  const saved = el("span", { class: "faint saved", role: "status" });
  const list = el("datalist", { id: "groups-known" });
  const inputs = {
    name: el("input", { type: "text", maxLength: 200, placeholder: "not named yet", autocomplete: "off" }),
    group: el("input", { type: "text", maxLength: 100, placeholder: "none", list: "groups-known", autocomplete: "off" }),
    note: el("textarea", { rows: 3, maxLength: 2000, placeholder: "what you see, and what it may be", title: "Saved when you leave the field, or by Ctrl+Enter" }),
  };
  const unsaved = new Set();
  for (const [name, input] of Object.entries(inputs)) {
    input.addEventListener("change", () => save(name, input.value));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (input !== inputs.note || event.ctrlKey || event.metaKey)) { // a note has lines
        event.preventDefault();
        if (unsaved.has(name)) save(name, input.value); // once more, knowing what the others wrote
        else input.blur();
      } else if (event.key === "Escape") {
        unsaved.delete(name);
        input.value = names.of(prototype)[name];
        input.blur();
      }
    });
  }
  const colour = el("input", { type: "color" });
  colour.addEventListener("change", () => save("colour", colour.value));
  const plain = el("button", { class: "small", title: "Take the colour of the palette, or of the group", onclick: () => save("colour", "") }, "Reset");
  const node = el(
    "form",
    { class: "name-editor", onsubmit: (event) => event.preventDefault() },
    field("Name", inputs.name),
    field("Group", inputs.group),
    el("div", { class: "field" }, el("label", { for: "prototype-colour" }, "Colour"), el("div", { class: "colour-choice" }, colour, plain)),
    field("Note", inputs.note),
    list,
    saved,
  );
  colour.id = "prototype-colour";
  update();
  return { node, update };

  async function save(name, value) {
    if (name !== "colour" && value === names.of(prototype)[name]) return;
    unsaved.add(name);
    const done = await names.change(prototype, { [name]: value });
    if (done) unsaved.delete(name); // what could not be saved stays in its box
    inputs[name]?.setAttribute("aria-invalid", String(!done));
    saved.textContent = done ? `Saved in ${names.state.file}.` : `Not saved; ${name === "note" ? "Ctrl+Enter" : "Enter"} tries again.`;
    update();
  }

  function update() {
    const one = names.of(prototype);
    for (const [name, input] of Object.entries(inputs)) {
      if (!unsaved.has(name) && document.activeElement !== input) input.value = one[name];
      input.disabled = !names.editable;
    }
    if (isColour(one.colour)) colour.value = one.colour.toLowerCase();
    colour.disabled = !names.editable;
    plain.disabled = !names.editable || !one.chosen_colour;
    list.replaceChildren(...names.groups.map((group) => el("option", { value: group })));
  }
}
