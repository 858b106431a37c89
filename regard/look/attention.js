// Draws AttentionMaps (page.py). Nothing is fetched; a map is unpacked when it is first looked at.
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const predicting = data.sides.target ? "target" : "text";
const percent = (x) => (x >= 0.0995 ? Math.round(100 * x) : (100 * x).toFixed(1)) + " %";
const state = { stack: null, block: -1, head: -1, way: "from", position: -1, off: null,
  order: "block", valued: false, sinkless: false };
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
    const [blocks, heads, positions, top] = given.shape;
    const count = blocks * heads * positions;
    return { first: given.first, heads, positions, top,
      changes: new Float32Array(buffer, 0, count),
      tokens: new Int32Array(buffer, 4 * count, count * top),
      shares: new Uint16Array(buffer, 4 * count * (1 + top), count * top) };
  });
};
const openNorms = () => { // how much of each key the chosen stack's heads write
  const { norms } = state.stack;
  return norms && open(norms, (buffer) => new Float32Array(buffer));
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
  const map = await viewedMap(), links = [];
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
  grid.classList.toggle("sorted", state.order === "effect");
  if (state.order === "effect") {
    tiles = stack.maps.map(() => []);
    for (const [block, head] of await byEffect()) {
      tiles[block][head] = buildTile(grid, block, head);
      const name = document.createElement("span");
      name.textContent = `${block}.${head}`;
      name.className = "axis";
      tiles[block][head].tile.prepend(name);
    }
    return drawVisible();
  }
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
  see.addEventListener("click", () => choose(block, head, true));
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
  const norms = state.valued ? await openNorms() : null, keys = sizes()[1];
  const seen = (place) => { // a small map as it is viewed; rows keep their largest weight
    const cells = small.slice(place * rows * columns, (place + 1) * rows * columns);
    if (!norms && !state.sinkless) return cells;
    for (let row = 0; row < rows; row++) {
      const here = cells.subarray(row * columns, (row + 1) * columns), most = Math.max(...here);
      const weights = Array.from(here, (weight, column) => state.sinkless && !column ? 0
        : weight * (norms ? norms[place * keys + Math.floor(column * keys / columns)] : 1));
      const largest = Math.max(...weights) || 1;
      weights.forEach((weight, column) => { here[column] = Math.round(weight / largest * most); });
    }
    return cells;
  };
  watcher?.disconnect();
  watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      paint(target, seen(places.get(target)), columns, rows);
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
  const most = known ? Math.max(0.1, ...every.map(([b, h]) => Math.abs(change(b, h)))) : 1;
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
const isOff = (block, head) =>
  String(state.off) === String([state.stack.name, block, head]);

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
const choose = async (block, head, click = false) => {
  Object.assign(state, { block, head });
  const [distance, entropy] = block < 0 ? [] : state.stack.facts[block][head];
  $("which").textContent = block < 0 ? `${state.stack.name}: mean of all heads`
    : `${state.stack.name}, block ${block}, head ${head}`;
  const few = state.stack.kept ? `, ${state.stack.kept} heaviest links of each token` : "";
  $("cell").textContent = block < 0 ? few.slice(2)
    : `distance ${distance} tokens, entropy ${entropy} bits${few}`;
  showSwitch();
  press($("stacks"), block < 0 ? "mean" : state.stack.name);
  const box = $("detail").getBoundingClientRect(); // beside the heads it is always in view
  if (click && (box.bottom < 100 || box.top > innerHeight - 100)) $("detail").scrollIntoView();
  await Promise.all([mark(), drawMap()]);
};
const turn = async (name, block, head) => { // one at a time: the page holds what was run
  state.off = isOff(block, head) ? null : [name, block, head];
  await choose(block, head);
  await drawForecast();
};
const hold = async (at) => {
  spans[predicting][state.position]?.classList.remove("held");
  state.position = at;
  if (!data.whole) show(spans[predicting][at]);
  if (state.order === "effect") await buildGrid();
  await Promise.all([mark(), drawForecast()]);
};
const show = (span) => { // the chosen token, in a text too long for its box
  span.classList.add("held");
  const line = span.parentElement, down = span.offsetTop - line.offsetTop - line.scrollTop;
  if (down < 0 || down + span.offsetHeight > line.clientHeight)
    line.scrollTop += down - line.clientHeight / 2;
};
const byEffect = async () => { // heads, those whose absence changes most first; none known: as is
  const effects = await openEffects(state.stack.name), heads = state.stack.maps[0].length;
  const every = state.stack.maps.flatMap((row, block) => row.map((_, head) => [block, head]));
  if (!effects || state.position < effects.first) return every;
  const by = ([block, head]) => Math.abs(effects.changes[
    (block * heads + head) * effects.positions + state.position - effects.first]);
  return every.sort((a, b) => by(b) - by(a));
};
const strongest = async () => { // the head whose absence changes most, else the mean
  const effects = await openEffects(state.stack.name);
  return !effects || state.position < effects.first ? [-1, -1] : (await byEffect())[0];
};
const setStack = async (name) => {
  state.stack = data.stacks.find((stack) => stack.name === name);
  const [asking, seen] = state.stack.sides;
  $("ways").hidden = asking !== seen;
  dim();
  whole();
  $("weights").children[1].hidden = !state.stack.norms;
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
  const order = (name) => {
    state.order = name;
    press($("order"), name);
    return buildGrid().then(mark);
  };
  if (Object.keys(data.effects).length)
    choices($("order"), [["block", "by block"], ["effect", "by effect"]], order);
  press($("order"), "block");
  const toggles = [["sinkless", "without the first token"], ["valued", "weighted by values"]];
  choices($("weights"), toggles, (name) => {
    state[name] = !state[name];
    [...$("weights").children].find((b) => b.value === name)
      .setAttribute("aria-pressed", state[name]);
    dim();
    return Promise.all([drawVisible(), drawMap()]);
  });
  press($("weights"), "");
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
