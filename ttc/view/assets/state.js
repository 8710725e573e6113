// What is known of the run, where it comes from, and small things that every part uses.

const $ = (id) => document.getElementById(id);

/** An element; strings among its children become text, never markup. */
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  set(made, attributes);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function draw(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(made, attributes);
  made.append(...children);
  return made;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
}

/** Text with a mark in the place of what steers how text is shown, or is not seen. */
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
function shown(text) {
  return String(text).replace(UNSEEN, (c) => `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

function brief(text, most) {
  const line = shown(String(text).slice(0, 4 * most)).replace(/\s+/g, " ").trim();
  return line.length <= most ? line : line.slice(0, most - 1) + "…";
}

const WHOLE = new Intl.NumberFormat("en");
const count = (n) => WHOLE.format(Math.round(n));
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** A number of any size in four places, with a prefix of its unit. */
function scaled(n) {
  if (n === 0) return "0";
  const steps = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [size, prefix] of steps) if (n >= size) return `${(n / size).toPrecision(3)} ${prefix}`;
  return n >= 100 ? n.toFixed(0) : n >= 1 ? n.toFixed(1) : n.toPrecision(2);
}

function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s === 0) return "0 s";
  if (s < 0.001) return `${(s * 1e6).toFixed(0)} µs`;
  if (s < 1) return `${(s * 1e3).toFixed(s < 0.1 ? 1 : 0)} ms`;
  if (s < 120) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
  return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

const state = {
  document: null,
  rows: new Map(),
  spends: [],
  decisions: [],
  votes: new Map(),
  version: 0,
  selected: null,
  base: location.pathname.replace(/\/$/, ""),
};

const embedded = JSON.parse($("document").textContent);
const isLive = embedded.live === true;
let textsOfFile = null;

/** Takes a document, whole or what is new of it. */
function take(told) {
  if (told.whole) {
    state.rows.clear();
    state.votes.clear();
    state.spends = [];
    state.decisions = [];
  }
  for (const row of told.rows) state.rows.set(row.id, row);
  for (const vote of told.votes) state.votes.set(vote.path, vote);
  state.spends = state.spends.concat(told.spends);
  state.decisions = state.decisions.concat(told.decisions);
  state.version = told.version;
  state.document = told;
}

async function ask(what) {
  const answer = await fetch(`${state.base}/${what}`, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(answer.status === 410 ? await answer.text() : `the server said ${answer.status}`);
  return answer.json();
}

function ofFile() {
  textsOfFile ??= JSON.parse($("texts").textContent);
  return textsOfFile;
}

async function textOf(id) {
  return isLive ? ask(`text?id=${encodeURIComponent(id)}`) : ofFile()[id] ?? { id };
}

/** The calls whose text holds `wanted`. */
async function find(wanted) {
  if (isLive) return ask(`find?text=${encodeURIComponent(wanted)}`);
  const folded = wanted.toLowerCase();
  const holds = (known) => `${known.text ?? ""}\n${known.given ?? ""}`.toLowerCase().includes(folded);
  return Object.values(ofFile()).filter(holds).map((known) => known.id);
}

// Colours

const styles = getComputedStyle(document.documentElement);
const colours = {};
function readColours() {
  for (const name of ["ink", "soft", "faint", "card", "raised", "line", "edge", "dead", "dead-ink", "unknown", "chosen", "accent",
    "accent-soft", "bad", "good", "strong-line", "mark", "shade", "focus"]) {
    colours[name] = styles.getPropertyValue(`--${name}`).trim();
  }
  colours.roles = [...Array(8).keys()].map((i) => styles.getPropertyValue(`--role-${i}`).trim());
  const stops = [...Array(5).keys()].map((i) => rgb(styles.getPropertyValue(`--ramp-${i}`).trim()));
  colours.ramp = [...Array(33).keys()].map((i) => {
    const place = Math.min(3, Math.floor(i / 8)), [from, to, t] = [stops[place], stops[place + 1], i / 8 - place];
    return `rgb(${from.map((c, k) => Math.round(c + (to[k] - c) * t)).join(",")})`;
  });
}
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** Whether dark or light text is read better on a colour of the ramp. */
function inkOn(colour) {
  const [r, g, b] = colour.match(/\d+/g).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10151c" : "#ffffff";
}

const KNOWN_ROLES = ["policy", "verifier", "judge", "sandbox", "draft", "large"];
const rolesSeen = [];
/** A role keeps its colour for as long as the page is open. */
function roleColour(role) {
  if (!rolesSeen.includes(role)) rolesSeen.push(role);
  const place = KNOWN_ROLES.indexOf(role);
  return colours.roles[(place >= 0 ? place : 6 + rolesSeen.indexOf(role)) % colours.roles.length];
}

/** Colours reach from bound to bound, or from the least score that there is to the greatest. */
const span = { low: 0, high: 1, isKnown: false, isBounded: false, byHand: null };
function measureScores() {
  const ranges = Object.values(state.document?.run.ranges ?? {});
  let [low, high] = [Infinity, -Infinity];
  for (const row of state.rows.values()) {
    if (typeof row.score === "number") {
      low = Math.min(low, row.score);
      high = Math.max(high, row.score);
    }
  }
  span.isKnown = low <= high;
  span.isBounded = span.isKnown && ranges.some((range) => range !== null) && low >= 0 && high <= 1;
  const isUnit = span.isBounded && (span.byHand ?? high - low >= 0.4);
  [span.low, span.high] = isUnit || !span.isKnown ? [0, 1] : [low, high > low ? high : low + 1];
}
function scoreColour(score) {
  if (typeof score !== "number") return colours.unknown;
  const place = (score - span.low) / (span.high - span.low);
  return colours.ramp[Math.round(32 * Math.min(1, Math.max(0, place)))];
}

// The tip that follows the pointer

function showTip(text, x, y) {
  const tip = $("tip");
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? y - height - 10 : y + 18}px`;
}
const hideTip = () => { $("tip").hidden = true; };
