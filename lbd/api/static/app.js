"use strict";
// Reads the API and nothing else. What comes from it is set as text only: bundle names are whatever a tenant chose.

const POLL_SECONDS = 5;
const MOVES = 50;
const BUNDLES = 200;
const RANGES = { "1h": "1 hour", "24h": "24 hours", "7d": "7 days" };
const NEW_POINT_SECONDS = { "1h": 0, "24h": 240, "7d": 1800 };
const APPLIED_WITHIN_SECONDS = 600;
const STARTED_WITHIN_SECONDS = 150;
const REFUSED_WITHIN_SECONDS = 3;

const $ = (id) => document.getElementById(id);
const phone = matchMedia("(max-width: 36rem)");
const seen = { status: null, at: 0, moves: [], broker: null, answer: null, range: "1h", chart: null, plan: null, drains: null, rollout: null, applied: null, limits: {}, silentSince: null };
let token = null;

// -- words

// Made once: to make one takes as long as to fill ten rows.
const grouped = new Intl.NumberFormat("en");
const timed = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const clock = (at) => timed.format(at * 1000);
const capital = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");
const counted = (number, what) => `${grouped.format(number)} ${what}${number === 1 ? "" : "s"}`;

/** As minutes_text of lbd/text.py. */
function spoken(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;
  const whole = Math.round(seconds / 60), days = Math.floor(whole / 1440), hours = Math.floor((whole % 1440) / 60);
  const parts = [days && counted(days, "day"), hours && `${hours} h`, !days && whole % 60 && `${whole % 60} min`];
  return parts.filter(Boolean).join(" ");
}

function amount(bytes) {
  if (bytes === null) return "?";
  const unit = ["B/s", "kB/s", "MB/s", "GB/s"];
  let power = 0;
  for (; bytes >= 1000 && power < 3; power += 1) bytes /= 1000;
  return `${bytes.toFixed(power && bytes < 100 ? 1 : 0)} ${unit[power]}`;
}

const day = (at) => new Date(at * 1000).toLocaleString("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
const date = (at) => new Date(at * 1000).toLocaleString("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
/** A time of another day is none of today's. */
const when = (at) => (at < now() + 43200 && at > now() - 43200 ? clock(at) : date(at));
const ends = (move) => `${short(move.source || "nobody")} → ${move.destination || move.owner ? short(move.destination || move.owner) : "the broker chooses"}`;

/** The domain and port that all brokers share say nothing. */
let shared = "";
function learnNames(brokers) {
  const names = brokers.map((one) => one.id);
  let end = names.length > 1 ? names[0] : "";
  for (const name of names) while (!name.endsWith(end)) end = end.slice(1);
  const from = end.search(/\.(?=[^\d.])|:/);
  shared = from < 0 ? "" : end.slice(from);
}
const short = (name) => (shared && name.endsWith(shared) ? name.slice(0, -shared.length) : name);

// -- the document

function say(id, words, style) {
  const node = $(id);
  if (node.textContent !== words) node.textContent = words;
  if (style !== undefined) node.className = `big ${style}`;
}

function element(name, className, words) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (words !== undefined) made.textContent = words;
  return made;
}

/** The first items: on a phone, and of very many, the others are shown when somebody wants them. */
function first(body, items, most, onPhone) {
  const place = body.closest(".scroll");
  let more = place.nextElementSibling;
  if (!more || !more.classList.contains("more")) {
    more = element("button", "more");
    more.type = "button";
    more.addEventListener("click", () => {
      body.dataset.all = "true";
      show();
      place.focus();
    });
    place.after(more);
  }
  const shown = body.dataset.all ? items.length : phone.matches ? onPhone : most;
  more.hidden = items.length <= shown;
  write(more, `Show all ${grouped.format(items.length)}`);
  return items.slice(0, shown);
}

/** As many rows as there are items; rows stay, so that focus and scrolling do. */
function rows(body, items, columns, empty, fill) {
  const shown = items.length ? items : [null];
  while (body.rows.length > shown.length) body.deleteRow(-1);
  shown.forEach((item, at) => {
    let row = body.rows[at];
    if (!row || row.dataset.empty !== String(item === null)) {
      const fresh = element("tr");
      fresh.dataset.empty = String(item === null);
      fresh.setAttribute("role", "row");
      if (item === null) {
        const cell = element("td", "note", empty);
        cell.colSpan = columns.length;
        fresh.append(cell);
      } else columns.forEach((style, column) => {
        const cell = element(column ? "td" : "th", style);
        if (!column) cell.scope = "row";
        cell.setAttribute("role", column ? "cell" : "rowheader");
        fresh.append(cell);
      });
      if (row) row.replaceWith(fresh); else body.append(fresh);
      row = fresh;
    }
    if (item !== null) fill(item, row.cells);
  });
}

/** The name of a bundle, which breaks into lines between its parts and not within a number. */
function writeBundle(cell, name) {
  if (cell.textContent !== name) cell.replaceChildren(...name.split(/(?<=[/_])/).flatMap((part) => [part, element("wbr")]));
}

function write(cell, words, title) {
  if (cell.textContent !== words) cell.textContent = words;
  if (title && cell.title !== title) cell.title = title;
}

// -- what is shown

const now = () => (seen.status ? seen.status.at + seen.status.age_seconds + (performance.now() - seen.at) / 1000 : 0);

function showAge() {
  const status = seen.status;
  const silent = seen.silentSince !== null;
  if (status) {
    showTodo(status);
    const age = now() - status.at;
    const late = status.late;
    const left = status.next_turn_at === null ? null : status.next_turn_at - now();
    const next = left === null ? "" : left >= 0 ? `, next in ${spoken(left)}` : `, next due ${spoken(-left)} ago`;
    say("age", `data ${spoken(age)} old${late || silent ? "" : next}`);
    document.body.classList.toggle("stale", late || silent);
    if (!silent) trouble(late ? `The data is stale: the last turn ended at ${clock(status.at)}, wanted every ${spoken(status.interval_seconds)}.` : "");
  }
  // An lbd that does not answer takes no order.
  for (const id of ["steer", "approve", "drain", "fill", "rollout"]) $(id).disabled = silent || !status;
  if (silent) {
    const since = clock((performance.timeOrigin + seen.silentSince) / 1000);
    trouble(`${seen.why || "lbd does not answer"}, since ${since}.${status ? " What is shown below is old." : ""} Asking again every ${POLL_SECONDS} s.`);
  }
}

/** Read aloud whenever it changes: so it holds times, and no seconds that pass. */
function trouble(words) {
  $("trouble").hidden = !words;
  say("trouble", words);
}

const VERDICTS = {
  balanced: ["Yes", "good"], partial: ["Not known of all brokers", "warn"], waiting: ["No, not yet", "warn"], moving: ["No, it moves", "warn"],
  blocked: ["No, and blocked", "wrong"], held: ["No, and held", "warn"], "not-fixable": ["No, and no move is possible", "wrong"], unknown: ["Unknown", "wrong"],
};

function showBalance(status) {
  const kind = status.verdict ? status.verdict.kind : "unknown";
  const [words, style] = VERDICTS[kind] || VERDICTS.unknown;
  const gap = status.gap_points === null ? "" : `${status.gap_points.toFixed(1)} points between highest and lowest`;
  say("balance", words, style);
  say("balance-why", [gap, status.verdict && kind !== "waiting" ? status.verdict.detail : ""].filter(Boolean).join("; "));
}

function showActing(status) {
  const under = status.unfinished.length;
  const hour = `${counted(status.last_hour.moves, "move")} in the last hour`;
  const limit = status.nearest_limit;
  const nearest = limit ? `nearest limit: ${limit.name}, ${limit.used} of ${limit.limit} used` : "";
  const why = [status.leader, hour, nearest].filter(Boolean).join("; ");
  if (status.paused) say("acting", "No: paused", "warn");
  else if (status.observe_only) say("acting", "No: it only observes", "warn");
  else if (status.error) say("acting", "No: the turn failed", "wrong");
  else if (under) say("acting", `Yes: ${counted(under, "move")} under way`, "good");
  else if (status.verdict && status.verdict.kind === "blocked") say("acting", `No: ${status.verdict_text}`, "wrong");
  else if (status.hold) say("acting", `No: held by ${status.hold}`, "warn");
  else if (status.proposal) say("acting", "No: a plan waits for approval", "warn");
  else say("acting", "Ready, nothing under way", "good");
  say("acting-why", why);
}

function showLast() {
  const last = seen.moves.find((move) => move.result !== null);
  if (!last) {
    say("did", "No move is kept");
    say("did-why", "");
    return;
  }
  const ago = spoken(now() - (last.ended_at || last.at));
  say("did", `${short(last.source || "nobody")} → ${short(last.owner || last.destination || "?")}: ${last.result}, ${ago} ago`, last.result === "landed" ? "" : "wrong");
  say("did-why", [last.bundle, last.reason, last.detail].filter(Boolean).join("; "));
}

function showNext(status) {
  const verdict = status.verdict || {};
  const plan = seen.plan && seen.plan.unloads ? seen.plan.unloads : [];
  const would = plan.length ? `then it would move ${counted(plan.length, "bundle")}: ${plan[0].bundle} ${ends(plan[0])}${plan.length > 1 ? " first" : ""}` : "";
  if (status.paused) {
    const until = status.paused.until === null ? "until somebody resumes it" : `for ${spoken(status.paused.until - now())} more`;
    say("next", `Observe, ${until}`);
    say("next-why", would.replace("then it", "not paused, it"));
  } else if (status.unfinished.length) {
    say("next", `End ${counted(status.unfinished.length, "move")}, then look again`);
    say("next-why", "");
  } else if (status.proposal) {
    say("next", "Wait for a person's approval");
    say("next-why", `lbd apply ${status.proposal.id}`);
  } else if (verdict.kind === "waiting") {
    say("next", verdict.samples ? `Wait for ${counted(verdict.samples, "more fresh sample")}` : "Wait");
    say("next-why", would || verdict.detail);
  } else {
    const words = { balanced: "Nothing, while it stays so", partial: "Look again at those not compared", blocked: "Nothing while it is blocked", held: `Nothing: ${status.verdict_text}`, "not-fixable": "Nothing: a person must look", unknown: "Look again" };
    say("next", words[verdict.kind] || "Look again");
    say("next-why", verdict.kind === "balanced" ? "" : verdict.detail || "");
  }
}

/** A sentence with its `commands` as code. */
function sayCommands(id, words, style) {
  if ($(id).dataset.words === words) return;
  $(id).dataset.words = words;
  $(id).className = style;
  $(id).replaceChildren(...words.split("`").map((part, at) => (at % 2 ? element("code", "", part) : part)));
}

/** What a person should do: in lbd's own words, or to find out why there are none. */
function showTodo(status) {
  const silent = seen.silentSince !== null;
  const [first, ...more] = silent ? ["Look at lbd on its machine, it does not answer here: lbd status"] : status.todo;
  sayCommands("todo", first, silent || status.steps[0].do ? "big warn" : "big good");
  sayCommands("todo-more", more.join(" · "), "");
}

function showBanners(status) {
  const pause = status.paused;
  $("paused").hidden = !pause;
  if (pause) {
    const until = pause.until === null ? "until somebody resumes it" : `until ${when(pause.until)}`;
    say("paused", `Paused by ${pause.by}, ${until}: ${pause.reason || "no reason was given"}`);
  }
  $("calibration").hidden = !status.calibration;
  say("calibration", status.calibration || "");
  const alerts = [...(status.error ? [`The last turn failed: ${status.error}`] : []), ...status.warnings];
  $("alerts").hidden = !alerts.length;
  if ($("alerts").dataset.told !== alerts.join("\n")) {
    $("alerts").dataset.told = alerts.join("\n");
    $("alerts").replaceChildren(...alerts.map((words) => element("li", "", words)));
  }
}

/** The plan that waits, whole, with what it costs and what it brings; once approved, what comes of it, until the next one waits. */
function showPlan(status) {
  const waiting = status.proposal;
  // Until the next turn the status still has the plan that was approved; the same moves may be proposed anew after it.
  const others = waiting && seen.applied && waiting.made_at !== seen.applied.plan.made_at;
  if (others && seen.applied.outcome) seen.applied = null;
  const applied = seen.applied;
  const plan = applied ? applied.plan : waiting;
  $("plan").hidden = !plan;
  $("approve").hidden = Boolean(applied);
  if (!plan) return;
  const scores = applied ? applied.scores : status.plan_scores;
  const moves = `Plan ${plan.id}: ${counted(plan.unloads.length, "move")}, ${counted(plan.clients, "client")} ${plan.clients === 1 ? "reconnects" : "reconnect"}`;
  const gap = status.gap_after_points === null ? "" : `, ${status.gap_after_points.toFixed(1)} points between highest and lowest when all have landed`;
  say("h-plan", applied ? `Approved by ${applied.by}` : "A plan waits for approval");
  say("plan-about", applied ? applied.outcome || `${moves}. It is carried out.` : `${moves}${gap}.${plan.approved_by.length ? ` Approved by ${plan.approved_by.join(", ")}; one more person is needed.` : ""} It can be approved until ${clock(plan.expires_at)}.`);
  rows($("planned"), plan.unloads, ["", "", "num", "num", ""], "none", (move, cells) => {
    writeBundle(cells[0], move.bundle);
    write(cells[1], ends(move));
    write(cells[2], amount(move.throughput));
    write(cells[3], grouped.format(move.clients));
    cells[3].dataset.label = "clients";
    write(cells[4], move.cost ? `${move.reason}; costs ${grouped.format(move.cost)} points by guardrails.move_costs and topic_costs` : move.reason);
  });
  // In the colours of the brokers below: red gives, green takes.
  const [gives, takes] = ["source", "destination"].map((end) => new Set(plan.unloads.map((move) => move[end])));
  rows($("after"), scores, ["", "wide", "wide"], "none", (broker, cells) => {
    write(cells[0], short(broker.id), broker.id);
    scoreBar(cells[1], broker.score, gives.has(broker.id) ? "fill hot" : takes.has(broker.id) ? "fill cold" : "fill", "now");
    scoreBar(cells[2], broker.after, "fill", "after");
  });
}

/** How good the last predictions were: in the words of `lbd plan`. */
function showPredictions() {
  const past = seen.plan && seen.plan.predictions;
  say("plan-trust", past ? past.summary : "");
  $("plan-past").hidden = !past || !past.last.length;
  rows($("past"), past ? past.last : [], ["", "num", "num", "num"], "none", (one, cells) => {
    write(cells[0], `${short(one.broker)}, turn ${one.turn}`, one.broker);
    ["before", "predicted", "found"].forEach((name, at) => {
      write(cells[at + 1], one[name].toFixed(1));
      cells[at + 1].dataset.label = name;
    });
  });
}

/** A score and its bar, of 100 points. */
function scoreBar(cell, score, style, label) {
  if (!cell.firstChild) {
    const [bar, track] = [element("div", "bar"), element("div", "track")];
    track.append(element("div", "fill"));
    bar.append(element("span"), track);
    cell.append(bar);
  }
  const [value, track] = cell.firstChild.children;
  write(value, score === null ? "?" : score.toFixed(1));
  value.dataset.label = label;
  track.firstChild.className = style;
  track.firstChild.style.width = width(score);
}

/** The length of a score in a track of 100 points. */
const width = (score) => `${Math.min(score ?? 0, 100)}%`;

/** How far a drain or a fill is: the bar is native, so that it is heard as one, and only its end is said aloud. */
function showDrains() {
  const { drains, fill, fill_tried: filled } = seen.drains || { drains: [], fill: null };
  const items = drains.map((one) => ({ key: one.drain.broker, ...one }));
  const { rollout, summary } = seen.rollout || { rollout: null };
  if (rollout && rollout.ended_at === null) items.unshift({ key: "rollout", rollout, summary });
  if (fill && fill.ended_at === null) items.push({ key: `fill ${fill.broker}`, drain: null, work: fill, tried: filled });
  $("drains").hidden = !items.length;
  const known = new Map([...$("works").children].map((row) => [row.dataset.key, row]));
  for (const item of items) {
    const row = known.get(item.key) || $("works").appendChild(workRow(item.key));
    known.delete(item.key);
    (item.rollout ? fillRollout : fillWork)(row, item);
  }
  for (const row of known.values()) row.remove();
}

function workRow(key) {
  const row = element("li");
  row.dataset.key = key;
  const bar = element("progress");
  row.append(element("strong"), element("span", "note"), bar, element("p"));
  return row;
}

function fillWork(row, { drain, work, tried }) {
  const [name, order, bar, words] = row.children;
  const broker = short(drain ? drain.broker : work.broker);
  write(name, drain ? `${broker} is drained` : `${broker} is filled`);
  write(order, drain ? ` by ${drain.by}, ${drain.until === null ? "until it is released" : `until ${when(drain.until)}`}${drain.reason ? `: ${drain.reason}` : ""}` : "");
  bar.hidden = !work || work.ended_at !== null;
  if (!work) {
    write(words, "not looked at yet");
    return;
  }
  bar.max = work.total || 1;
  bar.value = tried;
  bar.setAttribute("aria-label", `bundles moved, of ${work.total}`);
  const parts = [`${tried} of ${counted(work.total, "bundle")}`, work.failed ? `${work.failed} failed` : ""];
  if (work.held) parts.push(`waits: ${work.held}`);
  else if (work.eta_seconds !== null) parts.push(`about ${spoken(work.eta_seconds)} left`);
  write(words, work.ended_at === null ? parts.filter(Boolean).join(", ") : work.sentence);
  words.className = work.ended_at !== null && work.exit_code ? "wrong" : "";
  if (row.dataset.ended === "false" && work.ended_at !== null) say("drain-said", work.sentence);
  row.dataset.ended = String(work.ended_at !== null);
}

function fillRollout(row, { rollout, summary }) {
  const [name, order, bar, words] = row.children;
  write(name, "rollout");
  write(order, ` by ${rollout.by}${rollout.reason ? `: ${rollout.reason}` : ""}`);
  bar.max = rollout.brokers.length;
  bar.value = rollout.done.length;
  bar.setAttribute("aria-label", `brokers restarted, of ${rollout.brokers.length}`);
  write(words, summary);
}

function showBrokers(status) {
  const mean = status.mean_points;
  const hot = new Set(status.pairs.map((pair) => pair.source));
  const cold = new Set(status.pairs.map((pair) => pair.destination));
  // A phone shows few: those of pairs come first there.
  const behind = (one) => Number(phone.matches && !hot.has(one.id) && !cold.has(one.id));
  const brokers = [...status.brokers].sort((one, other) => behind(one) - behind(other) || (other.score ?? -1) - (one.score ?? -1));
  rows($("brokers"), first($("brokers"), brokers, Infinity, 5), ["", "wide", "", "num", "num"], "no broker was seen", (broker, cells) => {
    if (!cells[0].firstChild) cells[0].append(element("a"));
    write(cells[0].firstChild, short(broker.id), broker.id);
    cells[0].firstChild.href = `#broker/${encodeURIComponent(broker.id)}`;
    if (!cells[1].firstChild) {
      const bar = element("div", "bar");
      const track = element("div", "track");
      track.append(element("div", "fill"), element("div", "mean"));
      bar.append(element("span"), track);
      cells[1].append(bar);
    }
    const [value, track] = cells[1].firstChild.children;
    const [fill, line] = track.children;
    write(value, broker.score === null ? "?" : broker.score.toFixed(1));
    fill.style.width = width(broker.score);
    fill.className = hot.has(broker.id) ? "fill hot" : cold.has(broker.id) ? "fill cold" : "fill";
    line.hidden = mean === null;
    line.style.left = width(mean);
    write(cells[2], broker.binding || "?");
    write(cells[3], amount(broker.throughput));
    write(cells[4], grouped.format(broker.bundles));
    cells[4].dataset.label = "bundles";
  });
  const colours = hot.size ? " Red: too far above another; green: where its bundles would go." : "";
  const rolling = seen.rollout && seen.rollout.rollout && seen.rollout.rollout.ended_at === null;
  say("rollout", rolling ? "Stop the rollout…" : "Rollout…");
  say("brokers-note", mean !== null ? `The upright line is the mean, ${mean.toFixed(1)} points.${colours}${shared ? ` Names end in ${shared}.` : ""}` : "");
}

function pips(cell, hits, wanted) {
  const key = `${hits}/${wanted}`;
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  const box = element("span", "pips");
  box.setAttribute("aria-hidden", "true");
  for (let at = 0; at < Math.min(wanted, 12); at += 1) box.append(element("i", at < (hits * Math.min(wanted, 12)) / wanted ? "on" : ""));
  cell.replaceChildren(box, `${hits} of ${wanted}`);
}

function showPairs(status) {
  $("apart").hidden = !status.pairs.length;
  rows($("pairs"), first($("pairs"), status.pairs, Infinity, 4), ["", "num", "", ""], "none", (pair, cells) => {
    write(cells[0], pair.destination === null ? short(pair.source) : `${short(pair.source)} → ${short(pair.destination)}`);
    write(cells[1], pair.difference === null ? "?" : pair.difference.toFixed(1));
    [cells[1].dataset.label, cells[2].dataset.label, cells[3].dataset.label] = ["apart", "low", "high"];
    pips(cells[2], pair.hits.low, pair.hits.low_wanted);
    pips(cells[3], pair.hits.high, pair.hits.high_wanted);
  });
}

/** What is used up of each limit, and what blocks moves now. The meter is native, so that it is heard as one. */
function showLimits(status) {
  const { verdict, canary } = status;
  const stopped = verdict && ["blocked", "held"].includes(verdict.kind) ? `${capital(status.verdict_text)}${verdict.detail && `: ${verdict.detail}`}` : "Nothing is blocked";
  const trial = canary ? `; canary: ${canary.namespaces.join(", ")}, ${canary.max_moves_per_hour} moves an hour, ${canary.held} of ${canary.planned} planned moves held` : "";
  say("blocked", `${stopped}${trial}.`);
  $("blocked").className = verdict && verdict.kind === "blocked" ? "wrong" : "note";
  const limits = status.budgets.filter((one) => one.limit);
  while ($("limits").children.length > limits.length) $("limits").lastChild.remove();
  limits.forEach((one, at) => {
    if (!$("limits").children[at]) {
      const row = element("li");
      row.append(element("span"), element("span", "note"), element("meter"));
      $("limits").append(row);
    }
    const [name, used, meter] = $("limits").children[at].children;
    write(name, `${one.name}${one.of ? `, ${short(one.of)}` : ""}`);
    write(used, `${one.used} of ${one.limit}`);
    [meter.max, meter.high, meter.optimum, meter.value] = [one.limit, one.limit * 0.8, 0, one.used];
    meter.setAttribute("aria-label", `${name.textContent}: ${one.used} of ${one.limit} used`);
  });
}

/** Moves, and the planned ones that wait for their turn. */
function showMoves(status) {
  const sent = new Set(seen.moves.filter((move) => move.result === null).map((move) => move.bundle));
  const waiting = status.unfinished.filter((move) => !sent.has(move.bundle)).map((move) => ({ ...move, at: move.since || null, result: null, reason: "", detail: "" }));
  fillMoves($("moves"), [...waiting, ...seen.moves]);
}

function fillMoves(body, moves, broker) {
  rows(body, first(body, moves, Infinity, 2), ["", "", ""], "none is kept", (move, cells) => {
    write(cells[0], move.at ? when(move.at) : "waits", move.at ? day(move.at) : "");
    twoLines(cells[1], move.bundle, ends(move), writeBundle);
    const served = { yes: ", served", no: ", not served" }[move.served] || "";
    const result = move.result || (move.ended_at ? "unknown" : move.at ? "under way" : "waits for its turn");
    const took = move.result && move.seconds ? `, ${move.seconds.toFixed(1)} s` : "";
    const why = [move.served === "no" && move.served_detail, move.reason, move.detail, broker && course(move, broker)];
    twoLines(cells[2], `${result}${served}${took}`, why.filter(Boolean).join("; "));
    cells[2].firstChild.className = (move.result === null || move.result === "landed") && move.served !== "no" ? "" : "wrong";
  });
}

function twoLines(cell, words, note, writeFirst = write) {
  if (!cell.firstChild) cell.append(element("span"), element("span", "note"));
  writeFirst(cell.firstChild, words);
  write(cell.lastChild, note);
}

/** The broker's score before a move, predicted for after it, and measured. */
function course(move, broker) {
  const end = move.source === broker ? "source" : "destination";
  const [before, expected, came] = [move.before, move.expected, move.came].map((scores) => scores && scores[end]);
  if (typeof before !== "number" || typeof expected !== "number") return "";
  return `its score: ${before.toFixed(1)} before, ${expected.toFixed(1)} predicted, ${typeof came === "number" ? `${came.toFixed(1)} measured` : "not settled since"}`;
}

// -- scores over time

/** The last known value of a line at or before a time. */
const valueAt = (line, at) => line.points[line.at.findLastIndex((one, index) => one <= at && line.points[index] !== null)] ?? line.points.find((one) => one !== null);

/** How long a line is, and when it ends, unless that is now. */
function stretch({ at }) {
  const end = at[at.length - 1];
  return `${spoken(end - at[0])}${NEW_POINT_SECONDS[seen.range] ? ` until ${day(end)}` : ""}`;
}

function marksOn(line, moves, colour) {
  const [from, to] = [line.at[0], line.at[line.at.length - 1]];
  return moves.filter((move) => move.at >= from).map((move) => ({
    x: Math.min(move.at, to), y: valueAt(line, move.at), text: `${move.bundle}: ${ends(move)}${move.result && move.result !== "landed" ? `, ${move.result}` : ""}`, colour,
  }));
}

const drawn = {};
/** Draws in the element of this name, or says why there is nothing to draw.

The figure of now is that of the last turn, because the line of a week is read every half hour, and says until when. */
function drawScores(name, now, line, chart, words) {
  const none = seen.chart === null ? "…" : seen.chart.trouble || (line && line.highest !== null ? "" : "No turn has told scores yet.");
  $(name).style.visibility = none ? "hidden" : ""; // of a daemon that begins anew
  say(`${name}-words`, none || `Now ${now === null ? "unknown" : `${now.toFixed(1)} points`}, ${line.lowest.toFixed(1)} to ${line.highest.toFixed(1)} in ${stretch(line)}${words}.`);
  if (none) return;
  const whole = { x_label: "", y_label: "points", y_reaches: 10, time: true, local: true, height: phone.matches ? 200 : 260, ...chart(line) };
  if (drawn[name]) drawn[name](whole); else drawn[name] = drawChart($(name), whole);
}

function showGap() {
  const { low_threshold: low, high_threshold: high } = seen.limits;
  const limits = [["low", low], ["high", high]].filter(([, value]) => typeof value === "number");
  const acts = limits.length ? `; lbd acts above ${limits.map(([, value]) => value).join(" (slowly) and ")}${limits.length > 1 ? " (soon)" : ""}` : "";
  drawScores("gap", seen.status.gap_points, seen.chart && seen.chart.gap, (line) => ({
    xs: [line.at],
    lines: [{ name: "gap", x: 0, y: line.points, colour: "bar" }],
    marks: [{ name: "moves", symbol: "dot", marks: marksOn(line, seen.chart.moves, "text") }],
    thresholds: limits.map(([name, y]) => ({ name: `${name} threshold ${y}`, y, colour: name === "low" ? "warn" : "bad" })),
  }), acts);
}

function showScore() {
  const moves = seen.chart && seen.chart.moves ? seen.chart.moves : [];
  const [away, here] = [moves.filter((move) => move.source === seen.broker), moves.filter((move) => move.source !== seen.broker)];
  const own = seen.status.brokers.find((one) => one.id === seen.broker);
  drawScores("score", own ? own.score : null, seen.chart && seen.chart.broker, (line) => ({
    xs: [line.at, seen.chart.mean.at],
    lines: [{ name: "score", x: 0, y: line.points, colour: "bar" }, { name: "mean of all", x: 1, y: seen.chart.mean.points, colour: "dim" }],
    marks: [{ name: "moves to it", symbol: "up", marks: marksOn(line, here, "bad") }, { name: "moves from it", symbol: "down", marks: marksOn(line, away, "good") }],
    thresholds: [],
  }), `; ${counted(here.length, "move")} to it, ${away.length} from it`);
}

// -- the page of a broker

const COLUMNS = [["bundle", "Bundle", ""], ["msg_rate", "msg/s", "num"], ["throughput", "In + out", "num"], ["because", "Why it stays", ""]];
const sorted = { by: "throughput", down: true };

for (const [by, name, style] of COLUMNS) {
  const head = element("th", style);
  const button = element("button", "", name);
  head.scope = "col";
  button.type = "button";
  button.addEventListener("click", () => {
    Object.assign(sorted, { by, down: sorted.by === by ? !sorted.down : style === "num" });
    showBundles();
  });
  head.append(button);
  $("sorts").append(head);
}

function showBroker() {
  const { answer, broker: name } = seen;
  say("h-broker", `Broker ${name}`, "");
  const own = answer && answer.seen;
  const report = own ? `${own.score === null ? "?" : own.score.toFixed(1)} points${own.binding ? ` by ${own.binding}` : ""}, ${grouped.format(Math.round(own.msg_rate || 0))} msg/s, ${amount(own.throughput)}, ${counted(own.bundles, "bundle")} in its report` : "no usable load report";
  say("broker-facts", !answer ? "…" : answer.trouble || `${report}, in turn ${answer.turn}, ${spoken(now() - answer.at)} ago`);
  const why = answer && answer.because ? answer.because : [];
  if ($("broker-why").dataset.told !== why.join("\n")) {
    $("broker-why").dataset.told = why.join("\n");
    $("broker-why").replaceChildren(...why.map((words) => element("li", "", words)));
  }
  say("drain", drainOf(name) ? "Release…" : "Drain…");
  showScore();
  showBundles();
  fillMoves($("own"), answer && answer.moves ? answer.moves : [], name);
}

const drainOf = (name) => (seen.drains ? seen.drains.drains : []).map((one) => one.drain).find((drain) => drain.broker === name);

function showBundles() {
  const every = seen.answer && seen.answer.bundles ? seen.answer.bundles : [];
  const wanted = $("search").value.trim().toLowerCase();
  const found = every.filter((one) => !wanted || [one.bundle, ...one.because].some((words) => words.toLowerCase().includes(wanted)));
  const key = (one) => (sorted.by === "because" ? one.because.join("; ") : one[sorted.by] ?? -1);
  const order = (one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0);
  found.sort((one, other) => (sorted.down ? order(other, one) : order(one, other)));
  COLUMNS.forEach(([by], at) => {
    const head = $("sorts").children[at];
    if (by === sorted.by) head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
  });
  say("found", wanted ? `${grouped.format(found.length)} of ${counted(every.length, "bundle")}` : counted(every.length, "bundle"));
  rows($("bundles"), first($("bundles"), found, BUNDLES, 8), ["", "num", "num", ""], wanted ? "none has this name or reason" : "none is known", (one, cells) => {
    writeBundle(cells[0], one.bundle);
    write(cells[1], one.msg_rate === null ? "?" : grouped.format(Math.round(one.msg_rate)));
    cells[1].dataset.label = "msg/s";
    write(cells[2], amount(one.throughput));
    write(cells[3], one.because.join("; ") || "as its broker");
    cells[3].className = one.because.length ? "" : "note";
  });
}

function show() {
  const status = seen.status;
  learnNames(status.brokers);
  document.title = `${seen.broker ? `${short(seen.broker)} · ` : ""}${status.verdict ? status.verdict.kind : "unknown"} · lbd ${status.cluster}`;
  say("cluster", `· cluster ${status.cluster || "?"} · mode ${status.mode}`);
  say("about", `lbd ${status.version}, ${counted(status.turns, "turn")}, strategy ${seen.strategy || "?"}. Times are this browser's.`);
  if (seen.told !== status.at) say("sentence", `Last turn: ${status.sentence}`);
  seen.told = status.at;
  $("overview").hidden = seen.broker !== null;
  $("broker").hidden = seen.broker === null;
  showBanners(status);
  if (seen.broker !== null) {
    showBroker();
    showAge();
    return;
  }
  for (const part of [showBalance, showActing, showNext, showPlan, showBrokers, showPairs, showLimits, showMoves]) part(status);
  for (const part of [showLast, showGap, showDrains, showAge]) part();
  say("steer", status.paused ? "Resume…" : "Pause…");
}

// -- asking

class Unanswered extends Error {}

/** The answer's status and JSON; null where it has none. */
async function asked(path, more, seconds = 20) {
  const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more.headers };
  let answer;
  try {
    answer = await fetch(path, { ...more, headers, cache: "no-store", signal: AbortSignal.timeout(1000 * seconds) });
  } catch (error) {
    throw new Unanswered("lbd does not answer");
  }
  return [answer, await answer.json().catch(() => null)];
}

async function get(path) {
  const [answer, found] = await asked(path, {});
  if (answer.status === 401) $("ask").hidden = false;
  if (!answer.ok || found === null) throw new Unanswered(`lbd answers ${answer.status}: ${(found && found.detail) || answer.statusText}`);
  return found;
}

/** What the page that is shown needs of a turn; an answer for a page that was left meanwhile is of no use. */
async function readTurn() {
  const name = seen.broker;
  const own = name === null
    ? get(`/v1/moves?last=${MOVES}`).then((moves) => ({ moves }))
    : get(`/v1/explain/${encodeURIComponent(name)}?last=${MOVES}`).then((answer) => ({ answer }), (error) => ({ answer: { trouble: error.message } }));
  const [found, strategy] = await Promise.all([own, get("/v1/strategy")]);
  Object.assign(seen, { strategy: strategy.name, limits: strategy.settings }, name === seen.broker ? found : {});
  await readChart();
}

/** Read anew as soon as there may be a new point, or a move. */
async function readChart() {
  const { broker, range, answer } = seen;
  const newest = (broker === null ? seen.moves : (answer && answer.moves) || [])[0];
  const key = JSON.stringify([broker, range, newest && [newest.bundle, newest.at, newest.result], seen.status.pid]);
  const read = seen.chartRead;
  if (read && read.key === key && performance.now() - read.at < 1000 * NEW_POINT_SECONDS[range]) return;
  const of = broker === null ? "" : `&broker=${encodeURIComponent(broker)}`;
  const chart = await get(`/v1/history?range=${range}${of}`).catch((error) => ({ trouble: error.message }));
  if (broker !== seen.broker || range !== seen.range) return;
  Object.assign(seen, { chart, chartRead: chart.trouble ? null : { key, at: performance.now() } });
}

/** What waits, or what a turn would begin: asked for where something is to come; an lbd that cannot say is no trouble. */
async function readPlan(status) {
  const coming = status.proposal || (status.verdict && status.verdict.kind === "waiting");
  seen.plan = coming && !document.hidden ? await get("/v1/plan?skips=false").catch(() => null) : null;
}

let asking = false;
let again = false;

/** Reads what is new and shows it; asked for while it runs, it runs once more, if something was ``told``. */
async function refresh(moved, told = moved) {
  if (asking) {
    again = again || told;
    return;
  }
  asking = true;
  try {
    const [status, drains, rollout] = await Promise.all([get("/v1/status"), get("/v1/drains"), get("/v1/rollout")]);
    const turned = !seen.status || status.at !== seen.status.at || status.pid !== seen.status.pid;
    Object.assign(seen, { status, drains, rollout, at: performance.now() });
    if (turned || moved) await readTurn();
    $("ask").hidden = true;
    Object.assign(seen, { silentSince: null, why: "" });
    show();
    if (turned) {
      await readPlan(status);
      showNext(status);
      showPredictions();
    }
  } catch (error) {
    if (!(error instanceof Unanswered)) throw error;
    Object.assign(seen, { silentSince: seen.silentSince ?? performance.now(), why: error.message });
    showAge();
  } finally {
    asking = false;
  }
  if (again) {
    again = false;
    setTimeout(refresh, 500, true);
  }
}

/** Events only say that there is something new. Where reading needs a token, which a stream cannot carry, it is polled.

Nobody looks at a hidden page. Its stream would hold one of the six connections that a browser opens to an lbd, for all of its tabs. */
let events = null;
function listen() {
  if (events !== null || document.hidden) return;
  events = new EventSource("/v1/events");
  events.addEventListener("turn", () => refresh(true));
  events.addEventListener("move", () => refresh(true));
  events.addEventListener("pause", () => refresh(false, true));
  events.addEventListener("drain", () => refresh(false, true));
  events.addEventListener("rollout", () => refresh(false, true));
  events.addEventListener("error", () => {
    refresh(false);
    if (events !== null && events.readyState === EventSource.CLOSED) {
      events = null;
      setTimeout(listen, 1000 * POLL_SECONDS);
    }
  });
}

// -- what this page changes: a pause, a plan, drains, fills and rollouts

let order = null;

function openOrder(words, about) {
  ["steer-h", "steer-about", "steer-do"].forEach((id, at) => say(id, words[at]));
  $("lasting").hidden = about.path !== "/v1/pause";
  $("why").required = about.path === "/v1/pause";
  $("why").value = "";
  $("proving").hidden = token !== null;
  steerTrouble("");
  $("said").hidden = true;
  order = about;
  $("steering").showModal();
}

/** The same, with what would come of it as soon as lbd has looked at its brokers. */
async function openLooked(words, about, path, summary) {
  openOrder([words[0], `${words[1]} lbd looks at what it would do…`, words[2]], about);
  const told = await get(path).then(summary, (error) => error.message);
  if (order === about) say("steer-about", `${words[1]} ${told.replace(/\.$/, "")}.`);
}

const broughtAbout = (plan) => [
  `${counted(plan.unloads.length, "bundle")} would move, in about ${spoken(plan.eta_seconds)}`,
  plan.stay.length ? `${counted(plan.stay.length, "bundle")} would stay` : "",
  plan.hold ? `it would wait: ${plan.hold.reason}` : "",
  plan.cannot_spare || "",
].filter(Boolean).join("; ");

function openDrain() {
  const broker = seen.broker;
  const body = { broker };
  if (drainOf(broker)) openOrder([`Release ${broker}`, "Bundles may come to it again; those that were moved stay where they are.", "Release"], { path: "/v1/release", body });
  else openLooked([`Drain ${broker}`, "Its bundles go to other brokers, and none comes to it until it is released, or for 24 hours.", "Drain"], { path: "/v1/drain", body, slow: true }, `/v1/drain/${encodeURIComponent(broker)}`, broughtAbout);
}

function openFill() {
  const broker = seen.broker;
  openLooked([`Fill ${broker}`, "It gets its share of the load from the others.", "Fill"], { path: "/v1/fill", body: { broker }, slow: true }, `/v1/fill/${encodeURIComponent(broker)}`, broughtAbout);
}

function openRollout() {
  const rolling = seen.rollout && seen.rollout.rollout && seen.rollout.rollout.ended_at === null;
  if (rolling) openOrder(["Stop the rollout", seen.rollout.summary, "Stop"], { path: "/v1/rollout", body: { stop: true }, slow: true });
  else openLooked(["Begin a rollout", "lbd drains the brokers one after the other, waits until somebody has restarted each, and fills the last one.", "Begin"], { path: "/v1/rollout", body: {}, slow: true }, "/v1/rollout/plan", (plan) => {
    const refused = plan.steps.filter((one) => one.refused);
    const cannot = plan.refused ? `; it would be refused: ${plan.refused}` : refused.length ? `; ${refused[0].broker} cannot be restarted so: ${refused[0].refused}` : "";
    return `${counted(plan.steps.length, "broker")}, ${counted(plan.bundles, "bundle")} move and ${counted(plan.clients, "client")} ${plan.clients === 1 ? "reconnects" : "reconnect"} each time, about ${spoken(plan.total_seconds)} in all and the restarts themselves${cannot}`;
  });
}

function openPause() {
  const paused = seen.status && seen.status.paused;
  const words = paused
    ? ["Resume lbd", `It moves bundles again. The pause was given by ${paused.by}: ${paused.reason || "no reason"}.`, "Resume"]
    : ["Pause lbd", "Nothing new is moved until it ends, also after a restart; what is in flight is brought to its end.", "Pause"];
  const standsBy = seen.status && seen.status.hold === "not-leader";
  if (standsBy) words[1] += ` Only the leader takes orders: ${seen.status.leader}.`;
  openOrder(words, { path: paused ? "/v1/resume" : "/v1/pause" });
}

/** The plan as it was shown: another one that has taken its place meanwhile is not what the person has read. */
function openApproval() {
  const plan = seen.status && seen.status.proposal;
  if (!plan) return;
  const about = `lbd begins plan ${plan.id} exactly as it is shown: ${counted(plan.unloads.length, "move")}, and ${counted(plan.clients, "client")} will reconnect. If one of the moves cannot be made any more, none is begun.`;
  openOrder(["Approve the plan", about, "Approve"], { path: `/v1/plan/${plan.id}/apply`, plan, slow: true });
}

function steerTrouble(words) {
  $("steer-trouble").hidden = !words;
  say("steer-trouble", words);
}

async function steer() {
  const given = $("steer-token").value.trim();
  if (given) token = given;
  $("steer-token").value = "";
  const { path, plan, slow } = order;
  const body = { owner: $("who").value, reason: $("why").value, ...order.body };
  if (path === "/v1/pause" && $("lasts").value) body.for_seconds = Number($("lasts").value);
  if (plan) body.timeout_seconds = APPLIED_WITHIN_SECONDS;
  const more = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answering = asked(path, more, plan ? 2 * APPLIED_WITHIN_SECONDS : slow ? STARTED_WITHIN_SECONDS : undefined);
  // The answer comes when all moves have ended, or the work has begun; a refusal comes at once.
  const soon = slow ? await Promise.race([answering, new Promise((go) => setTimeout(go, 1000 * REFUSED_WITHIN_SECONDS, null))]) : await answering;
  if (soon === null || soon[0].ok) {
    $("steering").close();
    if (plan) follow(plan, body.owner, answering);
    else if (slow) tellBeginning($("steer-h").textContent, answering);
    refresh(true);
    return;
  }
  const [answer, found] = soon;
  if (answer.status === 401) {
    const none = token === null;
    token = null;
    if (none && found) found.detail = "this lbd wants its token first";
    $("proving").hidden = false;
    $("steer-token").focus();
  }
  throw new Unanswered(outcome(answer, found));
}

/** What an answer says, with each move that cannot be made any more. */
function outcome(answer, found) {
  const stale = (found && found.moves ? found.moves : []).filter((move) => move.result === null && move.detail);
  return [(found && (found.sentence || found.detail)) || answer.statusText, ...stale.map((move) => `${move.bundle}: ${move.detail}`)].join(" ");
}

/** Whether the work has begun, or why it has not; how far it is stands with the drains. */
async function tellBeginning(what, answering) {
  const told = await answering.then(([answer, found]) => outcome(answer, found), (error) => error.message);
  $("said").hidden = false;
  say("said", `${what}: ${told}`);
  refresh(true);
}

/** What comes of a plan is told when its last move has ended. */
async function follow(plan, by, answering) {
  const applied = { plan, by, outcome: "", scores: seen.status.plan_scores };
  seen.applied = applied;
  try {
    const [answer, found] = await answering;
    applied.outcome = outcome(answer, found);
  } catch (error) {
    if (!(error instanceof Unanswered)) throw error;
    applied.outcome = `${error.message}. How far the plan came is told by the last moves.`;
  }
  say("plan-said", applied.outcome);
  refresh(true);
}

$("steer").addEventListener("click", openPause);
$("approve").addEventListener("click", openApproval);
$("drain").addEventListener("click", openDrain);
$("fill").addEventListener("click", openFill);
$("rollout").addEventListener("click", openRollout);
$("search").addEventListener("input", showBundles);
$("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which page is shown
  $("answers").focus();
});
$("steer-cancel").addEventListener("click", () => $("steering").close());
$("steering").addEventListener("close", () => { $("steer-token").value = ""; });
$("steer-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("steer-do").disabled = true;
  try {
    await steer();
  } catch (error) {
    if (!(error instanceof Unanswered)) throw error;
    steerTrouble(`Not done: ${error.message.replace(/\.$/, "")}.`);
  } finally {
    $("steer-do").disabled = false;
  }
});

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = "";
  refresh(true);
});

// -- which page is shown, and of which time

function choose() {
  const [, name] = /^#broker\/(.+)$/.exec(location.hash) || [];
  try {
    seen.broker = name ? decodeURIComponent(name) : null;
  } catch {
    seen.broker = name;
  }
  Object.assign(seen, { answer: null, chart: null, chartRead: null });
  $("search").value = "";
}

addEventListener("hashchange", () => {
  choose();
  if (seen.status) show();
  scrollTo(0, 0);
  (seen.broker === null ? $("answers") : $("h-broker")).focus();
  refresh(true);
});

for (const group of document.querySelectorAll(".ranges")) {
  for (const [range, name] of Object.entries(RANGES)) {
    const [label, input] = [element("label"), element("input")];
    Object.assign(input, { type: "radio", name: `range-of-${group.dataset.of}`, value: range, checked: range === seen.range });
    input.addEventListener("change", () => {
      seen.range = range;
      for (const other of document.querySelectorAll(`.ranges [value="${range}"]`)) other.checked = true;
      refresh(true);
    });
    label.append(input, name);
    group.append(label);
  }
}

choose();
phone.addEventListener("change", () => seen.status && show());
// Told in so many words, for on a phone rows are laid out as blocks, which makes browsers forget that they are a table's.
for (const [selector, role] of [["table", "table"], ["thead, tbody", "rowgroup"], ["thead tr", "row"], ["thead th", "columnheader"]]) {
  for (const node of document.querySelectorAll(selector)) node.setAttribute("role", role);
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    if (events !== null) events.close();
    events = null;
    return;
  }
  listen();
  refresh(false);
});
setInterval(refresh, 1000 * POLL_SECONDS, false);
setInterval(showAge, 1000);
refresh(true);
listen();
