/**
 * How does a window stay subscribed to a session?
 *
 * Reads the event stream with `fetch`, hands frames on in order, and comes back by itself: jittered backoff, last event
 * id and epoch, a watchdog for connections that went silent. Says when what was heard so far must be forgotten. Does not
 * interpret frames beyond those that speak about the stream itself.
 */

import { backoff } from "./backoff.js";
import { createParser } from "./sse.js";
import { retryAfterMs } from "./wire.js";

/** @typedef {import("./types").Frame} Frame */
/** @typedef {import("./types").Connection} Connection */

/** The daemon sends a comment every 15 s; three missed ones mean the connection is dead though nobody said so. */
export const SILENCE_MS = 50_000;

/**
 * @typedef {object} Options
 * @property {(from: { lastEventId: number, epoch: string | null, reason: string, signal: AbortSignal }) => Promise<Response>} connect
 * @property {(frame: Frame) => void} onFrame
 * @property {(truncated: boolean) => void} onRebuild Forget everything heard. `truncated`: the beginning is lost for good.
 * @property {(connection: Connection) => void} onConnection
 * @property {() => number} [random]
 * @property {() => number} [now]
 * @property {number} [silenceMs]
 */

/** What one connection ended with. @typedef {{ next: "stop", as: "ended" | "gone" | "unauthorized" } | { next: "again", reason: string, minimumMs: number, worked: boolean }} Ending */

/**
 * @param {Options} options
 */
export function subscribe(options) {
  const { connect, onFrame, onRebuild, onConnection, random = Math.random, now = Date.now } = options;
  const silenceMs = options.silenceMs ?? SILENCE_MS;
  const whole = new AbortController();

  let lastEventId = 0;
  /** @type {string | null} */
  let epoch = null;
  /** @type {(() => void) | null} */
  let wake = null;

  function again(/** @type {string} */ reason, worked = false, minimumMs = 0) {
    return /** @type {Ending} */ ({ next: "again", reason, minimumMs, worked });
  }

  /**
   * Handles one frame on a connection opened from `openedAt`.
   * @param {Frame} frame
   * @param {number} openedAt
   * @returns {Ending | null} An ending if this connection is over.
   */
  function take(frame, openedAt) {
    if (frame.type === "state_resync_required") {
      if (frame.data.reason === "replay_budget_exceeded") {
        // Only a part was replayed and nothing before it is wrong: fetch the rest from here. Without any progress the
        // next attempt would end the same way at once, so that one waits.
        return lastEventId > openedAt ? again("state_resync", true) : again("stream_end");
      }
      if (openedAt > 0) {
        lastEventId = 0;
        epoch = null;
        return again("state_resync", true);
      }
      // Already asked for everything; what follows is all there is.
      onRebuild(true);
      return null;
    }
    if (typeof frame.id === "number") {
      if (frame.id <= lastEventId) return null;
      lastEventId = frame.id;
    }
    onFrame(frame);
    if (frame.type === "session_closed" || frame.type === "session_died") return { next: "stop", as: "ended" };
    if (frame.type === "client_evicted" || frame.type === "stream_error") return again("stream_end", true);
    return null;
  }

  /**
   * @param {string} reason
   * @returns {Promise<Ending>}
   */
  async function one(reason) {
    const mine = new AbortController();
    const stop = () => mine.abort();
    whole.signal.addEventListener("abort", stop);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let watchdog;
    const heard = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, silenceMs);
    };
    let worked = false;
    try {
      heard();
      const openedAt = lastEventId;
      const response = await connect({ lastEventId, epoch, reason, signal: mine.signal });
      if (response.status === 401) {
        return { next: "stop", as: "unauthorized" };
      }
      if (response.status === 404) {
        return { next: "stop", as: "gone" };
      }
      if (!response.ok || !response.body) {
        return again(`the daemon answered ${response.status}`, false, retryAfterMs(response) ?? 0);
      }
      const served = response.headers.get("X-Qwen-Event-Epoch");
      if (epoch && served && served !== epoch && openedAt > 0) {
        // Another life of the daemon: our numbers mean nothing to it.
        lastEventId = 0;
        epoch = null;
        return again("state_resync", true);
      }
      epoch = served ?? epoch;
      if (openedAt === 0) onRebuild(false);
      onConnection({ state: "live" });

      /** @type {Ending | null} */
      let ending = null;
      const parser = createParser({
        event(event) {
          if (ending) return;
          const frame = parseFrame(event.data);
          if (frame) ending = take(frame, openedAt);
        },
      });
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return again("stream_end", worked);
        heard();
        worked = true;
        parser.push(decoder.decode(value, { stream: true }));
        if (ending) return ending;
      }
    } catch {
      return again("transport_error", worked);
    } finally {
      clearTimeout(watchdog);
      whole.signal.removeEventListener("abort", stop);
      mine.abort();
    }
  }

  async function run() {
    let attempt = 0;
    let reason = "initial";
    while (!whole.signal.aborted) {
      onConnection({ state: "connecting" });
      const ending = await one(reason);
      if (whole.signal.aborted) return;
      if (ending.next === "stop") {
        onConnection({ state: ending.as });
        return;
      }
      attempt = ending.worked ? 0 : attempt + 1;
      reason = ["state_resync", "stream_end", "transport_error"].includes(ending.reason) ? ending.reason : "unknown";
      const delay = ending.reason === "state_resync" ? 0 : Math.max(ending.minimumMs, backoff(attempt, random()));
      if (delay > 0) {
        onConnection({ state: "waiting", retryAt: now() + delay, reason: ending.reason });
        await pause(delay);
      }
    }
  }

  /** Waits, until the time is over, `nudge` is called or the subscription is closed. @param {number} ms */
  function pause(ms) {
    return new Promise((/** @type {(value: void) => void} */ resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    }).finally(() => {
      wake = null;
    });
  }

  const finished = run();

  return {
    /** Settles when the subscription has ended for good. */
    finished,
    /** Tries again now if it was waiting: the network came back, or somebody looks at the page. */
    nudge() {
      wake?.();
    },
    close() {
      whole.abort();
      wake?.();
    },
  };
}

/**
 * The envelope of a frame, or null if the text is not one. Unknown types pass: the reducer ignores them.
 * @param {string} text
 * @returns {Frame | null}
 */
export function parseFrame(text) {
  try {
    const frame = JSON.parse(text);
    if (typeof frame !== "object" || frame === null || typeof frame.type !== "string") return null;
    if (typeof frame.data !== "object" || frame.data === null) frame.data = {};
    return frame;
  } catch {
    return null;
  }
}
