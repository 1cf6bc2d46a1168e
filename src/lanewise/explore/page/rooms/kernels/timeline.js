// The time line of the warps: instructions by kind, waits, asynchronous copies, groups of wgmma, findings.

export const KINDS = { mma: "matrix product", shared: "shared memory", global: "global memory", barrier: "barrier", branch: "branch", plain: "other" };
const LEFT = 76, AXIS = 30; // pixels for the names of the warps, and for the numbers of the steps

// Steps between two numbers of the axis: 1, 2 or 5 times a power of ten, so that some hundred pixels are between them.
function spacing(steps, width) {
  const least = (steps * 90) / Math.max(90, width), power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least));
}

export function timeline(log, shell, go) {
  const { element } = shell;
  const canvas = element("canvas", { role: "img", "aria-label": `Time line of ${log.tracks.length} warps over ${log.count} steps; the slider moves through it` });
  const legend = element("div", { class: "legend small quiet" });
  const used = new Set(Array.from(log.point, (point) => log.data.points[point].kind));
  const items = Object.entries(KINDS).filter(([kind]) => used.has(kind));
  if (log.data.waits.some(([from, to]) => to > from + 1)) items.push(["wait", "waits"]);
  if (log.data.copies.length) items.push(["copy", "asynchronous copy"]);
  if (log.data.groups.length) items.push(["group", "wgmma in flight"]);
  if (log.data.findings.length) items.push(["finding", "finding"]);
  for (const [kind, title] of items) legend.append(element("span", {}, element("i", { class: `kind-${kind}` }), title));
  let current = 0, from = 0, to = log.count;

  const tracks = log.tracks;
  const number = (block, warp) => tracks.findIndex((each) => each.block === block && each.warp === warp);
  const bars = log.data.copies.length || log.data.groups.length;

  function draw() {
    const width = canvas.clientWidth;
    if (!width) return;
    const ratio = devicePixelRatio || 1, tall = Math.max(bars ? 16 : 10, Math.min(26, 220 / tracks.length)), height = tracks.length * tall + AXIS;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const g = canvas.getContext("2d"), style = getComputedStyle(canvas), colour = (name) => style.getPropertyValue(`--kind-${name}`) || style.color;
    g.scale(ratio, ratio);
    const per = (width - LEFT - 8) / Math.max(1, to - from), x = (step) => LEFT + (step - from) * per;
    const clip = (a, b) => [Math.max(LEFT, x(a)), Math.min(width - 8, x(b))];
    g.font = "11px system-ui, sans-serif";
    g.fillStyle = style.color;
    const several = new Set(tracks.map((each) => each.block)).size > 1;
    const labels = Math.ceil(13 / tall);
    tracks.forEach((each, n) => { if (n % labels === 0) g.fillText(`${several ? `block ${each.block}, ` : ""}warp ${each.warp}`, 4, n * tall + tall / 2 + 4, LEFT - 8); });
    const thick = bars ? tall * 0.56 : tall - 3;
    g.globalAlpha = 0.3;
    g.fillStyle = colour("wait");
    for (const [start, stop, warp] of log.data.waits) tracks.forEach((each, n) => { if (each.warp === warp) { const [a, b] = clip(start, stop); if (b > a) g.fillRect(a, n * tall + 1, b - a, thick); } });
    g.globalAlpha = 1;
    const stride = Math.max(1, Math.floor((to - from) / (width * 4)));
    const colours = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, colour(kind)]));
    const rows = new Map(tracks.map((each, n) => [each, n]));
    for (let step = from; step < to; step += stride) {
      g.fillStyle = colours[log.at(step).kind];
      g.fillRect(x(step), rows.get(log.of(step)) * tall + 1.5, Math.max(1, per * 0.9), thick - 1);
    }
    const strip = (kind, list, high) => {
      g.fillStyle = colour(kind);
      const free = new Map(); // bars of one warp that overlap lie below each other
      for (const [warp, block, issued, , done] of list) {
        const n = number(block, warp);
        if (n < 0) continue;
        const [a, b] = clip(issued, (done ?? log.count) + 1);
        if (b <= a) continue;
        const ends = free.get(n) ?? free.set(n, []).get(n);
        let lane = ends.findIndex((end) => end <= issued);
        if (lane < 0) lane = Math.min(ends.length, 2);
        ends[lane] = done ?? log.count;
        g.fillRect(a, n * tall + thick + 1 + lane * high, Math.max(2, b - a), high - 0.5);
      }
    };
    const room = (tall - thick - 2) / 3;
    strip("copy", log.data.copies, room);
    strip("group", log.data.groups, room * 1.6);
    g.fillStyle = colour("finding");
    for (const each of log.data.findings) if (each.step >= from && each.step < to) g.fillRect(x(each.step) - 1, 0, 3, tracks.length * tall);
    axis(g, width, tracks.length * tall, per, x, style.color);
  }

  // Below the warps: the steps, each an instruction that a warp issued, and the one that is shown.
  function axis(g, width, top, per, x, ink) {
    g.fillStyle = ink;
    g.globalAlpha = 0.75;
    g.fillRect(LEFT, top + 2, width - LEFT - 8, 1);
    g.fillText("step", 4, top + 16, LEFT - 8);
    const every = spacing(to - from, width - LEFT), here = x(current);
    for (let step = Math.ceil(from / every) * every; step < to; step += every) {
      g.fillRect(x(step), top + 2, 1, 4);
      if (Math.abs(x(step) - here) > 34) g.fillText(String(step), Math.min(width - 36, x(step) - 3), top + 16);
    }
    g.globalAlpha = 1;
    g.fillRect(here, 0, Math.max(1.5, Math.min(per, 3)), top + 6);
    g.font = "bold 12px system-ui, sans-serif";
    g.fillText(String(current), Math.min(width - 36, Math.max(LEFT, here - 3)), top + 17);
  }
  const step = (event) => {
    const box = canvas.getBoundingClientRect();
    return Math.max(from, Math.min(to - 1, from + Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT - 8)) * (to - from))));
  };
  // The nearest step of the warp that was pointed at.
  const pointed = (event) => {
    const wanted = step(event), box = canvas.getBoundingClientRect();
    const track = tracks[Math.floor((event.clientY - box.top) / ((box.height - AXIS) / tracks.length))];
    if (!track) return wanted;
    const near = track.steps.reduce((best, each) => (Math.abs(each - wanted) < Math.abs(best - wanted) ? each : best), track.steps[0]);
    return Math.abs(near - wanted) <= Math.max(4, (to - from) / 60) ? near : wanted;
  };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture?.(event.pointerId); go(pointed(event)); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) go(step(event)); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return; // plain wheels scroll the page
    event.preventDefault();
    const middle = step(event), span = Math.max(20, Math.min(log.count, (to - from) * (event.deltaY + event.deltaX > 0 ? 1.25 : 0.8)));
    from = Math.max(0, Math.round(middle - ((middle - from) / (to - from)) * span));
    to = Math.min(log.count, Math.round(from + span));
    draw();
  }, { passive: false });
  const watcher = new ResizeObserver(draw);
  watcher.observe(canvas);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw);
  return {
    element: element("div", { class: "timeline" }, canvas, legend),
    show(number) {
      current = number;
      if (number < from || number >= to) { const span = to - from; from = Math.max(0, Math.min(log.count - span, number - (span >> 1))); to = from + span; }
      draw();
    },
    end() { watcher.disconnect(); dark.removeEventListener("change", draw); },
  };
}
