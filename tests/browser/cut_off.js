// Controls that reach out of the window or of what cuts them off, where nothing can be scrolled to see them.
() => {
  const reached = (node) => {
    const box = node.getBoundingClientRect();
    let [left, right] = [0, innerWidth];
    for (let up = node.parentElement; up; up = up.parentElement) {
      const { overflowX } = getComputedStyle(up);
      if (overflowX === "visible") continue;
      if (overflowX !== "hidden" && up.scrollWidth > up.clientWidth + 1 && up.id !== "page") return true;
      const frame = up.getBoundingClientRect();
      [left, right] = [Math.max(left, frame.left), Math.min(right, frame.right)];
    }
    return box.left >= left - 1 && box.right <= right + 1;
  };
  const controls = [...document.querySelectorAll("a, button, select, input, textarea, h1, h2")];
  const seen = controls.filter((node) => node.checkVisibility() && !node.matches(".skip"));
  return seen.filter((node) => !reached(node)).map((node) => node.outerHTML.slice(0, 80));
}
