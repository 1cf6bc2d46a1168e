// The room Kernels: run a kernel, see where it is hot and wrong, and step through it, forwards and backwards.

import { codePanes } from "./kernels/code.js";
import { form, requestOf, sent, stateOf } from "./kernels/form.js";
import { inspector } from "./kernels/inspect.js";
import { Log } from "./kernels/log.js";
import { timeline } from "./kernels/timeline.js";

export const title = "Kernels";
const FIRST = "hgemm";

const TAB = Array.from(crypto.getRandomValues(new Uint32Array(2)), (each) => each.toString(36)).join("");
let about = null, shown = null, ended = () => {}, current = null;

export async function mount(main, state, shell) {
  await shell.style("rooms/kernels.css");
  about ??= await shell.ask("kernels", "about");
  if (current && current.key === keyOf(state) && main.contains(current.root)) {
    current.follow(state); // the same launch: another step
    listen(true);
    return;
  }
  main.replaceChildren();
  const { element } = shell;
  // Without a word about what to show, there is something to see at once: what was opened, or an example.
  if (!Object.keys(state).some((name) => !STEPPING.includes(name))) state = { ...state, ...first() };
  const request = await requestOf(state, about);
  const isOpened = state.opened && about.opened.some((each) => String(each.number) === state.opened);
  const chooser = element("select", { "aria-label": "What to run", onchange: (event) => {
    const [kind, name] = event.target.value.split(/:(.*)/s);
    shell.go("kernels", kind ? { [kind]: name } : { typed: 1 });
  } },
    element("option", { value: "" }, "Type a kernel"),
    about.opened.length ? element("optgroup", { label: "Opened" }, ...about.opened.map((each) => element("option", { value: `opened:${each.number}`, selected: state.opened === String(each.number) }, each.title))) : null,
    about.files.length ? element("optgroup", { label: "Files, to edit" }, ...about.files.map((each) => element("option", { value: `file:${each.name}`, selected: state.file === each.name }, each.name))) : null,
    element("optgroup", { label: "Examples" }, ...about.examples.map((each) => element("option", { value: `example:${each.name}`, selected: request.example === each.name }, each.title))));
  const status = element("div", { class: "status", role: "status" });
  const result = element("div", { class: "result" });
  const example = about.examples.find((each) => each.name === request.example);
  const head = element("div", { class: "row head" }, element("h1", { class: "unseen" }, title), element("label", { class: "inline" }, "Show ", chooser), example && !hasRun(state) ? element("span", { class: "quiet small about" }, example.about) : null);
  const root = element("div", {}, head);
  current = { key: keyOf(state), root, follow: () => {} };
  main.append(root);
  if (isOpened) {
    const file = about.files.find((each) => each.language === "python");
    if (file && !about.python) head.append(element("a", { class: "button", href: shell.address("kernels", { file: file.name }) }, `Edit ${file.name}`));
    head.append(status);
    root.append(result);
    await show(shell, status, result, state, { opened: +state.opened }, null);
    return;
  }
  const editor = form(about, request, shell, async (wanted) => {
    if (isTypedPython(wanted)) allow(wanted.source);
    const next = { ...(await stateOf(wanted, about, state.file)), run: "1" };
    if (keyOf(next) === keyOf(shell.read().state)) await start(wanted);
    else shell.go("kernels", next);
  });
  // Python in a link that somebody sent is shown; it runs when the reader has pressed the button.
  const isUnread = isTypedPython(request) && hasRun(state) && !isAllowed(request.source);
  const runs = hasRun(state) && !isUnread;
  const box = element("details", { class: "editing", open: !runs }, element("summary", {}, "Edit kernel and launch"), editor.element);
  head.append(box, status);
  if (isUnread) status.append(element("p", { class: "note" }, "This Python came with the link, or with a new tab. Read it; then Run and check runs it on your machine."));
  root.append(result);
  if (!runs && !request.source) root.append(gallery(shell));
  async function start(wanted) {
    box.open = false;
    await show(shell, status, result, shell.read().state, {}, wanted);
    if (!result.hasChildNodes()) box.open = true; // it did not run: there is something to mend
  }
  if (runs) await start(request);
}

const isTypedPython = (request) => !request.example && request.language === "python";
// The scripts that the user of this tab has started, so that Back and a new load of the page show them again.
const ALLOWED = "lanewise-python";
function allowed() {
  try { return JSON.parse(sessionStorage.getItem(ALLOWED) ?? "[]"); } catch { return []; }
}
const isAllowed = (source) => allowed().includes(source);
function allow(source) {
  try { sessionStorage.setItem(ALLOWED, JSON.stringify([source, ...allowed().filter((each) => each !== source)].slice(0, 8))); } catch { /* then it is asked again */ }
}

const first = () => (about.opened.length ? { opened: "1" } : about.files.length ? { file: about.files[0].name } : { example: FIRST });
const hasRun = (state) => Boolean(state.run || (state.example && state.edit === undefined) || state.opened);
const STEPPING = ["step", "tab", "edit"];
const keyOf = (state) => JSON.stringify(Object.entries(state).filter(([name]) => !STEPPING.includes(name)).sort());

function gallery(shell) {
  const { element } = shell;
  const cards = [...about.opened.map((each) => [{ opened: each.number }, each.title, "a launch of a script that was opened"]), ...about.files.map((each) => [{ file: each.name }, each.name, "opened"]),
    ...about.examples.map((each) => [{ example: each.name }, each.title, each.about])];
  return element("div", { class: "gallery" }, ...cards.map(([state, name, text]) => element("a", { href: shell.address("kernels", state) }, element("b", {}, name), element("span", { class: "small quiet" }, text))));
}

async function show(shell, status, result, state, opened, request) {
  const { element } = shell;
  ended();
  result.replaceChildren();
  const begun = performance.now();
  const stop = element("button", { type: "button", onclick: () => shell.ask("kernels", "stop", { tab: TAB }).catch(() => {}) }, "Stop");
  const waiting = setTimeout(() => status.replaceChildren(element("span", { class: "quiet" }, "It runs …"), " ", stop), 150);
  status.replaceChildren();
  let log;
  try {
    const data = request ? await shell.ask("kernels", "run", { tab: TAB, request: sent(request) }) : await shell.ask("kernels", "opened", { number: opened.opened });
    log = await Log.of(data);
  } catch (error) {
    if (!shell.isAbort(error)) { status.replaceChildren(shell.problem(error)); shell.announce("The kernel did not run"); }
    return;
  } finally {
    clearTimeout(waiting);
    if (status.contains(stop)) status.replaceChildren();
  }
  shown = log;
  view(shell, status, result, log, shell.read().state, request ? { request: sent(request) } : { request: {}, ...opened });
  result.dataset.seconds = ((performance.now() - begun) / 1000).toFixed(2);
  shell.announce(`${log.data.kernel} ran: ${log.count} steps, ${log.data.findings.length} findings`);
}

function view(shell, status, result, log, state, asked) {
  const { element } = shell, data = log.data;
  const notes = [];
  if (data.fault) notes.push(element("p", { class: "problem" }, `The launch did not end: ${data.fault}`));
  for (const each of data.notes.filter((text) => text.startsWith("The "))) notes.push(element("p", { class: "note" }, each));
  if (data.kept < data.all) notes.push(element("p", { class: "note" }, `The page has the first ${data.kept} of ${data.all} steps.`));
  if (data.full) notes.push(element("p", { class: "note" }, "The limit of the trace was reached: later steps were not kept."));
  const found = data.report?.findings.length ?? data.findings.length;
  const summary = element("p", { class: "summary" }, element("b", {}, data.kernel), ` grid ${data.grid.join("×")}, block ${data.block.join("×")}, as ${data.arch} computes, ${data.all} steps of ${log.tracks.length} warp${log.tracks.length > 1 ? "s" : ""}. `,
    element("span", { class: found ? "chip bad" : "chip yes" }, data.report ? data.report.summary : found ? `${found} findings` : "not checked"), " ",
    ...data.findings.slice(0, 4).flatMap((each) => [element("button", { type: "button", class: "finding", onclick: () => go(each.step) }, `${each.title} at step ${each.step}`), " "]));
  status.replaceChildren(summary, ...notes);
  if (!log.count) { status.append(element("p", {}, "No step of this block ran.")); return; }

  let step = -1, scheduled = 0, saved = 0;
  const line = timeline(log, shell, (wanted) => go(wanted));
  const slider = element("input", { type: "range", min: "0", max: String(log.count - 1), value: "0", "aria-label": "Step", oninput: () => go(+slider.value) });
  const where = element("input", { type: "number", min: "0", max: String(log.count - 1), "aria-label": "Number of the step", onchange: () => go(+where.value || 0) });
  const text = element("span", { class: "where mono small", "aria-live": "off" });
  const button = (label, name, action) => element("button", { type: "button", "aria-label": name, title: name, onclick: action }, label);
  const bar = element("div", { class: "row stepping" },
    button("|◀", "First step", () => go(0)), button("↑", "Back in this warp", () => go(log.sibling(step, -1))), button("◀", "Back", () => go(step - 1)),
    button("▶", "Next", () => go(step + 1)), button("↓", "Next in this warp", () => go(log.sibling(step, 1))), button("▶|", "Last step", () => go(log.count - 1)),
    where, element("span", { class: "grow" }, slider), text, shell.copyButton(() => location.href, "Copy link"));
  const codes = codePanes(log, shell, { go, archs: about.archs, hasSass: about.tools.ptxas, sass: (arch, channel) => shell.ask("kernels", "sass", { tab: TAB, ...asked, arch }, { channel }) });
  const looks = inspector(log, shell, {
    go, tab: state.tab ?? "step", chosen: (tab) => { if (step >= 0) remember(tab); },
    origin: (place) => shell.ask("kernels", "origin", { tab: TAB, ...asked, ...place }),
  });
  result.replaceChildren(element("section", { class: "panel moving", "aria-label": "Steps" }, line.element, bar), element("div", { class: "work" }, codes.element, looks.element));
  codes.arrange();

  function go(wanted) {
    const next = Math.max(0, Math.min(log.count - 1, Math.floor(wanted)));
    if (next === step) return;
    step = next;
    slider.value = where.value = step;
    // Moving a slider asks for many steps in one frame: only the last is drawn.
    if (!scheduled) scheduled = requestAnimationFrame(render);
  }
  function render() {
    scheduled = 0;
    const point = log.at(step);
    text.textContent = `warp ${log.warp[step]}, ${point.source ? `${point.file}:${point.source}, ` : ""}PTX line ${point.line}`;
    slider.setAttribute("aria-valuetext", `step ${step}, ${text.textContent}`);
    line.show(step);
    codes.show(step);
    looks.show(step);
    clearTimeout(saved);
    saved = setTimeout(() => remember(looks.tab), 200);
    result.dataset.step = step;
  }
  function remember(tab) {
    if (!result.isConnected) return;
    const now = shell.read();
    if (now.room !== "kernels") return;
    shell.replace({ ...now.state, step: step || undefined, tab: tab === "step" ? undefined : tab });
  }
  current.follow = (wanted) => go(+wanted.step || 0);
  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea, summary, [role=tablist], [role=separator], td.value, .lane-grid .value, .lines")) return;
    const action = { ArrowLeft: () => go(step - 1), ArrowRight: () => go(step + 1), ArrowUp: () => go(log.sibling(step, -1)), ArrowDown: () => go(log.sibling(step, 1)), Home: () => go(0), End: () => go(log.count - 1) }[event.key];
    if (action) { event.preventDefault(); action(); }
  };
  listening = () => addEventListener("keydown", keys);
  listening();
  ended = () => { removeEventListener("keydown", keys); line.end(); clearTimeout(saved); cancelAnimationFrame(scheduled); ended = () => {}; };
  paused = () => { removeEventListener("keydown", keys); clearTimeout(saved); };
  const first = data.findings.find((each) => each.severity !== "advice");
  go(state.step !== undefined ? +state.step || 0 : first ? first.step : 0);
}

let listening = () => {}, paused = () => {};
function listen() { listening(); }

export function unmount() {
  paused();
}
addEventListener("pagehide", () => {
  // A tab that closes leaves nothing running.
  if (shown) navigator.sendBeacon?.("api/kernels/stop", new Blob([JSON.stringify({ tab: TAB })], { type: "application/json" }));
});
