// The tabs: selection, and the setup of their panels.

import { byId, problem } from "./dom.js";
import { setUpMeasure, useSettings } from "./measure.js";
import { setUpSettings } from "./settings.js";
import { load, setUpHistory } from "./history.js";

const tabs = [...document.querySelectorAll("[role=tab]")];

function select(tab) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen ? "true" : "false");
    other.tabIndex = chosen ? 0 : -1;
    byId(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (tab.id === "tab-history") load();
}

tabs.forEach((tab, index) => {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", (event) => {
    const count = tabs.length;
    const next = {
      ArrowRight: (index + 1) % count,
      ArrowLeft: (index + count - 1) % count,
      Home: 0,
      End: count - 1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    tabs[next].focus();
    select(tabs[next]);
  });
});

byId("problem").querySelector("button").addEventListener("click", () => problem(null));
setUpHistory();
setUpMeasure(() => {
  if (!byId("panel-history").hidden) load();
});
setUpSettings(useSettings);
