/**
 * How are bytes of an event stream cut into events?
 *
 * The parsing rules of the WHATWG HTML standard, §9.2.6, as a push parser: text goes in in pieces of any size, events
 * come out. Knows nothing of HTTP, JSON or reconnecting.
 */

/**
 * The longest event taken, in UTF-16 units. The daemon's queue to one subscriber is 2 MiB, and one oversized event may
 * pass an empty queue; past this bound the stream is not an event stream and the connection is given up.
 */
export const EVENT_CHARS_MAX = 16 * 1024 * 1024;

/**
 * @typedef {object} SseEvent
 * @property {string} type `message` unless the stream names one.
 * @property {string} data The `data` lines, joined by newlines.
 * @property {string} lastEventId The last `id` seen on this stream so far, else the empty string.
 */

/**
 * @param {object} on
 * @param {(event: SseEvent) => void} on.event
 * @param {(milliseconds: number) => void} [on.retry]
 * @param {() => void} [on.comment]
 */
export function createParser(on) {
  let line = "";
  let data = "";
  let hasData = false;
  let type = "";
  let lastEventId = "";
  let afterCr = false;
  let atStart = true;

  function field(/** @type {string} */ name, /** @type {string} */ value) {
    if (name === "data") {
      data += hasData ? "\n" + value : value;
      hasData = true;
      if (data.length > EVENT_CHARS_MAX) throw new Error("event stream: an event is longer than the bound");
    } else if (name === "event") {
      type = value;
    } else if (name === "id") {
      if (!value.includes("\0")) lastEventId = value;
    } else if (name === "retry") {
      if (/^\d+$/.test(value)) on.retry?.(Number(value));
    }
  }

  function endLine() {
    const text = line;
    line = "";
    if (text === "") {
      if (hasData) on.event({ type: type || "message", data, lastEventId });
      data = "";
      hasData = false;
      type = "";
      return;
    }
    const colon = text.indexOf(":");
    if (colon === 0) {
      on.comment?.();
    } else if (colon < 0) {
      field(text, "");
    } else {
      const value = text.slice(colon + 1);
      field(text.slice(0, colon), value.startsWith(" ") ? value.slice(1) : value);
    }
  }

  return {
    /** Takes the next piece of decoded text. @param {string} text */
    push(text) {
      let from = 0;
      if (atStart && text.length > 0) {
        atStart = false;
        if (text.charCodeAt(0) === 0xfeff) from = 1;
      }
      for (let at = from; at < text.length; at++) {
        const code = text.charCodeAt(at);
        if (code !== 10 && code !== 13) {
          afterCr = false;
          continue;
        }
        // The LF of a CRLF pair belongs to the CR before it, even when the pair was cut in two.
        if (code === 10 && afterCr && at === from) {
          from = at + 1;
          afterCr = false;
          continue;
        }
        line += text.slice(from, at);
        from = at + 1;
        afterCr = code === 13;
        endLine();
      }
      line += text.slice(from);
      if (line.length > EVENT_CHARS_MAX) throw new Error("event stream: a line is longer than the bound");
    },
  };
}
