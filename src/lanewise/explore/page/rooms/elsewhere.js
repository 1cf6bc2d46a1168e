// What stands in place of a room that needs a server, on a site that has none: how to get it, and saved traces.
export let title = "lanewise";

export async function mount(main, state, shell) {
  const { element } = shell;
  const { room } = shell.read();
  title = room === "kernels" ? "Kernels" : "Bits";
  const what = room === "kernels"
    ? "This room runs kernels on the CPU and steps through them."
    : "This room computes sums bit by bit, as the GPUs do.";
  main.replaceChildren(element("h1", {}, title), element("p", {}, `${what} ${shell.atHome}`));
  if (room !== "kernels") return;
  const traces = await (await fetch("data/traces.json")).json();
  if (traces.length) {
    main.append(element("h2", {}, "Saved traces"), element("ul", {}, traces.map((trace) => element("li", {}, element("a", { href: trace.file }, trace.title)))));
  }
}

export function unmount() {}
