// Spend over time by role, calls in flight, the vote, the decisions and the engine's meters.

const RESOURCES = {
  tokens: "Tokens", calls: "Calls", verifier_calls: "Checks", output_tokens: "Output tokens", flops: "FLOPs", cost_usd: "Dollars",
};
const chart = { resource: "tokens", points: [], x: null, y: null };

function showResources() {
  const known = Object.keys(RESOURCES).filter((name) => name === "tokens" || state.spends.some((spend) => spend[name]));
  if (!known.includes(chart.resource)) chart.resource = "tokens";
  const focused = document.activeElement?.getAttribute?.("data-resource");
  $("resources").replaceChildren(...known.map((name) => make("button", {
    type: "button", "data-resource": name, "aria-pressed": String(name === chart.resource),
    onclick: () => { chart.resource = name; showResources(); showBudget(); },
  }, RESOURCES[name])));
  if (focused) $("resources").querySelector(`[data-resource="${focused}"]`)?.focus();
}

/** What each role had spent at so many moments at most; without times, in order. */
function cumulated(most) {
  const roles = [], totals = new Map(), points = [];
  const hasTimes = state.spends.every((spend) => spend.at !== null && spend.at !== undefined);
  const spends = state.spends.filter((spend) => spend[chart.resource]);
  if (hasTimes) spends.sort((a, b) => a.at - b.at);
  const step = Math.max(1, Math.ceil(spends.length / most));
  spends.forEach((spend, i) => {
    if (!totals.has(spend.role)) roles.push(spend.role);
    totals.set(spend.role, (totals.get(spend.role) ?? 0) + spend[chart.resource]);
    const isTold = (i + 1) % step === 0 || i === spends.length - 1;
    if (isTold) points.push({ at: hasTimes ? spend.at : i + 1, totals: new Map(totals) });
  });
  return { roles, points, hasTimes };
}

/** At most so many of the points, the last of each stretch. */
function thinned(points, most) {
  if (points.length <= most) return points;
  const step = points.length / most;
  return [...Array(most).keys()].map((i) => points[Math.min(points.length - 1, Math.floor((i + 1) * step) - 1)]);
}

function lastMoment() {
  const atEnd = state.document.end?.usage?.seconds;
  let last = 0;
  for (const spend of state.spends) if (spend.at > last) last = spend.at;
  for (const row of state.rows.values()) last = Math.max(last, row.ended ?? 0, row.started ?? 0);
  return Math.max(last, atEnd ?? 0);
}

function showBudget() {
  const box = $("budget");
  const { roles, points: all, hasTimes } = cumulated(Math.max(100, box.clientWidth));
  showRoles(roles, all);
  if (!all.length) return box.replaceChildren(make("p", { class: "empty" }, "Nothing has been spent yet."));
  const wide = box.clientWidth, high = box.clientHeight;
  if (!wide) return;
  const flight = hasTimes ? inFlight() : [];
  const left = 56, right = wide - 14, top = 8, bottom = high - (flight.length ? 50 : 22);
  const points = all;
  const spent = total(all.at(-1).totals), limit = state.document.run.budget?.[chart.resource] ?? null;
  const isNear = limit !== null && spent > 0.25 * limit;
  const most = isNear ? Math.max(limit, spent) * 1.06 : spent * 1.08;
  const end = hasTimes ? lastMoment() || 1 : all.at(-1).at;
  const x = (at) => left + ((right - left) * at) / end, y = (value) => bottom - ((bottom - top) * value) / most;
  Object.assign(chart, { points, x, roles, left, right, top, bottom, end, hasTimes });
  const svg = draw("svg", { role: "img", "aria-label": saysBudget(roles, all.at(-1).totals, limit) });
  for (const tick of ticks(most, 5)) {
    svg.append(draw("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }), label(left - 7, y(tick) + 3.5, amount(tick, most), "end"));
  }
  const below = new Map();
  roles.forEach((role) => svg.append(area(points, role, below, { x, y, end })));
  if (isNear) {
    svg.append(draw("line", { class: "limit", x1: left, x2: right, y1: y(limit), y2: y(limit) }),
      label(right, y(limit) - 4, `limit ${amount(limit)}`, "end", "limit-text"));
  }
  svg.append(draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  if (flight.length) svg.append(...flightArea(flight, { x, left, top: bottom + 5, bottom: high - 18 }));
  for (const tick of hasTimes ? moments(end, wide / 130) : ticks(end, 5)) {
    svg.append(label(x(tick), high - 4, hasTimes ? clock(tick, end) : `call ${count(tick)}`, "middle"));
  }
  const hair = draw("line", { class: "hair", y1: top, y2: bottom, visibility: "hidden" });
  svg.append(hair);
  svg.addEventListener("pointermove", (event) => follow(event, svg, hair));
  svg.addEventListener("pointerleave", () => { hair.setAttribute("visibility", "hidden"); hideTip(); });
  box.replaceChildren(svg);
}

const total = (totals) => [...totals.values()].reduce((sumOf, value) => sumOf + value, 0);
function amount(value, most = value) {
  if (most >= 1e5) return scaled(value);
  return value >= 10 || Number.isInteger(value) ? count(value) : value.toPrecision(2);
}

function label(x, y, text, anchor, name = "") {
  const made = draw("text", { x, y, "text-anchor": anchor, class: name });
  made.textContent = text;
  return made;
}

/** Ticks of a time: whole minutes where there are several of them. */
function moments(end, wanted) {
  if (end < 120) return ticks(end, wanted);
  const step = [30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].find((each) => end / each <= wanted) ?? end;
  return [...Array(Math.floor(end / step) + 1).keys()].map((i) => i * step);
}

function clock(at, end) {
  if (end < 120 || at === 0) return seconds(at);
  const [hours, minutes, rest] = [Math.floor(at / 3600), Math.floor(at / 60) % 60, Math.round(at % 60)];
  const two = (n) => String(n).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)} min`;
}

function ticks(most, wanted) {
  const rough = most / wanted, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((each) => each >= rough);
  return [...Array(Math.floor(most / step + 1e-9) + 1).keys()].map((i) => i * step);
}

function area(points, role, below, { x, y, end }) {
  let line = "", last = 0;
  const back = [];
  points.forEach((point, i) => {
    const under_ = below.get(i) ?? 0, value = under_ + (point.totals.get(role) ?? 0);
    const at = x(point.at);
    line += i ? `H${at.toFixed(1)}V${y(value).toFixed(1)}` : `M${x(0).toFixed(1)} ${y(0).toFixed(1)}H${at.toFixed(1)}V${y(value).toFixed(1)}`;
    back.push([at, under_]);
    below.set(i, value);
    last = under_;
  });
  line += `H${x(end).toFixed(1)}V${y(last).toFixed(1)}`;
  for (let i = back.length - 1; i >= 0; i--) {
    line += `H${back[i][0].toFixed(1)}V${y(i ? back[i - 1][1] : 0).toFixed(1)}`;
  }
  const colour = roleColour(role);
  return draw("path", { d: `${line}Z`, fill: colour, "fill-opacity": 0.5, stroke: colour, "stroke-width": 1 });
}

/** How many calls ran after each begin and end; it is reckoned once for each version. */
let flights = [], flightsOf = -1;
function inFlight() {
  if (flightsOf === state.version) return flights;
  flightsOf = state.version;
  return (flights = reckonFlights());
}

function reckonFlights() {
  const steps = [];
  for (const row of state.rows.values()) {
    if (row.kind !== "call" || row.started === undefined) continue;
    steps.push([row.started, 1]);
    if (row.ended !== undefined) steps.push([row.ended, -1]);
  }
  steps.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let now = 0;
  return steps.map(([at, step]) => [at, (now += step)]);
}

const greatest = (flight) => flight.reduce((most, step) => Math.max(most, step[1]), 0);

function flightArea(flight, { x, left, top, bottom }) {
  const most = Math.max(1, greatest(flight));
  const y = (value) => bottom - ((bottom - top) * value) / most;
  const points = thinned(flight, 600);
  let line = `M${x(points[0][0]).toFixed(1)} ${bottom}`, last = 0;
  for (const [at, value] of points) {
    line += `H${x(at).toFixed(1)}V${y(value).toFixed(1)}`;
    last = at;
  }
  return [
    draw("path", { class: "flight", d: `${line}H${x(Math.max(last, chart.end)).toFixed(1)}V${bottom}Z` }),
    label(left - 7, top + 9, "in flight", "end"), label(left - 7, bottom, `≤ ${most}`, "end"),
  ];
}

function follow(event, svg, hair) {
  const at = event.clientX - svg.getBoundingClientRect().left;
  if (at < chart.left || at > chart.right) return;
  const moment = ((at - chart.left) / (chart.right - chart.left)) * chart.end;
  let point = { totals: new Map() };
  for (const each of chart.points) if (each.at <= moment) point = each;
  for (const name of ["x1", "x2"]) hair.setAttribute(name, at);
  hair.setAttribute("visibility", "visible");
  const lines = [chart.hasTimes ? seconds(moment) : `call ${count(moment)}`];
  for (const role of chart.roles) lines.push(`${role}: ${amount(point.totals.get(role) ?? 0)}`);
  showTip(lines.join("\n"), event.clientX, event.clientY);
}

function showRoles(roles, points) {
  const last = points.at(-1)?.totals ?? new Map();
  $("roles").replaceChildren(...roles.map((role) => {
    const mark = make("i");
    mark.style.background = roleColour(role);
    return make("span", {}, mark, `${shown(role)} `, make("b", {}, amount(last.get(role))));
  }));
}

function saysBudget(roles, totals, limit) {
  const each = roles.map((role) => `${role} ${amount(totals.get(role))}`).join(", ");
  return `${RESOURCES[chart.resource]} over time: ${each}${limit === null ? "" : `, of a limit of ${amount(limit)}`}`;
}

// The vote

function showVote() {
  const box = $("vote"), votes = [...state.votes.values()];
  if (!votes.length) return box.replaceChildren(make("p", { class: "empty" }, "No candidate has reached a selector yet."));
  const focused = document.activeElement?.getAttribute?.("data-group");
  box.replaceChildren(...votes.map((vote) => ballot(vote, votes.length > 1)));
  if (focused) box.querySelector(`[data-group="${CSS.escape(focused)}"]`)?.focus();
}

function ballot(vote, isOneOfMany) {
  const made = make("div", { class: "ballot" });
  if (isOneOfMany) made.append(make("h3", {}, shown(vote.path)));
  const groups = vote.groups.map((group) => ({ ...group, says: shown(group.answer ?? "") }));
  if (vote.without.length) groups.push({ calls: vote.without, scores: {}, says: "no answer", isNone: true });
  const most = Math.max(1, ...groups.map((group) => group.calls.length));
  const all = groups.reduce((n, group) => n + group.calls.length, 0);
  groups.slice(0, 60).forEach((group, i) => made.append(choice(vote, group, i, { most, all })));
  if (groups.length > 60) made.append(make("p", { class: "muted" }, `and ${count(groups.length - 60)} more answers`));
  return made;
}

function choice(vote, group, i, { most, all }) {
  const chosen = vote.chosen, isChosen = chosen !== null && !group.isNone && group.calls.includes(chosen.chose);
  const key = `${vote.path}|${i}`;
  const bar = make("i");
  bar.style.width = `${(100 * group.calls.length) / most}%`;
  const weights = Object.entries(group.scores).map(([name, value]) => `${shown(name)} ${value.toFixed(2)}`);
  const confidence = isChosen && typeof chosen.confidence === "number" ? ` · confidence ${chosen.confidence.toFixed(2)}` : "";
  const says = `${group.says}: ${plural(group.calls.length, "candidate")} of ${count(all)}${isChosen ? ", chosen" : ""}${confidence}`;
  return make("button", {
    type: "button", class: `${isChosen ? "chosen" : ""} ${group.isNone ? "none" : ""}`, "data-group": key,
    "aria-pressed": String(filter.group === key), "aria-label": says,
    onclick: () => filterGroup(key, group.calls),
    onpointermove: (event) => showTip([says, ...weights.map((w) => `sum of ${w}`)].join("\n"), event.clientX, event.clientY),
    onpointerleave: hideTip,
  }, make("span", { class: "what" }, isChosen ? "✓ " : "", brief(group.says, 120)),
  make("span", { class: "count" }, make("small", {}, weightOf(group)), count(group.calls.length)), make("span", { class: "track" }, bar));
}

/** The sum of the scores, where there is one kind of them. */
function weightOf(group) {
  const sums = Object.values(group.scores);
  return sums.length === 1 ? `Σ ${sums[0].toFixed(2)}` : "";
}

// Decisions and meters

function showDecisions() {
  const box = $("decisions");
  if (!state.decisions.length) return box.replaceChildren(make("p", { class: "empty" }, state.document.end ? "Nothing had to be decided early." : "None yet."));
  const last = state.decisions.slice(-300);
  box.replaceChildren(make("ol", {}, ...last.map((one) => {
    const detail = Object.entries(one.detail).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
    return make("li", {}, make("span", { class: "at" }, one.at === null ? "" : seconds(one.at)),
      make("b", {}, shown(one.rule.replaceAll("_", " "))), ` ${shown(one.path)} `, make("span", { class: "muted" }, brief(detail.join(", "), 200)));
  })));
}

function spentOf(line) {
  return state.spends.reduce((sumOf, spend) => sumOf + (spend[line] ?? 0), 0);
}

function showMeters() {
  const time = lastMoment(), output = spentOf("output_tokens"), input = spentOf("input_tokens"), cached = spentOf("cached_input_tokens");
  const flight = inFlight();
  const running = state.document.state === "running" ? flight.at(-1)?.[1] ?? 0 : 0;
  const rows = [
    ["Output", output && time ? `${scaled(output / time)}` : null, "tokens/s", "output tokens of all calls over the time of the run"],
    ["In flight", flight.length ? `${count(running)}` : null, flight.length ? `now, ${greatest(flight)} at most` : "", "calls that the engine works at"],
    ["Prompts", input ? scaled(input) : null, "tokens", "prompt tokens that were sent"],
    ["From cache", input && cached ? `${((100 * cached) / input).toFixed(1)} %` : input ? "0 %" : null, "", "prompt tokens that were not computed again"],
    ["Compute", spentOf("flops") ? scaled(spentOf("flops")) : null, "FLOPs", "2 × parameters × tokens and attention, as the engine reckons"],
    ["KV memory", spentOf("kv_byte_seconds") ? scaled(spentOf("kv_byte_seconds")) : null, "B·s", "bytes of keys and values times how long they were held"],
    ["Cancelled", count(spentOf("tokens_cancelled")), "tokens", "tokens of calls that nobody needed any more"],
    ["Rejected drafts", spentOf("rejected_draft_tokens") ? count(spentOf("rejected_draft_tokens")) : null, `of ${count(spentOf("draft_tokens"))} tokens`, "drafted tokens that the model did not take over"],
    ["Sandbox", spentOf("sandbox_seconds") ? seconds(spentOf("sandbox_seconds")) : null, "", "processor time of programs"],
  ];
  $("meters").replaceChildren(...rows.map(([name, value, unit, title]) => make("div", { title },
    make("dt", {}, name), make("dd", {}, value ?? "–", value === null || !unit ? null : make("small", {}, unit)))));
}
