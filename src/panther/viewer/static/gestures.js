// Gestures on a canvas, reported as pan(dx, dy), zoom(factor, at, soft), click(at, event), hover(at) in CSS pixels of the surface.

const STILL = 4; // pixels a pointer may move and still have clicked

/** `grab(phase, at)` may take a drag that begins: it returns true for "down", then has its "move" and "up". */
export function listen(surface, { pan, zoom, click, hover, leave, dragging, grab = () => false }) {
  const down = new Map(); // pointers that touch, by id
  let moved = 0;
  let spread = 0;
  let grabbed = null; // pointer that draws
  const ended = new AbortController();
  const on = (name, listener, options = {}) => surface.addEventListener(name, listener, { signal: ended.signal, ...options });
  const at = (event) => {
    const box = surface.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  on("pointerdown", (event) => {
    if (event.button > 1) return;
    surface.setPointerCapture(event.pointerId);
    if (!down.size && event.button === 0 && grab("down", at(event))) grabbed = event.pointerId;
    if (grabbed !== null) return;
    down.set(event.pointerId, at(event));
    moved = down.size > 1 ? Infinity : 0; // a pinch is no click
    spread = apart(down);
  });

  on("pointermove", (event) => {
    const now = at(event);
    if (grabbed === event.pointerId) return void (hover(now), grab("move", now));
    const before = down.get(event.pointerId);
    if (!before) return hover(now);
    down.set(event.pointerId, now);
    const [dx, dy] = [(now.x - before.x) / down.size, (now.y - before.y) / down.size];
    moved += Math.hypot(dx, dy);
    if (moved <= STILL) return;
    dragging(true);
    pan(-dx, -dy);
    if (down.size === 2) {
      const wide = apart(down);
      if (spread > 0 && wide > 0) zoom(wide / spread, middle(down), false);
      spread = wide;
    }
  });

  const up = (event) => {
    if (grabbed === event.pointerId) {
      grabbed = null;
      return grab(event.type === "pointerup" ? "up" : "cancel", at(event));
    }
    if (!down.delete(event.pointerId)) return;
    spread = apart(down);
    if (!down.size) dragging(false);
    if (event.type === "pointerup" && !down.size && moved <= STILL && event.button === 0) click(at(event), event);
  };
  on("pointerup", up);
  on("pointercancel", up);
  on("pointerleave", leave);

  on("dblclick", (event) => zoom(event.shiftKey ? 0.5 : 2, at(event), true));
  on(
    "wheel",
    (event) => {
      event.preventDefault();
      const step = event.deltaY * (event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1);
      // a pinch on a touchpad comes as a wheel with ctrl and small steps
      const factor = Math.exp(-Math.max(-400, Math.min(400, step)) * (event.ctrlKey ? 0.01 : 0.0022));
      zoom(factor, at(event), Math.abs(step) >= 40);
    },
    { passive: false },
  );
  return () => ended.abort();
}

function apart(pointers) {
  if (pointers.size !== 2) return 0;
  const [a, b] = pointers.values();
  return Math.hypot(a.x - b.x, a.y - b.y);
}

function middle(pointers) {
  const [a, b] = pointers.values();
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}
