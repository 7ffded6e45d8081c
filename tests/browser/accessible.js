// Problems of what is seen: low contrast of text, controls and pictures without a name, ids twice.
() => {
  const problems = [];
  const seen = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && node.getClientRects().length;
  const rgba = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    const scale = text.startsWith("color(") ? 255 : 1;
    return [parts[0] * scale, parts[1] * scale, parts[2] * scale, parts[3] ?? 1];
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
  const ground = (node) => {
    const layers = [];
    for (let up = node; up; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (style.backgroundImage !== "none") return null; // a gradient is judged by eye
      layers.push(rgba(style.backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faded = (node) => { let part = 1; for (let up = node; up; up = up.parentElement) part *= Number(getComputedStyle(up).opacity); return part; };
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = words.nextNode(); text; text = words.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || !seen(node) || node.closest("svg, .typical-scale, :disabled, script, style, option")) continue;
    const below = ground(node);
    if (!below || faded(node) < 1) continue; // what is dimmed on purpose
    const style = getComputedStyle(node);
    const [a, b] = [light(over(rgba(style.color), below)), light(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) problems.push(`contrast ${ratio.toFixed(2)}: ${text.data.trim().slice(0, 40)} <${node.tagName} ${node.className}>`);
  }
  const named = (node) => node.getAttribute("aria-label") || (node.getAttribute("aria-labelledby") && document.getElementById(node.getAttribute("aria-labelledby"))) || node.title || node.innerText?.trim() || node.labels?.length;
  for (const node of document.querySelectorAll("a, button, input:not([type=hidden]):not([hidden]), select, textarea, summary, [role=application], [role=img], [role=listbox], dialog")) {
    if (seen(node) && !named(node)) problems.push(`no name: ${node.outerHTML.slice(0, 80)}`);
  }
  for (const node of document.querySelectorAll("img:not([alt])")) problems.push(`no alt: ${node.outerHTML.slice(0, 80)}`);
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) problems.push(`two of #${id}`);
  for (const node of document.querySelectorAll("[tabindex]")) if (Number(node.tabIndex) > 0) problems.push(`tabindex: ${node.outerHTML.slice(0, 80)}`);
  if (document.querySelectorAll("h1").length > 1) problems.push("more than one h1");
  if (!document.documentElement.lang || !document.title) problems.push("no language or title");
  return [...new Set(problems)];
}
