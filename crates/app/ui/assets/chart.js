// Two charts: throughput over time, and ratios with their intervals around 1. Colours come from the style sheet.

import { draw, significant } from "./dom.js";

const WIDTH = 640;
const HEIGHT = 192;
const LEFT = 64;
const RIGHT = 12;
const TOP = 24;
const BOTTOM = 28;

/** The smallest of 1, 2, 5 times a power of ten that is not below the value. */
function rounded(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((mark) => mark >= value * 0.999);
}

/** An area chart of `points` with `at_s` and `value`. */
export function speedChart(points, unit, name) {
  const values = points.map((point) => point.value);
  const top = rounded(Math.max(...values, 0));
  const begin = points.length ? points[0].at_s : 0;
  const end = points.length ? points.at(-1).at_s : 1;
  const span = Math.max(end - begin, 1e-3);
  const x = (at) => LEFT + ((at - begin) / span) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const words = points.length
    ? `${name}: speed over time, last ${significant(values.at(-1))} ${unit}, highest ${significant(Math.max(...values))} ${unit}`
    : `${name}: no speed over time yet`;
  const chart = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words, class: "chart" });
  for (const share of [0, 0.5, 1]) {
    const level = y(top * share);
    chart.append(
      draw("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: level, y2: level, class: share === 0 ? "axis" : "grid" }),
      draw("text", { x: LEFT - 8, y: level + 4, class: "mark end" }, significant(top * share)),
    );
  }
  chart.append(draw("text", { x: LEFT, y: HEIGHT - 6, class: "mark" }, unit));
  if (points.length > 1) {
    const line = points.map((point) => `${x(point.at_s).toFixed(1)},${y(point.value).toFixed(1)}`);
    const ground = y(0).toFixed(1);
    chart.append(
      draw("polygon", { points: `${x(begin).toFixed(1)},${ground} ${line.join(" ")} ${x(end).toFixed(1)},${ground}`, class: "area" }),
      draw("polyline", { points: line.join(" "), class: "line" }),
      draw("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, class: "mark end" }, `${significant(end - begin)} s`),
    );
  }
  if (points.length) {
    const last = points.at(-1);
    chart.append(draw("circle", { cx: x(last.at_s), cy: y(last.value), r: 4, class: "dot" }));
  } else {
    chart.append(draw("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT / 2 + 20, class: "mark middle" }, "too short for a curve, or not begun"));
  }
  return chart;
}

/** One row for each operation: the interval as a bar around the ratio; the line at 1 means "the same". */
export function ratioChart(operations) {
  const row = 44;
  const height = operations.length * row + 34;
  const left = 12;
  const inner = WIDTH - 2 * left;
  const logs = operations.flatMap((one) => [one.ratio.low, one.ratio.high]).map((value) => Math.abs(Math.log(value)));
  const reach = Math.max(...logs.filter(Number.isFinite), Math.log(1.1)) * 1.08;
  const x = (ratio) => left + inner / 2 + (Math.log(ratio) / reach) * (inner / 2);
  const words = operations.map((one) => `${one.workload} ${one.operation} ${one.ratio.value.toFixed(2)}`).join("; ");
  const chart = draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `Ratios of B to A: ${words}`, class: "chart" });
  chart.append(draw("line", { x1: x(1), x2: x(1), y1: 4, y2: height - 24, class: "axis" }));
  operations.forEach((one, index) => {
    const level = index * row + 30;
    const kind = { higher: "higher", lower: "lower" }[one.verdict] ?? "same";
    chart.append(
      draw("text", { x: left, y: level - 12, class: "mark" }, `${one.workload} · ${one.operation}`),
      draw("text", { x: WIDTH - left, y: level - 12, class: "mark end strong" }, one.ratio.value.toFixed(2)),
      draw("line", { x1: x(one.ratio.low), x2: x(one.ratio.high), y1: level, y2: level, class: `interval ${kind}` }),
      draw("circle", { cx: x(one.ratio.value), cy: level, r: 6, class: `ratio ${kind}` }),
    );
  });
  const marks = [Math.exp(-reach * 0.92), 1, Math.exp(reach * 0.92)];
  const places = ["start", "middle", "end"];
  marks.forEach((mark, index) => {
    const at = [left, x(1), WIDTH - left][index];
    chart.append(draw("text", { x: at, y: height - 6, class: `mark ${places[index]}` }, index === 1 ? "same" : `× ${mark.toFixed(2)}`));
  });
  return chart;
}
