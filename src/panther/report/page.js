"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const sections = [...document.querySelectorAll("main > section")];
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const config = { displaylogo: false, responsive: true, modeBarButtons: [["toImage"]] };

  // A hidden element has no width, so a figure is drawn when it is first seen. Paper has a width of its own.
  function draw(within, paper) {
    for (const data of within.querySelectorAll("script[data-plot]")) {
      const place = document.getElementById(data.dataset.plot);
      if (place.offsetParent === null) continue;
      const size = paper ? { width: place.clientWidth } : { autosize: true, width: null };
      if (place.dataset.drawn) { Plotly.relayout(place, size); continue; }
      const figure = JSON.parse(data.textContent);
      place.dataset.drawn = "yes";
      Plotly.newPlot(place, figure.data, { ...figure.layout, ...(paper ? size : {}) }, config);
    }
  }

  function show(key) {
    const all = key === "everything";
    const chosen = sections.find((section) => section.id === `panel-${key}`) || sections[0];
    for (const section of sections) section.classList.toggle("shown", all || section === chosen);
    for (const tab of tabs) {
      const selected = !all && tab.getAttribute("aria-controls") === chosen.id;
      tab.setAttribute("aria-selected", selected);
      tab.tabIndex = selected || (all && tab === tabs[0]) ? 0 : -1;
    }
    draw(document);
  }

  function follow() { show(location.hash.slice(1)); window.scrollTo(0, 0); }

  // Left and right move between tabs, as readers of screens expect of a list of tabs.
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const ends = { Home: 0, End: tabs.length - 1 };
    if (step === undefined && !(event.key in ends)) return;
    const here = tabs.indexOf(document.activeElement);
    const next = tabs[step === undefined ? ends[event.key] : (here + step + tabs.length) % tabs.length];
    event.preventDefault();
    next.focus();
    location.hash = next.getAttribute("href");
  });

  for (const select of document.querySelectorAll("select[data-choice]")) {
    const options = [...select.options].map((option) => document.getElementById(option.value));
    const choose = () => {
      for (const option of options) option.classList.toggle("shown", option.id === select.value);
      draw(options.find((option) => option.id === select.value));
    };
    select.selectedIndex = 0;
    select.addEventListener("change", choose);
    choose();
  }

  for (const image of document.querySelectorAll(".gallery img")) {
    const enlarge = () => image.classList.toggle("large");
    image.tabIndex = 0;
    image.addEventListener("click", enlarge);
    image.addEventListener("keydown", (event) => { if (event.key === "Enter") enlarge(); });
  }

  let before = null;
  window.addEventListener("beforeprint", () => {
    before = [...document.querySelectorAll("details:not([open])")];
    for (const part of before) part.open = true;
    for (const section of sections) section.classList.add("shown");
    root.classList.add("paper");
    draw(document, true);
  });
  window.addEventListener("afterprint", () => {
    for (const part of before || []) part.open = false;
    root.classList.remove("paper");
    show(location.hash.slice(1));
  });
  window.addEventListener("hashchange", follow);
  document.addEventListener("toggle", (event) => { if (event.target.open) draw(event.target); }, true);
  follow();
})();
