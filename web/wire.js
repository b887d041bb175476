/**
 * Which HTTP requests does the page make, and what do their answers mean?
 *
 * One function per route of the daemon's v1 wire. The bearer token lives in this closure and in session storage only; it
 * is never put into a URL, a message or an error.
 */

/** @typedef {import("./types").Json} Json */
/** @typedef {import("./types").Capabilities} Capabilities */
/** @typedef {import("./types").SessionSummary} SessionSummary */

/** A request that reached the daemon and was not answered with 2xx. */
export class WireError extends Error {
  /**
   * @param {number} status
   * @param {Json} body
   * @param {number | null} retryAfterMs
   */
  constructor(status, body, retryAfterMs) {
    super(typeof body.error === "string" ? body.error : `HTTP ${status}`);
    this.name = "WireError";
    this.status = status;
    this.body = body;
    /** The stable code, or null where the daemon gives none. @type {string | null} */
    this.code = typeof body.code === "string" ? body.code : null;
    this.retryAfterMs = retryAfterMs;
  }
}

/** `Retry-After` in milliseconds; only the delay form is used on this wire. @param {Response} response */
export function retryAfterMs(response) {
  const value = response.headers.get("Retry-After");
  return value && /^\d+$/.test(value) ? Number(value) * 1000 : null;
}

/**
 * @param {object} options
 * @param {string | null} options.token
 * @param {string} [options.base] Origin of the daemon; the page's own by default.
 * @param {typeof globalThis.fetch} [options.fetch]
 */
export function createWire({ token, base = "", fetch = globalThis.fetch.bind(globalThis) }) {
  /** @type {string | null} */
  let clientId = null;

  function headers(/** @type {Record<string, string>} */ extra = {}) {
    /** @type {Record<string, string>} */
    const all = { ...extra };
    if (token) all["Authorization"] = `Bearer ${token}`;
    if (clientId) all["X-Qwen-Client-Id"] = clientId;
    return all;
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @returns {Promise<Json>}
   */
  async function call(method, path, body) {
    const response = await fetch(base + path, {
      method,
      headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
    });
    const text = await response.text();
    /** @type {unknown} */
    let parsed = null;
    try {
      parsed = text === "" ? {} : JSON.parse(text);
    } catch {
      // A route the daemon doesn't know answers with an HTML page.
    }
    const json = typeof parsed === "object" && parsed !== null ? /** @type {Json} */ (parsed) : {};
    if (!response.ok) throw new WireError(response.status, json, retryAfterMs(response));
    return json;
  }

  const id = encodeURIComponent;

  return {
    get clientId() {
      return clientId;
    },
    /** Names this window on every later request. @param {string | null} value */
    set clientId(value) {
      clientId = value;
    },

    /** @returns {Promise<Capabilities>} */
    capabilities: () => call("GET", "/capabilities"),

    /**
     * @param {string} cwd
     * @returns {Promise<SessionSummary[]>}
     */
    async sessions(cwd) {
      const body = await call("GET", `/workspace/${id(cwd)}/sessions?size=50`);
      return Array.isArray(body.sessions) ? body.sessions : [];
    },

    /** Creates a session, or attaches to the workspace's shared one. @param {Json} body */
    create: (body) => call("POST", "/session", body),

    /** Attaches to a session by id. @param {string} session @param {"resume" | "load"} how */
    attach: (session, how) => call("POST", `/session/${id(session)}/${how}`, {}),

    /** Fails with `invalid_client_id` if this window's id is not registered. @param {string} session */
    heartbeat: (session) => call("POST", `/session/${id(session)}/heartbeat`, {}),

    /** @param {string} session @param {string} text */
    prompt: (session, text) => call("POST", `/session/${id(session)}/prompt`, { prompt: [{ type: "text", text }] }),

    /** @param {string} session */
    cancel: (session) => call("POST", `/session/${id(session)}/cancel`, {}),

    /** @param {string} session */
    close: (session) => call("DELETE", `/session/${id(session)}`),

    /** @param {string} session */
    status: (session) => call("GET", `/session/${id(session)}/status`),

    /**
     * @param {string} session
     * @param {string} request
     * @param {string | null} optionId null withdraws the request (`cancelled`).
     */
    vote: (session, request, optionId) =>
      call("POST", `/session/${id(session)}/permission/${id(request)}`, {
        outcome: optionId === null ? { outcome: "cancelled" } : { outcome: "selected", optionId },
      }),

    /**
     * Opens the event stream. The response is returned as it is, whatever its status.
     *
     * @param {string} session
     * @param {{ lastEventId: number, epoch: string | null, reason: string, signal: AbortSignal }} from
     */
    events(session, { lastEventId, epoch, reason, signal }) {
      /** @type {Record<string, string>} */
      const extra = { Accept: "text/event-stream", "Last-Event-ID": String(lastEventId) };
      if (epoch) extra["X-Qwen-Event-Epoch"] = epoch;
      return fetch(`${base}/session/${id(session)}/events?connectReason=${id(reason)}`, {
        headers: headers(extra),
        cache: "no-store",
        signal,
      });
    },
  };
}

/** @typedef {ReturnType<typeof createWire>} Wire */
