// The shell of the page: rooms, the state in the address, questions to the server, small tools for rooms.
// A room is a module in rooms/ that exports `title`, `async mount(main, state, shell)` and `unmount()`.

export const ROOMS = [
  ["instructions", "Instructions"],
  ["layouts", "Layouts"],
  ["bits", "Bits"],
  ["kernels", "Kernels"],
  ["tour", "Tour"],
];
const FIRST = "instructions";
const IS_STATIC = document.documentElement.dataset.static !== undefined;
// Rooms that compute: a site without a server can only say how to get them.
const NEED_SERVER = new Set(["bits", "kernels"]);
const AT_HOME = "Run it on your machine: pip install lanewise, then lanewise explore.";
const SVG_TAGS = new Set(
  "svg g path rect circle line polyline polygon text tspan title desc defs marker use clipPath pattern".split(" "),
);

const main = document.getElementById("main");
const announcer = document.getElementById("announcer");
const underWay = new Map(); // controllers of questions, by room, question and channel
let current = { name: null, module: null };
let turn = 0; // counts changes of room, so that a slow one does not overwrite a later one

// The state in the address: #/room?name=value&…
export function read(fragment = location.hash) {
  const [path, query = ""] = fragment.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { room: path.split("/")[0], state: Object.fromEntries(new URLSearchParams(query)) };
}

export function address(room, state = {}) {
  const given = Object.entries(state).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  // Colons, commas and slashes stay readable: a link is something that people paste.
  const text = query.toString().replace(/%3A/gi, ":").replace(/%2C/gi, ",").replace(/%2F/gi, "/");
  return `#/${room}${text ? `?${text}` : ""}`;
}

export function element(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else if (name === "dataset") Object.assign(made.dataset, value);
    else if (name === "class") made.setAttribute("class", value);
    else if (["value", "checked", "disabled", "selected", "hidden", "open"].includes(name) && !SVG_TAGS.has(tag)) made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

function copyButton(text, label = "Copy") {
  const button = element("button", { type: "button", class: "copy" }, label);
  button.addEventListener("click", async () => {
    const wanted = typeof text === "function" ? text() : text;
    try {
      await navigator.clipboard.writeText(wanted);
    } catch {
      const area = element("textarea", { class: "unseen", value: wanted });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = "Copied";
    announce("Copied");
    setTimeout(() => (button.textContent = label), 1200);
  });
  return button;
}

function announce(text) {
  announcer.textContent = "";
  requestAnimationFrame(() => (announcer.textContent = text));
}

// What a static site names the file of an answer; `static_site.py` does the same.
export function fileName(body) {
  const text = Object.keys(body).sort().map((name) => String(body[name])).join("~");
  return text.replace(/[^A-Za-z0-9.~-]/g, (letter) => `_${letter.codePointAt(0).toString(16)}_`) || "all";
}

async function ask(room, question, body = {}, { signal, channel = "" } = {}) {
  const key = `${room}/${question}/${channel}`;
  underWay.get(key)?.abort(new DOMException("a newer question came", "AbortError"));
  const controller = new AbortController();
  underWay.set(key, controller);
  signal?.addEventListener("abort", () => controller.abort(signal.reason));
  try {
    const response = IS_STATIC
      ? await fetch(`data/${room}/${question}/${fileName(body)}.json`, { signal: controller.signal })
      : await fetch(`api/${room}/${question}`, {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(body),
          signal: controller.signal,
        });
    if (IS_STATIC && !response.ok) throw Object.assign(new Error(`This site has no server for this question. ${AT_HOME}`), { details: {} });
    if ((response.headers.get("Content-Type") ?? "").startsWith("application/octet-stream")) {
      return await response.arrayBuffer();
    }
    const found = await response.json();
    if (!response.ok || (IS_STATIC && found.error)) throw Object.assign(new Error(found.error), { details: found });
    return found;
  } catch (error) {
    if (error instanceof TypeError && !controller.signal.aborted) {
      throw Object.assign(new Error("The server does not answer. Is `lanewise explore` still running?"), { details: {} });
    }
    throw error;
  } finally {
    if (underWay.get(key) === controller) underWay.delete(key);
  }
}

function go(room, state = {}) {
  const wanted = address(room, state);
  if (wanted === location.hash) return;
  location.hash = wanted;
}

function replace(state = {}) {
  const wanted = address(current.name, state);
  if (wanted === location.hash) return;
  history.replaceState(null, "", wanted);
}

function style(path) {
  if (document.querySelector(`link[href="${path}"]`)) return Promise.resolve();
  return new Promise((done) => {
    const link = element("link", { rel: "stylesheet", href: path, onload: done, onerror: done });
    document.head.append(link);
  });
}

// Controls that are built anew under somebody's hands: the one that had the focus gets it again, by its name.
function keepFocus(container, build) {
  const name = (element) => element.getAttribute("aria-label") ?? element.closest("label")?.firstChild?.textContent ?? element.textContent;
  const focused = container.contains(document.activeElement) ? document.activeElement : null;
  const [tag, wanted] = focused ? [focused.tagName, name(focused)] : [];
  build();
  if (tag) [...container.querySelectorAll(tag)].find((each) => name(each) === wanted)?.focus({ preventScroll: true });
}

export const shell = {
  keepFocus,
  isStatic: IS_STATIC,
  atHome: AT_HOME,
  ask,
  go,
  replace,
  read,
  address,
  element,
  copyButton,
  announce,
  style,
  isAbort: (error) => error?.name === "AbortError",
  // A sentence where something was expected; for errors of `ask`.
  problem: (error) => element("p", { class: "problem", role: "alert" }, error.message ?? String(error)),
};

async function show() {
  if (location.hash === "#main") return;
  const { room, state } = read();
  const name = ROOMS.some(([each]) => each === room) ? room : FIRST;
  const mine = ++turn;
  for (const controller of underWay.values()) controller.abort(new DOMException("the room changed", "AbortError"));
  for (const link of document.querySelectorAll("#rooms a")) {
    if (link.dataset.room === name) {
      link.setAttribute("aria-current", "page");
      // scrollIntoView would also move where Tab begins.
      link.parentNode.scrollLeft = Math.max(0, link.offsetLeft + link.offsetWidth - link.parentNode.clientWidth);
    }
    else link.removeAttribute("aria-current");
  }
  try {
    const module = IS_STATIC && NEED_SERVER.has(name) ? await import("./rooms/elsewhere.js") : await import(`./rooms/${name}.js`);
    if (mine !== turn) return;
    const entered = current.name !== name;
    current.module?.unmount?.();
    current = { name, module };
    if (entered) main.replaceChildren();
    main.dataset.room = name;
    document.title = `${module.title} · lanewise explore`;
    if (entered && turn > 1) {
      window.scrollTo(0, 0);
      announce(module.title);
    }
    await module.mount(main, state, shell);
  } catch (error) {
    if (mine === turn && !shell.isAbort(error)) {
      console.error(error);
      main.replaceChildren(shell.problem(error));
    }
  }
}

const nav = document.getElementById("rooms");
for (const [name, title] of ROOMS) {
  nav.append(element("a", { href: `#/${name}`, dataset: { room: name } }, title));
}
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
show();
