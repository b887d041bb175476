/**
 * Which client ids are this window?
 *
 * The daemon mints an id per attach, and keeps one that is already registered on the session when it is sent again. So a
 * reload goes on under its old id; a duplicated tab, whose session storage is a copy, must not.
 */

const KEY = "convoke.clients";
/** Sessions remembered per window; the daemon holds 32 live ones per workspace by default. */
const SESSIONS_MAX = 64;

/** @returns {Record<string, string[]>} */
function stored() {
  try {
    const value = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** @returns {boolean} */
function isReload() {
  const [entry] = performance.getEntriesByType("navigation");
  return entry instanceof PerformanceNavigationTiming && entry.type === "reload";
}

export function createIdentity() {
  if (!isReload()) sessionStorage.removeItem(KEY);
  return {
    /** The id this window last had on a session. @param {string} sessionId */
    last: (sessionId) => stored()[sessionId]?.at(-1) ?? null,

    /** All ids this window has had on a session. @param {string} sessionId @returns {ReadonlySet<string>} */
    all: (sessionId) => new Set(stored()[sessionId] ?? []),

    /** @param {string} sessionId @param {string} clientId */
    remember(sessionId, clientId) {
      const { [sessionId]: before = [], ...others } = stored();
      const ids = [...before.filter((id) => id !== clientId), clientId].slice(-8);
      const entries = [...Object.entries(others), [sessionId, ids]].slice(-SESSIONS_MAX);
      sessionStorage.setItem(KEY, JSON.stringify(Object.fromEntries(entries)));
    },
  };
}
