// Draws the counted cells of a trace: time to the right; place or latency upwards. Nothing is loaded from outside.
"use strict";
(() => {
  const COLOURS = ["--series-1", "--series-5", "--series-4", "--series-0", "--series-3", "--series-6"];
  const MARGIN = { left: 78, right: 10, top: 10, bottom: 26 };
  const UNITS_NS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const UNITS_BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

  const inUnit = (value, units) => {
    const [size, name] = units.find(([size]) => Math.abs(value) >= size * 0.99999) ?? units[units.length - 1];
    const shown = value / size;
    return `${shown.toFixed(shown >= 100 || Number.isInteger(shown) ? 0 : shown >= 10 ? 1 : 2)} ${name}`;
  };

  // Cells: [column, row, series, count] in four arrays.
  const unpack = (text, columns, seriesCount) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const column = [], row = [], series = [], count = [];
    let place = 0, number = 0;
    const next = () => {
      let value = 0, factor = 1;
      for (;;) {
        const byte = bytes[place++];
        value += (byte & 127) * factor;
        if (byte < 128) return value;
        factor *= 128;
      }
    };
    while (place < bytes.length) {
      number += next();
      const cell = Math.floor(number / seriesCount);
      series.push(number % seriesCount);
      column.push(cell % columns);
      row.push(Math.floor(cell / columns));
      count.push(next());
    }
    return { column: Uint32Array.from(column), row: Uint32Array.from(row), series: Uint8Array.from(series), count: Float64Array.from(count) };
  };

  const ticks = (low, high, wanted) => {
    const rough = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? power * 10;
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
    return found;
  };

  const start = (figure) => {
    const numbers = (name) => figure.dataset[name].split(" ").map(Number);
    const columns = Number(figure.dataset.columns), rows = Number(figure.dataset.rows);
    const time = numbers("time"), range = numbers("range"), names = figure.dataset.series.split("|");
    const place = figure.dataset.kind === "place";
    const cells = unpack(figure.querySelector("script").textContent, columns, names.length);
    const canvas = figure.querySelector("canvas"), readout = figure.querySelector(".readout");
    const shown = names.map(() => true);
    const whole = { left: 0, right: columns, bottom: 0, top: rows };
    let view = { ...whole }, drag = null, frame = 0;

    const timeOf = (column) => time[0] + (time[1] - time[0]) * column / columns;
    const valueOf = (row) => place
      ? (range[0] + (range[1] - range[0]) * row / rows) * 512
      : range[0] * (range[1] / range[0]) ** (row / rows);
    const valueText = (row) => place ? inUnit(valueOf(row), UNITS_BYTES) : inUnit(valueOf(row), UNITS_NS);

    const draw = () => {
      frame = 0;
      const ratio = window.devicePixelRatio || 1;
      const width = canvas.clientWidth, height = canvas.clientHeight;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      const style = getComputedStyle(figure);
      const colours = COLOURS.map((name) => style.getPropertyValue(name).trim());
      const plot = { left: MARGIN.left, top: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
      const x = (column) => plot.left + (column - view.left) / (view.right - view.left) * plot.width;
      const y = (row) => plot.top + plot.height - (row - view.bottom) / (view.top - view.bottom) * plot.height;
      context.font = "11px system-ui, sans-serif";
      context.fillStyle = style.getPropertyValue("--soft");
      context.strokeStyle = style.getPropertyValue("--grid");
      context.textBaseline = "middle";
      context.textAlign = "right";
      for (let step = 0; step <= 5; step += 1) {
        const row = view.bottom + (view.top - view.bottom) * step / 5;
        context.beginPath(); context.moveTo(plot.left, y(row)); context.lineTo(plot.left + plot.width, y(row)); context.stroke();
        context.fillText(valueText(row), plot.left - 6, y(row));
      }
      context.textAlign = "center";
      for (const value of ticks(timeOf(view.left), timeOf(view.right), Math.max(2, plot.width / 110))) {
        const column = (value - time[0]) / (time[1] - time[0]) * columns;
        context.beginPath(); context.moveTo(x(column), plot.top); context.lineTo(x(column), plot.top + plot.height); context.stroke();
        context.fillText(inUnit(value, UNITS_NS), x(column), plot.top + plot.height + 14);
      }
      context.save();
      context.beginPath(); context.rect(plot.left, plot.top, plot.width, plot.height); context.clip();
      // Few dots must be seen, many must not cover each other.
      const smallest = cells.count.length < 5000 ? 3 : cells.count.length < 40000 ? 2 : 1.2;
      const cellWidth = Math.max(smallest, plot.width / (view.right - view.left));
      const cellHeight = Math.max(smallest, plot.height / (view.top - view.bottom));
      // Reads and journal last, so that few dots are not covered by many.
      for (let series = 0; series < names.length; series += 1) {
        if (!shown[series]) continue;
        context.fillStyle = colours[series];
        for (let index = 0; index < cells.count.length; index += 1) {
          if (cells.series[index] !== series) continue;
          const column = cells.column[index], row = cells.row[index];
          if (column + 1 < view.left || column > view.right || row + 1 < view.bottom || row > view.top) continue;
          context.globalAlpha = Math.min(1, 0.6 + 0.12 * Math.log2(cells.count[index] + 1));
          context.fillRect(x(column), y(row) - cellHeight, cellWidth, cellHeight);
        }
      }
      context.restore();
      context.globalAlpha = 1;
      if (drag) {
        context.strokeStyle = style.getPropertyValue("--ink");
        context.strokeRect(drag.x0, drag.y0, drag.x1 - drag.x0, drag.y1 - drag.y0);
      }
    };
    const later = () => { frame ||= requestAnimationFrame(draw); };

    const position = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    const column = (x) => view.left + (x - MARGIN.left) / (canvas.clientWidth - MARGIN.left - MARGIN.right) * (view.right - view.left);
    const row = (y) => view.bottom + (canvas.clientHeight - MARGIN.bottom - y) / (canvas.clientHeight - MARGIN.top - MARGIN.bottom) * (view.top - view.bottom);
    const limited = (next) => {
      const keep = (low, high, end) => [Math.max(0, Math.min(low, end - 4)), Math.min(end, Math.max(high, low + 4))];
      [next.left, next.right] = keep(next.left, next.right, columns);
      [next.bottom, next.top] = keep(next.bottom, next.top, rows);
      view = next;
      later();
    };
    canvas.addEventListener("pointerdown", (event) => {
      const [x, y] = position(event);
      drag = { x0: x, y0: y, x1: x, y1: y };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = position(event);
      if (drag) { drag.x1 = x; drag.y1 = y; later(); return; }
      const middleColumn = column(x), middleRow = row(y);
      const reach = [(view.right - view.left) / 250 + 1, (view.top - view.bottom) / 120 + 1];
      const found = names.map(() => 0);
      for (let index = 0; index < cells.count.length; index += 1) {
        if (shown[cells.series[index]] && Math.abs(cells.column[index] + 0.5 - middleColumn) <= reach[0]
            && Math.abs(cells.row[index] + 0.5 - middleRow) <= reach[1]) found[cells.series[index]] += cells.count[index];
      }
      const near = names.map((name, series) => found[series] ? `${found[series]} ${name}` : "").filter(Boolean).join(", ");
      readout.textContent = `${inUnit(timeOf(middleColumn), UNITS_NS)}, ${valueText(Math.max(0, middleRow))}${place ? ` (sector ${Math.round(valueOf(middleRow) / 512)})` : ""}: ${near || "nothing"}`;
    });
    canvas.addEventListener("pointerup", () => {
      const box = drag;
      drag = null;
      if (!box || Math.abs(box.x1 - box.x0) < 5 || Math.abs(box.y1 - box.y0) < 5) { later(); return; }
      limited({
        left: column(Math.min(box.x0, box.x1)), right: column(Math.max(box.x0, box.x1)),
        bottom: row(Math.max(box.y0, box.y1)), top: row(Math.min(box.y0, box.y1)),
      });
    });
    canvas.addEventListener("dblclick", () => limited({ ...whole }));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const [x, y] = position(event), factor = event.deltaY > 0 ? 1.25 : 0.8;
      const c = column(x), r = row(y);
      limited({
        left: c - (c - view.left) * factor, right: c + (view.right - c) * factor,
        bottom: r - (r - view.bottom) * factor, top: r + (view.top - r) * factor,
      });
    }, { passive: false });

    const present = new Set(cells.series);
    names.forEach((name, series) => {
      if (!present.has(series)) return;
      const button = document.createElement("button");
      const swatch = document.createElement("i");
      swatch.style.background = `var(${COLOURS[series]})`;
      button.append(swatch, name);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        shown[series] = !shown[series];
        button.setAttribute("aria-pressed", String(shown[series]));
        later();
      });
      figure.querySelector(".legend").append(button);
    });
    addEventListener("resize", later);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
    later();
  };
  document.querySelectorAll("figure.density").forEach(start);
})();
