"use strict";
// Draws a View (view_html.py). Nothing is fetched; a map is unpacked when it is first looked at.
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const predicting = data.sides.target ? "target" : "text";
const percent = (x) => (x >= 0.0995 ? Math.round(100 * x) : (100 * x).toFixed(1)) + " %";
const state = { stack: null, block: -1, head: -1, way: "from", position: -1, off: null };
// block −1 is the mean of all heads; off is [stack, block, head]

const make = (tag, parent, text, className) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
};

// Unpacking ---------------------------------------------------------------------------------------

const bytes = async (text) => {
  const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
};
const opened = new Map();
const open = (text, read) => { // each text once
  if (!opened.has(text)) opened.set(text, bytes(text).then(read));
  return opened.get(text);
};
const openMap = (text, queries) => open(text, (buffer) => {
  const counts = new Uint16Array(buffer, 0, queries), starts = new Uint32Array(queries + 1);
  for (let q = 0; q < queries; q++) starts[q + 1] = starts[q] + counts[q];
  const links = starts[queries], keys = new Uint16Array(buffer, 2 * queries, links).slice();
  for (let q = 0; q < queries; q++)
    for (let n = starts[q] + 1; n < starts[q + 1]; n++) keys[n] += keys[n - 1];
  return { starts, keys, weights: new Uint8Array(buffer, 2 * (queries + links), links) };
});
const openEffects = (name) => {
  const given = data.effects[name];
  return given && open(given.data, (buffer) => {
    const [blocks, heads, positions, top] = given.shape, count = blocks * heads * positions;
    return { first: given.first, blocks, heads, positions, top,
      changes: new Float32Array(buffer, 0, count),
      tokens: new Int32Array(buffer, 4 * count, count * top),
      shares: new Uint16Array(buffer, 4 * count * (1 + top), count * top) };
  });
};

// Colours -----------------------------------------------------------------------------------------

const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number);
const paint = (canvas, values, width, height) => { // weights 0 to 255 as pixels
  const [red, green, blue] = colour("--from"), image = new ImageData(width, height);
  const shades = Uint32Array.from({ length: 256 }, (_, weight) => // small weights can be seen too
    (Math.round(255 * Math.sqrt(weight / 255)) << 24) | (blue << 16) | (green << 8) | red);
  const pixels = new Uint32Array(image.data.buffer);
  for (let n = 0; n < values.length; n++) pixels[n] = shades[values[n]];
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(image, 0, 0);
};

// Tokens ------------------------------------------------------------------------------------------

const spans = {};
const shown = (text) => text.replace(/\n/g, "⏎\n") || "∅";
const quoted = (side, at) => `“${data.sides[side][at].trim() || shown(data.sides[side][at])}”`;
const buildSides = () => {
  for (const [side, tokens] of Object.entries(data.sides)) {
    make("p", $("sides"), side, "side");
    const line = make("p", $("sides"), undefined, "words");
    line.dataset.side = side;
    spans[side] = tokens.map((token, at) => {
      const span = make("span", line, shown(token));
      span.dataset.at = at;
      span.tabIndex = at === 0 ? 0 : -1; // one Tab stop; arrows go on from there
      span.role = "button";
      return span;
    });
    const found = (event) => event.target.closest("span[data-at]");
    const point = (event) => { if (found(event)) light(side, +found(event).dataset.at); };
    line.addEventListener("mouseover", point);
    line.addEventListener("focusin", point);
    line.addEventListener("mouseleave", dim);
    line.addEventListener("click", (event) => {
      if (found(event) && side === predicting) hold(+found(event).dataset.at);
    });
    line.addEventListener("keydown", (event) => {
      const at = +found(event).dataset.at, step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const next = step && spans[side][at + step];
      if (event.key === "Enter" || event.key === " ") event.target.click();
      else if (next) rove(found(event), next);
      else return;
      event.preventDefault();
    });
  }
};
const rove = (from, to) => { from.tabIndex = -1; to.tabIndex = 0; to.focus(); };

let lit = [];
const dim = () => {
  for (const span of lit) { span.style.background = ""; span.classList.remove("asked"); }
  lit = [];
};
const light = async (side, at) => { // what a token looks at, or what looks at it
  const stack = state.stack, [asking, seen] = stack.sides;
  const from = asking === seen ? state.way === "from" : side === asking;
  if (side !== asking && side !== seen) return;
  const map = await chosenMap(), links = [];
  const queries = from ? [at] : data.sides[asking].keys();
  for (const q of queries)
    for (let n = map.starts[q]; n < map.starts[q + 1]; n++)
      if (from) links.push([map.keys[n], map.weights[n] / 255]);
      else if (map.keys[n] === at) links.push([q, map.weights[n] / 255]);
  dim();
  const other = from ? seen : asking, hue = from ? "--from" : "--to";
  for (const [n, weight] of links) {
    spans[other][n].style.background = `rgba(var(${hue}), ${weight ** 0.7})`;
    lit.push(spans[other][n]);
  }
  spans[side][at].classList.add("asked");
  lit.push(spans[side][at]);
  const best = links.sort((a, b) => b[1] - a[1]).slice(0, 5);
  const listed = best.map(([n, weight]) => `${quoted(other, n)} ${percent(weight)}`).join(", ");
  const says = from ? "looks at" : "is looked at by";
  $("said").textContent = `${quoted(side, at)} (${at}) ${says} ${listed || "nothing much"}`;
};

// The overview ------------------------------------------------------------------------------------

let tiles = [];
const buildGrid = async () => {
  const stack = state.stack, heads = stack.maps[0].length, grid = $("grid");
  grid.textContent = "";
  grid.style.gridTemplateColumns = `auto repeat(${heads}, minmax(2.4rem, 8rem))`;
  make("span", grid, "block", "axis");
  for (let head = 0; head < heads; head++) make("span", grid, head, "axis");
  tiles = stack.maps.map((row, block) => {
    make("span", grid, block, "axis");
    return row.map((_, head) => buildTile(grid, block, head));
  });
  await drawVisible();
};
const buildTile = (grid, block, head) => {
  const tile = make("div", grid, undefined, "tile"), see = make("button", tile, undefined, "see");
  const [distance, entropy] = state.stack.facts[block][head], canvas = make("canvas", see);
  see.type = "button";
  see.title = `block ${block}, head ${head}: looks ${distance} tokens away on average, ` +
    `entropy ${entropy} bits`;
  see.setAttribute("aria-label", see.title);
  see.addEventListener("click", () => choose(block, head));
  see.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1],
      ArrowLeft: [0, -1] }[event.key] || [0, 0];
    const next = (down || right) && tiles[block + down]?.[head + right];
    if (next) { next.see.focus(); event.preventDefault(); }
  });
  let off = null;
  if (data.effects[state.stack.name]) {
    off = make("button", tile, "", "off");
    off.type = "button";
    off.addEventListener("click", () => turn(state.stack.name, block, head));
  }
  return { tile, see, off, canvas };
};
let watcher = null;
const drawVisible = async () => { // a small map is drawn when it comes into view
  const { shape: [rows, columns], data: text } = state.stack.small;
  const small = await open(text, (buffer) => new Uint8Array(buffer));
  const heads = state.stack.maps[0].length, places = new Map();
  watcher?.disconnect();
  watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      const start = places.get(target) * rows * columns;
      paint(target, small.subarray(start, start + rows * columns), columns, rows);
      watcher.unobserve(target);
    }
  }, { rootMargin: "200px" });
  tiles.forEach((row, block) => row.forEach(({ canvas }, head) => {
    places.set(canvas, block * heads + head);
    watcher.observe(canvas);
  }));
};
const mark = async () => { // which head is chosen, which is off, what each does
  const effects = await openEffects(state.stack.name);
  const column = effects && state.position - effects.first;
  const known = effects && column >= 0;
  const change = (block, head) =>
    effects.changes[(block * effects.heads + head) * effects.positions + column];
  const every = tiles.flatMap((row, block) => row.map((_, head) => [block, head]));
  const most = known ? Math.max(0.01, ...every.map(([b, h]) => Math.abs(change(b, h)))) : 1;
  for (const [block, head] of every) {
    const { tile, see, off } = tiles[block][head], gone = isOff(block, head);
    const here = block === state.block && head === state.head;
    tile.classList.toggle("chosen", here);
    see.setAttribute("aria-pressed", here);
    tile.classList.toggle("gone", gone);
    if (!off) continue;
    const by = known ? change(block, head) : NaN;
    off.textContent = gone ? "off" : known ? signed(by) : "–";
    off.setAttribute("aria-pressed", gone);
    off.setAttribute("aria-label", `block ${block}, head ${head}: switching it off changes the ` +
      `log-probability by ${signed(by)}`);
    off.style.background = known
      ? `rgba(var(${by < 0 ? "--less" : "--more"}), ${0.75 * Math.abs(by) / most})` : "";
  }
};
const signed = (x) => (x <= -0.005 ? "−" : x >= 0.005 ? "+" : "") + Math.abs(x).toFixed(2);
const isOff = (block, head) => String(state.off) === String([state.stack.name, block, head]);

// One head ----------------------------------------------------------------------------------------

const chosenMap = () => {
  const { maps, mean, sides: [asking] } = state.stack;
  return openMap(state.block < 0 ? mean : maps[state.block][state.head], data.sides[asking].length);
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
  const map = await chosenMap(), canvas = $("map"), ratio = window.devicePixelRatio || 1;
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
      if (map.weights[n] > values[at]) values[at] = map.weights[n];
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
    const map = await chosenMap(), [query, key] = place, [asking, seen] = state.stack.sides;
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
  const effects = state.off && await openEffects(state.off[0]);
  let after = null, change = 0;
  if (effects && at >= effects.first) {
    const [, block, head] = state.off;
    const one = (block * effects.heads + head) * effects.positions + at - effects.first;
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
  if (after) make("th", head, `without ${state.off[0]} ${state.off[1]}.${state.off[2]}`);
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
  make("p", box, after
    ? `Log-probability of “${data.words[before[0][0]].trim()}”: ${signed(change)}`
    : first === undefined ? "Effects of heads were not computed for this page."
      : at < first ? `Effects are kept for position ${first} and those after it.`
        : data.whole ? "" : `Click a token${data.sides.target ? " of the target" : ""} for what is ` +
          "predicted there.", "note");
};

// What a click does -------------------------------------------------------------------------------

const press = (box, chosen) => {
  for (const button of box.children) button.setAttribute("aria-pressed", button.value === chosen);
};
const choices = (box, options, act) => {
  for (const [value, text] of options) {
    const button = make("button", box, text);
    button.type = "button";
    button.value = value;
    button.addEventListener("click", () => act(value));
  }
};
const showSwitch = () => {
  const button = $("switch"), { block, head, stack } = state;
  button.hidden = block < 0 || !data.effects[stack.name];
  button.textContent = isOff(block, head) ? "switch on" : "switch off";
};
const choose = async (block, head) => {
  Object.assign(state, { block, head });
  const [distance, entropy] = block < 0 ? [] : state.stack.facts[block][head];
  $("which").textContent = block < 0 ? `${state.stack.name}: mean of all heads`
    : `${state.stack.name}, block ${block}, head ${head}`;
  const few = state.stack.kept ? `, ${state.stack.kept} heaviest links of each token` : "";
  $("cell").textContent = block < 0 ? few.slice(2)
    : `distance ${distance} tokens, entropy ${entropy} bits${few}`;
  showSwitch();
  press($("stacks"), block < 0 ? "mean" : state.stack.name);
  await Promise.all([mark(), drawMap()]);
};
const turn = async (name, block, head) => { // one head off at a time: the page holds one run each
  const gone = isOff(block, head);
  state.off = gone ? null : [name, block, head];
  await choose(block, head);
  await drawForecast();
};
const hold = async (at) => {
  spans[predicting][state.position]?.classList.remove("held");
  state.position = at;
  if (!data.whole) spans[predicting][at].classList.add("held");
  await Promise.all([mark(), drawForecast()]);
};
const strongest = async () => { // the head whose absence changes most, else the mean
  const effects = await openEffects(state.stack.name);
  if (!effects || state.position < effects.first) return [-1, -1];
  let best = -1, most = 0;
  for (let n = 0; n < effects.blocks * effects.heads; n++) {
    const by = Math.abs(effects.changes[n * effects.positions + state.position - effects.first]);
    if (by > most) [best, most] = [n, by];
  }
  return best < 0 ? [-1, -1] : [Math.floor(best / effects.heads), best % effects.heads];
};
const setStack = async (name) => {
  state.stack = data.stacks.find((stack) => stack.name === name);
  const [asking, seen] = state.stack.sides;
  $("ways").hidden = asking !== seen;
  dim();
  whole();
  await buildGrid();
  await choose(...await strongest());
};
const start = async () => {
  buildSides();
  const names = data.stacks.map((stack) => [stack.name,
    data.stacks.length > 1 ? stack.name : "heads"]);
  choices($("stacks"), [...names, ["mean", "mean of heads"]], (name) =>
    name === "mean" ? choose(-1, -1) : setStack(name));
  const way = (name) => { state.way = name; press($("ways"), name); dim(); };
  choices($("ways"), [["from", "looks at"], ["to", "is looked at by"]], way);
  way("from");
  choices($("zoom"), [["in", "+"], ["out", "−"], ["all", "all"]], (name) =>
    zoom({ in: 0.5, out: 2, all: Infinity }[name]));
  $("switch").addEventListener("click", () => turn(state.stack.name, state.block, state.head));
  listenMap();
  state.position = data.whole ? 0 : data.sides[predicting].length - 1;
  await setStack(data.stacks.at(-1).name);
  await hold(state.position);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    drawVisible();
    drawMap();
  });
  let wait = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(wait);
    wait = requestAnimationFrame(drawMap);
  });
};
const ready = start();
