// The source, the PTX and the SASS beside each other. Lines that come from the same line of the source have its
// colour in every pane. Heat says how often lines ran, and where wavefronts, conflicts and findings are.

import { highlighted, languageOf } from "./highlight.js";

const FIGURES = { executed: "executions", wavefronts: "wavefronts", conflicts: "conflicts", sectors: "sectors", requests: "requests", tensor: "products" };
const GOLDEN = 137.508; // degrees between neighbouring hues: lines beside each other differ most
const SASS = "SASS", OTHER_SASS = "SASS of another arch";
const LEAST_WIDTH = 110; // pixels of a pane

export function codePanes(log, shell, options) {
  const { element } = shell;
  const report = log.data.report;
  const files = Object.keys(log.data.files);
  let figure = "executed", step = 0;

  const figures = (pane) => (!report ? {} : pane === "PTX" ? report.ptx : Object.fromEntries(Object.entries(report.files[pane]?.lines ?? {}).map(([line, each]) => [line, each.figures])));
  const remarks = (pane) => {
    const made = {};
    const add = (line, text, bad) => line && (made[line] ??= []).push({ text, bad });
    const own = (each) => (pane === "PTX" ? !each.file && each.line : each.file === pane && each.source);
    for (const each of report?.findings ?? log.data.findings) add(own(each), `${each.title}: ${each.message}`, each.severity !== "advice");
    for (const each of report?.performance ?? []) add(own(each), each.text, false);
    return made;
  };

  // Colours: one for each line of the source that became instructions; of PTX alone, one for each of its lines.
  const keyOfPtx = new Map();
  const hasSource = log.data.points.some((point) => point.source);
  for (const point of log.data.points) {
    if (point.source) keyOfPtx.set(point.line, `${point.file}:${point.source}`);
    else if (point.line && !hasSource) keyOfPtx.set(point.line, `PTX:${point.line}`);
  }
  const order = [...new Set(keyOfPtx.values())].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const hues = new Map(order.map((key, n) => [key, Math.round(n * GOLDEN) % 360]));
  const rowsOf = new Map();
  function colour(row, key) {
    if (!hues.has(key)) return;
    row.dataset.key = key;
    row.classList.add("tinted");
    row.style.setProperty("--hue", hues.get(key));
    (rowsOf.get(key) ?? rowsOf.set(key, []).get(key)).push(row);
  }
  let linked = [];
  function link(key) {
    for (const each of linked) each.classList.remove("linked");
    linked = (key && rowsOf.get(key)) || [];
    for (const each of linked) each.classList.add("linked");
  }

  const available = new Set(["executed"]);
  if (report) for (const each of Object.values(report.ptx)) for (const name of Object.keys(each)) available.add(name);
  const chooser = element("select", { "aria-label": "What the heat shows", onchange: (event) => { figure = event.target.value; for (const pane of panes) pane.heat(); } },
    ...Object.entries(FIGURES).filter(([name]) => available.has(name)).map(([name, title]) => element("option", { value: name }, title)));

  function pane(name, lines, line) {
    const list = element("ol", { class: "lines", tabindex: "0", role: "group", "aria-label": name === "PTX" ? "PTX" : `Source ${name}` });
    const said = remarks(name), counted = name === "PTX" ? log.counts.ptx : log.counts[name], language = languageOf(name);
    const rows = lines.map((text, n) => {
      const count = element("span", { class: "count" });
      const row = element("li", { dataset: { line: n + 1 } }, element("span", { class: "line" }, String(n + 1)), count, element("code", {}, ...highlighted(element, language, text || " ")));
      colour(row, name === "PTX" ? keyOfPtx.get(n + 1) : `${name}:${n + 1}`);
      if (counted?.has(n + 1)) row.classList.add("ran");
      for (const each of said[n + 1] ?? []) row.append(element("span", { class: each.bad ? "remark bad" : "remark warn", title: each.text }, each.text));
      list.append(row);
      return row;
    });
    // A click goes to the next step at a line, from where we are; on a remark it shows all of it.
    list.addEventListener("click", (event) => {
      const row = event.target.closest("li"), remark = event.target.closest(".remark");
      if (remark) { remark.classList.toggle("whole"); return; }
      if (!row || getSelection().toString()) return;
      const wanted = +row.dataset.line;
      for (let n = 1; n <= log.count; n++) {
        const each = (step + n) % log.count;
        if (line(log.at(each)) === wanted) return options.go(each);
      }
    });
    let here = null;
    const made = {
      name, element: element("div", { class: "pane" }, element("h3", {}, name), list),
      heat() {
        const own = figures(name), value = (n) => own[n]?.[figure] ?? (figure === "executed" && !report ? counted?.get(n) ?? 0 : 0);
        const most = Math.max(1, ...rows.map((_, n) => value(n + 1)));
        rows.forEach((row, n) => {
          const count = value(n + 1);
          row.children[1].textContent = count ? count.toLocaleString("en") : "";
          row.style.setProperty("--heat", count ? `${Math.round(12 + 78 * (Math.log1p(count) / Math.log1p(most)))}%` : "0%");
        });
      },
      show(number) {
        const wanted = line(log.at(number));
        here?.classList.remove("here");
        here?.removeAttribute("aria-current");
        here = rows[wanted - 1];
        if (!here) return;
        here.classList.add("here");
        here.setAttribute("aria-current", "step");
        const top = here.offsetTop;
        if (top < list.scrollTop + 20 || top > list.scrollTop + list.clientHeight - 40) list.scrollTop = top - list.clientHeight / 3;
      },
    };
    made.heat();
    return made;
  }

  const panes = files.map((file) => pane(file, log.data.files[file], (point) => (point.file === file ? point.source : 0)));
  panes.push(pane("PTX", log.data.ptx, (point) => point.line));
  const all = [...panes, sassPane(SASS, log, shell, options, colour), sassPane(OTHER_SASS, log, shell, options, colour)];
  const most = () => (innerWidth < 760 ? 1 : innerWidth < 1100 ? 2 : 4);
  const usual = [...files.slice(0, 1), "PTX", ...(options.hasSass ? [SASS] : [])];
  const shown = new Set(innerWidth < 760 ? usual.slice(0, 1) : innerWidth < 1100 ? usual.slice(0, 2) : usual);
  const buttons = all.map((each) =>
    element("button", { type: "button", "aria-pressed": String(shown.has(each.name)), class: each.name === OTHER_SASS ? "other" : null, onclick: () => toggle(each) }, each.name === OTHER_SASS ? "+ another arch" : each.name));
  function toggle(each) {
    if (shown.has(each.name) && shown.size > 1) shown.delete(each.name); else shown.add(each.name);
    while (shown.size > most()) shown.delete([...shown].find((name) => name !== each.name));
    arrange();
  }
  const box = element("div", { class: "panes" });
  function arrange() {
    const parts = all.filter((each) => shown.has(each.name));
    all.forEach((each, n) => buttons[n].setAttribute("aria-pressed", String(shown.has(each.name))));
    box.dataset.panes = parts.length;
    box.replaceChildren(...parts.flatMap((each, n) => (n ? [splitter(element, parts[n - 1], each), each.element] : [each.element])));
    for (const each of parts) { each.load?.(); each.show(step); }
  }
  box.addEventListener("pointerover", (event) => link(event.target.closest?.("li")?.dataset.key));
  box.addEventListener("pointerleave", () => link(null));
  const root = element("section", { class: "panel code-panel", "aria-label": "Source with heat" },
    element("div", { class: "row" }, element("span", { class: "tabs", role: "group", "aria-label": "Shown side by side" }, ...buttons), element("label", { class: "inline small" }, "heat ", chooser)), box);
  return {
    element: root,
    arrange,
    show(number) { step = number; for (const each of all) if (shown.has(each.name)) each.show(number); },
  };
}

// What stands between two panes; dragging it, or arrow keys, gives one what the other loses.
function splitter(element, before, after) {
  const bar = element("div", { class: "splitter", role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": `Between ${before.name} and ${after.name}: arrow keys move it` });
  function move(by) {
    const panes = [...bar.parentElement.querySelectorAll(".pane")], widths = panes.map((each) => each.offsetWidth);
    panes.forEach((each, n) => (each.style.flexGrow = widths[n]));
    const [left, right] = [before, after].map((each) => widths[panes.indexOf(each.element)]);
    const shift = Math.max(LEAST_WIDTH - left, Math.min(right - LEAST_WIDTH, by));
    before.element.style.flexGrow = left + shift;
    after.element.style.flexGrow = right - shift;
  }
  let from = null;
  bar.addEventListener("pointerdown", (event) => { from = event.clientX; bar.setPointerCapture(event.pointerId); event.preventDefault(); });
  bar.addEventListener("pointermove", (event) => { if (from !== null) { move(event.clientX - from); from = event.clientX; } });
  bar.addEventListener("pointerup", () => (from = null));
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -40, ArrowRight: 40 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    move(by);
  });
  return bar;
}

function sassPane(name, log, shell, options, colour) {
  const { element } = shell;
  const list = element("ol", { class: "lines", tabindex: "0", role: "group", "aria-label": name });
  const head = element("span", {}, name);
  const isOther = name !== SASS;
  const own = log.data.arch, generation = (each) => Math.floor(Number.parseInt(each.slice(3), 10) / 10);
  const later = options.archs.find((each) => generation(each) > generation(own)) ?? options.archs.findLast((each) => generation(each) < generation(own)) ?? own;
  const arch = element("select", { "aria-label": `Arch of ${name}`, onchange: () => made.load(true) }, ...options.archs.map((each) => element("option", { value: each, selected: each === (isOther ? later : own) }, each)));
  let loaded = false, rows = [], step = 0;
  const made = {
    name,
    element: element("div", { class: "pane" }, element("h3", {}, head, " ", arch), list),
    async load(again = false) {
      if (loaded && !again) return;
      loaded = true;
      list.replaceChildren(element("li", { class: "quiet whole" }, "ptxas assembles it …"));
      rows = [];
      try {
        const code = await options.sass(arch.value, name);
        head.textContent = `SASS: ${code.resources}`;
        rows = code.lines.map((each) => {
          const [, address, text] = /^\/\*([0-9a-f]+)\*\/\s*(.*)$/.exec(each.text) ?? [null, "", each.text];
          const row = element("li", {}, element("span", { class: "line" }, each.source ? String(each.source) : ""), element("span", { class: "count" }, address), element("code", {}, ...highlighted(element, "sass", text)));
          row.place = each;
          colour(row, `${each.file}:${each.source}`);
          return row;
        });
        list.replaceChildren(...rows);
        this.show(step);
      } catch (error) {
        if (!shell.isAbort(error)) list.replaceChildren(element("li", { class: "whole" }, shell.problem(error)));
        else loaded = false;
      }
    },
    show(number) {
      step = number;
      const point = log.at(number);
      const wanted = point.source ? [point.file, point.source] : ["PTX", point.line];
      let first = null;
      for (const row of rows) {
        const here = row.place.file === wanted[0] && row.place.source === wanted[1];
        row.classList.toggle("here", here);
        if (here) first ??= row;
      }
      if (first && (first.offsetTop < list.scrollTop || first.offsetTop > list.scrollTop + list.clientHeight - 40)) list.scrollTop = first.offsetTop - list.clientHeight / 3;
    },
    heat() {},
  };
  return made;
}
