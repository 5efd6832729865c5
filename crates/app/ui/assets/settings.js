// The Settings tab: a form for the stored settings.

import { attempt, byId, make, request, send, size, STEPS } from "./dom.js";

const NUMBERS = ["threads", "write_mib", "read_mib", "record_kib", "transactions", "rounds"];
const USUAL = {
  threads: 1, write_mib: 10, read_mib: 32, record_kib: 4, mode: "direct",
  transactions: 100, journal: "truncate", synchronous: "full", rounds: 1, custom: Object.keys(STEPS),
};
const WORDS = {
  buffered: "Buffered",
  sync: "O_SYNC",
  dsync: "O_DSYNC",
  direct: "O_DIRECT",
  "direct-sync": "O_DIRECT and O_SYNC",
  "direct-dsync": "O_DIRECT and O_DSYNC",
  "direct-fsync": "O_DIRECT, fsync after each write",
  "direct-fdatasync": "O_DIRECT, fdatasync after each write",
  fsync: "fsync after each write",
  fdatasync: "fdatasync after each write",
  mmap: "mmap",
  "mmap-async": "mmap, MS_ASYNC after each write",
  "mmap-sync": "mmap, MS_SYNC after each write",
};

let whenChanged = () => {};

export async function setUpSettings(onChange) {
  whenChanged = onChange;
  const form = byId("settings");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    save();
  });
  form.addEventListener("input", () => {
    byId("saved").textContent = "Not saved yet";
  });
  byId("usual").addEventListener("click", () => {
    fill({ ...USUAL, directory: byId("settings-directory").value });
    byId("saved").textContent = "Not saved yet";
  });
  byId("partition").addEventListener("change", (event) => {
    if (event.target.value) byId("settings-directory").value = event.target.value;
    describe();
  });
  byId("settings-directory").addEventListener("change", describe);
  byId("custom").replaceChildren(...Object.entries(STEPS).map(([kind, name]) =>
    make("label", {}, make("input", { type: "checkbox", name: "custom", value: kind }), make("span", {}, name))));
  await attempt(async () => {
    const { settings, choices } = await request("settings");
    for (const [field, values] of Object.entries(choices)) {
      byId(field).replaceChildren(...values.map((value) =>
        make("option", { value }, WORDS[value] ?? value.toUpperCase())));
    }
    await listPlaces();
    fill(settings);
    whenChanged(settings);
  });
}

async function listPlaces() {
  const places = await request("places");
  byId("partition").replaceChildren(make("option", { value: "" }, "Choose, or type a folder below"),
    ...places.map((place) => make("option", { value: place.path },
      `${place.path} · ${size(place.free_bytes)} free · ${place.file_system_type ?? "unknown"}`)));
  byId("places").replaceChildren(...places.map((place) => make("option", { value: place.path })));
}

function fill(settings) {
  byId("settings-directory").value = settings.directory;
  for (const name of [...NUMBERS, "mode", "journal", "synchronous"]) byId(name).value = settings[name];
  for (const box of byId("custom").querySelectorAll("input")) box.checked = settings.custom.includes(box.value);
  describe();
}

function read() {
  const settings = { directory: byId("settings-directory").value };
  for (const name of NUMBERS) settings[name] = Number(byId(name).value);
  for (const name of ["mode", "journal", "synchronous"]) settings[name] = byId(name).value;
  settings.custom = [...byId("custom").querySelectorAll("input:checked")].map((box) => box.value);
  return settings;
}

async function describe() {
  const note = byId("settings-directory-note");
  try {
    const place = await request(`place?directory=${encodeURIComponent(byId("settings-directory").value)}`);
    note.textContent = `${size(place.free_bytes)} free of ${size(place.total_bytes)}`;
    note.classList.remove("wrong");
  } catch (error) {
    note.textContent = error.message;
    note.classList.add("wrong");
  }
}

async function save() {
  const place = byId("saved");
  for (const field of byId("settings").querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  try {
    const settings = read();
    const { warning } = await send("settings", "PUT", settings);
    place.textContent = warning ? `Saved. ${warning}` : "Saved";
    place.classList.remove("wrong");
    whenChanged(settings);
  } catch (error) {
    // The server names the field first.
    const field = byId(error.message.split(":")[0]);
    place.textContent = error.message;
    place.classList.add("wrong");
    if (field) {
      field.setAttribute("aria-invalid", "true");
      field.focus();
    }
  }
}
