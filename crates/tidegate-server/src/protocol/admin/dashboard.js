// Loads the statistics every two seconds and shows them.
//
// Invariant Everything from the server becomes text, never markup: clients choose the keys.
// Invariant The token stays in this tab (sessionStorage) and is sent only in the Authorization field.
"use strict";

const EVERY_MS = 2000;
const shown = { before: new Map(), at: 0, chosen: null, wasWrong: false };
const at = (id) => document.getElementById(id);

async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, cache: "no-store", credentials: "omit" });
  if (response.status === 401) {
    // Somebody may have entered another one meanwhile.
    if (token === sessionStorage.getItem("token")) {
      at("login").hidden = false;
      sessionStorage.removeItem("token");
      shown.wasWrong ||= token !== null;
    }
    throw new Error(shown.wasWrong ? "this token is wrong" : "a token is needed");
  }
  if (!response.ok) throw new Error((await response.json()).detail);
  return response.json();
}

function cell(row, content, kind) {
  const cell = row.insertCell();
  if (kind) cell.className = kind;
  if (content instanceof Node) cell.append(content);
  else cell.textContent = content;
}

function chooser(limit) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = limit.name;
  button.addEventListener("click", () => { shown.chosen = limit.name; refresh(); });
  return button;
}

function perSecond(limit, decision, seconds) {
  const before = shown.before.get(limit.name);
  if (!before || seconds <= 0) return "…";
  return ((limit.stats[decision] - before[decision]) / seconds).toFixed(1);
}

// Without its store, a limit does what its on_error says.
const WITHOUT_STORE = { local: "this server's share decides", allow: "all requests pass", deny: "all requests are denied" };

function state(limit, all) {
  const isAway = limit.degraded !== undefined || all.problems.length > 0;
  const isAlone = isAway && limit.mode === "enforce";
  const instead = isAlone ? WITHOUT_STORE[limit.on_error] : undefined;
  return instead ? `${limit.mode}: ${instead}` : limit.mode;
}

// Later texts replace earlier ones: the most important is last.
function showState(all, limits) {
  let text = "in force";
  if (all.is_config_stale) text = "the last reload failed: an older configuration is in force";
  const degraded = limits.find((limit) => limit.degraded !== undefined);
  if (degraded) text = `${all.state}: ${degraded.degraded}`;
  if (all.problems.length > 0) text = `${all.state}: ${all.problems.join("; ")}`;
  if (all.is_draining) text = "draining";
  showStatus(text, text !== "in force");
}

function showLimits(all, limits, seconds) {
  const columns = [...at("columns").querySelectorAll("th")].map((header) => header.textContent);
  const rows = limits.map((limit) => {
    const row = document.createElement("tr");
    row.ariaSelected = String(limit.name === shown.chosen);
    cell(row, chooser(limit));
    cell(row, limit.rule);
    cell(row, state(limit, all));
    for (const decision of ["allow", "wait", "deny", "shadow_deny"]) {
      cell(row, perSecond(limit, decision, seconds), "number");
    }
    const { keys, max_keys } = limit.stats;
    cell(row, keys === undefined ? "in Redis" : `${keys} of ${max_keys}`, "number");
    // On a narrow screen a row is a block of its own, and each cell says what it is.
    columns.forEach((column, place) => { row.cells[place].dataset.column = column; });
    return row;
  });
  at("limits").replaceChildren(...rows);
}

function showKeys(id, keys, empty) {
  const rows = keys.map((key) => {
    const row = document.createElement("tr");
    if (key.key === undefined) cell(row, `base64:${key.key_base64}`, "bytes");
    else cell(row, key.key === "" ? "(empty)" : key.key);
    cell(row, key.error ? `${key.count - key.error} to ${key.count}` : String(key.count), "number");
    return row;
  });
  if (rows.length === 0) {
    const row = document.createElement("tr");
    cell(row, empty, "bytes");
    rows.push(row);
  }
  at(id).replaceChildren(...rows);
}

function showStatus(text, isBad) {
  at("status").textContent = text;
  at("status").className = isBad ? "bad" : "";
}

async function refresh() {
  const all = await ask("/v1/limits");
  const limits = [...all.limits, all.throttle, ...all.unnamed];
  const now = performance.now();
  shown.wasWrong = false;
  showLimits(all, limits, shown.at ? (now - shown.at) / 1000 : 0);
  shown.at = now;
  shown.before = new Map(limits.map((limit) => [limit.name, limit.stats]));
  shown.chosen ??= limits[0]?.name ?? null;
  const chosen = limits.find((limit) => limit.name === shown.chosen);
  if (chosen) {
    at("chosen").textContent = chosen.name;
    at("explain").textContent = chosen.explain;
    const top = await ask(`/v1/top?limit=${encodeURIComponent(chosen.name)}&k=10`);
    const empty = chosen.stats.keys === undefined ? "not known: the keys are in Redis" : "none";
    showKeys("hot", top.hot, empty);
    showKeys("denied", top.denied, empty);
    // The counts begin between one and two minutes ago, and later if the limit is younger.
    const last = top.window_s > 0 ? `, last ${top.window_s} s` : "";
    document.querySelectorAll(".window").forEach((span) => { span.textContent = last; });
  }
  showState(all, limits);
}

async function tick() {
  try {
    if (!document.hidden) await refresh();
  } catch (error) {
    showStatus(error.message, true);
  }
  setTimeout(tick, EVERY_MS);
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value);
  at("token").value = "";
  at("login").hidden = true;
  refresh().catch((error) => showStatus(error.message, true));
});
tick();
