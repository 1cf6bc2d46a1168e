// The room Layouts: an expression of the algebra as a picture, its inverse, its swizzle, its banks.
import { banks } from "../parts/banks.js";
import { fragments } from "../parts/fragments.js";
import { matrix } from "../parts/matrix.js";

export const title = "Layouts";
const FIRST = { l: "(16,32):(32,1)", bits: "16", access: "ldmatrix", vector: "8" };
const ACCESSES = [["ldmatrix", "ldmatrix: a row of 16 bytes a lane"], ["along", "lanes side by side in memory"], ["across", "lanes below each other (a column)"], ["lanes", "my own: lane → coordinate"]];

let room = null;
let timer = 0;

export async function mount(main, state, shell) {
  const { element } = shell;
  room = { main, shell, state: { ...FIRST, lanes: "", tv: "", ...state } };
  if (!main.querySelector("#layout")) {
    room.main.replaceChildren(element("p", { class: "quiet" }, "Loading…"));
    const about = await shell.ask("layouts", "about");
    build(about);
  }
  const typed = main.querySelector("#layout");
  if (document.activeElement !== typed) typed.value = room.state.l;
  controls();
  await ask();
}

export function unmount() {
  clearTimeout(timer);
}

const short = () => {
  const { l, bits, access, vector, lanes, tv } = room.state;
  return { l, bits: bits === FIRST.bits ? "" : bits, access: access === FIRST.access ? "" : access, vector: access === "ldmatrix" || vector === FIRST.vector ? "" : vector, lanes: access === "lanes" ? lanes : "", tv };
};

function change(values) {
  Object.assign(room.state, values);
  room.shell.replace(short());
  controls();
  ask();
}

function build(about) {
  const { main, shell } = room;
  const { element } = shell;
  const typed = element("textarea", { id: "layout", class: "mono", rows: innerWidth <= 760 ? 1 : 2, spellcheck: "false", autocapitalize: "off", style: { width: "100%" }, "aria-describedby": "layout-help" });
  typed.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ l: typed.value, tv: "" }), 200);
  });
  const examples = element("div", { class: "row examples" }, about.examples.map((each) => element("button", { type: "button", class: "small", onclick: () => {
    typed.value = each.text;
    change({ l: each.text, bits: String(each.bits), access: each.access, vector: String(each.vector), lanes: "", tv: each.tv ?? "" });
  } }, each.name)));
  const help = element("details", { class: "small" }, element("summary", {}, "What can be typed"),
    element("p", { id: "layout-help" }, "shape:stride, as CuTe prints it, (8,64):(64,1); a shape alone is compact, the first mode fastest. Sw<3,3,3> o layout is a swizzle; A o B a composition. Lines may name values: A = (8,16):(16,1). Types of C++ are read too."),
    element("p", { class: "mono" }, about.functions.join(", ")));
  const fixed = shell.isStatic ? element("p", { class: "note" }, "This site has no server: it knows the examples above. Run lanewise explore on your machine to type layouts of your own.") : null;
  main.replaceChildren(
    element("h1", {}, "Layouts"),
    ...[examples, fixed].filter(Boolean),
    element("label", { for: "layout" }, "Layout or expression"), typed, help,
    element("div", { id: "answer", "aria-live": "polite" }),
    element("section", { class: "panel", "aria-label": "Banks", id: "banks" }, element("h2", {}, "Banks of shared memory"), element("div", { id: "access", class: "row end" }), element("div", { id: "turns" })));
}

function controls() {
  const { main, shell, state } = room;
  const { element } = shell;
  const pick = (label, name, pairs, off = false) => element("label", {}, label, " ", element("select", { disabled: off, onchange: (event) => change({ [name]: event.target.value }) },
    pairs.map(([value, words]) => element("option", { value, selected: String(state[name]) === value }, words))));
  const vectors = [1, 2, 4, 8, 16].filter((count) => (count * Number(state.bits)) / 8 <= 16).map((count) => [String(count), count === 1 ? "one element" : `${count} elements`]);
  if (!vectors.some(([value]) => value === state.vector)) state.vector = vectors.at(-1)[0];
  const own = element("input", { class: "mono", value: state.lanes, placeholder: "(16,2):(1,256)", onchange: (event) => change({ lanes: event.target.value }) });
  const access = main.querySelector("#access");
  shell.keepFocus(access, () => access.replaceChildren(
    pick("Element", "bits", [["8", "8 bits"], ["16", "16 bits"], ["32", "32 bits"], ["64", "64 bits"]]),
    pick("Access", "access", ACCESSES),
    pick("Each lane reads", "vector", vectors, state.access === "ldmatrix"),
    state.access === "lanes" ? element("label", {}, "Lanes → coordinate ", own) : ""));
}

async function ask() {
  const { main, shell, state } = room;
  const { element } = shell;
  const answer = main.querySelector("#answer");
  const turns = main.querySelector("#turns");
  let found;
  try {
    found = await shell.ask("layouts", "evaluate", state.tv ? { text: state.l, tv: state.tv } : { text: state.l });
  } catch (error) {
    if (!shell.isAbort(error)) answer.replaceChildren(shell.problem(error));
    return;
  }
  answer.replaceChildren(...describe(found));
  if (found.kind !== "layout" || !found.indices) {
    turns.replaceChildren(element("p", { class: "quiet" }, "Banks are drawn for layouts that are small enough."));
    return;
  }
  try {
    const body = { text: state.l, bits: Number(state.bits), access: state.access, vector: state.access === "ldmatrix" ? 8 : Number(state.vector) };
    if (state.access === "lanes") body.lanes = state.lanes || "32:1";
    const told = await shell.ask("layouts", "banks", body);
    turns.replaceChildren(banks(found, told, (text) => {
      main.querySelector("#layout").value = text;
      change({ l: text, tv: "" });
      shell.announce(`Layout ${text}`);
    }).view);
  } catch (error) {
    if (!shell.isAbort(error)) turns.replaceChildren(shell.problem(error));
  }
}

function describe(found) {
  const { shell, state } = room;
  const { element } = shell;
  const names = Object.entries(found.names ?? {}).map(([name, text]) => element("p", { class: "mono small quiet" }, `${name} = ${text}`));
  if (found.kind !== "layout") return [...names, element("p", { class: "mono" }, `= ${found.text}`)];
  const swizzle = found.swizzle;
  const facts = [`${found.size} elements`, found.cosize ? `cosize ${found.cosize}` : "", `rank ${found.rank}`].filter(Boolean).join(", ");
  const head = element("p", {}, element("code", {}, found.text), " ", shell.copyButton(found.text), " ", found.python ? shell.copyButton(found.python, "Copy as Python") : "", " ", element("span", { class: "quiet" }, facts));
  const parts = [...names, head];
  if (swizzle) parts.push(element("p", { class: "small" }, `Swizzle: bits ${swizzle.base} to ${swizzle.base + swizzle.bits - 1} of the index are changed (XOR) by bits ${swizzle.base + swizzle.shift} to ${swizzle.base + swizzle.shift + swizzle.bits - 1}; runs of ${2 ** swizzle.base} stay together.`));
  if (found.fragments) {
    parts.push(element("section", { class: "panel", "aria-label": "Threads and values" }, element("h2", {}, `As (thread, value) over a ${state.tv.replace(",", "×")} matrix`), fragments(found.fragments, { lane: null, at: null, row: null, col: null, by: "lane", product: 0 }).view));
  }
  if (!found.indices) return [...parts, element("p", { class: "note" }, found.large)];
  const run = Math.max(1, 128 / Number(state.bits)); // elements in 16 bytes, which four banks hold
  const rows = found.indices.length;
  const cols = found.indices[0].length;
  const told = element("p", { class: "told", "aria-live": "polite" }, "Point at a cell: the same element lights up on the other side.");
  let pointed = null; // [row, col]
  const same = (row, col) => pointed && pointed[0] === row && pointed[1] === col;
  const wide = 34;
  const table = matrix({
    rows, cols, lines: 1, wide, caption: "Coordinate → index; a colour is 16 bytes, four banks",
    cell: (row, col) => {
      const index = found.indices[row][col];
      return { words: [String(index)], colour: typeof index === "number" ? Math.floor(index / run) : undefined, outline: same(row, col) ? "mark" : null };
    },
    onPoint: (row, col) => point([row, col]), onLeave: () => point(null), onSelect: (row, col) => point([row, col]),
  });
  const memory = found.inverse.memory;
  let inverse = null;
  if (memory) {
    const line = Math.min(memory.length, 32);
    inverse = matrix({
      rows: Math.ceil(memory.length / line), cols: line, lines: 1, wide, caption: "Index → coordinate: what lies in memory",
      rowLabel: (row) => row * line,
      cell: (row, col) => {
        const place = memory[row * line + col];
        const index = row * line + col;
        return place ? { words: [`${place[0]},${place[1]}`], colour: Math.floor(index / run), outline: same(...place) ? "mark" : null } : {};
      },
      onPoint: (row, col) => point(memory[row * line + col]), onLeave: () => point(null), onSelect: (row, col) => point(memory[row * line + col]),
    });
  }
  function point(place) {
    pointed = place ?? null;
    told.textContent = pointed ? `(${pointed[0]}, ${pointed[1]}) → ${found.indices[pointed[0]][pointed[1]]}` : "Point at a cell: the same element lights up on the other side.";
    table.redraw();
    inverse?.redraw();
  }
  const text = found.inverse.text ? element("p", { class: "small" }, "Inverse: ", element("code", {}, found.inverse.text), " ", shell.isStatic ? "" : element("a", { href: shell.address("layouts", { l: found.inverse.text }) }, "open it")) : null;
  parts.push(element("section", { class: "panel", "aria-label": "Picture" }, element("h2", {}, "The layout and its inverse"), told, text, element("div", { class: "side wraps" }, table.view, inverse?.view)));
  return parts;
}
