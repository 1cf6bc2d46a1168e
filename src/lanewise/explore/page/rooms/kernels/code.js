// The source, the PTX and the SASS beside each other, with heat: how often lines ran, wavefronts, conflicts, findings.

const FIGURES = { executed: "executions", wavefronts: "wavefronts", conflicts: "conflicts", sectors: "sectors", requests: "requests", tensor: "products" };

export function codePanes(log, shell, options) {
  const { element } = shell;
  const report = log.data.report;
  const files = Object.keys(log.data.files);
  let figure = "executed", step = 0;

  const figures = (pane) => (!report ? {} : pane === "PTX" ? report.ptx : Object.fromEntries(Object.entries(report.files[pane]?.lines ?? {}).map(([line, each]) => [line, each.figures])));
  const remarks = (pane) => {
    const found = {};
    const add = (line, text, bad) => line && (found[line] ??= []).push({ text, bad });
    const own = (each) => (pane === "PTX" ? !each.file && each.line : each.file === pane && each.source);
    for (const each of report?.findings ?? log.data.findings) add(own(each), `${each.title}: ${each.message}`, each.severity !== "advice");
    for (const each of report?.performance ?? []) add(own(each), each.text, false);
    return found;
  };

  const available = new Set(["executed"]);
  if (report) for (const each of Object.values(report.ptx)) for (const name of Object.keys(each)) available.add(name);
  const chooser = element("select", { "aria-label": "What the heat shows", onchange: (event) => { figure = event.target.value; for (const pane of panes) pane.heat(); } },
    ...Object.entries(FIGURES).filter(([name]) => available.has(name)).map(([name, title]) => element("option", { value: name }, title)));

  function pane(name, lines, line) {
    const list = element("ol", { class: "lines", tabindex: "0", role: "group", "aria-label": name === "PTX" ? "PTX" : `Source ${name}` });
    const said = remarks(name), counted = name === "PTX" ? log.counts.ptx : log.counts[name];
    const rows = lines.map((text, n) => {
      const count = element("span", { class: "count" });
      const row = element("li", { dataset: { line: n + 1 } }, element("span", { class: "line" }, String(n + 1)), count, element("code", {}, text || " "));
      if (counted?.has(n + 1)) row.classList.add("ran");
      for (const each of said[n + 1] ?? []) row.append(element("span", { class: each.bad ? "remark bad" : "remark warn" }, each.text));
      list.append(row);
      return row;
    });
    // A click goes to the next step at a line, from where we are.
    list.addEventListener("click", (event) => {
      const row = event.target.closest("li");
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
          const found = value(n + 1);
          row.children[1].textContent = found ? found.toLocaleString("en") : "";
          row.style.setProperty("--heat", found ? `${Math.round(12 + 78 * (Math.log1p(found) / Math.log1p(most)))}%` : "0%");
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
  const ptx = pane("PTX", log.data.ptx, (point) => point.line);
  panes.push(ptx);
  const sass = sassPane(log, shell, options);
  const all = [...panes, sass];
  const shown = new Set(!files.length ? ["PTX"] : innerWidth < 1400 ? [files[0]] : [files[0], "PTX"]);
  const buttons = all.map((each) =>
    element("button", { type: "button", "aria-pressed": String(shown.has(each.name)), onclick: () => toggle(each) }, each.name));
  function toggle(each) {
    if (shown.has(each.name) && shown.size > 1) shown.delete(each.name); else shown.add(each.name);
    if (shown.size > 2) shown.delete([...shown].find((name) => name !== each.name));
    arrange();
  }
  function arrange() {
    all.forEach((each, n) => { each.element.hidden = !shown.has(each.name); buttons[n].setAttribute("aria-pressed", String(shown.has(each.name))); });
    box.dataset.panes = shown.size;
    if (shown.has("SASS")) sass.load();
    for (const each of all) if (shown.has(each.name)) each.show(step);
  }
  const box = element("div", { class: "panes" }, ...all.map((each) => each.element));
  const root = element("section", { class: "panel code-panel", "aria-label": "Source with heat" },
    element("div", { class: "row" }, element("span", { class: "tabs", role: "group", "aria-label": "Shown side by side" }, ...buttons), element("label", { class: "inline small" }, "heat ", chooser)), box);
  return {
    element: root,
    arrange,
    show(number) { step = number; for (const each of all) if (shown.has(each.name)) each.show(number); },
  };
}

function sassPane(log, shell, options) {
  const { element } = shell;
  const list = element("ol", { class: "lines", tabindex: "0", role: "group", "aria-label": "SASS" });
  const head = element("h3", {}, "SASS");
  let loaded = false, rows = [], step = 0;
  return {
    name: "SASS",
    element: element("div", { class: "pane", hidden: true }, head, list),
    async load() {
      if (loaded) return;
      loaded = true;
      list.replaceChildren(element("li", { class: "quiet" }, "ptxas assembles it …"));
      try {
        const found = await options.sass();
        head.textContent = `SASS of ${found.arch}: ${found.resources}`;
        rows = found.lines.map((each) => {
          const row = element("li", {}, element("span", { class: "line" }, each.source ? String(each.source) : ""), element("span", { class: "count" }), element("code", {}, each.text));
          row.place = each;
          return row;
        });
        list.replaceChildren(...rows);
        this.show(step);
      } catch (error) {
        if (!shell.isAbort(error)) list.replaceChildren(element("li", {}, shell.problem(error)));
        else loaded = false;
      }
    },
    show(number) {
      step = number;
      const point = log.at(number);
      let first = null;
      for (const row of rows) {
        const here = row.place.source && row.place.source === point.source && row.place.file === point.file;
        row.classList.toggle("here", Boolean(here));
        if (here) first ??= row;
      }
      if (first) list.scrollTop = first.offsetTop - list.clientHeight / 3;
    },
    heat() {},
  };
}
