// Asks the server every two seconds and shows what it says.
//
// Always   Whatever comes from the server becomes text, never markup: keys are chosen by strangers.
// Always   The token stays in this tab (sessionStorage) and goes nowhere but into the Authorization field.
"use strict";

const EVERY_MS = 2000;
const shown = { before: new Map(), at: 0, chosen: null };
const at = (id) => document.getElementById(id);

async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, cache: "no-store", credentials: "omit" });
  if (response.status === 401) {
    // Somebody may have entered another one meanwhile.
    if (token === sessionStorage.getItem("token")) at("login").hidden = false;
    throw new Error("a token is needed");
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

function showLimits(limits, seconds) {
  const rows = limits.map((limit) => {
    const row = document.createElement("tr");
    row.ariaSelected = String(limit.name === shown.chosen);
    cell(row, chooser(limit));
    cell(row, limit.rule);
    cell(row, limit.mode);
    for (const decision of ["allow", "wait", "deny", "shadow_deny"]) {
      cell(row, perSecond(limit, decision, seconds), "number");
    }
    cell(row, `${limit.stats.keys} of ${limit.stats.max_keys}`, "number");
    return row;
  });
  at("limits").replaceChildren(...rows);
}

function showKeys(id, keys) {
  const rows = keys.map((key) => {
    const row = document.createElement("tr");
    if (key.key === undefined) cell(row, `base64:${key.key_base64}`, "bytes");
    else cell(row, key.key === "" ? "(empty)" : key.key);
    cell(row, key.error ? `${key.count - key.error} to ${key.count}` : String(key.count), "number");
    return row;
  });
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
  showLimits(limits, shown.at ? (now - shown.at) / 1000 : 0);
  shown.at = now;
  shown.before = new Map(limits.map((limit) => [limit.name, limit.stats]));
  shown.chosen ??= limits[0]?.name ?? null;
  const chosen = limits.find((limit) => limit.name === shown.chosen);
  if (chosen) {
    at("chosen").textContent = chosen.name;
    at("explain").textContent = chosen.explain;
    const top = await ask(`/v1/top?limit=${encodeURIComponent(chosen.name)}&k=10`);
    showKeys("hot", top.hot);
    showKeys("denied", top.denied);
  }
  if (all.is_draining) showStatus("draining", true);
  else if (all.is_config_stale) showStatus("the last reload failed: an older configuration is in force", true);
  else showStatus("in force", false);
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
