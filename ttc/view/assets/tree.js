// The tree by hand: what is pointed at, folded, selected, walked by keyboard.

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
