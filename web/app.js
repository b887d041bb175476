/**
 * How do the parts of the page belong together?
 *
 * Wiring only: the address and the token lead to a session, its stream feeds the reducer, the reducer's state feeds the
 * views at most once per frame, and what people do becomes requests.
 */

import { createIdentity } from "./identity.js";
import { initialState, pendingPermissions, reduce } from "./state.js";
import { subscribe } from "./stream.js";
import { answerOtherWindows, askOtherWindows, forgetToken, keepToken, shareableLink, storedToken } from "./token.js";
import { createComposer } from "./view/composer.js";
import { createConversation } from "./view/conversation.js";
import { byId, setText } from "./view/dom.js";
import { messageGate, tokenGate, welcome } from "./view/gate.js";
import { createHeader } from "./view/header.js";
import { createPermissionDock } from "./view/permission.js";
import { createSessionList } from "./view/sessions.js";
import { createWire, WireError } from "./wire.js";
import { backoff } from "./backoff.js";
import { clientName } from "./wording.js";

/** @typedef {import("./types").Action} Action */
/** @typedef {import("./types").Connection} Connection */

/** Used where the daemon doesn't say how often to ask. */
const LIST_MS = 5000;

const identity = createIdentity();
let token = storedToken();
let wire = createWire({ token });

/** @type {import("./types").Capabilities} */
let capabilities = {};
let state = initialState("");
/** @type {Connection} */
let connection = { state: "connecting" };
/** Null where the daemon doesn't list them. @type {import("./types").SessionSummary[] | null} */
let sessions = [];
/** @type {ReturnType<typeof subscribe> | null} */
let subscription = null;
/** Rises with every session that is opened, so that answers to older questions can tell they are late. */
let visit = 0;
/** @type {ReadonlySet<string>} */
let mine = new Set();

const name = (/** @type {string | undefined} */ clientId) => clientName(clientId, mine);
const context = { name };

// ---- views

const header = createHeader(byId("header", HTMLElement), {
  menu: () => toggleSidebar(),
  link: () => (state.sessionId ? shareableLink(state.sessionId, token) : null),
  reconnect: () => subscription?.nudge(),
});
const conversation = createConversation(
  byId("scroller", HTMLElement),
  byId("conversation", HTMLElement),
  byId("jump", HTMLElement),
  context,
);
const composer = createComposer(byId("composer", HTMLElement), { send, cancel, up: () => dock.focus() });
const dock = createPermissionDock(byId("dock", HTMLElement), {
  context,
  policy: () => capabilities.policy?.permission,
  answer: (requestId, optionId) => void vote(requestId, optionId),
  announce: (text) => say("urgent", text),
  mayTakeFocus: () => {
    const active = document.activeElement;
    return active === null || active === document.body || (composer.is(active) && composer.idle());
  },
  giveFocusBack: () => composer.focus(),
});
const list = createSessionList(byId("sessions", HTMLElement), {
  open: (sessionId) => {
    toggleSidebar(false);
    if (sessionId !== state.sessionId || connection.state === "gone") go(`/session/${encodeURIComponent(sessionId)}`);
  },
  create: () => void createSession(),
  close: (sessionId) => void closeSession(sessionId),
});
const hello = welcome((text) => composer.fill(text));

// ---- drawing

let scheduled = false;

function dispatch(/** @type {Action} */ action) {
  const before = state;
  state = reduce(state, action);
  if (state === before) return;
  if (before.turn && !state.turn && state.caughtUp && before.caughtUp) say("polite", "The agent has finished.");
  schedule();
}

function schedule() {
  // The title is what a person sees of a hidden page, and hidden pages draw no frames.
  showTitle();
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    draw();
  });
}

function draw() {
  conversation.render(state, hello);
  // While history streams in, old requests flash by; only what is still pending at its end is a question.
  if (state.caughtUp || state.entries.length === 0) dock.render(state);
  composer.render(state, name, connection.state === "live" || connection.state === "waiting");
  list.render(sessions, state.sessionId || null, sessionTitle());
  drawHeader();
}

function drawHeader() {
  header.render({ title: sessionTitle() ?? "New session", place: place(), connection, time: Date.now() });
}

function sessionTitle() {
  const named = state.title ?? sessions?.find((session) => session.sessionId === state.sessionId)?.displayName;
  if (named) return named;
  const first = state.entries.find((entry) => entry.kind === "user");
  if (first?.kind === "user" && !state.truncated) return first.text.split("\n")[0]?.slice(0, 80) || null;
  return null;
}

function place() {
  const cwd = capabilities.workspaceCwd ?? "";
  const summary = sessions?.find((session) => session.sessionId === state.sessionId);
  const clients = summary?.clientCount ?? 0;
  return [cwd, clients > 1 ? `${clients} clients` : ""].filter(Boolean).join(" · ");
}

function showTitle() {
  const waiting = state.caughtUp ? pendingPermissions(state).length : 0;
  const title = `${waiting > 0 ? "● Permission needed · " : ""}${sessionTitle() ?? "Convoke"}`;
  if (document.title !== title) document.title = title;
}

function say(/** @type {"polite" | "urgent"} */ how, /** @type {string} */ text) {
  setText(byId(how, HTMLElement), text);
}

function toggleSidebar(open = !document.body.classList.contains("sidebar-open")) {
  document.body.classList.toggle("sidebar-open", open);
  byId("scrim", HTMLElement).hidden = !open;
  header.setMenu(open);
  const first = byId("sessions", HTMLElement).querySelector("button");
  if (open) first?.focus();
}

function gate(/** @type {HTMLElement | null} */ content) {
  const area = byId("gate", HTMLElement);
  area.hidden = content === null;
  document.body.classList.toggle("gated", content !== null);
  area.replaceChildren(...(content ? [content] : []));
  content?.querySelector("input")?.focus();
}

// ---- sessions

/** Asks until the daemon answers; a token that is refused leads to the form. @returns {Promise<boolean>} */
async function meetDaemon() {
  for (let attempt = 0; ; attempt++) {
    try {
      capabilities = await wire.capabilities();
      setText(
        byId("about", HTMLElement),
        [capabilities.policy?.permission, capabilities.qwenCodeVersion && `version ${capabilities.qwenCodeVersion}`].filter(Boolean).join(" · "),
      );
      return true;
    } catch (error) {
      if (error instanceof WireError && error.status === 401) {
        askForToken(token !== null);
        return false;
      }
      const delay = backoff(attempt, Math.random());
      setConnection({ state: "waiting", retryAt: Date.now() + delay, reason: "transport_error" });
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }
}

function askForToken(/** @type {boolean} */ refused) {
  setConnection({ state: "unauthorized" });
  forgetToken();
  gate(
    tokenGate(refused, (given) => {
      token = given;
      keepToken(given);
      wire = createWire({ token });
      gate(null);
      void start();
    }),
  );
}

/** The session that the address names. @returns {string | null} */
function addressed() {
  const match = /^\/session\/([^/]+)\/?$/.exec(location.pathname);
  try {
    return match?.[1] ? decodeURIComponent(match[1]) : null;
  } catch {
    return null;
  }
}

async function start() {
  if (!(await meetDaemon())) return;
  await openAddressed();
}

function go(/** @type {string} */ path) {
  history.pushState(null, "", path);
  void openAddressed();
}

/** Opens what the address names: a session, or the workspace's shared one. */
async function openAddressed() {
  const mineNow = ++visit;
  subscription?.close();
  subscription = null;
  gate(null);
  setConnection({ state: "connecting" });
  const named = addressed();
  if (named !== state.sessionId || named === null) {
    state = initialState(named ?? "");
    schedule();
  }
  try {
    const sessionId = named ?? (await attachShared());
    if (mineNow !== visit) return;
    if (named !== null) await attach(named);
    if (mineNow !== visit) return;
    mine = identity.all(sessionId);
    state = initialState(sessionId);
    if (addressed() !== sessionId) history.replaceState(null, "", `/session/${encodeURIComponent(sessionId)}`);
    follow(sessionId, mineNow);
    void refreshList();
    composer.focus();
  } catch (error) {
    if (mineNow === visit) explain(error);
  }
}

/** Joins the workspace's shared session, or makes it. @returns {Promise<string>} */
async function attachShared() {
  wire.clientId = null;
  const body = await wire.create({});
  return registered(body);
}

/**
 * Registers this window on a session by id. Daemons differ in what they offer, so the ways are tried in order; without
 * any, the window stays anonymous, which first-responder daemons accept.
 * @param {string} sessionId
 */
async function attach(sessionId) {
  wire.clientId = identity.last(sessionId);
  if (wire.clientId) {
    try {
      // After a reload the id usually still stands.
      await wire.heartbeat(sessionId);
      return;
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
    }
    wire.clientId = null;
  }
  for (const how of /** @type {const} */ (["resume", "load"])) {
    try {
      registered(await wire.attach(sessionId, how));
      return;
    } catch (error) {
      if (!(error instanceof WireError) || error.code !== null || ![404, 405, 501].includes(error.status)) throw error;
    }
  }
  await wire.status(sessionId);
}

/** @param {import("./types").Json} body @returns {string} */
function registered(body) {
  const sessionId = String(body.sessionId);
  if (typeof body.clientId === "string") {
    wire.clientId = body.clientId;
    identity.remember(sessionId, body.clientId);
    mine = identity.all(sessionId);
  }
  return sessionId;
}

function explain(/** @type {unknown} */ error) {
  if (error instanceof WireError) {
    if (error.status === 401) return askForToken(token !== null);
    if (error.status === 404) return gone();
    setConnection({ state: "ended" });
    return gate(messageGate("The session could not be opened", error.message, { label: "Try again", act: () => void openAddressed() }));
  }
  const mineNow = visit;
  setConnection({ state: "waiting", retryAt: Date.now() + 2000, reason: "transport_error" });
  setTimeout(() => mineNow === visit && void openAddressed(), 2000);
}

function gone() {
  setConnection({ state: "gone" });
  gate(
    messageGate("This session is gone", "It was closed, or the daemon was started again since.", {
      label: "Go to the shared session",
      act: () => go("/"),
    }),
  );
}

/** @param {string} sessionId @param {number} mineNow */
function follow(sessionId, mineNow) {
  subscription = subscribe({
    connect: (from) => wire.events(sessionId, from),
    onFrame: (frame) => {
      if (mineNow !== visit) return;
      dispatch({ type: "frame", frame });
      if (frame.type === "replay_complete" && state.truncated) void fillFromStatus(sessionId, mineNow);
      if (frame.type === "session_closed" || frame.type === "session_died") offerNew();
      if (frame.type === "turn_complete" || frame.type === "permission_request" || frame.type === "session_closed") void refreshList();
    },
    onRebuild: (truncated) => mineNow === visit && dispatch({ type: "rebuild", truncated }),
    onConnection: (next) => {
      if (mineNow !== visit) return;
      setConnection(next);
      if (next.state === "unauthorized") askForToken(true);
      if (next.state === "gone") gone();
    },
  });
}

/** What was asked before the daemon's memory begins is not replayed by every daemon. @param {string} sessionId @param {number} mineNow */
async function fillFromStatus(sessionId, mineNow) {
  try {
    const status = await wire.status(sessionId);
    if (mineNow === visit) dispatch({ type: "status", status });
  } catch {
    // The stream goes on without it.
  }
}

function offerNew() {
  const foot = messageGate(
    state.ended?.how === "died" ? "The agent stopped" : "This session was closed",
    "What was said stays readable above.",
    { label: "Open a new session", act: () => go("/") },
  );
  foot.classList.add("gate-below");
  const area = byId("gate", HTMLElement);
  area.hidden = false;
  area.replaceChildren(foot);
}

async function createSession() {
  toggleSidebar(false);
  try {
    wire.clientId = null;
    const sessionId = registered(await wire.create({ sessionScope: "thread" }));
    go(`/session/${encodeURIComponent(sessionId)}`);
  } catch (error) {
    explain(error);
  }
}

async function closeSession(/** @type {string} */ sessionId) {
  try {
    await wire.close(sessionId);
  } catch (error) {
    // Gone already is as good as closed; a foreign id is not ours to present there.
    if (!(error instanceof WireError)) throw error;
  }
  void refreshList();
}

async function refreshList() {
  if (!capabilities.workspaceCwd) return;
  try {
    sessions = await wire.sessions(capabilities.workspaceCwd);
  } catch (error) {
    if (error instanceof WireError) sessions = null;
  }
  schedule();
}

// ---- what people do

/** @param {string} text @returns {Promise<string | null>} */
async function send(text) {
  try {
    await registeredly(() => wire.prompt(state.sessionId, text));
    conversation.toEnd();
    return null;
  } catch (error) {
    if (error instanceof WireError && error.code === "prompt_queue_full") return "Too many prompts are waiting already. Try again when one is done.";
    return `Not sent: ${error instanceof WireError ? error.message : "the daemon could not be reached"}.`;
  }
}

function cancel() {
  const { promptId } = state.turn ?? {};
  if (!promptId) return;
  registeredly(() => wire.cancel(state.sessionId)).catch((error) => say("urgent", `Not cancelled: ${error.message}`));
}

/** @param {string} requestId @param {string | null} optionId */
async function vote(requestId, optionId) {
  const set = (/** @type {import("./types").OwnVote["status"]} */ status, /** @type {string} */ detail = "") =>
    dispatch({ type: "vote", requestId, vote: { status, optionId, detail } });
  set("sending");
  try {
    await registeredly(() => wire.vote(state.sessionId, requestId, optionId));
    set("recorded");
  } catch (error) {
    if (!(error instanceof WireError)) return set("failed");
    if (error.status === 404) return set("late");
    if (error.status === 403) return set("forbidden", String(error.body.reason ?? error.message));
    set("failed", error.message);
  }
}

/**
 * Does a request, and once more after registering again if the daemon no longer knows this window.
 * @template T
 * @param {() => Promise<T>} request
 * @returns {Promise<T>}
 */
async function registeredly(request) {
  try {
    return await request();
  } catch (error) {
    if (!(error instanceof WireError) || error.code !== "invalid_client_id") throw error;
    wire.clientId = null;
    registered(await wire.attach(state.sessionId, "resume"));
    return request();
  }
}

function setConnection(/** @type {Connection} */ next) {
  connection = next;
  schedule();
}

// ---- the window

document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.defaultPrevented) return;
  if (event.key === "Escape") {
    if (document.body.classList.contains("sidebar-open")) {
      toggleSidebar(false);
      header.focusMenu();
    } else {
      cancel();
    }
    return;
  }
  const digit = /^(?:Digit|Numpad)([1-9])$/.exec(event.code)?.[1];
  if (!digit || event.ctrlKey || event.metaKey || event.shiftKey || event.repeat) return;
  // A bare digit answers only where digits can't mean text; with Alt from anywhere.
  if (event.altKey || dock.contains(document.activeElement)) {
    if (dock.press(Number(digit))) event.preventDefault();
  }
});
byId("scrim", HTMLElement).addEventListener("click", () => toggleSidebar(false));
window.addEventListener("popstate", () => void openAddressed());
window.addEventListener("hashchange", () => {
  // The printed address opened once more in this window.
  const given = storedToken();
  if (given !== token) {
    token = given;
    wire = createWire({ token });
    void start();
  }
});
window.addEventListener("online", () => subscription?.nudge());
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible") return;
  subscription?.nudge();
  void refreshList();
});
// Only the words change with the time: how long until the next attempt.
setInterval(() => connection.state === "waiting" && drawHeader(), 1000);

async function pollList() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, capabilities.sessionLiveStatePollIntervalMs ?? LIST_MS));
    if (document.visibilityState === "visible" && connection.state === "live") await refreshList();
  }
}

if (token === null) {
  token = await askOtherWindows();
  if (token) {
    keepToken(token);
    wire = createWire({ token });
  }
}
answerOtherWindows();
schedule();
await start();
void pollList();
