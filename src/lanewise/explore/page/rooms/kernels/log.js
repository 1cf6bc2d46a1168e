// The log of a traced launch as the page holds it: what each step did, what registers and shared memory held.
// `kernel_views.py` writes it. Everything is answered here, without the server, so that stepping is instant.

async function unpack(text, kind) {
  const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new kind(await new Response(stream).arrayBuffer());
}

export const BITS = {
  f16: 16, bf16: 16, f32: 32, tf32: 32, f64: 64, e4m3: 8, e5m2: 8, s32: 32, u32: 32, s8: 8, u8: 8, s16: 16, u16: 16,
  s64: 64, u64: 64, b8: 8, b16: 16, b32: 32, b64: 64,
};
export const SHARED = 0x700000000000n;
const WINDOWS = [["shared", SHARED], ["local", 0x710000000000n], ["param", 0x720000000000n]];
const COLUMNS = { point: Int32Array, warp: Int32Array, block: Int32Array, lanes: Uint32Array, active: Uint32Array, state: Int32Array };
const CHECKPOINT = 4096; // writes to shared memory between two copies of it

export const bit = (mask, lane) => ((mask >>> lane) & 1) === 1;
export const short = (x) =>
  Number.isInteger(x) ? String(x) : !Number.isFinite(x) ? String(x) : Math.abs(x) >= 1e-4 && Math.abs(x) < 1e7 ? String(+x.toPrecision(7)) : x.toExponential(4);

function small(raw, exponentBits, mantissaBits, ieee) {
  const bias = 2 ** (exponentBits - 1) - 1, mask = 2 ** exponentBits - 1;
  const sign = raw >> (exponentBits + mantissaBits) ? -1 : 1, e = (raw >> mantissaBits) & mask, m = raw & (2 ** mantissaBits - 1);
  if (ieee && e === mask) return m ? NaN : sign * Infinity;
  if (!ieee && e === mask && m === 2 ** mantissaBits - 1) return NaN;
  return e ? sign * (1 + m / 2 ** mantissaBits) * 2 ** (e - bias) : sign * m * 2 ** (1 - bias - mantissaBits);
}
const word = new DataView(new ArrayBuffer(8));

// A number out of bytes, as text: by the name of its type.
export function number(view, type, bits, at, hex = false) {
  if (at + bits / 8 > view.byteLength) return "";
  if (bits === 128) return "0x" + view.getBigUint64(at + 8, true).toString(16) + view.getBigUint64(at, true).toString(16).padStart(16, "0");
  const raw = bits === 8 ? view.getUint8(at) : bits === 16 ? view.getUint16(at, true) : bits === 32 ? view.getUint32(at, true) : view.getBigUint64(at, true);
  if (type === "pred") return raw ? "true" : "false";
  if (hex) return "0x" + raw.toString(16).padStart(bits / 4, "0");
  switch (type) {
    case "f32": return short(view.getFloat32(at, true));
    case "f64": return short(view.getFloat64(at, true));
    case "f16": return short(small(raw, 5, 10, true));
    case "bf16": word.setUint32(0, raw << 16); return short(word.getFloat32(0));
    case "tf32": word.setUint32(0, raw & ~0x1fff); return short(word.getFloat32(0));
    case "e4m3": return short(small(raw, 4, 3, false));
    case "e5m2": return short(small(raw, 5, 2, true));
  }
  if (type[0] === "s") return String(bits === 64 ? BigInt.asIntN(64, raw) : (raw << (32 - bits)) >> (32 - bits));
  return String(raw);
}

function index(flat, shape) {
  const found = [];
  for (const size of [...shape].reverse()) { found.unshift(flat % size); flat = Math.floor(flat / size); }
  return found;
}

export class Log {
  static async of(data) {
    const log = new Log();
    log.data = data;
    log.count = data.kept;
    const names = Object.keys(COLUMNS);
    const columns = await Promise.all(names.map((name) => unpack(data.steps[name], COLUMNS[name])));
    names.forEach((name, n) => (log[name] = columns[n]));
    [log.offsets, log.payload] = await Promise.all([unpack(data.offsets, Int32Array), unpack(data.payload, Uint8Array)]);
    log.view = new DataView(log.payload.buffer);
    await Promise.all(data.shared.map(async (array) => {
      array.places = array.at ? await unpack(array.at, Int32Array) : null;
      array.end = array.first + array.item * array.shape.reduce((x, y) => x * y, 1);
    }));
    log.layouts = await Promise.all(data.layouts.map((each) => unpack(each, Int32Array)));
    const w = data.sharedWrites;
    log.writes = {
      step: await unpack(w.step, Int32Array), offset: await unpack(w.offset, Int32Array), size: await unpack(w.size, Int32Array),
      lane: await unpack(w.lane, Int32Array), bytes: await unpack(w.bytes, Uint8Array),
    };
    if (data.tensor) {
      const names = ["step", "issuer", "lane", "column", "words"];
      const lists = await Promise.all(names.map((name) => unpack(data.tensor[name], Int32Array)));
      log.tensorWrites = Object.fromEntries(names.map((name, n) => [name, lists[n]]));
      log.tensorWrites.bytes = new Uint32Array((await unpack(data.tensor.bytes, Uint8Array)).buffer);
      log.tensorTouched = new Map();
      for (const each of data.tensor.touched) log.tensorTouched.set(each[0], [...(log.tensorTouched.get(each[0]) ?? []), each]);
    }
    log.#index();
    return log;
  }

  #index() {
    // For each warp its steps, and for each of its registers the steps that wrote it.
    this.warps = new Map();
    this.counts = { ptx: new Map() };
    for (let step = 0; step < this.count; step++) {
      const key = `${this.block[step]}/${this.warp[step]}`;
      let warp = this.warps.get(key);
      if (!warp) this.warps.set(key, (warp = { block: this.block[step], warp: this.warp[step], steps: [], registers: new Map() }));
      warp.steps.push(step);
      const point = this.data.points[this.point[step]];
      if (this.state[step]) {
        for (const register of point.registers) {
          let written = warp.registers.get(register.name);
          if (!written) warp.registers.set(register.name, (written = { steps: [], type: register.type, bits: register.bits }));
          written.steps.push(step);
        }
      }
      this.counts.ptx.set(point.line, (this.counts.ptx.get(point.line) ?? 0) + 1);
      if (point.source) {
        const file = (this.counts[point.file] ??= new Map());
        file.set(point.source, (file.get(point.source) ?? 0) + 1);
      }
    }
    this.tracks = [...this.warps.values()].sort((a, b) => a.block - b.block || a.warp - b.warp);
    const w = this.writes;
    this.starts = new Int32Array(w.size.length);
    for (let n = 1; n < w.size.length; n++) this.starts[n] = this.starts[n - 1] + w.size[n - 1];
    this.checkpoints = [];
  }

  at(step) { return this.data.points[this.point[step]]; }
  of(step) { return this.warps.get(`${this.block[step]}/${this.warp[step]}`); }

  // The neighbour of a step in the same warp.
  sibling(step, direction) {
    const steps = this.of(step).steps, here = search(steps, step);
    return steps[Math.max(0, Math.min(steps.length - 1, here + direction))];
  }

  // For each lane: where the log has what a register holds after a step, and the step that wrote it.
  held(step, name, owner = this.of(step)) {
    const written = owner.registers.get(name);
    if (!written) return null;
    const at = new Int32Array(32).fill(-1), by = new Int32Array(32).fill(-1);
    let missing = 0xffffffff | 0;
    for (let n = search(written.steps, step); n >= 0 && missing; n--) {
      const writer = written.steps[n], now = this.active[writer] & missing;
      if (!now) continue;
      const register = this.at(writer).registers.find((each) => each.name === name);
      for (let lane = 0; lane < 32; lane++) {
        if (bit(now, lane)) { at[lane] = this.offsets[writer] + register.at + lane * (register.bits / 8); by[lane] = writer; }
      }
      missing &= ~now;
    }
    return { at, by, type: written.type, bits: written.bits };
  }

  // The warps that hold a fragment together, and the step at which each executed this instruction the same time.
  fellows(step, count) {
    const owner = this.of(step);
    if (count === 1) return [{ owner, at: step }];
    const first = Math.floor(owner.warp / count) * count, point = this.point[step];
    const same = (track) => track?.steps.filter((each) => this.point[each] === point) ?? [];
    const nth = same(owner).indexOf(step);
    return Array.from({ length: count }, (_, n) => {
      const track = this.warps.get(`${owner.block}/${first + n}`);
      return { owner: track, at: same(track)[nth] };
    });
  }

  // A block's shared memory after a step, with the number of the write that each byte is from.
  shared(step) {
    const w = this.writes, end = search(w.step, step) + 1, size = Math.max(this.data.sharedBytes, 4);
    while (this.checkpoints.length * CHECKPOINT <= end) {
      const number = this.checkpoints.length;
      if (!number) { this.checkpoints.push({ memory: new Uint8Array(size), by: new Int32Array(size).fill(-1) }); continue; }
      const last = this.checkpoints[number - 1], copy = { memory: last.memory.slice(), by: last.by.slice() };
      this.#apply(copy, (number - 1) * CHECKPOINT, number * CHECKPOINT);
      this.checkpoints.push(copy);
    }
    const number = Math.floor(end / CHECKPOINT), base = this.checkpoints[number];
    const state = { memory: base.memory.slice(), by: base.by.slice() };
    this.#apply(state, number * CHECKPOINT, end);
    return state;
  }

  #apply(state, from, to) {
    const w = this.writes;
    for (let n = from; n < Math.min(to, w.size.length); n++) {
      const start = this.starts[n];
      state.memory.set(w.bytes.subarray(start, start + w.size[n]), w.offset[n]);
      state.by.fill(n, w.offset[n], w.offset[n] + w.size[n]);
    }
  }

  // A block's tensor memory after a step: 128 lanes × 512 columns, and the step that issued the write of each word.
  tensor(step) {
    const w = this.tensorWrites, end = search(w.step, step) + 1;
    let state = this.lastTensor;
    if (!state || state.end > end) state = { words: new Uint32Array(128 * 512), by: new Int32Array(128 * 512).fill(-1), end: 0, at: 0 };
    for (let n = state.end; n < end; n++) {
      const first = w.lane[n] * 512 + w.column[n];
      state.words.set(w.bytes.subarray(state.at, state.at + w.words[n]), first);
      state.by.fill(w.issuer[n], first, first + w.words[n]);
      state.at += w.words[n];
    }
    state.end = end;
    return (this.lastTensor = state);
  }

  // The columns that are allocated after a step, as pairs of the first and how many.
  allocated(step) {
    const found = new Map();
    for (const [at, first, columns] of this.data.tensor.allocated) {
      if (at > step) break;
      if (columns > 0) found.set(first, columns); else found.delete(first);
    }
    return [...found].sort((a, b) => a[0] - b[0]);
  }

  // What a step reads and writes: for each row the address, its name, and the values.
  accesses(step) {
    const point = this.at(step), at = this.offsets[step];
    return point.accesses.map((access) => {
      const rows = [];
      for (let row = 0; row < 32; row++) {
        const address = this.view.getBigUint64(at + access.at + 8 * row, true);
        if (address !== 0n) rows.push({ row, address, name: this.place(address), values: this.#values(access, at, row, address) });
      }
      return { kind: access.kind, size: access.size, rows, matrix: /matrix/.test(point.text) };
    });
  }

  #values(access, at, row, address) {
    const named = this.typeAt(address), type = BITS[named] ? named : BITS[access.type] ? access.type : "b32", bits = BITS[type];
    if (!access.size || bits / 8 > access.size) return "";
    const found = [];
    for (let n = 0; n < (access.size * 8) / bits && n < 16; n++) found.push(number(this.view, type, bits, at + access.bytes + row * access.size + (n * bits) / 8));
    return found.join(" ");
  }

  typeAt(address) {
    for (const a of this.data.arrays) if (address >= BigInt(a.first) && address < BigInt(a.first) + BigInt(a.bytes)) return a.type;
    const offset = Number(address - SHARED);
    return this.arrayAt(offset)?.type ?? "";
  }

  arrayAt(offset) {
    for (const a of this.data.shared) if (offset >= a.first && offset < a.end) return a;
    return undefined;
  }

  // The name of what lies at an address: C[3, 5], As[1, 2], or the address.
  place(address) {
    for (const a of this.data.arrays) {
      const offset = Number(address - BigInt(a.first));
      if (offset < 0 || offset >= a.bytes) continue;
      const flat = Math.floor(offset / a.item);
      return `${a.name}[${(a.c ? index(flat, a.shape) : index(flat, [...a.shape].reverse()).reverse()).join(", ")}]`;
    }
    const named = this.sharedName(Number(address - SHARED));
    if (named) return named;
    for (const [name, first] of WINDOWS) if (address >= first && address < first + 0x100000000n) return `${name} 0x${(address - first).toString(16)}`;
    return `0x${address.toString(16)}`;
  }

  sharedName(offset) {
    const a = this.arrayAt(offset);
    if (!a || !a.places) return "";
    const flat = a.places[Math.floor((offset - a.first) / a.item)];
    return flat === undefined ? "" : `${a.name}[${index(flat, a.shape).join(", ")}]`;
  }

  // For each element of an array in shared memory, in row-major order, the byte at which it lies.
  bytesOf(array) {
    if (!array.bytes) {
      array.bytes = new Int32Array(array.places.length);
      array.places.forEach((flat, place) => (array.bytes[flat] = array.first + place * array.item));
    }
    return array.bytes;
  }

  // The name of a register's variable in the source, if it has one.
  titled(name) {
    const own = this.data.names[name];
    return own && own !== name.slice(1) ? own : name;
  }
}

// The last place in an ascending list whose number is not above another.
export function search(list, wanted) {
  let low = 0, high = list.length;
  while (low < high) { const middle = (low + high) >> 1; if (list[middle] <= wanted) low = middle + 1; else high = middle; }
  return low - 1;
}
