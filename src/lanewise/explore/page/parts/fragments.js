// The operands of an instruction as matrices: who holds what, a lane's elements, an element's holder, and who
// multiplies a row of A by a column of B. Everything is read from the lists that the catalogue sends.
import { element } from "../shell.js";
import { matrix, wordsShown } from "./matrix.js";

// The most and the least pixels of a cell, and what a matrix needs beside its cells: numbers, caption, gap.
const MOST_CELL = [34, 28], LEAST_CELL = [1, 1], NUMBERS = 26, CAPTION = 46, GAP = 16;
const LETTER = 7; // pixels of a letter of a caption, at most
const LEAST_CORNER = 300, CONTROLS = 100; // pixels that the controls need beside B, and above it where there is no room

const caption = (each) => `${each.name}: ${each.rows}×${each.cols} ${each.format}${each.where ? `, in ${each.where}` : each.held ? "" : ", in shared memory"}`;

// The pixels of a cell with which all operands, as they stand, fit into a space; the same for all of them.
function fitted(operands, lines, columns, stacked, space) {
  const most = (of, numbers, side) => numbers.map((number) => Math.max(...operands.filter((each) => each.at[side] === number).map((each) => each[of])));
  const wide = stacked ? [Math.max(...operands.map((each) => each.cols))] : most("cols", columns, 1);
  const high = stacked ? [Math.max(...operands.map((each) => each.rows))] : most("rows", lines, 0);
  const sum = (list) => list.reduce((total, each) => total + each, 0);
  const all = space.width - wide.length * NUMBERS - (wide.length - 1) * GAP;
  let width = all / sum(wide);
  if (!stacked) {
    // A column is at least as wide as the captions in it: the others have the rest.
    const captions = columns.map((number) => LETTER * Math.max(...operands.filter((each) => each.at[1] === number).map((each) => caption(each).length)));
    const narrow = wide.map((cols, n) => cols * width < captions[n]);
    const rest = sum(wide.filter((_, n) => !narrow[n]));
    if (rest) width = (all - sum(captions.filter((_, n) => narrow[n]))) / rest;
  }
  const height = (space.height - high.length * CAPTION) / sum(high);
  const whole = (size) => (size < 3 ? Math.floor(4 * size) / 4 : Math.floor(size));
  const within = (size, n) => whole(Math.min(MOST_CELL[n], Math.max(LEAST_CELL[n], size)));
  return [within(width, 0), within(height, 1)];
}

// The element of each lane and value: sent as a lane's part and a value's part, or all of them. Unpacked once.
export function unpacked(about) {
  for (const each of about.operands) {
    const { lanes, values, all } = each.held ?? {};
    if (all) each.held = all;
    else if (lanes) each.held = lanes.map((lane) => values.map((value) => lane + value));
  }
  return about;
}

// For each element of an operand, the [lane, value] pairs that hold it; of one product where there are several.
function holders(operand, product) {
  const found = Array.from({ length: operand.rows * operand.cols }, () => []);
  if (!operand.held) return found;
  const first = product * operand.rows * operand.cols;
  operand.held.forEach((values, lane) => values.forEach((index, value) => found[index - first]?.push([lane, value])));
  return found;
}

export function ranges(numbers) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const spans = [];
  for (const number of sorted) {
    const last = spans.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else spans.push([number, number]);
  }
  return spans.map(([from, to]) => (from === to ? `${from}` : to === from + 1 ? `${from}, ${to}` : `${from}–${to}`)).join(", ");
}

// `state` is {lane, at: [key, row, col] or null, row, col, by, product, large}; `space` is what the picture may
// take, {width, height} in pixels, or nothing where it may scroll; `controls` stand beside the matrices.
export function fragments(about, state, changed, space = null, controls = null) {
  // Of tcgen05 a holder is a lane of tensor memory (of two blocks, where 128 and more are the second's), and a value a column.
  const tensor = about.tensor ?? null;
  const thread = tensor?.thread ?? (about.threads > 32 ? "thread" : "lane");
  const [holder, held_as] = tensor?.letters ?? "TV";
  const isMemory = Boolean(tensor) && about.multiplies;
  const own = (lane) => (about.pair ? lane % 128 : lane);
  const inBlock = (lane) => (about.pair ? ` of block ${Math.floor(lane / 128)}` : "");
  const reached = (lane) => { const first = Math.floor(own(lane) / 32); return `; warps ${first}, ${first + 4}, … can load it`; };
  const plural = `${thread}s`;
  const operands = unpacked(about).operands;
  const table = () => new Map(operands.map((each) => [each.key, holders(each, state.product ?? 0)]));
  let held = table();
  let pointed = null; // what the pointer is over, for the moment
  const told = element("p", { class: "told", "aria-live": "polite" });
  const registers = element("div", { class: "scroll" });
  const views = new Map();
  const operand = (key) => operands.find((each) => each.key === key);
  const result = operand("d") ?? operand("c");

  function focus() {
    if (pointed) return { at: pointed };
    if (state.lane !== null && state.lane !== undefined) return { lane: state.lane };
    if (state.at) return { at: state.at };
    if (state.row !== null || state.col !== null) return { row: state.row, col: state.col };
    return {};
  }

  // What is pointed out, worked out once for all the cells that ask for it.
  let now = {};
  let pointedLanes = new Set();

  const holdersOf = ([key, row, col]) => held.get(key)?.[row * operand(key).cols + col] ?? [];

  function cell(each, row, col) {
    const owners = held.get(each.key)[row * each.cols + col];
    const found = { outline: null, faded: false };
    if (owners.length) {
      const [lane, value] = owners[0];
      const lanes = owners.length > 1 ? new Set(owners.map((o) => o[0])) : null;
      const number = tensor ? Math.floor(value / each.slots) : value;
      found.words = [lanes?.size > 1 ? `${holder}${own(lane)}…` : `${holder}${own(lane)}`, owners.length > 1 && lanes.size === 1 ? `${held_as}${number}…` : `${held_as}${number}`];
      if (small) found.words = [state.by === "value" ? `${held_as}${number}` : state.by === "register" ? `R${Math.floor(value / each.slots)}` : found.words[0]];
      found.colour = state.by === "value" ? number : state.by === "register" ? Math.floor(value / each.slots) : state.by === "block" ? 2 * Math.floor(lane / 128) : lane;
    }
    if (!each.held) {
      const [r, c] = now.at?.[0] === result?.key ? now.at.slice(1) : [now.row, now.col];
      const feeds = about.multiplies && ((each.key === "a" && row === r) || (each.key === "b" && col === c));
      if (feeds) found.colour = each.key === "a" ? 0 : 1;
      else if (about.pair && state.by === "block") found.colour = 2 * Number((each.key === "b" ? col : row) >= each.second);
      if (now.at?.[0] === each.key && now.at[1] === row && now.at[2] === col) found.outline = "mark";
    } else if (now.lane !== undefined) {
      found.faded = !owners.some(([lane]) => lane === now.lane);
    } else if (now.at) {
      const [key, r, c] = now.at;
      found.faded = pointedLanes.size > 0 && !owners.some(([lane]) => pointedLanes.has(lane));
      if (key === each.key && r === row && c === col) found.outline = "mark";
      else if (about.multiplies && key === result?.key && each.held) {
        const feeds = (each.key === "a" && row === r) || (each.key === "b" && col === c);
        if (feeds) Object.assign(found, { outline: "plain", faded: false });
      }
    } else if (now.row !== undefined || now.col !== undefined) {
      const inA = each.key === "a" && row === now.row;
      const inB = each.key === "b" && col === now.col;
      const inD = each.key === result?.key && (now.row === null || row === now.row) && (now.col === null || col === now.col);
      found.faded = !(inA || inB || inD);
      if (inD && now.row !== null && now.col !== null) found.outline = "mark";
    }
    return found;
  }

  function place(each, value) {
    if (isMemory) return `column ${Math.floor(value / each.slots)}${each.slots > 1 ? `, bits ${(value % each.slots) * (32 / each.slots)} to ${((value % each.slots) + 1) * (32 / each.slots) - 1}` : ""}`;
    return `register ${Math.floor(value / each.slots)}${each.slots > 1 ? `, slot ${value % each.slots}` : ""}`;
  }

  function sentence() {
    if (now.lane !== undefined) {
      const parts = operands.filter((each) => each.held).map((each) => `${each.held[now.lane].filter((index) => index >= 0).length} of ${each.name}`);
      return `${thread} ${own(now.lane)}${inBlock(now.lane)} holds ${parts.join(", ")}${isMemory ? reached(now.lane) : ""}.`.replace(/^./, (l) => l.toUpperCase());
    }
    if (now.at) {
      const [key, row, col] = now.at;
      const each = operand(key);
      const name = `${each.name.split(", ").at(-1)}[${row}][${col}]`; // D of "C, D"
      const owners = holdersOf(now.at);
      if (!owners.length && isMemory) return `${name} lies in shared memory${about.pair ? ` of block ${Number((key === "b" ? col : row) >= each.second)}` : ""}, behind a descriptor.`;
      if (!owners.length) return each.held ? `${name} is held by no ${thread} of this product.` : `${name} lies in shared memory; no ${thread} holds it.`;
      const first = owners[0];
      const lanes = new Set(owners.map(([lane]) => lane));
      let words = isMemory
        ? `${name} is in tensor memory: ${owners.map(([lane, value]) => `lane ${own(lane)}, ${place(each, value)}${inBlock(lane)}`).slice(0, 4).join("; ")}${owners.length > 4 ? " …" : reached(first[0])}.`
        : owners.length === 1
        ? `${name} is in ${thread} ${first[0]}, ${place(each, first[1])} (value ${first[1]}).`
        : `${name} is in ${lanes.size > 1 ? plural : thread} ${ranges(lanes)}, first in ${place(each, first[1])}.`;
      if (about.multiplies && key === result?.key) words += ` ${product(row, col)}`;
      return words;
    }
    if (now.row !== undefined || now.col !== undefined) {
      if (now.row !== null && now.col !== null) {
        const owners = holdersOf([result.key, now.row, now.col]);
        const where = owners.length ? ` It is summed into ${thread} ${own(owners[0][0])}${inBlock(owners[0][0])}, ${place(result, owners[0][1])}.` : "";
        return `D[${now.row}][${now.col}]: ${product(now.row, now.col)}${where}`;
      }
      const [key, name, number] = now.row !== null ? ["a", "Row", now.row] : ["b", "Column", now.col];
      const lanes = line(key, number);
      const where = lanes.length ? `is held by ${plural} ${ranges(lanes)}` : "lies in shared memory";
      return `${name} ${number} of ${key.toUpperCase()} ${where}. Choose a ${now.row !== null ? "column of B" : "row of A"} too.`;
    }
    return about.multiplies
      ? `Point at an element to see who holds it. Click the number of a row of A and of a column of B (keys R and C) to see who multiplies.`
      : `Point at an element to see who holds it, or choose a ${thread}.`;
  }

  function line(key, number) {
    const each = operand(key);
    if (!each?.held) return [];
    const found = [];
    const count = key === "a" ? each.cols : each.rows;
    for (let k = 0; k < count; k++) {
      const [row, col] = key === "a" ? [number, k] : [k, number];
      found.push(...held.get(key)[row * each.cols + col].map(([lane]) => lane));
    }
    return found;
  }

  function product(row, col) {
    const say = (key, name) => {
      const lanes = line(key, key === "a" ? row : col);
      return lanes.length ? `${name} from ${plural} ${ranges(lanes)}` : `${name} from shared memory`;
    };
    return `Row ${row} of A times column ${col} of B, ${say("a", "A")}, ${say("b", "B")}.`;
  }

  function laneTable() {
    const lane = now.lane ?? (now.at ? holdersOf(now.at)[0]?.[0] : undefined);
    if (lane === undefined) return registers.replaceChildren();
    const rows = operands.filter((each) => each.held).map((each) => {
      const cells = [];
      const values = each.held[lane];
      for (let first = 0; first < Math.min(values.length, 64); first += each.slots) {
        const slots = values.slice(first, first + each.slots).filter((index) => index >= 0).map((index) => {
          const within = index % (each.rows * each.cols);
          return `[${Math.floor(within / each.cols)}][${within % each.cols}]`;
        });
        cells.push(element("td", { class: "mono small" }, slots.map((slot) => element("span", { class: "slot" }, `${slot} `))));
      }
      if (values.length > 64) cells.push(element("td", {}, `and ${values.length - 64} more`));
      return element("tr", {}, element("th", { scope: "row" }, each.name), ...cells);
    });
    const most = Math.max(...operands.filter((each) => each.held).map((each) => Math.min(isMemory ? each.held[lane].length / each.slots : each.registers, 64)));
    const head = element("tr", {}, element("th", {}, `${thread} ${own(lane)}`), ...Array.from({ length: most }, (_, n) => element("th", { scope: "col" }, `${isMemory ? "C" : "R"}${n}`)));
    registers.replaceChildren(element("table", { class: "data" }, element("caption", { class: "unseen" }, `Registers of ${thread} ${lane}`), element("thead", {}, head), element("tbody", {}, ...rows)));
  }

  function refresh() {
    now = focus();
    pointedLanes = new Set(now.at ? holdersOf(now.at).map(([lane]) => lane) : []);
    told.textContent = sentence();
    laneTable();
    for (const view of views.values()) view.redraw();
  }

  const grid = element("div", { class: "operands" });
  const columns = [...new Set(operands.map((each) => each.at[1]))].sort();
  const lines = [...new Set(operands.map((each) => each.at[0]))].sort();
  const stacked = innerWidth <= 760;
  let size = space && !state.large ? fitted(operands, lines, columns, stacked, space) : undefined;
  // The corner above A and left of B is free: controls and what is said stand there, beside the matrices.
  const isCorner = lines.length > 1 && columns.length > 1 && columns.length === new Set(operands.filter((each) => each.at[0] === lines.at(-1)).map((each) => each.at[1])).size;
  const first = operands.find((each) => each.key === "a");
  const usesCorner = isCorner && first && !isMemory && (stacked ? first.cols >= 12 : first.cols * (size ?? [30])[0] >= LEAST_CORNER);
  if (size && !stacked && !usesCorner) size = fitted(operands, lines, columns, stacked, { width: space.width, height: space.height - CONTROLS });
  const small = Boolean(size) && wordsShown(size) < 2;
  for (const each of operands) {
    const made = matrix({
      size, rows: each.rows, cols: each.cols, rowName: each.row_axis, colName: each.col_axis, large: state.large && each.held && each.rows * each.cols <= 8192,
      caption: caption(each),
      ruleRows: about.rows ? about.rows.rows / about.rows.matrices : each.second && each.key !== "b" ? each.second : 0,
      ruleCols: each.second && each.key === "b" ? each.second : 0,
      cell: (row, col) => cell(each, row, col),
      onPoint: (row, col) => { pointed = [each.key, row, col]; refresh(); },
      onLeave: () => { if (pointed) { pointed = null; refresh(); } },
      onSelect: (row, col) => { pointed = null; set({ lane: null, at: [each.key, row, col], row: null, col: null }); },
      onRow: (row) => each.key !== "b" && set({ lane: null, at: null, row: state.row === row ? null : row, col: state.col }),
      onCol: (col) => each.key !== "a" && set({ lane: null, at: null, row: state.row, col: state.col === col ? null : col }),
      onClear: () => { pointed = null; set({ lane: null, at: null, row: null, col: null }); },
    });
    made.view.style.gridArea = `${lines.indexOf(each.at[0]) + 1} / ${columns.indexOf(each.at[1]) + 1}`;
    made.view.style.justifySelf = each.at[1] < 3 ? "end" : "start";
    made.view.style.alignSelf = each.at[0] < 2 ? "end" : "start";
    views.set(each.key, made);
    grid.append(made.view);
  }

  function set(change) {
    Object.assign(state, change);
    held = table();
    refresh();
    changed?.(state);
  }

  const beside = element("div", { class: "beside-matrices" }, stacked ? null : controls, told, registers);
  if (usesCorner) {
    beside.style.gridArea = `1 / 1 / ${lines.length} / ${columns.length}`;
    grid.prepend(beside);
  } else beside.replaceChildren();
  refresh();
  // What grows when one points must not move what one points at: elsewhere the registers stand below.
  const parts = beside.parentNode ? [] : [stacked ? null : controls, told];
  const below = [...(beside.parentNode ? [] : [registers]), stacked ? controls : null];
  return { view: element("div", {}, parts, element("div", { class: "scroll all-operands" }, grid), below), set, refresh, thread, small };
}
