// The tree on its canvas: only what is in view, and only what falls on pixels of its own.

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
