// Elements, number formatting, requests to the server, and messages.

/** Makes an element. Properties that begin with "on" are listeners, the others attributes; children are nodes or strings. */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  assign(element, properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Makes an SVG element. */
export function draw(name, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  assign(element, properties);
  element.append(...children);
  return element;
}

function assign(element, properties) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
}

export const byId = (id) => document.getElementById(id);

/** About three significant digits: 1,234  412  87.3  9.88  0.0123 */
export function significant(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 99.95) return Math.round(value).toLocaleString("en");
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.9995) return value.toFixed(2);
  return value.toPrecision(2);
}

export const percent = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(1)} %`);

export function latency(us) {
  if (us === null || us === undefined) return "–";
  if (us >= 1e6) return `${significant(us / 1e6)} s`;
  if (us >= 1e3) return `${significant(us / 1e3)} ms`;
  return `${significant(us)} µs`;
}

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let index = 0;
  while (bytes >= 1024 && index < units.length - 1) {
    bytes /= 1024;
    index += 1;
  }
  return `${significant(bytes)} ${units[index]}`;
}

/** A value, and below it the interval of repeated runs. */
export function estimate(value, text = significant) {
  if (!value) return "–";
  if (value.count < 2) return text(value.value);
  return make("span", {}, text(value.value), " ",
    make("small", {}, `[${text(value.low)}, ${text(value.high)}]`));
}

export const moment = (ns) =>
  new Date(ns / 1e6).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

/** A table that becomes a list of cards on narrow screens: each cell knows the name of its column. */
export function table(caption, columns, rows) {
  const head = columns.map((column) =>
    make("th", { scope: "col", class: column.number ? "number" : null }, column.title));
  const body = rows.map((cells) => {
    const items = cells.map((cell, index) => {
      const column = columns[index];
      const classes = [column.number && "number", cell === "–" && "nothing"].filter(Boolean);
      const properties = { "data-title": column.title, class: classes.join(" ") || null };
      return column.heading
        ? make("th", { ...properties, scope: "row" }, cell)
        : make("td", properties, cell);
    });
    return make("tr", {}, ...items);
  });
  return make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}

/** Returns the server's JSON response; throws the message of an error response. */
export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(`api/${path}`, options);
  } catch {
    throw new Error("The server does not answer. Start `tidegate ui` again and open the address that it prints.");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

export const send = (path, method, value) =>
  request(path, { method, body: value === undefined ? undefined : JSON.stringify(value) });

/** Shows an error until it is dismissed, or removed by `null`. */
export function problem(text) {
  const box = byId("problem");
  box.hidden = text === null;
  box.querySelector("p").textContent = text ?? "";
}

/** Runs a function, and shows its error. */
export async function attempt(work) {
  try {
    const result = await work();
    return result;
  } catch (error) {
    problem(error.message);
    return undefined;
  }
}

/** Announces a message to screen readers. */
export function announce(text) {
  const place = byId("announcer");
  if (place.textContent !== text) place.textContent = text;
}

export const STEPS = {
  "sequential-write": "Sequential write",
  "sequential-read": "Sequential read",
  "random-write": "Random write",
  "random-read": "Random read",
  insert: "SQLite insert",
  update: "SQLite update",
  delete: "SQLite delete",
};

/** The columns and cells of results, for the current run and for runs of the history. */
export function resultTable(caption, rows) {
  const columns = [
    { title: "Test", heading: true },
    { title: "Throughput", number: true },
    { title: "Rate", number: true },
    { title: "p50", number: true },
    { title: "p99", number: true },
    { title: "CPU active", number: true },
    { title: "I/O wait", number: true },
    { title: "Idle", number: true },
    { title: "Switches (voluntary)", number: true },
  ];
  const cells = rows.map((row) => [
    make("span", {}, row.title ?? row.workload, " ", make("small", {}, details(row))),
    row.mb_per_s ? make("span", {}, estimate(row.mb_per_s), " MB/s") : "–",
    rate(row),
    latency(row.p50_us),
    latency(row.p99_us),
    percent(row.cpu_active),
    percent(row.cpu_iowait),
    percent(row.cpu_idle),
    switches(row),
  ]);
  return table(caption, columns, cells);
}

/** A final sync happens once, within the window of another operation, so it has no rate. */
function rate(row) {
  if (!row.per_s || row.operation === "final-sync") return "–";
  return make("span", {}, estimate(row.per_s), ` ${row.operation === "sync" ? "syncs/s" : row.per_s_unit}`);
}

function switches(row) {
  if (row.switches === null) return "–";
  const count = (value) => (value === null ? "–" : Math.round(value).toLocaleString("en"));
  return `${count(row.switches)} (${count(row.switches_voluntary)})`;
}

function details(row) {
  const words = [row.operation];
  if (row.runs > 1) words.push(`${row.runs} runs`);
  if (!row.complete) words.push("partial");
  return words.join(", ");
}
