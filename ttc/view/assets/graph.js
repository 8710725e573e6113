// The strategy: its nodes from left to right as they read each other, with what each has spent.

const BOX = { wide: 152, high: 52, gapX: 26, gapY: 12 };

/** The column of each node: one behind the last of those that it reads. */
function columnsOf(nodes, edges) {
  const column = new Map(nodes.map((each) => [each.path, 0]));
  for (let round = 0; round < nodes.length; round++) {
    let isSettled = true;
    for (const [from, to] of edges) {
      if (column.get(to) <= column.get(from) && column.get(from) + 1 < nodes.length) {
        column.set(to, column.get(from) + 1);
        isSettled = false;
      }
    }
    if (isSettled) break;
  }
  return column;
}

function showGraph() {
  const { nodes, edges } = state.document.graph;
  const box = $("graph"), focused = document.activeElement?.getAttribute?.("data-path");
  box.replaceChildren();
  if (!nodes.length) return box.append(make("p", { class: "empty" }, "Nothing is known of it yet."));
  const column = columnsOf(nodes, edges), rows = new Map(), places = new Map();
  for (const each of nodes) {
    const row = column.get(each.path);
    const place = rows.get(row) ?? 0;
    rows.set(row, place + 1);
    places.set(each.path, { x: place, y: row });
  }
  const most = Math.max(...rows.values());
  const room = Math.max(box.clientWidth - 4, 180);
  const wide = most === 1 ? room - 2 : Math.max(118, (room - 2 - (most - 1) * BOX.gapY) / most);
  const total = Math.max(room, most * (wide + BOX.gapY) - BOX.gapY + 2);
  for (const [path, place] of places) {
    const inRow = rows.get(place.y);
    const left = (total - inRow * wide - (inRow - 1) * BOX.gapY) / 2;
    places.set(path, { x: left + place.x * (wide + BOX.gapY), y: 1 + place.y * (BOX.high + BOX.gapX) });
  }
  const high = Math.max(...[...places.values()].map((place) => place.y)) + BOX.high + 2;
  const svg = draw("svg", { width: total, height: high, viewBox: `0 0 ${total} ${high}` });
  for (const [from, to] of edges) {
    const a = places.get(from), b = places.get(to);
    if (!a || !b) continue;
    const [x0, y0, x1, y1] = [a.x + wide / 2, a.y + BOX.high, b.x + wide / 2, b.y];
    const bend = Math.max(10, (y1 - y0) / 2);
    svg.append(draw("path", { d: `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}` }));
  }
  const spent = nodes.map((each) => sum(each, "tokens"));
  nodes.forEach((each) => svg.append(boxOf(each, places.get(each.path), wide, Math.max(1, ...spent))));
  box.append(svg);
  if (focused) box.querySelector(`[data-path="${CSS.escape(focused)}"]`)?.focus();
}

const sum = (each, line) => Object.values(each.spend).reduce((total, spend) => total + (spend[line] ?? 0), 0);

const readBy = (vote) => vote.groups.reduce((n, group) => n + group.calls.length, vote.without.length);

function boxOf(each, place, wide, most) {
  const [path, parameters] = [each.path, each.label.startsWith(each.path) ? each.label.slice(each.path.length).trim() : ""];
  const name = path.split("/").at(-1).replace(/^\d+\./, "") || path;
  const tokens = sum(each, "tokens"), calls = sum(each, "calls"), checks = sum(each, "verifier_calls");
  const told = [];
  if (calls) told.push(`${plural(tokens, "token")}`, plural(calls, "call"));
  if (checks) told.push(plural(checks, "check"));
  const isPrompt = path === "prompt", vote = state.votes.get(path);
  if (vote && !told.length) told.push(`${plural(readBy(vote), "candidate")} read`);
  const says = told.join(" · ") || (isPrompt ? "where it begins" : "nothing spent");
  const group = draw("g", {
    class: "node", transform: `translate(${place.x + 1} ${place.y})`, role: "button", tabindex: isPrompt ? "-1" : "0",
    "data-path": path, "aria-pressed": String(filter.node === path),
    "aria-label": `${path} ${shown(parameters)}: ${says}. Shows its calls alone.`,
    onclick: () => filterNode(path),
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      filterNode(path);
    },
    onpointermove: (event) => showTip(tipOfNode(each, path, parameters), event.clientX, event.clientY),
    onpointerleave: hideTip,
  });
  const letters = Math.floor((wide - 18) / 6.1);
  const title = draw("text", { class: "title", x: 9, y: 18 });
  title.textContent = brief(isPrompt ? "prompt" : name, letters);
  const sub = draw("text", { class: "sub", x: 9, y: 33 });
  sub.textContent = brief(says, Math.floor((wide - 16) / 5.3));
  group.append(draw("rect", { class: "box", width: wide - 2, height: BOX.high, rx: 7 }), title, sub, ...bars(each, wide - 20, most));
  return group;
}

/** Its tokens beside those of the node that spent most, by role. */
function bars(each, wide, most) {
  const made = [draw("rect", { x: 9, y: 41, width: wide, height: 4, rx: 2, style: null, fill: colours.line })];
  let x = 9;
  for (const [role, spend] of Object.entries(each.spend)) {
    const share = ((spend.tokens ?? 0) / most) * wide;
    if (share <= 0) continue;
    made.push(draw("rect", { x, y: 41, width: Math.max(1.5, share), height: 4, rx: 2, fill: roleColour(role), class: "share" }));
    x += share;
  }
  return made;
}

function tipOfNode(each, path, parameters) {
  const lines = [path, brief(parameters, 300)];
  for (const [role, spend] of Object.entries(each.spend)) {
    const told = [["tokens", "token"], ["calls", "call"], ["verifier_calls", "check"], ["tokens_cancelled", "token cancelled"]]
      .filter(([line]) => spend[line])
      .map(([line, noun]) => (line === "tokens_cancelled" ? `${count(spend[line])} tokens cancelled` : plural(spend[line], noun)));
    lines.push(`${role}: ${told.join(", ")}`);
  }
  return lines.filter(Boolean).join("\n");
}
