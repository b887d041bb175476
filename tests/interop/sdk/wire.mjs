/**
 * What went over the wire? A fetch that keeps each call as the recordings of the peer have it, and can cut streams.
 *
 * `golden/<policy>.json` holds the calls that the SDK made when it spoke with `qwen serve` 0.24.4, and the status and
 * content type of each answer. `<uN>` stands for an id that is bound where it first comes up, `<n>` for any number but 0,
 * `<workspace>` for the folder.
 */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

export function recordingFetch() {
  const calls = [];
  const streams = new Set();
  async function recordingFetch(url, init = {}) {
    const { pathname, search } = new URL(url);
    const headers = new Headers(init.headers);
    const call = { call: `${init.method ?? "GET"} ${pathname}${search}` };
    const keep = (name, value) => value !== null && value !== undefined && (call[name] = value);
    keep("client", headers.get("x-qwen-client-id"));
    keep("after", headers.get("last-event-id"));
    keep("epoch", headers.get("x-qwen-event-epoch"));
    keep("body", init.body ? JSON.parse(init.body) : null);
    calls.push(call);
    const cut = new AbortController();
    const stream = pathname.endsWith("/events");
    if (stream) streams.add(cut);
    const signal = init.signal ? AbortSignal.any([init.signal, cut.signal]) : cut.signal;
    const response = await fetch(url, { ...init, signal });
    keep("status", response.status);
    keep("type", response.headers.get("content-type"));
    return response;
  }
  /** Breaks the connection of every open stream, as a network does. */
  recordingFetch.cut = () => {
    for (const stream of streams) stream.abort(new Error("the network is gone"));
    streams.clear();
  };
  recordingFetch.calls = calls;
  return recordingFetch;
}

/** The calls are those of the recording, ids, folder and numbers apart. */
export async function assertAsRecorded(calls, policy, workspace) {
  const golden = JSON.parse(await readFile(new URL(`golden/${policy}.json`, import.meta.url), "utf8"));
  const bound = new Map([["<workspace>", [workspace, encodeURIComponent(workspace)]]]);
  const brief = (list) => list.map(({ call, status }) => `${call.replace(/[0-9a-f-]{36}|<u\d+>/g, "<id>").replaceAll(encodeURIComponent(workspace), "<workspace>")} ${status}`);
  assert.deepEqual(brief(calls), brief(golden), "the sequence of calls");
  for (const [n, expected] of golden.entries()) compare(expected, calls[n], bound, `call ${n}: ${calls[n].call}`);
}

function compare(expected, actual, bound, at) {
  if (typeof expected === "string" && typeof actual === "string") return compareText(expected, actual, bound, at);
  if (expected === null || typeof expected !== "object") return assert.equal(actual, expected, at);
  assert.deepEqual(Object.keys(actual ?? {}).sort(), Object.keys(expected).sort(), at);
  for (const key of Object.keys(expected)) compare(expected[key], actual[key], bound, `${at} .${key}`);
}

function compareText(pattern, text, bound, at) {
  if (pattern === "<n>") return assert.match(text, /^[1-9]\d*$/, at);
  let rest = text;
  for (const piece of pattern.split(/(<[^>]+>)/).filter(Boolean)) {
    let values = bound.get(piece) ?? [piece];
    if (/^<u\d+>$/.test(piece) && !bound.has(piece)) {
      values = [rest.slice(0, 36)];
      assert.match(values[0], /^[0-9a-f-]{36}$/, `${at}: ${text} for ${pattern}`);
      bound.set(piece, values);
    }
    const found = values.find((value) => rest.startsWith(value));
    assert.ok(found !== undefined, `${at}: ${text} for ${pattern}`);
    rest = rest.slice(found.length);
  }
  assert.equal(rest, "", at);
}
