// The tree of calls: laid out once for every change, drawn on a canvas only where it is in view.

const ROW = 26, COLUMN = 210, PILL = 20;
const GONE = new Set(["pruned", "duplicate", "cancelled", "failed"]);

const tree = {
  root: null, nodes: new Map(), order: [], columns: [], height: 0, collapsed: new Set(),
  zoom: 0, sx: 1, sy: 1, tx: 0, ty: 0, width: 0, high: 0, hover: null, wasMoved: false,
  matches: null, frames: [],
};

function node(row) {
  return { id: row.id, row, parent: null, children: [], depth: 0, x: 0, y: 0, isDead: false, size: 1 };
}

/** Links rows to their parents; what has none hangs on a root of its own, or on one for all. */
function grow() {
  tree.nodes = new Map();
  for (const row of state.rows.values()) tree.nodes.set(row.id, node(row));
  let roots = [];
  for (const each of tree.nodes.values()) {
    const above = tree.nodes.get(each.row.parent);
    if (above && above !== each) {
      above.children.push(each);
      each.parent = above;
    }
    else roots.push(each);
  }
  roots = withReadPrompts(roots);
  tree.root = roots[0] ?? null;
  if (roots.length > 1) {
    tree.root = node({ id: "all", kind: "run", status: "prompt", excerpt: "all prompts", path: "" });
    adopt(tree.root, roots);
    tree.nodes.set("all", tree.root);
  }
  layOut();
}

function adopt(above, children) {
  above.children = above.children.concat(children);
  for (const each of children) each.parent = above;
}

/** Prompts that were only read, as verifiers do, stand in one place, which is collapsed at first. */
function withReadPrompts(roots) {
  const read = roots.filter((each, i) => i > 0 && each.row.kind === "prompt" && !each.children.length);
  if (read.length < 3) return roots;
  const shelf = node({ id: "read", kind: "shelf", status: "prompt", excerpt: `${count(read.length)} prompts that were only read`, path: "" });
  adopt(shelf, read);
  tree.nodes.set("read", shelf);
  if (!tree.wasShelved) tree.collapsed.add("read");
  tree.wasShelved = true;
  return [...roots.filter((each) => !read.includes(each)), shelf];
}

/** Places what is not inside something collapsed: a row for each leaf, parents beside their middle. */
function layOut() {
  tree.order = [];
  tree.columns = [];
  const pending = tree.root ? [tree.root] : [];
  while (pending.length) {
    const at = pending.pop();
    at.depth = at.parent ? at.parent.depth + 1 : 0;
    at.isFolded = at.children.length > 0 && tree.collapsed.has(at.id);
    tree.order.push(at);
    (tree.columns[at.depth] ??= []).push(at);
    if (!at.isFolded) for (let i = at.children.length - 1; i >= 0; i--) pending.push(at.children[i]);
  }
  let rows = 0;
  for (let i = 0; i < tree.order.length; i++) {
    const at = tree.order[i];
    at.place = i;
    at.x = at.depth * COLUMN;
    at.isLeaf = at.isFolded || at.children.length === 0;
    if (at.isLeaf) at.y = rows++ * ROW;
  }
  for (let i = tree.order.length - 1; i >= 0; i--) {
    const at = tree.order[i];
    if (!at.isLeaf) at.y = (at.children[0].y + at.children[at.children.length - 1].y) / 2;
  }
  tally();
  tree.height = Math.max(1, rows) * ROW;
  rescale();
}

/** What is below each node, collapsed or not: how much, and whether anything of it lives. */
function tally() {
  const whole = [], pending = tree.root ? [tree.root] : [];
  while (pending.length) {
    const at = pending.pop();
    whole.push(at);
    for (const child of at.children) pending.push(child);
  }
  for (let i = whole.length - 1; i >= 0; i--) {
    const at = whole[i];
    at.size = 1;
    let isDead = at.children.length > 0;
    for (const child of at.children) {
      at.size += child.size;
      isDead &&= child.isDead;
    }
    at.isDead = !at.row.chosen && (at.children.length ? isDead || at.row.status === "pruned" : GONE.has(at.row.status));
  }
}

// The view: a zoom of 0 shows the whole tree, one of 1 shows it so that it can be read

function rescale() {
  const fitY = Math.min(1, Math.max(1e-4, (tree.high - 24) / (tree.height + ROW)));
  const fitX = Math.min(1, Math.max(0.02, (tree.width - 40) / Math.max(COLUMN, tree.columns.length * COLUMN)));
  tree.sx = fitX ** Math.max(0, 1 - tree.zoom) * Math.max(1, tree.zoom);
  tree.sy = fitY ** Math.max(0, 1 - tree.zoom) * Math.max(1, tree.zoom);
}

function fit() {
  tree.zoom = 0;
  tree.wasMoved = false;
  rescale();
  tree.tx = 16;
  tree.ty = Math.max(14, (tree.high - (tree.height - ROW) * tree.sy) / 2);
  paint();
}

function zoomTo(zoom, ...spot) {
  const [x, y] = spot.length ? spot : middleOfView();
  const [worldX, worldY] = [(x - tree.tx) / tree.sx, (y - tree.ty) / tree.sy];
  tree.zoom = Math.min(1.8, Math.max(0, zoom));
  tree.wasMoved = true;
  rescale();
  tree.tx = x - worldX * tree.sx;
  tree.ty = y - worldY * tree.sy;
  keepInside();
  paint();
}

/** What zooming leaves in its place: what is selected, where that is in view. */
function middleOfView() {
  const at = nodeOf(state.selected);
  const [x, y] = at ? [tree.tx + at.x * tree.sx, tree.ty + at.y * tree.sy] : [-1, -1];
  return x > 0 && y > 0 && x < tree.width && y < tree.high ? [x, y] : [tree.width / 2, tree.high / 2];
}

/** Leaves a part of the tree in view, wherever it was dragged. */
function keepInside() {
  const wide = tree.columns.length * COLUMN * tree.sx, high = tree.height * tree.sy;
  tree.tx = Math.min(tree.width - 60, Math.max(60 - wide, tree.tx));
  tree.ty = Math.min(tree.high - 40, Math.max(40 - high, tree.ty));
}

function reveal(at) {
  const x = tree.tx + at.x * tree.sx, y = tree.ty + at.y * tree.sy, wide = Math.min(COLUMN * tree.sx, tree.width / 2);
  if (x < 12) tree.tx += 12 - x;
  if (x + wide > tree.width - 12) tree.tx -= x + wide - tree.width + 12;
  if (y < 30) tree.ty += 30 - y;
  if (y > tree.high - 30) tree.ty -= y - tree.high + 30;
}

// Drawing

let isAsked = false;
function paint() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    const begun = performance.now();
    paintNow();
    tree.frames.push(performance.now() - begun);
    if (tree.frames.length > 200) tree.frames.shift();
  });
}

function paintNow() {
  const canvas = $("canvas"), context = canvas.getContext("2d");
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(tree.width * ratio) || canvas.height !== Math.round(tree.high * ratio)) {
    canvas.width = Math.round(tree.width * ratio);
    canvas.height = Math.round(tree.high * ratio);
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, tree.width, tree.high);
  if (!tree.root) return;
  const seen = inView();
  paintEdges(context, seen);
  if (ROW * tree.sy >= 15 && COLUMN * tree.sx >= 70) paintPills(context, seen);
  else paintDots(context, seen);
}

/** The nodes in view, and of those that would fall on one pixel the most telling one. */
function inView() {
  const seen = [];
  const [top, bottom] = [(-30 - tree.ty) / tree.sy, (tree.high + 30 - tree.ty) / tree.sy];
  for (const column of tree.columns) {
    const x = tree.tx + column[0].x * tree.sx;
    if (x > tree.width + 10) break;
    if (x < -COLUMN * tree.sx - 10) continue;
    let lastPixel = null, last = null;
    for (let i = firstBelow(column, top); i < column.length && column[i].y <= bottom; i++) {
      const at = column[i];
      const pixel = Math.round((tree.ty + at.y * tree.sy) * 1.5);
      if (pixel === lastPixel) {
        if (weight(at) > weight(last)) seen[seen.length - 1] = last = at;
        continue;
      }
      seen.push(at);
      lastPixel = pixel;
      last = at;
    }
  }
  return seen;
}

function firstBelow(column, y) {
  let low = 0, high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle].y < y) low = middle + 1;
    else high = middle;
  }
  return low;
}

function weight(at) {
  return (at.id === state.selected ? 8 : 0) + (at.row.chosen ? 4 : 0) + (isMatch(at) ? 2 : 0) + (at.isDead ? 0 : 1);
}

const isMatch = (at) => tree.matches === null || tree.matches.has(at.id);
const isOfRun = (at) => state.rows.has(at.id);
const sizeOf = () => Math.max(1.4, Math.min(6.5, ROW * tree.sy * 0.42));
const hasPills = () => ROW * tree.sy >= 15 && COLUMN * tree.sx >= 70;
const pillWidth = () => COLUMN * tree.sx - 26;

/** Lines from parents to children: those of dead branches first, the chosen path last. */
function paintEdges(context, seen) {
  const layers = [new Path2D(), new Path2D(), new Path2D()];
  const wide = hasPills() ? pillWidth() : sizeOf();
  const isCurved = ROW * tree.sy >= 7;
  const isTold = ROW * tree.sy >= 2.5; // closer lines would be one grey
  for (const at of seen) {
    const isChosen = at.row.chosen && at.parent?.row.chosen;
    if (at.parent && (isTold || isChosen)) edge(layers[isChosen ? 2 : at.isDead ? 0 : 1], at.parent, at, wide, isCurved);
  }
  spines(layers[1], wide);
  const strokes = [[colours.line, 1], [colours.edge, 1], [colours.chosen, 2.25]];
  layers.forEach((layer, i) => {
    context.globalAlpha = tree.matches === null || i === 2 ? 1 : 0.45;
    [context.strokeStyle, context.lineWidth] = strokes[i];
    context.stroke(layer);
  });
  context.globalAlpha = 1;
}

function edge(layer, from, to, wide, isCurved) {
  const x0 = tree.tx + from.x * tree.sx + wide, y0 = tree.ty + from.y * tree.sy;
  const x1 = tree.tx + to.x * tree.sx - (hasPills() ? 0 : sizeOf()), y1 = tree.ty + to.y * tree.sy;
  const middle = Math.max(x0 + 2, x1 - Math.min(24, (x1 - x0) / 2));
  if (isCurved && Math.abs(y1 - y0) < 900) {
    layer.moveTo(x0, y0);
    layer.bezierCurveTo(middle, y0, middle - 6, y1, x1, y1);
    return;
  }
  layer.moveTo(middle, y1);
  layer.lineTo(x1, y1);
  if (from.children.length === 1 || to.row.chosen) {
    layer.moveTo(x0, y0);
    layer.lineTo(middle, y0);
    layer.lineTo(middle, y1);
  }
}

/** One upright line for all children of a parent, where there is no room for curves. */
function spines(layer, wide) {
  if (ROW * tree.sy >= 7) return;
  for (const column of tree.columns) {
    let lastEnd = -Infinity;
    for (const from of column) {
      if (from.isLeaf || from.children.length < 2) continue;
      const first = tree.ty + from.children[0].y * tree.sy, last = tree.ty + from.children.at(-1).y * tree.sy;
      if (last < -10 || first > tree.high + 10 || last - first < 3 || last - lastEnd < 2) continue;
      lastEnd = last;
      const x0 = tree.tx + from.x * tree.sx + wide, x1 = tree.tx + (from.x + COLUMN) * tree.sx - sizeOf();
      const middle = Math.max(x0 + 2, x1 - Math.min(24, (x1 - x0) / 2)), y0 = tree.ty + from.y * tree.sy;
      layer.moveTo(x0, y0);
      layer.lineTo(middle, y0);
      layer.moveTo(middle, first);
      layer.lineTo(middle, last);
    }
  }
}

function fillOf(at) {
  if (at.isDead) return colours.dead;
  return at.row.kind === "call" ? scoreColour(at.row.score) : colours.soft;
}

function paintDots(context, seen) {
  const radius = sizeOf();
  const layers = new Map();
  for (const at of seen) {
    const key = `${fillOf(at)}|${isMatch(at) ? 1 : 0.16}`;
    if (!layers.has(key)) layers.set(key, []);
    layers.get(key).push(at);
  }
  for (const [key, nodes] of layers) {
    const [fill, alpha] = key.split("|");
    context.globalAlpha = Number(alpha);
    context.fillStyle = fill;
    context.beginPath();
    for (const at of nodes) {
      const x = tree.tx + at.x * tree.sx, y = tree.ty + at.y * tree.sy;
      if (radius < 1.7) context.rect(x - 5, y - radius / 2, 10, radius);
      else {
        context.moveTo(x + radius, y);
        context.arc(x, y, radius, 0, 2 * Math.PI);
      }
    }
    context.fill();
    if (radius >= 3.2) {
      context.strokeStyle = fill === colours.unknown ? colours.faint : colours.card;
      context.lineWidth = 1;
      context.stroke();
    }
  }
  context.globalAlpha = 1;
  for (const at of seen) paintDotMarks(context, at, radius);
}

function paintDotMarks(context, at, radius) {
  const x = tree.tx + at.x * tree.sx, y = tree.ty + at.y * tree.sy;
  const ring = (colour, width, by) => {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.arc(x, y, radius + by, 0, 2 * Math.PI);
    context.stroke();
  };
  if (at.row.chosen) ring(colours.chosen, 2, 1.5);
  if (at.row.status === "failed" && isMatch(at)) ring(colours.bad, 1.5, 0.5);
  if (at.row.status === "running") ring(colours.accent, 1.5, 1.5);
  if (at.id === state.selected) ring(colours.ink, 2, 4);
  if (at.isFolded && radius >= 3) {
    context.fillStyle = colours.soft;
    context.font = "600 10.5px system-ui, sans-serif";
    context.fillText(`+${count(at.size - 1)}`, x + radius + 4, y + 3.5);
  }
}

function paintPills(context, seen) {
  const wide = pillWidth(), high = Math.min(PILL * Math.max(1, tree.zoom), ROW * tree.sy - 4);
  const size = Math.min(14, Math.max(9.5, high * 0.58));
  context.textBaseline = "middle";
  for (const at of seen) paintPill(context, at, wide, high, size);
  context.globalAlpha = 1;
}

function paintPill(context, at, wide, high, size) {
  const x = tree.tx + at.x * tree.sx, y = tree.ty + at.y * tree.sy - high / 2;
  const row = at.row, fill = fillOf(at), swatch = Math.min(wide / 2.6, size * 3.1);
  context.globalAlpha = isMatch(at) ? 1 : 0.2;
  context.beginPath();
  context.roundRect(x, y, wide, high, 4);
  context.fillStyle = at.id === tree.hover ? colours["accent-soft"] : colours.card;
  context.fill();
  context.lineWidth = row.chosen ? 2 : 1;
  context.strokeStyle = row.chosen ? colours.chosen : row.status === "failed" ? colours.bad
    : row.status === "running" ? colours.accent : at.isDead ? colours.line : colours["strong-line"];
  context.setLineDash(row.status === "cancelled" || row.status === "running" ? [4, 3] : []);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.roundRect(x + 1.5, y + 1.5, swatch, high - 3, 3);
  context.fillStyle = fill;
  context.fill();
  paintWords(context, at, { x, y: y + high / 2 + 0.5, wide, swatch, size, fill });
  if (at.id === state.selected) {
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.strokeStyle = colours.ink;
    context.beginPath();
    context.roundRect(x - 3, y - 3, wide + 6, high + 6, 6);
    context.stroke();
  }
}

const MARKS = { pruned: "pruned", duplicate: "twin", cancelled: "cut", failed: "failed", running: "…", truncated: "long" };
function paintWords(context, at, { x, y, wide, swatch, size, fill }) {
  const row = at.row;
  const label = row.kind === "call" ? (typeof row.score === "number" ? score(row.score) : MARKS[row.status] ?? "–") : row.role ?? { shelf: "read" }[row.kind] ?? "run";
  context.font = `600 ${size * 0.94}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.fillStyle = at.isDead ? colours["dead-ink"] : fill.startsWith("rgb") ? inkOn(fill)
    : row.kind === "call" ? colours.faint : colours.card;
  context.fillText(brief(label, 9), x + 1.5 + swatch / 2, y, swatch - 2);
  context.textAlign = "left";
  let room = wide - swatch - 10;
  if (at.isFolded) {
    const more = `+${count(at.size - 1)}`;
    context.fillStyle = colours.accent;
    context.fillText(more, x + wide - 6 - context.measureText(more).width, y);
    room -= context.measureText(more).width + 8;
  }
  context.font = `${size}px system-ui, sans-serif`;
  context.fillStyle = at.isDead ? colours["dead-ink"] : colours.ink;
  const letters = Math.floor(room / (size * 0.52));
  if (letters > 2) context.fillText(brief(row.excerpt ?? row.error ?? MARKS[row.status] ?? "", letters), x + swatch + 6, y, room);
}

const score = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2));

// What is pointed at

function under(x, y) {
  const worldX = (x - tree.tx) / tree.sx, worldY = (y - tree.ty) / tree.sy;
  const radius = sizeOf() + 4;
  const depth = hasPills() ? Math.floor(worldX / COLUMN) : Math.round(worldX / COLUMN);
  const column = tree.columns[depth];
  if (!column || (!hasPills() && Math.abs(x - tree.tx - column[0].x * tree.sx) > radius)) return null;
  if (hasPills() && x - tree.tx - column[0].x * tree.sx > pillWidth()) return null;
  const next = firstBelow(column, worldY);
  const near = [column[next - 1], column[next]].filter(Boolean);
  const best = near.sort((a, b) => Math.abs(a.y - worldY) - Math.abs(b.y - worldY))[0];
  const reach = hasPills() ? (PILL / 2) * tree.zoom + 3 : radius;
  return best && Math.abs(best.y - worldY) * tree.sy <= reach ? best : null;
}

function fold(at, isFolded = !tree.collapsed.has(at.id)) {
  if (!at.children.length) return;
  const before = at.y * tree.sy + tree.ty;
  if (isFolded) tree.collapsed.add(at.id);
  else tree.collapsed.delete(at.id);
  layOut();
  tree.ty = before - at.y * tree.sy;
  keepInside();
  describe(at);
  paint();
}

function foldAll() {
  for (const at of tree.nodes.values()) if (at.depth >= 1 && at.children.length) tree.collapsed.add(at.id);
  if (tree.columns.length <= 1 && tree.root) tree.collapsed.delete(tree.root.id);
  const at = nodeOf(state.selected);
  layOut();
  if (at && at.depth > 1) select(ancestor(at, 1));
  fit();
}

function unfoldAll() {
  tree.collapsed.clear();
  layOut();
  fit();
}

const nodeOf = (id) => tree.nodes.get(id) ?? null;
function ancestor(at, depth) {
  while (at.depth > depth) at = at.parent;
  return at;
}

/** Opens whatever a node is hidden in. */
function unearth(at) {
  let isHidden = false;
  for (let above = at.parent; above; above = above.parent) isHidden = tree.collapsed.delete(above.id) || isHidden;
  if (isHidden) layOut();
}

function select(at, { isShown = true } = {}) {
  if (!at) return;
  state.selected = at.id;
  if (isShown) {
    unearth(at);
    reveal(at);
  }
  describe(at);
  showDetails(at);
  paint();
}

const STATUS_WORDS = { prompt: "prompt", open: "went on", truncated: "cut by its length", duplicate: "equal to a sibling" };

const titleOf = (row) => shown({ call: row.id, prompt: `prompt of ${row.role}`, shelf: "prompts that were only read" }[row.kind] ?? "all prompts");

/** Says in the tree's one element for readers of screens where the selection is. */
function describe(at) {
  const row = at.row, item = $("current"), siblings = at.parent ? at.parent.children : [at];
  const parts = [titleOf(row), STATUS_WORDS[row.status] ?? row.status];
  if (typeof row.score === "number") parts.push(`score ${score(row.score)}`);
  if (row.chosen) parts.push("chosen");
  if (at.children.length) parts.push(`${plural(at.children.length, "child").replace("childs", "children")}`);
  item.textContent = `${parts.join(", ")}: ${brief(row.excerpt ?? "", 100)}`;
  item.setAttribute("aria-level", at.depth + 1);
  item.setAttribute("aria-setsize", siblings.length);
  item.setAttribute("aria-posinset", siblings.indexOf(at) + 1);
  if (at.children.length) item.setAttribute("aria-expanded", String(!tree.collapsed.has(at.id)));
  else item.removeAttribute("aria-expanded");
}

function treeKey(event) {
  const at = nodeOf(state.selected) ?? tree.root;
  if (!at || event.ctrlKey || event.metaKey || event.altKey) return;
  const place = tree.order[at.place] === at ? at.place : 0;
  const page = Math.max(1, Math.floor(tree.high / (ROW * tree.sy)) - 1);
  const moves = {
    ArrowDown: () => tree.order[place + 1],
    ArrowUp: () => tree.order[place - 1],
    ArrowRight: () => (at.isFolded ? (fold(at, false), at) : at.children[0]),
    ArrowLeft: () => (at.children.length && !at.isFolded && at.parent ? (fold(at, true), at) : at.parent),
    Home: () => tree.order[0],
    End: () => tree.order.at(-1),
    PageDown: () => tree.order[Math.min(tree.order.length - 1, place + page)],
    PageUp: () => tree.order[Math.max(0, place - page)],
    " ": () => (fold(at), at),
    Enter: () => ($("details").focus(), at),
    "+": () => void zoomTo(tree.zoom + 0.2),
    "=": () => void zoomTo(tree.zoom + 0.2),
    "-": () => void zoomTo(tree.zoom - 0.2),
    0: () => void fit(),
    n: () => void nextMatch(1),
    N: () => void nextMatch(-1),
  };
  if (!(event.key in moves)) return;
  event.preventDefault();
  if (state.selected === null) return void select(at);
  select(moves[event.key]());
}

function nextMatch(step) {
  const found = tree.matches === null ? [] : [...tree.nodes.values()].filter(isMatch).map((at) => at.id);
  if (!found.length) return;
  const place = found.indexOf(state.selected);
  const next = place < 0 ? (step > 0 ? 0 : found.length - 1) : (place + step + found.length) % found.length;
  select(nodeOf(found[next]));
}

function listenToTree() {
  const canvas = $("canvas"), box = $("tree");
  let drag = null;
  const spot = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, y: event.clientY, tx: tree.tx, ty: tree.ty, isFar: false };
    box.focus({ preventScroll: true });
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      drag.isFar ||= Math.hypot(dx, dy) > 4;
      if (!drag.isFar) return;
      canvas.classList.add("panning");
      [tree.tx, tree.ty, tree.wasMoved] = [drag.tx + dx, drag.ty + dy, true];
      keepInside();
      return paint();
    }
    const at = under(...spot(event));
    canvas.classList.toggle("pointing", at !== null);
    if ((at?.id ?? null) !== tree.hover) {
      tree.hover = at?.id ?? null;
      paint();
    }
    if (at) showTip(tipOf(at), event.clientX, event.clientY);
    else hideTip();
  });
  canvas.addEventListener("pointerup", (event) => {
    canvas.classList.remove("panning");
    const at = drag && !drag.isFar ? under(...spot(event)) : null;
    drag = null;
    if (at) select(at, { isShown: false });
  });
  canvas.addEventListener("pointerleave", () => {
    tree.hover = null;
    hideTip();
    paint();
  });
  canvas.addEventListener("dblclick", (event) => {
    const at = under(...spot(event));
    if (at) fold(at);
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    tree.wasMoved = true;
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey) return zoomTo(tree.zoom - event.deltaY * lines * 0.002, ...spot(event));
    tree.tx -= (event.shiftKey ? event.deltaY : event.deltaX) * lines;
    tree.ty -= (event.shiftKey ? 0 : event.deltaY) * lines;
    keepInside();
    paint();
  }, { passive: false });
  box.addEventListener("keydown", treeKey);
  box.addEventListener("focus", () => {
    if (state.selected === null && tree.root && box.matches(":focus-visible")) select(tree.root, { isShown: false });
  });
  new ResizeObserver(() => {
    const isFirst = tree.width === 0;
    [tree.width, tree.high] = [box.clientWidth, box.clientHeight];
    if (isFirst || !tree.wasMoved) fit();
    else {
      rescale();
      paint();
    }
  }).observe(box);
}

function tipOf(at) {
  const row = at.row;
  const told = [titleOf(row)];
  if (row.kind === "call") told.push(STATUS_WORDS[row.status] ?? row.status);
  if (typeof row.score === "number") told.push(`score ${score(row.score)}`);
  if (row.tokens !== undefined) told.push(plural(row.tokens, "token"));
  if (at.children.length) told.push(`${count(at.size - 1)} below`);
  return `${told.join(" · ")}\n${brief(row.excerpt ?? row.error ?? "", 160)}`;
}
