// The tree of calls: linked, laid out once for every change, and what of it is in view.

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
    } else roots.push(each);
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
