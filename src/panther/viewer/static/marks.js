// What is drawn above a slide and its layers.

/** A frame around a patch that is seen on any ground: light within dark. */
export function outlinePatch(ctx, { left, top, k, ratio }, places, n, colour, width) {
  const [x, y] = [Math.round(left + places.x[n] * k), Math.round(top + places.y[n] * k)];
  const side = Math.max(4 * ratio, Math.round(places.pitch * k));
  for (const [style, wide] of [["rgb(0 0 0 / .7)", width + 2], [colour, width]]) {
    ctx.strokeStyle = style;
    ctx.lineWidth = wide * ratio;
    ctx.strokeRect(x, y, side, side);
  }
}

/** A cross in the middle of the window. */
export function drawCross(ctx, ratio, colour) {
  const [x, y] = [Math.round(ctx.canvas.width / 2), Math.round(ctx.canvas.height / 2)];
  for (const [style, width] of [["rgb(255 255 255 / .8)", 4], [colour, 2]]) {
    ctx.strokeStyle = style;
    ctx.lineWidth = width * ratio;
    ctx.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      ctx.moveTo(x + 4 * dx * ratio, y + 4 * dy * ratio);
      ctx.lineTo(x + 11 * dx * ratio, y + 11 * dy * ratio);
    }
    ctx.stroke();
  }
}

/** Where the pointer is in the linked window. */
export function drawGhost(ctx, { left, top, k, ratio }, place, colour) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2 * ratio;
  ctx.beginPath();
  ctx.arc(left + place.x * k, top + place.y * k, 7 * ratio, 0, 2 * Math.PI);
  ctx.stroke();
}
