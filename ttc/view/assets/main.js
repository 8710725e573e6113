// What follows the run, filters it, and fills the page.

const filter = { text: "", node: null, group: null, members: null, hidden: new Set(), texts: null };
const TERMS = /(?:^|\s)(score|tokens|logprob)\s*([<>])\s*(-?[\d.]+)|(?:^|\s)(node|role|status):(\S+)/g;

/** What the words of the search box ask for. */
function wanted(text) {
  const tests = [];
  const rest = text.replace(TERMS, (_, field, sign, value, name, word) => {
    if (field) tests.push((row) => typeof row[field] === "number" && (sign === ">" ? row[field] > Number(value) : row[field] < Number(value)));
    else tests.push((row) => String(name === "node" ? row.path : row[name] ?? "").includes(word));
    return " ";
  }).trim();
  return { tests, rest };
}

let lastSearch = 0;
async function applyFilter() {
  const mine = ++lastSearch;
  const { tests, rest } = wanted(filter.text);
  let holding = null;
  if (rest) {
    try {
      holding = new Set(await find(rest));
    } catch {
      holding = new Set();
    }
    if (mine !== lastSearch) return;
  }
  const folded = rest.toLowerCase();
  const matches = (row) => tests.every((test) => test(row))
    && (holding === null || holding.has(row.id) || row.id.toLowerCase().includes(folded))
    && (filter.node === null || row.path === filter.node || row.path.startsWith(`${filter.node}/`))
    && (filter.members === null || filter.members.has(row.id)) && !filter.hidden.has(kindOf(row));
  const isActive = tests.length || rest || filter.node !== null || filter.members !== null || filter.hidden.size;
  tree.matches = isActive ? new Set([...state.rows.values()].filter(matches).map((row) => row.id)) : null;
  $("matches").textContent = isActive ? `${count(tree.matches.size)} of ${count(state.rows.size)}` : "";
  paint();
}

function filterNode(path) {
  filter.node = filter.node === path || path === "prompt" ? null : path;
  showGraph();
  applyFilter();
}

function filterGroup(key, calls) {
  const isOn = filter.group !== key;
  filter.group = isOn ? key : null;
  filter.members = isOn ? new Set(calls) : null;
  showVote();
  applyFilter().then(() => isOn && nodeOf(calls[0]) && select(nodeOf(calls[0])));
}

// What stands below the tree

const KINDS = [
  ["finished", "full", "came to their own end"], ["open", "", "were gone on from, or can be"], ["truncated", "full", "were cut by their length"],
  ["pruned", "dead", "were given up by the search"], ["cancelled", "dash", "were stopped while they ran"], ["failed", "bad", "came to nothing"],
  ["duplicate", "dead", "equal a sibling"], ["running", "live", "run now"],
];
const kindOf = (row) => (KINDS.some(([kind]) => kind === row.status) ? row.status : "prompt");

function showLegend() {
  const counts = new Map();
  for (const row of state.rows.values()) counts.set(row.status, (counts.get(row.status) ?? 0) + 1);
  const focused = document.activeElement?.getAttribute?.("data-status");
  $("statuses").replaceChildren(...KINDS.filter(([kind]) => counts.has(kind)).map(([kind, mark, says]) => make("button", {
    type: "button", "data-status": kind, "aria-pressed": String(!filter.hidden.has(kind)), title: `Calls that ${says}`,
    onclick: () => {
      if (!filter.hidden.delete(kind)) filter.hidden.add(kind);
      showLegend();
      applyFilter();
    },
  }, make("i", { class: mark }), kind, make("b", {}, count(counts.get(kind))))));
  if (focused) $("statuses").querySelector(`[data-status="${focused}"]`)?.focus();
  showScale();
}

function showScale() {
  const box = $("scale");
  if (!span.isKnown) return box.replaceChildren(make("span", { class: "muted" }, "no scores"));
  const canvas = make("canvas", { "aria-hidden": "true" });
  canvas.width = 33;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  colours.ramp.forEach((colour, i) => {
    context.fillStyle = colour;
    context.fillRect(i, 0, 1, 1);
  });
  const parts = ["score", make("b", {}, score(span.low)), canvas, make("b", {}, score(span.high))];
  if (!span.isBounded) return box.replaceChildren(make("button", { type: "button", disabled: "" }, ...parts));
  const isWhole = span.low === 0 && span.high === 1;
  const says = isWhole ? "Colours from 0 to 1; press for the scores that there are" : "Colours over the scores that there are; press for 0 to 1";
  box.replaceChildren(make("button", {
    type: "button", title: says, "aria-label": says,
    onclick: () => { span.byHand = !isWhole; measureScores(); showScale(); $("scale").firstChild.focus(); shownVersion = -1; applyFilter(); showDetails(nodeOf(state.selected) ?? tree.root); },
  }, ...parts));
}

// The head of the page

function showHead() {
  const told = state.document, run = told.run, end = told.end;
  $("name").textContent = shown(told.name);
  document.title = `${told.name} · ttc`;
  $("state").textContent = told.state;
  $("state").className = `chip ${told.state}`;
  const problem = run.problem ?? {};
  const asked = problem.prompt ?? problem.messages?.at(-1)?.content ?? "";
  const question = $("question");
  question.textContent = shown(typeof asked === "string" ? asked : JSON.stringify(asked));
  question.title = question.scrollHeight > question.clientHeight + 2 ? "Click to read all of it" : "";
  $("source").firstChild.textContent = shown(run.text ?? run.strategy ?? "unknown");
  figures(run, end);
}

function figures(run, end) {
  const spent = spentOf("tokens"), limit = run.budget?.tokens ?? null, cost = spentOf("cost_usd");
  const chosen = [...state.votes.values()].at(-1)?.chosen ?? null;
  const answer = end ? end.answer : chosen?.answer;
  const confidence = typeof chosen?.confidence === "number" ? `confidence ${chosen.confidence.toFixed(2)}` : end && end.stopped_by !== "completed" ? end.stopped_by.replaceAll("_", " ") : null;
  const made = [];
  if (end || answer) made.push(figure("Answer", answer === null || answer === undefined ? "none" : brief(answer, 60), confidence, "answer"));
  const tokens = figure("Tokens", count(spent), limit === null ? "no limit" : `of ${count(limit)}`);
  if (limit !== null) {
    const bar = make("i", { class: spent >= 0.95 * limit ? "full" : "" });
    bar.style.width = `${Math.min(100, (100 * spent) / limit)}%`;
    tokens.append(make("div", { class: "meter" }, bar));
  }
  made.push(tokens, figure("Calls", count(spentOf("calls")), spentOf("verifier_calls") ? plural(spentOf("verifier_calls"), "check") : null));
  made.push(figure("Time", seconds(lastMoment()), run.budget?.seconds ? `of ${seconds(run.budget.seconds)}` : null));
  if (cost) made.push(figure("Cost", `$${cost < 0.01 ? cost.toPrecision(2) : cost.toFixed(2)}`, null));
  const models = Object.entries(run.engines ?? {}).map(([role, name]) => (role === "policy" ? name : `${role}: ${name}`));
  if (models.length) made.push(figure("Model", brief(models[0], 40), models.length > 1 ? `and ${models.length - 1} more` : null, "model", models.join("\n")));
  $("figures").replaceChildren(...made);
}

function figure(name, value, more, kind = "", title = null) {
  const told = make("dd", { title: title ?? value }, value);
  if (more) told.append(make("small", {}, more));
  return make("div", { class: kind }, make("dt", {}, name), told);
}

// All of it

function showAll() {
  measureScores();
  showHead();
  const before = tree.order.length;
  grow();
  $("nothing").hidden = tree.order.length > 0;
  if (!tree.wasMoved || before === 0) fit();
  showGraph();
  showVote();
  showDecisions();
  showLegend();
  showResources();
  showBudget();
  showMeters();
  applyFilter();
  const at = nodeOf(state.selected);
  if (at) {
    describe(at);
    showDetails(at);
  } else if (state.document.end && chosenCall()) select(chosenCall(), { isShown: false });
  else nothingSelected();
}

function chosenCall() {
  const chosen = [...state.votes.values()].at(-1)?.chosen;
  return chosen ? nodeOf(chosen.chose) ?? null : null;
}

async function poll() {
  let wait = 700;
  try {
    const told = await ask(`data?after=${state.version}`);
    const isNew = told.version !== state.version || told.whole || told.state !== state.document?.state;
    if (isNew) {
      const begun = performance.now();
      take(told);
      showAll();
      wait = Math.max(wait, 4 * (performance.now() - begun)); // a large tree is not drawn all the time
    }
    $("fault").textContent = "";
    if (told.state === "finished") return;
    if (told.state === "unfinished") wait = 4000;
  } catch (error) {
    $("fault").textContent = shown(`not up to date: ${error.message}`);
    wait = 3000;
  }
  if (document.hidden) await new Promise((go) => document.addEventListener("visibilitychange", go, { once: true }));
  setTimeout(poll, wait);
}

const THEMES = [["system", "◐"], ["light", "☀"], ["dark", "☾"]];
let theme = 0;
function showTheme() {
  const [name, mark] = THEMES[theme];
  if (theme) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  $("theme").textContent = mark;
  const says = `Colours: ${name === "system" ? "as the system" : name}`;
  $("theme").setAttribute("aria-label", says);
  $("theme").title = says;
  readColours();
  if (state.document) {
    shownVersion = -1;
    showAll();
  }
}

function listen() {
  listenToTree();
  let timer = null;
  $("filter").addEventListener("input", (event) => {
    filter.text = event.target.value;
    clearTimeout(timer);
    timer = setTimeout(applyFilter, isLive ? 160 : 60);
  });
  $("filter").addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") $("tree").focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || document.activeElement?.tagName === "INPUT") return;
    event.preventDefault();
    $("filter").focus();
    $("filter").select();
  });
  $("zoom-in").addEventListener("click", () => zoomTo(tree.zoom + 0.25));
  $("zoom-out").addEventListener("click", () => zoomTo(tree.zoom - 0.25));
  $("fit").addEventListener("click", fit);
  $("fold").addEventListener("click", foldAll);
  $("unfold").addEventListener("click", unfoldAll);
  $("theme").addEventListener("click", () => { theme = (theme + 1) % THEMES.length; showTheme(); });
  $("question").addEventListener("click", () => $("question").classList.toggle("open"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  new ResizeObserver(() => state.document && showBudget()).observe($("budget"));
  new ResizeObserver(() => state.document && showGraph()).observe($("graph"));
  if (!isLive) $("home").removeAttribute("href");
}

/** For those who test the page: where a call is drawn, and how long drawing took. */
window.ttcView = Object.freeze({
  place: (id) => {
    const at = nodeOf(id);
    return at ? [tree.tx + at.x * tree.sx + 2, tree.ty + at.y * tree.sy] : null;
  },
  frames: () => [...tree.frames],
  shown: () => tree.order.length,
  drawn: () => inView().length,
  matching: () => (tree.matches === null ? null : [...tree.matches]),
  zoom: () => tree.zoom,
  selected: () => state.selected,
});

listen();
showTheme();
if (isLive) poll();
else {
  take(embedded);
  showAll();
}
