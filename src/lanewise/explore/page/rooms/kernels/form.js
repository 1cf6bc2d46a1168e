// What is run: an example, or Python, PTX or CUDA C++ that is typed; the latter two with a launch as `lanewise run` has it.

import { highlighted } from "./highlight.js";

export const EMPTY = { example: "", language: "ptx", source: "", entry: "", grid: "1", block: "", shared: 0, cluster: "", arguments: [], arch: "", schedule: "in order", traced: [0, 0, 0], launch: 1 };
const LANGUAGES = { python: "Python", ptx: "PTX", cuda: "CUDA C++" };
const HELLO = `import numpy as np

import lanewise as lw


@lw.kernel
def add(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], n: lw.i32):
    i = lw.block_idx.x * 32 + lw.lane_id()
    if i < n:
        y[i] = x[i] + y[i]


x = np.arange(100, dtype=np.float32)
y = np.ones(100, dtype=np.float32)
add[4, 32](x, y, 100)
`;
const SCHEDULES = ["in order", "late", "reverse", "1", "2", "3"];

// A source in a link: compressed, in letters that need no escape.
export async function packSource(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(raw, (each) => String.fromCharCode(each)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
export async function unpackSource(text) {
  const raw = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
  if (raw.length > 1 << 18) throw new Error("The link is too long.");
  return new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}

export async function requestOf(state, about) {
  const example = about.examples.find((each) => each.name === state.example);
  const request = { ...EMPTY };
  if (example) Object.assign(request, { example: example.name, language: example.language, source: example.source, grid: example.grid, block: example.block, arguments: example.arguments, arch: example.arch });
  const file = about.files.find((each) => each.name === state.file);
  if (file) Object.assign(request, file, { name: undefined });
  if (state.source) Object.assign(request, { example: "", source: await unpackSource(state.source), language: LANGUAGES[state.language] ? state.language : "ptx" });
  for (const name of ["entry", "grid", "block", "cluster", "arch", "schedule"]) if (state[name] !== undefined) request[name] = state[name];
  if (state.shared) request.shared = +state.shared || 0;
  if (state.launch) request.launch = Math.floor(+state.launch) || 1;
  delete request.name;
  if (state.args !== undefined) request.arguments = state.args.split(";").map((each) => each.trim()).filter(Boolean);
  if (state.traced) request.traced = state.traced.split(",").map((each) => +each || 0).slice(0, 3);
  return request;
}

export async function stateOf(request, about, file) {
  const example = about.examples.find((each) => each.name === request.example);
  const base = example ?? EMPTY, state = {};
  if (example) state.example = example.name;
  else if (file && about.files.some((each) => each.name === file && each.source === request.source)) state.file = file;
  else { state.language = request.language; state.source = await packSource(request.source); }
  for (const name of ["entry", "cluster"]) if (request[name]) state[name] = request[name];
  for (const name of ["grid", "block", "arch"]) if (request[name] && request[name] !== base[name]) state[name] = request[name];
  if (request.schedule !== "in order") state.schedule = request.schedule;
  if (request.shared) state.shared = request.shared;
  if (request.launch > 1) state.launch = request.launch;
  if (request.arguments.join(";") !== (example?.arguments ?? []).join(";")) state.args = request.arguments.join("; ");
  if (request.traced.some((each) => each)) state.traced = request.traced.join(",");
  return state;
}

// The request as the server takes it; an example's source stays where it is.
export function sent(request) {
  const { source, language, ...rest } = request;
  return request.example ? rest : { ...rest, language, source };
}

// A textarea with the colours of its language behind it.
function sourceEditor(element, text, language, submit) {
  const area = element("textarea", { rows: 18, spellcheck: "false", wrap: "off", "aria-label": "Source of the kernel", autocapitalize: "off", autocomplete: "off" });
  const picture = element("pre", { "aria-hidden": "true" });
  area.value = text;
  const draw = () => picture.replaceChildren(...area.value.split("\n").flatMap((line) => [...highlighted(element, language(), line), "\n"]));
  const follow = () => { picture.scrollTop = area.scrollTop; picture.scrollLeft = area.scrollLeft; };
  area.addEventListener("input", draw);
  area.addEventListener("scroll", follow);
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); submit(); return; }
    // A new line begins where the last one did, and deeper after a colon.
    const before = area.value.slice(0, area.selectionStart).split("\n").at(-1), indent = /^[ \t]*/.exec(before)[0];
    const deeper = language() === "python" && /:\s*(#.*)?$/.test(before) ? "    " : "";
    if (!indent && !deeper) return;
    event.preventDefault();
    document.execCommand("insertText", false, `\n${indent}${deeper}`);
  });
  draw();
  return { element: element("div", { class: "source-editor" }, picture, area), area, draw };
}

export function form(about, request, shell, run) {
  const { element } = shell;
  const example = about.examples.find((each) => each.name === request.example);
  const made = {};
  let language = request.source ? request.language : about.python ? "ptx" : "python";
  const field = (name, title, attributes = {}, value = request[name]) => {
    made[name] = element("input", { value: String(value ?? ""), class: "mono", spellcheck: "false", autocomplete: "off", ...attributes });
    return element("label", {}, title, made[name]);
  };
  const choice = (name, title, options) => {
    made[name] = element("select", {}, ...options.map((each) => element("option", { value: each, selected: request[name] === each }, each || "its own")));
    return element("label", {}, title, made[name]);
  };
  const editor = sourceEditor(element, request.source || (language === "python" ? HELLO : ""), () => language, submit);
  const whyNot = (name) => (name === "cuda" && !about.tools.nvrtc ? `NVRTC is not installed: ${about.tools.install}` : name === "python" ? about.python : "");
  const languages = Object.entries(LANGUAGES).map(([name, words]) => element("button", {
    type: "button", dataset: { language: name }, "aria-pressed": "false", disabled: Boolean(whyNot(name)), title: whyNot(name), onclick: () => speak(name),
  }, words));
  const args = element("textarea", { rows: Math.max(3, request.arguments.length), spellcheck: "false", wrap: "off", "aria-label": "Arguments, one in each line" });
  args.value = request.arguments.join("\n");
  function submit() {
    const text = editor.area.value, same = example && text === example.source, isPython = language === "python";
    run({
      ...EMPTY,
      example: same ? example.name : "", language: same ? example.language : language, source: text,
      entry: isPython ? "" : made.entry.value.trim(), grid: isPython ? EMPTY.grid : made.grid.value.trim(), block: isPython ? "" : made.block.value.trim(),
      shared: isPython ? 0 : Math.max(0, Math.floor(+made.shared.value || 0)), cluster: isPython ? "" : made.cluster.value.trim(),
      arguments: isPython ? [] : args.value.split("\n").map((each) => each.trim()).filter(Boolean),
      launch: isPython ? Math.max(1, Math.floor(+made.launch.value) || 1) : 1,
      arch: made.arch.value, schedule: made.schedule.value,
      traced: made.traced.value.split(/[,x\s]+/).filter(Boolean).map((each) => Math.max(0, Math.floor(+each) || 0)).slice(0, 3),
    });
  }
  const launch = element("div", {},
    element("div", { class: "row end" },
      field("grid", "Grid", { size: "7", placeholder: "8,8" }), field("block", "Block", { size: "7", placeholder: "128" }),
      field("shared", "Dynamic shared bytes", { size: "7", inputmode: "numeric" }), field("cluster", "Cluster", { size: "5", placeholder: "none" }), field("entry", "Kernel", { size: "10", placeholder: "the only one" })),
    element("label", {}, "Arguments"), args,
    element("p", { class: "small quiet" }, "One argument a line: ", element("code", {}, "zeros:f32:64x64"), " (or ones, arange, random, normal; a seed after a random shape), a number, ", element("code", {}, "null"), ", or a struct as ", element("code", {}, "hex:00ff"), ". The page reads no files."));
  const script = element("div", {},
    element("p", { class: "small quiet" }, "The script runs on your machine up to its launch, in a process with limits of time and memory. It may import what is installed."),
    element("div", { class: "row end" }, field("launch", "Show launch", { size: "4", inputmode: "numeric" })));
  function speak(name) {
    if (name === "python" && !editor.area.value.trim()) editor.area.value = HELLO;
    else if (name !== "python" && editor.area.value === HELLO) editor.area.value = "";
    language = name;
    for (const button of languages) button.setAttribute("aria-pressed", String(button.dataset.language === name));
    launch.hidden = name === "python";
    script.hidden = name !== "python";
    editor.draw();
  }
  const root = element("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); submit(); } },
    element("div", { class: "editor" },
      element("div", {}, element("div", { class: "row" }, element("span", { class: "tabs", role: "group", "aria-label": "Language" }, ...languages), about.python ? element("span", { class: "small quiet" }, about.python) : null), editor.element),
      element("div", { class: "launch" }, launch, script,
        element("div", { class: "row end" }, choice("arch", "Arch", ["", ...about.archs]), choice("schedule", "Order of warps and copies", SCHEDULES), field("traced", "Block to step through", { size: "6" }, request.traced.join(","))),
        element("div", { class: "row" }, element("button", { class: "primary", type: "submit" }, "Run and check"), element("span", { class: "small quiet" }, "Ctrl+Enter")))));
  speak(language);
  return { element: root, submit };
}
