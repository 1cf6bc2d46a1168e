// Rows of a matrix in shared memory, 16 bytes at a time: where a descriptor or a tensor map puts them.
import { element } from "../shell.js";
import { matrix } from "./matrix.js";
import { player } from "./player.js";

const PIECE = 16;
const LINE = 128;
const BANK = 4;
const hex = (number) => `0x${number.toString(16)}`;

export function pieces(found, step, stepped, words) {
  const rows = found.pieces.length;
  const cols = found.pieces[0].length;
  let now = 0;
  const at = new Map();
  found.pieces.forEach((line, row) => line.forEach((address, piece) => at.set(address, [row, piece])));
  const addresses = [...at.keys()];
  const first = Math.floor(Math.min(...addresses) / LINE) * LINE;
  const lines = Math.min(64, Math.floor((Math.max(...addresses) - first) / LINE) + 1);
  const told = element("p", { class: "told", "aria-live": "polite" });
  const operand = matrix({
    rows, cols, lines: 1, size: [58, 20], ruleRows: 8, caption: `16 bytes of each ${found.line}: their address`,
    rowLabel: (row) => row, colLabel: (piece) => piece * found.elements,
    cell: (row, piece) => ({ words: [hex(found.pieces[row][piece])], colour: piece, faded: row !== now }),
    onSelect: (row) => control.go(row),
  });
  const memory = matrix({
    rows: lines, cols: LINE / PIECE, lines: 2, size: [58, 28], ruleRows: 8, caption: "Shared memory, lines of 128 bytes under their banks",
    rowLabel: (line) => hex(first + line * LINE), colLabel: (piece) => `${(piece * PIECE) / BANK}–${(piece * PIECE) / BANK + 3}`,
    cell: (line, piece) => {
      const held = at.get(first + line * LINE + piece * PIECE);
      if (!held) return { faded: false };
      const from = held[1] * found.elements;
      return { words: [`${found.line[0]}${held[0]}`, `${from}–${from + found.elements - 1}`], colour: held[1], faded: held[0] !== now };
    },
    onSelect: (line, piece) => { const held = at.get(first + line * LINE + piece * PIECE); if (held) control.go(held[0]); },
  });
  const control = player({
    count: rows, step, label: `${found.line} by ${found.line}`, seconds: 0.5,
    show: (number, byHand) => {
      now = number;
      const list = found.pieces[now].slice(0, 8).map(hex).join(", ");
      const from = found.from ? `${found.line[0].toUpperCase()}${found.line.slice(1)} ${now} lies ${found.from[now]} bytes after the start of the box in global memory and goes to ` : `${found.line[0].toUpperCase()}${found.line.slice(1)} ${now} lies at `;
      told.textContent = `${from}${list}${cols > 8 ? " …" : ""}.${words ? ` ${words}` : ""}`;
      operand.redraw();
      memory.redraw();
      if (byHand) stepped?.(number);
    },
  });
  const rest = found.all > rows ? element("p", { class: "quiet small" }, `Shown are the first ${rows} of ${found.all}.`) : null;
  return { view: element("div", { class: "tall" }, control.view, told, element("div", { class: "side" }, operand.view, memory.view), rest), stop: control.stop };
}
