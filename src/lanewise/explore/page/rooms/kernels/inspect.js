// What one step shows: the instruction and its lanes, registers by lane, fragments, shared memory as banks, arrays.

import { ArrayView } from "./array.js";
import { BITS, SHARED, bit, number, search } from "./log.js";
import { TensorView } from "./tensor.js";

const BANKS = 32, MOST_ROWS = 32, MOST_COLUMNS = 32;
const ALL_TABS = [["step", "Step"], ["registers", "Registers"], ["fragments", "Fragments"], ["shared", "Shared memory"], ["tensor", "Tensor memory"], ["arrays", "Arrays"], ["report", "Report"]];

// A table that is updated in place: only cells whose text or class has changed are touched.
class CellTable {
  constructor(element, kind, corner, width) {
    this.head = element("tr", {}, element("th", { scope: "col" }, corner));
    for (let n = 0; n < width; n++) this.head.append(element("th", { scope: "col" }, String(n)));
    this.body = element("tbody");
    this.root = element("table", { class: `values sticky fixed ${kind}` }, element("thead", {}, this.head), this.body);
    this.element = element;
    this.width = width;
    this.rows = [];
  }

  // The rows' titles, and for each cell its text, class, and what it is.
  update(titles, cell) {
    while (this.rows.length < titles.length) {
      const head = this.element("th", { scope: "row" }), cells = Array.from({ length: this.width }, () => this.element("td", { tabindex: "-1" }));
      this.rows.push({ row: this.element("tr", {}, head, ...cells), head, cells, texts: [], kinds: [] });
    }
    titles.forEach((title, r) => {
      const line = this.rows[r];
      if (!line.row.isConnected) this.body.append(line.row);
      if (line.title !== title) { line.head.textContent = line.head.title = title; line.title = title; }
      for (let n = 0; n < this.width; n++) {
        const found = cell(r, n);
        if (line.texts[n] !== found.text) line.cells[n].textContent = line.texts[n] = found.text;
        if (line.kinds[n] !== found.kind) line.cells[n].className = line.kinds[n] = found.kind;
        line.cells[n].what = found;
      }
    });
    for (const each of this.rows.slice(titles.length)) each.row.remove();
  }
}

export function inspector(log, shell, options) {
  const { element } = shell;
  const TABS = ALL_TABS.filter(([name]) => name !== "tensor" || log.data.tensor);
  let step = 0, tab = options.tab, hex = false, filter = "", firstRow = 0, shown = null;
  const buttons = new Map(TABS.map(([name, title]) => [name, element("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "inspected", "aria-selected": "false", onclick: () => choose(name),
  }, title)]));
  const tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "What is shown of the step", onkeydown: (event) => {
    const names = TABS.map(([name]) => name), move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    event.stopPropagation();
    event.preventDefault();
    choose(names[(names.indexOf(tab) + move + names.length) % names.length]);
    buttons.get(tab).focus();
  } }, ...buttons.values());
  const body = element("div", { id: "inspected", role: "tabpanel", tabindex: "0" });
  const told = element("div", { class: "origin", hidden: true, "aria-live": "polite" });
  const root = element("section", { class: "panel inspector", "aria-label": "What the step did" }, tabs, body, told);

  function choose(name) {
    tab = buttons.has(name) ? name : "step";
    for (const [each, button] of buttons) { button.setAttribute("aria-selected", String(each === tab)); button.tabIndex = each === tab ? 0 : -1; }
    options.chosen(tab);
    render();
  }
  function show(wanted) { step = wanted; render(); }
  let drawn = ""; // the tab whose tables are there, to be updated in place
  function render() {
    const point = log.at(step);
    body.setAttribute("aria-labelledby", `tab-${tab}`);
    const update = { registers: updateRegisters, shared: updateShared, tensor: () => tensor.update(step) }[tab];
    if (tab === "report" && drawn === tab) return;
    if (!update || drawn !== tab) body.replaceChildren(...{ step: stepView, registers: registersView, fragments: fragmentsView, shared: sharedView, tensor: () => tensor.elements, arrays: arraysView, report: reportView }[tab](point));
    drawn = tab;
    update?.();
  }

  // A value that can be asked for its past. Buttons inside tables would be slow: one listener serves them all.
  function value(text, of, lane, kind = "") {
    const cell = element("td", { class: `value ${kind}`, tabindex: "-1" }, text);
    if (of) { cell.of = of; cell.lane = lane; }
    return cell;
  }
  root.addEventListener("click", (event) => {
    const cell = event.target.closest("td.value, .lane-grid .value");
    if (cell) ask(cell);
    const link = event.target.closest("[data-step]");
    if (link) { event.preventDefault(); options.go(+link.dataset.step); }
  });
  function ask(cell) {
    const of = cell.of ?? cell.what?.of?.();
    if (of) origin(of, cell.of ? cell.lane : cell.what.lane, cell.warp, cell.at);
  }
  root.addEventListener("pointerover", (event) => {
    const what = event.target.closest?.("td.value")?.what;
    if (what?.title) event.target.closest("td.value").title = what.title();
  });
  body.addEventListener("keydown", (event) => {
    const cell = event.target.closest?.("td.value, .lane-grid .value");
    if (!cell) return;
    const next = cell.matches("td") ? inTable(cell)[event.key] : inGrid(cell)[event.key];
    if (event.key === "Enter") { event.preventDefault(); ask(cell); }
    if (!next) return;
    event.stopPropagation();
    event.preventDefault();
    const found = next();
    if (found?.classList.contains("value")) found.focus();
  });
  body.addEventListener("focus", () => {
    const first = body.querySelector("td.value, .lane-grid .value");
    if (first) first.tabIndex = 0;
  });
  // What arrow keys lead to from a cell.
  function inTable(cell) {
    const row = cell.parentElement, at = [...row.cells].indexOf(cell), rows = [...row.parentElement.rows];
    return {
      ArrowRight: () => cell.nextElementSibling, ArrowLeft: () => cell.previousElementSibling,
      ArrowDown: () => rows[rows.indexOf(row) + 1]?.cells[at], ArrowUp: () => rows[rows.indexOf(row) - 1]?.cells[at],
    };
  }
  function inGrid(cell) {
    const cells = [...cell.parentElement.children], at = cells.indexOf(cell), wide = getComputedStyle(cell.parentElement).gridTemplateColumns.split(" ").length;
    return { ArrowRight: () => cells[at + 1], ArrowLeft: () => cells[at - 1], ArrowDown: () => cells[at + wide], ArrowUp: () => cells[at - wide] };
  }

  const stepLink = (wanted, text) => element("a", { href: "#", dataset: { step: wanted } }, text ?? `step ${wanted}`);

  async function origin(of, lane, warp = log.warp[step], asked = step) {
    told.hidden = false;
    const title = element("h3", {}, `Who wrote ${of}${lane === null || lane === undefined ? "" : `, lane ${lane}`}?`);
    const close = element("button", { type: "button", class: "copy", onclick: () => (told.hidden = true) }, "Close");
    told.replaceChildren(element("div", { class: "row" }, title, close), element("p", { class: "quiet" }, "…"));
    try {
      const found = await options.origin({ of, lane: lane ?? null, step: asked, warp, block: log.block[asked] });
      const parts = [tree(found.tree, true)];
      for (const [name, indices] of Object.entries(found.inputs)) {
        const texts = indices.map((each) => `${name}[${each.join(", ")}]`);
        parts.push(element("p", { class: "small" }, `made from ${texts.length} element${texts.length > 1 ? "s" : ""} of ${name}: ${texts.length > 8 ? `${texts.slice(0, 6).join(", ")}, …, ${texts.at(-1)}` : texts.join(", ")}`));
      }
      told.replaceChildren(element("div", { class: "row" }, title, close), ...parts);
    } catch (error) {
      if (!shell.isAbort(error)) told.replaceChildren(element("div", { class: "row" }, title, close), shell.problem(error));
    }
  }
  function tree(node, open) {
    const line = [node.line];
    if (node.step !== null) line.push(" ", stepLink(node.step, `→ step ${node.step}`));
    if (!node.sources.length) return element("div", { class: "leaf" }, ...line, node.more ? ` (${node.more} sources)` : "");
    const details = element("details", { open }, element("summary", {}, ...line));
    for (const each of node.sources) details.append(tree(each, node.sources.length === 1));
    if (node.more) details.append(element("div", { class: "leaf quiet" }, `… ${node.more} more`));
    return details;
  }

  // One step ------------------------------------------------------------------------------------------------

  function stepView(point) {
    const lanes = element("div", { class: "lanes", role: "img", "aria-label": `Active lanes: ${lanesText(log.active[step])}` });
    for (let lane = 0; lane < 32; lane++) {
      lanes.append(element("i", { class: bit(log.active[step], lane) ? "on" : bit(log.lanes[step], lane) ? "off" : "" }, String(lane)));
    }
    const parts = [element("pre", { class: "instruction" }, point.text), lanes];
    if (!log.state[step]) parts.push(element("p", { class: "problem" }, "This instruction stopped the launch."));
    const findings = log.data.findings.filter((each) => each.step === step);
    for (const each of findings) parts.push(element("p", { class: "problem" }, each.text));
    const waiting = log.data.waits.filter(([from, to]) => from <= step && to > step);
    if (waiting.length) {
      parts.push(element("p", { class: "small" }, "Waiting: ", ...waiting.slice(0, 8).flatMap(([from, , warp, what, missing], n) => [n ? "; " : "", `warp ${warp} ${what} since `, stepLink(from), missing ? ` (then ${missing})` : ""]), waiting.length > 8 ? ` and ${waiting.length - 8} more` : ""));
    }
    const under = (list, words) => {
      const found = list.filter(([, , issued, , done]) => issued <= step && (done === null || done > step));
      if (found.length) parts.push(element("p", { class: "small" }, `${words}: ${found.length}, issued at `, ...found.slice(-6).flatMap(([, , issued, , , text, bytes], n) => [n ? ", " : "", stepLink(issued), text ? ` (${text.split(".").slice(0, 4).join(".")}${bytes ? `, ${bytes} bytes` : ""})` : ""])));
    };
    const isTensor = (each) => each[5].startsWith("tcgen05");
    under(log.data.copies.filter((each) => !isTensor(each)), "Asynchronous copies under way");
    under(log.data.copies.filter(isTensor), "tcgen05 operations in flight");
    for (const [, kind, operand, areas] of log.tensorTouched?.get(step) ?? []) {
      const words = areas.slice(0, 4).map(([lane, lanes, column, columns]) => `lanes ${lane} to ${lane + lanes - 1}, columns ${column} to ${column + columns - 1}`).join("; ");
      parts.push(element("p", { class: "small" }, `Tensor memory: ${{ read: "reads", write: "writes" }[kind] ?? "reads and writes"} ${operand}, ${words}${areas.length > 4 ? " …" : ""}.`));
    }
    under(log.data.groups, "Groups of wgmma in flight");
    for (const each of point.registers) {
      parts.push(laneGrid(`written: ${log.titled(each.name)}`, each.name, (lane) => {
        if (!bit(log.active[step], lane) || !log.state[step]) return null;
        return [number(log.view, each.type, each.bits, log.offsets[step] + each.at + (lane * each.bits) / 8, hex)];
      }, (lane) => [each.name, lane]));
    }
    for (const access of log.accesses(step)) {
      const rows = new Map(access.rows.map((each) => [each.row, each]));
      parts.push(laneGrid(`${access.kind}${access.matrix ? ", rows" : ""}${wavefronts(access)}`, "", (lane) => {
        const each = rows.get(lane);
        return each ? [each.name, each.values] : null;
      }, (lane) => [/\[/.test(rows.get(lane).name) ? rows.get(lane).name : null, null], Math.max(32, ...[...rows.keys()].map((row) => row + 1))));
    }
    return parts;
  }

  // The 32 lanes as a grid: each has its number and its lines; one that did nothing is faint.
  function laneGrid(title, hint, lines, what, count = 32) {
    const grid = element("div", { class: "lane-grid", role: "list", "aria-label": title });
    for (let lane = 0; lane < count; lane++) {
      const texts = lines(lane);
      const cell = element("span", { role: "listitem", class: texts ? "value" : "off", tabindex: "-1", title: texts ? `lane ${lane}: ${texts.join(" = ")}` : `lane ${lane} is not active` }, element("i", {}, String(lane)), ...(texts ?? ["–"]).map((text) => element("b", {}, text)));
      if (texts) [cell.of, cell.lane] = what(lane);
      grid.append(cell);
    }
    return element("figure", {}, element("figcaption", { class: "small quiet", title: hint }, title), element("div", { class: "scroll" }, grid));
  }

  function wavefronts(access) {
    const rows = access.rows.filter((each) => each.address >= SHARED && each.address < SHARED + 0x100000000n);
    if (!rows.length) return "";
    const { found, ideal } = conflicts(rows, access);
    return `: ${found} wavefront${found > 1 ? "s" : ""}${found > ideal ? ` where ${ideal} would do` : ""}`;
  }

  // Registers -------------------------------------------------------------------------------------------------

  const registers = { table: new CellTable(element, "", "register", 32), note: element("span", { class: "quiet" }) };
  function registersView() {
    const bar = element("div", { class: "row small" },
      element("label", { class: "inline" }, "only ", element("input", { type: "search", value: filter, size: "10", "aria-label": "Only registers whose name has this", oninput: (event) => { filter = event.target.value.trim(); render(); } })),
      element("label", { class: "inline" }, element("input", { type: "checkbox", checked: hex, onchange: (event) => { hex = event.target.checked; render(); } }), "bits"),
      registers.note);
    return [bar, element("div", { class: "scroll tall" }, registers.table.root)];
  }
  function updateRegisters() {
    const owner = log.of(step);
    // Variables of the source first; within them in the order in which they were written first.
    const names = [...owner.registers.keys()].filter((name) => (!filter || log.titled(name).includes(filter) || name.includes(filter)) && owner.registers.get(name).steps[0] <= step);
    names.sort((a, b) => (log.data.names[b] ? 1 : 0) - (log.data.names[a] ? 1 : 0));
    const listed = names.slice(0, 48), held = listed.map((name) => log.held(step, name, owner));
    registers.table.update(listed.map((name) => log.titled(name)), (r, lane) => {
      const at = held[r].at[lane];
      if (at < 0) return { text: "·", kind: "off" };
      return { text: number(log.view, held[r].type, held[r].bits, at, hex), kind: held[r].by[lane] === step ? "value new" : "value", of: () => listed[r], lane, title: () => `${listed[r]}, lane ${lane}, written at step ${held[r].by[lane]}` };
    });
    registers.note.textContent = `warp ${log.warp[step]}, after step ${step}; select a value to see who wrote it${names.length > listed.length ? `; ${listed.length} of ${names.length} are shown` : ""}`;
  }

  // Fragments -------------------------------------------------------------------------------------------------

  function fragmentsView(point) {
    let at = step;
    const note = [];
    let matrices = point.matrices ?? [];
    if (!matrices.length) {
      const steps = log.of(step).steps;
      for (let n = search(steps, step); n >= 0; n--) {
        if (log.at(steps[n]).matrices?.length) { at = steps[n]; matrices = log.at(at).matrices; break; }
      }
      if (!matrices.length) return [element("p", { class: "quiet" }, "No matrix instruction of this warp has run up to here whose fragments registers hold.")];
      note.push(element("p", { class: "small" }, "The last matrix instruction of this warp was at ", stepLink(at), ":"), element("pre", { class: "instruction" }, log.at(at).text));
    }
    return [...note, ...[...matrices].sort((a, b) => (a.name < b.name ? -1 : 1)).map((each) => matrix(each, at))];
  }

  const firstColumn = new Map(); // of wide matrices, by name: the first column that is shown
  function matrix(each, at) {
    const parts = log.fellows(at, each.warps), from = log.layouts[each.layout];
    const held = parts.map((part) => new Map(part.at === undefined ? [] : each.registers.map((name) => [name, log.held(each.result ? part.at : part.at - 1, name, part.owner)])));
    const start = Math.min(firstColumn.get(each.name) ?? 0, Math.max(0, each.cols - MOST_COLUMNS)), end = Math.min(each.cols, start + MOST_COLUMNS);
    const table = element("table", { class: "values matrix sticky" });
    const head = table.createTHead().insertRow();
    head.append(element("th", { scope: "col" }, each.name));
    for (let c = start; c < end; c++) head.append(element("th", { scope: "col" }, String(c)));
    const rows = table.createTBody();
    for (let r = 0; r < each.rows; r++) {
      const row = rows.insertRow();
      row.append(element("th", { scope: "row" }, String(r)));
      for (let c = start; c < end; c++) {
        const slot = from[r * each.cols + c], thread = Math.floor(slot / (each.registers.length * each.slots)), lane = thread % 32, part = parts[thread >> 5];
        const name = each.registers[Math.floor(slot / each.slots) % each.registers.length], h = held[thread >> 5].get(name);
        const text = h && h.at[lane] >= 0 ? number(log.view, BITS[each.type] === each.slot ? each.type : `b${each.slot}`, each.slot, h.at[lane] + ((slot % each.slots) * each.slot) / 8) : "·";
        const cell = value(text, h && h.at[lane] >= 0 ? name : null, lane, `lane-${lane % 8}`);
        if (each.warps > 1 && part.owner) { cell.warp = part.owner.warp; cell.at = each.result ? part.at : part.at - 1; }
        cell.title = `${each.warps > 1 ? `warp ${part.owner ? part.owner.warp : "not traced"}, ` : ""}lane ${lane}, ${name}`;
        row.append(cell);
      }
    }
    const range = each.cols > MOST_COLUMNS ? element("label", { class: "inline small" }, "columns from ", element("input", { type: "range", min: "0", max: String(each.cols - MOST_COLUMNS), step: "8", value: String(start), "aria-label": `First column of ${each.name} that is shown`, onchange: (event) => { firstColumn.set(each.name, +event.target.value); render(); } }), ` ${start} to ${end - 1}`) : null;
    const holders = each.warps > 1 ? `, held by warps ${parts[0].owner ? parts[0].owner.warp : "?"} to ${parts.at(-1).owner ? parts.at(-1).owner.warp : "?"}` : "";
    return element("details", { open: true }, element("summary", {}, `${each.name}: ${each.rows} × ${each.cols} ${each.type}${holders}, ${each.result ? "after" : "before"} step ${at}`), range, element("div", { class: "scroll tall" }, table));
  }

  // Shared memory as banks ------------------------------------------------------------------------------------

  const banks = { table: new CellTable(element, "banks", "byte", BANKS), note: element("p", { class: "small" }), range: null };
  function sharedView() {
    const size = log.data.sharedBytes, all = Math.ceil(size / (4 * BANKS));
    if (!size) return [element("p", { class: "quiet" }, "The kernel has no shared memory.")];
    banks.range = all > MOST_ROWS ? element("input", { type: "range", min: "0", max: String(all - MOST_ROWS), value: String(firstRow), "aria-label": "First row shown", oninput: (event) => { firstRow = +event.target.value; updateShared(true); } }) : null;
    const legend = log.data.shared.map((each, n) => element("button", {
      type: "button", class: `chip array-${n % 4}`, "aria-pressed": String(shown?.array === each), disabled: !each.places, title: each.places ? "Show it by its own coordinates, with the swizzle undone" : "",
      onclick: () => { shown = shown?.array === each ? null : new ArrayView(log, element, CellTable, each, () => updateShared(true)); drawn = ""; render(); },
    }, `${each.name}: ${each.type} ${each.shape.join(" × ")}`));
    for (const each of log.data.variables) legend.push(element("span", { class: "chip" }, `${each.name || "shared"}: ${each.bytes || "dynamic"} bytes at ${each.first}`));
    if (shown) return [element("div", { class: "row small" }, ...legend), banks.note, ...shown.elements];
    return [element("div", { class: "row small" }, ...legend, banks.range ? element("label", { class: "inline" }, "rows ", banks.range) : null), banks.note, element("div", { class: "scroll tall" }, banks.table.root)];
  }
  function updateShared(chosen = false) {
    const size = log.data.sharedBytes, all = Math.ceil(size / (4 * BANKS));
    if (!size) return;
    const state = log.shared(step), view = new DataView(state.memory.buffer);
    const touched = new Map(), counted = [];
    for (const access of log.accesses(step)) {
      const rows = access.rows.filter((each) => each.address >= SHARED && each.address < SHARED + 0x100000000n);
      if (!rows.length) continue;
      const { found, ideal, busy } = conflicts(rows, access);
      counted.push(`${access.kind}: ${found} wavefront${found > 1 ? "s" : ""}${found > ideal ? ` where ${ideal} would do` : ""}`);
      for (const each of rows) {
        const first = Number(each.address - SHARED);
        for (let at = first & ~3; at < first + Math.max(access.size, 1); at += 4) touched.set(at >> 2, { lane: each.row, bad: busy.has((at >> 2) % BANKS) && found > ideal });
      }
    }
    banks.note.textContent = counted.join("; ") || `This step does not touch shared memory.${shown ? "" : " 32 banks of 4 bytes, side by side:"}`;
    if (shown) { shown.update(state, touched, step); return; }
    const lines = [...touched.keys()].map((word) => Math.floor(word / BANKS));
    if (all <= MOST_ROWS) firstRow = 0;
    else if (!chosen && lines.length && !lines.some((row) => row >= firstRow && row < firstRow + MOST_ROWS)) {
      firstRow = Math.max(0, Math.min(all - MOST_ROWS, Math.min(...lines) - 2));
      banks.range.value = firstRow;
    }
    const names = new Map(log.data.shared.map((each, n) => [each, n % 4]));
    const titles = Array.from({ length: Math.min(all, firstRow + MOST_ROWS) - firstRow }, (_, r) => String((firstRow + r) * 4 * BANKS));
    banks.table.update(titles, (r, bank) => {
      const at = ((firstRow + r) * BANKS + bank) * 4;
      if (at >= size) return { text: "", kind: "none" };
      const array = log.arrayAt(at), type = array && BITS[array.type] ? array.type : "b32", bits = Math.min(BITS[type], 32);
      const writer = Math.max(state.by[at], state.by[at + 1] ?? -1, state.by[at + 2] ?? -1, state.by[at + 3] ?? -1);
      let text = writer < 0 ? "·" : "";
      for (let part = 0; part < 4 && writer >= 0; part += bits / 8) text += (part ? " " : "") + number(view, BITS[type] > 32 ? "b32" : type, bits, at + part);
      const mark = touched.get(at >> 2);
      let kind = "value";
      if (array) kind += ` array-${names.get(array)}`;
      if (writer < 0) kind += " unwritten";
      else if (log.writes.step[writer] === step) kind += " new";
      if (mark) kind += mark.bad ? " conflict" : " touched";
      return { text, kind, lane: null, of: () => log.sharedName(at), title: () => `${log.sharedName(at) || `byte ${at}`}, bank ${bank}${mark ? `, lane or row ${mark.lane}` : ""}, ${writer < 0 ? "not written" : `written at step ${log.writes.step[writer]}`}` };
    });
  }

  const tensor = log.data.tensor ? new TensorView(log, element, (of) => origin(of, null), stepLink) : null;

  // Arrays and the report -------------------------------------------------------------------------------------

  function arraysView() {
    const parts = [];
    for (const each of log.data.results) {
      const table = element("table", { class: "values" }), flat = each.shape.length < 2, rows = table.createTBody();
      const head = table.createTHead().insertRow();
      head.append(element("th", {}), ...(each.rows[0] ?? []).map((_, n) => element("th", { scope: "col" }, String(n))));
      each.rows.forEach((row, r) => {
        const line = rows.insertRow();
        line.append(element("th", { scope: "row" }, flat ? "" : String(r)));
        row.forEach((text, c) => line.append(value(text, each.shape.length <= 2 ? `${each.name}[${flat ? c : `${r}, ${c}`}]` : null, null)));
      });
      parts.push(element("details", { open: each.changed !== 0 }, element("summary", {}, `${each.name}: ${each.type} ${each.shape.join(" × ") || "1"}, ${each.changed === null ? "" : `${each.changed} element${each.changed === 1 ? "" : "s"} changed`}`), element("div", { class: "scroll tall" }, table)));
    }
    if (log.data.printed) parts.push(element("h3", {}, "Printed"), element("pre", {}, log.data.printed));
    parts.unshift(element("p", { class: "small quiet" }, "After the launch. Select an element to see who had written it up to this step."));
    return parts;
  }

  function reportView() {
    const report = log.data.report, parts = [];
    const findings = log.data.findings;
    parts.push(element("p", {}, report ? report.summary : "This launch was not checked."));
    for (const each of findings) parts.push(element("p", { class: each.severity === "advice" ? "note" : "problem" }, each.text, " ", stepLink(each.step, `→ step ${each.step}`)));
    for (const each of report?.findings ?? []) {
      if (!findings.some((other) => other.message === each.message && other.line === each.line)) parts.push(element("p", { class: "problem" }, each.text));
    }
    if (report?.performance.length) parts.push(element("h3", {}, "What costs time"));
    for (const each of report?.performance ?? []) parts.push(element("p", { class: "note" }, `${each.file ? `${each.file}:${each.source}` : `PTX:${each.line}`}  ${each.text}`));
    for (const each of log.data.notes) parts.push(element("p", { class: "small quiet" }, each));
    if (report) {
      const table = element("table", { class: "data small" }, element("caption", { class: "unseen" }, "Counters, under the names that Nsight Compute has"));
      for (const [name, found] of Object.entries(report.counters)) table.insertRow().append(element("th", { scope: "row", class: "mono" }, name), element("td", { class: "number" }, found));
      parts.push(element("details", {}, element("summary", {}, "Counters"), element("div", { class: "scroll" }, table)));
    }
    return parts;
  }

  choose(tab);
  return { element: root, show, get tab() { return tab; } };
}

// Wavefronts of a request: lanes go in phases; a phase takes as many as one bank has distinct words in it.
export function conflicts(rows, access) {
  const lanes = access.matrix || access.size >= 16 ? 8 : access.size === 8 ? 16 : 32;
  const phases = new Map(), busy = new Set();
  for (const each of rows) {
    const phase = Math.floor(each.row / lanes), words = phases.get(phase) ?? phases.set(phase, new Map()).get(phase);
    const first = Number(each.address - SHARED);
    for (let at = first & ~3; at < first + Math.max(access.size, 1); at += 4) {
      const bank = (at >> 2) % BANKS, set = words.get(bank) ?? words.set(bank, new Set()).get(bank);
      set.add(at >> 2);
    }
  }
  let found = 0;
  for (const words of phases.values()) {
    const most = Math.max(...[...words.values()].map((set) => set.size));
    found += most;
    if (most > 1) for (const [bank, set] of words) if (set.size > 1) busy.add(bank);
  }
  return { found, ideal: phases.size, busy };
}

function lanesText(mask) {
  const runs = [];
  for (let lane = 0; lane < 32; lane++) {
    if (!bit(mask, lane)) continue;
    const last = runs.at(-1);
    if (last && last[1] === lane - 1) last[1] = lane; else runs.push([lane, lane]);
  }
  return runs.map(([a, b]) => (a === b ? a : `${a} to ${b}`)).join(", ") || "none";
}
