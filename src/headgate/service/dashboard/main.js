// The page: access, polling and updates.

import { $, element, setChildren, setText } from "./dom.js";
import { admin, hasToken, restoreToken, setToken, takeToken } from "./api.js";
import { Connection } from "./connection.js";
import { hrefOf, onRoute, route } from "./routes.js";
import { showTraffic, showTrafficRoute, startTraffic } from "./traffic.js";
import { ruleOf, setPolicy, showRules, showRulesRoute, startRules } from "./rules.js";
import { showRule, startRule } from "./rule.js";
import { endOutage, setOutage, setReadiness, showHealth, startHealth } from "./health.js";
import { showKeys, startKeys } from "./keys.js";
import { showNodes, startNodes } from "./nodes.js";
import { showCandidates, startCandidates } from "./candidates.js";
import { showHistory, startHistory } from "./history.js";
import { showExplainRoute, startExplain } from "./explain.js";
import { showCaller, showCallerFields, startCaller } from "./caller.js";
import { showSearch, startSearch } from "./search.js";
import { edit, editNew, startEditor, switchRule } from "./editor.js";
import { startFindings } from "./findings.js";

const LOCKED = "Live traffic, rules and their history need the admin token. It is the value of HEADGATE_ADMIN_TOKEN where the service runs; headgate up prints it.";
const CLOSED = "The service was started without an admin token. Set one to see live traffic, the rules and their history here, and to change them:";
const ABSENT = "This service has no admin API, because it does not manage its rules. Start it with its own rules and a token to see live traffic and the rules here:";
const MOST_RULES = 1000;
let loadedPolicy; // its revision and the start of the service: a file has revision 1 after each start
let isLoading = false;
let readOnlyName = null; // the name of the token if it is read-only

function showAccess(kind, message) {
  const body = document.body;
  if (body.dataset.access === kind && kind === "open") return;
  body.dataset.access = kind;
  $("forget").hidden = !hasToken();
  if (kind === "locked") {
    setText($("access"), LOCKED);
    setText($("token-error"), hasToken() ? `${message.charAt(0).toUpperCase()}${message.slice(1)}.` : "");
  }
  if (kind === "closed") setText($("closed"), message ? CLOSED : ABSENT);
  showCallerFields();
  showPage();
}

const TITLES = { overview: "Overview", rules: "Rules", callers: "Callers", health: "Health", policy: "Policy", explain: "Explain", search: "Search" };
let lastLive = null;

/** Show the sections of the page that the address names; without access, what everybody may see. */
function showPage({ isNewPage = true } = {}) {
  const { page, name } = route();
  const isOpen = document.body.dataset.access === "open";
  for (const section of document.querySelectorAll("[data-pages]")) {
    section.hidden = isOpen ? !section.dataset.pages.split(" ").includes(page) : section.id !== "callers";
  }
  const parent = { rule: "rules", caller: "callers" }[page] ?? page;
  for (const link of document.querySelectorAll("nav.sections a")) {
    const target = link.hash.replace(/^#\/|\?.*$/g, "");
    link.setAttribute("href", hrefOf(target));
    if (target === parent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${name || TITLES[page]} – Headgate`;
  if (!isOpen) return;
  if (isNewPage) scrollTo(0, 0);
  showRulesRoute();
  showTrafficRoute();
  showExplainRoute();
  if (lastLive) showAll(lastLive);
  else showCaller();
}

/** Disable the buttons that change something if the token is read-only, and show the reason. */
function lockButtons() {
  const reason = readOnlyName === null ? null : `The token “${readOnlyName}” is read-only. Changes need a token with the role write.`;
  for (const note of [$("writes-note"), $("editor-locked")]) {
    note.hidden = reason === null;
    setText(note, reason ?? "");
  }
  for (const button of document.querySelectorAll("[data-writes]")) {
    button.disabled = reason !== null;
    if (reason === null) { button.removeAttribute("aria-describedby"); button.removeAttribute("title"); }
    else { button.setAttribute("aria-describedby", button.closest("dialog") ? "editor-locked" : "writes-note"); button.title = reason; }
  }
}

/** Read the policy and its history again. */
async function loadPolicy(version) {
  if (isLoading) return;
  isLoading = true;
  try {
    const status = (await admin("GET", "/status")).data;
    readOnlyName = status.caller?.role === "read" ? status.caller.name : null;
    lockButtons();
    const isHistoryRead = await showHistory(status);
    const rules = [];
    for (let offset = 0; offset !== null && rules.length < 10 * MOST_RULES;) {
      const { data } = await admin("GET", `/rules?limit=${MOST_RULES}&offset=${offset}`);
      rules.push(...data.rules);
      offset = data.next_offset;
    }
    setPolicy(rules);
    showCallerFields();
    if (lastLive) showAll(lastLive);
    lockButtons();
    if (isHistoryRead) loadedPolicy = version; // otherwise the next response tries again
    showPolicyError(null);
  } catch (error) {
    if (error.name !== "ProblemError") throw error;
    showPolicyError(error); // the next response tries again
  } finally { isLoading = false; }
}

/** Report that the text of the rules cannot be read, as after an error in their file. */
function showPolicyError(error) {
  $("rules-error").hidden = error === null;
  setText($("rules-error"), error === null ? "" : `The text of the rules cannot be read: ${error.message}. The rules in force stay in force.`);
}

/** Show *live* in the sections that are open. */
function showAll(live) {
  showHealth(live);
  showNodes(live);
  showTraffic(live);
  showRules(live);
  showRule(live);
  showKeys(live);
  showCandidates(live);
  showCaller();
  showSearch(live);
}

function showLive(data) {
  lastLive = data;
  endOutage();
  showAll(data);
  const version = JSON.stringify([data.policy?.revision, data.began]);
  if (version !== loadedPolicy) loadPolicy(version);
}

const connection = new Connection({ onLive: showLive, onAccess: showAccess, onReadiness: setReadiness, onOutage: setOutage });

const toast = element("p", { class: "toast", role: "status" });
let toastTimer;

/** Report a change, and poll at once. */
function reportChange(text) {
  setChildren(toast, element("span", { text: `Done: ${text}.` }));
  toast.classList.add("is-visible");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => toast.classList.remove("is-visible"), 8_000);
  loadedPolicy = undefined;
  connection.pollNow();
}

function start() {
  document.body.append(toast);
  startFindings();
  startTraffic();
  startRules({ edit });
  startRule({ edit, switchRule });
  startHealth();
  startKeys();
  startNodes();
  startCandidates({ edit, reportChange, lockButtons, ruleOf });
  startHistory({ reportChange, lockButtons });
  startEditor({ reportChange, lockButtons });
  startExplain();
  startCaller({ reportChange, lockButtons });
  startSearch();
  onRoute(showPage);
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
  $("rule-new").addEventListener("click", editNew);
  $("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setToken($("token").value);
    $("token").value = "";
    loadedPolicy = undefined;
    connection.retryAccess();
  });
  $("forget").addEventListener("click", () => { setToken(""); location.reload(); });
  addEventListener("hashchange", () => { if (takeToken()) { loadedPolicy = undefined; connection.retryAccess(); } });
  if (!takeToken()) restoreToken();
  showPage();
  connection.pollNow();
}

start();
