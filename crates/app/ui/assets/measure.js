// The Measure tab: starts and stops runs, and shows the run reported by the server.

import { announce, attempt, byId, latency, make, problem, request, resultTable, send, significant, size, STEPS } from "./dom.js";
import { speedChart } from "./chart.js";

const PHASES = {
  start: "starting",
  prepare: "making files, not timed",
  cache: "emptying caches, not timed",
  measure: "measuring",
  verify: "comparing what was written",
  remove: "removing files",
};
const RUN_WORDS = { running: "Measuring", done: "Done", stopped: "Stopped: partial results", failed: "Could not measure" };
const STATUS = { waiting: "waiting", running: "running", done: "done", stopped: "stopped, partial", failed: "failed" };

let run = null;
/** The step whose chart is shown; `null` follows the current step. */
let chosen = null;
let announced = "";
let whenEnded = () => {};

export function setUpMeasure(onEnd) {
  whenEnded = onEnd;
  for (const button of document.querySelectorAll("[data-preset]")) {
    button.addEventListener("click", () => start(button.dataset.preset));
  }
  byId("stop").addEventListener("click", () => attempt(() => send("stop", "POST")));
  byId("directory").addEventListener("change", describeDirectory);
  const events = new EventSource("api/events");
  events.addEventListener("message", (event) => show(JSON.parse(event.data)));
  events.addEventListener("error", () =>
    problem("The server does not answer. Start `tidegate ui` again and open the address that it prints."));
  events.addEventListener("open", () => problem(null));
}

/** The folder typed by the user, or else the one in the settings. */
export function useSettings(settings) {
  const field = byId("directory");
  field.value = settings.directory;
  const count = settings.custom.length;
  byId("custom-count").textContent = count === 1 ? "one step chosen" : `${count} steps chosen`;
  describeDirectory();
}

async function describeDirectory() {
  const note = byId("directory-note");
  try {
    const place = await request(`place?directory=${encodeURIComponent(byId("directory").value)}`);
    note.textContent = `${size(place.free_bytes)} free of ${size(place.total_bytes)}` +
      (place.file_system_type ? `, ${place.file_system_type}` : "");
    note.classList.remove("wrong");
  } catch (error) {
    note.textContent = error.message;
    note.classList.add("wrong");
  }
}

function start(preset) {
  problem(null);
  chosen = null;
  return attempt(() => send("run", "POST", { preset, directory: byId("directory").value }));
}

function show(state) {
  const ended = run?.status === "running" && state?.status !== "running";
  run = state;
  byId("run").hidden = run === null;
  byId("idle").hidden = run !== null;
  if (run === null) return;
  const running = run.status === "running";
  for (const button of document.querySelectorAll("[data-preset]")) button.disabled = running;
  const hadFocus = document.activeElement === byId("stop");
  byId("stop").hidden = !running;
  if (hadFocus && !running) byId("panel-measure").focus();
  byId("run-title").textContent = RUN_WORDS[run.status];
  byId("run").dataset.status = run.status;
  showProgress(running);
  showMessages();
  showCards();
  showCurve();
  showResults();
  if (ended) {
    describeDirectory();
    whenEnded();
  }
}

function showProgress(running) {
  const value = Math.floor(run.fraction * 100);
  const step = STEPS[run.steps[run.current].kind];
  const phase = running ? `${step}: ${PHASES[run.phase] ?? run.phase}` : RUN_WORDS[run.status];
  const bar = byId("progress");
  bar.setAttribute("aria-valuenow", value);
  bar.setAttribute("aria-valuetext", `${value} percent, ${phase}`);
  bar.firstElementChild.style.width = `${run.fraction * 100}%`;
  byId("phase").textContent = running
    ? `${value} % · step ${run.current + 1} of ${run.steps.length} · ${phase}`
    : `${run.directory}${run.history_id ? ` · run ${run.history_id} of the history` : ""}`;
  // Announces ten times per run and at each change of step, not at each progress line.
  const moment = `${run.number} ${run.status} ${run.current} ${Math.floor(value / 10)}`;
  if (moment !== announced) {
    announced = moment;
    announce(running ? `${value} percent, ${phase}` : `${phase}. ${value} percent done.`);
  }
}

function showMessages() {
  const texts = run.error && !run.messages.includes(run.error) ? [...run.messages, run.error] : run.messages;
  byId("messages").replaceChildren(...texts.map((text) =>
    make("li", { class: text === run.error ? "wrong" : null }, text)));
}

const isSqlite = (kind) => ["insert", "update", "delete"].includes(kind);

function headline(step) {
  const row = step.rows[0];
  if (!row) {
    const last = step.points.at(-1);
    if (!last || step.status !== "running") return { value: "–", unit: "", more: STATUS[step.status] };
    const value = isSqlite(step.kind) ? last.per_s : last.per_s / 1e6;
    return { value: significant(value), unit: isSqlite(step.kind) ? "TPS" : "MB/s", more: "now" };
  }
  const partial = ["stopped", "failed"].includes(step.status) ? ", partial" : "";
  const random = step.kind.startsWith("random");
  const throughput = row.mb_per_s && `${significant(row.mb_per_s.value)} MB/s`;
  const rate = row.per_s && `${significant(row.per_s.value)} ${row.per_s_unit}`;
  const p99 = `p99 ${latency(row.p99_us)}${partial}`;
  if (isSqlite(step.kind)) return { value: significant(row.per_s?.value), unit: row.per_s_unit, more: p99 };
  return random
    ? { value: significant(row.per_s?.value), unit: row.per_s_unit, more: `${throughput}, ${p99}` }
    : { value: significant(row.mb_per_s?.value), unit: "MB/s", more: `${rate}, ${p99}` };
}

/** Cards stay the same elements throughout a run, so that the focus is preserved. */
function showCards() {
  const place = byId("cards");
  const wanted = `${run.number}`;
  if (place.dataset.run !== wanted) {
    place.dataset.run = wanted;
    place.replaceChildren(...run.steps.map((step, index) => make("button", {
      type: "button",
      class: "card",
      onclick: () => {
        chosen = index;
        showCards();
        showCurve();
      },
    }, make("span", { class: "name" }, STEPS[step.kind]), make("span", { class: "value" }),
    make("span", { class: "more" }))));
  }
  run.steps.forEach((step, index) => {
    const card = place.children[index];
    const { value, unit, more } = headline(step);
    card.dataset.status = step.status;
    card.setAttribute("aria-pressed", index === shown() ? "true" : "false");
    card.querySelector(".value").replaceChildren(value, " ", make("small", {}, unit));
    card.querySelector(".more").textContent = more;
  });
}

const shown = () => chosen ?? run.current;

function showCurve() {
  const step = run.steps[shown()];
  const scale = isSqlite(step.kind) ? 1 : 1e6;
  const unit = isSqlite(step.kind) ? "transactions/s" : "MB/s";
  const points = step.points.map((point) => ({ at_s: point.at_s, value: point.per_s / scale }));
  byId("live-title").textContent = `${STEPS[step.kind]}: speed over time`;
  byId("live-chart").replaceChildren(speedChart(points, unit, STEPS[step.kind]));
}

function showResults() {
  const rows = run.steps.flatMap((step) => step.rows.map((row) => ({ ...row, title: STEPS[step.kind] })));
  byId("results").replaceChildren(...(rows.length ? [resultTable("Results", rows)] : []));
}
