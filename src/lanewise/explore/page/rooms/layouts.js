export const title = "Layouts";

export async function mount(main, state, shell) {
  main.replaceChildren(shell.element("h1", {}, title));
}

export function unmount() {}
