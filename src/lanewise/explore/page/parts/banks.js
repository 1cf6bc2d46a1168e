// A layout with the access of 32 lanes drawn into it: which banks they meet, and how many turns that takes.
import { element } from "../shell.js";
import { colours, matrix } from "./matrix.js";

const turnColour = (c, turn) => c.turns[turn === 0 ? 0 : turn === 1 ? 1 : turn <= 3 ? 2 : 3];

export function banks(layout, found, propose) {
  const c = colours();
  const rows = layout.indices.length;
  const cols = layout.indices[0].length;
  const lanes = new Map(); // "row,col" → lane
  found.lanes.forEach((lane, number) => lane.cells.forEach(([row, col]) => lanes.set(`${row},${col}`, lanes.get(`${row},${col}`) ?? number)));
  const told = element("p", { class: "told", "aria-live": "polite" });
  let pointed = null;
  const say = () => {
    if (pointed === null) {
      const excess = found.wavefronts - found.ideal;
      told.replaceChildren(
        element("b", { class: excess ? "bad" : "good" }, `${found.wavefronts} wavefront${found.wavefronts > 1 ? "s" : ""}`),
        excess ? ` where ${found.ideal} would do: ${excess} are bank conflicts.` : ": no conflicts.",
        ` Each of 32 lanes reads ${found.bytes} bytes; the layout takes ${found.memory} bytes.`);
      return;
    }
    const lane = found.lanes[pointed];
    const last = lane.bank + lane.banks - 1;
    told.textContent = `Lane ${pointed}: byte ${lane.byte}, bank${lane.banks > 1 ? `s ${lane.bank}–${last}` : ` ${lane.bank}`}, phase ${lane.phase}, served in turn ${lane.turn + 1}.`;
  };
  const table = matrix({
    rows, cols, caption: "The layout: index and lane; colours are turns", lines: 2, wide: 34,
    cell: (row, col) => {
      const lane = lanes.get(`${row},${col}`);
      const index = String(layout.indices[row][col]);
      if (lane === undefined) return { words: [index], faded: false };
      return { words: [index, `T${lane}`], colour: turnColour(c, found.lanes[lane].turn), faded: pointed !== null && pointed !== lane && found.lanes[lane].phase !== found.lanes[pointed].phase, outline: lane === pointed ? "mark" : null };
    },
    onPoint: (row, col) => { pointed = lanes.get(`${row},${col}`) ?? null; refresh(); },
    onLeave: () => { pointed = null; refresh(); },
    onSelect: (row, col) => { pointed = lanes.get(`${row},${col}`) ?? null; refresh(); },
  });
  // Banks: a row for each phase and turn, a column for each bank; a cell names the lane that is served.
  const phases = Math.max(...found.lanes.map((lane) => lane.phase)) + 1;
  const served = new Map();
  const lines = [];
  for (let phase = 0; phase < phases; phase++) {
    const mine = found.lanes.map((lane, number) => [lane, number]).filter(([lane]) => lane.phase === phase);
    const turns = Math.max(...mine.map(([lane]) => lane.turn)) + 1;
    for (let turn = 0; turn < turns; turn++) {
      for (const [lane, number] of mine.filter(([each]) => each.turn === turn)) {
        for (let bank = lane.bank; bank < lane.bank + lane.banks; bank++) served.set(`${lines.length},${bank % 32}`, served.get(`${lines.length},${bank % 32}`) ?? number);
      }
      lines.push([phase, turn]);
    }
  }
  const map = matrix({
    rows: lines.length, cols: 32, lines: 1, size: [26, 20], caption: "Banks: a line for each turn, the lane that each bank serves",
    rowLabel: (line) => `${lines[line][0]}.${lines[line][1] + 1}`,
    cell: (line, bank) => {
      const lane = served.get(`${line},${bank}`);
      return lane === undefined ? {} : { words: [`T${lane}`], colour: turnColour(c, lines[line][1]), outline: lane === pointed ? "mark" : null };
    },
    onPoint: (line, bank) => { pointed = served.get(`${line},${bank}`) ?? null; refresh(); },
    onLeave: () => { pointed = null; refresh(); },
  });
  function refresh() {
    say();
    table.redraw();
    map.redraw();
  }
  say();
  const proposals = found.proposals.length
    ? element("div", {}, element("h3", {}, "Without conflicts"), element("div", { class: "row" }, found.proposals.map((each) =>
        element("button", { type: "button", onclick: () => propose?.(each.text) }, element("code", {}, each.text), element("span", { class: "small quiet" }, ` ${each.why}: ${each.wavefronts} wavefronts, ${each.memory} bytes`)))))
    : null;
  const legend = element("p", { class: "legend", "aria-label": "Colours" }, "turn ", ["1", "2", "3–4", "more"].map((words, number) => element("span", { style: { background: c.turns[number] } }, words)));
  return { view: element("div", {}, told, legend, proposals, element("div", { class: "side wraps" }, table.view, map.view)) };
}
