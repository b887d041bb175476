/** The peer's page, as published, in a browser with our daemon behind it. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { DaemonSessionClient } from "@qwen-code/sdk/daemon";
import { launch } from "../page/browser.mjs";
import { eventually } from "../page/expect.mjs";
import { Seat, ask, connect, workspace } from "../sdk/seat.mjs";
import { startProxy } from "./proxy.mjs";

/** Only bounds a failing test. */
const PATIENCE_MS = 60_000;

/** What the page asks for and does without: decorations, and matters of its own agent. */
const BEYOND_THE_CORE = /^\/(brand|standalone|workspaces?|session\/[^/]+\/(goal|artifacts|sources|mid-turn-messages|turn-index|attachments|stats|tasks))\b/;

let browser;
let proxy;
before(async () => {
  browser = await launch();
  proxy = await startProxy(process.env.CONVOKE_BASE_URL);
});
after(async () => {
  await browser.close();
  await proxy.close();
});

/** A window of its own, and what it did that no page may. */
async function open(path) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 820 }, serviceWorkers: "block", locale: "en-US" });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(proxy.url)) faults.push(`another host: ${request.url()}`);
  });
  await page.goto(`${proxy.url}${path}#token=${process.env.CONVOKE_TOKEN}`);
  return {
    page,
    close: async () => {
      await context.close();
      assert.deepEqual(faults, []);
    },
  };
}

const option = (page, name) => page.getByRole("radio", { name });

/** Calls whose path has this end. */
const calls = (method, end) => proxy.calls.filter((call) => call.method === method && new URL(call.path, "http://page").pathname.endsWith(end));

test("a new session from the start page: prompt, question, answer, result", async () => {
  const { page, close } = await open("/");
  const editor = page.locator(".cm-content").first();
  await editor.click();
  await page.keyboard.type("run the approval scenario");
  await page.keyboard.press("Enter");
  await option(page, /allow once/i).click();
  await page.getByText("Done after the tool.").waitFor();
  assert.match(new URL(page.url()).pathname, /^\/session\/[0-9a-f-]{36}$/);

  const [created] = calls("POST", "/session");
  assert.equal(created.status, 200);
  assert.deepEqual(JSON.parse(created.body), { cwd: workspace, sessionScope: "thread", approvalMode: "default", sourceType: "default" });
  assert.deepEqual(calls("POST", "/prompt").map(({ status }) => status), [202]);
  const votes = proxy.calls.filter(({ method, path }) => method === "POST" && path.includes("/permission/"));
  assert.deepEqual(votes.map(({ status }) => status), [200]);
  assert.deepEqual(JSON.parse(votes[0].body).outcome, { outcome: "selected", optionId: "proceed_once" });
  await close();
});

test("a session that is there: its question is shown and can be refused", async () => {
  const connection = connect();
  const other = await Seat.take(connection, { workspaceCwd: workspace, sessionScope: "thread" });
  await other.follow();
  const { answer } = await other.question();
  const { page, close } = await open(`/session/${other.session.sessionId}`);
  await page.getByText("run the approval scenario").first().waitFor();
  await option(page, /reject/i).click();
  const { data } = await other.next("permission_resolved");
  assert.notEqual(data.voterClientId, other.id);
  assert.equal((await answer).stopReason, "end_turn");
  await option(page, /reject/i).waitFor({ state: "detached" });
  await close();
  await other.session.close();
});

test("what others do is seen in the page: their prompt, their answer", async () => {
  const connection = connect();
  const other = await Seat.take(connection, { workspaceCwd: workspace, sessionScope: "thread" });
  await other.follow();
  const { page, close } = await open(`/session/${other.session.sessionId}`);
  await eventually(async () => assert.equal((await other.session.status()).clientCount, 2), PATIENCE_MS);
  const { answer, requestId } = await other.question();
  await option(page, /allow once/i).waitFor();
  const second = await DaemonSessionClient.resume(connection.client, other.session.sessionId, { workspaceCwd: workspace });
  assert.equal(await second.respondToSessionPermission(requestId, { outcome: { outcome: "selected", optionId: "proceed_once" } }), true);
  await page.getByText("Done after the tool.").waitFor();
  await option(page, /allow once/i).waitFor({ state: "detached" });
  await answer;
  await other.session.submitPrompt(ask("echo heard by the page"));
  await page.getByText("echo heard by the page").nth(1).waitFor();
  await close();
  await other.session.close();
});

test("nothing that the page asked of the core was refused", () => {
  const refused = proxy.calls.filter(({ status }) => status >= 400).map(({ method, path, status }) => `${status} ${method} ${path}`);
  const unexpected = refused.filter((line) => !(line.startsWith("404 GET ") && BEYOND_THE_CORE.test(line.slice("404 GET ".length))));
  assert.deepEqual(unexpected, []);
});
