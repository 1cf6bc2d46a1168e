// A matrix of cells on a canvas: labels, colours, fading and marks come from functions; pointing, clicking and
// arrow keys are told to others. A canvas, because a wgmma has 16,384 cells and each has to be there at once.
import { element } from "../shell.js";

const HEAD = 16; // pixels for the numbers above and before the cells
// The least cells, in pixels, that have room for two lines of a label, for both words in one line, and for the first.
const TWO_LINES = [24, 24], ONE_LINE = [31, 12], ONE_WORD = [18, 12];
const fits = (size, least) => size[0] >= least[0] && size[1] >= least[1];

// How many words of two a cell of this size shows.
export function wordsShown(size) {
  return fits(size, TWO_LINES) || fits(size, ONE_LINE) ? 2 : fits(size, ONE_WORD) ? 1 : 0;
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function colours() {
  const list = (prefix, count) => Array.from({ length: count }, (_, number) => style(`--${prefix}-${number}`));
  return {
    cells: list("cell", 8), turns: list("turn", 4), none: style("--cell-none"), ink: style("--cell-ink"),
    text: style("--quiet"), paper: style("--paper"), line: style("--line"), mark: style("--cell-mark"), accent: style("--accent"),
  };
}

// Cells with two lines of labels where there is room, plain colours where there is not.
export function cellSize(rows, cols, lines = 2, wide = 30, large = false) {
  if (large || (cols <= 34 && rows <= 34)) return [wide, lines > 1 ? 28 : 20];
  if (cols <= 64) return [15, 13];
  return cols <= 128 ? [9, 11] : [6, 9];
}

export function matrix(options) {
  const { rows, cols, caption, lines = 2, rowName = "row", colName = "column", wide } = options;
  const [width, height] = options.size ?? cellSize(rows, cols, lines, wide, options.large);
  const left = Math.max(HEAD, 7 * String(options.rowLabel?.(rows - 1) ?? rows - 1).length + 8);
  const canvas = element("canvas", {
    tabindex: 0, role: "application", "aria-roledescription": "matrix",
    "aria-label": `${caption}, ${rows} by ${cols}. Arrow keys move, Enter selects, Escape ends.`,
  });
  const view = element("figure", { class: "matrix" }, element("figcaption", {}, caption), element("div", { class: "scroll" }, canvas));
  const ratio = Math.min(window.devicePixelRatio || 1, cols * rows > 8000 ? 1 : 2);
  const shown = lines > 1 ? wordsShown([width, height]) : width >= TWO_LINES[0] ? 1 : 0;
  const all = [left + cols * width + 2, HEAD + rows * height + 2];
  // Browsers have no canvas of more than some 16,000 pixels a side.
  canvas.width = all[0] * ratio;
  canvas.height = all[1] * ratio;
  Object.assign(canvas.style, { width: `${all[0]}px`, height: `${all[1]}px` });
  const context = canvas.getContext("2d");
  let cursor = null;
  let planned = 0;

  function draw() {
    planned = 0;
    const c = colours();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, ...all);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = "9.5px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
    context.fillStyle = c.text;
    const each = Math.ceil(22 / width);
    for (let col = 0; col < cols; col += each > 2 ? 2 ** Math.ceil(Math.log2(each)) : each) {
      const label = options.colLabel?.(col) ?? col;
      if (String(label).length * 6 <= width * each + 4) context.fillText(label, left + (col + 0.5) * width, HEAD / 2);
    }
    const down = Math.ceil(11 / height);
    for (let row = 0; row < rows; row += down) {
      context.fillText(options.rowLabel?.(row) ?? row, left / 2, HEAD + (row + 0.5) * height);
    }
    for (let row = 0; row < rows; row++) {
      for (let col = 0; col < cols; col++) {
        const x = left + col * width;
        const y = HEAD + row * height;
        const cell = options.cell(row, col);
        const faded = cell.faded;
        context.globalAlpha = faded ? 0.16 : 1;
        context.fillStyle = typeof cell.colour === "number" ? c.cells[cell.colour % 8] : cell.colour ?? c.none;
        const [across, down] = [width > 3 ? 1 : 0, height > 3 ? 1 : 0]; // no lines between cells of a few pixels
        context.fillRect(x + across / 2, y + down / 2, width - across, height - down);
        context.globalAlpha = faded ? 0.4 : 1;
        if (cell.words && shown) {
          context.fillStyle = faded ? c.text : cell.colour === undefined ? c.text : c.ink;
          const words = cell.words.length === 1 || fits([width, height], TWO_LINES) ? cell.words : [cell.words.slice(0, shown).join("")];
          if (words.length === 1) context.fillText(words[0], x + width / 2, y + height / 2);
          else {
            context.fillText(words[0], x + width / 2, y + height / 2 - 5.5);
            context.fillText(words[1], x + width / 2, y + height / 2 + 6);
          }
        }
        context.globalAlpha = 1;
        if (cell.outline) {
          context.strokeStyle = cell.outline === "mark" ? c.mark : c.accent;
          context.lineWidth = cell.outline === "mark" ? 2.5 : 1.5;
          context.strokeRect(x + 1.5, y + 1.5, width - 3, height - 3);
        }
      }
    }
    for (const [every, vertical] of [[options.ruleRows, false], [options.ruleCols, true]]) {
      if (!every) continue;
      context.fillStyle = c.text;
      for (let at = every; at < (vertical ? cols : rows); at += every) {
        if (vertical) context.fillRect(left + at * width - 0.5, HEAD, 1, rows * height);
        else context.fillRect(left, HEAD + at * height - 0.5, cols * width, 1);
      }
    }
    if (cursor && document.activeElement === canvas) {
      context.strokeStyle = c.accent;
      context.lineWidth = 2;
      context.setLineDash([3, 2]);
      context.strokeRect(left + cursor[1] * width + 1, HEAD + cursor[0] * height + 1, width - 2, height - 2);
      context.setLineDash([]);
    }
  }

  function redraw() {
    planned ||= requestAnimationFrame(draw);
  }

  function at(event) {
    const box = canvas.getBoundingClientRect();
    const col = Math.floor((event.clientX - box.left - left) / width);
    const row = Math.floor((event.clientY - box.top - HEAD) / height);
    return [row, col];
  }

  let last = "";
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return;
    const [row, col] = at(event);
    const inside = row >= 0 && row < rows && col >= 0 && col < cols;
    const key = inside ? `${row},${col}` : "";
    if (key === last) return;
    last = key;
    if (inside) options.onPoint?.(row, col);
    else options.onLeave?.();
  });
  canvas.addEventListener("pointerleave", () => {
    last = "";
    options.onLeave?.();
  });
  canvas.addEventListener("click", (event) => {
    const [row, col] = at(event);
    if (row >= rows || col >= cols) return;
    if (row >= 0 && col >= 0) {
      cursor = [row, col];
      options.onSelect?.(row, col);
    } else if (row >= 0 && col < 0) options.onRow?.(row);
    else if (col >= 0 && row < 0) options.onCol?.(col);
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key in steps && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      const [down, over] = steps[event.key];
      cursor = cursor ? [Math.min(rows - 1, Math.max(0, cursor[0] + down)), Math.min(cols - 1, Math.max(0, cursor[1] + over))] : [0, 0];
      options.onPoint?.(cursor[0], cursor[1], true);
      redraw();
    } else if ((event.key === "Enter" || event.key === " ") && cursor) {
      event.preventDefault();
      options.onSelect?.(cursor[0], cursor[1]);
    } else if ((event.key === "r" || event.key === "R") && cursor) options.onRow?.(cursor[0]);
    else if ((event.key === "c" || event.key === "C") && cursor && !event.ctrlKey && !event.metaKey) options.onCol?.(cursor[1]);
    else if (event.key === "Escape") options.onClear?.();
  });
  canvas.addEventListener("focus", redraw);
  canvas.addEventListener("blur", () => {
    options.onLeave?.();
    redraw();
  });
  view.addEventListener("lanewise-theme", redraw);
  redraw();
  return { view, canvas, redraw, draw };
}

// Pictures on canvases have to be drawn again when the scheme of colours changes.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const view of document.querySelectorAll(".matrix")) view.dispatchEvent(new Event("lanewise-theme"));
});
