// The room Bits: one sum as several GPUs compute it, each step with aligned bits, and where they part.

export const title = "Bits";

const EXAMPLES = [
  ["A100 and H100 part", { formats: "f16,f16,f32", a: "4096 2^-6 2^-6 2^-6 2^-6", b: "1 2^-7 2^-7 2^-7 2^-7", c: "0", units: "sm_80,sm_90" }],
  ["FP8 on Hopper: mma and wgmma", { formats: "e4m3,e4m3,f32", a: "16 0.25 0.25 0.25 0.25 0.25 0.25 0.25", b: "256 0.125 0.125 0.125 0.125 0.125 0.125 0.125", c: "0", units: "sm_89,sm_90,sm_90a-wgmma" }],
  ["Small ones are lost beside C", { formats: "f16,f16,f32", a: "1 1 1 1 1 1 1 1", b: "2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12", c: "8192", units: "sm_70,sm_80,sm_90" }],
  ["Cancellation", { formats: "bf16,bf16,f32", a: "256 0.0078125 -256 0.0078125", b: "256 0.0078125 256 0.0078125", c: "0", units: "sm_80,sm_90,sm_100" }],
  ["f64: fused multiply-adds", { formats: "f64,f64,f64", a: "1/3 1e16 -1e16 1", b: "3 1 1 1", c: "1e-16", units: "sm_80,sm_90" }],
];
const KINDS = [["same size", "of the same size"], ["wide", "of many sizes"], ["cancelling", "that cancel"], ["any bits", "any bits"]];
let choices = null, seed = 1, isOpen = innerWidth > 760; // on a phone the picture comes first

export async function mount(main, state, shell) {
  await shell.style("rooms/bits.css");
  choices ??= await shell.ask("bits", "choices");
  const { element } = shell;
  const first = { ...EXAMPLES[0][1], ...(state.formats ? {} : state) };
  const now = state.formats ? { c: "0", units: "sm_80,sm_90", ...state } : first;
  const formats = now.formats.split(",");
  const list = (text) => (text ?? "").split(/[\s,;]+/).filter(Boolean);
  let a = list(now.a), b = list(now.b), units = list(now.units);
  const count = Math.max(a.length, b.length, 1);
  a.length = b.length = count;
  a = Array.from(a, (each) => each ?? "0");
  b = Array.from(b, (each) => each ?? "0");

  const known = (n, other) => [...new Set(choices.combinations.filter((each) => other.every((wanted, m) => wanted === null || wanted === [each.a, each.b, each.d][m])).map((each) => [each.a, each.b, each.d][n]))];
  const chooser = (n, label, options) => element("label", {}, label, element("select", { onchange: (event) => {
    const wanted = [...formats];
    wanted[n] = event.target.value;
    const exact = choices.combinations.find((each) => each.a === wanted[0] && each.b === wanted[1] && each.d === wanted[2]);
    const near = exact ?? choices.combinations.find((each) => each.a === wanted[0] && each.b === (n ? wanted[1] : wanted[0])) ?? choices.combinations.find((each) => [each.a, each.b, each.d][n] === wanted[n]);
    go({ formats: [near.a, near.b, near.d].join(",") });
  } }, ...options.map((each) => element("option", { value: each, selected: each === formats[n] }, each))));

  const c = element("input", { class: "mono", value: now.c, size: "14", "aria-label": "C", spellcheck: "false", onchange: () => go({}) });
  const cells = { a: [], b: [] };
  const table = element("table", { class: "numbers" });
  const head = table.createTHead().insertRow();
  head.append(element("th", {}, "k"), ...a.map((_, k) => element("th", { scope: "col" }, String(k))));
  for (const [name, row] of [["a", a], ["b", b]]) {
    const line = table.insertRow();
    line.append(element("th", { scope: "row" }, `${name.toUpperCase()}`));
    row.forEach((text, k) => {
      const input = element("input", { class: "mono", value: text, spellcheck: "false", autocomplete: "off", "aria-label": `${name}[${k}]`, onchange: () => go({}), onpaste: (event) => paste(event, name, k) });
      cells[name].push(input);
      line.append(element("td", {}, input));
    });
  }
  // Several numbers that are pasted at once go into the cells that follow.
  function paste(event, name, k) {
    const texts = list(event.clipboardData.getData("text"));
    if (texts.length < 2) return;
    event.preventDefault();
    const row = cells[name].map((each) => each.value);
    texts.forEach((text, n) => (row[k + n] = text));
    go({ [name]: Array.from(row, (each) => each || "0").slice(0, choices.most).join(" ") });
  }
  const values = (name) => cells[name].map((each) => each.value.trim() || "0").join(" ");
  const go = (change) => shell.go("bits", { formats: formats.join(","), a: values("a"), b: values("b"), c: c.value.trim() || "0", units: units.join(","), ...change });
  const resize = (to) => {
    const fit = (name) => Array.from({ length: Math.max(1, Math.min(choices.most, to)) }, (_, k) => cells[name][k]?.value.trim() || "0").join(" ");
    go({ a: fit("a"), b: fit("b") });
  };
  const combination = choices.combinations.find((each) => each.a === formats[0] && each.b === formats[1] && each.d === formats[2]);
  const boxes = choices.units.map((each) => element("label", { class: "inline" }, element("input", { type: "checkbox", checked: units.includes(each.key), disabled: combination ? !combination.units.includes(each.key) : false, onchange: (event) => {
    units = choices.units.map((unit) => unit.key).filter((key) => (key === each.key ? event.target.checked : units.includes(key)));
    go({});
  } }), each.name));
  const kind = element("select", { "aria-label": "Random numbers" }, ...KINDS.map(([value, text]) => element("option", { value }, text)));
  const said = element("div", { role: "status" });
  const draw = async () => {
    try {
      const found = await shell.ask("bits", "random", { formats, kind: kind.value, count, seed: ++seed + Date.now() % 1e9 });
      go({ a: found.a.join(" "), b: found.b.join(" "), c: found.c[0] });
    } catch (error) { if (!shell.isAbort(error)) said.replaceChildren(shell.problem(error)); }
  };
  const part = async () => {
    said.replaceChildren(element("p", { class: "quiet" }, "Thousands of sums are tried …"));
    try {
      const found = await shell.ask("bits", "part", { formats, units, count: Math.max(count, 8), seed: ++seed });
      if (found.found) go({ a: found.a.join(" "), b: found.b.join(" "), c: "0" });
      else said.replaceChildren(element("p", { class: "note" }, "No sum was found on which these GPUs part: they add in the same way."));
    } catch (error) { if (!shell.isAbort(error)) said.replaceChildren(shell.problem(error)); }
  };
  const result = element("div", { class: "result" });
  const focused = document.activeElement?.getAttribute("aria-label");
  main.replaceChildren(
    element("h1", {}, "Bits"),
    element("p", { class: "quiet intro" }, "A Tensor Core adds the products of a row and a column: each GPU in its own way. Type numbers (decimal, bits as 0x3c00, 2^-24, 1/3) and see every step."),
    element("div", { class: "row examples" }, ...EXAMPLES.map(([name, each]) => element("a", { class: "chip", href: shell.address("bits", each) }, name))),
    element("details", { class: "panel", "aria-label": "Numbers", open: isOpen, ontoggle: (event) => (isOpen = event.target.open) },
      element("summary", {}, "Numbers, formats and GPUs"),
      element("div", { class: "row end" }, chooser(0, "A", known(0, [null, null, null])), chooser(1, "B", known(1, [formats[0], null, null])), chooser(2, "C and D", known(2, [formats[0], formats[1], null])), element("label", {}, "C", c),
        element("span", { class: "buttons" }, element("button", { type: "button", "aria-label": "One product fewer", onclick: () => resize(count - 1) }, "−"), ` ${count} product${count > 1 ? "s" : ""} `, element("button", { type: "button", "aria-label": "One product more", onclick: () => resize(count + 1) }, "+"))),
      element("div", { class: "scroll" }, table),
      element("div", { class: "row" }, element("button", { type: "button", onclick: draw }, "Random numbers"), kind, element("button", { type: "button", onclick: part }, "Find numbers on which they part"), shell.copyButton(() => location.href, "Copy link")),
      element("fieldset", { class: "units" }, element("legend", { class: "small quiet" }, "GPUs side by side"), element("div", { class: "row" }, ...boxes)),
      said),
    result);
  if (focused) [...main.querySelectorAll("input")].find((each) => each.getAttribute("aria-label") === focused)?.focus();
  try {
    const found = await shell.ask("bits", "sum", { a, b, c: now.c, formats, units });
    result.replaceChildren(...answer(found, cells, shell));
    shell.announce(found.columns.map((each) => `${each.name}: ${each.value}`).join(", "));
  } catch (error) {
    if (!shell.isAbort(error)) result.replaceChildren(shell.problem(error));
  }
}

function answer(found, cells, shell) {
  const { element } = shell, parts = [];
  for (const name of ["a", "b"]) found.inputs[name].forEach((each, k) => { cells[name][k].title = `${each.value} = ${each.bits} = ${each.binary}`; cells[name][k].classList.toggle("rounded", /^[-+\d.e]+$/i.test(cells[name][k].value) && +each.value !== +cells[name][k].value); });
  const { reference } = found;
  if (reference.exact) {
    parts.push(element("p", {}, "Exact sum: ", element("b", { class: "mono" }, reference.value), reference.exact === reference.value ? "" : element("span", { class: "mono small quiet" }, ` = ${reference.exact}`), reference.bits ? element("span", {}, "; the nearest number is ", element("span", { class: "mono" }, `${reference.nearest} (${reference.bits})`)) : ""));
  }
  const all = new Set(found.columns.map((each) => each.bits));
  if (found.columns.length > 1) {
    for (const text of found.parts) parts.push(element("p", { class: all.size > 1 ? "note" : "quiet" }, text));
  }
  for (const each of found.missing) parts.push(element("p", { class: "small quiet" }, each.why));
  parts.push(element("div", { class: "gpus" }, ...found.columns.map((each) => column(each, found.columns[0], shell))));
  return parts;
}

function column(each, first, shell) {
  const { element } = shell;
  const differs = each.bits !== first.bits;
  const table = element("table", { class: "data small" }, ...each.parameters.map((row) => element("tr", {}, element("th", { scope: "row" }, row.name), element("td", { class: "mono" }, row.value), element("td", { class: "quiet" }, row.meaning))));
  return element("section", { class: "panel", "aria-label": each.name },
    element("div", { class: "row" }, element("h2", {}, `${each.name}`), element("span", { class: "quiet small mono" }, each.arch)),
    element("p", { class: "outcome" }, element("b", { class: differs ? "mono differs" : "mono" }, each.value), " ", element("span", { class: "mono small" }, each.bits), each.error ? element("span", { class: each.error === "exact" ? "chip yes" : "chip" }, each.error) : null),
    element("p", { class: "mono small binary" }, ...each.binary.split(" ").map((part, n) => element("span", { class: `field-${n}` }, part))),
    ...each.steps.map((step, n) => stepView(step, n, shell, each.steps.length > 6 && n > 3)),
    element("p", { class: "small quiet" }, element("span", { class: "mono" }, each.instruction), `: ${each.model}`),
    element("details", {}, element("summary", { class: "small" }, `Parameters; ${each.fidelity}`), element("div", { class: "scroll" }, table), element("p", { class: "small quiet" }, `Source: ${each.source}`)));
}

// A number's digits: leading zeros faint, what is cut off struck out.
function digits(row, shell) {
  const { element } = shell;
  const lead = /^0*/.exec(row.kept)[0].length;
  return element("td", { class: "digits" }, element("i", {}, row.negative ? "−" : " "), element("span", { class: "faint" }, row.kept.slice(0, lead)), element("span", {}, row.kept.slice(lead)), row.cut ? element("span", { class: "cut", title: "cut off" }, row.cut) : null);
}

function stepView(step, n, shell, closed) {
  const { element } = shell;
  const rows = step.rows.map((row) => element("tr", { class: row.exponent !== null && row.exponent === step.largest ? "largest" : "" },
    element("th", { scope: "row", title: row.detail }, row.label), element("td", { class: "number", title: row.detail }, row.value), element("td", { class: "number quiet" }, row.exponent === null || row.exponent === undefined ? "" : String(row.exponent)),
    row.kept === undefined ? element("td") : digits(row, shell)));
  const lost = step.rows.filter((row) => row.cut && /1/.test(row.cut)).length;
  const words = [];
  if (step.largest !== null) words.push(`The largest exponent is ${step.largest}: each term keeps its bits down to 2^${step.unit}.`);
  if (lost && step.unit !== null) words.push(`${lost} term${lost > 1 ? "s lose" : " loses"} bits.`);
  const table = element("table", { class: "aligned" },
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "term"), element("th", { scope: "col" }, "value"), element("th", { scope: "col" }, step.largest === null ? "" : "exponent"), element("th", { scope: "col", class: "digits" }, step.top === undefined ? "" : `2^${step.top} … 2^${step.last}`))),
    element("tbody", {}, ...rows),
    element("tfoot", {},
      element("tr", {}, element("th", { scope: "row" }, "sum"), element("td", { class: "number" }, step.total), element("td"), step.sum ? digits(step.sum, shell) : element("td")),
      element("tr", {}, element("th", { scope: "row" }, "rounded"), element("td", { class: "number" }, element("b", {}, step.result)), element("td"), step.rounded ? digits(step.rounded, shell) : element("td"))));
  return element("details", { open: !closed, class: "step" }, element("summary", {}, `${n + 1}. ${step.title}: `, element("b", { class: "mono" }, step.result)), element("p", { class: "small quiet" }, `${words.join(" ")} The sum is rounded ${step.rounding}.`.trim()), element("div", { class: "scroll" }, table));
}

export function unmount() {}
