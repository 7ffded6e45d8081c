// Lengths in round numbers.

/** 12345 as "12 345": commas would be read as the end of a coordinate. */
function whole(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Largest 1, 2 or 5 times a power of ten that is not above `most`. */
export function roundLength(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [5, 2, 1].map((step) => step * power).find((length) => length <= most * (1 + 1e-9)) ?? power;
}

/** {length in CSS pixels, text} of a bar of at most `most` pixels; in pixels where the resolution is not known. */
export function scaleBar(zoom, mpp, most = 150) {
  const perPixel = (mpp ?? 1) / zoom;
  const length = roundLength(most * perPixel);
  return { pixels: length / perPixel, text: mpp ? micrometres(length) : `${plain(length)} px` };
}

export function micrometres(length) {
  return length >= 1000 ? `${plain(length / 1000)} mm` : `${plain(length)} µm`;
}

function plain(value) {
  return String(Number(value.toPrecision(3)));
}

/** "1 024, 512 px · 512, 256 µm" of a place on the canvas, as the slide counts. */
export function coordinates(x, y, { mpp, origin = [0, 0], unit = "px" }) {
  const [right, down] = [x + origin[0], y + origin[1]];
  if (unit === "um") return `${whole(right)}, ${whole(down)} µm`;
  const pixels = `${whole(right)}, ${whole(down)} px`;
  return mpp ? `${pixels} · ${whole(right * mpp)}, ${whole(down * mpp)} µm` : pixels;
}

/** Magnification of an objective that shows as much: 0.25 micrometres a pixel are called 40x. */
export function magnification(zoom, mpp) {
  if (!mpp) return `${Number((100 * zoom).toPrecision(2))} %`;
  return `${Number(((10 * zoom) / mpp).toPrecision(2))}×`;
}
