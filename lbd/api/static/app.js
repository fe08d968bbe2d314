"use strict";
// Reads the API and nothing else. What comes from it is set as text only: bundle names are whatever a tenant chose.

const POLL_SECONDS = 5;
const MOVES = 50;
const POINTS = 300;
const APPLIED_WITHIN_SECONDS = 600;
const REFUSED_WITHIN_SECONDS = 3;

const $ = (id) => document.getElementById(id);
const seen = { status: null, at: 0, moves: [], gaps: [], plan: null, drains: null, rollout: null, applied: null, limits: {}, silentSince: null };
let token = null;

// -- words

// Made once: to make one takes as long as to fill ten rows.
const grouped = new Intl.NumberFormat("en");
const timed = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const clock = (at) => timed.format(at * 1000);
const counted = (number, what) => `${grouped.format(number)} ${what}${number === 1 ? "" : "s"}`;

function spoken(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  return whole < 172800 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86400)} days`;
}

function amount(bytes) {
  if (bytes === null) return "?";
  const unit = ["B/s", "kB/s", "MB/s", "GB/s"];
  let power = 0;
  for (; bytes >= 1000 && power < 3; power += 1) bytes /= 1000;
  return `${bytes.toFixed(power && bytes < 100 ? 1 : 0)} ${unit[power]}`;
}

const day = (at) => new Date(at * 1000).toLocaleString("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
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
    const age = now() - status.at;
    const late = status.late;
    const next = status.next_turn_at === null ? "" : `, next in ${spoken(status.next_turn_at - now())}`;
    say("age", `data ${spoken(age)} old${late || silent ? "" : next}`);
    document.body.classList.toggle("stale", late || silent);
    if (!silent) trouble(late ? `The data is stale: the last turn ended at ${clock(status.at)}, wanted every ${spoken(status.interval_seconds)}.` : "");
  }
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
  balanced: ["Yes", "good"], waiting: ["No, not yet", "warn"], moving: ["No, it moves", "warn"],
  blocked: ["No, and blocked", "wrong"], held: ["No, and held", "warn"], "not-fixable": ["No, and moving cannot help", "wrong"], unknown: ["Unknown", "wrong"],
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
  const limits = status.budgets.filter((one) => one.limit).sort((one, other) => other.used / other.limit - one.used / one.limit);
  const nearest = limits.length ? `nearest limit: ${limits[0].name}, ${limits[0].used} of ${limits[0].limit} used` : "";
  const why = [hour, nearest].filter(Boolean).join("; ");
  if (status.paused) say("acting", "No: paused", "warn");
  else if (status.observe_only) say("acting", "No: it only observes", "warn");
  else if (status.error) say("acting", "No: the turn failed", "wrong");
  else if (under) say("acting", `Yes: ${counted(under, "move")} under way`, "good");
  else if (status.verdict && status.verdict.kind === "blocked") say("acting", `No: blocked by ${status.verdict.reason}`, "wrong");
  else if (status.hold) say("acting", `No: held by ${status.hold}`, "warn");
  else if (status.proposal) say("acting", "No: a plan waits for approval", "warn");
  else say("acting", "Ready, nothing under way", "good");
  say("acting-why", status.error || why);
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
    const words = { balanced: "Nothing, while it stays so", blocked: "Nothing while it is blocked", held: `Nothing, until ${verdict.reason} lets go`, "not-fixable": "Nothing: a person must look", unknown: "Look again" };
    say("next", words[verdict.kind] || "Look again");
    say("next-why", { balanced: "", blocked: verdict.detail }[verdict.kind] ?? verdict.reason ?? "");
  }
}

function showBanners(status) {
  const pause = status.paused;
  $("paused").hidden = !pause;
  if (pause) {
    const until = pause.until === null ? "until somebody resumes it" : `until ${clock(pause.until)}`;
    say("paused", `Paused by ${pause.by}, ${until}: ${pause.reason || "no reason was given"}`);
  }
  const notes = [
    ...(status.leader ? [`leader: ${status.leader}`] : []),
    ...status.warnings,
    ...(status.calibration ? [status.calibration] : []),
  ];
  $("notes").hidden = !notes.length;
  if ($("notes").dataset.told !== notes.join("\n")) {
    $("notes").dataset.told = notes.join("\n");
    $("notes").replaceChildren(...notes.map((words) => element("li", "", words)));
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
  const scores = Object.values(plan.expected);
  const moves = `Plan ${plan.id}: ${counted(plan.unloads.length, "move")}, ${counted(plan.clients, "client")} ${plan.clients === 1 ? "reconnects" : "reconnect"}`;
  const gap = scores.length ? `, ${(Math.max(...scores) - Math.min(...scores)).toFixed(1)} points between highest and lowest when all have landed` : "";
  say("h-plan", applied ? `Approved by ${applied.by}` : "A plan waits for approval");
  say("plan-about", applied ? applied.outcome || `${moves}. It is carried out.` : `${moves}${gap}.${plan.approved_by.length ? ` Approved by ${plan.approved_by.join(", ")}; one more person is needed.` : ""} It can be approved until ${clock(plan.expires_at)}.`);
  rows($("planned"), plan.unloads, ["", "", "num", "num", ""], "none", (move, cells) => {
    write(cells[0], move.bundle);
    write(cells[1], ends(move));
    write(cells[2], amount(move.throughput));
    write(cells[3], grouped.format(move.clients));
    cells[3].dataset.label = "clients";
    write(cells[4], move.reason);
  });
}

/** How far a drain or a fill is: the bar is native, so that it is heard as one, and only its end is said aloud. */
function showDrains() {
  const { drains, fill } = seen.drains || { drains: [], fill: null };
  const items = drains.map((one) => ({ key: one.drain.broker, drain: one.drain, work: one.work }));
  const { rollout, summary } = seen.rollout || { rollout: null };
  if (rollout && rollout.ended_at === null) items.unshift({ key: "rollout", rollout, summary });
  if (fill && fill.ended_at === null) items.push({ key: `fill ${fill.broker}`, drain: null, work: fill });
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

function fillWork(row, { drain, work }) {
  const [name, order, bar, words] = row.children;
  const broker = short(drain ? drain.broker : work.broker);
  write(name, drain ? `${broker} is drained` : `${broker} is filled`);
  write(order, drain ? ` by ${drain.by}, ${drain.until === null ? "until it is released" : `until ${day(drain.until)}`}${drain.reason ? `: ${drain.reason}` : ""}` : "");
  bar.hidden = !work || work.ended_at !== null;
  if (!work) {
    write(words, "not looked at yet");
    return;
  }
  const tried = work.landed + work.elsewhere + work.failed;
  bar.max = Math.max(work.total, 1);
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
  const brokers = [...status.brokers].sort((one, other) => (other.score ?? -1) - (one.score ?? -1));
  const scores = brokers.map((one) => one.score).filter((score) => score !== null);
  const mean = scores.reduce((sum, score) => sum + score, 0) / (scores.length || 1);
  const full = Math.max(100, ...scores);
  const hot = new Set(status.pairs.map((pair) => pair.source));
  const cold = new Set(status.pairs.map((pair) => pair.destination));
  rows($("brokers"), brokers, ["", "wide", "", "num", "num"], "no broker was seen", (broker, cells) => {
    write(cells[0], short(broker.id), broker.id);
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
    fill.style.width = `${(100 * (broker.score ?? 0)) / full}%`;
    fill.className = hot.has(broker.id) ? "fill hot" : cold.has(broker.id) ? "fill cold" : "fill";
    line.style.left = `${(100 * mean) / full}%`;
    write(cells[2], broker.binding || "?");
    write(cells[3], amount(broker.throughput));
    write(cells[4], grouped.format(broker.bundles));
    cells[4].dataset.label = "bundles";
  });
  const colours = hot.size ? " Red: too far above another; green: where its bundles would go." : "";
  say("brokers-note", scores.length ? `The upright line is the mean, ${mean.toFixed(1)} points.${colours}${shared ? ` Names end in ${shared}.` : ""}` : "");
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
  rows($("pairs"), status.pairs, ["", "num", "", ""], "none", (pair, cells) => {
    write(cells[0], pair.destination === null ? short(pair.source) : `${short(pair.source)} → ${short(pair.destination)}`);
    write(cells[1], pair.difference === null ? "?" : pair.difference.toFixed(1));
    [cells[1].dataset.label, cells[2].dataset.label, cells[3].dataset.label] = ["apart", "low", "high"];
    pips(cells[2], pair.hits.low, pair.hits.low_wanted);
    pips(cells[3], pair.hits.high, pair.hits.high_wanted);
  });
  const more = status.unfinished.length - MOVES;
  say("live-note", more > 0 ? `And ${counted(more, "more move")}.` : "");
  rows($("live"), status.unfinished.slice(0, MOVES), ["", "", ""], "none", (move, cells) => {
    write(cells[0], move.bundle);
    write(cells[1], ends(move));
    write(cells[2], move.since ? `under way for ${spoken(now() - move.since)}` : "waits for its turn");
  });
}

function showMoves() {
  rows($("moves"), seen.moves, ["", "", "", "", "num", ""], "none is kept", (move, cells) => {
    write(cells[0], clock(move.at), new Date(move.at * 1000).toISOString());
    write(cells[1], move.bundle);
    write(cells[2], ends(move));
    const served = { yes: ", served", no: ", not served" }[move.served] || "";
    write(cells[3], `${move.result || (move.ended_at ? "unknown" : "under way")}${served}`);
    cells[3].className = (move.result === null || move.result === "landed") && move.served !== "no" ? "" : "wrong";
    write(cells[4], move.result ? `${move.seconds.toFixed(1)} s` : "");
    write(cells[5], [move.served === "no" && move.served_detail, move.reason, move.detail].filter(Boolean).join("; "));
  });
}

// -- the gap over time

/** At most so many points, each the widest gap of its stretch. */
function thinned(points) {
  const step = Math.ceil(points.length / POINTS);
  const found = [];
  for (let at = 0; at < points.length; at += step) {
    found.push(points.slice(at, at + step).reduce((one, other) => (other.gap > one.gap ? other : one)));
  }
  return found;
}

let drawGap = null;
function showGap() {
  const known = seen.gaps.filter((one) => one.highest !== null).map((one) => ({ at: one.at, gap: one.highest - one.lowest }));
  $("gap").style.visibility = known.length ? "" : "hidden"; // of a daemon that begins anew
  if (!known.length) {
    say("gap-words", "No turn has told scores yet.");
    return;
  }
  const { low_threshold: low, high_threshold: high } = seen.limits;
  const limits = [["low", low], ["high", high]].filter(([, value]) => typeof value === "number");
  const chart = gapChart(thinned(known), limits);
  if (drawGap) drawGap(chart); else drawGap = drawChart($("gap"), chart);
  const [first, last] = [known[0].at, known[known.length - 1].at];
  const end = known[known.length - 1];
  const widest = Math.max(...known.map((one) => one.gap));
  say("gap-words", `Now ${end.gap.toFixed(1)} points, ${widest.toFixed(1)} at most in ${spoken(last - first)}${limits.length ? `; lbd acts above ${limits.map(([, value]) => value).join(" (slowly) and ")}${limits.length > 1 ? " (soon)" : ""}` : ""}.`);
}

/** The gap, with a mark for each move on it. */
function gapChart(points, limits) {
  const at = points.map((one) => one.at);
  const marks = seen.moves.filter((move) => move.at >= at[0]).map((move) => {
    const y = points.findLast((one) => one.at <= move.at).gap;
    return { x: Math.min(move.at, at[at.length - 1]), y, text: `${move.bundle}: ${ends(move)}`, colour: "text" };
  });
  return {
    x_label: "", y_label: "points", y_reaches: 10, time: true, local: true, height: 230, xs: [at],
    lines: [{ name: "gap", x: 0, y: points.map((one) => one.gap), colour: "bar" }],
    marks: [{ name: "moves", symbol: "dot", marks }],
    thresholds: limits.map(([name, y]) => ({ name: `${name} threshold ${y}`, y, colour: name === "low" ? "warn" : "bad" })),
  };
}

function show() {
  const status = seen.status;
  learnNames(status.brokers);
  document.title = `${status.verdict ? status.verdict.kind : "unknown"} · lbd ${status.cluster}`;
  say("cluster", `· cluster ${status.cluster || "?"}`);
  say("about", `lbd ${status.version}, ${counted(status.turns, "turn")}, strategy ${seen.strategy || "?"}. Times are this browser's.`);
  if (seen.told !== status.at) say("sentence", `Last turn: ${status.sentence}`);
  seen.told = status.at;
  for (const part of [showBanners, showBalance, showActing, showNext, showPlan, showBrokers, showPairs]) part(status);
  for (const part of [showLast, showMoves, showGap, showDrains, showAge]) part();
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

async function readTurn() {
  const since = seen.gaps.length ? seen.gaps[seen.gaps.length - 1].at : 0;
  const [gaps, moves, strategy] = await Promise.all([get(`/v1/gaps?since=${since}`), get(`/v1/moves?last=${MOVES}`), get("/v1/strategy")]);
  seen.gaps = seen.gaps.concat(gaps.filter((one) => one.at > since)).slice(-5760);
  seen.moves = moves;
  seen.strategy = strategy.name;
  seen.limits = strategy.settings;
}

/** What a turn would begin: only asked for where something is to come, and an lbd that cannot say is no trouble. */
async function readPlan(status) {
  const coming = status.verdict && status.verdict.kind === "waiting";
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
    if (seen.status && status.pid !== seen.status.pid) seen.gaps = [];
    Object.assign(seen, { status, drains, rollout, at: performance.now() });
    if (turned || moved) await readTurn();
    $("ask").hidden = true;
    Object.assign(seen, { silentSince: null, why: "" });
    show();
    if (turned) {
      await readPlan(status);
      showNext(status);
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

/** Events only say that there is something new. Where reading needs a token, which a stream cannot carry, it is polled. */
function listen() {
  const events = new EventSource("/v1/events");
  events.addEventListener("turn", () => refresh(true));
  events.addEventListener("move", () => refresh(true));
  events.addEventListener("pause", () => refresh(false, true));
  events.addEventListener("drain", () => refresh(false, true));
  events.addEventListener("rollout", () => refresh(false, true));
  events.addEventListener("error", () => {
    refresh(false);
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 1000 * POLL_SECONDS);
  });
}

// -- pausing and approving, the two things that this page changes

let order = null;

function openOrder(words, about) {
  order = about;
  ["steer-h", "steer-about", "steer-do"].forEach((id, at) => say(id, words[at]));
  $("lasting").hidden = order.path !== "/v1/pause";
  $("why").required = order.path === "/v1/pause";
  $("why").value = "";
  $("proving").hidden = token !== null;
  steerTrouble("");
  $("steering").showModal();
}

function openPause() {
  const paused = seen.status && seen.status.paused;
  const words = paused
    ? ["Resume lbd", `It moves bundles again. The pause was given by ${paused.by}: ${paused.reason || "no reason"}.`, "Resume"]
    : ["Pause lbd", "Nothing new is moved until it ends, also after a restart; what is in flight is brought to its end.", "Pause"];
  const standsBy = seen.status && seen.status.hold === "not-leader";
  if (standsBy) words[1] += ` Here only, until this lbd leads: ${seen.status.leader}.`;
  openOrder(words, { path: paused ? "/v1/resume" : "/v1/pause" });
}

/** The plan as it was shown: another one that has taken its place meanwhile is not what the person has read. */
function openApproval() {
  const plan = seen.status && seen.status.proposal;
  if (!plan) return;
  const about = `lbd begins plan ${plan.id} exactly as it is shown: ${counted(plan.unloads.length, "move")}, and ${counted(plan.clients, "client")} will reconnect. If one of the moves cannot be made any more, none is begun.`;
  openOrder(["Approve the plan", about, "Approve"], { path: `/v1/plan/${plan.id}/apply`, plan });
}

function steerTrouble(words) {
  $("steer-trouble").hidden = !words;
  say("steer-trouble", words);
}

async function steer() {
  const given = $("steer-token").value.trim();
  if (given) token = given;
  $("steer-token").value = "";
  const { path, plan } = order;
  const body = { owner: $("who").value, reason: $("why").value };
  if (path === "/v1/pause" && $("lasts").value) body.for_seconds = Number($("lasts").value);
  if (plan) body.timeout_seconds = APPLIED_WITHIN_SECONDS;
  const more = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answering = asked(path, more, plan ? 2 * APPLIED_WITHIN_SECONDS : undefined);
  // The answer comes when all moves have ended; a refusal comes at once.
  const soon = plan ? await Promise.race([answering, new Promise((go) => setTimeout(go, 1000 * REFUSED_WITHIN_SECONDS, null))]) : await answering;
  if (soon === null || soon[0].ok) {
    $("steering").close();
    if (plan) follow(plan, body.owner, answering);
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

/** What comes of a plan is told when its last move has ended. */
async function follow(plan, by, answering) {
  const applied = { plan, by, outcome: "" };
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
// Told in so many words, for on a phone rows are laid out as blocks, which makes browsers forget that they are a table's.
for (const [selector, role] of [["table", "table"], ["thead, tbody", "rowgroup"], ["thead tr", "row"], ["thead th", "columnheader"]]) {
  for (const node of document.querySelectorAll(selector)) node.setAttribute("role", role);
}
document.addEventListener("visibilitychange", () => document.hidden || refresh(false));
setInterval(refresh, 1000 * POLL_SECONDS, false);
setInterval(showAge, 1000);
refresh(true);
listen();
