// How a slide is moved in its window: to a place, gliding or at once, and together with another window.

const CLOSEST = 16; // CSS pixels a canvas unit
const FLIGHT = 160; // ms of a zoom by wheel or key
const SETTLED = 220; // ms without a move after which a view is reported as settled

/** What DeepZoom is built on: its `view`; it has a `node`, a `slide`, `onView` and `redraw`. */
export class Moving {
  view = { x: 0, y: 0, zoom: 1 };
  fitted = true; // until the first move, a change of the window's size fits the slide again
  flight = null;
  linked = null;

  get size() {
    return { width: this.node.clientWidth || 1, height: this.node.clientHeight || 1 };
  }

  get fitZoom() {
    const { width, height } = this.size;
    if (!this.slide?.width) return 1;
    return Math.min(width / this.slide.width, height / this.slide.height) * 0.96;
  }

  /** Area of the slide in the window. */
  get seen() {
    const { width, height } = this.size;
    const { x, y, zoom } = this.view;
    const [w, h] = [width / 2 / zoom, height / 2 / zoom];
    return { left: x - w, top: y - h, right: x + w, bottom: y + h };
  }

  /** Place on the slide under a CSS pixel of the window. */
  placeAt(at, view = this.view) {
    const { width, height } = this.size;
    return { x: view.x + (at.x - width / 2) / view.zoom, y: view.y + (at.y - height / 2) / view.zoom };
  }

  // --- moving

  /** Go to a view; `soft` glides there. */
  setView(view, soft = false, fitted = false) {
    const aim = this._within({ ...this.view, ...view });
    this.fitted = fitted;
    this._go(aim, soft ? 260 : 0, null);
  }

  fit(soft = true) {
    if (!this.slide) return;
    this.setView({ x: this.slide.width / 2, y: this.slide.height / 2, zoom: this.fitZoom }, soft, true);
  }

  /** One pixel of the slide on one pixel of the screen. */
  actual() {
    this._zoomTo(1 / this._ratio(), null, true);
  }

  zoomBy(factor, at = null, soft = true) {
    this._zoomTo((this.flight?.aim.zoom ?? this.view.zoom) * factor, at, soft);
  }

  panBy(dx, dy, soft = false) {
    const from = this.flight?.aim ?? this.view;
    this.fitted = false;
    this._go(this._within({ ...from, x: from.x + dx / from.zoom, y: from.y + dy / from.zoom }), soft ? FLIGHT : 0, null);
  }

  _zoomTo(zoom, at, soft) {
    if (!this.slide) return;
    const { width, height } = this.size;
    const screen = at ?? { x: width / 2, y: height / 2 };
    const place = this.placeAt(screen);
    const aim = this._within({ ...this.view, zoom });
    aim.x = place.x - (screen.x - width / 2) / aim.zoom; // what is under the pointer stays there
    aim.y = place.y - (screen.y - height / 2) / aim.zoom;
    this.fitted = false;
    this._go(this._within(aim), soft ? FLIGHT : 0, { screen, place });
  }

  _within({ x, y, zoom }) {
    const { width, height } = this.slide ?? { width: 1, height: 1 };
    const inside = (value, low, high) => Math.max(low, Math.min(high, Number.isFinite(value) ? value : (low + high) / 2));
    return { x: inside(x, 0, width), y: inside(y, 0, height), zoom: inside(zoom, this.fitZoom / 4, CLOSEST) };
  }

  _go(aim, time, anchor) {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.flight = time && !calm ? { from: this.view, aim, anchor, time, start: performance.now() } : null;
    if (!this.flight) this._arrive(aim);
    this.redraw();
  }

  _fly(now) {
    const { from, aim, anchor, time, start } = this.flight;
    const part = Math.max(0, Math.min(1, (now - start) / time));
    if (part >= 1) {
      this.flight = null;
      return this._arrive(aim);
    }
    const eased = 1 - (1 - part) ** 3;
    const zoom = from.zoom * (aim.zoom / from.zoom) ** eased;
    if (anchor) {
      const { width, height } = this.size;
      const { screen, place } = anchor;
      return this._arrive({ x: place.x - (screen.x - width / 2) / zoom, y: place.y - (screen.y - height / 2) / zoom, zoom });
    }
    this._arrive({ x: from.x + (aim.x - from.x) * eased, y: from.y + (aim.y - from.y) * eased, zoom });
  }

  _arrive(view) {
    this.view = view;
    this.onView(view, false);
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.onView(this.view, true), SETTLED);
    if (this.linked && !this.following) this.linked._follow(this);
    this.redraw();
  }

  // --- two windows that move as one

  link(other) {
    this.linked = other;
    other.linked = this;
    other._follow(this);
  }

  unlink() {
    if (this.linked) this.linked.linked = null;
    this.linked = null;
  }

  /** The same place: exactly on the same slide, else as a fraction of the slide. */
  _follow(other) {
    if (!this.slide?.width || !other.slide?.width) return;
    const same = this.slide.name === other.slide.name;
    const { x, y, zoom } = other.view;
    this.flight = null;
    this.fitted = other.fitted;
    this.following = true;
    this._arrive(
      same
        ? { x, y, zoom }
        : {
            x: (x / other.slide.width) * this.slide.width,
            y: (y / other.slide.height) * this.slide.height,
            zoom: (zoom / other.fitZoom) * this.fitZoom,
          },
    );
    this.following = false;
  }
}
