// What is run: an example, or PTX or CUDA C++ that is typed, with its launch as `lanewise run` has it.

export const EMPTY = { example: "", language: "ptx", source: "", entry: "", grid: "1", block: "", shared: 0, cluster: "", arguments: [], arch: "", schedule: "in order", traced: [0, 0, 0] };
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
  if (file) Object.assign(request, { language: file.language, source: file.source });
  if (state.source) Object.assign(request, { example: "", source: await unpackSource(state.source), language: state.language === "cuda" ? "cuda" : "ptx" });
  for (const name of ["entry", "grid", "block", "cluster", "arch", "schedule"]) if (state[name] !== undefined) request[name] = state[name];
  if (state.shared) request.shared = +state.shared || 0;
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
  if (request.arguments.join(";") !== (example?.arguments ?? []).join(";")) state.args = request.arguments.join("; ");
  if (request.traced.some((each) => each)) state.traced = request.traced.join(",");
  return state;
}

// The request as the server takes it; an example's source stays where it is.
export function sent(request) {
  const { source, language, ...rest } = request;
  return request.example ? rest : { ...rest, language, source };
}

export function form(about, request, shell, run) {
  const { element } = shell;
  const example = about.examples.find((each) => each.name === request.example);
  const isScript = example?.language === "python";
  const made = {};
  const field = (name, title, attributes = {}, value = request[name]) => {
    made[name] = element("input", { value: String(value ?? ""), class: "mono", spellcheck: "false", autocomplete: "off", ...attributes });
    return element("label", {}, title, made[name]);
  };
  const choice = (name, title, options) => {
    made[name] = element("select", {}, ...options.map((each) => element("option", { value: each, selected: request[name] === each }, each || "its own")));
    return element("label", {}, title, made[name]);
  };
  const source = element("textarea", { rows: 16, spellcheck: "false", wrap: "off", "aria-label": "Source of the kernel", readonly: isScript, autocapitalize: "off" });
  source.value = request.source;
  let language = request.language;
  const languages = ["ptx", "cuda"].map((each) => element("button", {
    type: "button", "aria-pressed": String(each === language), disabled: each === "cuda" && !about.tools.nvrtc,
    title: each === "cuda" && !about.tools.nvrtc ? "NVRTC is not installed: pip install \"lanewise[cuda]\"" : "",
    onclick: () => { language = each; languages.forEach((button, n) => button.setAttribute("aria-pressed", String(["ptx", "cuda"][n] === each))); },
  }, each === "ptx" ? "PTX" : "CUDA C++"));
  source.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); } });
  const args = element("textarea", { rows: Math.max(3, request.arguments.length), spellcheck: "false", wrap: "off", "aria-label": "Arguments, one in each line" });
  args.value = request.arguments.join("\n");
  const archs = ["", ...about.archs];
  function submit() {
    const text = source.value, same = example && text === example.source;
    run({
      ...EMPTY,
      example: same ? example.name : "", language: same ? example.language : language, source: text,
      entry: made.entry?.value.trim() ?? "", grid: made.grid?.value.trim() ?? request.grid, block: made.block?.value.trim() ?? request.block,
      shared: Math.max(0, Math.floor(+made.shared?.value || 0)), cluster: made.cluster?.value.trim() ?? "",
      arguments: isScript ? [] : args.value.split("\n").map((each) => each.trim()).filter(Boolean),
      arch: made.arch.value, schedule: made.schedule.value,
      traced: made.traced.value.split(/[,x\s]+/).filter(Boolean).map((each) => Math.max(0, Math.floor(+each) || 0)).slice(0, 3),
    });
  }
  const launch = isScript ? [] : [
    field("grid", "Grid", { size: "7", placeholder: "8,8" }), field("block", "Block", { size: "7", placeholder: "128" }),
    field("shared", "Dynamic shared bytes", { size: "7", inputmode: "numeric" }), field("cluster", "Cluster", { size: "5", placeholder: "none" }), field("entry", "Kernel", { size: "10", placeholder: "the only one" }),
  ];
  const help = element("p", { class: "small quiet" }, "One argument a line: ", element("code", {}, "zeros:f32:64x64"), " (or ones, arange, random, normal; a seed after a random shape), a number, ", element("code", {}, "null"), ", or a struct as ", element("code", {}, "hex:00ff"), ". The page reads no files.");
  const root = element("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); submit(); } },
    element("div", { class: "editor" },
      element("div", {},
        isScript ? element("p", { class: "small quiet" }, "A script in the kernel language. To see your own: ", element("code", {}, "lanewise explore script.py")) : element("div", { class: "row" }, element("span", { class: "tabs", role: "group", "aria-label": "Language" }, ...languages)),
        source),
      element("div", { class: "launch" },
        element("div", { class: "row end" }, ...launch),
        isScript ? null : element("label", {}, "Arguments"), isScript ? null : args, isScript ? null : help,
        element("div", { class: "row end" }, choice("arch", "Arch", archs), choice("schedule", "Order of warps and copies", SCHEDULES), field("traced", "Block to step through", { size: "6" }, request.traced.join(","))),
        element("div", { class: "row" }, element("button", { class: "primary", type: "submit" }, "Run and check"), element("span", { class: "small quiet" }, "Ctrl+Enter")))));
  return { element: root, submit };
}
