// A block's tensor memory after a step: 128 lanes × 512 columns, who wrote each word, what the step touches.

import { matrix } from "../../parts/matrix.js";
import { short } from "./log.js";

const LANES = 128, COLUMNS = 512, HEIGHT = 3, BESIDE = 64, LEAST = 1.25;
const word = new DataView(new ArrayBuffer(4));

export class TensorView {
  // `ask` asks who wrote a word, by its name; `stepLink` makes a link to a step.
  constructor(log, element, ask, stepLink) {
    this.log = log;
    this.element = element;
    this.stepLink = stepLink;
    this.note = element("p", { class: "small" });
    this.told = element("p", { class: "told small", "aria-live": "polite" });
    this.holder = element("div", {});
    this.ask = ask;
    this.elements = [this.note, this.told, this.holder];
  }

  // The picture is as wide as there is room, when it is there.
  build() {
    const width = Math.max(LEAST, Math.floor((4 * (this.holder.clientWidth - BESIDE)) / COLUMNS) / 4);
    this.width = this.holder.clientWidth;
    this.picture = matrix({
      size: [width, HEIGHT], rows: LANES, cols: COLUMNS, rowName: "lane", colName: "column", ruleRows: 32, ruleCols: 32,
      caption: "Tensor memory of the block: 128 lanes × 512 columns of 32 bits",
      cell: (lane, column) => this.cell(lane, column),
      onPoint: (lane, column) => this.tell(lane, column),
      onLeave: () => this.tell(),
      onSelect: (lane, column) => { this.tell(lane, column); if (this.state.by[lane * COLUMNS + column] >= 0) this.ask(`tmem[${lane}, ${column}]`); },
    });
    this.holder.replaceChildren(this.picture.view);
  }

  cell(lane, column) {
    const at = lane * COLUMNS + column, by = this.state.by[at];
    if (this.touched[at]) return { colour: this.touched[at] === 1 ? 2 : 3 };
    if (by >= 0) return { colour: this.colours.get(by) ?? 0 };
    return { colour: this.isAllocated[column] ? 5 : undefined, faded: Boolean(this.isAllocated[column]) };
  }

  tell(lane, column) {
    if (lane === undefined) {
      this.told.textContent = "Point at a word to see it; select it to see who wrote it.";
      return;
    }
    const at = lane * COLUMNS + column, by = this.state.by[at], bits = this.state.words[at];
    word.setUint32(0, bits);
    const holds = by >= 0 ? `${short(word.getFloat32(0))} as f32, 0x${bits.toString(16).padStart(8, "0")}, written by ` : this.isAllocated[column] ? "nothing has been written to it" : "not allocated";
    this.told.replaceChildren(`tmem[${lane}, ${column}]: ${holds}`, by >= 0 ? this.stepLink(by) : "", ".");
  }

  update(step) {
    const { log } = this;
    this.state = log.tensor(step);
    const allocated = log.allocated(step), span = ([first, columns]) => `${first} to ${first + columns - 1}`;
    this.isAllocated = new Uint8Array(COLUMNS);
    for (const [first, columns] of allocated) this.isAllocated.fill(1, first, first + columns);
    this.touched = new Uint8Array(LANES * COLUMNS);
    const said = [];
    for (const [, kind, operand, areas] of log.tensorTouched.get(step) ?? []) {
      for (const [lane, lanes, column, columns] of areas) {
        for (let n = lane; n < lane + lanes; n++) this.touched.fill(kind === "read" ? 1 : 2, n * COLUMNS + column, n * COLUMNS + column + columns);
      }
      const words = areas.slice(0, 4).map(([lane, lanes, column, columns]) => `lanes ${lane} to ${lane + lanes - 1}, columns ${column} to ${column + columns - 1}`).join("; ");
      said.push(`This step ${{ read: "reads", write: "writes" }[kind] ?? "reads and writes"} ${operand}: ${words}${areas.length > 4 ? " …" : ""}.`);
    }
    // Two colours for what the step touches; the writers of the rest share the others.
    this.colours = new Map([...new Set(this.state.by)].filter((by) => by >= 0).sort((a, b) => a - b).map((by, n) => [by, [0, 1, 4, 6][n % 4]]));
    this.note.textContent = [allocated.length ? `Columns ${allocated.map(span).join(" and ")} are allocated.` : "No column is allocated.", ...said, said.length ? "Yellow is read, red is written." : "The colour of a word is that of the step that wrote it."].join(" ");
    if (!this.picture || this.width !== this.holder.clientWidth) this.build();
    else this.picture.redraw();
    this.tell();
  }
}
