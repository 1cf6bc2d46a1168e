// A row of controls for something that goes step by step: back, play, forward, a slider, keys.
import { element } from "../shell.js";

export function player({ count, step = 0, show, label = "Step", seconds = 0.7 }) {
  let current = Math.min(Math.max(0, step), count - 1);
  let timer = null;
  const slider = element("input", { type: "range", min: 0, max: count - 1, value: current, "aria-label": label });
  const play = element("button", { type: "button", "aria-pressed": "false" }, "▶ Play");
  const back = element("button", { type: "button", "aria-label": "One step back" }, "◀");
  const next = element("button", { type: "button", "aria-label": "One step forward" }, "▶");
  const number = element("span", { class: "mono small" });

  function go(wanted, byHand = true) {
    current = (wanted + count) % count;
    slider.value = current;
    number.textContent = `${current + 1} / ${count}`;
    show(current, byHand);
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    play.setAttribute("aria-pressed", "false");
    play.textContent = "▶ Play";
  }
  play.addEventListener("click", () => {
    if (timer) return stop();
    play.setAttribute("aria-pressed", "true");
    play.textContent = "⏸ Pause";
    timer = setInterval(() => (view.isConnected ? go(current + 1, false) : stop()), seconds * 1000);
  });
  back.addEventListener("click", () => { stop(); go(current - 1); });
  next.addEventListener("click", () => { stop(); go(current + 1); });
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  const view = element("div", { class: "player", role: "group", "aria-label": label }, back, play, next, slider, number);
  go(current, false);
  return { view, stop, go };
}
