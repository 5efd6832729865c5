// The History tab: a list of runs, one of them in full, two of them compared; delete and export.

import { attempt, byId, estimate, make, moment, request, resultTable, send, significant, table } from "./dom.js";
import { ratioChart } from "./chart.js";

let runs = [];
const selected = new Set();

export function setUpHistory() {
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    load();
  });
  byId("compare").addEventListener("click", compare);
  byId("remove").addEventListener("click", remove);
}

export function load() {
  return attempt(async () => {
    const query = new URLSearchParams(new FormData(byId("filter")));
    runs = await request(`history?${query}`);
    for (const id of [...selected]) if (!runs.some((run) => run.id === id)) selected.delete(id);
    list();
  });
}

function list() {
  const columns = [
    { title: "Select" },
    { title: "Run", heading: true },
    { title: "Started" },
    { title: "Speed", number: true },
    { title: "Folder" },
    { title: "Tags" },
  ];
  const rows = runs.map((run) => [
    make("label", { class: "check" }, make("input", {
      type: "checkbox",
      "aria-label": `Select run ${run.id}`,
      ...(selected.has(run.id) ? { checked: true } : {}),
      onchange: (event) => {
        if (event.target.checked) selected.add(run.id);
        else selected.delete(run.id);
        tellSelection();
      },
    })),
    make("button", { type: "button", class: "link", onclick: () => showRun(run.id) }, `${run.id} · ${title(run)}`),
    moment(run.started_unix_ns),
    run.rate === null ? "–" : `${significant(run.rate)} ${run.unit}`,
    make("span", {}, run.path, " ", make("small", {}, run.file_system_type ?? "")),
    run.tags.length ? run.tags.join(", ") : "–",
  ]);
  byId("runs").replaceChildren(runs.length
    ? table(`Runs, the latest first (${runs.length})`, columns, rows)
    : make("p", { class: "empty" }, "No run is stored, or none matches."));
  tellSelection();
}

function title(run) {
  const more = run.workloads_count > 1 ? ` and ${run.workloads_count - 1} more` : "";
  return run.workload + more + (run.complete ? "" : " (partial)");
}

function tellSelection() {
  const count = selected.size;
  byId("selected").textContent = count ? `${count} selected` : "None selected";
  byId("compare").disabled = count !== 2;
  byId("remove").disabled = count === 0;
  const ids = count ? [...selected] : runs.map((run) => run.id);
  byId("export-label").textContent = count ? "Export selected" : "Export all";
  for (const format of ["csv", "json", "markdown"]) {
    const link = byId(`export-${format}`);
    if (ids.length) link.href = `api/history/export?format=${format}&ids=${ids.join(",")}`;
    else link.removeAttribute("href");
  }
}

function present(...content) {
  const place = byId("detail");
  place.replaceChildren(...content);
  place.focus({ preventScroll: true });
  place.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

function showRun(id) {
  return attempt(async () => {
    const run = await request(`history/run?id=${id}`);
    const { summary, host } = run;
    const facts = [
      ["Label", summary.label],
      ["Started", moment(summary.started_unix_ns)],
      ["On", run.target],
      ["Machine", host && `${host.kernel}, ${host.cpus} processors${host.processor ? ` (${host.processor})` : ""}`],
      ["Command", summary.command.join(" ")],
      ["State", summary.complete ? null : "Stopped before its end: partial numbers"],
    ].filter(([, value]) => value);
    const list = make("dl", { class: "facts" });
    for (const [name, value] of facts) list.append(make("div", { class: name === "Command" ? "wide" : null }, make("dt", {}, name), make("dd", {}, value)));
    present(make("h2", {}, `Run ${id}`), list, tags(summary), notes("Noise", run.noise),
      resultTable(`Results of run ${id}`, run.rows));
  });
}

function tags(summary) {
  const change = (tag, remove) => attempt(async () => {
    await send(`history/tag?${new URLSearchParams({ id: summary.id, tag, remove })}`, "POST");
    await load();
    await showRun(summary.id);
  });
  const given = summary.tags.map((tag) => make("li", {}, tag,
    make("button", { type: "button", class: "quiet", "aria-label": `Remove tag ${tag}`, onclick: () => change(tag, true) }, "×")));
  const field = make("input", { id: "new-tag", autocomplete: "off" });
  return make("form", {
    class: "tags",
    onsubmit: (event) => {
      event.preventDefault();
      if (field.value) change(field.value, false);
    },
  }, make("ul", {}, ...given), make("label", { for: "new-tag" }, "Tag"), field, make("button", { type: "submit" }, "Add"));
}

function notes(name, texts) {
  if (!texts.length) return null;
  return make("ul", { class: "messages", "aria-label": name }, ...texts.map((text) => make("li", {}, text)));
}

const VERDICTS = {
  higher: "B is faster",
  lower: "B is slower",
  no_difference: "no difference shown",
  too_few_runs: "too few runs to tell",
};

function compare() {
  // The older one is the baseline.
  const [a, b] = [...selected].sort((one, other) => one - other);
  return attempt(async () => {
    const { comparison } = await request(`history/compare?a=${a}&b=${b}`);
    const columns = [
      { title: "Workload", heading: true },
      { title: "A", number: true },
      { title: "B", number: true },
      { title: "B / A", number: true },
      { title: "Coverage", number: true },
      { title: "Verdict" },
    ];
    const ratio = (value) => value.toFixed(2);
    const rows = comparison.operations.map((one) => [
      make("span", {}, one.workload, " ", make("small", {}, [one.label, one.operation].filter(Boolean).join(", "))),
      make("span", {}, estimate(one.a), ` ${one.unit}`),
      make("span", {}, estimate(one.b), ` ${one.unit}`),
      estimate(one.ratio, ratio),
      one.ratio.count > 1 ? `${(one.ratio.coverage * 100).toFixed(1)} %` : "–",
      make("span", { class: `verdict ${one.verdict}` }, VERDICTS[one.verdict]),
    ]);
    present(make("h2", {}, `Run ${b} (B) against run ${a} (A)`),
      make("figure", {}, make("figcaption", {}, "B over A; the bar is the interval, right of the line is faster"),
        ratioChart(comparison.operations)),
      notes("Remarks", [...comparison.left_out, ...comparison.warnings]),
      table(`Run ${b} compared with run ${a}`, columns, rows));
  });
}

function remove() {
  const dialog = byId("confirm");
  const ids = [...selected];
  byId("confirm-title").textContent = ids.length === 1 ? "Delete one run?" : `Delete ${ids.length} runs?`;
  byId("confirm-text").textContent = `Run ${ids.join(", ")}: with all its numbers, for good.`;
  byId("confirm-no").onclick = () => dialog.close();
  byId("confirm-yes").onclick = () => {
    dialog.close();
    attempt(async () => {
      for (const id of ids) await request(`history/run?id=${id}`, { method: "DELETE" });
      selected.clear();
      byId("detail").replaceChildren();
      await load();
      byId("panel-history").focus();
    });
  };
  dialog.showModal();
}
