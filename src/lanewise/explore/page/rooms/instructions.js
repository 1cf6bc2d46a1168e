// The room Instructions: search, legality, fragments, animations, code to copy.
import { fragments } from "../parts/fragments.js";
import { lanesAndColumns } from "../parts/tensor.js";
import { moves } from "../parts/moves.js";
import { pieces } from "../parts/pieces.js";

export const title = "Instructions";
const USUAL = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
const MOST_LISTED = 80;

let catalogue = null;
let room = null; // the elements and state of the room while it is shown
let playing = [];

export async function mount(main, state, shell) {
  const entered = !main.querySelector("#search");
  catalogue ??= prepared(await shell.ask("instructions", "catalogue"));
  if (entered) build(main, shell);
  room.state = {
    i: state.i || USUAL, source: state.source || "", arch: state.arch || "", q: state.q ?? "", lane: state.lane ?? "", at: state.at ?? "",
    row: state.row ?? "", col: state.col ?? "", by: state.by ?? "", product: state.product ?? "", step: state.step ?? "",
    code: state.code ?? "", large: state.large ?? "", major: state.major ?? "", swizzle: state.swizzle ?? "", operand: state.operand ?? "", number: state.number ?? "",
    map: state.map ?? "", fields: state.fields ?? "",
  };
  if (document.activeElement !== room.search) room.search.value = room.state.q;
  list(shell);
  if (room.results.contains(document.activeElement) && innerWidth <= 760) document.activeElement.blur(); // the list goes, the picture comes
  await show(shell);
}

export function unmount() {
  for (const each of playing) each.stop?.();
  playing = [];
}

// searching ---------------------------------------------------------------------------------------------

const split = (text) => text.toLowerCase().split(/[\s.,:;{}[\]%]+/).filter(Boolean);
const squeezed = (text) => text.toLowerCase().replace(/[\s_-]/g, "");

function prepared(found) {
  for (const entry of found.entries) {
    entry.on = found.on[entry.on];
    if (entry.sizes !== undefined) entry.sizes = found.sizes[entry.sizes];
    entry.all = [...split(entry.text), ...found.words[entry.words].split(" ")];
  }
  const gpus = Object.entries(found.gpus).flatMap(([arch, names]) => names.map((name) => [name, squeezed(name), arch]));
  found.gpuList = gpus.sort((a, b) => b[1].length - a[1].length);
  return found;
}

// What a search says: words, and an arch if a GPU or an arch is named.
function read(query) {
  let words = split(query.replace(/×/g, "x"));
  let arch = null;
  let gpu = null;
  for (let length = Math.min(4, words.length); length > 0 && !arch; length--) {
    for (let start = 0; start + length <= words.length && !arch; start++) {
      const name = words.slice(start, start + length).join("");
      const plain = squeezed(name);
      const isArch = catalogue.archs.includes(`sm_${plain.replace(/^(sm|compute)/, "")}`) && /^(sm|compute)/.test(plain);
      const found = isArch ? null : catalogue.gpuList.find((each) => each[1] === plain);
      if (isArch || found) {
        arch = isArch ? `sm_${plain.replace(/^(sm|compute)/, "")}` : found[2];
        gpu = found?.[0];
        words = [...words.slice(0, start), ...words.slice(start + length)];
      }
    }
  }
  return { words, arch, gpu };
}

function matches(entry, word) {
  return entry.all.some((each) => each.startsWith(word));
}

function search(query) {
  const { words, arch, gpu } = read(query);
  const bit = arch ? 2 ** catalogue.archs.indexOf(arch) : 0;
  const found = catalogue.entries.filter(
    (entry) => (!bit || Math.floor(entry.archs / bit) % 2 === 1) && words.every((word) => matches(entry, word)),
  );
  // Words that are there as they were typed count for more than beginnings of words.
  const exact = (entry) => words.filter((word) => entry.all.includes(word)).length;
  const ranked = found.map((entry, place) => [exact(entry), place, entry]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  return { found: ranked.map((each) => each[2]), arch, gpu, words };
}

function chosen(entry, words) {
  if (!entry.sizes) return entry.text;
  const size = entry.sizes.find((n) => words.some((word) => word.includes(`n${n}k`) || word.startsWith(`64x${n}x`)));
  return entry.text.replace("n*", `n${size ?? entry.usual}`);
}

function list(shell) {
  const { element } = shell;
  const query = room.state.q;
  const { found, arch, gpu, words } = search(query);
  const open = room.state.i.replace(/\.m64n\d+k/, ".m64n*k");
  const isOpen = (text) => text === open || text === room.state.i;
  if (room.listed === query) {
    // The same list: only what is open changes, so that focus and scrolling stay.
    for (const link of room.results.querySelectorAll("a")) {
      if (isOpen(link.firstChild.textContent)) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    return;
  }
  room.listed = query;
  const shown = found.slice(0, MOST_LISTED);
  room.results.replaceChildren(
    ...shown.map((entry) =>
      element("li", {}, element("a", {
        href: shell.address("instructions", { i: chosen(entry, words), q: query }),
        "aria-current": isOpen(entry.text) ? "true" : null,
      }, entry.text, element("small", {}, entry.on))),
    ),
  );
  const where = arch ? ` on ${gpu ? `${gpu} (${arch})` : arch}` : "";
  room.count.textContent = found.length
    ? `${found.length} form${found.length > 1 ? "s" : ""}${where}${found.length > MOST_LISTED ? `, the first ${MOST_LISTED}` : ""}`
    : `Nothing in the list fits${where}. Enter looks it up as it stands.`;
}

function build(main, shell) {
  const { element } = shell;
  const search = element("input", {
    id: "search", class: "mono", type: "search", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    placeholder: "bf16 H100, HMMA.16816, ldmatrix x4 …", "aria-describedby": "count", style: { width: "100%" },
  });
  room = {
    shell, search, results: element("ul", { class: "results", "aria-label": "Instructions found" }),
    count: element("p", { id: "count", class: "quiet small", role: "status" }), detail: element("div", {}), state: {}, shown: "",
  };
  search.addEventListener("input", () => {
    room.state.q = search.value;
    list(shell);
    shell.replace(clean(room.state));
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      room.results.querySelector("a")?.focus();
    } else if (event.key === "Enter") {
      event.preventDefault();
      const first = room.results.querySelector("a");
      if (first) location.hash = first.getAttribute("href");
      else shell.go("instructions", { i: search.value.trim(), q: search.value });
    }
  });
  room.results.addEventListener("keydown", (event) => {
    const item = event.target.closest("li");
    if (!item || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    event.preventDefault();
    const next = event.key === "ArrowDown" ? item.nextElementSibling : item.previousElementSibling;
    (next?.querySelector("a") ?? (event.key === "ArrowUp" ? search : null))?.focus();
  });
  main.replaceChildren(
    element("h1", { class: "unseen" }, "Instructions"),
    element("div", { class: "beside" },
      element("section", { "aria-label": "Search" },
        element("label", { for: "search" }, "Search: PTX, short names, SASS, types, GPUs"), search, room.count, room.results),
      room.detail),
  );
}

const clean = (state) => ({ ...state, i: state.i === USUAL ? "" : state.i });

// one instruction ---------------------------------------------------------------------------------------

async function show(shell) {
  const { state, detail } = room;
  const key = JSON.stringify([state.i, state.source, state.arch, state.fields]);
  if (room.shown !== key || !room.about) {
    try {
      const body = { text: state.i };
      if (state.source) body.source = state.source;
      if (state.arch) body.arch = state.arch;
      if (state.fields) body.fields = state.fields;
      const announced = room.about !== undefined;
      room.about = await shell.ask("instructions", "about", body);
      if (announced) shell.announce(room.about.text);
      room.shown = key;
    } catch (error) {
      if (shell.isAbort(error)) return;
      room.shown = "";
      detail.replaceChildren(shell.problem(error));
      return;
    }
  }
  shell.keepFocus(detail, () => render(shell, room.about));
}

function render(shell, about) {
  const { element } = shell;
  const { state, detail } = room;
  unmount();
  const save = () => shell.replace(clean(state));
  const entry = catalogue.entries.find((each) => each.text === about.text || each.text === about.text.replace(/\.m64n\d+k/, ".m64n*k"));

  const heading = element("div", { class: "row heading" }, element("h2", { class: "mono" }, about.text), shell.copyButton(about.text), element("span", {}, `${about.does[0].toUpperCase()}${about.does.slice(1)}.`));
  const choices = [];
  if (entry?.sizes) choices.push(select(shell, "N", entry.sizes, about.shape[1], (n) => shell.go("instructions", clean({ ...state, i: entry.text.replace("n*", `n${n}`), at: "" }))));
  if (entry?.sources) choices.push(select(shell, "A from", entry.sources.map((each) => [each, each === "descriptor" ? "shared memory" : "registers"]), about.source, (source) => shell.go("instructions", clean({ ...state, source: source === "descriptor" ? "" : source, at: "" }))));
  if (about.other_fragments.length) choices.push(select(shell, "Fragments as on", [["", "sm_75 and later"], [about.other_fragments[0], about.other_fragments.join(", ")]], state.arch, (arch) => shell.go("instructions", clean({ ...state, arch, at: "" }))));

  if (about.choices && !shell.isStatic) choices.push(...fieldChoices(shell, about));

  const on = new Set(about.archs);
  const archs = element("div", { class: "archs", role: "list", "aria-label": "Archs" }, element("span", { class: "quiet small", "aria-hidden": "true" }, "sm_"),
    catalogue.archs.map((arch) => element("span", { role: "listitem", class: `chip ${on.has(arch) ? "yes" : "no"}`, title: [`${arch} ${on.has(arch) ? "has it" : "does not have it"}`, ...(catalogue.gpus[arch] ?? [])].join(", "), "aria-label": `${arch}: ${on.has(arch) ? "has it" : "does not have it"}` }, arch.replace("sm_", ""))));
  const runs = element("details", {}, element("summary", {}, `How archs run it; PTX ${about.ptx}`),
    element("div", { class: "scroll" }, element("table", { class: "data" },
      element("thead", {}, element("tr", {}, ["runs as", "computed bits", "on"].map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, about.runs.map(([names, how, bits]) => element("tr", {}, element("td", {}, how), element("td", {}, bits || "–"), element("td", { class: "mono small" }, names.join(" "))))))));
  detail.replaceChildren(heading, archs);

  const number = (text, limit = Infinity) => (/^\d+$/.test(text) && Number(text) < limit ? Number(text) : null);
  const sizeOf = (key) => about.operands.find((each) => each.key === key);
  const at = state.at.split(",");
  const focus = {
    lane: number(state.lane, about.threads),
    at: null, row: about.multiplies ? number(state.row, sizeOf("a")?.rows) : null, col: about.multiplies ? number(state.col, sizeOf("b")?.cols) : null, large: state.large === "1", by: state.by || (about.pair ? "block" : "lane"), product: number(state.product, about.products) ?? 0,
  };
  const pointed = about.operands.find((each) => each.key === at[0]);
  if (pointed && number(at[1], pointed.rows) !== null && number(at[2] ?? "", pointed.cols) !== null) focus.at = [at[0], Number(at[1]), Number(at[2])];
  const isMove = ["ldmatrix", "stmatrix", "movmatrix"].includes(about.family);
  const name = about.tensor?.thread ?? (about.threads > 32 ? "thread" : "lane");
  if (!about.operands.length) {
    detail.append(withoutOperands(shell, about, runs), code(shell, about, save));
    return;
  }
  const slider = element("input", { type: "range", min: 0, max: about.threads - 1, value: focus.lane ?? 0, "aria-label": `Choose a ${name}` });
  const box = element("input", { type: "number", min: 0, max: about.threads - 1, value: focus.lane ?? "", placeholder: "all", style: { width: "5.5em" }, "aria-label": `Number of the ${name}` });
  const pick = (text) => {
    const lane = text === "" ? null : Math.max(0, Math.min(about.threads - 1, Math.floor(Number(text)) || 0));
    picture.set({ lane, at: null, row: null, col: null });
  };
  slider.addEventListener("input", () => pick(slider.value));
  box.addEventListener("change", () => pick(box.value));
  const large = element("label", { class: "inline", hidden: true }, element("input", { type: "checkbox", checked: state.large === "1", onchange: (event) => { state.large = event.target.checked ? "1" : ""; save(); shell.keepFocus(detail, () => render(shell, about)); }, "aria-label": "Large cells" }), "Large cells");
  const controls = element("div", { class: "player" }, choices,
    element("span", {}, name === "lane" ? "Lane" : "Thread"), slider, box,
    element("button", { type: "button", onclick: () => pick("") }, "All"),
    select(shell, "Colour by", about.tensor && about.multiplies ? [["lane", "lane"], ["value", "column"], ...(about.pair ? [["block", "block"]] : [])] : [["lane", name], ["value", "value"], ["register", "register"]], focus.by, (by) => picture.set({ by })),
    large,
    about.products > 1 ? select(shell, "Product", Array.from({ length: about.products }, (_, n) => [String(n), String(n)]), String(focus.product), (product) => picture.set({ product: Number(product) })) : null);
  // All operands fit below the heading, so that nobody has to scroll to see who holds D.
  const above = isMove ? 0 : archs.getBoundingClientRect().bottom + scrollY;
  const space = { width: detail.clientWidth - (innerWidth <= 760 ? 30 : 34), height: Math.max(420, innerHeight - above - (innerWidth <= 760 ? 130 : 44)) };
  const picture = fragments(about, focus, (now) => {
    Object.assign(state, { lane: now.lane ?? "", at: now.at ? now.at.join(",") : "", row: now.row ?? "", col: now.col ?? "", by: now.by === (about.pair ? "block" : "lane") ? "" : now.by, product: now.product || "" });
    slider.value = now.lane ?? 0;
    box.value = now.lane ?? "";
    save();
  }, space, controls);
  large.hidden = !(picture.small || state.large === "1");
  const facts = element("details", {}, element("summary", {}, "Registers and CuTe layouts"), element("div", { class: "scroll" }, element("table", { class: "data" },
    element("thead", {}, element("tr", {}, ["operand", "held as", "layout (thread, value) → element", "known from"].map((each) => element("th", { scope: "col" }, each)))),
    element("tbody", {}, about.operands.map((each) => element("tr", {}, element("th", { scope: "row" }, each.name), element("td", {}, each.packing),
      element("td", { class: "mono small" }, each.held && each.layout ? element("a", { href: shell.address("layouts", { l: each.layout, tv: `${each.rows},${each.cols}` }) }, each.layout) : each.layout), element("td", { class: "small" }, each.source)))))));
  const volta = about.fragments_of ? element("p", { class: "note" }, `Fragments of ${about.fragments_of}.`) : null;
  if (isMove) {
    const made = moves(about, Number(state.step) || 0, (step) => { state.step = step || ""; save(); });
    playing.push(made);
    detail.append(element("section", { class: "panel", "aria-label": "Step by step" }, element("h3", {}, about.family === "movmatrix" ? "Row by row" : "Addresses → rows → registers"), made.view));
  }
  detail.append(element("section", { class: "panel", "aria-label": "Fragments" }, element("h3", { class: "unseen" }, "Who holds what"), volta, picture.view, facts, runs));
  if (about.family.startsWith("wgmma")) detail.append(descriptors(shell, about, save));
  if (about.tensor && about.multiplies) detail.append(lanesAndColumns(about, detail.clientWidth - 30, (at) => picture.set({ lane: null, at, row: null, col: null })));
  if (about.descriptor) detail.append(instructionDescriptor(shell, about));
  detail.append(code(shell, about, save));
}

// tcgen05: M, N and formats are fields of a descriptor ------------------------------------------------------

function fieldChoices(shell, about) {
  const { fields, choices } = about;
  const go = (changed) => {
    const all = { ...fields, ...changed };
    shell.go("instructions", clean({ ...room.state, i: about.text, at: "", row: "", col: "", lane: "", fields: ["m", "n", "a", "b", "d"].map((name) => `${name}=${all[name]}`).join(" ") }));
  };
  return ["m", "n", "a", "b"].filter((name) => choices[name].length > 1).map((name) => select(shell, name.toUpperCase(), choices[name], String(fields[name]), (value) => go({ [name]: value })));
}

function instructionDescriptor(shell, about) {
  const { element } = shell;
  const { descriptor } = about;
  const typed = element("input", { class: "mono", placeholder: "0x…", style: { width: "9em" }, spellcheck: "false", onchange: (event) => shell.go("instructions", clean({ ...room.state, i: about.text, fields: `descriptor=${event.target.value.trim()}` })) });
  return element("section", { class: "panel", "aria-label": "Instruction descriptor" }, element("h3", {}, "Instruction descriptor"),
    element("div", { class: "row" }, element("code", {}, descriptor.number), shell.copyButton(descriptor.number), shell.isStatic ? null : element("label", { class: "inline" }, "or 32 bits of your own ", typed)),
    element("div", { class: "scroll" }, element("table", { class: "data" },
      element("thead", {}, element("tr", {}, ["field", "bits", "number", "means", "says"].map((each) => element("th", { scope: "col" }, each)))),
      element("tbody", {}, descriptor.fields.map((each) => element("tr", {}, element("td", {}, each.name), element("td", { class: "mono" }, each.bits > 1 ? `${each.first + each.bits - 1}..${each.first}` : String(each.first)), element("td", { class: "mono" }, String(each.number)), element("td", { class: "mono" }, each.value), element("td", {}, each.says)))))));
}

// An instruction that holds nothing: what its words say, and its picture if it has one.
function withoutOperands(shell, about, runs) {
  const { element } = shell;
  const picture = element("div", { class: "scroll picture" });
  if (about.picture) picture.innerHTML = about.picture; // SVG of lanewise.draw, whose texts are escaped
  return element("section", { class: "panel", "aria-label": "What it does" },
    about.words?.length ? element("div", { class: "scroll" }, element("table", { class: "data" }, element("tbody", {}, about.words.map(([word, says]) => element("tr", {}, element("th", { scope: "row", class: "mono" }, word), element("td", {}, says)))))) : null,
    about.picture ? picture : null, about.runs.length ? runs : null);
}

// Cells are as large as the window lets them be.
let width = innerWidth, resized = 0;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => {
    if (width === innerWidth || !room?.about || !room.detail.isConnected) return;
    width = innerWidth;
    render(room.shell, room.about);
  }, 150);
});

function select(shell, label, options, value, changed) {
  const { element } = shell;
  const pairs = options.map((each) => (Array.isArray(each) ? each : [String(each), String(each)]));
  const made = element("select", { onchange: (event) => changed(event.target.value) }, pairs.map(([key, words]) => element("option", { value: key, selected: String(value) === key }, words)));
  return element("label", {}, label, " ", made);
}

// wgmma's descriptors, and the tensor copies that fill what they describe
function descriptors(shell, about, save) {
  const { element } = shell;
  const { state } = room;
  const inMemory = about.operands.filter((each) => ["a", "b"].includes(each.key) && !each.held);
  const body = element("div", {});
  const fields = element("div", {});
  const controls = element("div", { class: "row end" });
  const panel = element("section", { class: "panel", "aria-label": "Descriptors" }, element("h3", {}, "Descriptor → addresses → rows"), controls, fields, body);

  async function ask() {
    const isMap = state.map === "1";
    const key = inMemory.some((each) => each.key === state.operand) ? state.operand : inMemory[0].key;
    const operand = inMemory.find((each) => each.key === key);
    const rows = key === "a" ? operand.rows : operand.cols;
    const depth = key === "a" ? operand.cols : operand.rows;
    const swizzle = state.swizzle || "128B";
    const major = operand.bits === 16 ? state.major || "K" : "K";
    // tf32 lies in words of 32 bits.
    const bits = operand.format === "tf32" ? 32 : operand.bits;
    const typed = element("input", { class: "mono", value: state.number, placeholder: "0x…", style: { width: "13em" }, spellcheck: "false", onchange: (event) => change({ number: event.target.value.trim() }) });
    const change = (values) => { Object.assign(state, values, { step: "" }); save(); ask(); };
    controls.replaceChildren(
      select(shell, "Operand", inMemory.map((each) => [each.key, each.name]), key, (value) => change({ operand: value })),
      select(shell, "Swizzle", ["none", "32B", "64B", "128B"], swizzle, (value) => change({ swizzle: value, number: "" })),
      operand.bits === 16 && !isMap ? select(shell, "Order", [["K", "K-major"], ["MN", "MN-major"]], major, (value) => change({ major: value, number: "" })) : "",
      select(shell, "Show", [["", "the descriptor"], ["1", "a tensor copy (TMA) of the tile"]], state.map, (value) => change({ map: value })),
      isMap ? "" : element("label", {}, "or 64 bits of your own ", typed));
    try {
      const width = swizzle === "none" ? 128 : Number.parseInt(swizzle, 10);
      const question = isMap ? "tensor_map" : "descriptor";
      const asked = isMap
        ? { type: { f16: "f16", bf16: "bf16", tf32: "f32", s8: "u8", u8: "u8", e4m3: "u8", e5m2: "u8" }[operand.format] ?? "u8", shape: [rows, (8 * width) / bits], box: [Math.min(rows, 256), (8 * width) / bits], swizzle }
        : { rows: Math.min(rows, 256), k: depth, bits, major, swizzle, ...(state.number ? { number: state.number } : {}) };
      const found = await shell.ask("instructions", question, asked);
      const made = pieces(found, Number(state.step) || 0, (step) => { state.step = step || ""; save(); });
      playing.push(made);
      fields.replaceChildren(isMap
        ? element("p", {}, `A tensor map of ${found.described}; an mbarrier expects ${found.box_bytes} bytes.`)
        : element("div", { class: "scroll" }, element("p", {}, element("code", {}, found.number), " ", shell.copyButton(found.number)), element("table", { class: "data" },
            element("thead", {}, element("tr", {}, ["field", "bits", "value", "meaning"].map((each) => element("th", { scope: "col" }, each)))),
            element("tbody", {}, found.fields.map((each) => element("tr", {}, element("td", { class: "mono" }, each.name), element("td", { class: "mono" }, `${each.first + each.bits - 1}..${each.first}`), element("td", { class: "mono" }, String(each.name === "start_address" ? `0x${each.value.toString(16)}` : each.value)), element("td", {}, each.meaning)))))));
      body.replaceChildren(made.view);
    } catch (error) {
      if (!shell.isAbort(error)) {
        fields.replaceChildren();
        body.replaceChildren(shell.problem(error));
      }
    }
  }
  if (inMemory.length) ask();
  return panel;
}

function code(shell, about, save) {
  const { element } = shell;
  const { state } = room;
  const names = Object.keys(about.code);
  const holder = element("div", { class: "code", role: "tabpanel", "aria-label": "Code" });
  const tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "Copy as" });
  function open(name) {
    for (const tab of tabs.children) {
      tab.setAttribute("aria-selected", String(tab.textContent === name));
      tab.tabIndex = tab.textContent === name ? 0 : -1;
    }
    holder.replaceChildren(element("pre", { tabindex: 0 }, about.code[name]), shell.copyButton(about.code[name]));
    state.code = name === names[0] ? "" : name;
  }
  tabs.append(...names.map((name) => element("button", { type: "button", role: "tab", onclick: () => { open(name); save(); } }, name)));
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const place = (names.indexOf(event.target.textContent) + step + names.length) % names.length;
    open(names[place]);
    tabs.children[place].focus();
    save();
  });
  open(names.includes(state.code) ? state.code : names[0]);
  return element("section", { class: "panel", "aria-label": "Copy as code" }, element("h3", {}, "Copy as"), tabs, holder);
}
