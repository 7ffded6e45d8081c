// Where the patches of a slide lie, so that the pointer finds them without asking the server.

/** Read what `/api/slides/<name>/patches` gives. */
export function readPlaces(buffer) {
  const head = new DataView(buffer);
  const count = head.getUint32(0, true);
  const prototypes = head.getUint32(4, true);
  const pitch = head.getFloat32(8, true);
  const x = new Float32Array(buffer, 16, count);
  const y = new Float32Array(buffer, 16 + 4 * count, count);
  const label = new Uint16Array(buffer, 16 + 8 * count, count);
  const top = new Float32Array(buffer, 16 + 8 * count + 2 * (count + (count % 2)), count);
  return new Places({ count, prototypes, pitch, x, y, label, top });
}

class Places {
  constructor(read) {
    Object.assign(this, read);
    this.cells = new Map(); // "column row" as one number -> patches that begin there
    for (let n = 0; n < this.count; n++) {
      const key = this._key(Math.floor(this.x[n] / this.pitch), Math.floor(this.y[n] / this.pitch));
      const there = this.cells.get(key);
      if (there === undefined) this.cells.set(key, n);
      else if (typeof there === "number") this.cells.set(key, [there, n]);
      else there.push(n);
    }
  }

  _key(column, row) {
    return row * 4194304 + column; // more columns than a slide has
  }

  /** Patch at a place of the canvas, or null; where several lie, the last one, which is the one that the tiles show. */
  at(x, y) {
    const [column, row] = [Math.floor(x / this.pitch), Math.floor(y / this.pitch)];
    let found = null;
    for (const [dx, dy] of [[0, 0], [-1, 0], [0, -1], [-1, -1]]) {
      for (const n of [this.cells.get(this._key(column + dx, row + dy)) ?? []].flat()) {
        const [right, down] = [x - this.x[n], y - this.y[n]];
        if (right >= 0 && down >= 0 && right < this.pitch && down < this.pitch && (found === null || n > found)) found = n;
      }
    }
    return found;
  }

  middle(n) {
    return { x: this.x[n] + this.pitch / 2, y: this.y[n] + this.pitch / 2 };
  }

  /** Nearest patch to a place; null without patches. */
  nearest(x, y) {
    let found = null;
    let least = Infinity;
    for (let n = 0; n < this.count; n++) {
      const far = (x - this.x[n] - this.pitch / 2) ** 2 + (y - this.y[n] - this.pitch / 2) ** 2;
      if (far < least) [found, least] = [n, far];
    }
    return found;
  }

  /** Nearest patch in a direction (dx, dy are -1, 0 or 1) from patch n, within a cone; n itself where there is none. */
  beside(n, dx, dy) {
    let found = n;
    let least = Infinity;
    for (let m = 0; m < this.count; m++) {
      const [right, down] = [this.x[m] - this.x[n], this.y[m] - this.y[n]];
      const along = right * dx + down * dy;
      const aside = Math.abs(right * dy) + Math.abs(down * dx);
      if (along < this.pitch / 2 || aside > along) continue;
      if (along + 2 * aside < least) [found, least] = [m, along + 2 * aside];
    }
    return found;
  }
}
