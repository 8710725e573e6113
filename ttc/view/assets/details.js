// The call that is selected: what is known of it, its text token by token, and the way to it.

const MOST_TOKENS = 3000, MOST_LETTERS = 60000;
let shownId = null, shownVersion = -1;

async function showDetails(at) {
  if (!at) return;
  const row = at.row;
  if (shownId === at.id && shownVersion === row.v) return;
  [shownId, shownVersion] = [at.id, row.v];
  const box = $("details");
  box.classList.add("details");
  const body = make("div");
  box.replaceChildren(head(at), moves(at), factsOf(at), body);
  body.append(make("p", { class: "empty" }, row.status === "running" ? "Its text is told once it has ended." : "Loading…"));
  if (!isOfRun(at)) return body.replaceChildren();
  try {
    const told = await textOf(at.id);
    if (shownId === at.id) body.replaceChildren(...texts(at, told));
  } catch (error) {
    if (shownId === at.id) body.replaceChildren(make("p", { class: "fault" }, shown(error.message)));
  }
}

function nothingSelected() {
  $("details").replaceChildren(make("p", { class: "empty" }, "Select a call in the tree to read its text, token by token."));
}

function head(at) {
  const row = at.row, made = make("p", {});
  made.append(make("span", { class: "id" }, titleOf(row)));
  if (row.kind === "call") made.append(make("span", { class: `chip ${row.status}` }, STATUS_WORDS[row.status] ?? row.status));
  if (row.chosen) made.append(" ", make("span", { class: "chip chosen" }, "chosen"));
  return made;
}

function moves(at) {
  const go = (to, text) => make("button", { type: "button", onclick: () => { select(to); $("tree").focus(); }, ...(to ? {} : { disabled: "" }) }, text);
  const row = make("div", { class: "moves" });
  if (at.parent) row.append(go(at.parent, "↑ Parent"));
  if (at.children.length) {
    row.append(go(at.children[0], `↓ First of ${count(at.children.length)}`));
    row.append(make("button", { type: "button", onclick: () => { fold(at); shownVersion = -1; showDetails(at); } }, tree.collapsed.has(at.id) ? "Expand" : "Collapse"));
  }
  const best = bestBelow(at);
  if (best && best !== at) row.append(go(best, `Best below: ${score(best.row.score)}`));
  return row;
}

function bestBelow(at) {
  let best = null;
  const pending = [...at.children];
  while (pending.length) {
    const each = pending.pop();
    if (typeof each.row.score === "number" && (best === null || each.row.score > best.row.score)) best = each;
    for (const child of each.children) pending.push(child);
  }
  return best;
}

function factsOf(at) {
  const row = at.row, facts = [];
  for (const [name, value] of Object.entries(row.scores ?? {})) facts.push([shown(name), value === null ? "unknown" : value.toFixed(4), value]);
  if (typeof row.score === "number" && !Object.values(row.scores ?? {}).includes(row.score)) facts.push(["value", row.score.toFixed(4), row.score]);
  if (row.logprob !== undefined) facts.push(["mean log probability", `${row.logprob.toFixed(3)}  (p ${(100 * Math.exp(row.logprob)).toFixed(0)} % a token)`]);
  if (row.tokens !== undefined) facts.push(["tokens", count(row.tokens)]);
  if (row.kind === "call" && row.role) facts.push(["role", shown(row.role)]);
  if (row.action) facts.push(["action", shown(row.action)]);
  if (row.started !== undefined) facts.push(["began", `${seconds(row.started)}${row.ended === undefined ? "" : `, took ${seconds(row.ended - row.started)}`}`]);
  if (row.finish) facts.push(["ended by", { stop: "its own end, or a stop string", length: "its length", cancelled: "a stop", error: "a failure" }[row.finish] ?? row.finish]);
  if (row.error) facts.push(["error", shown(row.error)]);
  if (at.children.length) facts.push(["below it", `${count(at.size - 1)} calls`]);
  const list = make("dl", { class: "facts" });
  for (const [name, value, rated] of facts) {
    const told = make("dd", {}, value);
    if (typeof rated === "number" && span.isKnown) {
      const bar = make("i");
      bar.style.width = `${Math.max(0, Math.min(100, (100 * (rated - span.low)) / (span.high - span.low)))}%`;
      bar.style.background = scoreColour(rated);
      told.append(make("span", { class: "bar-of" }, bar));
    }
    list.append(make("dt", {}, name), told);
  }
  return list;
}

function texts(at, told) {
  const made = [];
  if (told.given) made.push(make("h3", {}, "Text that was put before it"), textBox([make("span", { class: "ghost" }, limited(told.given))]));
  if (told.text !== undefined || told.pieces) made.push(...output(at, told));
  else if (at.row.status !== "running") made.push(make("p", { class: "empty" }, "No text of it is kept."));
  for (const [verifier, evidence] of Object.entries(told.evidence ?? {})) {
    const text = typeof evidence === "string" ? evidence : JSON.stringify(evidence, null, 1);
    made.push(make("h3", {}, `Why ${shown(verifier)} says so`), textBox([limited(text)]));
  }
  made.push(...way(at));
  return made;
}

function output(at, told) {
  const title = make("h3", {}, at.row.kind === "prompt" ? "Prompt" : "Text");
  const logprobs = told.logprobs ?? null;
  if (!logprobs) return [title, textBox([limited(told.text ?? "")])];
  const isWhole = told.pieces && told.pieces.length === logprobs.length;
  const box = isWhole ? textBox(pieces(told)) : textBox([limited(told.text ?? "")]);
  const made = [title, box, shading()];
  if (!isWhole) made.splice(2, 1, make("h3", {}, "Log probabilities"), strip(logprobs));
  return made;
}

const textBox = (children) => make("div", { class: "text", dir: "auto" }, ...children);

function limited(text) {
  const most = shown(text.slice(0, MOST_LETTERS));
  return text.length <= MOST_LETTERS ? most : `${most}… (${count(text.length - MOST_LETTERS)} more letters)`;
}

/** Each token on a ground that is the stronger the less probable it was. */
function pieces(told) {
  const made = [];
  told.pieces.slice(0, MOST_TOKENS).forEach((piece, i) => {
    const logprob = told.logprobs[i], entropy = told.entropies?.[i];
    const token = make("span", {}, shown(piece));
    token.style.background = shade(logprob);
    token.addEventListener("pointermove", (event) => showTip(saysToken(piece, i, logprob, entropy), event.clientX, event.clientY));
    token.addEventListener("pointerleave", hideTip);
    made.push(token);
  });
  if (told.pieces.length > MOST_TOKENS) made.push(`… (${count(told.pieces.length - MOST_TOKENS)} more tokens)`);
  return made;
}

function saysToken(piece, i, logprob, entropy) {
  const more = typeof entropy === "number" ? `\nentropy ${entropy.toFixed(2)} nats` : "";
  return `token ${i + 1}: ${JSON.stringify(shown(piece))}\nlog probability ${logprob.toFixed(3)}, p ${(100 * Math.exp(logprob)).toPrecision(3)} %${more}`;
}

const shade = (logprob) => `rgba(${colours.shade}, ${Math.min(0.8, Math.max(0, -logprob) / 5).toFixed(3)})`;

function shading() {
  const canvas = make("canvas", { "aria-hidden": "true" });
  canvas.width = 80;
  canvas.height = 8;
  const context = canvas.getContext("2d");
  for (let x = 0; x < 80; x++) {
    context.fillStyle = shade((-x / 80) * 4);
    context.fillRect(x, 0, 1, 8);
  }
  return make("p", { class: "shading" }, "likely", canvas, "unlikely (log probability 0 to −4)");
}

/** Where the texts of tokens are not known: a bar for each. */
function strip(logprobs) {
  const wide = 340, high = 44, most = Math.max(1, ...logprobs.map((value) => -value));
  const svg = draw("svg", { viewBox: `0 0 ${wide} ${high}`, width: "100%", role: "img", "aria-label": `log probabilities of ${count(logprobs.length)} tokens, the least ${(-most).toFixed(2)}` });
  const step = wide / logprobs.length;
  logprobs.forEach((value, i) => svg.append(draw("rect", {
    x: (i * step).toFixed(2), y: 0, width: Math.max(0.5, step - 0.5).toFixed(2), height: Math.max(1, (-value / most) * high).toFixed(2), fill: `rgb(${colours.shade})`,
  })));
  return svg;
}

/** The way from the prompt to here. */
function way(at) {
  const steps = [];
  for (let above = at; above; above = above.parent) if (isOfRun(above)) steps.unshift(above);
  if (steps.length < 2) return [];
  const list = make("ol", { class: "way" });
  for (const each of steps) {
    const told = `${typeof each.row.score === "number" ? `${score(each.row.score)}  ` : ""}${brief(each.row.excerpt ?? each.row.status, 90)}`;
    list.append(make("li", {}, make("button", { type: "button", onclick: () => select(each), ...(each === at ? { "aria-current": "step" } : {}) }, told)));
  }
  return [make("h3", {}, `The way here, ${plural(steps.length, "step")}`), list];
}
