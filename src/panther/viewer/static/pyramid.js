// Which tiles cover what, and how they are put on a canvas so that neighbours meet on whole pixels.

const BLUR = 0.25; // a level is used until its pixels are shown 2^0.25 times larger than they are
const COARSE = 3; // levels between the tiles wanted and the few that are shown until they arrive

export class Pyramid {
  constructor({ width, height, zooms, tile = 256 }) {
    Object.assign(this, { width, height, tile, last: zooms - 1 });
  }

  /** Canvas units of one tile pixel. */
  scale(z) {
    return 2 ** (this.last - z);
  }

  /** Level for `k` device pixels a canvas unit. */
  level(k) {
    return Math.max(0, Math.min(this.last, Math.ceil(this.last + Math.log2(k) - BLUR)));
  }

  /** Tiles [x, y] of a level that touch the area {left, top, right, bottom}, those in its middle first. */
  covering(z, area) {
    const side = this.tile * this.scale(z);
    const range = (low, high, length) => [
      Math.max(0, Math.floor(low / side)),
      Math.min(Math.ceil(length / side), Math.ceil(high / side)) - 1,
    ];
    const [left, right] = range(area.left, area.right, this.width);
    const [top, bottom] = range(area.top, area.bottom, this.height);
    const found = [];
    for (let y = top; y <= bottom; y++) for (let x = left; x <= right; x++) found.push([x, y]);
    const middle = [(area.left + area.right) / 2 / side - 0.5, (area.top + area.bottom) / 2 / side - 0.5];
    const far = ([x, y]) => (x - middle[0]) ** 2 + (y - middle[1]) ** 2;
    return found.sort((a, b) => far(a) - far(b));
  }

  /** Levels to ask for, in this order: the whole slide, a few coarse tiles, the ones wanted. */
  levels(z) {
    return [...new Set([0, Math.max(0, z - COARSE), z])];
  }
}

/** Draw one cell of level z: its tile, or what there is until it arrives. `find(z, x, y)` gives a picture or undefined. */
export function paintCell(ctx, pyramid, transform, find, z, x, y) {
  const own = find(z, x, y);
  if (own) return paintPart(ctx, pyramid, transform, own, z, x, y, 0);
  if (z < pyramid.last) {
    const finer = children(pyramid, z, x, y).map(([cx, cy]) => [cx, cy, find(z + 1, cx, cy)]);
    if (finer.length && finer.every(([, , tile]) => tile)) {
      for (const [cx, cy, tile] of finer) paintPart(ctx, pyramid, transform, tile, z + 1, cx, cy, 0);
      return;
    }
  }
  for (let up = 1; up <= Math.min(z, 8); up++) {
    const tile = find(z - up, x >> up, y >> up);
    if (tile) return paintPart(ctx, pyramid, transform, tile, z, x, y, up);
  }
}

function children(pyramid, z, x, y) {
  const side = pyramid.tile * pyramid.scale(z + 1);
  return [
    [2 * x, 2 * y],
    [2 * x + 1, 2 * y],
    [2 * x, 2 * y + 1],
    [2 * x + 1, 2 * y + 1],
  ].filter(([cx, cy]) => cx * side < pyramid.width && cy * side < pyramid.height);
}

/** Draw the part of a tile `up` levels above that covers cell (z, x, y). Edges are rounded as those of neighbours: no seams. */
function paintPart(ctx, pyramid, { left, top, k }, tile, z, x, y, up) {
  const part = pyramid.tile / 2 ** up;
  const [sx, sy] = [(x % 2 ** up) * part, (y % 2 ** up) * part];
  const [sw, sh] = [Math.min(part, tile.width - sx), Math.min(part, tile.height - sy)]; // tiles at the border may be cut
  if (sw <= 0 || sh <= 0) return;
  const side = pyramid.tile * pyramid.scale(z);
  const unit = pyramid.scale(z - up);
  const [x0, y0] = [Math.round(left + x * side * k), Math.round(top + y * side * k)];
  const [x1, y1] = [Math.round(left + (x * side + sw * unit) * k), Math.round(top + (y * side + sh * unit) * k)];
  if (x1 > x0 && y1 > y0) ctx.drawImage(tile, sx, sy, sw, sh, x0, y0, x1 - x0, y1 - y0);
}
