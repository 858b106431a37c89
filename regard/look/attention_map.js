"use strict";
// One head drawn large, and what is predicted with it and without; attention.js calls these.
// One head ----------------------------------------------------------------------------------------

const chosenMap = () => {
  const { maps, mean, sides: [asking] } = state.stack;
  return openMap(state.block < 0 ? mean : maps[state.block][state.head], data.sides[asking].length);
};
const viewedMap = async () => { // without the first token, or by how much of each key is written
  const map = await chosenMap(), keys = sizes()[1], heads = state.stack.maps[0].length;
  const norms = state.valued && state.block >= 0 ? await openNorms() : null;
  if (!norms && !state.sinkless) return map;
  const weights = new Float32Array(map.weights.length), at = (state.block * heads + state.head) * keys;
  for (let q = 0; q + 1 < map.starts.length; q++) { // a row is shared out anew
    let total = 0;
    for (let n = map.starts[q]; n < map.starts[q + 1]; n++) {
      const key = map.keys[n], hidden = state.sinkless && key === 0;
      weights[n] = hidden ? 0 : map.weights[n] * (norms ? norms[at + key] : 1);
      total += weights[n];
    }
    for (let n = map.starts[q]; n < map.starts[q + 1]; n++) weights[n] *= total ? 255 / total : 0;
  }
  return { ...map, weights };
};
let frame = null; // rows and columns that are shown: [first, last) of either
const sizes = () => state.stack.sides.map((side) => data.sides[side].length);
const whole = () => { frame = { rows: [0, sizes()[0]], columns: [0, sizes()[1]] }; };
const zoomed = (range, size, by, middle) => {
  const wide = Math.min(size, Math.max(Math.min(8, size), Math.round((range[1] - range[0]) * by)));
  const centre = middle ?? (range[0] + range[1]) / 2;
  const first = Math.max(0, Math.min(size - wide, Math.round(centre - wide / 2)));
  return [first, first + wide];
};
const zoom = (by, middle = []) => {
  const [rows, columns] = sizes();
  frame = { rows: zoomed(frame.rows, rows, by, middle[0]),
    columns: zoomed(frame.columns, columns, by, middle[1]) };
  return drawMap();
};
const pan = (down, right) => {
  const move = ([first, last], by, size) => {
    const step = Math.max(-first, Math.min(size - last, by));
    return [first + step, last + step];
  };
  frame = { rows: move(frame.rows, down, sizes()[0]), columns: move(frame.columns, right, sizes()[1]) };
  return drawMap();
};
const LABELS = 44; // tokens of a side that can be named
let room = { left: 0, top: 0, width: 1, height: 1 };
const drawMap = async () => {
  const map = await viewedMap(), canvas = $("map"), ratio = window.devicePixelRatio || 1;
  const [first, last] = frame.rows, [left, right] = frame.columns;
  const count = [last - first, right - left], wide = canvas.clientWidth || 500;
  const named = count.map((n) => n <= LABELS);
  room = { left: named[0] ? 84 : 8, top: named[1] ? 70 : 8 };
  room.width = wide - room.left - 8;
  const cell = Math.min(room.width / count[1], 30), tall = Math.min(cell * count[0], 520);
  room.width = cell * count[1];
  room.height = tall;
  canvas.style.height = `${room.top + tall + 8}px`;
  canvas.width = wide * ratio;
  canvas.height = (room.top + tall + 8) * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const pixels = [Math.min(count[0], Math.floor(tall * ratio)),
    Math.min(count[1], Math.floor(room.width * ratio))].map((n) => Math.max(1, n));
  const values = new Uint8Array(pixels[0] * pixels[1]); // of each pixel the largest weight in it
  for (let q = first; q < last; q++) {
    const row = Math.floor((q - first) * pixels[0] / count[0]) * pixels[1];
    for (let n = map.starts[q]; n < map.starts[q + 1]; n++) {
      const key = map.keys[n];
      if (key < left || key >= right) continue;
      const at = row + Math.floor((key - left) * pixels[1] / count[1]);
      values[at] = Math.max(values[at], Math.round(map.weights[n]));
    }
  }
  const drawn = document.createElement("canvas");
  paint(drawn, values, pixels[1], pixels[0]);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(drawn, room.left, room.top, room.width, room.height);
  const style = getComputedStyle(document.documentElement);
  pen.strokeStyle = style.getPropertyValue("--rule");
  pen.strokeRect(room.left - 0.5, room.top - 0.5, room.width + 1, room.height + 1);
  pen.fillStyle = style.getPropertyValue("--ink");
  pen.font = "12px system-ui, sans-serif";
  if (named[0]) labelRows(pen, first, count[0]);
  if (named[1]) labelColumns(pen, left, count[1]);
  canvas.setAttribute("aria-label", `${$("which").textContent}: rows ${first} to ${last - 1} of ` +
    `${sizes()[0]}, columns ${left} to ${right - 1} of ${sizes()[1]}`);
};
const label = (side, at) => {
  const text = data.sides[side][at].trim() || shown(data.sides[side][at]).trim() || "␣";
  return text.length > 11 ? text.slice(0, 10) + "…" : text;
};
const labelRows = (pen, first, count) => {
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (let n = 0; n < count; n++)
    pen.fillText(label(state.stack.sides[0], first + n), room.left - 5,
      room.top + (n + 0.5) * room.height / count, room.left - 6);
};
const labelColumns = (pen, first, count) => {
  pen.textAlign = "left";
  for (let n = 0; n < count; n++) {
    pen.save();
    pen.translate(room.left + (n + 0.5) * room.width / count, room.top - 5);
    pen.rotate(-Math.PI / 3);
    pen.fillText(label(state.stack.sides[1], first + n), 0, 0, 72);
    pen.restore();
  }
};
const placeOf = (event) => { // the query and key under the pointer
  const box = $("map").getBoundingClientRect();
  const down = (event.clientY - box.top - room.top) / room.height;
  const right = (event.clientX - box.left - room.left) / room.width;
  if (!(down >= 0 && down < 1 && right >= 0 && right < 1)) return null;
  return [[frame.rows, down], [frame.columns, right]].map(([[first, last], share]) =>
    first + Math.floor(share * (last - first)));
};
let grip = null;
const listenMap = () => {
  const canvas = $("map");
  canvas.addEventListener("pointermove", async (event) => {
    const place = placeOf(event);
    if (grip && place) {
      const [down, right] = [grip[0] - place[0], grip[1] - place[1]];
      if (down || right) await pan(down, right);
      return;
    }
    if (!place) return;
    const map = await viewedMap(), [query, key] = place, [asking, seen] = state.stack.sides;
    let weight = 0;
    for (let n = map.starts[query]; n < map.starts[query + 1]; n++)
      if (map.keys[n] === key) weight = map.weights[n] / 255;
    $("cell").textContent = `${quoted(asking, query)} (${query}) → ${quoted(seen, key)} (${key}): ` +
      percent(weight);
  });
  canvas.addEventListener("pointerdown", (event) => { grip = placeOf(event); });
  for (const end of ["pointerup", "pointerleave"])
    canvas.addEventListener(end, () => { grip = null; });
  canvas.addEventListener("dblclick", (event) => {
    const place = placeOf(event);
    if (place) zoom(0.5, place);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = Math.ceil((frame.rows[1] - frame.rows[0]) / 8);
    const act = { "+": () => zoom(0.5), "-": () => zoom(2), 0: () => zoom(Infinity),
      ArrowDown: () => pan(step, 0), ArrowUp: () => pan(-step, 0),
      ArrowRight: () => pan(0, step), ArrowLeft: () => pan(0, -step) }[event.key];
    if (act) { act(); event.preventDefault(); }
  });
};

// Forecasts ---------------------------------------------------------------------------------------

const drawForecast = async () => {
  const box = $("forecast"), at = state.position;
  if (!data.forecast) { box.textContent = ""; return; }
  const before = data.forecast.tokens[at].map((word, n) => [word, data.forecast.shares[at][n]]);
  const [stack, block, number] = state.off || [], effects = stack && await openEffects(stack);
  let after = null, change = 0;
  if (effects && at >= effects.first) {
    const one = (block * effects.heads + number) * effects.positions + at - effects.first;
    after = before.map((_, n) => [effects.tokens[one * effects.top + n],
      effects.shares[one * effects.top + n] / 65535]);
    change = effects.changes[one];
  }
  box.textContent = "";
  const where = data.whole ? "the whole text"
    : (data.sides.target || state.stack.name === "decoder" ? "after " : "at ") +
      `${quoted(predicting, at)} (${at})`;
  const table = make("table", box), head = make("tr", table);
  make("th", head, `Predicted ${where}`);
  if (after) make("th", head, `without ${stack} ${block}.${number}`);
  before.forEach((pair, n) => {
    const row = make("tr", table);
    for (const [word, share] of after ? [pair, after[n]] : [pair]) {
      const bar = make("div", make("td", row));
      make("span", bar, shown(data.words[word]));
      make("span", bar, percent(share));
      bar.style.background = `linear-gradient(to right, rgba(var(--from), .35) ${100 * share}%, ` +
        "transparent 0)";
    }
  });
  const first = Object.values(data.effects)[0]?.first;
  make("p", box, after ? `Log-probability of “${data.words[before[0][0]].trim()}”: ${signed(change)}`
    : first === undefined ? "Effects of heads were not computed for this page."
      : at < first ? `Effects are kept for position ${first} and those after it.`
        : data.whole ? "" : `Click a token${data.sides.target ? " of the target" : ""} for what is ` +
          "predicted there.", "note");
};

