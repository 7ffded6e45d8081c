// The whole slide in a corner, with a rectangle around what is shown; a click goes there.
import { el } from "./dom.js";

const LONG = 168; // CSS pixels of the longer side

export class Minimap {
  /** `goTo(x, y)` is called with a place on the canvas. */
  constructor(goTo) {
    this.node = el("canvas", { class: "minimap", role: "img", "aria-label": "The whole slide; click to go to a place" });
    const go = (event) => {
      const box = this.node.getBoundingClientRect();
      goTo(((event.clientX - box.left) / box.width) * this.width, ((event.clientY - box.top) / box.height) * this.height);
    };
    this.node.addEventListener("pointerdown", (event) => {
      this.node.setPointerCapture(event.pointerId);
      go(event);
    });
    this.node.addEventListener("pointermove", (event) => event.buttons && go(event));
  }

  /** `pictures`: [picture, opacity] of the whole slide; one of their pixels is `scale` canvas units. `seen`: what the window shows. */
  draw({ width, height }, pictures, scale, seen, colours) {
    const ratio = devicePixelRatio || 1;
    const unit = LONG / Math.max(width, height); // CSS pixels a canvas unit
    const [w, h] = [Math.max(8, width * unit), Math.max(8, height * unit)];
    Object.assign(this, { width, height });
    // nothing to find where everything is seen
    this.node.hidden = seen.left <= 0 && seen.top <= 0 && seen.right >= width && seen.bottom >= height;
    if (this.node.hidden) return;
    const [pixelsWide, pixelsHigh] = [Math.round(w * ratio), Math.round(h * ratio)];
    if (this.node.width !== pixelsWide || this.node.height !== pixelsHigh) {
      Object.assign(this.node, { width: pixelsWide, height: pixelsHigh });
      Object.assign(this.node.style, { width: `${w}px`, height: `${h}px` });
    }
    const ctx = this.node.getContext("2d");
    const k = unit * ratio;
    ctx.globalAlpha = 1;
    ctx.fillStyle = colours.blank;
    ctx.fillRect(0, 0, pixelsWide, pixelsHigh);
    for (const [picture, opacity] of pictures) {
      ctx.globalAlpha = opacity;
      ctx.drawImage(picture, 0, 0, picture.width * scale * k, picture.height * scale * k);
    }
    ctx.globalAlpha = 1;
    const [left, top] = [Math.max(0, seen.left * k), Math.max(0, seen.top * k)];
    const [right, bottom] = [Math.min(pixelsWide, seen.right * k), Math.min(pixelsHigh, seen.bottom * k)];
    ctx.fillStyle = "rgb(10 20 40 / .28)"; // what is not seen is dimmed
    ctx.beginPath();
    ctx.rect(0, 0, pixelsWide, pixelsHigh);
    ctx.rect(left, top, right - left, bottom - top);
    ctx.fill("evenodd");
    ctx.strokeStyle = colours.accent;
    ctx.lineWidth = 2 * ratio;
    const side = (length) => Math.max(4 * ratio, length);
    ctx.strokeRect(left, top, side(right - left), side(bottom - top));
  }
}
