/** A client at a session: the SDK's own objects, and everything that its stream has said so far. */

import assert from "node:assert/strict";
import { DaemonClient, DaemonSessionClient } from "@qwen-code/sdk/daemon";
import { eventually } from "../page/expect.mjs";
import { recordingFetch } from "./wire.mjs";

export const workspace = process.env.CONVOKE_WORKSPACE;
export const policy = process.env.CONVOKE_POLICY;

/** Only bounds a failing test. */
const PATIENCE_MS = 60_000;

export function connect() {
  const wire = recordingFetch();
  const client = new DaemonClient({ baseUrl: process.env.CONVOKE_BASE_URL, token: process.env.CONVOKE_TOKEN, fetch: wire });
  return { wire, client };
}

export const allow = { outcome: { outcome: "selected", optionId: "proceed_once" } };
export const reject = { outcome: { outcome: "selected", optionId: "cancel" } };
export const cancelled = { outcome: { outcome: "cancelled" } };
export const ask = (text) => ({ prompt: [{ type: "text", text }] });

/** The kind of an event, and of the update where it is one. */
export const kind = (event) => (event.type === "session_update" ? event.data.update.sessionUpdate : event.type);

export class Seat {
  /** @param {DaemonSessionClient} session */
  constructor({ client, wire }, session) {
    this.client = client;
    this.wire = wire;
    this.session = session;
    /** @type {import("@qwen-code/sdk/daemon").DaemonEvent[]} */
    this.events = [];
    /** How the last stream ended: "end", an error, or undefined while it goes on. */
    this.ended = undefined;
    this.read = 0;
    this.leaving = new AbortController();
  }

  static async take(connection, request = { workspaceCwd: workspace }) {
    return new Seat(connection, await DaemonSessionClient.createOrAttach(connection.client, request));
  }

  get id() {
    return this.session.clientId;
  }

  /** Follows the session's stream; resolves when the daemon has accepted it. */
  async follow(options = {}) {
    this.ended = undefined;
    const before = this.streams().length;
    const run = async () => {
      for await (const event of this.session.events({ signal: this.leaving.signal, ...options })) this.events.push(event);
    };
    this.following = run().then(() => "end", (error) => error).then((end) => (this.ended = end));
    await eventually(() => assert.ok(this.streams().length > before && this.streams().at(-1).status), PATIENCE_MS);
  }

  streams() {
    return this.wire.calls.filter(({ call, client }) => call.includes("/events") && client === this.id);
  }

  /** The next event of this kind, from the one after the last that was waited for. */
  async next(wanted) {
    return eventually(() => {
      const index = this.events.findIndex((event, index) => index >= this.read && kind(event) === wanted);
      assert.ok(index >= 0, `${wanted} in ${this.events.slice(this.read).map(kind)}`);
      this.read = index + 1;
      return this.events[index];
    }, PATIENCE_MS);
  }

  /** The stream is over, and why. */
  async end() {
    await eventually(() => assert.ok(this.ended !== undefined, "the stream goes on"), PATIENCE_MS);
    return this.ended;
  }

  async leave() {
    this.leaving.abort();
    await this.following;
  }

  /** Asks for something that needs an answer. */
  async question() {
    const answer = this.session.prompt(ask("run the approval scenario"));
    // Awaited later; until then a failure must not end the process.
    answer.catch(() => {});
    const request = await this.next("permission_request");
    return { answer, request, requestId: request.data.requestId };
  }
}

/** The error that a call ended with. */
export async function failure(call) {
  try {
    await call;
  } catch (error) {
    return error;
  }
  assert.fail("the call must fail");
}
