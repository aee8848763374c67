// The page: access, polling and updates.

import { $, fill, made, say } from "./dom.js";
import { admin, hasToken, keepToken, restoreToken, takeToken } from "./api.js";
import { Connection } from "./connection.js";
import { choose, chosenRule, showTraffic, startTraffic } from "./traffic.js";
import { redraw, ruleOf, setPolicy, showRules, startRules } from "./rules.js";
import { setGone, setReadiness, showHealth, startHealth } from "./health.js";
import { showKeys, startKeys } from "./keys.js";
import { showCandidates, startCandidates } from "./candidates.js";
import { showHistory, startHistory } from "./history.js";
import { startExplain } from "./explain.js";
import { startCaller } from "./caller.js";
import { edit, editNew, startEditor } from "./editor.js";
import { startFindings } from "./findings.js";

const LOCKED = "Live traffic, rules and their history need the admin token. It is the value of HEADGATE_ADMIN_TOKEN where the service runs; headgate up prints it.";
const CLOSED = "The service was started without an admin token. Set one to see live traffic, the rules and their history here, and to change them:";
const ABSENT = "This service has no admin API, because it does not manage its rules. Start it with its own rules and a token to see live traffic and the rules here:";
const MOST_RULES = 1000;
let learned; // of which policy, of which run of the service: a file begins with revision 1 each time
let isLearning = false;
let reader = null;

function access(kind, message) {
  const body = document.body;
  if (body.dataset.access === kind && kind === "open") return;
  body.dataset.access = kind;
  $("forget").hidden = !hasToken();
  if (kind === "locked") {
    say($("access"), LOCKED);
    say($("token-error"), hasToken() ? `${message.charAt(0).toUpperCase()}${message.slice(1)}.` : "");
  }
  if (kind === "closed") say($("closed"), message ? CLOSED : ABSENT);
}

/** Disable the buttons that change something if the token is read-only, and show the reason. */
function lock() {
  const why = reader === null ? null : `The token “${reader}” is read-only. Changes need a token with the role write.`;
  for (const note of [$("writes-note"), $("editor-locked")]) {
    note.hidden = why === null;
    say(note, why ?? "");
  }
  for (const button of document.querySelectorAll("[data-writes]")) {
    button.disabled = why !== null;
    if (why === null) { button.removeAttribute("aria-describedby"); button.removeAttribute("title"); }
    else { button.setAttribute("aria-describedby", button.closest("dialog") ? "editor-locked" : "writes-note"); button.title = why; }
  }
}

/** Read the policy and its history again. */
async function learn(wanted) {
  if (isLearning) return;
  isLearning = true;
  try {
    const status = (await admin("GET", "/status")).data;
    reader = status.caller?.role === "read" ? status.caller.name : null;
    lock();
    const isHistoryRead = await showHistory(status);
    const rules = [];
    for (let offset = 0; offset !== null && rules.length < 10 * MOST_RULES;) {
      const { data } = await admin("GET", `/rules?limit=${MOST_RULES}&offset=${offset}`);
      rules.push(...data.rules);
      offset = data.next_offset;
    }
    setPolicy(rules);
    lock();
    if (isHistoryRead) learned = wanted; // else the next answer tries again
    unread(null);
  } catch (error) {
    if (error.name !== "ProblemError") throw error; // else the next answer tries again
    unread(error);
  } finally { isLearning = false; }
}

/** Report that the text of the rules cannot be read, as after an error in their file. */
function unread(error) {
  $("rules-unread").hidden = error === null;
  say($("rules-unread"), error === null ? "" : `The text of the rules cannot be read: ${error.message}. The rules in force stay in force.`);
}

function live(data) {
  showHealth(data);
  showTraffic(data);
  showRules(data);
  showKeys(data);
  showCandidates(data);
  const wanted = JSON.stringify([data.policy?.revision, data.began]);
  if (wanted !== learned) learn(wanted);
}

const connection = new Connection({ live, access, ready: setReadiness, gone: setGone });

const told = made("p", { class: "toast", role: "status" });
let telling;

/** Report a change, and poll at once. */
function changed(text) {
  fill(told, made("span", { text: `Done: ${text}.` }));
  told.classList.add("is-shown");
  clearTimeout(telling);
  telling = setTimeout(() => told.classList.remove("is-shown"), 8_000);
  learned = undefined;
  connection.again();
}

function start() {
  document.body.append(told);
  startFindings();
  startTraffic(redraw);
  startRules({ choose, chosen: chosenRule, edit });
  startHealth();
  startKeys();
  startCandidates({ edit, changed, shown: lock, ruleOf });
  startHistory({ changed, shown: lock });
  startEditor({ changed, shown: lock });
  startExplain();
  startCaller();
  $("rule-new").addEventListener("click", editNew);
  $("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keepToken($("token").value);
    $("token").value = "";
    learned = undefined;
    connection.reopen();
  });
  $("forget").addEventListener("click", () => { keepToken(""); location.reload(); });
  addEventListener("hashchange", () => { if (takeToken()) { learned = undefined; connection.reopen(); } });
  if (!takeToken()) restoreToken();
  connection.again();
}

start();
