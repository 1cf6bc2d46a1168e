// The tensor memory that a product writes: lanes down, columns across, a picture for each block of a pair.
import { element } from "../shell.js";
import { matrix } from "./matrix.js";

const LANES = 128, PARTITION = 32, MOST = [24, 4], LEAST = 2, BESIDE = 40;

// `chosen` is called with ["d", row, col] when a word is selected that holds an element of D.
export function lanesAndColumns(about, width, chosen) {
  const d = about.operands.find((each) => each.key === "d"), blocks = about.pair ? 2 : 1, columns = d.held[0].length;
  const stacked = innerWidth <= 760;
  const cell = [Math.min(MOST[0], Math.max(LEAST, Math.floor((width / (stacked ? 1 : blocks) - BESIDE) / columns))), MOST[1]];
  const told = element("p", { class: "told small", "aria-live": "polite" }, "Lanes 0 to 31 belong to warps 0, 4, …, 32 to 63 to warps 1, 5, …: a line is drawn between them. Grey lanes hold nothing of D. Select a word to see its element above.");
  const place = (block, lane, column) => {
    const index = d.held[block * LANES + lane][column];
    return index >= 0 ? [Math.floor(index / d.cols), index % d.cols] : null;
  };
  const say = (block, lane, column) => {
    const found = place(block, lane, column), first = Math.floor(lane / PARTITION);
    told.textContent = `Lane ${lane}, column ${column}${about.pair ? ` of block ${block}` : ""}: ${found ? `D[${found[0]}][${found[1]}]` : "nothing of D"}; warps ${first}, ${first + 4}, … can load it.`;
  };
  const views = Array.from({ length: blocks }, (_, block) => matrix({
    size: cell, rows: LANES, cols: columns, rowName: "lane", colName: "column", ruleRows: PARTITION,
    caption: `Block ${block}: ${LANES} lanes × ${columns} columns`,
    cell: (lane, column) => {
      const found = place(block, lane, column);
      return { colour: found ? Math.floor(found[0] / 16) : undefined };
    },
    onPoint: (lane, column) => say(block, lane, column),
    onSelect: (lane, column) => {
      say(block, lane, column);
      const found = place(block, lane, column);
      if (found) chosen(["d", ...found]);
    },
  }).view);
  return element("section", { class: "panel", "aria-label": "Tensor memory" }, element("h3", {}, "Tensor memory: each colour is 16 rows of D"), told, element("div", { class: "side wraps" }, views));
}
