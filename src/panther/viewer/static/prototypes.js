// The prototype page: all prototypes as cards, or one of them with everything that is known of it.
// In the address: prototype, slide (at hand), set, column (of the clinical table), order (of the cards).
import { go, link, remember } from "./address.js";
import { get, post } from "./api.js";
import { choice, el, field, message, show } from "./dom.js";
import { whole } from "./overlays.js";
import { openNames, undoButton } from "./naming.js";
import { prototypeCards } from "./prototype_cards.js";
import { prototypeDetail } from "./prototype_detail.js";
import { prototypeList } from "./prototype_list.js";

const SOON = 1500; // ms between looks while slides are still being read

export async function open(place, state, contents) {
  if (!contents.prototypes.length) {
    show(place, el("p", { class: "sentence-page" }, "There are no prototypes here; fit some with `panther prototypes`, or start the viewer with --prototypes."));
    return () => {};
  }
  const page = new PrototypePage(place, contents);
  await page.follow(state);
  const close = () => page.close();
  close.follow = (now) => page.follow(now);
  return close;
}

class PrototypePage {
  constructor(place, contents) {
    this.contents = contents;
    this.closed = false;
    this.turn = 0;
    this.shown = null; // cards, or one prototype
    this.names = null;
    this.head = el("div", { class: "head" });
    this.notes = el("div", { class: "notes" });
    this.list = el("nav", { class: "prototype-list", "aria-label": "Prototypes" });
    this.main = el("div", { class: "prototype-main" });
    show(place, el("div", { class: "prototype-page" }, this.list, el("div", { class: "prototype-body" }, this.head, this.notes, this.main)));
  }

  async follow(state) {
    const current = ++this.turn;
    this.state = state;
    const fresh = !this.names || this.names.set !== state.set;
    if (fresh) {
      this.names?.close();
      this.names = await openNames(state.set, () => this._named());
      this.undo = undoButton(this.names);
    }
    if (current !== this.turn || this.closed) return;
    const count = this.names.state.prototypes.length;
    const c = whole(state.prototype);
    if (c !== null && c >= count) message(`There is no prototype C${c}; there are C0 to C${count - 1}.`, "prototype");
    this.prototype = c !== null && c < count ? c : null;
    this.shown?.close();
    const parts = { names: this.names, state, contents: this.contents, change: (values) => this._change(values), address: (values) => this._address(values) };
    this.shown = this.prototype === null ? prototypeCards(this.main, parts) : prototypeDetail(this.main, this.prototype, parts);
    this.main.parentElement.scrollTop = 0;
    this._head();
    await this._load();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.names?.close();
    this.shown?.close();
  }

  /** Address of a place of this page; other parameters stay. */
  _address(values) {
    const { slide, set, column, order } = this.state;
    return { page: "prototypes", slide, set, column, order, prototype: this.prototype, ...values };
  }

  /** A choice within the page. */
  _change(values) {
    this.state = { ...this.state, ...values };
    remember(values);
    this._load();
  }

  _named() {
    this.undo.update();
    this._head();
    this._list();
    this._notes();
    this.shown?.named?.();
  }

  async _load() {
    const current = this.turn;
    clearTimeout(this.timer);
    try {
      const { set, column } = this.state;
      const [overview, one] = await Promise.all([
        get(["prototypes"], { set }),
        this.prototype === null ? null : get(["prototypes", this.prototype], { set, column }),
      ]);
      if (current !== this.turn || this.closed) return;
      this.overview = overview;
      this.shown.update(overview, one);
      this._head();
      this._list();
      this._notes();
      message("", "prototypes");
      if (overview.can_look && this.prototype !== null && !this.looked) this._look(); // borderline and atypical patches, which an atlas does not hold
      if (overview.running) this.timer = setTimeout(() => this._load(), SOON);
    } catch (error) {
      if (current === this.turn && !this.closed) message(error.message, "prototypes");
    }
  }

  _head() {
    const sets = this.contents.prototypes.map(({ name, count }) => [name, `${name} (${count})`]);
    const title = this.prototype === null ? `${this.names.state.prototypes.length} prototypes` : null;
    const set = sets.length > 1 && field("Set", choice(sets, this.state.set ?? sets[0][0], (name) => go(this._address({ set: name, prototype: null }))));
    const unnamed = this.names.state.prototypes.filter(({ name }) => !name).length;
    const next = title && unnamed > 0 && this.names.editable && el("button", { class: "small", title: "Name the next one (n)", onclick: () => this.shown.next?.() }, `${unnamed} unnamed`);
    const back = this.prototype !== null && el("a", { href: link(this._address({ prototype: null })) }, "‹ All prototypes");
    show(this.head, title ? el("h1", {}, title) : back, next, el("span", { class: "spring" }), this._progress(), set, this.undo.node);
  }

  _progress() {
    const found = this.overview;
    if (!found) return el("span", { class: "faint", role: "status" }, "Reading …");
    if (found.running) {
      const part = el("progress", { max: found.total, value: found.done, "aria-label": "Slides looked at" });
      return el("span", { class: "faint progress", role: "status" }, part, `${found.done} of ${found.total} slides`);
    }
    if (!found.total) return el("span", { class: "faint" }, "from an atlas");
    const failed = found.failed ? `, ${found.failed} of them cannot be read` : "";
    return el("span", { class: "faint", role: "status", title: Object.values(found.failures).join("\n") }, `${found.total} slides${failed}`);
  }

  _notes() {
    const state = this.names.state;
    const notes = (this.overview?.notes ?? []).map((note) => el("p", { class: "faint" }, note));
    show(this.notes, state.problem && el("p", { class: "note" }, state.problem), notes);
  }

  async _look() {
    this.looked = true;
    try {
      await post(["prototypes", "look"], { set: this.state.set });
      await this._load();
    } catch (error) {
      message(error.message, "prototypes");
    }
  }

  _list() {
    this.list.hidden = this.prototype === null;
    if (this.prototype !== null) prototypeList(this.list, this.names, this.overview, this.prototype, (prototype) => this._address({ prototype }));
  }
}
