// ldmatrix, stmatrix and movmatrix step by step: addresses → rows → registers.
import { element } from "../shell.js";
import { matrix } from "./matrix.js";
import { player } from "./player.js";
import { ranges, unpacked } from "./fragments.js";

function positions(operand) {
  const found = Array.from({ length: operand.rows * operand.cols }, () => []);
  operand.held.forEach((values, lane) => values.forEach((index, value) => found[index].push([lane, value])));
  return found;
}

// The registers of all lanes: a row for each lane, a column for each register; a cell has the elements in it.
function registerGrid(operand, caption, options) {
  return matrix({
    rows: operand.held.length, cols: operand.registers, lines: 2, size: [74, 20], caption,
    rowLabel: (lane) => `T${lane}`, colLabel: (register) => `R${register}`,
    cell: (lane, register) => {
      const first = register * operand.slots;
      const elements = operand.held[lane].slice(first, first + operand.slots);
      const [row, col] = [Math.floor(elements[0] / operand.cols), elements[0] % operand.cols];
      const last = elements.at(-1);
      const sameRow = Math.floor(last / operand.cols) === row;
      const words = elements.length === 1 ? `${row},${col}` : sameRow ? `${row},${col}–${last % operand.cols}` : `${row}–${Math.floor(last / operand.cols)},${col}`;
      return options.cell(lane, register, elements, [words]);
    },
  });
}

export function moves(about, step, stepped) {
  unpacked(about);
  return about.family === "movmatrix" ? transposed(about, step, stepped) : rowsMoved(about, step, stepped);
}

function rowsMoved(about, step, stepped) {
  const operand = about.operands[0];
  const { rows, matrices, row_bytes: bytes } = about.rows;
  const each = rows / matrices;
  const loads = about.family === "ldmatrix";
  const held = positions(operand);
  const told = element("p", { class: "told", "aria-live": "polite" });
  let now = { matrix: 0, stage: 0, row: null };
  // Three stages for each matrix: lanes give addresses, rows are read (or registers), the other side is filled.
  const stages = loads ? ["addresses", "rows", "registers"] : ["addresses", "registers", "rows"];
  const count = matrices * stages.length;

  const addresses = matrix({
    rows, cols: 1, lines: 1, size: [58, 20], caption: "Addresses", ruleRows: each,
    rowLabel: (row) => row, colLabel: () => "lane",
    cell: (row) => ({ words: [`T${row}`], colour: row, faded: Math.floor(row / each) !== now.matrix }),
  });
  const memory = matrix({
    rows, cols: operand.cols, size: [30, 20], lines: 1, ruleRows: each, caption: `Rows in shared memory, ${bytes} bytes each`,
    rowLabel: (row) => row,
    cell: (row, col) => {
      const on = Math.floor(row / each) === now.matrix && (loads ? now.stage >= 1 : now.stage >= 2);
      return { words: [`${row},${col}`], colour: on ? row : undefined, faded: !on };
    },
  });
  const registers = registerGrid(operand, `Registers of the ${operand.held.length} lanes`, {
    cell: (lane, register, elements, words) => {
      const row = Math.floor(elements[0] / operand.cols);
      const mine = elements.some((index) => Math.floor(Math.floor(index / operand.cols) / each) === now.matrix);
      const on = mine && (loads ? now.stage >= 2 : now.stage >= 1);
      return { words, colour: on ? row : undefined, faded: !on };
    },
  });
  const control = player({
    count, step, label: `Steps of ${about.family}`, seconds: 1.2,
    show: (number, byHand) => {
      now = { matrix: Math.floor(number / stages.length), stage: number % stages.length };
      const from = now.matrix * each;
      const which = matrices > 1 ? ` of matrix ${now.matrix}` : "";
      const lanes = ranges(held.slice(from * operand.cols, (from + each) * operand.cols).flat().map(([lane]) => lane));
      const own = new Set(held.slice(from * operand.cols, (from + each) * operand.cols).flat().map(([, value]) => Math.floor(value / operand.slots)));
      const sentences = {
        addresses: `Lanes ${from} to ${from + each - 1} each give the address of one row${which}: lane ${from} that of row ${from}, and so on.`,
        rows: loads
          ? `The ${each} rows${which}, ${bytes} bytes each, are read: ${each * bytes} bytes, ${each * bytes === 128 ? "all 32 banks once if the addresses allow it" : "in phases of 128 bytes"}.`
          : `The elements go to the ${each} rows${which}, where lanes ${from} to ${from + each - 1} pointed.`,
        registers: loads
          ? `The elements${which} go to register ${ranges(own)} of lanes ${lanes}${about.trans ? ", transposed" : ""}.`
          : `Lanes ${lanes} give their register ${ranges(own)}${which ? `: the elements${which}` : ""}${about.trans ? ", transposed" : ""}.`,
      };
      told.textContent = sentences[stages[now.stage]];
      for (const view of [addresses, memory, registers]) view.redraw();
      if (byHand) stepped?.(number);
    },
  });
  return {
    view: element("div", {}, control.view, told, element("div", { class: "side" }, addresses.view, memory.view, registers.view)),
    stop: control.stop,
  };
}

function transposed(about, step, stepped) {
  const [a, d] = about.operands;
  let now = 0;
  const told = element("p", { class: "told", "aria-live": "polite" });
  const heldA = positions(a);
  const heldD = positions(d);
  const grid = (operand, held, mine) =>
    matrix({
      rows: operand.rows, cols: operand.cols, caption: operand.name,
      cell: (row, col) => {
        const [lane, value] = held[row * operand.cols + col][0];
        return { words: [`T${lane}`, `V${value}`], colour: lane, faded: !mine(row, col) };
      },
    });
  const before = grid(a, heldA, (row) => row === now);
  const after = grid(d, heldD, (row, col) => col === now);
  const control = player({
    count: a.rows, step, label: "Steps of movmatrix",
    show: (number, byHand) => {
      now = number;
      const lanes = (held, cells) => ranges(cells.map(([row, col]) => held[row * a.cols + col][0][0]));
      const row = Array.from({ length: a.cols }, (_, col) => [now, col]);
      const col = row.map(([r, c]) => [c, r]);
      told.textContent = `Row ${now} of A, in lanes ${lanes(heldA, row)}, becomes column ${now} of D, in lanes ${lanes(heldD, col)}.`;
      before.redraw();
      after.redraw();
      if (byHand) stepped?.(number);
    },
  });
  return { view: element("div", {}, control.view, told, element("div", { class: "side" }, before.view, after.view)), stop: control.stop };
}
