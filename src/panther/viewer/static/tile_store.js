// Tiles: those that were fetched (bounded), those under way, and those that failed, which are not requested again at once.
import { SILENT } from "./api.js";
import { message } from "./dom.js";

const AT_ONCE = 6; // browsers open no more connections to one server
const REST = 5_000; // ms that a layer rests after its tiles failed; doubled each time
const LONGEST_REST = 300_000;

export class TileStore {
  /** `arrived` is called whenever a tile can be drawn. */
  constructor(arrived) {
    this.arrived = arrived;
    this.most = 512;
    this.tiles = new Map(); // address -> picture; the ones drawn longest ago come first
    this.underway = new Map(); // address -> its AbortController
    this.failed = new Map(); // address -> when it may be requested again
    this.resting = new Map(); // layer -> {until, rest}
    this.queue = [];
  }

  /** Whether a tile is here. */
  has(address) {
    return this.tiles.has(address);
  }

  /** A picture to draw, or undefined where there is none (yet). */
  get(address) {
    const tile = this.tiles.get(address);
    if (tile === undefined) return undefined;
    this.tiles.delete(address);
    this.tiles.set(address, tile);
    return tile;
  }

  /** All that is needed now, most urgent first, as [address, layer]; whatever else is under way is stopped. */
  want(list) {
    const wanted = new Set(list.map(([address]) => address));
    for (const [address, stop] of this.underway) if (!wanted.has(address)) stop.abort();
    const now = performance.now();
    this.queue = list.filter(
      ([address, layer]) =>
        !this.tiles.has(address) &&
        !this.underway.has(address) &&
        !(this.failed.get(address) > now) &&
        !(this.resting.get(layer)?.until > now),
    );
    this.most = Math.max(512, 3 * wanted.size);
    this.pump();
  }

  /** Whether everything that was wanted has come or failed. */
  get idle() {
    return !this.queue.length && !this.underway.size;
  }

  pump() {
    while (this.queue.length && this.underway.size < AT_ONCE) this.fetch(...this.queue.shift());
  }

  async fetch(address, layer) {
    const stop = new AbortController();
    this.underway.set(address, stop);
    try {
      const response = await fetch(address, { credentials: "same-origin", signal: stop.signal });
      if (!response.ok) throw new Error(await reason(response));
      const tile = await createImageBitmap(await response.blob());
      if (stop.signal.aborted) tile.close();
      else this.keep(address, tile, layer);
    } catch (error) {
      if (!stop.signal.aborted) this.fail(address, layer, error);
    } finally {
      if (this.underway.get(address) === stop) this.underway.delete(address);
      this.pump();
      this.arrived(); // also after a stop: it may be wanted again by now
    }
  }

  keep(address, tile, layer) {
    this.resting.delete(layer);
    this.failed.delete(address);
    this.tiles.set(address, tile);
    for (const [old, picture] of this.tiles) {
      if (this.tiles.size <= this.most) break;
      this.tiles.delete(old);
      picture.close();
    }
  }

  fail(address, layer, error) {
    const rest = Math.min(LONGEST_REST, 2 * (this.resting.get(layer)?.rest ?? REST / 2));
    const until = performance.now() + rest;
    if (this.failed.size > 1000) this.failed.clear();
    this.failed.set(address, until);
    this.resting.set(layer, { until, rest });
    this.queue = this.queue.filter(([, other]) => other !== layer);
    message(error instanceof TypeError ? SILENT : error.message, `tiles ${layer}`);
  }

  /** Forget everything. */
  close() {
    this.queue = [];
    for (const stop of this.underway.values()) stop.abort();
    for (const tile of this.tiles.values()) tile.close();
    this.tiles.clear();
  }
}

async function reason(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The server answered ${response.status} ${response.statusText}.`;
  }
}
