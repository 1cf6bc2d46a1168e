// The Tour: a page at a time, each with something to touch and a small task.
import { banks } from "../parts/banks.js";
import { fragments } from "../parts/fragments.js";
import { moves } from "../parts/moves.js";

export const title = "Tour";
let pages = null;
let playing = [];

export async function mount(main, state, shell) {
  const { element } = shell;
  pages ??= await shell.ask("tour", "pages");
  const number = Math.max(0, pages.findIndex((page) => page.key === state.page));
  const page = pages[number];
  const widget = element("div", {}, element("p", { class: "quiet" }, "Loading…"));
  const right = element("p", { class: "told", role: "status" });
  const task = page.task ? element("div", { class: "note task" }, element("p", {}, element("b", {}, "Try it. "), page.task.ask), right) : null;
  const link = (to, words, kind = "") => (pages[to] ? element("a", { class: `button ${kind}`, href: shell.address("tour", { page: pages[to].key }), rel: kind === "primary" ? "next" : "prev" }, words) : "");
  const steps = element("nav", { class: "dots", "aria-label": "Pages of the tour" }, pages.map((each, place) =>
    element("a", { href: shell.address("tour", { page: each.key }), "aria-current": place === number ? "step" : null, title: each.title }, element("span", { class: "unseen" }, each.title), String(place + 1))));
  const heading = element("h1", { tabindex: -1 }, page.title);
  main.replaceChildren(
    element("article", { class: "tour" }, steps, heading,
      page.text.map((text) => element("p", {}, marked(text, shell))), task ?? "", page.widget ? widget : "",
      element("div", { class: "row" }, link(number - 1, "← Back"), link(number + 1, "Next →", "primary"))));
  if (state.page) heading.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  if (!page.widget) return;
  const done = () => {
    right.textContent = `✓ ${page.task.right}`;
    task.classList.add("done");
  };
  try {
    await build(page, widget, shell, done);
  } catch (error) {
    if (!shell.isAbort(error)) widget.replaceChildren(shell.problem(error));
  }
}

export function unmount() {
  for (const each of playing) each.stop?.();
  playing = [];
}

// *emphasis*, `code` and [links](#/room) in a sentence.
function marked(text, shell) {
  const { element } = shell;
  return text.split(/(\*[^*]+\*|`[^`]+`|\[[^\]]+\]\([^)]+\))/).map((part) => {
    if (/^\*.+\*$/.test(part)) return element("em", {}, part.slice(1, -1));
    if (/^`.+`$/.test(part)) return element("code", {}, part.slice(1, -1));
    const link = part.match(/^\[(.+)\]\((#\/.+)\)$/);
    return link ? element("a", { href: link[2] }, link[1]) : part;
  });
}

async function build(page, widget, shell, done) {
  const { element } = shell;
  const { kind, asks, focus } = page.widget;
  const ask = (place, channel = "") => shell.ask(asks[place][0], asks[place][1], asks[place][2], { channel: `tour${channel}` });
  if (kind === "moves") {
    const made = moves(await ask(0), 0);
    playing.push(made);
    widget.replaceChildren(made.view);
    return;
  }
  if (kind === "fragments") {
    const about = await ask(0);
    const want = page.task?.want;
    const state = { lane: null, at: null, row: null, col: null, by: "lane", product: 0, ...focus };
    const picture = fragments(about, state, (now) => {
      if (page.task?.kind === "element" && now.at && now.at.join() === want.join()) done();
      if (page.task?.kind === "lane" && now.lane === want) done();
      if (page.task?.kind === "product" && now.row === want[0] && now.col === want[1]) done();
    });
    const number = element("output", { class: "mono" }, String(state.lane ?? ""));
    const slider = element("input", { type: "range", min: 0, max: about.threads - 1, value: state.lane ?? 0, "aria-label": "Lane", oninput: (event) => {
      number.textContent = event.target.value;
      picture.set({ lane: Number(event.target.value), at: null, row: null, col: null });
    } });
    widget.replaceChildren(...[page.widget.lanes ? element("div", { class: "player" }, "Lane", slider, number) : null, picture.view].filter(Boolean));
    return;
  }
  const choices = element("div", { class: "row", role: "group", "aria-label": "Layouts" });
  const body = element("div", {});
  const open = async (text) => {
    for (const button of choices.children) button.setAttribute("aria-pressed", String(button.textContent === text));
    const place = page.widget.layouts.indexOf(text);
    const [layout, found] = await Promise.all([ask(2 * place, "a"), ask(2 * place + 1, "b")]);
    // The page has layouts of its own to choose from, which a proposal would give away.
    body.replaceChildren(banks(layout, { ...found, proposals: [] }).view);
    if (found.wavefronts === found.ideal) done();
  };
  choices.append(...page.widget.layouts.map((text) => element("button", { type: "button", class: "mono", "aria-pressed": "false", onclick: () => open(text).catch((error) => { if (!shell.isAbort(error)) body.replaceChildren(shell.problem(error)); }) }, text)));
  widget.replaceChildren(choices, body);
  await open(page.widget.chosen);
}
