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
