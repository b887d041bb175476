/**
 * Where does this window get its bearer token from?
 *
 * The address that the daemon prints carries it in the fragment, which browsers never send to a server. It moves to
 * session storage and leaves the address bar, so that a screenshot, a synced history or a shared screen doesn't show it.
 * A second window opened from the bare address asks the windows of the same origin; they could all use it anyway.
 */

const KEY = "convoke.token";
const CHANNEL = "convoke.token";
/** Other windows answer within a few milliseconds; longer than this only delays the form that asks the person. */
const ASK_MS = 250;

/** Takes the token out of the address, if it is there. @returns {string | null} */
export function storedToken() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const given = fragment.get("token");
  if (given) {
    keepToken(given);
    fragment.delete("token");
    const rest = fragment.toString();
    history.replaceState(history.state, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
  }
  return sessionStorage.getItem(KEY);
}

/** @param {string} token */
export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}

/** Asks the other windows of this origin. @returns {Promise<string | null>} */
export function askOtherWindows() {
  if (typeof BroadcastChannel === "undefined") return Promise.resolve(null);
  return new Promise((resolve) => {
    const channel = new BroadcastChannel(CHANNEL);
    const finish = (/** @type {string | null} */ token) => {
      clearTimeout(timer);
      channel.close();
      resolve(token);
    };
    const timer = setTimeout(finish, ASK_MS, null);
    channel.addEventListener("message", (event) => {
      if (event.data?.kind === "answer" && typeof event.data.token === "string") finish(event.data.token);
    });
    channel.postMessage({ kind: "ask" });
  });
}

/** Lets other windows of this origin ask. */
export function answerOtherWindows() {
  if (typeof BroadcastChannel === "undefined") return;
  const channel = new BroadcastChannel(CHANNEL);
  channel.addEventListener("message", (event) => {
    const token = sessionStorage.getItem(KEY);
    if (event.data?.kind === "ask" && token) channel.postMessage({ kind: "answer", token });
  });
}

/** An address of this session that works in another browser. @param {string} sessionId @param {string | null} token */
export function shareableLink(sessionId, token) {
  const link = new URL(`/session/${encodeURIComponent(sessionId)}`, location.origin);
  if (token) link.hash = new URLSearchParams({ token }).toString();
  return link.href;
}
