// An array in shared memory by its own coordinates: its layout and its swizzle are undone.

import { BITS, number } from "./log.js";

const MOST_ROWS = 64, MOST_COLUMNS = 32;

export class ArrayView {
  // `Table` is a table that is updated in place; `changed` is called when another part is to be shown.
  constructor(log, element, Table, array, changed) {
    this.log = log;
    this.array = array;
    const [first, second, ...more] = array.shape;
    this.flat = array.shape.length < 2;
    this.cols = this.flat ? MOST_COLUMNS : second;
    this.rows = this.flat ? Math.ceil(first / MOST_COLUMNS) : first;
    this.planes = more.reduce((x, y) => x * y, 1);
    this.row = this.column = this.plane = 0;
    this.width = Math.min(this.cols, MOST_COLUMNS);
    this.table = new Table(element, "array", array.name, this.width);
    const range = (title, field, most, step = 1) => most <= 0 ? null : element("label", { class: "inline small" }, `${title} `, element("input", {
      type: "range", min: "0", max: String(most), step: String(step), value: "0", "aria-label": `${title} of ${array.name}`,
      oninput: (event) => { this[field] = +event.target.value; event.target.nextSibling.textContent = ` ${this[field]}`; changed(); },
    }), element("span", {}, " 0"));
    this.note = element("span", { class: "small quiet" });
    this.elements = [
      element("div", { class: "row small" }, range("rows from", "row", this.rows - MOST_ROWS), range("columns from", "column", this.cols - MOST_COLUMNS, 8), range("stage", "plane", this.planes - 1), this.note),
      element("div", { class: "scroll tall" }, this.table.root),
    ];
  }

  index(r, c) {
    return this.flat ? (this.row + r) * MOST_COLUMNS + this.column + c : ((this.row + r) * this.cols + this.column + c) * this.planes + this.plane;
  }

  // `touched` has the words that the step accesses, as a bank view marks them.
  update(state, touched, step) {
    const { array, log } = this, view = new DataView(state.memory.buffer), bytes = log.bytesOf(array), type = BITS[array.type] ? array.type : `b${8 * array.item}`;
    this.table.head.querySelectorAll("th").forEach((each, n) => { if (n) each.textContent = String(this.column + n - 1); });
    const titles = Array.from({ length: Math.min(MOST_ROWS, this.rows - this.row) }, (_, r) => String(this.flat ? (this.row + r) * MOST_COLUMNS : this.row + r));
    this.table.update(titles, (r, c) => {
      const at = bytes[this.index(r, c)];
      if (at === undefined) return { text: "", kind: "none" };
      const writer = state.by[at], mark = touched.get(at >> 2);
      let kind = "value";
      if (writer < 0) kind += " unwritten";
      else if (log.writes.step[writer] === step) kind += " new";
      if (mark) kind += mark.bad ? " conflict" : " touched";
      const text = writer < 0 ? "·" : number(view, type, BITS[type], at);
      return { text, kind, lane: null, of: () => log.sharedName(at), title: () => `${log.sharedName(at)}, byte ${at}, bank ${(at >> 2) % 32}, ${writer < 0 ? "not written" : `written at step ${log.writes.step[writer]}`}` };
    });
    this.note.textContent = "by its own coordinates, with layout and swizzle undone; select it again for the banks";
  }
}
